package semel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/refusal"
)

// What a handler writes, sets or starts after the commit is not a part of its answer: not of the live one, and not of
// what repeats get.
func TestR31_R34_TheCommitFreezesTheAnswer(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		s := newTransactor(t)
		g, _ := newGuard(t, s, m.policy)
		server := httptest.NewServer(g.Wrap(s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
			effect(tx, "paid")
			w.Header().Set("Trailer", "T-Sum")
			w.Header().Set("X-First", "1")
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, "paid")
			w.Header().Set("T-Sum", "4")
			w.Header().Set(http.TrailerPrefix+"T-More", "in")
			return nil
		}, func(w http.ResponseWriter, r *http.Request, err error) {
			if err != nil {
				t.Errorf("RunTx: %v", err)
			}
			w.Header().Set("X-First", "2")
			w.Header().Set("X-Late", "1")
			w.Header().Set("T-Sum", "5")
			w.Header().Set(http.TrailerPrefix+"T-More", "after")
			w.Header().Set(http.TrailerPrefix+"T-Late", "after")
			w.WriteHeader(http.StatusInternalServerError)
			if n, err := w.Write([]byte("late")); n != 0 || !errors.Is(err, semel.ErrSettled) {
				t.Errorf("write: %d, %v", n, err)
			}
			if _, err := io.WriteString(w, "late"); !errors.Is(err, semel.ErrSettled) {
				t.Errorf("write a string: %v", err)
			}
			if _, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("late")); !errors.Is(err, semel.ErrSettled) {
				t.Errorf("read from: %v", err)
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
			if _, _, err := w.(http.Hijacker).Hijack(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("hijack: %v", err)
			}
			if err := semel.RunTx(r.Context(), s, func(context.Context, driver.Tx) error {
				t.Error("a transaction after the commit")
				return nil
			}); !errors.Is(err, semel.ErrSettled) {
				t.Errorf("a second transaction: %v", err)
			}
		})))
		defer server.Close()
		for attempt := range 3 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Idempotency-Key", "k")
			res, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil || res.StatusCode != http.StatusCreated || string(body) != "paid" {
				t.Errorf("answer %d: %d %q, %v", attempt, res.StatusCode, body, err)
			}
			if res.Header.Get("X-First") != "1" || res.Header.Get("X-Late") != "" {
				t.Errorf("answer %d: headers %v", attempt, res.Header)
			}
			if want := (http.Header{"T-Sum": {"4"}, "T-More": {"in"}}); !reflect.DeepEqual(res.Trailer, want) {
				t.Errorf("answer %d: trailers %v, want %v", attempt, res.Trailer, want)
			}
		}
		s.wantEffects("paid")
	})
}

// A handler may try again after a rollback: nothing of the first attempt is in the answer of the second, an error that
// was answered in it included.
func TestR31_AHandlerTriesAgain(t *testing.T) {
	t.Parallel()
	for _, first := range []int{0, 201, 409, 500} {
		for _, m := range txModes() {
			t.Run(m.name+"/"+http.StatusText(first), func(t *testing.T) {
				t.Parallel()
				s := newTransactor(t)
				g, _ := newGuard(t, s, m.policy)
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("X-Before", "kept")
					h := w.Header()
					attempts := 0
					for {
						attempts++
						err := semel.RunTx(r.Context(), s, func(_ context.Context, tx driver.Tx) error {
							if attempts > 1 {
								return paying(w, r, tx)
							}
							effect(tx, "dropped")
							h.Set("X-First", "dropped")
							h.Set("Trailer", "T-First")
							h.Set("T-First", "dropped")
							if first > 0 {
								semel.FromContext(r.Context()).Release()
								w.WriteHeader(first)
								io.WriteString(w, "dropped")
							}
							return errDeclined
						})
						switch {
						case attempts == 1 && errors.Is(err, errDeclined):
							continue
						case err != nil:
							t.Errorf("attempt %d: %v", attempts, err)
						}
						return
					}
				}))
				for attempt := range 2 {
					w := answer(h, post("k", `{}`))
					wantAnswer(t, w, http.StatusCreated, "paid", attempt > 0)
					res := w.Result()
					if res.Header.Get("X-Before") != "kept" || res.Header.Get("X-First") != "" || len(res.Trailer) > 0 {
						t.Errorf("headers %v, trailers %v", res.Header, res.Trailer)
					}
				}
				s.wantEffects("paid")
			})
		}
	}
}

// So it may if its first answer was too large to keep in memory, or at all.
func TestR31_AHandlerTriesAgainWithASmallerAnswer(t *testing.T) {
	t.Parallel()
	for _, room := range []bool{true, false} {
		for _, m := range txModes() {
			t.Run(fmt.Sprint(m.name, "/", room), func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "answers")
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				s := newTransactor(t)
				p := m.policy
				p.MaxResponseBody = 1000
				g, _ := newGuardWith(t, s, semel.Options{TempDir: dir, Policy: p})
				if !room {
					if err := os.Remove(dir); err != nil {
						t.Fatal(err)
					}
				}
				h := g.Wrap(s.working(func(w http.ResponseWriter, _ *http.Request, tx driver.Tx) error {
					w.Header().Set("Content-Length", "5000")
					io.WriteString(w, strings.Repeat("x", 5000))
					return errDeclined
				}, func(w http.ResponseWriter, r *http.Request, _ error) { s.working(paying, nil).ServeHTTP(w, r) }))
				for attempt := range 2 {
					wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", attempt > 0)
				}
				s.wantEffects("paid")
			})
		}
	}
}

// An answer that was written before its transaction survives a commit that was refused: the handler may try that again.
func TestR31_AnAnswerWrittenBeforeIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusCreated, http.StatusNotFound} {
		for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
			t.Run(fmt.Sprint(onLost, "/", status), func(t *testing.T) {
				t.Parallel()
				s := newTransactor(t)
				s.commit = commitRefused
				g, _ := newGuard(t, s, inRealTime(shortLease(onLost)))
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(status)
					io.WriteString(w, "before")
					do := func() error {
						return semel.RunTx(r.Context(), s, func(_ context.Context, tx driver.Tx) error {
							effect(tx, "paid")
							return nil
						})
					}
					if err := do(); !errors.Is(err, driver.ErrRolledBack) {
						t.Errorf("RunTx: %v", err)
					}
					s.commit = nil
					if err := do(); err != nil {
						t.Errorf("RunTx, again: %v", err)
					}
				}))
				for attempt := range 2 {
					wantAnswer(t, answer(h, post("k", `{}`)), status, "before", attempt > 0)
				}
				s.wantEffects("paid")
			})
		}
	}
}

// An answer that was written before the transaction is the transaction's answer, and stays when that is rolled back.
func TestR31_AnAnswerWrittenBefore(t *testing.T) {
	t.Parallel()
	nothingMore := func(err error) func(http.ResponseWriter, driver.Tx) error {
		return func(w http.ResponseWriter, tx driver.Tx) error {
			effect(tx, "paid")
			w.WriteHeader(http.StatusTeapot)
			return err
		}
	}
	for _, c := range []struct {
		name    string
		modes   string
		before  int
		err     error
		returns error
		status  int
		code    refusal.Code
		effects int
	}{
		{"a success, committed", "hold rerun one-commit", 201, nil, nil, 201, "", 1},
		{"a success, rolled back", "hold rerun one-commit", 201, errDeclined, errDeclined, 503, refusal.StoreUnavailable, 0},
		{"a refusal, committed", "hold rerun one-commit", 404, nil, nil, 404, "", 1},
		{"a refusal, rolled back", "hold rerun one-commit", 404, errDeclined, errDeclined, 404, "", 0},
		{"an error that is kept", "hold one-commit", 500, nil, nil, 500, "", 1},
		{"an error that is released", "rerun", 500, nil, driver.ErrRolledBack, 500, "", 0},
	} {
		for _, m := range txModes() {
			if !strings.Contains(c.modes, m.name) {
				continue
			}
			for _, retried := range []bool{false, true} { // whether a transaction was rolled back before it was written
				t.Run(c.name+"/"+m.name, func(t *testing.T) {
					t.Parallel()
					s := newTransactor(t)
					g, _ := newGuard(t, s, m.policy)
					h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if retried {
							s.working(answering(201, errDeclined), nil).ServeHTTP(w, r)
						}
						w.WriteHeader(c.before)
						io.WriteString(w, "before")
						if err := semel.RunTx(r.Context(), s, func(_ context.Context, tx driver.Tx) error {
							return nothingMore(c.err)(w, tx)
						}); !errors.Is(err, c.returns) {
							t.Errorf("RunTx: %v, want %v", err, c.returns)
						}
					}))
					w := answer(h, post("k", `{}`))
					if c.code != "" {
						wantProblem(t, w, c.status, c.code)
					} else {
						wantAnswer(t, w, c.status, "before", false)
					}
					s.wantEffects([]string{"paid"}[:c.effects]...)
				})
			}
		}
	}
}

// On a streaming route nothing of a transaction leaves before its commit, and no success after a rollback: with its
// first byte the operation would have begun, and could not be run again.
func TestR31_R38_StreamsWait(t *testing.T) {
	t.Parallel()
	stream := func(w http.ResponseWriter, texts ...string) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, text := range texts {
			io.WriteString(w, text)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
		}
	}
	for _, c := range []struct {
		name  string
		h     func(t *testing.T, s *transactor, left func() bool) http.HandlerFunc
		want  string // "" means that nothing has happened
		state driver.State
	}{
		{"in it", func(t *testing.T, s *transactor, left func() bool) http.HandlerFunc {
			return s.working(func(w http.ResponseWriter, _ *http.Request, tx driver.Tx) error {
				effect(tx, "paid")
				stream(w, "one", "two")
				if left() {
					t.Error("a part has left before the commit")
				}
				return nil
			}, nil).ServeHTTP
		}, "onetwo", driver.Done},
		{"written before", func(t *testing.T, s *transactor, left func() bool) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				w.WriteHeader(http.StatusOK) // goes out with the first byte
				s.working(func(w http.ResponseWriter, _ *http.Request, tx driver.Tx) error {
					effect(tx, "paid")
					stream(w, "one")
					return nil
				}, nil).ServeHTTP(w, r)
			}
		}, "one", driver.Done},
		{"after a rollback", func(t *testing.T, s *transactor, left func() bool) http.HandlerFunc {
			return s.working(answering(201, errDeclined), func(w http.ResponseWriter, _ *http.Request, _ error) {
				stream(w, "one", "two")
				if left() {
					t.Error("a success has left after the rollback")
				}
			}).ServeHTTP
		}, "", driver.Free},
		{"written before a rollback", func(t *testing.T, s *transactor, left func() bool) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				w.WriteHeader(http.StatusOK)
				s.working(func(w http.ResponseWriter, _ *http.Request, tx driver.Tx) error {
					effect(tx, "dropped")
					return errDeclined
				}, func(w http.ResponseWriter, _ *http.Request, _ error) { stream(w, "one") }).ServeHTTP(w, r)
			}
		}, "", driver.Free},
		{"an error in a rollback, and more of it", func(t *testing.T, s *transactor, left func() bool) http.HandlerFunc {
			return s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
				semel.FromContext(r.Context()).Keep()
				w.WriteHeader(http.StatusInternalServerError)
				stream(w, "one")
				return errDeclined
			}, func(w http.ResponseWriter, _ *http.Request, _ error) { stream(w, "two") }).ServeHTTP
		}, "onetwo", driver.Done},
	} {
		for _, m := range txModes() {
			t.Run(c.name+"/"+m.name, func(t *testing.T) {
				t.Parallel()
				s := newTransactor(t)
				p := m.policy
				p.Stream = !m.onlyOne()
				g, _ := newGuard(t, s, p)
				w := httptest.NewRecorder()
				left := func() bool { return w.Flushed || w.Body.Len() > 0 || loaded(t, s, "k").Begun }
				g.Wrap(c.h(t, s, left)).ServeHTTP(w, post("k", `{}`))
				if c.want == "" {
					wantProblem(t, w, http.StatusServiceUnavailable, refusal.StoreUnavailable)
				} else if w.Body.String() != c.want {
					t.Errorf("answered %d %q, want %q", w.Code, w.Body, c.want)
				}
				state := c.state
				if m.onlyOne() && state == driver.Free {
					state = driver.Absent
				}
				if rec := loaded(t, s, "k"); rec.State != state || rec.Begun || (state == driver.Done) != (rec.Response != nil) {
					t.Errorf("the record is %v, begun %v, want %v", rec.State, rec.Begun, state)
				}
				drained(t, g)
			})
		}
	}
}

// An answer that has left in part can't be part of a transaction: none is begun, and the stream goes on.
func TestR31_R38_NoTransactionAfterTheFirstByte(t *testing.T) {
	t.Parallel()
	s := newTransactor(t)
	g, _ := newGuard(t, s, semel.Policy{Stream: true})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "one")
		err := semel.RunTx(r.Context(), s, func(context.Context, driver.Tx) error {
			t.Error("it has run")
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "left in part") {
			t.Errorf("RunTx: %v", err)
		}
		io.WriteString(w, "two")
	}))
	wantAnswer(t, answer(h, post("k", `{}`)), http.StatusOK, "onetwo", false)
	wantAnswer(t, answer(h, post("k", `{}`)), http.StatusOK, "onetwo", true)
	if s.began() != 0 {
		t.Errorf("%d transactions", s.began())
	}
}

// A connection is not handed over in a transaction, nor after it: what is done with it could not be taken back.
func TestR31_NoHijackWithATransaction(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		s := newTransactor(t)
		g, _ := newGuard(t, s, m.policy)
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		hijack := func(w http.ResponseWriter) {
			if _, _, err := w.(http.Hijacker).Hijack(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("hijack: %v", err)
			}
		}
		w := httptest.NewRecorder()
		g.Wrap(s.working(func(w http.ResponseWriter, _ *http.Request, _ driver.Tx) error {
			hijack(w)
			return errDeclined
		}, func(w http.ResponseWriter, _ *http.Request, _ error) { hijack(w) })).ServeHTTP(hijackable{w, server}, post("k", `{}`))
		wantProblem(t, w, http.StatusServiceUnavailable, refusal.StoreUnavailable)
		drained(t, g)
	})
}

// An answer above the limit is part of the transaction too: it is sent whole once that has committed, and leaves no
// file behind, however the transaction ends.
func TestR31_R38_LargeAnswers(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 5000)
	write := func(err error) func(http.ResponseWriter, *http.Request, driver.Tx) error {
		return func(w http.ResponseWriter, _ *http.Request, tx driver.Tx) error {
			effect(tx, "paid")
			io.WriteString(w, large)
			return err
		}
	}
	for _, c := range []struct {
		name    string
		commit  func(execute func() error) error
		in      func(http.ResponseWriter, *http.Request, driver.Tx) error
		after   func(http.ResponseWriter, *http.Request, error)
		body    string // of a 200; else nothing has happened
		effects int
	}{
		{name: "committed", in: write(nil), body: large, effects: 1},
		{name: "committed, reply lost", commit: commitUnheard, in: write(nil), body: large, effects: 1},
		{name: "rolled back", in: write(errDeclined)},
		{name: "rolled back, then as large a success", in: write(errDeclined), after: func(w http.ResponseWriter, _ *http.Request, _ error) {
			io.WriteString(w, large)
		}},
		{name: "refused", commit: commitRefused, in: write(nil)},
		{name: "lost", commit: commitLost, in: write(nil)},
	} {
		for _, m := range txModes() {
			t.Run(c.name+"/"+m.name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				s := newTransactor(t)
				s.commit = c.commit
				p := m.policy
				p.MaxResponseBody = 1000
				g, _ := newGuardWith(t, s, semel.Options{TempDir: dir, Policy: p})
				h := g.Wrap(s.working(c.in, func(w http.ResponseWriter, r *http.Request, err error) {
					if c.body == "" && err != nil && !errors.Is(err, errDown) && openFiles(t, dir) > 0 {
						t.Error("what was dropped is still held")
					}
					if c.after != nil {
						c.after(w, r, err)
					}
				}))
				w := answer(h, post("k", `{}`))
				if c.body == "" {
					wantProblem(t, w, http.StatusServiceUnavailable, refusal.StoreUnavailable)
				} else {
					wantAnswer(t, w, http.StatusOK, c.body, false)
					wantProblem(t, answer(h, post("k", `{}`)), http.StatusConflict, refusal.ReplayUnavailable)
				}
				s.wantEffects([]string{"paid"}[:c.effects]...)
				if n := openFiles(t, dir); n != 0 {
					t.Errorf("%d files left", n)
				}
			})
		}
	}
}

// With nowhere to keep a large answer the transaction has none, and is rolled back.
func TestR31_ALargeAnswerThatCannotBeKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		status int // of the answer in the transaction
		want   int
		code   map[string]refusal.Code
		repeat string
	}{
		{"a success", 201, 503, map[string]refusal.Code{"": refusal.StoreUnavailable}, runs},
		{"a refusal", 422, 409, map[string]refusal.Code{"": refusal.ReplayUnavailable}, noReply},
		{"a refusal that is released", 429, 409, map[string]refusal.Code{"": refusal.InProgress, "one-commit": refusal.StoreUnavailable}, runs},
	} {
		for _, m := range txModes() {
			t.Run(c.name+"/"+m.name, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "gone")
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				s := newTransactor(t)
				p := m.policy
				p.MaxResponseBody = 1000
				g, _ := newGuardWith(t, s, semel.Options{TempDir: dir, Policy: p})
				if err := os.Remove(dir); err != nil {
					t.Fatal(err)
				}
				times := 0
				h := g.Wrap(s.working(func(w http.ResponseWriter, _ *http.Request, tx driver.Tx) error {
					times++
					effect(tx, "paid")
					w.WriteHeader(c.status)
					io.WriteString(w, strings.Repeat("x", 5000)) // the handler does not look
					return nil
				}, func(_ http.ResponseWriter, _ *http.Request, err error) {
					if !errors.Is(err, os.ErrNotExist) {
						t.Errorf("RunTx: %v", err)
					}
				}))
				want, ok := c.code[m.name]
				if !ok {
					want = c.code[""]
				}
				if w := answer(h, post("k", `{}`)); refusalCode(w) != want {
					t.Errorf("answered %d %s, want %s", w.Code, w.Body, want)
				}
				answer(h, post("k", `{}`))
				if runsAgain := times == 2; runsAgain != (c.repeat == runs) {
					t.Errorf("run %d times, want a repeat to get %s", times, c.repeat)
				}
				s.wantEffects()
			})
		}
	}
}

// However the handler is thrown out of its transaction, or after it, the run is settled by what was committed.
func TestR32_R31_ExitsWithATransaction(t *testing.T) {
	t.Parallel()
	exits := []struct {
		name string
		do   func()
	}{
		{"panic", func() { panic("gone") }},
		{"abort", func() { panic(http.ErrAbortHandler) }},
		{"goexit", runtime.Goexit},
	}
	derive := func(r *http.Request) { semel.FromContext(r.Context()).Key("charge") }
	for _, c := range []struct {
		name    string
		modes   string
		commit  func(execute func() error) error
		handler func(s *transactor, exit func()) http.Handler
		effects int
		repeat  string
	}{
		{"in it", "hold rerun one-commit", nil, func(s *transactor, exit func()) http.Handler {
			return s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
				payIn(tx, w)
				exit()
				return nil
			}, nil)
		}, 0, runs},
		{"after a rollback", "hold rerun one-commit", nil, func(s *transactor, exit func()) http.Handler {
			return s.working(answering(201, errDeclined), func(http.ResponseWriter, *http.Request, error) { exit() })
		}, 0, runs},
		{"in it, a key was derived", "hold", nil, func(s *transactor, exit func()) http.Handler {
			return s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
				derive(r)
				exit()
				return nil
			}, nil)
		}, 0, unknown},
		{"in it, a key was derived", "rerun one-commit", nil, func(s *transactor, exit func()) http.Handler {
			return s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
				derive(r)
				exit()
				return nil
			}, nil)
		}, 0, runs},
		{"in it, lost", "hold", nil, func(s *transactor, exit func()) http.Handler {
			return s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
				semel.FromContext(r.Context()).Lost(errDeclined)
				exit()
				return nil
			}, nil)
		}, 0, unknown},
		{"after the commit", "hold rerun one-commit", nil, func(s *transactor, exit func()) http.Handler {
			return s.working(paying, func(http.ResponseWriter, *http.Request, error) { exit() })
		}, 1, replays},
		{"after a commit without a reply", "hold rerun one-commit", commitUnheard, func(s *transactor, exit func()) http.Handler {
			return s.working(paying, func(http.ResponseWriter, *http.Request, error) { exit() })
		}, 1, replays},
		{"after a commit that was lost", "hold rerun one-commit", commitLost, func(s *transactor, exit func()) http.Handler {
			return s.working(paying, func(http.ResponseWriter, *http.Request, error) { exit() })
		}, 0, runs},
		{"without one", "hold", nil, func(s *transactor, exit func()) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { exit() })
		}, 0, unknown},
		{"without one", "rerun one-commit", nil, func(s *transactor, exit func()) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { exit() })
		}, 0, runs},
	} {
		for _, exit := range exits {
			for _, m := range txModes() {
				if !strings.Contains(c.modes, m.name) {
					continue
				}
				t.Run(c.name+"/"+exit.name+"/"+m.name, func(t *testing.T) {
					t.Parallel()
					s := newTransactor(t)
					s.commit = c.commit
					g, seen := newGuard(t, s, m.policy)
					times := 0
					h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if times++; times > 1 {
							w.WriteHeader(http.StatusNoContent)
							return
						}
						c.handler(s, exit.do).ServeHTTP(w, r)
					}))
					first := serve(h, post("k", `{}`))
					<-first.done
					if first.exited != (exit.name == "goexit") || (first.thrown == nil) != (exit.name == "goexit") || first.w.Body.Len() > 0 {
						t.Errorf("threw %v, exited %v, answered %q", first.thrown, first.exited, first.w.Body)
					}
					drained(t, g)
					s.wantEffects([]string{"paid"}[:c.effects]...)
					if seen.count(event.Panic) != 1 || !reflect.DeepEqual(seen.results(), []event.Result{event.Failed}) {
						t.Errorf("%d panics, decisions %v", seen.count(event.Panic), seen.results())
					}
					s.commit = nil
					again := answer(h, post("k", `{}`))
					switch {
					case c.repeat == replays:
						wantAnswer(t, again, http.StatusCreated, "paid", true)
					case (times == 2) != (c.repeat == runs), c.repeat != runs && refusalCode(again) != refusal.Code(c.repeat):
						t.Errorf("run %d times, the repeat got %d %s; want %s", times, again.Code, again.Body, c.repeat)
					}
				})
			}
		}
	}
}

// A policy's function that throws in the middle of a transaction rolls it back.
func TestR31_R32_DecideThrowsInATransaction(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		s := newTransactor(t)
		p, throws := m.policy, true
		p.Decide = func(int, http.Header, []byte) semel.Verdict {
			if throws {
				panic("undecided")
			}
			return semel.VerdictDefault
		}
		g, _ := newGuard(t, s, p)
		h := g.Wrap(s.working(paying, nil))
		if got := thrown(h, httptest.NewRecorder(), post("k", `{}`)); got != "undecided" {
			t.Errorf("threw %v", got)
		}
		drained(t, g)
		s.wantEffects()
		throws = false
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", false)
		s.wantEffects("paid")
	})
}

// What was committed shares the answer's headers: a flush after the commit must not touch them.
func TestR31_R34_AFlushAfterTheCommitChangesNothing(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		s := newTransactor(t)
		g, _ := newGuard(t, s, m.policy)
		h := g.Wrap(s.working(func(w http.ResponseWriter, _ *http.Request, tx driver.Tx) error {
			effect(tx, "paid")
			w.Header().Set("Location", "/payments/1")
			w.WriteHeader(http.StatusCreated)
			return nil
		}, func(w http.ResponseWriter, _ *http.Request, _ error) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
			if got, want := loaded(t, s, "k").Response.Header, (http.Header{"Location": {"/payments/1"}}); !reflect.DeepEqual(got, want) {
				t.Errorf("stored are %v, want %v", got, want)
			}
		}))
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "", false)
	})
}
