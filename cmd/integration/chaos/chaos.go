package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

// Run plays one run, and returns what came of it. All its processes and servers have ended then. An error means that it
// could not be played to its end, as when a process ended that nobody had killed; what is wrong with the effects stands
// in the report. If ctx ends before, what has happened so far is brought to its end and judged.
func Run(ctx context.Context, c Config) (report *Report, err error) {
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	s, err := newSite(&c)
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	defer func() {
		if s.disk != nil && (err != nil || len(report.Violations) > 0) {
			err = errors.Join(err, s.disk.keep(c.Dir))
		}
		err = errors.Join(err, s.close())
	}()
	k := newCast(&c, s)
	defer func() { err = errors.Join(err, k.stop()) }()
	if err := k.start(); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	r := &run{cfg: &c, site: s, cast: k, asking: newClients(&c, k), storm: newStorm(&c, s, k.names()), began: time.Now()}
	r.watch.most = c.Lease / 10
	if err := r.play(ctx); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	if report, err = r.report(context.WithoutCancel(ctx)); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	return report, nil
}

// A run is a cast under way.
type run struct {
	cfg    *Config
	site   *site
	cast   *cast
	asking *clients
	storm  *storm
	watch  watch
	began  time.Time
}

// play lets clients ask, processes die and servers suffer, until the time is over; then lets all live, and every
// operation come to its end.
func (r *run) play(ctx context.Context) error {
	wild, end := context.WithCancel(ctx)
	defer end()
	calm, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	var working sync.WaitGroup
	for n := range r.cfg.Clients {
		working.Go(func() { r.asking.work(wild, calm, uint64(n)) })
	}
	raging := make(chan error, 1)
	go func() {
		raging <- r.storm.rage(wild)
	}()
	reaping := make(chan error, 1)
	go func() {
		reaping <- newReaper(r.cast, r.cfg, r.storm.visited).reap(wild, r.cfg.For)
	}()
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { r.watch.keep(calm) })
	defer giveUp()
	idle := make(chan struct{})
	go func() {
		working.Wait()
		close(idle)
	}()
	// Whatever comes first ends the rest: the time is over, a server is beyond help, or all operations have been begun,
	// and have ended.
	var failed []error
	reaped, raged := false, false
	select {
	case err := <-reaping:
		failed, reaped = append(failed, err), true
	case err := <-raging:
		failed, raged = append(failed, err), true
	case <-idle:
	}
	end()
	if !raged {
		failed = append(failed, <-raging)
	}
	if !reaped {
		failed = append(failed, <-reaping)
	}
	err := errors.Join(failed...)
	if err != nil {
		giveUp()
	} else {
		defer time.AfterFunc(endTime, giveUp).Stop()
	}
	<-idle
	if err == nil {
		r.asking.finish(calm)
	}
	return err
}

// report judges.
func (r *run) report(ctx context.Context) (*Report, error) {
	c := r.cfg
	took := time.Since(r.began)
	effects, wrong, err := c.effects(ctx, r.site)
	if err != nil {
		return nil, err
	}
	operations := r.asking.operations
	j := judge{mode: c.Mode, began: r.began, troubles: append(r.cast.troubles(c.Storage), r.storm.troubles...), stalls: r.watch.stalls}
	report := &Report{
		Storage: c.Storage, Mode: c.Mode, Seed: c.Seed, Took: took, Operations: len(operations), Requests: int(r.asking.requests.Load()),
		Effects: len(effects), Faults: r.storm.counts, MissedFaults: r.storm.missed(), LeftOut: c.leftOut,
		Stalls: len(r.watch.stalls), Violations: append(wrong, j.all(operations, effects)...),
	}
	report.Kills, report.Missed = r.cast.kills(c)
	for _, e := range effects {
		if c.Mode.onLost() == semel.Rerun && e.Attempt > 1 {
			report.Takeovers++
		}
	}
	for _, o := range operations {
		for _, a := range o.attempts {
			if a.reading == later && strings.Contains(a.value, string(refusal.StoreUnavailable)) {
				report.Unavailable++
			}
		}
		switch o.last() {
		case unknown:
			report.Unknown++
		case unreplayable:
			report.Unreplayable++
		}
	}
	return report, nil
}
