package batch_test

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
	"github.com/semelhq/semel/batch"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/refusal"
)

func TestAnItemIsACallOfDo(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	type fn = func(context.Context) (int, error)
	seven := fn(func(context.Context) (int, error) { return 7, nil })
	before := func(do fn) func(*testing.T, *semel.Guard, *store) { // what happened to the key
		return func(t *testing.T, g *semel.Guard, _ *store) {
			semel.Do(t.Context(), g, key(0), semel.Bytes("r"), do) //nolint:errcheck // seen in what comes after
		}
	}
	down := func(_ *testing.T, _ *semel.Guard, s *store) { s.claim = func() error { return errDown } }
	for name, c := range map[string]struct {
		o       semel.Options
		key     semel.Key           // key(0) if empty
		request semel.Fingerprinter // "r" if nil
		before  func(*testing.T, *semel.Guard, *store)
		do      fn // seven if nil
	}{
		"a value":              {},
		"a final error":        {do: func(context.Context) (int, error) { return 3, semel.Final(boom) }},
		"an error under Hold":  {do: func(context.Context) (int, error) { return 3, boom }},
		"an error under Rerun": {o: semel.Options{Policy: semel.Policy{OnLost: semel.Rerun}}, do: func(context.Context) (int, error) { return 3, boom }},
		"released":             {do: func(ctx context.Context) (int, error) { semel.FromContext(ctx).Release(); return 7, nil }},
		"lost":                 {do: func(ctx context.Context) (int, error) { semel.FromContext(ctx).Lost(boom); return 7, nil }},
		"lost under Rerun": {
			o:  semel.Options{Policy: semel.Policy{OnLost: semel.Rerun}},
			do: func(ctx context.Context) (int, error) { semel.FromContext(ctx).Lost(boom); return 7, nil },
		},
		"kept for a while":     {o: semel.Options{Policy: semel.Policy{Retention: time.Hour}}},
		"a repeat":             {before: before(seven)},
		"a repeat of an error": {before: before(func(context.Context) (int, error) { return 0, semel.Final(boom) })},
		"another request":      {before: before(seven), request: semel.Bytes("other")},
		"another operation":    {before: before(seven), key: semel.Key{Scope: "alice", Operation: "refund", Value: "k0"}},
		"no scope":             {key: semel.Key{Operation: "pay", Value: "k0"}},
		"no operation":         {key: semel.Key{Scope: "alice", Value: "k0"}},
		"no key":               {key: semel.Key{Scope: "alice", Operation: "pay"}},
		"no fingerprint":       {request: semel.JSON(make(chan int))},
		"too many attempts":    {o: semel.Options{MaxAttempts: 1}, before: before(seven)},
		"the store down":       {before: down},
		"the store down, open": {o: semel.Options{Policy: semel.Policy{FailOpen: true}}, before: down},
		"the settle gets no reply": {before: func(_ *testing.T, _ *semel.Guard, s *store) {
			until := time.Now().Add(30 * time.Second)
			s.settle = func() error {
				if time.Now().Before(until) {
					return errDown
				}
				return nil
			}
		}},
		"longer than Patience": {
			o:  semel.Options{Policy: semel.Policy{Patience: time.Second}},
			do: func(context.Context) (int, error) { time.Sleep(time.Minute); return 7, nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.key == (semel.Key{}) {
				c.key = key(0)
			}
			if c.request == nil {
				c.request = semel.Bytes("r")
			}
			if c.do == nil {
				c.do = seven
			}
			type outcome struct {
				value   int
				err     string
				report  semel.Report
				state   driver.State
				why     string // in the record
				decided string
			}
			try := func(do func(context.Context, *semel.Guard, *semel.Report) (int, error)) (o outcome) {
				synctest.Test(t, func(t *testing.T) {
					s := newStore()
					g, seen := newGuard(t, s, c.o)
					if c.before != nil {
						c.before(t, g, s)
					}
					var err error
					o.value, err = do(t.Context(), g, &o.report)
					o.err = fmt.Sprintf("%T %[1]v", err)
					drain(t, g)
					rec := s.record(t, 0)
					o.state, o.why, o.decided = rec.State, rec.Error, fmt.Sprint(seen.decided())
				})
				return o
			}
			want := try(func(ctx context.Context, g *semel.Guard, report *semel.Report) (int, error) {
				return semel.Do(semel.WithReport(ctx, report), g, c.key, c.request, c.do)
			})
			got := try(func(ctx context.Context, g *semel.Guard, report *semel.Report) (int, error) {
				results := batch.Do(ctx, g, []batch.Item{{Key: c.key, Request: c.request}}, batch.Options{}, func(ctx context.Context, _ int) (int, error) {
					return c.do(ctx)
				})
				*report = results[0].Report
				return results[0].Value, results[0].Err
			})
			if got != want {
				t.Errorf("the item has\n%+v, Do\n%+v", got, want)
			}
		})
	}
}

func TestNoMoreItemsRunAtOnceThanAreAskedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ asked, want int }{{1, 1}, {7, 7}, {0, 16}, {-1, 16}, {1000, 40}} {
		t.Run(fmt.Sprint(c.asked), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				g, _ := newGuard(t, s, semel.Options{})
				var running, most atomic.Int64
				list := append(items(40), items(40)...)
				results := batch.Do(t.Context(), g, list, batch.Options{Concurrency: c.asked}, func(ctx context.Context, i int) (int, error) {
					now := running.Add(1)
					defer running.Add(-1)
					time.Sleep(time.Second)
					for seen := most.Load(); seen < now && !most.CompareAndSwap(seen, now); seen = most.Load() {
					}
					return tenfold(ctx, i)
				})
				for i, r := range results {
					if r.Err != nil || r.Value != 10*(i%40) || r.Replayed != (i >= 40) {
						t.Errorf("item %d: %+v", i, r)
					}
				}
				if most.Load() != int64(c.want) || s.claims != len(list) {
					t.Errorf("%d at once and %d claims, want %d and %d", most.Load(), s.claims, c.want, len(list))
				}
			})
		})
	}
}

func TestItemsOfOneKeyHaveTheirTurnsInOrder(t *testing.T) {
	t.Parallel()
	for _, concurrency := range []int{1, 100} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, seen := newGuard(t, newStore(), semel.Options{})
				list := append(items(3), items(3)...)
				other := batch.Item{Key: key(0), Request: semel.Bytes("another request")}
				bobs := batch.Item{Key: semel.Key{Scope: "bob", Operation: "pay", Value: "k0"}, Request: semel.Bytes("request 0")}
				list = append(list, list[0], other, list[0], bobs)
				var mu sync.Mutex
				var ran []int
				start := time.Now()
				results := batch.Do(t.Context(), g, list, batch.Options{Concurrency: concurrency}, func(ctx context.Context, i int) (int, error) {
					mu.Lock()
					ran = append(ran, i)
					mu.Unlock()
					time.Sleep(time.Duration(20-i) * time.Second)
					return tenfold(ctx, i)
				})
				slices.Sort(ran)
				if !slices.Equal(ran, []int{0, 1, 2, 9}) {
					t.Errorf("items %v have run, want the first of each key", ran)
				}
				check(t, results, 0, 10, 20, 0, 10, 20, 0, refusal.KeyReused, 0, 90)
				if took := time.Since(start); concurrency > 1 && took != 20*time.Second {
					t.Errorf("it took %v, want as long as the longest run", took)
				}
				want := []string{"executed", "executed", "executed", "executed", "mismatch", "replayed", "replayed", "replayed", "replayed", "replayed"}
				if got := seen.decided(); !slices.Equal(got, want) {
					t.Errorf("decided %v, want %v", got, want)
				}
			})
		})
	}
}

func TestTheNextItemOfAKeyRunsAfterARelease(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, newStore(), semel.Options{})
	one, busy := items(1)[0], errors.New("busy")
	corrected := batch.Item{Key: one.Key, Request: semel.Bytes("corrected")}
	var ran []int
	results := batch.Do(t.Context(), g, []batch.Item{one, one, corrected, corrected}, batch.Options{}, func(ctx context.Context, i int) (int, error) {
		ran = append(ran, i)
		if i < 2 {
			semel.FromContext(ctx).Release()
			return 0, busy
		}
		return tenfold(ctx, i)
	})
	check(t, results, busy, busy, 20, 20)
	if !slices.Equal(ran, []int{0, 1, 2}) {
		t.Errorf("items %v have run, want all but the repeat", ran)
	}
}

func TestR60_ItemsBeyondACapAreRefused(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, newStore(), semel.Options{MaxAttempts: 2})
	one := items(1)[0]
	results := batch.Do(t.Context(), g, []batch.Item{one, one, one, one}, batch.Options{}, func(context.Context, int) (int, error) { return 7, nil })
	check(t, results, 7, 7, refusal.TooManyAttempts, refusal.TooManyAttempts)
}

func TestR29_WhenItsContextEndsABatchBeginsNothingMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		g, _ := newGuard(t, s, semel.Options{Policy: semel.Policy{FailOpen: true}})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		list := items(10)
		list = slices.Insert(list, 3, list[2], list[2]) // they wait for their turn
		list[11].Key.Value = ""
		var effects atomic.Int64
		start := time.Now()
		results := batch.Do(ctx, g, list, batch.Options{Concurrency: 3}, func(ctx context.Context, i int) (int, error) {
			if time.Sleep(time.Second); i != 0 {
				time.Sleep(time.Minute)
			}
			if ctx.Err() != nil {
				t.Errorf("item %d: its context has ended: %v", i, ctx.Err())
			}
			effects.Add(1)
			return tenfold(ctx, i)
		})
		if time.Since(start) != 5*time.Second {
			t.Errorf("Do returned after %v, want when its context ended", time.Since(start))
		}
		pending, not := refusal.OutcomePending, refusal.StoreUnavailable
		check(t, results, 0, pending, pending, not, not, pending, not, not, not, not, not, refusal.KeyInvalid)
		for i, r := range results[1:11] {
			if !errors.Is(r.Err, context.DeadlineExceeded) {
				t.Errorf("item %d: %v, want why", i+1, r.Err)
			}
		}
		if g.Stats().Running != 3 || s.claims != 4 {
			t.Errorf("%d runs go on, and %d claims were sent; want 3 and 4", g.Stats().Running, s.claims)
		}
		drain(t, g)
		if effects.Load() != 4 {
			t.Errorf("%d effects, want 4", effects.Load())
		}
		check(t, batch.Do(t.Context(), g, list[:6], batch.Options{}, tenfold), 0, 10, 20, 20, 20, 50)
	})
}

func TestPatienceFreesNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, newStore(), semel.Options{Policy: semel.Policy{Patience: time.Second, Wait: time.Second}})
		var running, most atomic.Int64
		start := time.Now()
		results := batch.Do(t.Context(), g, append(items(4), items(1)...), batch.Options{Concurrency: 2}, func(ctx context.Context, i int) (int, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(10 * time.Second)
			return tenfold(ctx, i)
		})
		pending := refusal.OutcomePending
		check(t, results, pending, pending, pending, pending, 0)
		// The last two begin after 10 s, and need a second more to be pending.
		if most.Load() != 2 || time.Since(start) != 11*time.Second {
			t.Errorf("%d at once, returned after %v; want 2, and without a wait for the last runs", most.Load(), time.Since(start))
		}
		drain(t, g)
	})
}

func TestR32_WhatAnItemThrowsIsItsOwnError(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for onLost, state := range map[semel.LostPolicy]driver.State{semel.Hold: driver.Unknown, semel.Rerun: driver.Free} {
		s := newStore()
		g, seen := newGuard(t, s, semel.Options{Policy: semel.Policy{OnLost: onLost}})
		list := items(6)
		list[5].Request = throwing{}
		results := batch.Do(t.Context(), g, list, batch.Options{Concurrency: 2}, func(ctx context.Context, i int) (int, error) {
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
		check(t, []batch.Result[int]{results[0], results[4]}, 0, 40)
		for i, c := range map[int]struct {
			value any
			where string
			text  string
		}{
			1: {boom, "panicsHere", "panic: boom"},
			2: {nil, "runtime.Goexit", "the function ended by runtime.Goexit"},
			3: {http.ErrAbortHandler, "panicsHere", "panic: net/http: abort Handler"},
			5: {"no fingerprint", "FingerprintBytes", "panic: no fingerprint"},
		} {
			r := results[i]
			var broken *batch.PanicError
			if !errors.As(r.Err, &broken) || broken.Value != c.value || broken.Error() != c.text || r.Value != 0 || r.Report != (semel.Report{}) {
				t.Errorf("item %d: %+v; want %q", i, r, c.text)
				continue
			}
			if err, _ := c.value.(error); err != nil && !errors.Is(r.Err, err) {
				t.Errorf("item %d: %v does not wrap what was thrown", i, r.Err)
			}
			if !bytes.Contains(broken.Stack, []byte(c.where)) {
				t.Errorf("item %d: the stack does not say where:\n%s", i, broken.Stack)
			}
			if rec := s.record(t, i); rec.State != state && i != 5 {
				t.Errorf("item %d: %v, want %v", i, rec.State, state)
			}
		}
		want := []string{"executed", "executed", "failed", "failed", "failed", "panic", "panic", "panic"}
		if got := seen.decided(); !slices.Equal(got, want) {
			t.Errorf("told of %v, want %v", got, want)
		}
	}
}

func panicsHere(v any) { panic(v) }

// throwing is a request that panics when it is read.
type throwing struct{}

func (throwing) FingerprintBytes() ([]byte, error) { panic("no fingerprint") }

// A store that ends the goroutines of verbs ends neither the batch nor other items.
func TestR32_AStoreThatEndsGoroutinesDoesNotHangABatch(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"claim", "settle"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				g, _ := newGuard(t, s, semel.Options{Policy: semel.Policy{MaxRun: time.Minute}})
				check(t, batch.Do(t.Context(), g, items(3)[2:], batch.Options{}, tenfold), 0)
				ends := func() error { runtime.Goexit(); return nil }
				if verb == "claim" {
					s.claim = ends
				} else {
					s.settle = ends
				}
				for i, r := range batch.Do(t.Context(), g, append(items(2), items(2)...), batch.Options{Concurrency: 1}, tenfold) {
					var broken *batch.PanicError
					// Where the settle is not acknowledged the operation runs on.
					inProgress := verb == "settle" && i >= 2 && errors.Is(r.Err, refusal.InProgress)
					if (!errors.As(r.Err, &broken) || broken.Value != nil) && !inProgress {
						t.Errorf("item %d: %v; want that its goroutine was ended", i, r.Err)
					}
				}
				time.Sleep(2 * time.Minute)
			})
		})
	}
}

func TestAnEmptyBatchIsNothing(t *testing.T) {
	t.Parallel()
	s := newStore()
	g, _ := newGuard(t, s, semel.Options{})
	check(t, batch.Do(t.Context(), g, nil, batch.Options{}, tenfold))
	if s.claims != 0 {
		t.Errorf("%d claims, want none", s.claims)
	}
}

func TestDrainWaitsForTheRunsOfABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, newStore(), semel.Options{})
		done := make(chan []batch.Result[int], 1)
		go func() {
			done <- batch.Do(t.Context(), g, items(4), batch.Options{}, func(ctx context.Context, i int) (int, error) {
				time.Sleep(time.Duration(i) * time.Second)
				return tenfold(ctx, i)
			})
		}()
		synctest.Wait()
		start := time.Now()
		drain(t, g)
		if time.Since(start) != 3*time.Second {
			t.Errorf("drained after %v, want when the last run ended", time.Since(start))
		}
		check(t, <-done, 0, 10, 20, 30)
	})
}
