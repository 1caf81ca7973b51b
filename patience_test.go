package semel_test

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// patient is a policy under which a client is kept waiting for five seconds.
func patient(onLost semel.LostPolicy) semel.Policy {
	p := shortLease(onLost)
	p.Patience = 5 * time.Second
	return p
}

func TestR75_ClientIsToldPendingAndTheRunGoesOn(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		t.Run(onLost.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				g, seen := newGuard(t, store, patient(onLost))
				start := time.Now()
				var paid ledger
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.WriteString(w, "early part; ")
					time.Sleep(30 * time.Second)
					if err := r.Context().Err(); err != nil {
						t.Errorf("the run was cancelled: %v", err)
					}
					w.Header().Set("X-Late", "1")
					paid.pay(w, r)
				}))
				s := serve(h, post("k", `{}`))
				w := s.answer()
				wantProblem(t, w, http.StatusGatewayTimeout, refusal.OutcomePending)
				if took := s.at.Sub(start); took != 5*time.Second || w.Header().Get("Retry-After") != "1" {
					t.Errorf("told after %v to retry after %q, want after 5s, 1", took, w.Header().Get("Retry-After"))
				}
				body := w.Body.String()
				for time.Since(start) < 29*time.Second {
					wantProblem(t, answer(h, post("k", `{}`)), http.StatusConflict, refusal.InProgress)
					time.Sleep(time.Second)
				}
				drained(t, g)
				if took := time.Since(start); took != 30*time.Second {
					t.Errorf("drained after %v, want with the run", took)
				}
				if w.Body.String() != body || w.Header().Get("X-Late") != "" {
					t.Errorf("the late run wrote to the client that was answered: %q", w.Body)
				}
				wantAnswer(t, answer(h, post("k", `{}`)), http.StatusOK, "early part; payment 1", true)
				results := seen.results()
				if results[0] != event.Failed || results[len(results)-1] != event.Replayed || seen.count(event.Fenced) != 0 {
					t.Errorf("decisions %v", results)
				}
			})
		})
	}
}

func TestR75_AnswerWithinPatienceIsTheHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, seen := newGuard(t, nil, patient(semel.Hold))
		var paid ledger
		h := g.Wrap(paused(&paid, 5*time.Second-1))
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", false)
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "payment 1", true)
		if got := seen.results(); !reflect.DeepEqual(got, []event.Result{event.Executed, event.Replayed}) {
			t.Errorf("decisions %v", got)
		}
	})
}

// Patience is the client's: what it waited for another run counts too.
func TestR75_PatienceCountsFromTheRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := patient(semel.Hold)
		p.Wait = time.Minute
		g, _ := newGuard(t, nil, p)
		first := serve(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(3 * time.Second)
			w.WriteHeader(http.StatusTooManyRequests)
		})), post("k", `{}`))
		synctest.Wait()
		start := time.Now()
		var paid ledger
		next := serve(g.Wrap(paused(&paid, 10*time.Second)), post("k", `{}`))
		synctest.Wait()
		waiter := serve(g.Wrap(paused(&paid, 10*time.Second)), post("k", `{}`))
		codes := map[refusal.Code]int{}
		for _, s := range []*served{next, waiter} { // either takes over
			codes[refusalCode(s.answer())]++
			if took := s.at.Sub(start); took != 5*time.Second {
				t.Errorf("told after %v, want 5s", took)
			}
		}
		if codes[refusal.OutcomePending] != 1 || codes[refusal.InProgress] != 1 {
			t.Errorf("told %v", codes)
		}
		first.answer()
		drained(t, g)
		wantAnswer(t, answer(g.Wrap(paused(&paid, 0)), post("k", `{}`)), http.StatusCreated, "payment 1", true)
	})
}

// The client has been answered: what the handler throws later has nobody to go to, but its run is settled.
func TestR75_R32_ThrownAfterPatience(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func()
	}{
		{"panic", func() { panic(errThrown) }},
		{"abort", func() { panic(http.ErrAbortHandler) }},
		{"exit", runtime.Goexit},
	} {
		for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
			t.Run(fmt.Sprint(c.name, " ", onLost), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := memstore.New()
					g, seen := newGuard(t, store, patient(onLost))
					s := serve(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						time.Sleep(10 * time.Second)
						say("paid").ServeHTTP(w, r)
						c.end()
					})), post("k", `{}`))
					wantProblem(t, s.answer(), http.StatusGatewayTimeout, refusal.OutcomePending)
					if s.thrown != nil || s.exited {
						t.Errorf("threw %v, exited %v", s.thrown, s.exited)
					}
					drained(t, g)
					synctest.Wait()
					want := driver.Unknown
					if onLost == semel.Rerun {
						want = driver.Free
					}
					if rec := loaded(t, store, "k"); rec.State != want || seen.count(event.Panic) != 1 {
						t.Errorf("%v, %d panics reported; want %v and 1", rec.State, seen.count(event.Panic), want)
					}
				})
			})
		}
	}
}

// a run that was fenced after its client was told "pending" changes nothing.
func TestR75_R48_FencedAfterPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		way := &mortal{Store: store}
		a, seen := newGuard(t, way, patient(semel.Rerun))
		b, _ := newGuard(t, store, patient(semel.Rerun))
		s := serve(a.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(20 * time.Second)
			say("late").ServeHTTP(w, r)
		})), post("k", `{}`))
		synctest.Wait()
		way.dead.Store(true)
		wantProblem(t, s.answer(), http.StatusGatewayTimeout, refusal.OutcomePending)
		wantAnswer(t, answer(b.Wrap(say("of B")), post("k", `{}`)), http.StatusCreated, "of B", false)
		before := loaded(t, store, "k")
		way.dead.Store(false)
		drained(t, a)
		sameRecord(t, before, loaded(t, store, "k"))
		if n := seen.count(event.Fenced); n != 1 {
			t.Errorf("%d late owners reported, want 1", n)
		}
	})
}
