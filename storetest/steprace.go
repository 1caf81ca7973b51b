package storetest

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/semelhq/semel/driver"
)

// A saving is one step that one of several callers saves, and what it was told.
type saving struct {
	name, result string
	owned        bool
	err          error
}

func (s *saving) do(e *env, h handle, id driver.ID, by driver.Owner) {
	s.owned, s.err = h.Store.(driver.StepStore).SaveStep(e.ctx, id, by, s.name, []byte(s.result))
}

// acknowledged returns the steps that were, and ends the check if one failed.
func (e *env) acknowledged(all []saving) map[string]string {
	e.Helper()
	saved := map[string]string{}
	for _, s := range all {
		if s.err != nil {
			e.Fatalf("SaveStep: %v", s.err)
		}
		if s.owned {
			saved[s.name] = s.result
		}
	}
	return saved
}

// race lets savers under one owner meet an end of its run, over both handles. The end comes once so many steps as the
// round says are under way or saved.
func (e *env) race(round int, id driver.ID, by driver.Owner, end func()) []saving {
	e.Helper()
	const savers, each = 6, 4
	all := make([]saving, savers*each)
	for i := range all {
		all[i] = saving{name: "step " + strconv.Itoa(i), result: strconv.Itoa(round)}
	}
	sent := make(chan struct{}, len(all))
	e.together(savers+1, func(w int) {
		if w == savers {
			for range 1 + round%(len(all)/2) {
				<-sent
			}
			end()
			return
		}
		for i := range each {
			sent <- struct{}{}
			all[w*each+i].do(e, e.both(w+i), id, by)
		}
	})
	return all
}

var stepRaceChecks = []check{
	{
		name: "of one name one result stays",
		promise: "Of results that an owner saves under one name at once one is kept, and all are acknowledged; under names of their " +
			"own all are kept.",
		needs: stepper,
		run: func(e *env) {
			for range 3 {
				id := newID()
				rec := e.a.begin(id, ask(driver.Rerun))
				all := make([]saving, 24)
				for i := range all {
					all[i] = saving{name: "charge", result: strconv.Itoa(i)}
					if i%2 == 0 {
						all[i].name = "item " + strconv.Itoa(i)
					}
				}
				e.together(len(all), func(i int) { all[i].do(e, e.both(i), id, rec.Owner()) })
				want := e.acknowledged(all)
				for _, s := range all {
					if !s.owned {
						e.Errorf("step %q was refused to the owner", s.name)
					}
				}
				winner, err := strconv.Atoi(e.a.steps(id)["charge"])
				if err != nil || winner < 0 || winner >= len(all) || all[winner].name != "charge" {
					e.Fatalf("the result under the common name is none that was saved: %q", e.a.steps(id)["charge"])
				}
				want["charge"] = strconv.Itoa(winner)
				e.holds("saved at once", id, want)
				e.b.keep(id, rec.Owner(), "charge", "later")
				e.holds("saved at once, and later", id, want)
			}
		},
	},
	{
		name: "none slips in after a settle",
		promise: "Where SaveStep and Settle of one owner meet, what was acknowledged is saved and nothing else, and the record says " +
			"whether there is any; a save undoes no settle.",
		needs: stepper,
		run: func(e *env) {
			for round := range 12 {
				id := newID()
				rec := e.a.begin(id, ask(driver.Rerun))
				o := []driver.Outcome{done(answer()), free("gave up"), unknown("timeout")}[round%3]
				var settled reply
				all := e.race(round, id, rec.Owner(), func() {
					settled.rec, settled.owned, settled.err = e.both(round).Store.Settle(e.ctx, id, rec.Owner(), o)
				})
				if settled.err != nil || !settled.owned {
					e.Fatalf("Settle by the owner: owned is %t, error %v", settled.owned, settled.err)
				}
				saved := e.acknowledged(all)
				what := fmt.Sprintf("settled as %s under savers", o.State)
				e.unchanged(what, id, settled.rec)
				e.holds(what, id, saved)
				if e.both(round).save(id, rec.Owner(), "late", "") {
					e.Errorf("%s: a step was granted afterwards", what)
				}
			}
		},
	},
	{
		name: "none slips in after a takeover",
		promise: "Where savers of a lapsed run meet its takeover, what they were acknowledged is there for the new owner at once, and " +
			"nothing is added to it later (R-48).",
		needs: stepper,
		run: func(e *env) {
			for round := range 6 {
				s := e.lapse(driver.Rerun, false)
				r := retry(s.claim)
				var taken reply
				var seen map[string][]byte
				var err error
				all := e.race(round, s.id, s.owner(), func() {
					h := e.both(round)
					taken.rec, taken.owned, taken.err = h.Store.Claim(e.ctx, s.id, r)
					seen, err = h.Store.(driver.StepStore).Steps(e.ctx, s.id)
				})
				if taken.err != nil || !taken.owned || err != nil {
					e.Fatalf("Claim of a lapsed record: owned is %t, error %v; then Steps: error %v", taken.owned, taken.err, err)
				}
				saved := e.acknowledged(all)
				e.unchanged("taken over from savers", s.id, taken.rec)
				e.holds("taken over from savers", s.id, saved)
				atOnce := map[string]string{}
				for name, result := range seen {
					atOnce[name] = string(result)
				}
				if !maps.Equal(atOnce, saved) {
					e.Errorf("the new owner saw %d steps right after its claim, and %d were acknowledged", len(atOnce), len(saved))
				}
			}
		},
	},
	{
		name: "each run goes on where the last one stopped",
		promise: "Under many callers at once no step is done again that a run before had saved: each name is saved by one run, and " +
			"every later one finds it (R-84).",
		needs: stepper,
		run: func(e *env) {
			const workers, turns = 10, 30
			id, c := newID(), ask(driver.Rerun)
			ran := make([][]saving, workers)
			errs := make([]error, workers)
			e.together(workers, func(w int) {
				for range turns {
					var err error
					if ran[w], err = oneMore(e, e.both(w), id, retry(c), ran[w]); err != nil {
						errs[w] = err
						return
					}
				}
			})
			want := map[string]string{}
			for w := range workers {
				if errs[w] != nil {
					e.Fatalf("%v", errs[w])
				}
				for _, s := range ran[w] {
					if _, twice := want[s.name]; twice {
						e.Errorf("step %q was done twice", s.name)
					}
					want[s.name] = s.result
				}
			}
			e.holds("after all runs", id, want)
			if rec := e.a.load(id); int(rec.Attempt) != len(want) {
				e.Errorf("attempt %d, and %d steps were done, one a run", rec.Attempt, len(want))
			}
		},
	},
}

// oneMore claims the operation and, if it is owned, saves the step after the last one that it finds, and releases it.
func oneMore(e *env, h handle, id driver.ID, c driver.Claim, ran []saving) ([]saving, error) {
	rec, owned, err := h.Store.Claim(e.ctx, id, c)
	if err != nil || !owned {
		return ran, err
	}
	s := h.Store.(driver.StepStore)
	saved, err := s.Steps(e.ctx, id)
	if err != nil {
		return ran, err
	}
	next := saving{name: "step " + strconv.Itoa(len(saved)), result: c.Token.String()}
	if owned, err = s.SaveStep(e.ctx, id, rec.Owner(), next.name, []byte(next.result)); err != nil || !owned {
		return ran, fmt.Errorf("save a step by the owner: owned is %t, error %w", owned, err)
	}
	if _, owned, err = h.Store.Settle(e.ctx, id, rec.Owner(), free("again")); err != nil || !owned {
		return ran, fmt.Errorf("settle by the owner: owned is %t, error %w", owned, err)
	}
	return append(ran, next), nil
}
