package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel"
)

// Config says what a run is to be.
type Config struct {
	Mode Mode
	// Seed decides what is asked for, and who is killed when. What meets whom is up to the machine.
	Seed uint64
	// For is how long operations are begun, and processes killed, once each point was visited.
	For time.Duration
	// Operations is how many are begun at most. Defaults to no bound.
	Operations int
	// Clients is how many ask at once. Defaults to 32.
	Clients int
	// Fronts is how many processes share the store. Defaults to 2.
	Fronts int
	// Lease is that of a run. Defaults to 400 ms.
	Lease time.Duration
	// Dir is an empty folder for the files of the run.
	Dir string
	// Store is the address of the gateways' store. Defaults to an SQLite file in Dir.
	Store string

	flaw    flaw
	hasty   bool   // no point is visited but by chance
	program string // what the processes run; defaults to the running program
}

// A flaw is what is wrong with the cast of a run that is to find it.
type flaw string

const (
	retryingProxy flaw = "retrying-proxy" // stands in for the gateway
	effectApart   flaw = "effect-apart"   // the library's handler has its effect before its transaction
)

func (c *Config) complete() error {
	var errs []error
	if !slices.Contains(Modes(), c.Mode) {
		errs = append(errs, fmt.Errorf("no such mode: %q", c.Mode))
	}
	if c.For <= 0 {
		errs = append(errs, fmt.Errorf("no time to run: %v", c.For))
	}
	if c.Operations < 0 {
		errs = append(errs, fmt.Errorf("less than no operations: %d", c.Operations))
	}
	if c.Dir == "" {
		errs = append(errs, errors.New("no folder for the files"))
	}
	if c.Clients == 0 {
		c.Clients = 32
	}
	if c.Fronts == 0 {
		c.Fronts = 2
	}
	if c.Lease == 0 {
		c.Lease = defaultLease
	}
	if c.Store == "" {
		c.Store = "sqlite://" + filepath.Join(c.Dir, "semel.db")
	}
	if c.program == "" {
		self, err := os.Executable()
		if err != nil {
			errs = append(errs, err)
		}
		c.program = self
	}
	return errors.Join(errs...)
}

// ledger returns the file in which effects are found.
func (c *Config) ledger() string {
	if c.Mode.library() {
		return filepath.Join(c.Dir, "business.db")
	}
	return filepath.Join(c.Dir, "ledger.jsonl")
}

func (c *Config) effects(ctx context.Context) ([]effect, error) {
	if c.Mode.library() {
		return readTable(ctx, c.ledger())
	}
	return readLedger(c.ledger())
}

// Run plays one run, and returns what came of it. All its processes have ended then. An error means that it could not be
// played to its end, as when a process ended that nobody had killed; what is wrong with the effects stands in the report.
// If ctx ends before, what has happened so far is brought to its end and judged.
func Run(ctx context.Context, c Config) (report *Report, err error) {
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	k := newCast(&c)
	defer func() {
		if stopErr := k.stop(); stopErr != nil {
			err = errors.Join(err, stopErr)
		}
	}()
	if err := k.start(); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	began := time.Now()
	asking := newClients(&c, k)
	if err := play(ctx, &c, k, asking); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	took := time.Since(began)
	effects, err := c.effects(context.WithoutCancel(ctx))
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	j := judge{mode: c.Mode, began: began, deaths: k.deaths()}
	report = &Report{
		Mode: c.Mode, Seed: c.Seed, Took: took, Operations: len(asking.operations), Requests: int(asking.requests.Load()),
		Effects: len(effects), Violations: j.all(asking.operations, effects),
	}
	report.Kills, report.Missed = k.kills(c.Mode)
	for _, e := range effects {
		if c.Mode.onLost() == semel.Rerun && e.Attempt > 1 {
			report.Takeovers++
		}
	}
	for _, o := range asking.operations {
		switch o.last() {
		case unknown:
			report.Unknown++
		case unreplayable:
			report.Unreplayable++
		}
	}
	return report, nil
}

// play lets clients ask and processes die, until the time is over; then lets all live, and every operation come to its
// end.
func play(ctx context.Context, c *Config, k *cast, asking *clients) error {
	wild, end := context.WithCancel(ctx)
	defer end()
	calm, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	var working sync.WaitGroup
	for n := range c.Clients {
		working.Go(func() { asking.work(wild, calm, uint64(n)) })
	}
	reaping := make(chan error, 1)
	go func() {
		r := newReaper(k, c.Mode, rand.New(rand.NewPCG(c.Seed, 1<<32)))
		if c.hasty {
			r.due = nil
		}
		reaping <- r.reap(wild, c.Mode, c.For)
		end()
	}()
	idle := make(chan struct{})
	go func() {
		working.Wait()
		close(idle)
	}()
	var err error
	select {
	case err = <-reaping:
	case <-idle: // all operations have been begun, and have ended
		end()
		err = <-reaping
	}
	if err != nil {
		giveUp()
	} else {
		defer time.AfterFunc(endTime, giveUp).Stop()
	}
	<-idle
	if err == nil {
		asking.finish(calm)
	}
	return err
}
