package shardstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/identity"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/shardstore"
)

// idsOf returns an operation of each shard, by its name.
func (s *site) idsOf(t testing.TB, over driver.Store) map[string]driver.ID {
	t.Helper()
	ids := map[string]driver.ID{}
	for len(ids) < len(s.servers) {
		id := verbs.NewID()
		ids[s.shardOf(t, over, id)] = id
	}
	return ids
}

// A shard that is down refuses its own operations, under its name, and no others. What is asked of all is done by the
// others.
func TestAShardThatIsDownRefusesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newSite(t, 4)
	over := open(t, s.shards(4), shardstore.None)
	ids := s.idsOf(t, over)
	for _, id := range s.idsOf(t, over) {
		verbs.Finish(t, over, id, verbs.Ask(driver.Hold)) // expires
	}
	s.Advance(2 * time.Hour)
	s.servers[2].down.Store(true)
	mine := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, errDown) || !strings.Contains(err.Error(), `shard "s2"`) {
			t.Errorf("%s: error %v, want that of s2", what, err)
		}
	}
	// Before any claim: a claim of a new key may remove an expired record.
	if n, err := over.Sweep(ctx, 2); n != 2 || err != nil {
		t.Errorf("a sweep that has found enough: %d, %v", n, err)
	}
	n, err := over.Sweep(ctx, 100)
	mine("sweep", err)
	if n != 1 {
		t.Errorf("swept %d more, want 1", n)
	}
	for name, id := range ids {
		if name != "s2" {
			verbs.Finish(t, over, id, verbs.Ask(driver.Hold))
			continue
		}
		_, _, err := over.Claim(ctx, id, verbs.Ask(driver.Hold))
		mine("claim", err)
		_, err = over.Extend(ctx, id, driver.Owner{}, driver.Extension{})
		mine("extend", err)
		_, _, err = over.Settle(ctx, id, driver.Owner{}, verbs.Done(""))
		mine("settle", err)
		_, err = over.Load(ctx, id)
		mine("load", err)
		_, err = over.Seize(ctx, id, driver.NewToken())
		mine("seize", err)
		_, err = over.Forget(ctx, id, driver.Owner{})
		mine("forget", err)
		_, err = over.SaveStep(ctx, id, driver.Owner{}, "charge", nil)
		mine("save step", err)
		_, err = over.Steps(ctx, id)
		mine("steps", err)
		mine("audit", over.Audit(ctx, driver.AuditEntry{ID: id}))
	}
	listed := 0
	mine("list", over.List(ctx, driver.Query{Reading: driver.ReadsDone}, func(driver.ID, driver.Record) bool { listed++; return true }))
	if listed != 3 {
		t.Errorf("listed %d operations, want the 3 of the shards that are there", listed)
	}
	mine("trail", over.AuditTrail(ctx, nil, 0, func(driver.AuditEntry) bool { return true }))
	_, err = over.Count(ctx)
	mine("count", err)
}

// A claim that gets no reply has to be released later, and a guard keeps a bounded number of these debts. So a shard that
// has failed gets no further claim before it replies to a look, and such a claim says that it was not executed.
func TestAShardThatIsDownMakesNoDebts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newSite(t, 2)
	over := open(t, s.shards(2), shardstore.None)
	at, id := s.servers[0], s.idsOf(t, over)["s0"]
	at.down.Store(true)
	_, _, err := over.Claim(ctx, id, verbs.Ask(driver.Hold))
	if !errors.Is(err, errDown) || errors.Is(err, driver.ErrNotExecuted) {
		t.Errorf("the first claim: %v, which may have been executed", err)
	}
	at.heard()
	for range 3 {
		if _, _, err := over.Claim(ctx, id, verbs.Ask(driver.Hold)); !errors.Is(err, driver.ErrNotExecuted) || !errors.Is(err, errDown) {
			t.Errorf("a further claim: %v, want one that was not executed", err)
		}
	}
	if asked := at.heard(); slices.ContainsFunc(asked, func(r request) bool { return r.verb == "claim" }) {
		t.Errorf("asked %v, want no claim", asked)
	}
	at.down.Store(false)
	verbs.Finish(t, over, id, verbs.Ask(driver.Hold))
	at.heard()
	if verbs.Finish(t, over, verbs.NewID(), verbs.Ask(driver.Hold)); len(at.heard()) > 2 {
		t.Error("a shard that works again is looked at before each claim")
	}
}

// A switch is a breaker that is opened by hand.
type breaker struct {
	open  bool
	heard []error
}

var errOpen = errors.New("open")

func (b *breaker) Allow() (func(error), error) {
	if b.open {
		return nil, errOpen
	}
	return func(err error) { b.heard = append(b.heard, err) }, nil
}

// A shard's breaker refuses what may be refused of that shard, and never what ends a run. It hears what the shard says.
func TestR64_EachShardHasABreakerOfItsOwn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newSite(t, 2)
	shards := s.shards(2)
	b := &breaker{}
	shards[0].Breaker = b
	over := open(t, shards, shardstore.None)
	ids := s.idsOf(t, over)
	b.heard = nil
	c := verbs.Ask(driver.Hold)
	rec := verbs.Claim(t, over, ids["s0"], c)
	verbs.Finish(t, over, ids["s1"], verbs.Ask(driver.Hold))
	s.servers[0].down.Store(true)
	_, err := over.Load(ctx, ids["s0"])
	gone, leave := context.WithCancel(ctx)
	leave()
	over.Load(gone, ids["s0"]) //nolint:errcheck // the breaker hears it
	s.servers[0].down.Store(false)
	if len(b.heard) != 3 || b.heard[0] != nil || !errors.Is(b.heard[1], errDown) || !errors.Is(b.heard[2], context.Canceled) {
		t.Errorf("the breaker has heard %v (%v), want a success, a failure, and that the caller has left", b.heard, err)
	}
	b.open = true
	if _, _, err := over.Claim(ctx, ids["s0"], c); !errors.Is(err, driver.ErrNotExecuted) || !errors.Is(err, errOpen) {
		t.Errorf("a claim: %v, want that it was not executed", err)
	}
	if _, err := over.Load(ctx, ids["s0"]); !errors.Is(err, errOpen) {
		t.Errorf("a load: %v", err)
	}
	if owned, err := over.Extend(ctx, ids["s0"], rec.Owner(), driver.Extension{}); !owned || err != nil {
		t.Errorf("an extend: %t, %v", owned, err)
	}
	verbs.Settle(t, over, ids["s0"], rec.Owner(), verbs.Done("paid"))
	verbs.Load(t, over, ids["s1"])
}

// The check value of the identity secret is in every shard. So it outlives each of them, processes start while one is
// down, and a shard that joins is checked too.
func TestTheIdentitySecretIsCheckedInEveryShard(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newSite(t, 3)
	secret, other := []byte("0123456789abcdef0123456789abcdef"), []byte("fedcba9876543210fedcba9876543210")
	two := open(t, s.shards(2)[:2], shardstore.None)
	check := func(over driver.Store, secret []byte) error { return identity.Check(ctx, over, secret) }
	if err := check(two, secret); err != nil {
		t.Fatal(err)
	}
	if err := check(two, other); !errors.Is(err, identity.ErrOtherSecret) {
		t.Errorf("another secret: %v", err)
	}
	three := open(t, s.shards(2), shardstore.Prepare)
	if err := check(three, other); !errors.Is(err, identity.ErrOtherSecret) {
		t.Errorf("another secret, first seen with a third shard: %v", err)
	}
	if err := check(three, secret); err != nil {
		t.Errorf("with a third shard: %v", err)
	}
	s.servers[0].down.Store(true)
	for i := range 3 {
		over := open(t, s.shards(3)[i:i+1], shardstore.None)
		if known, err := identity.Verify(ctx, over, secret); i > 0 && (!known || err != nil) {
			t.Errorf("shard %d alone: known is %t, error %v", i, known, err)
		}
	}
	if err := check(three, secret); err != nil {
		t.Errorf("while a shard is down: %v", err)
	}
	if err := check(three, other); !errors.Is(err, identity.ErrOtherSecret) {
		t.Errorf("another secret while a shard is down: %v", err)
	}
	for _, at := range s.servers {
		at.down.Store(true)
	}
	if err := check(three, secret); !errors.Is(err, errDown) {
		t.Errorf("while all are down: %v", err)
	}

	// Two storages of different secrets can't become shards of one store.
	s = newSite(t, 2)
	for i, secret := range [][]byte{secret, other} {
		if err := check(s.servers[i], secret); err != nil {
			t.Fatal(err)
		}
	}
	if err := check(open(t, s.shards(2), shardstore.None), secret); err == nil || !strings.Contains(err.Error(), "different identity secrets") {
		t.Errorf("shards with different secrets: %v", err)
	}
}
