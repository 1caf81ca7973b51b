package semel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// counted is a handler that answers each run with its number.
func counted(l *ledger, then func(w http.ResponseWriter, r *http.Request, n int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := l.add()
		w.Header().Set("X-Run", fmt.Sprint(n))
		then(w, r, n)
	})
}

// wantKept sends a request twice and fails unless the second one's answer is the first's replayed (kept) or a run's
// own.
func wantKept(t *testing.T, h http.Handler, l *ledger, status int, kept bool) {
	t.Helper()
	first, second := answer(h, post("k", `{}`)), answer(h, post("k", `{}`))
	for i, w := range []*httptest.ResponseRecorder{first, second} {
		if w.Code != status || refusalCode(w) != "" {
			t.Errorf("answer %d is %d %s, want the handler's %d", i+1, w.Code, w.Body, status)
		}
	}
	if second.Body.String() != first.Body.String() {
		t.Errorf("answered %q and %q", first.Body, second.Body)
	}
	runs, number := 2, "2"
	if kept {
		runs, number = 1, "1"
	}
	if l.count() != runs || replayed(first) || replayed(second) != kept || second.Header().Get("X-Run") != number {
		t.Errorf("%d runs, second answer of run %s, replayed %v; want kept %v", l.count(), second.Header().Get("X-Run"), replayed(second), kept)
	}
	final := ""
	if kept && status >= 500 {
		final = "false"
	}
	for i, w := range []*httptest.ResponseRecorder{first, second} {
		if got := w.Header().Get("Idempotency-Retryable"); got != final {
			t.Errorf("answer %d: Idempotency-Retryable %q, want %q", i+1, got, final)
		}
	}
}

// TestR42_R43_R45_Case17_Case18_OutcomeByStatus has every status that net/http knows, and some that it does not.
func TestR42_R43_R45_Case17_Case18_OutcomeByStatus(t *testing.T) {
	t.Parallel()
	released := map[int]bool{401: true, 403: true, 407: true, 408: true, 421: true, 423: true, 425: true, 428: true, 429: true, 503: true}
	for status := 200; status < 600; status++ {
		switch status {
		case 299, 399, 418, 419, 499, 520, 599: // without a meaning of their own
		default:
			if http.StatusText(status) == "" {
				continue
			}
		}
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
				for _, onError := range []semel.ErrorPolicy{semel.ErrorDefault, semel.KeepErrors, semel.ReleaseErrors} {
					kept := !released[status]
					if kept && status >= 500 {
						kept = onError == semel.KeepErrors || onError == semel.ErrorDefault && onLost == semel.Hold
					}
					g, _ := newGuard(t, nil, semel.Policy{OnLost: onLost, OnError: onError})
					var l ledger
					h := g.Wrap(counted(&l, func(w http.ResponseWriter, _ *http.Request, _ int) {
						w.WriteHeader(status)
						io.WriteString(w, "body")
					}))
					wantKept(t, h, &l, status, kept)
					if t.Failed() {
						t.Fatalf("under %v, OnError %d", onLost, onError)
					}
				}
			}
		})
	}
}

func TestR44_KeepOnlySuccess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		kept   bool
	}{{200, true}, {201, true}, {204, true}, {302, false}, {404, false}, {422, false}, {429, false}, {500, false}, {503, false}} {
		for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
			g, _ := newGuard(t, nil, semel.Policy{OnLost: onLost, OnError: semel.KeepErrors, KeepOnlySuccess: true})
			var l ledger
			wantKept(t, g.Wrap(counted(&l, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(c.status) })), &l, c.status, c.kept)
		}
	}
}

func TestR44_HandlerAndRouteDecide(t *testing.T) {
	t.Parallel()
	keep := func(op *semel.Operation) { op.Keep() }
	release := func(op *semel.Operation) { op.Release() }
	decide := func(v semel.Verdict) func(int, http.Header, []byte) semel.Verdict {
		return func(int, http.Header, []byte) semel.Verdict { return v }
	}
	for _, c := range []struct {
		name   string
		say    func(*semel.Operation)
		decide func(int, http.Header, []byte) semel.Verdict
		status int
		kept   bool
	}{
		{"handler keeps a 503", keep, nil, 503, true},
		{"handler keeps a 429", keep, nil, 429, true},
		{"handler releases a 201", release, nil, 201, false},
		{"handler releases a 500", release, nil, 500, false},
		{"its last word counts", func(op *semel.Operation) { op.Release(); op.Keep() }, nil, 429, true},
		{"route keeps a 503", nil, decide(semel.VerdictKeep), 503, true},
		{"route releases a 201", nil, decide(semel.VerdictRelease), 201, false},
		{"route leaves it to the rules", nil, decide(semel.VerdictDefault), 429, false},
		{"handler goes before the route", keep, decide(semel.VerdictRelease), 200, true},
		{"handler goes before the route", release, decide(semel.VerdictKeep), 200, false},
	} {
		for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
			t.Run(c.name+"/"+onLost.String(), func(t *testing.T) {
				t.Parallel()
				g, _ := newGuard(t, nil, semel.Policy{OnLost: onLost, Decide: c.decide})
				var l ledger
				wantKept(t, g.Wrap(counted(&l, func(w http.ResponseWriter, r *http.Request, _ int) {
					if c.say != nil {
						c.say(semel.FromContext(r.Context()))
					}
					w.WriteHeader(c.status)
				})), &l, c.status, c.kept)
			})
		}
	}
}

func TestR44_RouteDecidesByStatusHeaderAndBody(t *testing.T) {
	t.Parallel()
	type seen struct {
		status int
		header string
		body   []byte
	}
	var got []seen
	g, _ := newGuard(t, nil, semel.Policy{MaxResponseBody: 8, Decide: func(status int, h http.Header, body []byte) semel.Verdict {
		got = append(got, seen{status, h.Get("X-State"), body})
		return semel.VerdictDefault
	}})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-State", "pending")
		w.WriteHeader(http.StatusAccepted)
		w.Header().Set("X-State", "too late")
		io.Copy(w, r.Body) //nolint:errcheck // into memory
	}))
	answer(h, post("small", `{"a":1}`))
	answer(h, post("large", `{"a":1234}`))
	want := []seen{{202, "pending", []byte(`{"a":1}`)}, {202, "pending", nil}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("decided about %+v, want %+v", got, want)
	}
}

// a route can say that an answer is not one, to which its client gets it all the same.
func TestR44_RouteDecidesLostOrUnknown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		onLost  semel.LostPolicy
		verdict semel.Verdict
		state   driver.State
	}{
		{semel.Hold, semel.VerdictLost, driver.Unknown},
		{semel.Rerun, semel.VerdictLost, driver.Free},
		{semel.Hold, semel.VerdictUnknown, driver.Unknown},
		{semel.Rerun, semel.VerdictUnknown, driver.Unknown},
	} {
		t.Run(fmt.Sprint(c.onLost, c.verdict), func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			g, _ := newGuard(t, store, semel.Policy{OnLost: c.onLost, Decide: func(int, http.Header, []byte) semel.Verdict { return c.verdict }})
			h := g.Wrap(say("perhaps"))
			wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "perhaps", false)
			if rec := loaded(t, store, "k"); rec.State != c.state || rec.Error != "answered 201" {
				t.Errorf("%v because %q, want %v", rec.State, rec.Error, c.state)
			}
			w := answer(h, post("k", `{}`))
			if c.state == driver.Free {
				wantAnswer(t, w, http.StatusCreated, "perhaps", false)
			} else {
				wantProblem(t, w, http.StatusConflict, refusal.OutcomeUnknown)
			}
		})
	}
}

// no answer goes by OnLost, whatever was written, kept or released.
func TestR43_R44_OperationLost(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		for _, c := range []struct {
			name string
			say  func(*semel.Operation)
		}{
			{"alone", func(op *semel.Operation) { op.Lost(io.ErrUnexpectedEOF) }},
			{"and kept", func(op *semel.Operation) { op.Lost(io.ErrUnexpectedEOF); op.Keep() }},
			{"and released", func(op *semel.Operation) { op.Release(); op.Lost(io.ErrUnexpectedEOF) }},
		} {
			t.Run(onLost.String()+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				store := memstore.New()
				g, _ := newGuard(t, store, semel.Policy{OnLost: onLost, OnError: semel.KeepErrors})
				var l ledger
				h := g.Wrap(counted(&l, func(w http.ResponseWriter, r *http.Request, n int) {
					if n == 1 {
						c.say(semel.FromContext(r.Context()))
					}
					say("a part of the ans").ServeHTTP(w, r)
				}))
				w := answer(h, post("k", `{}`))
				if strings.Contains(w.Body.String(), "part") || w.Header().Get("X-Run") != "" {
					t.Errorf("what was written of a lost answer has left: %v %s", w.Header(), w.Body)
				}
				rec := loaded(t, store, "k")
				if rec.Error != io.ErrUnexpectedEOF.Error() {
					t.Errorf("operators are told %q", rec.Error)
				}
				if onLost == semel.Hold {
					wantProblem(t, w, http.StatusConflict, refusal.OutcomeUnknown)
					wantProblem(t, answer(h, post("k", `{}`)), http.StatusConflict, refusal.OutcomeUnknown)
					if rec.State != driver.Unknown || l.count() != 1 {
						t.Errorf("%v after %d runs, want unknown after 1", rec.State, l.count())
					}
					return
				}
				wantProblem(t, w, http.StatusServiceUnavailable, refusal.OutcomePending)
				if rec.State != driver.Free || !rec.Maybe {
					t.Errorf("%v, maybe %v; want free, perhaps with an effect", rec.State, rec.Maybe)
				}
				wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "a part of the ans", false)
			})
		}
	}
}

// errThrown is a value that a handler panics with.
var errThrown = errors.New("thrown")

// TestR32_EveryExitSettles: however a handler ends, with and without Patience, its claim is settled, nothing of what it
// buffered leaves unless it returned, and what it throws goes on.
func TestR32_Case17_EveryExitSettles(t *testing.T) {
	t.Parallel()
	const kept, lost = "kept", "lost"
	for _, c := range []struct {
		name   string
		end    func()
		ends   string
		thrown any
		exits  bool
	}{
		{"return", func() {}, kept, nil, false},
		{"panic", func() { panic(errThrown) }, lost, errThrown, false},
		{"panic with a string", func() { panic("text") }, lost, "text", false},
		{"abort", func() { panic(http.ErrAbortHandler) }, lost, http.ErrAbortHandler, false},
		{"exit", runtime.Goexit, lost, nil, true},
	} {
		for _, writes := range []bool{true, false} {
			for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
				for _, patience := range []time.Duration{0, time.Minute} {
					t.Run(fmt.Sprint(c.name, " writes ", writes, " ", onLost, " ", patience), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) {
							store := memstore.New()
							p := shortLease(onLost)
							p.OnError, p.Patience, p.EmptyOK = semel.KeepErrors, patience, true
							g, seen := newGuard(t, store, p)
							var l ledger
							h := g.Wrap(counted(&l, func(w http.ResponseWriter, r *http.Request, _ int) {
								if writes {
									say("paid").ServeHTTP(w, r)
								}
								time.Sleep(time.Second)
								c.end()
							}))
							s := serve(h, post("k", `{}`))
							w := s.answer()
							if s.thrown != c.thrown || s.exited != c.exits {
								t.Errorf("threw %v, exited %v; want %v, %v", s.thrown, s.exited, c.thrown, c.exits)
							}
							rec := loaded(t, store, "k")
							if c.ends == kept {
								if !writes { // the policy says that this means 200
									wantAnswer(t, w, http.StatusOK, "", false)
									wantAnswer(t, answer(h, post("k", `{}`)), http.StatusOK, "", true)
								} else {
									wantAnswer(t, w, http.StatusCreated, "paid", false)
									wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", true)
								}
								if rec.State != driver.Done || seen.count(event.Panic) != 0 {
									t.Errorf("%v, %d panics", rec.State, seen.count(event.Panic))
								}
								return
							}
							if w.Body.Len() != 0 || w.Flushed || w.Header().Get("X-Run") != "" {
								t.Errorf("what was buffered has left: %v %s", w.Header(), w.Body)
							}
							if n := seen.count(event.Panic); n != 1 {
								t.Errorf("%d panics reported, want 1", n)
							}
							if got := seen.results(); !reflect.DeepEqual(got, []event.Result{event.Failed}) {
								t.Errorf("decisions %v, want one failed", got)
							}
							again := serve(h, post("k", `{}`))
							if onLost == semel.Hold {
								wantProblem(t, again.answer(), http.StatusConflict, refusal.OutcomeUnknown)
								if rec.State != driver.Unknown || l.count() != 1 {
									t.Errorf("%v after %d runs, want unknown after 1", rec.State, l.count())
								}
								return
							}
							again.answer()
							if rec.State != driver.Free || !rec.Maybe || l.count() != 2 {
								t.Errorf("%v, maybe %v, %d runs; want free, perhaps with an effect, and run again", rec.State, rec.Maybe, l.count())
							}
						})
					})
				}
			}
		}
	}
}

// what is thrown goes on also when its settle is late or fenced.
func TestR32_ThrownGoesOnWhateverBecomesOfTheSettle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		f.settle = func(context.Context, driver.ID, driver.Owner, driver.Outcome) (driver.Record, bool, error) {
			return driver.Record{}, false, errDown
		}
		g, _ := newGuard(t, f, shortLease(semel.Rerun))
		s := serve(g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(errThrown) })), post("k", `{}`))
		if w := s.answer(); s.thrown != errThrown || w.Body.Len() != 0 {
			t.Errorf("threw %v after %q", s.thrown, w.Body)
		}
		f.set(func(f *faulty) { f.settle = nil })
		drained(t, g)
		if rec := loaded(t, store, "k"); rec.State != driver.Free {
			t.Errorf("%v, want free", rec.State)
		}
	})
}

// A route's function that panics leaves the outcome to OnLost; the panic goes on.
func TestR32_DecidePanics(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		t.Run(onLost.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				g, _ := newGuard(t, store, semel.Policy{OnLost: onLost, Decide: func(int, http.Header, []byte) semel.Verdict { panic(errThrown) }})
				s := serve(g.Wrap(say("paid")), post("k", `{}`))
				if w := s.answer(); s.thrown != errThrown || w.Body.Len() != 0 {
					t.Errorf("threw %v after %q", s.thrown, w.Body)
				}
				want := driver.Unknown
				if onLost == semel.Rerun {
					want = driver.Free
				}
				if rec := loaded(t, store, "k"); rec.State != want {
					t.Errorf("%v, want %v", rec.State, want)
				}
			})
		})
	}
}
