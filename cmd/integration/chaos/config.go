package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/semelhq/semel/history"
)

// Config says what a run is to be.
type Config struct {
	// Storage keeps the records. Defaults to SQLite.
	Storage Storage
	Mode    Mode
	// Seed decides what is asked for, who is killed when, and what happens to servers. What meets whom is up to the
	// machine.
	Seed uint64
	// For is how long operations are begun, and processes killed, once each point was visited and each fault has come.
	For time.Duration
	// Operations is how many are begun at most. Defaults to no bound.
	Operations int
	// Clients is how many ask at once. Defaults to 32.
	Clients int
	// Fronts is how many processes share the store. Defaults to 2.
	Fronts int
	// Lease is that of a run. Defaults to 400 ms, with a server to 1 s.
	Lease time.Duration
	// Dir is an empty folder for the files of the run.
	Dir string
	// Store is the address of the gateways' store where the storage is no server. Defaults to an SQLite file of the run;
	// it is on a disk of its own if this process may mount one, see [Apart].
	Store string

	flaw    flaw
	hasty   bool    // no point is visited and no fault comes but by chance
	faults  []Fault // that come; defaults to those of the storage
	program string  // what the processes run; defaults to the running program
	files   string  // folder of SQLite's files
	leftOut map[Fault]string
}

// A flaw is what is wrong with the cast of a run that is to find it.
type flaw string

const (
	retryingProxy flaw = "retrying-proxy" // stands in for the gateway
	effectApart   flaw = "effect-apart"   // the library's handler has its effect before its transaction
	failOpen      flaw = "fail-open"      // the gateway does not protect while the store can't be asked
	forgetful     flaw = "forgetful"      // Redis starts again with nothing
)

func (c *Config) complete() error {
	var errs []error
	if c.Storage == "" {
		c.Storage = SQLite
	}
	switch {
	case !slices.Contains(Storages(), c.Storage):
		errs = append(errs, fmt.Errorf("no such storage: %q", c.Storage))
	case !slices.Contains(c.Storage.Modes(), c.Mode):
		errs = append(errs, fmt.Errorf("no such mode with %s: %q", c.Storage, c.Mode))
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
		if c.Storage.server() {
			c.Lease = defaultServerLease
		}
	}
	if c.faults == nil && c.Store == "" {
		c.faults = c.Storage.Faults()
	}
	c.files = c.Dir
	if c.program == "" {
		self, err := os.Executable()
		if err != nil {
			errs = append(errs, err)
		}
		c.program = self
	}
	return errors.Join(errs...)
}

// leaveOut takes a fault out of those that come, and notes why.
func (c *Config) leaveOut(f Fault, why error) {
	c.faults = slices.DeleteFunc(slices.Clone(c.faults), func(other Fault) bool { return other == f })
	c.leftOut = map[Fault]string{f: why.Error()}
}

// store returns the address of the gateways' store, where that is no server.
func (c *Config) store() string {
	if c.Store != "" {
		return c.Store
	}
	return "sqlite://" + filepath.Join(c.files, "semel.db")
}

// ledger returns the file in which effects are found, unless they are in PostgreSQL.
func (c *Config) ledger() string {
	if c.Mode.library() {
		return filepath.Join(c.files, "business.db")
	}
	return filepath.Join(c.Dir, "ledger.jsonl")
}

// effects returns the effects there are, and what is wrong with them all together.
func (c *Config) effects(ctx context.Context, s *site) (effects []effect, wrong []history.Violation, err error) {
	switch {
	case !c.Mode.library():
		effects, err = readLedger(c.ledger())
	case !c.Storage.server():
		effects, err = readSQLite(ctx, c.ledger())
	default:
		if effects, err = readPostgres(ctx, s.postgres.URL()); err == nil {
			wrong, err = balance(ctx, s.postgres.URL(), effects)
		}
	}
	return effects, wrong, err
}
