package verify

import (
	"fmt"
	"time"
)

func processChecks() []*check {
	return []*check{
		{
			name: "crash-after-answer", safety: true, title: "what was answered is not forgotten in a crash", rules: []string{"R-30"},
			needs: []need{needsCrash},
			run: func(p *probe) error {
				o := p.scenario.newOperation("")
				first, err := p.first(o)
				if err != nil {
					return err
				}
				if err := p.crashed(); err != nil {
					return err
				}
				again := p.settled(o.request(), p.patience())
				switch differs := again.sameAs(first); {
				case differs != "" && p.reads(again) == succeeded:
					p.fail(Safety, "R-30", "after the crash a repeat got "+differs, "the first answer again: it was durable before it was sent")
				case differs != "":
					p.fail(Protocol, "R-30", "after the crash a repeat got "+again.String(), "the first answer again: it was durable before it was sent")
				}
				_, err = p.wantEffects(1, "R-30", "one effect")
				return err
			},
		},
		{
			name: "crash-before-effect", safety: true, title: "a run that died before its effect is not told to have had one", rules: []string{"R-46"},
			needs: []need{needsCrash, needsVariant("slow")},
			run: func(p *probe) error {
				o := p.scenario.newOperation("slow")
				done := p.start(o.request())
				if !p.waitFor(o, done) {
					return errSkip("the slow request ended before the crash")
				}
				if err := p.crashed(); err != nil {
					return err
				}
				<-done
				last := p.settled(o.request(), p.patience()+2*time.Duration(o.template.Takes))
				return p.wantTruth(last)
			},
		},
		{
			name: "crash-after-effect", safety: true, title: "a run that died after its effect has no second one", rules: []string{"R-46"},
			needs: []need{needsCrash, needsVariant("slow-answer"), needsCount},
			run: func(p *probe) error {
				o := p.scenario.newOperation("slow-answer")
				done := p.start(o.request())
				if !p.waitFor(o, done) {
					return errSkip("the request ended before the crash")
				}
				if err := p.crashed(); err != nil {
					return err
				}
				<-done
				last := p.settled(o.request(), p.patience()+2*time.Duration(o.template.Takes))
				return p.wantTruth(last)
			},
		},
		{
			name: "pause", safety: true, title: "an owner that slept through its lease does not overrule the next one", rules: []string{"R-46", "R-48"},
			needs: []need{needsPause, needsVariant("slow")},
			run: func(p *probe) error {
				o := p.scenario.newOperation("slow")
				done := p.start(o.request())
				if !p.waitFor(o, done) {
					return errSkip("the slow request ended before the pause")
				}
				nap := time.Duration(p.scenario.Lease) + time.Second
				p.note(fmt.Sprintf("pause the target for %v", nap))
				if err := p.pause(p.ctx); err != nil {
					return err
				}
				p.wait(nap)
				if err := p.resume(p.ctx); err != nil {
					return err
				}
				p.note("it goes on")
				early := p.send(o.request())
				late := <-done
				last := p.settled(o.request(), p.patience()+2*time.Duration(o.template.Takes))
				for _, a := range []*answer{early, late} {
					if differs := a.sameAs(last); p.reads(a) == succeeded && p.reads(last) == succeeded && differs != "" {
						p.fail(Safety, "R-48", "one of the answers after the pause was "+a.String()+", and the last one is "+last.String(),
							"all answers of a key agree: a late owner is refused")
						break
					}
				}
				p.wait(time.Duration(o.template.Takes))
				return p.wantTruth(p.send(o.request()))
			},
		},
	}
}

// crashed crashes the target, and starts it again.
func (p *probe) crashed() error {
	p.note("crash the target")
	if err := p.crash(p.ctx); err != nil {
		return err
	}
	if err := p.restart(p.ctx); err != nil {
		return err
	}
	p.note("it runs again")
	return nil
}

// patience is how long a key may be taken by a run that has died.
func (p *probe) patience() time.Duration {
	return time.Duration(p.scenario.Lease) + time.Duration(p.scenario.Timeout)
}

// wantTruth wants that the last answer of an operation is definite, and agrees with its effects, of which there is one
// at most.
func (p *probe) wantTruth(last *answer) error {
	n, err := p.counted()
	if err != nil {
		return err
	}
	m := p.reads(last)
	switch {
	case n > 1:
		p.fail(Safety, "R-46", fmt.Sprintf("%d effects of one key", n), "one, or none and an honest \"unknown\"")
	case n == 0 && m == succeeded && !p.scenario.Effects.byAnswers():
		p.fail(Safety, "R-46", "a success is told, and there is no effect", "what is told has happened")
	case m == busy || m == later || m == noAnswer:
		p.stuck(last)
	}
	return nil
}

// stuck reports that a key is still taken when its run must have been over for a lease.
func (p *probe) stuck(last *answer) {
	p.fail(Protocol, "R-46", fmt.Sprintf("the key is stuck: %v after its run a repeat gets %s", p.patience(), last),
		"once the lease is over: the answer, another run, or an honest \"unknown\"")
}
