package semel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// What could go wrong between a promise, a run that is lost, and its end.

// A ReverseProxy ends in order when its upstream breaks off, unless it finds a server in its context.
func TestR52_AnAnswerThatBreaksOffIsNotStoredForNobody(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) //nolint:errcheck // it is short
		io.WriteString(w, `{"paid":`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer up.Close()
	u, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(u)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	store := memstore.New()
	g, _, _ := asyncGuard(t, store, inRealTime(async()))
	var runs atomic.Int32
	told := make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("POST /payments", g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		if semel.FromContext(r.Context()).Attempt() == 1 {
			<-told
			w.WriteHeader(503)
			return
		}
		proxy.ServeHTTP(w, r)
	})))
	w := answer(mux, post("k", `{}`, "Prefer", asyncPreferred))
	close(told)
	if w.Code != 202 {
		t.Fatal(w.Code)
	}
	stop := finish(t, g, mux, semel.CompleterOptions{Interval: 5 * time.Millisecond, Backoff: time.Millisecond})
	for runs.Load() < 3 { // the second one has been settled by then
		time.Sleep(time.Millisecond)
	}
	stop()
	rec := loaded(t, store, "k")
	if rec.State == driver.Done || !rec.Owed {
		a := answer(mux, post("k", `{}`))
		t.Errorf("a truncated answer was stored as the outcome: %d %q replayed=%v", a.Code, a.Body, replayed(a))
	}
}

// The client loses its connection within its wait, and repeats.
func TestR33_AClientThatWasCutOffAndToldWithARepeatIsOwedTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := async()
		p.MaxWait = time.Minute
		store := memstore.New()
		g, asks, _ := asyncGuard(t, store, p)
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(5 * time.Second)
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		ctx, cancel := context.WithCancel(context.Background())
		s := serve(h, post("k", `{}`, "Prefer", "respond-async, wait=30").WithContext(ctx))
		time.Sleep(time.Second)
		cancel() // its connection is gone
		time.Sleep(time.Second)
		again := answer(h, post("k", `{}`, "Prefer", asyncPreferred))
		s.answer()
		drained(t, g)
		rec := loaded(t, store, "k")
		d := statusOf(t, answer(asks, about("/"+keyed("k").String())), 200)
		if again.Code != 202 || !rec.Owed || d.State != "running" {
			t.Errorf("told %d, released with a 429, owed %v, shown %s", again.Code, rec.Owed, d.State)
		}
	})
}

// ambiguousSteps loses the replies of saves.
type ambiguousSteps struct {
	*memstore.Store
	fail atomic.Bool
}

func (s *ambiguousSteps) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	owned, err := s.Store.SaveStep(ctx, id, by, name, result)
	if s.fail.Load() {
		return false, errors.New("reply lost")
	}
	return owned, err
}

// A step whose save was executed, but not acknowledged, is tried again in the same run.
func TestR84_AStepWhoseSaveMayHaveBeenExecutedIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &ambiguousSteps{Store: memstore.New()}
		p := shortLease(semel.Rerun)
		g, _ := newGuardWith(t, store, semel.Options{Policy: p})
		n := 0
		var used []string
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := r.Context()
			store.fail.Store(n == 0)
			newID := func(context.Context) (string, error) { n++; return fmt.Sprint("order-", n), nil }
			id, err := semel.Step(ctx, "order id", newID)
			if err != nil {
				store.fail.Store(false)
				id, err = semel.Step(ctx, "order id", newID)
			}
			if err != nil {
				t.Errorf("step: %v", err)
			}
			used = append(used, id)
			if semel.FromContext(ctx).Attempt() == 1 {
				w.WriteHeader(503)
			}
		}))
		answer(h, post("k", `{}`))
		answer(h, post("k", `{}`))
		if len(used) != 2 || used[0] != used[1] || n != 1 {
			t.Errorf("two runs saw the results %v of one step, which ran %d times", used, n)
		}
	})
}

// delayedSteps holds back the first save, which gets no reply, and executes it when it is told to.
type delayedSteps struct {
	*memstore.Store
	late func() // executes what was held back
	down bool
}

func (s *delayedSteps) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	if s.down {
		if s.late == nil {
			s.late = func() { s.Store.SaveStep(context.Background(), id, by, name, result) } //nolint:errcheck // nobody hears of it
		}
		return false, errDown
	}
	return s.Store.SaveStep(ctx, id, by, name, result)
}

// A save that got no reply may be executed later, too, when the step has been read again and has run again: the run
// then goes on with the result that later runs will get.
func TestR84_AStepWhoseSaveIsExecutedLateHasOneResult(t *testing.T) {
	t.Parallel()
	for _, reads := range []bool{true, false} {
		t.Run(fmt.Sprintf("the store can be read then: %v", reads), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				delayed := &delayedSteps{Store: memstore.New(), down: true}
				store := &steppedStore{StepStore: delayed}
				g, _ := newGuardWith(t, store, semel.Options{Policy: shortLease(semel.Rerun)})
				n := 0
				newID := func(context.Context) (string, error) { n++; return fmt.Sprint("order-", n), nil }
				var used []string
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					id, err := semel.Step(r.Context(), "order id", newID)
					if err != nil {
						delayed.down = false
						id, err = semel.Step(r.Context(), "order id", func(ctx context.Context) (string, error) {
							delayed.late()
							if !reads {
								store.read = func(func() (map[string][]byte, error)) (map[string][]byte, error) { return nil, errDown }
							}
							return newID(ctx)
						})
						store.read = nil
					}
					if err != nil {
						http.Error(w, err.Error(), http.StatusInternalServerError)
						return
					}
					if used = append(used, id); len(used) == 1 {
						w.WriteHeader(http.StatusServiceUnavailable)
					}
				}))
				for range 3 {
					answer(h, post("k", `{}`))
				}
				if n != 2 || len(used) < 2 || used[0] != "order-1" || used[1] != used[0] {
					t.Errorf("runs of one operation saw the results %q of a step, which ran %d times", used, n)
				}
			})
		})
	}
}

// A completer's run of a streaming route is lost after its first byte.
func TestR38_R52_AStreamThatNobodyReceivesHasNotBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		p := finishing()
		p.Stream = true
		g, _ := newFinishing(t, store, p)
		runs := 0
		mux := http.NewServeMux()
		mux.Handle("POST /payments", g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			if runs == 1 {
				panic(http.ErrAbortHandler) // lost before a byte
			}
			io.WriteString(w, "part")
			if runs == 2 {
				panic(http.ErrAbortHandler)
			}
			io.WriteString(w, " and rest")
		})))
		serve(mux, post("k", `{}`)).answer()
		stop := finish(t, g, mux, semel.CompleterOptions{})
		time.Sleep(10 * time.Minute)
		stop()
		rec := loaded(t, store, "k")
		if rec.Response == nil || runs != 3 {
			t.Errorf("%v without an answer after %d runs; begun=%v", rec.State, runs, rec.Begun)
		}
	})
}

// A run that may have begun is never run again, so nobody is promised its end.
func TestR33_R38_NobodyIsToldToComeBackWhileARunBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		store := &faulty{Store: mem}
		store.extend = func(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
			if x.Begun {
				time.Sleep(2 * time.Second)
			}
			return mem.Extend(ctx, id, by, x)
		}
		p := async()
		p.MaxWait = time.Minute
		p.Lease = 30 * time.Second
		g, _, _ := asyncGuard(t, listing{store, mem}, p)
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: 1\n\n")
			semel.FromContext(r.Context()).Lost(errors.New("upstream broke"))
		}))
		s := serve(h, post("k", `{}`, "Prefer", "respond-async, wait=1"))
		w := s.answer()
		drained(t, g)
		rec := loaded(t, mem, "k")
		if w.Code == 202 || !rec.Begun {
			t.Errorf("told %d, begun %v", w.Code, rec.Begun)
		}
	})
}

// Free and owed, but last run under Hold: no completer takes it.
func TestR33_WhatNobodyFinishesIsNotShownAsRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		g, asks, _ := linkedGuard(t, store, semel.Options{Policy: finishing(), Encryption: newTestKeyring(t)})
		status := 0
		pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if status == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(status)
		})
		serve(g.Wrap(pay), post("k", `{}`)).answer() // lost under Rerun: free, owed, maybe
		ctx, id := context.Background(), keyed("k")
		tok := driver.NewToken() // an operator finds that nothing happened
		rec, err := store.Seize(ctx, id, tok)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, err := store.Settle(ctx, id, driver.Owner{Fence: rec.Fence, Token: tok}, driver.Outcome{State: driver.Free}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		status = 503 // the route is Hold by now
		held := shortLease(semel.Hold)
		if w := answer(g.Route(held).Wrap(pay), post("k", `{}`)); w.Code != 503 {
			t.Fatal(w.Code, w.Body)
		}
		status = 201
		stop := finish(t, g, g.Wrap(pay), semel.CompleterOptions{})
		time.Sleep(6 * time.Hour)
		stop()
		d := statusOf(t, answer(asks, about("/"+id.String())), 200)
		if d.State == "running" {
			t.Errorf("after 6 h with a completer: %+v", d)
		}
	})
}

// Its client has run it more often than a completer may.
func TestR52_RunsOfClientsCountTowardsTheMostAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		g, _ := newFinishing(t, store, finishing())
		runs := 0
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			panic(http.ErrAbortHandler)
		}))
		for range 3 {
			serve(h, post("k", `{}`)).answer()
		}
		stop := finish(t, g, h, semel.CompleterOptions{MaxAttempts: 2})
		time.Sleep(time.Hour)
		stop()
		rec := loaded(t, store, "k")
		if runs != 3 || rec.State != driver.Unknown {
			t.Errorf("the client ran it 3 times, a completer %d times; the record is %v", runs-3, rec.State)
		}
	})
}

// The claim gets no reply, so the request is run unprotected; its stored copy must not be run again.
func TestR52_R63_StoredRequestsDoNotGoWithFailOpen(t *testing.T) {
	t.Parallel()
	for _, p := range []semel.Policy{{Complete: true}, {RespondAsync: true}} {
		p.OnLost, p.FailOpen = semel.Rerun, true
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "FailOpen") {
			t.Errorf("got %v", err)
		}
	}
}

// A step of an earlier run counts as an effect elsewhere: a rollback in this one proves nothing.
func TestR31_R84_AResumedStepIsAnEffectThatNoRollbackTakesBack(t *testing.T) {
	t.Parallel()
	for onLost, code := range map[semel.LostPolicy]refusal.Code{semel.Rerun: refusal.OutcomePending, semel.Hold: refusal.OutcomeUnknown} {
		steps := memstore.New()
		store := struct {
			driver.Transactor
			steppedStoreOnly
		}{transactions(t, steps), steppedStoreOnly{steps}}
		g, _ := newGuard(t, store, semel.Policy{OnLost: onLost})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := semel.Step(r.Context(), "charge", one); err != nil {
				t.Error(err)
			}
			if op := semel.FromContext(r.Context()); op.Attempt() == 1 {
				op.Release()
				return
			}
			semel.RunTx(r.Context(), store, func(context.Context, driver.Tx) error { return io.ErrUnexpectedEOF }) //nolint:errcheck // it is rolled back
		}))
		answer(h, post("k", `{}`))
		if w := answer(h, post("k", `{}`)); refusalCode(w) != code {
			t.Errorf("%v: answered %d %q, want %s", onLost, w.Code, w.Body, code)
		}
	}
}
