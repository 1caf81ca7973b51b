package verify

import (
	"fmt"
	"sync"
	"time"
)

func repeatChecks() []*check {
	return []*check{
		{
			name: "repeat", safety: true, title: "a repeat has no effect, and gets the first answer again", rules: []string{"R-34", "R-26"},
			run: func(p *probe) error {
				o := p.scenario.newOperation("")
				first, err := p.first(o)
				if err != nil {
					return err
				}
				for range 3 {
					again := p.send(o.request())
					if differs := again.sameAs(first); differs != "" {
						p.fail(p.severityOf(again), "R-34", "a repeat got "+differs, "the first answer again")
						break
					}
				}
				_, err = p.wantEffects(1, "R-26", "one effect, however often it is asked for")
				return err
			},
		},
		{
			name: "concurrent", safety: true, title: "of many requests at once one takes effect", rules: []string{"R-26"},
			run: concurrently,
		},
		{
			name: "retry-after", title: "a repeat of what is in progress is told when to come again", rules: []string{"R-27"},
			needs: []need{needsVariant("slow")},
			run: func(p *probe) error {
				o := p.scenario.newOperation("slow")
				done := p.start(o.request())
				defer func() { <-done }()
				if !p.waitFor(o, done) {
					return errSkip("the slow request ended before it could be repeated")
				}
				a := p.send(o.request())
				switch m := p.reads(a); {
				case m == succeeded:
					return errSkip("repeats wait for the request in progress")
				case m != busy:
					p.fail(Protocol, "R-27", "a repeat during the request got "+a.String(),
						fmt.Sprintf("status %v, or the first answer once it is there", p.scenario.profile.Busy))
				case a.header.Get("Retry-After") == "":
					p.fail(Protocol, "R-27", "the answer has no Retry-After", "Retry-After with the seconds to wait")
				case !isDelay(a.header.Get("Retry-After")):
					p.fail(Protocol, "R-27", fmt.Sprintf("Retry-After is %q", a.header.Get("Retry-After")),
						"whole seconds, at least 1, or an HTTP date (RFC 9110 section 10.2.3)")
				}
				return nil
			},
		},
		{
			name: "two-keys", safety: true, title: "two keys are two operations, though their requests are equal", rules: []string{"R-10"},
			run: func(p *probe) error {
				o := p.scenario.newOperation("")
				if _, err := p.first(o); err != nil {
					return err
				}
				a := p.send(o.keyed(o.bare(), newUUID()))
				if a.err != nil || a.status/100 != 2 {
					return errSkip(fmt.Sprintf("the target refuses the same request under another key: %s", a))
				}
				n, err := p.counted()
				if err == nil && n < 2 {
					p.fail(Safety, "R-10", fmt.Sprintf("%d effect of two keys", n),
						"two effects: two equal payments may be meant, and only their keys tell them from a repeat")
				}
				return err
			},
		},
	}
}

// severityOf is how bad a wrong answer to a repeat is: one that is not given costs nobody anything, one that is wrong
// does.
func (p *probe) severityOf(a *answer) Severity {
	switch p.reads(a) {
	case noAnswer, busy, later, unknown:
		return Protocol
	}
	return Safety
}

func concurrently(p *probe) error {
	o := p.scenario.newOperation("")
	if _, ok := p.scenario.Variants["slow"]; ok {
		o = p.scenario.newOperation("slow") // so that they really meet
	}
	r := o.request()
	answers := make([]*answer, p.scenario.Concurrent)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = p.send(r) })
	}
	all.Wait()
	last := p.settled(r, time.Duration(p.scenario.Lease)+time.Duration(p.scenario.Timeout))
	if m := p.reads(last); m != succeeded {
		p.fail(Protocol, "R-26", fmt.Sprintf("after %d requests at once a repeat gets %s", len(answers), last), "the answer of the one that ran")
	}
	for _, a := range answers {
		switch m := p.reads(a); m {
		case succeeded:
			if differs := a.sameAs(last); differs != "" && p.reads(last) == succeeded {
				p.fail(Safety, "R-26", "one of them got "+differs, "all get the answer of the one that ran, or are told to wait")
			}
		case busy, later:
		default:
			p.fail(Protocol, "R-26", "one of them got "+a.String(),
				fmt.Sprintf("the answer of the one that ran, or status %v", p.scenario.profile.Busy))
		}
		if len(p.result.Findings) > 0 {
			break
		}
	}
	_, err := p.wantEffects(1, "R-26", "one effect, however many ask at once")
	return err
}

// start sends a request, and returns a channel for its answer.
func (p *probe) start(r request) <-chan *answer {
	return p.startAs(r, manner{})
}

func (p *probe) startAs(r request, m manner) <-chan *answer {
	sent, done := make(chan struct{}), make(chan *answer, 1)
	var once sync.Once
	m.sent = func() { once.Do(func() { close(sent) }) }
	go func() {
		a := p.sendAs(r, m)
		m.sent()
		done <- a
	}()
	<-sent
	return done
}

// waitFor gives a request that was sent some time to get to work: a tenth of what it takes. It reports false if it has
// ended by then.
func (p *probe) waitFor(o *operation, done <-chan *answer) bool {
	p.wait(time.Duration(o.template.Takes) / 10)
	return len(done) == 0
}
