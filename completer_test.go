package semel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
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

// finishing is a policy whose operations are finished without a client.
func finishing() semel.Policy {
	p := shortLease(semel.Rerun)
	p.Complete = true
	return p
}

// newFinishing returns a guard that stores requests, under the key "a".
func newFinishing(t testing.TB, store driver.Store, p semel.Policy) (*semel.Guard, *events) {
	t.Helper()
	return newGuardWith(t, store, semel.Options{Policy: p, Encryption: keyringOf(t, encryptionKey("a", 1))})
}

// searchable is a store whose verbs are those of another, and whose records are looked through and seized in a memory
// store.
type searchable struct {
	driver.Store
	driver.Lister
	driver.Seizer
}

func searchableAs(verbs driver.Store, mem *memstore.Store) driver.Store {
	return searchable{verbs, mem, mem}
}

// nobodyElse is a Principal that adds nothing.
func nobodyElse(_ context.Context, r *http.Request, _ string) (*http.Request, error) { return r, nil }

// finish runs a completer until the returned function is called, which also waits for its end.
func finish(t testing.TB, g *semel.Guard, h http.Handler, o semel.CompleterOptions) (stop func()) {
	t.Helper()
	if o.Principal == nil {
		o.Principal = nobodyElse
	}
	c, err := g.Completer(h, o)
	if err != nil {
		t.Fatalf("new completer: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returns %v, want the context's error", err)
		}
	}
}

// abandon has a process die in the handler of each request, and returns what lets its handlers end. No lease is
// renewed.
func abandon(t testing.TB, mem *memstore.Store, p semel.Policy, requests ...*http.Request) (late *mortal, end func() []*served) {
	t.Helper()
	late = &mortal{Store: mem}
	g, _ := newFinishing(t, searchableAs(late, mem), p)
	over := make(chan struct{})
	begun := make(chan struct{}, len(requests))
	h := http.NewServeMux()
	h.Handle("POST /payments", g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-over
		w.WriteHeader(http.StatusServiceUnavailable)
	})))
	list := make([]*served, len(requests))
	for i, r := range requests {
		list[i] = serve(h, r)
	}
	for range requests {
		<-begun
	}
	late.dead.Store(true)
	return late, func() []*served {
		close(over)
		for _, s := range list {
			s.answer()
		}
		drained(t, g)
		return list
	}
}

// failures returns the errors with which an operation could not be finished.
func (e *events) failures() (list []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.list {
		if ev.Kind == event.CompletionFailed {
			list = append(list, ev.Err.Error())
		}
	}
	return list
}

func TestR52_AnAbandonedOperationIsFinishedOnceWithoutItsClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type who struct{}
		mem := memstore.New()
		p := finishing()
		p.SealHeaders = []string{"X-Channel"}
		_, end := abandon(t, mem, p, post("k", `{"amount":5}`, "X-Principal", "alice", "X-Channel", "shop", "X-Other", "x",
			"Authorization", "Bearer of-the-client", "Cookie", "session=of-the-client"))

		g, seen := newFinishing(t, mem, p)
		var paid ledger
		var header http.Header
		var body, principal string
		var attempt, broken int
		mux := http.NewServeMux()
		mux.Handle("POST /payments", g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			header, body, attempt = r.Header, string(text), semel.FromContext(r.Context()).Attempt()
			principal, _ = r.Context().Value(who{}).(string)
			if r.ContentLength != int64(len(text)) || r.Host != "example.com" || r.RequestURI != "/payments" {
				broken++
			}
			paid.pay(w, r)
		})))
		stop := finish(t, g, mux, semel.CompleterOptions{Principal: func(_ context.Context, r *http.Request, scope string) (*http.Request, error) {
			return r.WithContext(context.WithValue(r.Context(), who{}, "service for "+scope)), nil
		}})
		time.Sleep(time.Hour - time.Minute)
		stop()
		checkEffects(t, &paid, 1)
		if body != `{"amount":5}` || principal != "service for alice" || attempt != 2 || broken != 0 {
			t.Errorf("run with body %q as %q, attempt %d, broken %d", body, principal, attempt, broken)
		}
		want := []string{"Content-Type", "Idempotency-Key", "X-Channel", "X-Correlation-Id"}
		if got := slices.Sorted(maps.Keys(header)); !slices.Equal(got, want) {
			t.Errorf("run with the headers %q, want %q", got, want)
		}
		if got := seen.results(); !slices.Equal(got, []event.Result{event.Executed}) {
			t.Errorf("decisions %v, want one run", got)
		}
		wantAnswer(t, answer(mux, post("k", `{"amount":5}`)), http.StatusCreated, "payment 1", true)
		wantProblem(t, answer(mux, post("k", `{"amount":6}`)), http.StatusUnprocessableEntity, refusal.KeyReused)
		end()
		wantAnswer(t, answer(mux, post("k", `{"amount":5}`)), http.StatusCreated, "payment 1", true)
		drained(t, g)
	})
}

func TestR52_SeveralCompletersShareTheWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const operations, completers, atOnce = 30, 3, 2
		mem := memstore.New()
		requests := make([]*http.Request, operations)
		for i := range requests {
			requests[i] = post(fmt.Sprintf("k%d", i), `{}`)
		}
		_, end := abandon(t, mem, finishing(), requests...)
		var runs sync.Map
		var ran, tooMany atomic.Int64
		for range completers {
			g, _ := newFinishing(t, mem, finishing())
			var running atomic.Int64
			defer finish(t, g, g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, again := runs.LoadOrStore(r.Header.Get("Idempotency-Key"), true); again {
					t.Errorf("%s runs again", r.Header.Get("Idempotency-Key"))
				}
				if running.Add(1) > atOnce {
					tooMany.Add(1)
				}
				time.Sleep(700 * time.Millisecond)
				running.Add(-1)
				ran.Add(1)
				say("done").ServeHTTP(w, r)
			})), semel.CompleterOptions{Concurrency: atOnce})()
		}
		time.Sleep(time.Minute)
		if ran.Load() != operations || tooMany.Load() != 0 {
			t.Errorf("%d runs, %d times more than %d at once; want %d", ran.Load(), tooMany.Load(), atOnce, operations)
		}
		for i := range operations {
			if rec := loaded(t, mem, fmt.Sprintf("k%d", i)); rec.State != driver.Done || rec.Attempt != 2 {
				t.Errorf("k%d: %v after %d attempts, want done after 2", i, rec.State, rec.Attempt)
			}
		}
		end()
	})
}

func TestR52_AClientThatAsksAgainMeetsTheCompletersRun(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"completer", "client"} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New()
				_, end := abandon(t, mem, finishing(), post("k", `{}`))
				var paid ledger
				var running, overlaps atomic.Int64
				work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if running.Add(1) > 1 {
						overlaps.Add(1)
					}
					time.Sleep(10 * time.Second)
					running.Add(-1)
					paid.pay(w, r)
				})
				p := finishing()
				p.Wait = time.Minute
				g, _ := newFinishing(t, mem, p)
				other, _ := newFinishing(t, mem, p)
				clients := other.Wrap(work)
				delay := 3 * time.Second // the lease is over
				if first == "completer" {
					delay = 10 * time.Second
				}
				var asked []*served
				time.Sleep(delay - time.Millisecond)
				if first == "client" {
					asked = append(asked, serve(clients, post("k", `{}`)))
					time.Sleep(time.Millisecond)
				}
				stop := finish(t, g, g.Wrap(work), semel.CompleterOptions{})
				for range 20 {
					time.Sleep(100 * time.Millisecond)
					asked = append(asked, serve(clients, post("k", `{}`)))
				}
				for _, s := range asked {
					if w := s.answer(); w.Code != http.StatusCreated || w.Body.String() != "payment 1" {
						t.Errorf("a client is answered %d %q", w.Code, w.Body)
					}
				}
				time.Sleep(time.Minute)
				stop()
				if paid.count() != 1 || overlaps.Load() != 0 || loaded(t, mem, "k").Attempt != 2 {
					t.Errorf("%d effects, %d overlaps, attempt %d", paid.count(), overlaps.Load(), loaded(t, mem, "k").Attempt)
				}
				end()
			})
		})
	}
}

func TestR33_R52_AnOwedOperationIsRunAgainEverMoreRarely(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} {
		t.Run(fmt.Sprintf("its client was told 202: %v", told), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New()
				p := finishing()
				p.RespondAsync, p.Complete = told, !told
				g, _ := newGuardWith(t, mem, semel.Options{
					Policy: p, Encryption: keyringOf(t, encryptionKey("a", 1)), Operations: "/operations",
				})
				var paid ledger
				var ends []time.Time
				var rests []time.Duration
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(time.Second)
					if len(ends) > 0 {
						rests = append(rests, time.Since(ends[len(ends)-1])-time.Second)
					}
					ends = append(ends, time.Now())
					switch {
					case len(ends) == 1 && !told:
						panic(http.ErrAbortHandler) // its client has lost its answer
					case len(ends) < 6:
						w.WriteHeader(http.StatusServiceUnavailable)
					default:
						paid.pay(w, r)
					}
				}))
				func() {
					defer func() { recover() }() //nolint:errcheck // the handler's own
					if w := answer(h, post("k", `{}`, "Prefer", "respond-async")); w.Code != http.StatusAccepted {
						t.Errorf("answered %d, want 202", w.Code)
					}
				}()
				time.Sleep(2 * time.Second)
				const interval = time.Second
				stop := finish(t, g, h, semel.CompleterOptions{Interval: interval, Backoff: 10 * time.Second, MaxBackoff: 40 * time.Second})
				time.Sleep(5 * time.Minute)
				stop()
				checkEffects(t, &paid, 1)
				for i, seconds := range []int{10, 20, 40, 40, 40} {
					least := time.Duration(seconds) * time.Second
					if len(rests) != 5 || rests[i] < least || rests[i] > least+interval {
						t.Fatalf("it rested %v between its runs, want 10, 20, 40, 40, 40 s and the time to the next look", rests)
					}
				}
			})
		})
	}
}

// Nobody but the completer hears that its run was released; so that is not the end of it.
func TestR52_WhatWasReleasedWithoutAClientIsRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		_, end := abandon(t, mem, finishing(), post("k", `{}`))
		g, _ := newFinishing(t, mem, finishing())
		runs := 0
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if runs++; runs < 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			say("done").ServeHTTP(w, r)
		}))
		stop := finish(t, g, h, semel.CompleterOptions{})
		time.Sleep(5 * time.Minute)
		stop()
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "done", true)
		if runs != 3 {
			t.Errorf("%d runs, want 3", runs)
		}
		end()
	})
}

// A released answer says that nothing happened; its client may have chosen another key since.
func TestR52_AnOperationThatWasReleasedToItsClientIsNotRunWithoutOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		g, _ := newFinishing(t, mem, finishing())
		runs := 0
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs++
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		answer(h, post("k", `{}`))
		before := loaded(t, mem, "k")
		defer finish(t, g, h, semel.CompleterOptions{})()
		time.Sleep(50 * time.Minute)
		if runs != 1 {
			t.Errorf("%d runs, want that of the client", runs)
		}
		sameRecord(t, before, loaded(t, mem, "k"))
	})
}

// Once an answer was lost only the end of the operation is sure: a repeat that is told to come again may be the
// client's last.
func TestR52_AnOperationWithALostRunIsFinishedThoughARepeatWasReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		_, end := abandon(t, mem, finishing(), post("k", `{}`))
		time.Sleep(10 * time.Second)
		g, _ := newFinishing(t, mem, finishing())
		w := answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		})), post("k", `{}`))
		if rec := loaded(t, mem, "k"); w.Code != http.StatusServiceUnavailable || rec.State != driver.Free || !rec.Owed {
			t.Fatalf("answered %d, the record is %v, owed %v", w.Code, rec.State, rec.Owed)
		}
		stop := finish(t, g, g.Wrap(say("done")), semel.CompleterOptions{})
		time.Sleep(10 * time.Minute)
		stop()
		wantAnswer(t, answer(g.Wrap(say("again")), post("k", `{}`)), http.StatusCreated, "done", true)
		end()
		drained(t, g)
	})
}

// Between the completer's look at a record and its claim the operation may be answered, or forgotten: then what the
// claim has won is given back, unrun and uncounted.
func TestR52_AClaimThatWonWhatWasNoLongerDueIsGivenBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		between  func(t *testing.T, mem *memstore.Store, late *mortal, end func() []*served)
		attempts uint32
		answers  int // to the late client
	}{
		{"released by its late owner", func(_ *testing.T, _ *memstore.Store, late *mortal, end func() []*served) {
			late.dead.Store(false)
			end()
		}, 1, http.StatusServiceUnavailable},
		{"forgotten", func(t *testing.T, mem *memstore.Store, _ *mortal, _ func() []*served) {
			rec, err := mem.Seize(t.Context(), keyed("k"), driver.NewToken())
			if err != nil {
				t.Fatal(err)
			}
			if gone, err := mem.Forget(t.Context(), keyed("k"), rec.Owner()); !gone || err != nil {
				t.Fatalf("forgotten %v, %v", gone, err)
			}
		}, 0, http.StatusConflict},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New()
				late, end := abandon(t, mem, finishing(), post("k", `{}`))
				var lateAnswers []*served
				endOnce := func() []*served {
					if lateAnswers == nil {
						lateAnswers = end()
					}
					return lateAnswers
				}
				way := &faulty{Store: mem}
				between := false
				way.claim = func(ctx context.Context, id driver.ID, claim driver.Claim) (driver.Record, bool, error) {
					if !between {
						between = true
						c.between(t, mem, late, endOnce)
					}
					return mem.Claim(ctx, id, claim)
				}
				g, seen := newFinishing(t, searchableAs(way, mem), finishing())
				runs := 0
				stop := finish(t, g, g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ })), semel.CompleterOptions{})
				time.Sleep(30 * time.Minute)
				stop()
				rec := loaded(t, mem, "k")
				if !between || runs != 0 || rec.State != driver.Free || rec.Attempt != c.attempts || rec.Owed {
					t.Errorf("claimed %v, %d runs; the record is %v, attempt %d, owed %v", between, runs, rec.State, rec.Attempt, rec.Owed)
				}
				if got := seen.results(); len(got) != 0 {
					t.Errorf("decisions %v, want none", got)
				}
				late.dead.Store(false)
				if w := endOnce()[0].answer(); w.Code != c.answers {
					t.Errorf("the late client is answered %d, want %d", w.Code, c.answers)
				}
				drained(t, g)
			})
		})
	}
}

func TestR52_HoldRecordsAreNeverRunWithoutAClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		_, end := abandon(t, mem, finishing(), post("route", `{}`), post("record", `{}`))
		// The record of one says Hold; the route of the other does by now.
		rec := loaded(t, mem, "record")
		time.Sleep(4 * time.Second)
		if _, owned, err := mem.Claim(t.Context(), keyed("held"), driver.Claim{
			Fingerprint: rec.Fingerprint, Token: driver.NewToken(), Sealed: rec.Sealed, OnLost: semel.Hold, Lease: time.Second,
		}); !owned || err != nil {
			t.Fatal(owned, err)
		}
		g, seen := newFinishing(t, mem, finishing())
		held := g.Route(shortLease(semel.Hold))
		runs := 0
		stop := finish(t, g, held.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ })), semel.CompleterOptions{})
		time.Sleep(10 * time.Minute)
		stop()
		if runs != 0 || len(seen.results()) != 0 {
			t.Errorf("%d runs, decisions %v; want none", runs, seen.results())
		}
		if got := seen.failures(); len(got) == 0 || !strings.Contains(got[0], "policy of its route") {
			t.Errorf("failures %q, want the route's policy", got)
		}
		if rec := loaded(t, mem, "held"); rec.Reads(rec.OnLost) != driver.ReadsUnknown || rec.Attempt != 1 {
			t.Errorf("the held record reads as %v, attempt %d", rec.Reads(rec.OnLost), rec.Attempt)
		}
		end()
	})
}

// release sets an unknown operation free, as operators do.
func release(t testing.TB, mem *memstore.Store, key string) {
	t.Helper()
	rec, err := mem.Seize(t.Context(), keyed(key), driver.NewToken())
	if err != nil {
		t.Fatal(err)
	}
	if _, owned, err := mem.Settle(t.Context(), keyed(key), rec.Owner(), driver.Outcome{State: driver.Free, Error: "released by an operator"}); !owned || err != nil {
		t.Fatal(owned, err)
	}
}

func TestR52_AnOperationThatFailsAgainAndAgainIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, lapses := range []bool{false, true} {
		t.Run(fmt.Sprintf("its process dies: %v", lapses), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New()
				_, end := abandon(t, mem, finishing(), post("k", `{}`))
				time.Sleep(4 * time.Second)
				const most = 4
				if lapses {
					for range most - 1 {
						if _, owned, err := mem.Claim(t.Context(), keyed("k"), driver.Claim{
							Fingerprint: loaded(t, mem, "k").Fingerprint, Token: driver.NewToken(), OnLost: semel.Rerun,
							Lease: time.Second, Retention: time.Hour,
						}); !owned || err != nil {
							t.Fatal(owned, err)
						}
						time.Sleep(2 * time.Second)
					}
				}
				g, seen := newFinishing(t, mem, finishing())
				runs, works := 0, false
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs++
					if works {
						say("at last").ServeHTTP(w, r)
						return
					}
					panic("poison")
				}))
				defer finish(t, g, h, semel.CompleterOptions{MaxAttempts: most})()
				time.Sleep(30 * time.Minute)
				want := most - 1
				if lapses {
					want = 0
				}
				rec := loaded(t, mem, "k")
				if runs != want || rec.State != driver.Unknown || !strings.Contains(rec.Error, "given up after 4 runs") {
					t.Errorf("%d runs, want %d; the record is %v: %s", runs, want, rec.State, rec.Error)
				}
				if given := seen.count(event.CompletionGivenUp); given != 1 {
					t.Errorf("given up %d times, want once", given)
				}
				wantProblem(t, answer(h, post("k", `{}`)), http.StatusConflict, refusal.OutcomeUnknown)
				for _, failure := range seen.failures() {
					if !strings.Contains(failure, "poison") {
						t.Errorf("failure %q", failure)
					}
				}

				works = true
				release(t, mem, "k")
				time.Sleep(time.Minute)
				wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "at last", true)
				if runs != want+1 {
					t.Errorf("%d runs after the release, want one", runs-want)
				}
				end()
			})
		})
	}
}

// What can't be run is reported, ever more rarely, is never run, and holds up nothing.
func TestR52_PoisonHoldsUpNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		request := func(key, path string) *http.Request {
			r := post(key, `{}`)
			r.URL.Path, r.RequestURI = path, path
			return r
		}
		old, _ := newGuardWith(t, mem, semel.Options{Policy: finishing(), Encryption: keyringOf(t, encryptionKey("old", 9))})
		first, _ := newFinishing(t, mem, finishing())
		die := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		lose := func(g *semel.Guard, r *http.Request) {
			defer func() { recover() }() //nolint:errcheck // the handler's own
			answer(g.Wrap(die), r)
		}
		lose(old, request("lost-key", "/payments"))
		lose(first, request("gone", "/gone"))
		lose(first, request("forbidden", "/payments"))
		lose(first, request("unprotected", "/unprotected"))
		lose(first, request("elsewhere", "/elsewhere"))
		moved := loaded(t, mem, "forbidden")
		corrupt := bytes.Clone(moved.Sealed)
		corrupt[len(corrupt)-1] ^= 1
		for key, sealed := range map[string][]byte{"moved": moved.Sealed, "corrupt": corrupt, "open": {0, 1}, "short": {1}} {
			if _, owned, err := mem.Claim(t.Context(), keyed(key), driver.Claim{
				Fingerprint: moved.Fingerprint, Token: driver.NewToken(), Sealed: sealed, OnLost: semel.Rerun, Lease: time.Second,
				Operation: key, Retention: 100 * time.Hour,
			}); !owned || err != nil {
				t.Fatal(owned, err)
			}
		}
		const poisons = 9
		for i := range 20 {
			lose(first, request(fmt.Sprintf("good%d", i), "/payments"))
		}

		g, seen := newFinishing(t, mem, finishing())
		var good ledger
		poisonRuns := 0
		forbidden := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { poisonRuns++ })
		protectsPatch := finishing()
		protectsPatch.Methods = []string{http.MethodPatch}
		elsewhere, _ := newFinishing(t, nil, finishing())
		mux := http.NewServeMux()
		mux.Handle("POST /payments", g.Wrap(http.HandlerFunc(good.pay)))
		mux.Handle("POST /unprotected", g.Route(protectsPatch).Wrap(forbidden))
		mux.Handle("POST /elsewhere", elsewhere.Wrap(forbidden))
		stop := finish(t, g, mux, semel.CompleterOptions{Concurrency: 1, Principal: func(_ context.Context, r *http.Request, _ string) (*http.Request, error) {
			if r.Header.Get("Idempotency-Key") == "forbidden" {
				return nil, errors.New("no such account")
			}
			return r, nil
		}})
		time.Sleep(20 * time.Second)
		checkEffects(t, &good, 20)
		time.Sleep(50 * time.Minute)
		stop()
		checkEffects(t, &good, 20)
		if poisonRuns != 0 {
			t.Errorf("%d poison operations were run", poisonRuns)
		}
		why := map[string]int{}
		for _, failure := range seen.failures() {
			for _, part := range []string{
				`"old", which is not in the keyring`, "no guard took it; it was answered with 404", "no such account",
				"no longer allows", "not one of the completer's", "not encrypted", "message authentication failed", "encrypted bytes",
			} {
				if strings.Contains(failure, part) {
					why[part]++
				}
			}
		}
		if len(why) != 8 || len(seen.failures()) > poisons*25 || len(seen.failures()) < poisons*10 {
			t.Errorf("%d failures: %v; want each of %d poisons every 5 minutes at last", len(seen.failures()), why, poisons)
		}
		if rec := loaded(t, mem, "lost-key"); rec.State != driver.Free || !rec.Owed || rec.Attempt != 1 {
			t.Errorf("the record that can't be opened is %v, owed %v, attempt %d", rec.State, rec.Owed, rec.Attempt)
		}
		drained(t, g)

		rotated, _ := newGuardWith(t, mem, semel.Options{Policy: finishing(), Encryption: keyringOf(t, encryptionKey("new", 8), encryptionKey("old", 9))})
		var late ledger
		defer finish(t, rotated, rotated.Wrap(http.HandlerFunc(late.pay)), semel.CompleterOptions{})()
		time.Sleep(10 * time.Second)
		if rec := loaded(t, mem, "lost-key"); rec.State != driver.Done || late.count() != 1 {
			t.Errorf("with the old key in the ring: %v, %d effects", rec.State, late.count())
		}
	})
}

// The identity of a stored request is that of its client's, whatever became of the route's settings.
func TestR52_R23_ChangedSettingsChangeNoStoredRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		var derived []string
		before := finishing()
		before.PerOperation, before.Fingerprint.Exact, before.KeyHeaders = true, true, []string{"X-Order"}
		g, _ := newFinishing(t, mem, before)
		r := post("", `{ "id": "from-body" }`, "X-Order", `"order-1"`, "X-Principal", "bob")
		func() {
			defer func() { recover() }() //nolint:errcheck // the handler's own
			answer(g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				derived = append(derived, semel.FromContext(r.Context()).Key("charge"))
				panic("dies")
			})), r)
		}()
		after := finishing()
		after.KeyField = "/id"
		after.Mint = func(*http.Request, []byte) (string, error) { return "minted-key", nil }
		after.KeyFormat = semel.KeyFormat{MaxLength: 2}
		after.Patience, after.Wait = time.Millisecond, time.Second
		o := semel.Options{Policy: after, Encryption: keyringOf(t, encryptionKey("a", 1)), MaxAttempts: 1, MaxKeys: 1}
		changed, err := semel.New(mem, semel.ScopeFunc(func(*http.Request) (string, error) { return "", errors.New("nobody") }), semel.Rerun, o)
		if err != nil {
			t.Fatal(err)
		}
		semel.IdentityChecked(changed)
		h := changed.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			derived = append(derived, semel.FromContext(r.Context()).Key("charge"))
			time.Sleep(time.Second)
			if len(derived) < 4 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			w.WriteHeader(http.StatusOK)
		}))
		stop := finish(t, changed, h, semel.CompleterOptions{})
		time.Sleep(time.Minute)
		stop()
		if len(derived) != 4 || len(slices.Compact(slices.Clone(derived))) != 1 {
			t.Errorf("derived %q, want one key in four runs", derived)
		}
		if mem.Len() != 1 {
			t.Errorf("%d records, want one", mem.Len())
		}
		wantAnswer(t, answer(g.Wrap(say("again")), post("", `{ "id": "from-body" }`, "X-Order", `"order-1"`, "X-Principal", "bob")), http.StatusOK, "", true)
	})
}

func TestR52_R75_UnknownOperationsAreAskedAboutEverMoreRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		way := &mortal{Store: mem}
		dead, _ := newFinishing(t, searchableAs(way, mem), shortLease(semel.Hold))
		over := make(chan struct{})
		s := serve(dead.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over })), post("k", `{}`))
		synctest.Wait()
		way.dead.Store(true)
		begun := time.Now()

		g, seen := newFinishing(t, mem, finishing())
		var asked []time.Duration
		answers := []func() (semel.Finding, error){
			func() (semel.Finding, error) { return semel.Finding{}, nil },
			func() (semel.Finding, error) { return semel.Finding{}, errors.New("no connection") },
			func() (semel.Finding, error) { panic("broken") },
			func() (semel.Finding, error) { return semel.Finding{}, nil },
			func() (semel.Finding, error) {
				return semel.Finding{Found: semel.FoundDone, Answer: &driver.Response{Status: 201, Body: []byte("found")}}, nil
			},
		}
		runs := 0
		h := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ }))
		stop := finish(t, g, h, semel.CompleterOptions{Interval: time.Second, Reconcile: func(_ context.Context, i semel.Inquiry) (semel.Finding, error) {
			if i.ID != keyed("k") || i.Attempt != 1 {
				t.Errorf("asked about %+v", i)
			}
			asked = append(asked, time.Since(begun))
			return answers[min(len(asked), len(answers))-1]()
		}})
		time.Sleep(30 * time.Minute)
		stop()
		if len(asked) != len(answers) || runs != 0 {
			t.Fatalf("asked at %v, %d runs; want %d inquiries", asked, runs, len(answers))
		}
		for i := 1; i < len(asked); i++ {
			if rest := asked[i] - asked[i-1]; rest < asked[i-1] || rest > asked[i-1]+2*time.Second {
				t.Errorf("asked at %v: want the time between to double", asked)
			}
		}
		if got := seen.failures(); len(got) != 2 || !strings.Contains(got[0], "no connection") || !strings.Contains(got[1], "panic: broken") {
			t.Errorf("failures %q, want one of the connection and one panic", got)
		}
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "found", true)
		close(over)
		s.answer()
		drained(t, dead, g)
	})
}

func TestR52_ACompleterThatEndsWaitsForItsRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		_, end := abandon(t, mem, finishing(), post("k", `{}`))
		g, _ := newFinishing(t, mem, finishing())
		began, over := make(chan struct{}), time.Duration(0)
		start := time.Now()
		stop := finish(t, g, g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(began)
			time.Sleep(20 * time.Second)
			if r.Context().Err() != nil {
				t.Errorf("the run was cancelled: %v", context.Cause(r.Context()))
			}
			over = time.Since(start)
			say("done").ServeHTTP(w, r)
		})), semel.CompleterOptions{})
		<-began
		stop()
		if took := time.Since(start); over == 0 || took != over {
			t.Errorf("Run ended after %v, the handler after %v", took, over)
		}
		if got := loaded(t, mem, "k").State; got != driver.Done {
			t.Errorf("the record is %v, want done", got)
		}
		end()
	})
}

// A store that fails is asked again; a handler's panic, or a goroutine that it ends, ends no completer.
func TestR52_ACompleterOutlivesFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		_, end := abandon(t, mem, finishing(), post("k", `{}`), post("exits", `{}`))
		lists := 0
		s := struct {
			driver.Store
			listerFunc
			driver.Seizer
		}{mem, func(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
			if lists++; lists < 4 {
				return errDown
			}
			return mem.List(ctx, q, yield)
		}, mem}
		g, seen := newFinishing(t, s, finishing())
		var paid ledger
		exits := 0
		stop := finish(t, g, g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Idempotency-Key") == "exits" {
				if exits++; exits < 3 {
					runtime.Goexit()
				}
			}
			paid.pay(w, r)
		})), semel.CompleterOptions{Concurrency: 1})
		time.Sleep(5 * time.Minute)
		stop()
		checkEffects(t, &paid, 2)
		if got := seen.count(event.StoreError); got != 3 || exits != 3 {
			t.Errorf("%d failures of the store, %d runs; want 3 and 3", got, exits)
		}
		end()
	})
}

// A listing passes over records that can't be read, and says so in the end: what it has given is finished.
func TestR52_R41a_AnUnreadableRecordHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		_, end := abandon(t, mem, finishing(), post("k", `{}`))
		s := struct {
			driver.Store
			listerFunc
			driver.Seizer
		}{mem, func(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
			if err := mem.List(ctx, q, yield); err != nil {
				return err
			}
			return fmt.Errorf("another operation: %w", driver.ErrUnreadable)
		}, mem}
		g, seen := newFinishing(t, s, finishing())
		var paid ledger
		stop := finish(t, g, g.Wrap(http.HandlerFunc(paid.pay)), semel.CompleterOptions{})
		time.Sleep(5 * time.Minute)
		stop()
		checkEffects(t, &paid, 1)
		if seen.count(event.Unreadable) == 0 {
			t.Error("nobody is told of the record that can't be read")
		}
		end()
	})
}

// More than one look finds is finished all the same, the oldest first, and not held up by the time between two looks.
func TestR52_ABacklogIsFinishedOldestFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const backlog = 1100
		g, _ := newFinishing(t, nil, finishing())
		die := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
		for i := range backlog {
			func() {
				defer func() { recover() }() //nolint:errcheck // the handler's own
				answer(die, post(fmt.Sprint(i), `{}`))
			}()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		var order []string
		stop := finish(t, g, g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			order = append(order, r.Header.Get("Idempotency-Key"))
			time.Sleep(10 * time.Millisecond)
			w.WriteHeader(http.StatusOK)
		})), semel.CompleterOptions{Concurrency: 1, Interval: time.Hour})
		time.Sleep(20 * time.Second)
		stop()
		if len(order) != backlog {
			t.Fatalf("%d of %d are finished", len(order), backlog)
		}
		for i, key := range order {
			if key != fmt.Sprint(i) {
				t.Fatalf("as number %d %s was finished", i, key)
			}
		}
	})
}

type listerFunc func(context.Context, driver.Query, func(driver.ID, driver.Record) bool) error

func (l listerFunc) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
	return l(ctx, q, yield)
}

// A handler that passes its context to another guarded handler starts an operation of its own there.
func TestR52_OnlyTheRouteOfAStoredRequestIsResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		_, end := abandon(t, mem, finishing(), post("k", `{}`))
		g, _ := newFinishing(t, mem, finishing())
		var inner ledger
		other := g.Wrap(http.HandlerFunc(inner.pay))
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			checkRun(t, answer(other, post("inner", `{}`).WithContext(r.Context())))
			say("outer").ServeHTTP(w, r)
		}))
		stop := finish(t, g, h, semel.CompleterOptions{})
		time.Sleep(time.Minute)
		stop()
		checkEffects(t, &inner, 1)
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "outer", true)
		wantAnswer(t, answer(other, post("inner", `{}`)), http.StatusCreated, "payment 1", true)
		end()
	})
}

func TestR61_NothingOfAStoredRequestCanBeRead(t *testing.T) {
	t.Parallel()
	mem := memstore.New()
	g, _ := newFinishing(t, mem, inRealTime(finishing()))
	r := post("secret-key", `{"secret-body":1}`, "X-Principal", "secret-scope", "Accept-Language", "secret-header",
		"Authorization", "Bearer secret-credential", "Cookie", "a=secret-credential", "Proxy-Authorization", "secret-credential",
		"X-Api-Key", "secret-credential")
	r.URL.RawQuery = "secret-query"
	answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })), r)
	rec := recordOfKey(t, mem, "secret-scope", "secret-key")
	if len(rec.Sealed) == 0 {
		t.Fatal("no request is stored")
	}
	if b := recordBytes(t, rec); bytes.Contains(b, []byte("secret")) {
		t.Errorf("stored in the clear: %q", b)
	}
}

func TestR52_CredentialsCanNotBeStored(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"authorization", "COOKIE", "Proxy-Authorization", "proxy-anything", "x-api-key", "Connection", "DPoP"} {
		p := finishing()
		p.SealHeaders = []string{"X-Channel", name}
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), http.CanonicalHeaderKey(name)+" can't be stored") {
			t.Errorf("SealHeaders %s: %v", name, err)
		}
		p = finishing()
		p.Fingerprint.Headers = []string{name}
		if err := p.Validate(); err == nil {
			t.Errorf("%s is compared, and would be stored", name)
		}
	}
	if err := finishing().Validate(); err != nil {
		t.Error(err)
	}
}

func TestCompletersThatAreWrong(t *testing.T) {
	t.Parallel()
	g, _ := newFinishing(t, nil, finishing())
	plain, _ := newGuard(t, &faulty{Store: memstore.New()}, semel.Policy{})
	ask := func(context.Context, semel.Inquiry) (semel.Finding, error) { return semel.Finding{}, nil }
	for _, c := range []struct {
		g    *semel.Guard
		h    http.Handler
		o    semel.CompleterOptions
		want string
	}{
		{g, nil, semel.CompleterOptions{Principal: nobodyElse}, "the handler is nil"},
		{g, say(""), semel.CompleterOptions{}, "Principal is nil"},
		{g, say(""), semel.CompleterOptions{Principal: nobodyElse, Interval: -1}, "Interval is negative"},
		{g, say(""), semel.CompleterOptions{Principal: nobodyElse, Backoff: -1}, "Backoff is negative"},
		{g, say(""), semel.CompleterOptions{Principal: nobodyElse, Backoff: 2, MaxBackoff: 1}, "MaxBackoff is 1ns"},
		{g, say(""), semel.CompleterOptions{Principal: nobodyElse, Concurrency: -1}, "Concurrency is negative"},
		{plain, say(""), semel.CompleterOptions{Principal: nobodyElse}, "can't be searched"},
		{plain, say(""), semel.CompleterOptions{Principal: nobodyElse}, "Options.Encryption"},
		{plain, say(""), semel.CompleterOptions{Principal: nobodyElse, Reconcile: ask}, "can't be seized"},
	} {
		if _, err := c.g.Completer(c.h, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	for _, o := range []semel.CompleterOptions{
		{Principal: nobodyElse},
		{Principal: nobodyElse, Backoff: time.Hour, MaxAttempts: -1, Reconcile: ask},
	} {
		if _, err := g.Completer(say(""), o); err != nil {
			t.Error(err)
		}
	}
}
