package outboxtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/outbox"
)

// Storage is one empty storage, on which several handles can be opened.
type Storage struct {
	// Open returns one more handle on the storage, with its own connections as in another process. It is closed by
	// t.Cleanup if it must be. Required.
	Open func(t *testing.T, o outbox.Options) outbox.Store

	// Begin begins a transaction in which messages are added through a handle. Required.
	Begin func(t *testing.T, s outbox.Store) Tx

	// Advance moves the clock of the storage, as every handle sees it, by d, which may be negative. Required.
	Advance func(d time.Duration)

	// OneWriter says that a transaction that adds waits for the end of any other one, so that rows are committed in the
	// order in which they are added.
	OneWriter bool

	// Restart kills the storage and starts it again with what it has acknowledged. Handles stay in use. Nil means that its
	// messages end with it.
	Restart func(t *testing.T)
}

// Tx is a transaction that adds messages.
type Tx interface {
	Add(messages ...outbox.Message) error
	Commit() error
	Rollback() error
}

// A check proves one promise.
type check struct {
	name    string
	promise string // printed if the check fails
	run     func(e *env)
}

// Run checks every promise of the store on storages that newStorage makes, a new one for each check. Checks run in
// parallel, but for those that restart the storage, and all have ended when Run returns.
func Run(t *testing.T, newStorage func(t *testing.T) Storage) {
	t.Helper()
	for _, topic := range []struct {
		name   string
		checks []check
	}{
		{"add", addChecks},
		{"lease", leaseChecks},
		{"order", orderChecks},
		{"lanes", laneChecks},
		{"operator", operatorChecks},
		{"relay", relayChecks},
	} {
		t.Run(topic.name, func(t *testing.T) {
			for _, c := range topic.checks {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					prove(t, c, newStorage(t))
				})
			}
		})
	}
	t.Run("restart", func(t *testing.T) {
		for _, c := range restartChecks {
			storage := newStorage(t)
			if storage.Restart == nil {
				t.Logf("left out, since the storage can't be restarted: %s", c.name)
				continue
			}
			t.Run(c.name, func(t *testing.T) { prove(t, c, storage) })
		}
	})
}

// checkTimeout ends a check that waits for what does not come.
const checkTimeout = 2 * time.Minute

func prove(t *testing.T, c check, s Storage) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the promise: %s", c.promise)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	c.run(&env{T: t, ctx: ctx, storage: s})
}

// An env is what a check works with.
type env struct {
	*testing.T
	ctx     context.Context
	storage Storage
}

// A handle is a store, with calls that must not fail.
type handle struct {
	outbox.Store
	e *env
}

func (e *env) open(o outbox.Options) handle {
	e.Helper()
	return handle{e.storage.Open(e.T, o), e}
}

func (h handle) begin() Tx { return h.e.storage.Begin(h.e.T, h.Store) }

// add adds messages in a transaction of their own.
func (h handle) add(messages ...outbox.Message) {
	h.e.Helper()
	tx := h.begin()
	if err := tx.Add(messages...); err != nil {
		h.e.Fatalf("Add: %v", errors.Join(err, tx.Rollback()))
	}
	h.e.must("commit", tx.Commit())
}

func (e *env) must(doing string, err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", doing, err)
	}
}

const (
	lease = time.Minute
	many  = 100
)

// ask returns a request for what there is, in all lanes.
func ask() outbox.LeaseRequest {
	return outbox.LeaseRequest{Token: driver.NewToken(), Lease: lease, Lanes: many, Limit: many, Max: many * many, Bytes: 1 << 20}
}

func (h handle) leaseWith(q outbox.LeaseRequest) []outbox.Entry {
	h.e.Helper()
	all, err := h.Lease(h.e.ctx, q)
	h.e.must("Lease", err)
	return all
}

// lease leases what there is, and returns it with the token.
func (h handle) lease() ([]outbox.Entry, driver.Token) {
	h.e.Helper()
	q := ask()
	return h.leaseWith(q), q.Token
}

// leases leases what there is, and checks which messages that are. It returns the token.
func (h handle) leases(why string, want ...string) driver.Token {
	h.e.Helper()
	all, t := h.lease()
	h.e.same(why, ids(all), want)
	return t
}

func (h handle) settle(t driver.Token, results ...outbox.Result) {
	h.e.Helper()
	h.e.must("Settle", h.Settle(h.e.ctx, t, results))
}

func (h handle) list(q outbox.Query) (all []outbox.Entry) {
	h.e.Helper()
	h.e.must("List", h.List(h.e.ctx, q, func(e outbox.Entry) bool {
		all = append(all, e)
		return true
	}))
	return all
}

// entry returns the message with an id, which must be there.
func (h handle) entry(id string) outbox.Entry {
	h.e.Helper()
	all := h.list(outbox.Query{IDs: []string{id}})
	if len(all) != 1 {
		h.e.Fatalf("there are %d messages %s", len(all), id)
	}
	return all[0]
}

func ids(all []outbox.Entry) []string {
	names := make([]string, 0, len(all))
	for _, e := range all {
		names = append(names, e.ID)
	}
	return names
}

// same fails unless two lists of ids are equal.
func (e *env) same(why string, got, want []string) {
	e.Helper()
	if len(got) != len(want) {
		e.Fatalf("%s: %q, want %q", why, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			e.Fatalf("%s: %q, want %q", why, got, want)
		}
	}
}

// message returns one with an id, to one topic of no tenant.
func message(id, key string) outbox.Message {
	return outbox.Message{ID: id, Topic: "orders", Key: key, Payload: []byte("payload of " + id)}
}

func sent(id string) outbox.Result { return outbox.Result{ID: id, Outcome: outbox.Acknowledged} }
func back(id string) outbox.Result { return outbox.Result{ID: id, Outcome: outbox.PutBack} }

func failed(id string, delay time.Duration) outbox.Result {
	return outbox.Result{ID: id, Outcome: outbox.Failed, Delay: delay, Error: "no answer"}
}

func givenUp(id string, hold bool) outbox.Result {
	return outbox.Result{ID: id, Outcome: outbox.GivenUp, Error: "no such order", Hold: hold}
}
