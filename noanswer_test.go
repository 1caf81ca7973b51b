package semel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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

// silent answers nothing.
var silent = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// A way of returning from a handler, and whether it is an answer.
var returns = []struct {
	name   string
	write  func(w http.ResponseWriter, r *http.Request)
	answer int // the status of its answer, 0 for none
}{
	{"nothing", func(http.ResponseWriter, *http.Request) {}, 0},
	{"headers alone", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/1") }, 0},
	{"early hints alone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) }, 0},
	{"a deadline alone", func(w http.ResponseWriter, _ *http.Request) {
		http.NewResponseController(w).SetWriteDeadline(time.Time{}) //nolint:errcheck // a recorder has none
	}, 0},
	{"an empty source", func(w http.ResponseWriter, _ *http.Request) {
		io.Copy(w, strings.NewReader("")) //nolint:errcheck // nothing is written
	}, 0},
	{"a verdict alone", func(_ http.ResponseWriter, r *http.Request) { semel.FromContext(r.Context()).Keep() }, 0},
	{"a status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }, 202},
	{"a status without a body", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, 204},
	{"a byte", say("x").ServeHTTP, 201},
	{"no bytes", func(w http.ResponseWriter, _ *http.Request) { w.Write(nil) }, 200},
	{"a flush", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, 200},
}

// hinted takes early hints for what they are, unlike a bare recorder.
type hinted struct{ *httptest.ResponseRecorder }

func (c hinted) WriteHeader(status int) {
	if status >= 200 {
		c.ResponseRecorder.WriteHeader(status)
	}
}

func answered(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := hinted{httptest.NewRecorder()}
	h.ServeHTTP(w, r)
	return w.ResponseRecorder
}

// An answer is a status or a byte; what is none counts as lost.
func TestField02_R32a_WhatCountsAsAnAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range returns {
		for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
			for _, stream := range []bool{false, true} {
				for _, patience := range []time.Duration{0, time.Minute} {
					t.Run(fmt.Sprint(c.name, " ", onLost, " stream ", stream, " ", patience), func(t *testing.T) {
						t.Parallel()
						store := memstore.New()
						g, seen := newGuard(t, store, semel.Policy{OnLost: onLost, Stream: stream, Patience: patience})
						var l ledger
						h := g.Wrap(counted(&l, func(w http.ResponseWriter, r *http.Request, _ int) { c.write(w, r) }))
						first := answered(h, post("k", `{}`))
						if c.answer != 0 {
							again := answered(h, post("k", `{}`))
							if first.Code != c.answer || again.Code != c.answer || !replayed(again) || l.count() != 1 {
								t.Errorf("answered %d, repeated %d; want %d and its replay", first.Code, again.Code, c.answer)
							}
							if n := seen.count(event.NoAnswer); n != 0 {
								t.Errorf("%d events tell of no answer", n)
							}
							return
						}
						lostSilently(t, first, loaded(t, store, "k"), onLost)
						if n := seen.count(event.NoAnswer); n != 1 || len(seen.results()) != 1 || seen.results()[0] != event.Failed {
							t.Errorf("%d events tell of no answer, decisions %v; want one, failed", n, seen.results())
						}
						again := answered(h, post("k", `{}`))
						if onLost == semel.Hold {
							wantProblem(t, again, http.StatusConflict, refusal.OutcomeUnknown)
						} else {
							wantProblem(t, again, http.StatusInternalServerError, refusal.NoAnswer)
						}
						if want := map[semel.LostPolicy]int{semel.Hold: 1, semel.Rerun: 2}[onLost]; l.count() != want {
							t.Errorf("run %d times, want %d", l.count(), want)
						}
					})
				}
			}
		}
	}
}

// lostSilently checks the first answer and the record of a run that gave no answer.
func lostSilently(t *testing.T, w *httptest.ResponseRecorder, rec driver.Record, onLost semel.LostPolicy) {
	t.Helper()
	wantProblem(t, w, http.StatusInternalServerError, refusal.NoAnswer)
	if retryable := strings.Contains(w.Body.String(), `"retryable":true`); retryable != (onLost == semel.Rerun) {
		t.Errorf("%v: the client is told %s", onLost, w.Body)
	}
	if w.Header().Get("Location") != "" {
		t.Errorf("what was set of no answer has left: %v", w.Header())
	}
	if onLost == semel.Hold && rec.State != driver.Unknown || onLost == semel.Rerun && (rec.State != driver.Free || !rec.Maybe) {
		t.Errorf("%v: the record is %v, maybe %v", onLost, rec.State, rec.Maybe)
	}
	if !strings.Contains(rec.Error, refusal.NoAnswer.Error()) {
		t.Errorf("operators are told %q", rec.Error)
	}
}

// A handler that returns because the guard has ended its context has not answered, whatever silence means else.
func TestField02_R32a_AHandlerThatIsCutShortIsLost(t *testing.T) {
	t.Parallel()
	ends := map[string]struct {
		why  error
		only semel.LostPolicy // unless both
		both bool
		cut  func(f *faulty)
	}{
		"MaxRun": {why: semel.ErrMaxRun, both: true, cut: func(*faulty) {}},
		"the lease": {why: semel.ErrLeaseLost, only: semel.Rerun, cut: func(f *faulty) {
			f.extend = func(context.Context, driver.ID, driver.Owner, driver.Extension) (bool, error) { return false, errDown }
		}},
	}
	for name, c := range ends {
		for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
			if !c.both && onLost != c.only {
				continue
			}
			for _, emptyOK := range []bool{false, true} {
				t.Run(fmt.Sprint(name, " ", onLost, " empty ", emptyOK), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						f := &faulty{Store: memstore.New()}
						c.cut(f)
						p := shortLease(onLost)
						p.EmptyOK = emptyOK
						g, seen := newGuard(t, f, p)
						effects := 0
						h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							select {
							case <-r.Context().Done(): // as handlers do whose client has left
								return
							case <-time.After(time.Hour):
							}
							effects++
							w.WriteHeader(http.StatusCreated)
						}))
						w := answer(h, post("k", `{}`))
						lostSilently(t, w, loaded(t, f.Store, "k"), onLost)
						if effects != 0 || seen.count(event.NoAnswer) != 1 {
							t.Errorf("%d effects, %d events", effects, seen.count(event.NoAnswer))
						}
						for _, e := range seen.all() {
							if e.Kind == event.NoAnswer && !errors.Is(e.Err, c.why) {
								t.Errorf("the event says %v, want %v", e.Err, c.why)
							}
						}
					})
				})
			}
		}
	}
}

// A fenced owner that returns empty-handed gets what the record says.
func TestField02_R32a_R48_AFencedHandlerThatReturnsEmptyHandedChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		g, _ := newGuard(t, store, shortLease(semel.Rerun))
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec := loaded(t, store, "k")
			seized, err := store.Seize(t.Context(), keyed("k"), driver.Token{9})
			if err != nil || seized.Fence == rec.Fence {
				t.Errorf("seize: %v", err)
			}
			<-r.Context().Done()
		}))
		wantProblem(t, answer(h, post("k", `{}`)), http.StatusConflict, refusal.OutcomeUnknown)
		if rec := loaded(t, store, "k"); rec.State != driver.Unknown || rec.Token != (driver.Token{9}) {
			t.Errorf("the record is %v of %v", rec.State, rec.Token)
		}
	})
}

// A framework that writes its error after the guard has returned gives the guard no answer; the handler's word counts.
func TestField02_R32a_R44_AReleaseWithoutAnAnswerFreesTheKey(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	g, _ := newGuard(t, store, semel.Policy{})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if op := semel.FromContext(r.Context()); op.Attempt() == 1 {
			op.Release()
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	w := answer(h, post("k", `{}`))
	wantProblem(t, w, http.StatusInternalServerError, refusal.NoAnswer)
	if rec := loaded(t, store, "k"); rec.State != driver.Free || rec.Maybe || !strings.Contains(w.Body.String(), `"retryable":true`) {
		t.Errorf("the record is %v, maybe %v; the client is told %s", rec.State, rec.Maybe, w.Body)
	}
	wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "", false)
}

// In one-commit mode nothing has happened.
func TestField02_R32a_R31_NoAnswerInOneCommitIsRolledBack(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		s := newTransactor(t)
		g, seen := newGuard(t, s, semel.Policy{OneCommit: true, OnLost: onLost})
		for range 2 {
			w := answer(g.Wrap(silent), post("k", `{}`))
			wantProblem(t, w, http.StatusInternalServerError, refusal.NoAnswer)
			if !strings.Contains(w.Body.String(), `"retryable":true`) {
				t.Errorf("%v: the client is told %s", onLost, w.Body)
			}
		}
		if rec := loaded(t, s, "k"); rec.State != driver.Absent || seen.count(event.NoAnswer) != 2 {
			t.Errorf("%v: the record is %v, %d events", onLost, rec.State, seen.count(event.NoAnswer))
		}
		s.wantEffects()
	}
}

// What is observed is what would have happened; the client gets what its handler's server makes of it.
func TestField02_R32a_R92_NoAnswerIsObserved(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	g, seen := newGuard(t, store, semel.Policy{ObserveOnly: true})
	if w := answer(g.Wrap(silent), post("k", `{}`)); w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
	observedAll(t, g)
	if rec := only(t, store); rec.State != driver.Unknown {
		t.Errorf("the record is %v", rec.State)
	}
	decision := seen.observed(t)
	if decision.Result != event.Failed || decision.Code != refusal.NoAnswer || seen.count(event.NoAnswer) != 1 {
		t.Errorf("observed %+v, %d events", decision, seen.count(event.NoAnswer))
	}
}

// Nobody's run that gives no answer is run again, as often as any that is lost.
func TestField02_R32a_R52_ACompleterRunsAgainWhatGaveNoAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		g, _ := newFinishing(t, store, finishing())
		var l ledger
		h := g.Wrap(counted(&l, func(w http.ResponseWriter, _ *http.Request, n int) {
			if n == 3 {
				w.WriteHeader(http.StatusCreated)
			}
		}))
		wantProblem(t, answer(h, post("k", `{}`)), http.StatusInternalServerError, refusal.NoAnswer)
		stop := finish(t, g, h, semel.CompleterOptions{})
		time.Sleep(time.Minute)
		stop()
		if rec := loaded(t, store, "k"); rec.State != driver.Done || l.count() != 3 {
			t.Errorf("%v after %d runs, want done after 3", rec.State, l.count())
		}
	})
}

// The client of an operation that is left open is told where to ask.
func TestField02_R32a_R33_NoAnswerCarriesTheLink(t *testing.T) {
	t.Parallel()
	g, _ := newGuardWith(t, nil, semel.Options{Operations: "/operations"})
	w := answer(g.Wrap(silent), post("k", `{}`))
	if want := "</operations/" + keyed("k").String() + `>; rel="status"`; w.Header().Get("Link") != want {
		t.Errorf("the link is %q, want %q", w.Header().Get("Link"), want)
	}
}
