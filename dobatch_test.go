package semel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// batching is a store that claims many operations at once, and counts the round trips of claims. Its faults are those
// of each claim, or, if all is set, of the whole trip.
type batching struct {
	*faulty
	mem *memstore.Store
	all func(ctx context.Context, claims []driver.ClaimOf) []driver.Claimed
	rtt time.Duration // of each trip that is not replaced

	counting sync.Mutex
	trips    []int // how many claims each had
	singles  int
}

func newBatching() *batching {
	mem := memstore.New()
	return &batching{faulty: &faulty{Store: mem}, mem: mem}
}

func (s *batching) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	s.counting.Lock()
	s.singles++
	s.counting.Unlock()
	defer time.Sleep(s.rtt)
	return s.faulty.Claim(ctx, id, c)
}

func (s *batching) ClaimAll(ctx context.Context, claims []driver.ClaimOf) []driver.Claimed {
	s.counting.Lock()
	s.trips = append(s.trips, len(claims))
	s.counting.Unlock()
	if s.all != nil {
		return s.all(ctx, claims)
	}
	defer time.Sleep(s.rtt)
	return s.each(ctx, claims)
}

// each executes the claims.
func (s *batching) each(ctx context.Context, claims []driver.ClaimOf) (all []driver.Claimed) {
	for _, c := range claims {
		var one driver.Claimed
		one.Record, one.Owned, one.Err = s.faulty.Claim(ctx, c.ID, c.Claim)
		all = append(all, one)
	}
	return all
}

// items returns n items of alice's, with the keys k0 to kn.
func items(n int) (list []semel.Item) {
	for i := range n {
		list = append(list, semel.Item{Key: numbered(i), Request: semel.Bytes(fmt.Sprint("request ", i))})
	}
	return list
}

func numbered(i int) semel.Key {
	return semel.Key{Scope: "alice", Operation: "pay", Value: fmt.Sprint("k", i)}
}

func numberedRecord(t *testing.T, s driver.Store, i int) driver.Record {
	t.Helper()
	return recordOf(t, s, semel.Identify(nil, semel.KindDo, "alice", fmt.Sprint("k", i)))
}

// checkValues checks that each item has its index, times ten, as result.
func checkValues(t *testing.T, results []semel.ItemResult[int]) {
	t.Helper()
	for i, r := range results {
		if r.Value != 10*i || r.Err != nil {
			t.Errorf("item %d: %d, %v; want %d", i, r.Value, r.Err, 10*i)
		}
	}
}

func tenfold(_ context.Context, i int) (int, error) { return 10 * i, nil }

// outcome is everything that becomes of one item or call.
type outcome struct {
	value  int
	err    string
	thrown any
	is     error // the sentinel
	state  driver.State
	why    string // in the record
	result event.Result
	told   string // which kinds of events
	asked  int    // decisions
}

func outcomeOf(t *testing.T, value int, err error, s *batching, seen *events) outcome {
	t.Helper()
	o := outcome{value: value}
	var broken *semel.PanicError
	switch {
	case errors.As(err, &broken):
		o.thrown = broken.Value
	case err != nil:
		o.err = fmt.Sprintf("%T: %v", err, err)
		for _, sentinel := range []error{
			refusal.KeyInvalid, refusal.ScopeInvalid, refusal.KeyReused, refusal.InProgress, refusal.OutcomePending, refusal.OutcomeUnknown,
			refusal.ReplayUnavailable, refusal.TooManyAttempts, refusal.TooManyKeys, refusal.RequestUnreadable, refusal.StoreUnavailable,
		} {
			if errors.Is(err, sentinel) {
				o.is = sentinel
			}
		}
	}
	rec := doKey(t, s.mem)
	o.state, o.why = rec.State, rec.Error
	seen.mu.Lock()
	defer seen.mu.Unlock()
	var kinds []event.Kind
	for _, e := range seen.list {
		if e.ID != semel.Identify(nil, semel.KindDo, "alice", "k") && (e.ID != driver.ID{} || e.Kind != event.Decision) {
			continue
		}
		kinds = append(kinds, e.Kind)
		if e.Kind == event.Decision {
			o.result = e.Result
			o.asked++
		}
	}
	slices.Sort(kinds)
	o.told = fmt.Sprint(slices.Compact(kinds)) // how often a settle is sent is chance
	return o
}

func TestAnItemOfABatchIsACallOfDo(t *testing.T) {
	t.Parallel()
	type fn func(context.Context) (int, error)
	seven := func(context.Context) (int, error) { return 7, nil }
	boom := errors.New("boom")
	first := func(do fn) func(*testing.T, *semel.Guard, *batching) { // what happened to the key before
		return func(t *testing.T, g *semel.Guard, _ *batching) {
			semel.Do(t.Context(), g, theKey, semel.Bytes("r"), do) //nolint:errcheck // seen in what comes after
		}
	}
	down := func(_ *testing.T, _ *semel.Guard, s *batching) {
		s.claim = func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
			return driver.Record{}, false, errDown
		}
	}
	failing := func(err error) func(*testing.T, *semel.Guard, *batching) {
		return func(_ *testing.T, _ *semel.Guard, s *batching) {
			s.claim = func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
				if id == semel.Identify(nil, semel.KindDo, "alice", "k") {
					return driver.Record{}, false, err
				}
				return s.mem.Claim(ctx, id, c)
			}
		}
	}
	for name, tc := range map[string]struct {
		o       semel.Options
		key     semel.Key           // theKey if empty
		request semel.Fingerprinter // "r" if nil
		before  func(*testing.T, *semel.Guard, *batching)
		do      fn // seven if nil
		want    error
	}{
		"a value":              {},
		"a final error":        {do: func(context.Context) (int, error) { return 3, semel.Final(boom) }},
		"an error under Hold":  {do: func(context.Context) (int, error) { return 3, boom }},
		"an error under Rerun": {o: semel.Options{Policy: semel.Policy{OnLost: semel.Rerun}}, do: func(context.Context) (int, error) { return 3, boom }},
		"released":             {do: func(ctx context.Context) (int, error) { semel.FromContext(ctx).Release(); return 7, nil }},
		"lost under Hold": {
			do:   func(ctx context.Context) (int, error) { semel.FromContext(ctx).Lost(boom); return 7, nil },
			want: refusal.OutcomeUnknown,
		},
		"lost under Rerun": {
			o:    semel.Options{Policy: semel.Policy{OnLost: semel.Rerun}},
			do:   func(ctx context.Context) (int, error) { semel.FromContext(ctx).Lost(boom); return 7, nil },
			want: refusal.OutcomePending,
		},
		"a panic":             {do: func(context.Context) (int, error) { panic("ouch") }},
		"a panic under Rerun": {o: semel.Options{Policy: semel.Policy{OnLost: semel.Rerun}}, do: func(context.Context) (int, error) { panic("ouch") }},
		"a request that panics": {
			request: throwing{}, do: seven,
		},
		"an answer too large": {o: semel.Options{Policy: semel.Policy{MaxResponseBody: 5}}},
		"a repeat":            {before: first(seven)},
		"a repeat of an error": {
			before: first(func(context.Context) (int, error) { return 0, semel.Final(&codedError{"c", "text"}) }),
		},
		"a repeat after a release": {
			before: first(func(ctx context.Context) (int, error) { semel.FromContext(ctx).Release(); return 1, nil }),
		},
		"a repeat of what was lost": {
			before: first(func(ctx context.Context) (int, error) { semel.FromContext(ctx).Lost(boom); return 1, nil }), want: refusal.OutcomeUnknown,
		},
		"another request": {before: first(seven), request: semel.Bytes("other"), want: refusal.KeyReused},
		"no scope":        {key: semel.Key{Operation: "pay", Value: "k"}, want: refusal.ScopeInvalid},
		"no key":          {key: semel.Key{Scope: "alice", Operation: "pay"}, want: refusal.KeyInvalid},
		"no fingerprint":  {request: semel.JSON(make(chan int)), want: refusal.RequestUnreadable},
		"too many attempts": {
			o: semel.Options{MaxAttempts: 1}, before: first(seven), want: refusal.TooManyAttempts,
		},
		"too many keys": {
			o: semel.Options{MaxKeys: 1},
			before: func(t *testing.T, g *semel.Guard, _ *batching) {
				semel.Do(t.Context(), g, semel.Key{Scope: "alice", Operation: "pay", Value: "before"}, semel.Bytes("r"), seven) //nolint:errcheck // a key is used
			},
			want: refusal.TooManyKeys,
		},
		"a repeat among too many keys": {o: semel.Options{MaxKeys: 1}, before: first(seven)},
		"the store down":               {before: down, want: refusal.StoreUnavailable},
		"the store full":               {before: failing(fmt.Errorf("claim: %w", driver.ErrFull)), want: refusal.StoreUnavailable},
		"a record unreadable":          {before: failing(fmt.Errorf("claim: %w", driver.ErrUnreadable)), want: refusal.ReplayUnavailable},
		"one key fails":                {before: failing(errDown), want: refusal.StoreUnavailable},
		"the store down, open":         {o: semel.Options{Policy: semel.Policy{FailOpen: true}}, before: down},
		"the store down, open, a panic": {
			o: semel.Options{Policy: semel.Policy{FailOpen: true}}, before: down, do: func(context.Context) (int, error) { panic("ouch") },
		},
		"the settle gets no reply": {
			before: func(_ *testing.T, _ *semel.Guard, s *batching) {
				s.settle = func(context.Context, driver.ID, driver.Owner, driver.Outcome) (driver.Record, bool, error) {
					return driver.Record{}, false, errDown
				}
			},
			want: refusal.OutcomePending,
		},
		"it runs elsewhere": {
			before: func(t *testing.T, _ *semel.Guard, s *batching) {
				other, _ := newGuard(t, s, semel.Policy{})
				go semel.Do(t.Context(), other, theKey, semel.Bytes("r"), func(context.Context) (int, error) { //nolint:errcheck // seen by the others
					time.Sleep(3 * time.Second)
					return 8, nil
				})
				synctest.Wait()
			},
			want: refusal.InProgress,
		},
		"it runs elsewhere, and is waited for": {
			o: semel.Options{Policy: semel.Policy{Wait: time.Minute}},
			before: func(t *testing.T, _ *semel.Guard, s *batching) {
				other, _ := newGuard(t, s, semel.Policy{})
				go semel.Do(t.Context(), other, theKey, semel.Bytes("r"), func(context.Context) (int, error) { //nolint:errcheck // seen by the others
					time.Sleep(3 * time.Second)
					return 8, nil
				})
				synctest.Wait()
			},
		},
		"longer than Patience": {
			o: semel.Options{Policy: semel.Policy{Patience: time.Second}},
			do: func(context.Context) (int, error) {
				time.Sleep(3 * time.Second)
				return 7, nil
			},
			want: refusal.OutcomePending,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.key == (semel.Key{}) {
				tc.key = theKey
			}
			if tc.request == nil {
				tc.request = semel.Bytes("r")
			}
			if tc.do == nil {
				tc.do = seven
			}
			try := func(t *testing.T, do func(context.Context, *semel.Guard) (int, error)) (o outcome) {
				synctest.Test(t, func(t *testing.T) {
					s := newBatching()
					g, seen := newGuardWith(t, s, tc.o)
					if tc.before != nil {
						tc.before(t, g, s)
					}
					value, err := do(t.Context(), g)
					s.set(func(f *faulty) { f.claim, f.settle = nil, nil })
					time.Sleep(5 * time.Second) // what goes on is over; the second copies of releases are not yet due
					o = outcomeOf(t, value, err, s, seen)
					drained(t, g)
				})
				return o
			}
			want := try(t, func(ctx context.Context, g *semel.Guard) (value int, err error) {
				defer func() {
					if thrown := recover(); thrown != nil {
						err = &semel.PanicError{Value: thrown}
					}
				}()
				return semel.Do(ctx, g, tc.key, tc.request, tc.do)
			})
			if want.is != tc.want {
				t.Errorf("Do returns %v, want %v", want.err, tc.want)
			}
			for how, list := range map[string]func(semel.Item) ([]semel.Item, int){
				"alone": func(it semel.Item) ([]semel.Item, int) { return []semel.Item{it}, 0 },
				"with others": func(it semel.Item) ([]semel.Item, int) {
					list := slices.Insert(items(3), 1, it)
					for i := range list {
						if i != 1 {
							list[i].Key.Scope = "bob"
						}
					}
					return list, 1
				},
			} {
				got := try(t, func(ctx context.Context, g *semel.Guard) (int, error) {
					list, at := list(semel.Item{Key: tc.key, Request: tc.request})
					results := semel.DoBatch(ctx, g, list, semel.BatchOptions{}, func(ctx context.Context, i int) (int, error) {
						if i != at {
							return i, nil
						}
						return tc.do(ctx)
					})
					for i, r := range results {
						if i != at && (r.Value != i || r.Err != nil) && want.is == nil && tc.o.MaxKeys == 0 && !tc.o.Policy.FailOpen {
							t.Errorf("%s: the other item %d has %d, %v", how, i, r.Value, r.Err)
						}
					}
					return results[at].Value, results[at].Err
				})
				if got != want {
					t.Errorf("%s: the item has\n%+v, Do\n%+v", how, got, want)
				}
			}
		})
	}
}

// throwing is a request that panics when it is read.
type throwing struct{}

func (throwing) FingerprintBytes() ([]byte, error) { panic("no fingerprint") }

func TestABatchThatFitsIsClaimedInOneTrip(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 16, 64} {
		s := newBatching()
		g, _ := newGuard(t, s, semel.Policy{})
		for round := range 2 { // the second one replays
			checkValues(t, semel.DoBatch(t.Context(), g, items(n), semel.BatchOptions{Concurrency: 64}, tenfold))
			s.counting.Lock()
			switch {
			case n < 2 && (len(s.trips) > 0 || s.singles != n*(round+1)):
				t.Errorf("%d items: %d claims and trips of %v, want a claim each time", n, s.singles, s.trips)
			case n >= 2 && (s.singles != 0 || len(s.trips) != round+1 || s.trips[round] != n):
				t.Errorf("%d items: %d claims and trips of %v, want one trip each time", n, s.singles, s.trips)
			}
			s.counting.Unlock()
		}
		checkRecords(t, s.mem, n)
	}
}

// What is claimed is begun at once: when all places are taken, the records that run are those whose function has begun.
func TestABatchClaimsNoMoreThanItStarts(t *testing.T) {
	t.Parallel()
	for name, together := range map[string]bool{"claimed together": true, "claimed one by one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const n, concurrency = 40, 7
				s := newBatching()
				var store driver.Store = s
				if !together {
					store = s.mem
				}
				s.rtt = time.Second
				g, _ := newGuard(t, store, semel.Policy{})
				var running, begun, most atomic.Int64
				done := make(chan []semel.ItemResult[int])
				go func() {
					done <- semel.DoBatch(t.Context(), g, items(n), semel.BatchOptions{Concurrency: concurrency}, func(ctx context.Context, i int) (int, error) {
						begun.Add(1)
						now := running.Add(1)
						defer running.Add(-1)
						for {
							seen := most.Load()
							if seen >= now || most.CompareAndSwap(seen, now) {
								break
							}
						}
						time.Sleep(10*time.Second + time.Duration(i%3)*300*time.Millisecond)
						return tenfold(ctx, i)
					})
				}()
				var results []semel.ItemResult[int]
				for results == nil {
					time.Sleep(time.Second + 77*time.Millisecond)
					synctest.Wait()
					stored := 0
					for i := range n {
						if numberedRecord(t, s.mem, i).State == driver.Running {
							stored++
						}
					}
					if int64(stored) > concurrency {
						t.Errorf("%d items are claimed, more than %d", stored, concurrency)
					}
					if !together && int64(stored) != running.Load() {
						t.Errorf("%d items are claimed while %d run", stored, running.Load())
					}
					select {
					case results = <-done:
					default:
					}
				}
				checkValues(t, results)
				if most.Load() != concurrency || begun.Load() != n {
					t.Errorf("%d runs, at most %d at once; want %d and %d", begun.Load(), most.Load(), n, concurrency)
				}
				if !together {
					return
				}
				s.counting.Lock()
				defer s.counting.Unlock()
				if s.trips[0] != concurrency || len(s.trips)+s.singles >= n-concurrency || slices.Max(s.trips) > concurrency {
					t.Errorf("%d claims and trips of %v: want first %d, and then as many as are free", s.singles, s.trips, concurrency)
				}
			})
		})
	}
}

// A claim of a trip that gets no reply is sent again with its token; it holds up nobody.
func TestCase07_ABatchRecognisesItsOwnClaims(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lost  func(trip, claim int) bool
		trips []int
		again int // claims that were sent again
	}{
		"all replies lost once":  {func(trip, _ int) bool { return trip == 1 }, []int{6, 6}, 6},
		"all replies lost twice": {func(trip, _ int) bool { return trip <= 2 }, []int{6, 6, 6}, 6},
		"some replies lost":      {func(trip, i int) bool { return trip == 1 && i%2 == 1 }, []int{6, 3}, 3},
		"one reply lost twice":   {func(trip, i int) bool { return trip == 1 && i == 5 || trip == 2 }, []int{6, 1, 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newBatching()
				trip := 0
				start := time.Now()
				s.all = func(ctx context.Context, claims []driver.ClaimOf) []driver.Claimed {
					trip++
					all := s.each(ctx, claims)
					for i := range all {
						if c.lost(trip, i) {
							all[i] = driver.Claimed{Err: errDown}
						}
					}
					return all
				}
				releases := 0
				s.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
					rec, owned, err := s.mem.Settle(ctx, id, by, o)
					if by.Above {
						s.counting.Lock()
						releases++
						s.counting.Unlock()
						if owned || by.Fence == 0 {
							t.Errorf("a release above fence %d, %v: its run was started", by.Fence, owned)
						}
					}
					return rec, owned, err
				}
				g, seen := newGuard(t, s, semel.Policy{})
				var l ledger
				checkValues(t, semel.DoBatch(t.Context(), g, items(6), semel.BatchOptions{}, func(ctx context.Context, i int) (int, error) {
					l.add()
					if semel.FromContext(ctx).Attempt() != 1 {
						t.Errorf("item %d: attempt %d, want 1", i, semel.FromContext(ctx).Attempt())
					}
					if !c.lost(1, i) && time.Since(start) != 0 {
						t.Errorf("item %d was held up for %v by others", i, time.Since(start))
					}
					return tenfold(ctx, i)
				}))
				checkEffects(t, &l, 6)
				if !slices.Equal(s.trips, c.trips) || s.singles != 0 {
					t.Errorf("trips of %v, %d claims; want trips of %v", s.trips, s.singles, c.trips)
				}
				drained(t, g)
				if releases != 2*c.again || seen.count(event.GaveUp) != 0 {
					t.Errorf("%d releases, %d claims given up; want two releases for each claim that was sent again", releases, seen.count(event.GaveUp))
				}
			})
		})
	}
}

// While a claim is sent again, the places of the others go to the next items.
func TestARetriedClaimHoldsUpNoOtherPlaceOfABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, began := newBatching(), time.Now()
		s.all = func(ctx context.Context, claims []driver.ClaimOf) []driver.Claimed {
			all := s.each(ctx, claims)
			if time.Now().Equal(began) {
				all[1] = driver.Claimed{Err: errDown}
			}
			return all
		}
		g, _ := newGuard(t, s, semel.Policy{})
		checkValues(t, semel.DoBatch(t.Context(), g, items(5), semel.BatchOptions{Concurrency: 2}, func(ctx context.Context, i int) (int, error) {
			if i != 1 && !time.Now().Equal(began) {
				t.Errorf("item %d began late", i)
			}
			return tenfold(ctx, i)
		}))
		drained(t, g)
	})
}

// A claim of a trip that may have been executed, and is not run, is released by its token.
func TestCase43_ABatchReleasesWhatItGivesUp(t *testing.T) {
	t.Parallel()
	p := shortLease(semel.Hold)
	inTime, tooLate := p.Lease*8/10, p.Lease*8/10+time.Millisecond
	lost := func(all []driver.Claimed, which ...int) []driver.Claimed {
		for _, i := range which {
			if i < len(all) {
				all[i] = driver.Claimed{Err: errDown}
			}
		}
		return all
	}
	for name, c := range map[string]struct {
		reply func(all []driver.Claimed) []driver.Claimed
		took  time.Duration
		lease time.Duration
		given []int // up
		trips int
	}{
		"no reply at all":         {reply: func(all []driver.Claimed) []driver.Claimed { return lost(all, 0, 1, 2, 3) }, given: []int{0, 1, 2, 3}, trips: 3},
		"no reply for some":       {reply: func(all []driver.Claimed) []driver.Claimed { return lost(all, 0, len(all)-1) }, given: []int{0, 3}, trips: 3},
		"no reply for one":        {reply: func(all []driver.Claimed) []driver.Claimed { return lost(all, 0) }, given: []int{0}, trips: 3},
		"too few replies":         {reply: func(all []driver.Claimed) []driver.Claimed { return all[1:] }, given: []int{0, 1, 2, 3}, trips: 3},
		"too many replies":        {reply: func(all []driver.Claimed) []driver.Claimed { return append(all, all...) }, given: []int{0, 1, 2, 3}, trips: 3},
		"a reply at the margin":   {took: inTime, trips: 1},
		"a reply past the margin": {took: tooLate, given: []int{0, 1, 2, 3}, trips: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newBatching()
				s.all = func(ctx context.Context, claims []driver.ClaimOf) []driver.Claimed {
					all := s.each(ctx, claims)
					time.Sleep(c.took) // its context has ended by then; it replies all the same
					if c.reply != nil {
						return c.reply(all)
					}
					return all
				}
				g, seen := newGuard(t, s, p)
				var mu sync.Mutex
				ran := map[int]bool{}
				do := func(ctx context.Context, i int) (int, error) {
					mu.Lock()
					defer mu.Unlock()
					ran[i] = true
					return tenfold(ctx, i)
				}
				results := semel.DoBatch(t.Context(), g, items(4), semel.BatchOptions{}, do)
				synctest.Wait()
				if len(s.trips) != c.trips {
					t.Errorf("trips of %v, want %d", s.trips, c.trips)
				}
				given := 0
				for i, r := range results {
					rec := numberedRecord(t, s.mem, i)
					switch {
					case slices.Contains(c.given, i):
						given++
						if !errors.Is(r.Err, refusal.StoreUnavailable) || ran[i] || rec.State != driver.Free || rec.Attempt != 0 {
							t.Errorf("item %d: %v, %v, ran %v; want it not to be run, and released", i, r.Err, rec.State, ran[i])
						}
					case r.Err != nil || r.Value != 10*i || rec.State != driver.Done:
						t.Errorf("item %d: %d, %v, %v; want its result", i, r.Value, r.Err, rec.State)
					}
				}
				if n := seen.count(event.GaveUp); n != given {
					t.Errorf("%d claims were given up, want %d", n, given)
				}
				s.all = nil
				drained(t, g)
				checkValues(t, semel.DoBatch(t.Context(), g, items(4), semel.BatchOptions{}, do))
			})
		})
	}
}

func TestR64_ABatchAsksTheBreakerOncePerTrip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s := &switchBreaker{}, newBatching()
		g, seen := newGuardWith(t, s, semel.Options{Breaker: b})
		checkValues(t, semel.DoBatch(t.Context(), g, items(10), semel.BatchOptions{}, tenfold))
		if b.asked != 1 || !slices.Equal(b.heard, []error{nil}) {
			t.Errorf("the breaker was asked %d times and heard %v, want one success", b.asked, b.heard)
		}
		some := func(failing int) func(context.Context, []driver.ClaimOf) []driver.Claimed {
			return func(ctx context.Context, claims []driver.ClaimOf) []driver.Claimed {
				all := s.each(ctx, claims)
				for i := range min(failing, len(all)) {
					all[len(all)-1-i] = driver.Claimed{Err: errDown}
				}
				return all
			}
		}
		s.all = some(10)
		semel.DoBatch(t.Context(), g, items(10), semel.BatchOptions{}, tenfold)
		if !slices.Equal(b.heard[1:], []error{errDown, errDown, errDown}) {
			t.Errorf("of three trips without a reply the breaker heard %v", b.heard[1:])
		}
		s.all = some(9)
		semel.DoBatch(t.Context(), g, items(10), semel.BatchOptions{}, tenfold)
		if b.heard[4] != nil {
			t.Errorf("of a trip with a reply the breaker heard %v", b.heard[4])
		}
		b.set(true)
		asked, trips := b.asked, len(s.trips)
		gaveUp := seen.count(event.GaveUp)
		for i, r := range semel.DoBatch(t.Context(), g, items(10), semel.BatchOptions{}, tenfold) {
			if !errors.Is(r.Err, refusal.StoreUnavailable) || !errors.Is(r.Err, errBreakerOpen) {
				t.Errorf("item %d: %v, want the breaker's refusal", i, r.Err)
			}
		}
		if b.asked != asked+1 || len(s.trips) != trips || seen.count(event.GaveUp) != gaveUp {
			t.Errorf("asked %d times, %d trips, %d given up; want one question and no trip", b.asked-asked, len(s.trips)-trips, seen.count(event.GaveUp)-gaveUp)
		}
		s.all = nil
		drained(t, g)
	})
}

func TestTheSameKeyTwiceInABatchRunsOnce(t *testing.T) {
	t.Parallel()
	for _, concurrency := range []int{1, 2, 100} {
		for name, together := range map[string]bool{"together": true, "one by one": false} {
			t.Run(fmt.Sprint(name, " ", concurrency), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newBatching()
					var store driver.Store = s
					if !together {
						store = s.mem
					}
					g, seen := newGuard(t, store, semel.Policy{})
					list := append(items(3), items(3)...)
					list = append(list, list[0], list[0], semel.Item{Key: list[0].Key, Request: semel.Bytes("another request")}, list[0])
					var mu sync.Mutex
					var ran []int
					results := semel.DoBatch(t.Context(), g, list, semel.BatchOptions{Concurrency: concurrency}, func(ctx context.Context, i int) (int, error) {
						mu.Lock()
						ran = append(ran, i)
						mu.Unlock()
						time.Sleep(time.Duration(3-i) * time.Second)
						return tenfold(ctx, i)
					})
					slices.Sort(ran)
					if !slices.Equal(ran, []int{0, 1, 2}) {
						t.Errorf("items %v have run, want the first of each key", ran)
					}
					for i, want := range []int{0, 10, 20, 0, 10, 20, 0, 0, -1, 0} {
						r := results[i]
						if want < 0 {
							if !errors.Is(r.Err, refusal.KeyReused) {
								t.Errorf("item %d: %d, %v; want key reused", i, r.Value, r.Err)
							}
							continue
						}
						if r.Value != want || r.Err != nil {
							t.Errorf("item %d: %d, %v; want %d", i, r.Value, r.Err, want)
						}
					}
					decided := seen.results()
					slices.Sort(decided)
					want := []event.Result{"executed", "executed", "executed", "mismatch", "replayed", "replayed", "replayed", "replayed", "replayed", "replayed"}
					if !slices.Equal(decided, want) {
						t.Errorf("decided %v, want %v", decided, want)
					}
				})
			})
		}
	}
}

// One after the other, as with Do: what the first has released the second may run.
func TestTheSameKeyInABatchRunsAgainAfterARelease(t *testing.T) {
	t.Parallel()
	s := newBatching()
	g, _ := newGuard(t, s, semel.Policy{})
	list := []semel.Item{items(1)[0], items(1)[0], items(1)[0]}
	var ran []int
	results := semel.DoBatch(t.Context(), g, list, semel.BatchOptions{}, func(ctx context.Context, i int) (int, error) {
		ran = append(ran, i)
		if i == 0 {
			semel.FromContext(ctx).Release()
			return 0, errors.New("busy")
		}
		return 10 * i, nil
	})
	if !slices.Equal(ran, []int{0, 1}) || results[0].Err == nil || results[1].Value != 10 || results[2].Value != 10 || results[2].Err != nil {
		t.Errorf("%v have run, results %v; want a release, then a run and its replay", ran, results)
	}
}

func TestR29_WhenItsContextEndsABatchBeginsNothingMore(t *testing.T) {
	t.Parallel()
	for name, together := range map[string]bool{"claimed together": true, "claimed one by one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newBatching()
				var store driver.Store = s
				if !together {
					store = s.mem
				}
				g, _ := newGuard(t, store, semel.Policy{FailOpen: true})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				list := items(10)
				list = slices.Insert(list, 3, list[2], list[2]) // those of the same key wait for their turn
				var l ledger
				start := time.Now()
				results := semel.DoBatch(ctx, g, list, semel.BatchOptions{Concurrency: 3}, func(ctx context.Context, i int) (int, error) {
					switch i {
					case 0:
						time.Sleep(time.Second)
					default:
						time.Sleep(time.Minute)
					}
					if ctx.Err() != nil {
						t.Errorf("item %d: its context has ended: %v", i, ctx.Err())
					}
					l.add()
					return tenfold(ctx, i)
				})
				if time.Since(start) != 5*time.Second {
					t.Errorf("DoBatch returned after %v, want when its context ended", time.Since(start))
				}
				for i, r := range results {
					var want error
					switch i {
					case 0:
					case 1, 2, 5: // 3 and 4 have 2's key
						want = refusal.OutcomePending
					default:
						want = refusal.StoreUnavailable
					}
					if !errors.Is(r.Err, want) || want != nil && !errors.Is(r.Err, context.DeadlineExceeded) {
						t.Errorf("item %d: %v, want %v", i, r.Err, want)
					}
				}
				if g.Stats().Running != 3 {
					t.Errorf("%d runs go on, want 3", g.Stats().Running)
				}
				drained(t, g)
				checkEffects(t, &l, 4)
				checkRecords(t, s.mem, 4)
				for i, r := range semel.DoBatch(t.Context(), g, list[:6], semel.BatchOptions{}, tenfold) {
					if want := 10 * []int{0, 1, 2, 2, 2, 5}[i]; r.Value != want || r.Err != nil {
						t.Errorf("then item %d: %d, %v; want %d", i, r.Value, r.Err, want)
					}
				}
			})
		})
	}
}

func TestABatchWhoseContextHasEndedAsksForNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := newBatching()
	g, _ := newGuard(t, s, semel.Policy{FailOpen: true})
	list := append(items(40), items(40)...)
	list[7].Key.Value = ""
	for i, r := range semel.DoBatch(ctx, g, list, semel.BatchOptions{Concurrency: 3}, func(context.Context, int) (int, error) {
		t.Error("an item is run")
		return 1, nil
	}) {
		want := refusal.StoreUnavailable
		if i == 7 {
			want = refusal.KeyInvalid
		}
		if !errors.Is(r.Err, want) {
			t.Errorf("item %d: %v, want %v", i, r.Err, want)
		}
	}
	if len(s.trips) != 0 || s.singles != 0 {
		t.Errorf("%d claims and trips of %v, want none", s.singles, s.trips)
	}
}

// A run for which Patience has passed still has its place, so that no more run at once than were asked for.
func TestPatienceFreesNoPlaceOfABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBatching()
		g, _ := newGuard(t, s, semel.Policy{Patience: time.Second})
		var running, most int
		var mu sync.Mutex
		start := time.Now()
		list := append(items(4), items(1)[0])
		results := semel.DoBatch(t.Context(), g, list, semel.BatchOptions{Concurrency: 2}, func(ctx context.Context, i int) (int, error) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(10 * time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return tenfold(ctx, i)
		})
		for i, r := range results[:4] {
			if !errors.Is(r.Err, refusal.OutcomePending) {
				t.Errorf("item %d: %v, want outcome pending", i, r.Err)
			}
		}
		if results[4].Value != 0 || results[4].Err != nil {
			t.Errorf("the same key again: %v, want the first one's result", results[4])
		}
		if most != 2 || time.Since(start) != 20*time.Second {
			t.Errorf("%d at once, returned after %v; want 2 at once, and the last item asked for when a place is free", most, time.Since(start))
		}
		drained(t, g)
	})
}

// An item whose operation runs elsewhere is waited for when the others have begun.
func TestR28_ABatchPutsOffWhatRunsElsewhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		runs time.Duration // elsewhere
		want error
		took time.Duration
	}{
		{2 * time.Second, nil, 5 * time.Second}, // it has ended when it is asked for again
		{6 * time.Second, nil, 6 * time.Second}, // it is waited for
		{time.Hour, refusal.InProgress, 8 * time.Second},
	} {
		t.Run(c.runs.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newBatching()
				other, _ := newGuard(t, s, semel.Policy{})
				for i := range 2 {
					go semel.Do(t.Context(), other, numbered(i), items(2)[i].Request, func(context.Context) (int, error) { //nolint:errcheck // seen by the batch
						time.Sleep(c.runs)
						return 10 * i, nil
					})
				}
				synctest.Wait()
				g, _ := newGuard(t, s, semel.Policy{Wait: 8 * time.Second})
				start := time.Now()
				results := semel.DoBatch(t.Context(), g, items(12), semel.BatchOptions{Concurrency: 2}, func(ctx context.Context, i int) (int, error) {
					time.Sleep(time.Second)
					return tenfold(ctx, i)
				})
				// Of the owner elsewhere only looks into the store tell.
				if took := time.Since(start); took < c.took || took > c.took+time.Second {
					t.Errorf("DoBatch took %v, want about %v", took, c.took)
				}
				for i, r := range results {
					want := c.want
					if i >= 2 {
						want = nil
					}
					if !errors.Is(r.Err, want) || want == nil && r.Value != 10*i {
						t.Errorf("item %d: %d, %v; want %v", i, r.Value, r.Err, want)
					}
				}
				drained(t, g, other)
			})
		})
	}
}

func TestR32_WhatAnItemThrowsIsItsOwnError(t *testing.T) {
	t.Parallel()
	for name, together := range map[string]bool{"claimed together": true, "claimed one by one": false} {
		for onLost, state := range map[semel.LostPolicy]driver.State{semel.Hold: driver.Unknown, semel.Rerun: driver.Free} {
			s := newBatching()
			var store driver.Store = s
			if !together {
				store = s.mem
			}
			g, seen := newGuard(t, store, semel.Policy{OnLost: onLost})
			boom := errors.New("boom")
			results := semel.DoBatch(t.Context(), g, items(5), semel.BatchOptions{}, func(ctx context.Context, i int) (int, error) {
				switch i {
				case 1:
					panicsHere(boom)
				case 2:
					runtime.Goexit()
				case 3:
					panicsHere(http.ErrAbortHandler)
				}
				return tenfold(ctx, i)
			})
			for i, want := range []any{nil, boom, nil, http.ErrAbortHandler, nil} {
				r := results[i]
				if i == 0 || i == 4 {
					if r.Value != 10*i || r.Err != nil {
						t.Errorf("%s: item %d: %d, %v; want its result", name, i, r.Value, r.Err)
					}
					continue
				}
				var broken *semel.PanicError
				if !errors.As(r.Err, &broken) || broken.Value != want || r.Value != 0 {
					t.Errorf("%s: item %d: %d, %v; want %v", name, i, r.Value, r.Err, want)
					continue
				}
				if want != nil && !bytes.Contains(broken.Stack, []byte("panicsHere")) {
					t.Errorf("%s: item %d: the stack does not say where:\n%s", name, i, broken.Stack)
				}
				if rec := numberedRecord(t, s.mem, i); rec.State != state {
					t.Errorf("%s: item %d: %v, want %v", name, i, rec.State, state)
				}
			}
			if !errors.Is(results[1].Err, boom) || results[1].Err.Error() != "panic: boom" || results[2].Err.Error() != "the function ended by runtime.Goexit" {
				t.Errorf("%s: %v and %v, want what was thrown", name, results[1].Err, results[2].Err)
			}
			if n := seen.count(event.Panic); n != 3 {
				t.Errorf("%s: %d panics are reported, want 3", name, n)
			}
			drained(t, g)
		}
	}
}

func panicsHere(v any) { panic(v) }

// A store that panics has given no reply to any of the claims: they are sent again, or given up.
func TestR32_AStoreThatPanicsDoesNotHangABatch(t *testing.T) {
	t.Parallel()
	for fails := range 4 {
		t.Run(fmt.Sprint(fails, " trips"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newBatching()
				trip := 0
				s.all = func(ctx context.Context, claims []driver.ClaimOf) []driver.Claimed {
					all := s.each(ctx, claims)
					if trip++; trip <= fails {
						panic("broken store")
					}
					return all
				}
				b := &switchBreaker{}
				g, _ := newGuardWith(t, s, semel.Options{Breaker: b})
				results := semel.DoBatch(t.Context(), g, items(4), semel.BatchOptions{}, tenfold)
				if fails < 3 {
					checkValues(t, results)
				} else {
					for i, r := range results {
						if !errors.Is(r.Err, refusal.StoreUnavailable) {
							t.Errorf("item %d: %v, want ErrStoreUnavailable", i, r.Err)
						}
					}
				}
				for i, err := range b.heard {
					if (err != nil) != (i < fails) {
						t.Errorf("the breaker heard %v", b.heard)
					}
				}
				s.all = nil
				drained(t, g)
				checkValues(t, semel.DoBatch(t.Context(), g, items(4), semel.BatchOptions{}, tenfold))
			})
		})
	}
}

func TestDrainWaitsForTheRunsOfABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, newBatching(), semel.Policy{})
		done := make(chan []semel.ItemResult[int], 1)
		go func() {
			done <- semel.DoBatch(t.Context(), g, items(4), semel.BatchOptions{}, func(ctx context.Context, i int) (int, error) {
				time.Sleep(time.Duration(i) * time.Second)
				return tenfold(ctx, i)
			})
		}()
		synctest.Wait()
		start := time.Now()
		drained(t, g)
		if time.Since(start) != 3*time.Second {
			t.Errorf("drained after %v, want when the last run ended", time.Since(start))
		}
		checkValues(t, <-done)
	})
}

// In one-commit mode each item has a transaction of its own.
func TestR31_InOneCommitModeEachItemClaimsItself(t *testing.T) {
	t.Parallel()
	s := newTransactor(t)
	g, _ := newGuard(t, batchingTransactor{s}, semel.Policy{OneCommit: true})
	list := append(items(5), items(5)...)
	results := semel.DoBatch(t.Context(), g, list, semel.BatchOptions{}, tenfold)
	checkValues(t, results[:5])
	checkValues(t, results[5:])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.committed != 5 || s.begun != s.ended {
		t.Errorf("%d transactions committed, %d begun, %d ended; want 5, and none left open", s.committed, s.begun, s.ended)
	}
}

// batchingTransactor must not be asked to claim many at once.
type batchingTransactor struct{ *transactor }

func (s batchingTransactor) ClaimAll(context.Context, []driver.ClaimOf) []driver.Claimed {
	s.t.Error("claims outside of a transaction")
	return nil
}

// Memory and goroutines are those of the items under way. Not parallel: it counts goroutines.
func TestALargeBatchHasFewGoroutines(t *testing.T) { //nolint:paralleltest // see above
	const n, concurrency = 10_000, 16
	s := newBatching()
	g, _ := newGuardWith(t, s, semel.Options{MaxKeys: -1})
	before := runtime.NumGoroutine()
	var most atomic.Int64
	var l ledger
	list := items(n)
	for i := n / 2; i < n; i += 2 {
		list[i].Key, list[i].Request = list[i-1].Key, list[i-1].Request
	}
	results := semel.DoBatch(t.Context(), g, list, semel.BatchOptions{Concurrency: concurrency}, func(ctx context.Context, i int) (int, error) {
		for now := int64(runtime.NumGoroutine()); ; {
			seen := most.Load()
			if seen >= now || most.CompareAndSwap(seen, now) {
				break
			}
		}
		l.add()
		return tenfold(ctx, i)
	})
	for i := n / 2; i < n; i += 2 {
		results[i].Value += 10 // the one before
	}
	checkValues(t, results)
	checkEffects(t, &l, n-n/4)
	// Two for each place; those that have given theirs back may not have ended yet.
	if got := most.Load() - int64(before); got > 10*concurrency {
		t.Errorf("%d goroutines for %d items at once", got, concurrency)
	}
	drained(t, g)
}

// An item that waits for a run elsewhere is put off once, and not again and again in turn with another one.
func TestField18_ItemsThatWaitArePutOffOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBatching()
		other, _ := newGuard(t, s.mem, semel.Policy{})
		var elsewhere sync.WaitGroup
		for i := range 2 {
			elsewhere.Go(func() {
				semel.Do(t.Context(), other, numbered(i), semel.Bytes(fmt.Sprint("request ", i)), func(context.Context) (int, error) { //nolint:errcheck // the batch sees it
					time.Sleep(5 * time.Second)
					return 10 * i, nil
				})
			})
		}
		synctest.Wait()
		g, _ := newGuard(t, s, semel.Policy{Wait: time.Minute})
		checkValues(t, semel.DoBatch(t.Context(), g, items(3), semel.BatchOptions{Concurrency: 1}, func(_ context.Context, i int) (int, error) { return 10 * i, nil }))
		elsewhere.Wait()
		if n := s.singles; n > 20 {
			t.Errorf("%d claims were sent for 3 items", n)
		}
		drained(t, g, other)
	})
}
