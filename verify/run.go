package verify

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Options say what to run of a scenario. The zero value runs every check, and no load.
type Options struct {
	// Only and Skip name checks.
	Only, Skip []string
	// Load is a load to put on the target after the checks: once without faults, and once more with them if it has some.
	// Its Rate is 0 for none.
	Load LoadOptions
	// Gates are bounds on what the loads show.
	Gates Gates
	// Watch is told what is going on. Defaults to nobody.
	Watch Watcher
}

// A Watcher is told what is going on.
type Watcher interface {
	// Start says that a run of so many checks begins.
	Start(total int)
	// Check says that a check begins, and Done that it has ended.
	Check(name string)
	Done(r Result)
	// Load says how far a load has come: for how long it has run, of how long, and how many operations are done.
	Load(title string, done, total time.Duration, operations int)
	// End says that the run is over, whatever came of it.
	End()
}

type nobody struct{}

func (nobody) Start(int)                                      {}
func (nobody) Check(string)                                   {}
func (nobody) Done(Result)                                    {}
func (nobody) Load(string, time.Duration, time.Duration, int) {}
func (nobody) End()                                           {}

// Run runs the checks of a scenario, and the loads. It completes the scenario first, unless that has been done. What
// the checks find stands in the report, and is no error: see [Report.Violated].
//
// It returns a [UsageError] for a scenario or options that make no sense, and another error if the target can't be
// asked at all. If ctx ends or a load fails, it returns an error with the report as far as it came.
func Run(ctx context.Context, s *Scenario, o Options) (*Report, error) {
	chosen, err := choose(checks(), o.Only, o.Skip)
	if err != nil {
		return nil, err
	}
	if o.Watch == nil {
		o.Watch = nobody{}
	}
	if o.Load.Seed == 0 {
		o.Load.Seed = rand.Uint64()
	}
	if s.base == nil {
		if err := s.Complete(); err != nil {
			return nil, UsageError(err.Error())
		}
	}
	t := newTarget(s)
	if err := t.alive(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", s.Target, errNotReady, err)
	}
	if !s.Effects.byAnswers() {
		if _, err := t.count(ctx); err != nil {
			return nil, UsageError(err.Error())
		}
	}
	r := &Report{Target: s.Target, Profile: s.Profile, Seed: o.Load.Seed, Began: time.Now()}
	defer func() { r.Took = time.Since(r.Began) }()
	o.Watch.Start(len(chosen))
	defer o.Watch.End()
	for _, c := range chosen {
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		o.Watch.Check(c.name)
		result := t.run(ctx, c)
		r.Checks = append(r.Checks, result)
		o.Watch.Done(result)
	}
	if o.Load.Rate > 0 {
		err = t.loads(ctx, r, o)
	}
	return r, err
}

// loads puts the load on the target, without faults and with them.
func (t *target) loads(ctx context.Context, r *Report, o Options) error {
	faults := []float64{0}
	if o.Load.Faults > 0 {
		faults = append(faults, o.Load.Faults)
	}
	for _, part := range faults {
		with := o.Load
		with.Faults = part
		title := "without faults"
		if part > 0 {
			title = fmt.Sprintf("%.0f %% faults", part*100)
		}
		l, err := t.load(ctx, with, func(done time.Duration, operations int) {
			o.Watch.Load(title, done, with.Duration, operations)
		})
		if l.Attempts > 0 {
			r.Loads = append(r.Loads, l) // as far as it came
		}
		if err != nil {
			r.Gates = o.Gates.check(r.Loads)
			return fmt.Errorf("load %s: %w", title, err)
		}
	}
	r.Gates = o.Gates.check(r.Loads)
	return nil
}

// choose returns the checks that are asked for.
func choose(all []*check, only, skip []string) ([]*check, error) {
	for _, name := range slices.Concat(only, skip) {
		if !slices.ContainsFunc(all, func(c *check) bool { return c.name == name }) {
			names := make([]string, len(all))
			for i, c := range all {
				names[i] = c.name
			}
			return nil, UsageError(fmt.Sprintf("there is no check %q; there are %s", name, strings.Join(names, ", ")))
		}
	}
	var chosen []*check
	for _, c := range all {
		if (len(only) == 0 || slices.Contains(only, c.name)) && !slices.Contains(skip, c.name) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

// A UsageError is a mistake in the options, or in a scenario that [Run] completes, or that can't count effects as it
// says.
type UsageError string

func (e UsageError) Error() string { return string(e) }

// SafetyChecks are the names of the checks that can find a violation of safety.
func SafetyChecks() (names []string) {
	for _, c := range checks() {
		if c.safety {
			names = append(names, c.name)
		}
	}
	return names
}

// List prints all checks, with what each needs of a scenario.
func List(w io.Writer) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tab, "CHECK\tRULES\tWHAT IS RIGHT\tNEEDS\n")
	for _, c := range checks() {
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\n", c.name, strings.Join(c.rules, " "), c.title, c.needed())
	}
	return tab.Flush()
}

// needed lists what the check needs of a scenario.
func (c *check) needed() string {
	var what []string
	for _, n := range c.needs {
		what = append(what, n.what)
	}
	return strings.Join(what, ", ")
}
