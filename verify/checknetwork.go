package verify

import (
	"fmt"
	"sync"
	"time"
)

func networkChecks() []*check {
	return []*check{
		{
			name: "twice", safety: true, title: "a request that the network delivers twice takes effect once", rules: []string{"R-26"},
			run: func(p *probe) error {
				for range 10 {
					o := p.scenario.newOperation("")
					if err := p.begin(); err != nil {
						return err
					}
					a := p.sendAs(o.request(), manner{twice: true})
					if p.reads(a) != succeeded {
						a = p.settled(o.request(), time.Duration(p.scenario.Timeout))
					}
					again := p.send(o.request())
					if differs := again.sameAs(a); p.reads(a) == succeeded && differs != "" {
						p.fail(p.severityOf(again), "R-26", "a repeat got "+differs, "the first answer again")
						return nil
					}
					if n, err := p.wantEffects(1, "R-26", "one effect"); err != nil || n != 1 {
						return err
					}
				}
				return nil
			},
		},
		{
			name: "answer-lost", safety: true, title: "an answer that was lost on its way is given again", rules: []string{"R-30"},
			run: func(p *probe) error {
				for _, variant := range []string{"", "large"} {
					if _, ok := p.scenario.Variants[variant]; variant != "" && !ok {
						continue
					}
					if err := p.begin(); err != nil {
						return err
					}
					o := p.scenario.newOperation(variant)
					if a := p.sendAs(o.request(), manner{cut: true}); a.status/100 != 2 {
						return fmt.Errorf("the request got status %d", a.status)
					}
					p.wait(lostPause)
					first := p.settled(o.request(), time.Duration(p.scenario.Timeout))
					if p.reads(first) != succeeded {
						p.fail(Protocol, "R-30", "after an answer that was lost a repeat gets "+first.String(), "the answer")
					}
					if variant == "" || !p.scenario.Effects.byAnswers() {
						if n, err := p.counted(); err != nil {
							return err
						} else if n > 1 {
							p.fail(Safety, "R-30", fmt.Sprintf("%d effects: a repeat after a lost answer ran again", n), "one effect")
							return nil
						}
					}
				}
				return nil
			},
		},
		{
			name: "disconnect", safety: true, title: "a client that hangs up changes nothing", rules: []string{"R-29"},
			needs: []need{needsVariant("slow")},
			run: func(p *probe) error {
				o := p.scenario.newOperation("slow")
				takes := time.Duration(o.template.Takes)
				p.sendAs(o.request(), manner{leave: takes / 5})
				a := p.send(o.request())
				if p.reads(a) == succeeded || p.reads(a) == busy {
					p.note("the repeats go on")
				}
				last := p.settled(o.request(), 2*takes+time.Duration(p.scenario.Lease)+time.Duration(p.scenario.Timeout))
				if m := p.reads(last); m != succeeded {
					p.fail(Protocol, "R-29", "after a client that hung up a repeat gets "+last.String(), "the answer, once it is there")
				}
				p.wait(takes) // a second run would have had its effect by then
				if n, err := p.counted(); err != nil {
					return err
				} else if n > 1 {
					p.fail(Safety, "R-29", fmt.Sprintf("%d effects: a repeat ran beside the request of the client that hung up", n), "one effect")
				}
				return nil
			},
		},
		{
			name: "slow", safety: true, title: "a request longer than the lease is not run twice", rules: []string{"R-47"},
			needs: []need{needsVariant("slow")},
			run:   slowly,
		},
		{
			name: "repeat-later", safety: true, title: "a repeat gets the first answer after a while too", rules: []string{"R-53", "R-40"},
			run: func(p *probe) error {
				o := p.scenario.newOperation("")
				first, err := p.first(o)
				if err != nil {
					return err
				}
				p.note(fmt.Sprintf("wait for %v", time.Duration(p.scenario.Later)))
				p.wait(time.Duration(p.scenario.Later))
				again := p.send(o.request())
				if differs := again.sameAs(first); differs != "" {
					p.fail(p.severityOf(again), "R-53", fmt.Sprintf("after %v a repeat got %s", time.Duration(p.scenario.Later), differs),
						"the first answer again, for as long as answers are kept")
				}
				_, err = p.wantEffects(1, "R-53", "one effect")
				return err
			},
		},
	}
}

// lostPause lets a target notice that its client has gone.
const lostPause = 500 * time.Millisecond

// slowly repeats a request for as long as it runs.
func slowly(p *probe) error {
	o := p.scenario.newOperation("slow")
	takes, lease := time.Duration(o.template.Takes), time.Duration(p.scenario.Lease)
	var all sync.WaitGroup
	done := p.start(o.request())
	var late []*answer
	var mu sync.Mutex
	for range max(2, min(20, int(takes/slowPoll))) {
		p.wait(slowPoll)
		if len(done) > 0 {
			break
		}
		all.Go(func() {
			a := p.send(o.request())
			mu.Lock()
			defer mu.Unlock()
			late = append(late, a)
		})
	}
	first := <-done
	all.Wait()
	last := p.settled(o.request(), takes+lease)
	if p.reads(first) == succeeded {
		late = append(late, last)
	}
	for _, a := range late {
		if differs := a.sameAs(first); p.reads(a) == succeeded && p.reads(first) == succeeded && differs != "" {
			p.fail(Safety, "R-47", "a repeat during the request got "+differs, "the answer of the one run")
			break
		}
	}
	if m := p.reads(last); m != succeeded && m != unknown {
		p.fail(Protocol, "R-47", "in the end a repeat gets "+last.String(), "the answer of the one run")
	}
	p.wait(takes / 2)
	n, err := p.counted()
	if err == nil && n > 1 {
		p.fail(Safety, "R-47", fmt.Sprintf("%d effects: it was run again while it ran", n),
			"one effect, however long it takes: the owner renews its lease")
	}
	if err == nil && takes <= lease {
		return errSkip(fmt.Sprintf("nothing was wrong, but the slow request takes %v and the lease is %v: that it is renewed can't show", takes, lease))
	}
	return err
}

const slowPoll = 500 * time.Millisecond
