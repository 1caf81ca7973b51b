package storetest

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/semelhq/semel/driver"
)

// save saves a step and returns whether it was acknowledged as the owner's.
func (h handle) save(id driver.ID, by driver.Owner, name, result string) bool {
	h.e.Helper()
	owned, err := h.Store.(driver.StepStore).SaveStep(h.e.ctx, id, by, name, []byte(result))
	if err != nil {
		h.e.Fatalf("SaveStep %s: %v", brief([]byte(name)), err)
	}
	return owned
}

// keep saves a step and must own.
func (h handle) keep(id driver.ID, by driver.Owner, name, result string) {
	h.e.Helper()
	if !h.save(id, by, name, result) {
		h.e.Fatalf("SaveStep %s was refused to the owner", brief([]byte(name)))
	}
}

// steps returns what is saved.
func (h handle) steps(id driver.ID) map[string]string {
	h.e.Helper()
	saved, err := h.Store.(driver.StepStore).Steps(h.e.ctx, id)
	if err != nil {
		h.e.Fatalf("Steps: %v", err)
	}
	texts := make(map[string]string, len(saved))
	for name, result := range saved {
		texts[name] = string(result)
	}
	return texts
}

// holds checks that exactly these steps are saved, as both handles see it, and that the record says whether there are
// any.
func (e *env) holds(what string, id driver.ID, want map[string]string) {
	e.Helper()
	for i := range 2 {
		h := e.both(i)
		e.sameSteps(what, h.steps(id), want)
		if got := h.load(id).Steps; got != (len(want) > 0) {
			e.Errorf("%s: Steps of the record is %t, and %d are saved", what, got, len(want))
		}
	}
}

func (e *env) sameSteps(what string, got, want map[string]string) {
	e.Helper()
	if maps.Equal(got, want) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if result, ok := got[name]; !ok {
			e.Errorf("%s: step %s is missing", what, brief([]byte(name)))
		} else if result != want[name] {
			e.Errorf("%s: step %s is %s, want %s", what, brief([]byte(name)), brief([]byte(result)), brief([]byte(want[name])))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			e.Errorf("%s: step %s is there, and should not be", what, brief([]byte(name)))
		}
	}
}

// stepSituations makes a record of every kind, with a step that its run saved before it got there.
func (e *env) stepSituations() []situation {
	e.Helper()
	all := e.situationsOf(func(id driver.ID, rec *driver.Record) {
		e.a.keep(id, rec.Owner(), "first", "saved while it ran")
		rec.Steps = true
	})
	for _, s := range all {
		e.holds(s.name, s.id, firstStep)
	}
	return all
}

var firstStep = map[string]string{"first": "saved while it ran"}

var stepChecks = []check{
	{
		name: "a result is kept under its name",
		promise: "SaveStep keeps the result, sets Steps, and changes nothing else of the record. Every handle sees it as soon as " +
			"it was acknowledged (R-84).",
		needs: stepper,
		run: func(e *env) {
			id := newID()
			e.sameSteps("absent", e.b.steps(id), nil)
			want := e.a.begin(id, ask(driver.Hold))
			e.holds("none saved", id, nil)
			e.b.keep(id, want.Owner(), "charge", `{"id":7}`)
			want.Steps = true
			e.unchanged("one saved", id, want)
			e.holds("one saved", id, map[string]string{"charge": `{"id":7}`})
			e.a.keep(id, want.Owner(), "ship", "")
			e.unchanged("two saved", id, want)
			e.holds("two saved", id, map[string]string{"charge": `{"id":7}`, "ship": ""})
		},
	},
	{
		name:    "a result stays its caller's",
		promise: "What the caller does with a result after SaveStep has returned changes nothing of what was saved.",
		needs:   stepper,
		run: func(e *env) {
			id := newID()
			rec := e.a.begin(id, ask(driver.Rerun))
			result := []byte("as saved")
			if owned, err := e.a.Store.(driver.StepStore).SaveStep(e.ctx, id, rec.Owner(), "charge", result); !owned || err != nil {
				e.Fatalf("SaveStep: owned is %t, error %v", owned, err)
			}
			copy(result, bytes.Repeat([]byte("x"), len(result)))
			e.holds("overwritten by its caller", id, map[string]string{"charge": "as saved"})
		},
	},
	{
		name: "the first result stays",
		promise: "SaveStep of a name that is saved succeeds for the present owner and changes nothing, whatever the result, also in " +
			"a later run.",
		needs: stepper,
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			want := e.a.begin(id, c)
			saved := map[string]string{"charge": "first", "empty": ""}
			for name, result := range saved {
				e.a.keep(id, want.Owner(), name, result)
			}
			want.Steps = true
			again := func(what string, by driver.Owner) {
				e.Helper()
				for name := range saved {
					for i, result := range []string{"second", "", "first"} {
						e.both(i).keep(id, by, name, result)
					}
				}
				e.holds(what, id, saved)
			}
			again("saved again", want.Owner())
			e.unchanged("saved again", id, want)
			e.b.end(id, want.Owner(), free("503 from upstream"))
			next := e.b.begin(id, retry(c))
			again("saved again in the next run", next.Owner())
			e.unchanged("saved again in the next run", id, next)
		},
	},
	{
		name:    "it is the owner's",
		promise: "SaveStep with another fence or another token, or by token alone, is refused in every state and changes nothing.",
		needs:   stepper,
		run: func(e *env) {
			for _, s := range e.stepSituations() {
				others := strangers(s.owner())
				others["its token and a fence above none"] = releasing(s.rec.Token, 0)
				others["its token and a fence above the one before"] = releasing(s.rec.Token, s.rec.Fence-1)
				for what, by := range others {
					for _, name := range []string{"second", "first"} {
						if e.b.save(s.id, by, name, "a stranger's") {
							e.Errorf("%s: step %q was granted to an owner with %s", s.name, name, what)
						}
					}
					e.unchanged(s.name+", "+what, s.id, s.rec)
				}
				e.holds(s.name, s.id, firstStep)
			}
		},
	},
	{
		name: "it acts on a running record only",
		promise: "SaveStep by the owner is granted while the record is running: begun or not, its lease over or not. Once it is " +
			"done, free or unknown it is refused, also for a name that is saved, and changes nothing (R-84).",
		needs: stepper,
		run: func(e *env) {
			for _, s := range e.stepSituations() {
				runs := s.rec.State == driver.Running
				for _, name := range []string{"second", "first"} {
					if owned := e.b.save(s.id, s.owner(), name, "later"); owned != runs {
						e.Errorf("%s: step %q: owned is %t, want %t", s.name, name, owned, runs)
					}
				}
				want := maps.Clone(firstStep)
				if runs {
					want["second"] = "later"
				}
				e.unchanged(s.name, s.id, s.rec)
				e.holds(s.name, s.id, want)
			}
			for _, s := range e.situations() { // without steps
				if s.rec.State != driver.Running {
					if e.a.save(s.id, s.owner(), "first", "late") {
						e.Errorf("%s: a step was granted", s.name)
					}
					e.unchanged(s.name, s.id, s.rec)
					e.holds(s.name, s.id, nil)
				}
			}
		},
	},
	{
		name:    "it creates nothing",
		promise: "SaveStep of an absent record is refused, creates none, and leaves no result for the operation that begins later.",
		needs:   stepper,
		run: func(e *env) {
			for _, by := range []driver.Owner{{}, {Fence: 1, Token: driver.NewToken()}, {Above: true}} {
				id := newID()
				if e.a.save(id, by, "charge", "of nothing") {
					e.Errorf("a step of an absent record was granted")
				}
				e.unchanged("absent", id, driver.Record{})
				e.sameSteps("absent", e.b.steps(id), nil)
				e.b.begin(id, ask(driver.Rerun))
				e.holds("begun later", id, nil)
			}
		},
	},
	{
		name: "a fenced owner saves nothing",
		promise: "Until another takes over, the owner whose lease is over may save. From then on it is refused, and the new owner " +
			"has all that it saved (R-48).",
		needs: stepper,
		run: func(e *env) {
			s := e.lapse(driver.Rerun, false)
			e.a.keep(s.id, s.owner(), "before", "late, and in time")
			rec := e.b.begin(s.id, retry(s.claim))
			if !rec.Steps {
				e.Errorf("the record that the new owner was given does not say that there are steps")
			}
			saved := map[string]string{"before": "late, and in time"}
			e.holds("taken over", s.id, saved)
			for _, name := range []string{"before", "after"} {
				if e.a.save(s.id, s.owner(), name, "too late") {
					e.Errorf("step %q was granted to the late owner", name)
				}
			}
			e.unchanged("taken over", s.id, rec)
			e.holds("taken over, then saved by the late owner", s.id, saved)
			e.b.keep(s.id, rec.Owner(), "after", "the new owner's")
			saved["after"] = "the new owner's"
			e.holds("saved by the new owner", s.id, saved)
		},
	},
	{
		name:    "nobody saves a step of a seized record",
		promise: "Once a record is seized SaveStep is refused, to its late owner and to who seized it: it is no run.",
		needs:   stepper | seizer,
		run: func(e *env) {
			for _, saved := range []map[string]string{nil, firstStep} {
				id := newID()
				rec := e.a.begin(id, ask(driver.Rerun))
				for name, result := range saved {
					e.a.keep(id, rec.Owner(), name, result)
				}
				seized := e.b.seize(id, driver.NewToken())
				for who, by := range map[string]driver.Owner{"the late owner": rec.Owner(), "who seized it": seized.Owner()} {
					for _, name := range []string{"first", "second"} {
						if e.a.save(id, by, name, "too late") {
							e.Errorf("step %q was granted to %s", name, who)
						}
					}
				}
				e.unchanged("seized", id, seized)
				e.holds("seized", id, saved)
			}
		},
	},
	{
		name:    "an ended context is an error and changes nothing",
		promise: "SaveStep and Steps with a context that has ended return an error and do nothing.",
		needs:   stepper,
		run: func(e *env) {
			id := newID()
			want := e.a.begin(id, ask(driver.Hold))
			s := e.a.Store.(driver.StepStore)
			for why, ctx := range ended() {
				if owned, err := s.SaveStep(ctx, id, want.Owner(), "charge", nil); err == nil || owned {
					e.Errorf("SaveStep with a context %s: owned is %t, error %v", why, owned, err)
				}
				if _, err := s.Steps(ctx, id); err == nil {
					e.Errorf("Steps with a context %s: no error", why)
				}
				e.unchanged("SaveStep, context "+why, id, want)
			}
			e.holds("contexts that had ended", id, nil)
		},
	},
	{
		name: "one that ends meanwhile saves all or nothing",
		promise: "A SaveStep whose context ends while it runs has saved its result and set Steps, or neither. What it acknowledged " +
			"is there, what it did not can be sent again (cases 7, 8).",
		needs: stepper,
		run: func(e *env) {
			for i := range 20 {
				id := newID()
				rec := e.a.begin(id, ask(driver.Hold))
				var owned bool
				var err error
				e.cutOff(time.Duration(i)*45*time.Microsecond, func(ctx context.Context) {
					owned, err = e.both(i).Store.(driver.StepStore).SaveStep(ctx, id, rec.Owner(), "charge", []byte("7"))
				})
				saved := map[string]string{"charge": "7"}
				before := e.b.steps(id) // first, since it may be executed late
				switch {
				case err == nil && !owned:
					e.Fatalf("the owner's step, whose context ended meanwhile, was refused without an error")
				case err == nil || e.a.load(id).Steps:
					e.holds("cut off", id, saved)
				default:
					e.sameSteps("cut off, and Steps is not set", before, nil)
				}
				e.b.keep(id, rec.Owner(), "charge", "7")
				e.holds("sent again", id, saved)
			}
		},
	},
}
