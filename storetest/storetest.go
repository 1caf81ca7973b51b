package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
)

// Storage is one empty storage, on which several handles can be opened.
type Storage struct {
	// Open returns one more handle on the storage, closed by t.Cleanup if it must be. Handles share records and nothing
	// else, like two processes: each has its own connections and caches. Required.
	Open func(t *testing.T) driver.Store

	// Advance moves the clock of the storage, as every handle sees it, forward by d; whether it also moves by itself
	// doesn't matter. Nil means that it can't be moved: the checks wait, and those that would wait for long are left out.
	Advance func(d time.Duration)

	// Restart stops the storage and starts it again with what it has acknowledged. Handles opened before are not used
	// afterwards. Nil means that its records end with it.
	Restart func(t *testing.T)
}

func (s Storage) bind(t *testing.T) means {
	m := means{open: func() driver.Store { return s.Open(t) }, advance: s.Advance}
	if s.Restart != nil {
		m.restart = func() { s.Restart(t) }
	}
	return m
}

// A check proves one promise of a store.
type check struct {
	name    string
	promise string // printed if the check fails
	needs   capability
	run     func(e *env)
}

func (c check) prove(r reporter, m means) {
	r.Helper()
	defer func() {
		if r.Failed() {
			r.Logf("the promise: %s", c.promise)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	c.run(newEnv(ctx, r, m))
}

type topic struct {
	name   string
	checks []check
}

var topics = []topic{
	{"claim", claimChecks},
	{"fingerprint", slices.Concat(fingerprintChecks, unusedChecks)},
	{"lease", leaseChecks},
	{"extend", extendChecks},
	{"settle", settleChecks},
	{"release", releaseChecks},
	{"fence", fenceChecks},
	{"retention", retentionChecks},
	{"tombstone", tombstoneChecks},
	{"sweep", sweepChecks},
	{"seize", seizeChecks},
	{"forget", forgetChecks},
	{"list", listChecks},
	{"count", countChecks},
	{"steps", slices.Concat(stepChecks, stepLifeChecks, stepPayloadChecks, stepRaceChecks)},
	{"concurrency", concurrencyChecks},
	{"context", contextChecks},
	{"payload", payloadChecks},
	{"clock", clockChecks},
	{"restart", restartChecks},
}

// Run checks every promise of the store on storages that newStorage makes, a new one for each check. Checks of one
// topic run in parallel, but for those that restart the storage, and all have ended when Run returns.
func Run(t *testing.T, newStorage func(t *testing.T) Storage) {
	t.Helper()
	storage := newStorage(t)
	if storage.Open == nil {
		t.Fatal("storetest: Storage.Open is nil")
	}
	has := capabilitiesOf(storage, storage.Open(t))
	for _, topic := range topics {
		t.Run(topic.name, func(t *testing.T) {
			for _, c := range topic.checks {
				if lacks := c.needs &^ has; lacks != 0 {
					t.Logf("left out for want of %s: %s", lacks, c.name)
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					if c.needs&restartable == 0 { // else it would stop the storage under others
						t.Parallel()
					}
					c.prove(t, newStorage(t).bind(t))
				})
			}
		})
	}
}

// A capability is what a check needs beyond the five verbs.
type capability uint8

const (
	seizer capability = 1 << iota
	lister
	counter
	stepper
	movable
	restartable
)

func capabilitiesOf(storage Storage, s driver.Store) (has capability) {
	if _, ok := s.(driver.Seizer); ok {
		has |= seizer
	}
	if _, ok := s.(driver.Lister); ok {
		has |= lister
	}
	if _, ok := s.(driver.Counter); ok {
		has |= counter
	}
	if _, ok := s.(driver.StepStore); ok {
		has |= stepper
	}
	if storage.Advance != nil {
		has |= movable
	}
	if storage.Restart != nil {
		has |= restartable
	}
	return has
}

func (c capability) String() string {
	s := ""
	for i, name := range [...]string{
		"driver.Seizer", "driver.Lister", "driver.Counter", "driver.StepStore", "Storage.Advance", "Storage.Restart",
	} {
		if c&(1<<i) == 0 {
			continue
		}
		if s != "" {
			s += ", "
		}
		s += name
	}
	return s
}
