package tieredstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/tieredstore"
)

// batching is a durable store that notes of each trip what was claimed in it.
type batching struct {
	*counted
	trips [][]driver.ID
	fails error
}

func (b *batching) ClaimAll(ctx context.Context, claims []driver.ClaimOf) []driver.Claimed {
	all := make([]driver.Claimed, len(claims))
	var ids []driver.ID
	for i, c := range claims {
		ids = append(ids, c.ID)
		all[i].Record, all[i].Owned, all[i].Err = b.counted.Claim(ctx, c.ID, c.Claim)
		if b.fails != nil {
			all[i] = driver.Claimed{Err: b.fails}
		}
	}
	b.trips = append(b.trips, ids)
	return all
}

// What a layer knows to be done it refuses; the rest of a batch goes to the durable store in one trip, in its order.
// Copies are made of what was refused there.
func TestABatchAsksTheDurableStoreOnceForWhatNoLayerKnows(t *testing.T) {
	t.Parallel()
	for _, l := range allLayers {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := &batching{counted: w.durable}
			o := tieredstore.Options{Clock: w.now}
			if l.cached {
				o.Cache, o.CacheTimeout = w.cache, patient
			}
			if l.memory {
				o.Memory = bigMemory
			}
			s := tieredstore.New(d, o)
			known, knownClaim := newID(), ask(driver.Hold)
			settled := finish(t, s, known, knownClaim)
			refuse(t, s, known, retry(knownClaim)) // makes the copies
			ended, endedClaim := newID(), ask(driver.Hold)
			finish(t, s, ended, endedClaim)
			running, runningClaim := newID(), ask(driver.Hold)
			if _, owned, err := s.Claim(t.Context(), running, runningClaim); !owned || err != nil {
				t.Fatal(owned, err)
			}
			fresh, freshClaim := newID(), ask(driver.Hold)

			claims := []driver.ClaimOf{
				{ID: known, Claim: retry(knownClaim)},
				{ID: fresh, Claim: freshClaim},
				{ID: ended, Claim: retry(endedClaim)},
				{ID: known, Claim: ask(driver.Hold)}, // another request
				{ID: running, Claim: runningClaim},   // sent again
				{ID: fresh, Claim: retry(freshClaim)},
			}
			all := s.(driver.BatchClaimer).ClaimAll(t.Context(), claims)
			for i, want := range []struct {
				owned bool
				token driver.Token
			}{
				{false, knownClaim.Token},
				{true, freshClaim.Token},
				{false, endedClaim.Token},
				{false, knownClaim.Token},
				{true, runningClaim.Token},
				{false, freshClaim.Token},
			} {
				got := all[i]
				if got.Err != nil || got.Owned != want.owned || got.Record.Token != want.token || got.Record.Now != driver.TimeOf(w.now()) {
					t.Errorf("claim %d: owned is %t, record %+v, error %v", i, got.Owned, got.Record, got.Err)
				}
			}
			if got := all[3].Record; got.Fingerprint != settled.Fingerprint || got.Response == nil {
				t.Errorf("another request got %+v", got)
			}
			rest := []driver.ID{fresh, ended, running, fresh}
			if !l.cached && !l.memory {
				rest = []driver.ID{known, fresh, ended, known, running, fresh}
			}
			if len(d.trips) != 1 || !slices.Equal(d.trips[0], rest) {
				t.Errorf("the durable store was asked for %d batches, %v; want %v", len(d.trips), d.trips, rest)
			}
			if !l.cached && !l.memory {
				return
			}
			d.asked.Store(0)
			d.trips = nil
			for i, got := range s.(driver.BatchClaimer).ClaimAll(t.Context(), []driver.ClaimOf{
				{ID: ended, Claim: retry(endedClaim)}, {ID: known, Claim: retry(knownClaim)},
			}) {
				if got.Err != nil || got.Owned || got.Record.Response == nil {
					t.Errorf("repeat %d: owned is %t, record %+v, error %v", i, got.Owned, got.Record, got.Err)
				}
			}
			d.none(t, "repeats")
			if len(d.trips) != 0 {
				t.Errorf("a batch of nothing was sent")
			}
		})
	}
}

// A batch is refused or fails one claim at a time: what the durable store says of one is no word about the others.
func TestABatchThatFailsFillsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := &batching{counted: w.durable, fails: errDown}
	s := tieredstore.New(d, tieredstore.Options{Clock: w.now, Cache: w.cache, CacheTimeout: patient, Memory: bigMemory})
	known, c := newID(), ask(driver.Hold)
	finish(t, s, known, c)
	refuse(t, s, known, retry(c))
	other := newID()
	finish(t, s, other, c)
	fills := w.cache.called("fill")
	all := s.(driver.BatchClaimer).ClaimAll(t.Context(), []driver.ClaimOf{
		{ID: other, Claim: retry(c)}, {ID: known, Claim: retry(c)}, {ID: newID(), Claim: retry(c)},
	})
	if !errors.Is(all[0].Err, errDown) || all[1].Err != nil || all[1].Record.Response == nil || !errors.Is(all[2].Err, errDown) {
		t.Errorf("the batch returned %+v", all)
	}
	if w.cache.called("fill") != fills || w.cache.holds(other) {
		t.Error("a copy was made of what was not read")
	}
	if n := len(s.(driver.BatchClaimer).ClaimAll(t.Context(), nil)); n != 0 {
		t.Errorf("no claims have %d results", n)
	}
}

// Where the durable store takes one claim at a time, those of a batch do not wait for each other, but for those of
// their own operation. So many claims take no longer than a guard's patience, whatever the layers are.
func TestABatchOfADurableStoreWithoutBatches(t *testing.T) {
	t.Parallel()
	for _, l := range allLayers {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			const meet = 16
			w := newWorld(t)
			s := w.process(l)
			id, c := newID(), ask(driver.Hold)
			claims := []driver.ClaimOf{{ID: id, Claim: c}, {ID: id, Claim: retry(c)}}
			for range 100 {
				claims = append(claims, driver.ClaimOf{ID: newID(), Claim: retry(c)})
			}
			claims = append(claims, driver.ClaimOf{ID: id, Claim: c}) // sent again
			var under, most, sent atomic.Int64
			var met sync.WaitGroup
			met.Add(meet)
			w.durable.gate = func(string) {
				n := under.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				if sent.Add(1) <= meet { // the first of them go on when so many are under way
					met.Done()
					met.Wait()
				}
				under.Add(-1)
			}
			for i, got := range s.(driver.BatchClaimer).ClaimAll(t.Context(), claims) {
				want := claims[i].Token
				if i == 1 {
					want = c.Token
				}
				if got.Err != nil || got.Owned != (i != 1) || got.Record.Token != want {
					t.Errorf("claim %d: owned is %t, error %v, %+v", i, got.Owned, got.Err, got.Record)
				}
			}
			if n := most.Load(); n > 32 {
				t.Errorf("%d claims were under way at once, want 32 at most", n)
			}
		})
	}
}

// A panic in one of them is its caller's.
func TestABatchOfADurableStoreThatPanics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.process(layers{})
	w.durable.gate = func(string) { panic("no driver") }
	c := ask(driver.Hold)
	defer func() {
		if p := recover(); p != "no driver" {
			t.Errorf("the panic is %v", p)
		}
	}()
	s.(driver.BatchClaimer).ClaimAll(t.Context(), []driver.ClaimOf{{ID: newID(), Claim: c}, {ID: newID(), Claim: retry(c)}})
	t.Error("it returned")
}

// miscounting is a durable store that returns too few or too many results.
type miscounting struct {
	*counted
	results int
}

func (m miscounting) ClaimAll(context.Context, []driver.ClaimOf) []driver.Claimed {
	return make([]driver.Claimed, m.results)
}

// Whose a result is can't be told where their number is not that of the claims: no claim was acknowledged then.
func TestABatchWithTheWrongNumberOfResultsFails(t *testing.T) {
	t.Parallel()
	for _, results := range []int{0, 1, 3} {
		w := newWorld(t)
		s := tieredstore.New(miscounting{w.durable, results}, tieredstore.Options{Clock: w.now, Cache: w.cache, CacheTimeout: patient, Memory: bigMemory})
		known, c := newID(), ask(driver.Hold)
		finish(t, s, known, c)
		refuse(t, s, known, retry(c))
		all := s.(driver.BatchClaimer).ClaimAll(t.Context(), []driver.ClaimOf{
			{ID: newID(), Claim: c}, {ID: known, Claim: retry(c)}, {ID: newID(), Claim: c},
		})
		if len(all) != 3 || all[1].Err != nil || all[1].Record.State != driver.Done {
			t.Fatalf("%d results: the batch returned %+v", results, all)
		}
		for _, i := range []int{0, 2} {
			want := fmt.Sprintf("tieredstore: claim 2 operations: the durable store returned %d results", results)
			if got := all[i]; got.Err == nil || got.Err.Error() != want || got.Owned {
				t.Errorf("claim %d: owned is %t, error %v, want %s", i, got.Owned, got.Err, want)
			}
		}
	}
}

// A copy of a record that is done says as the record does that there are steps; they are the durable store's.
func TestR84_ACopyKeepsThatThereAreSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.process(layers{cached: true, memory: true})
	id, c := newID(), ask(driver.Rerun)
	rec, owned, err := s.Claim(t.Context(), id, c)
	if err != nil || !owned {
		t.Fatal(owned, err)
	}
	if owned, err := s.(driver.StepStore).SaveStep(t.Context(), id, rec.Owner(), "charge", []byte("7")); err != nil || !owned {
		t.Fatal(owned, err)
	}
	if _, owned, err = s.Settle(t.Context(), id, rec.Owner(), done("paid")); err != nil || !owned {
		t.Fatal(owned, err)
	}
	for i := range 3 { // the first makes the copies
		if got := refuse(t, s, id, retry(c)); !got.Steps {
			t.Errorf("repeat %d: the record says that there are no steps", i)
		}
		saved, err := s.(driver.StepStore).Steps(t.Context(), id)
		if err != nil || string(saved["charge"]) != "7" {
			t.Errorf("repeat %d: the steps are %q, error %v", i, saved, err)
		}
	}
}
