package semel_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// streams are the two ways of being streamed.
var streams = []struct {
	name   string
	policy semel.Policy
	typ    string
}{
	{"route", semel.Policy{Stream: true}, "text/plain"},
	{"event stream", semel.Policy{}, `Text/Event-Stream; charset="utf-8"`},
}

func TestR38_BegunIsDurableBeforeTheFirstByteAndBytesGoOutAtOnce(t *testing.T) {
	t.Parallel()
	for _, proto := range wires {
		for _, st := range streams {
			t.Run(proto+"/"+st.name, func(t *testing.T) {
				t.Parallel()
				s, l := memstore.New(), &ledger{}
				p := st.policy
				p.OnLost = semel.Rerun
				g, _ := newGuard(t, s, p)
				more := make(chan struct{})
				w := newWire(t, proto, g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					l.add()
					w.Header().Set("Content-Type", st.typ)
					if rec := only(t, s); rec.Begun {
						t.Error("begun before there was a byte")
					}
					io.WriteString(w, "one\n")
					<-more
					io.WriteString(w, "two\n")
				})))
				res, early, err := w.open(t.Context(), "k", "{}")
				if err != nil {
					t.Fatal(err)
				}
				in := bufio.NewReader(res.Body)
				if line, err := in.ReadString('\n'); line != "one\n" || err != nil {
					t.Errorf("first line %q, %v", line, err)
				}
				if rec := only(t, s); !rec.Begun || rec.State != driver.Running {
					t.Errorf("with the first byte out the record is %v, begun %t", rec.State, rec.Begun)
				}
				if r := w.send(t, "k", "{}"); r.status != http.StatusConflict || !strings.Contains(r.body, string(refusal.InProgress)) {
					t.Errorf("meanwhile a repeat got %d %q", r.status, r.body)
				}
				close(more)
				rest, err := io.ReadAll(in)
				if string(rest) != "two\n" || err != nil {
					t.Errorf("the rest is %q, %v", rest, err)
				}
				drain(res, early)
				if r := w.send(t, "k", "{}"); r.body != "one\ntwo\n" || !r.marked() || r.header.Get("Content-Type") != st.typ {
					t.Errorf("the repeat got %d %v %q", r.status, r.header, r.body)
				}
				if l.count() != 1 {
					t.Errorf("%d executions", l.count())
				}
			})
		}
	}
}

func TestR38_FlushSendsTheHeaderOfAStream(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuard(t, s, semel.Policy{Stream: true})
	more := make(chan struct{})
	w := newWire(t, "HTTP/1.1", g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-A", "1")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
		<-more
		io.WriteString(w, "x")
	})))
	res, early, err := w.open(t.Context(), "k", "{}")
	if err != nil {
		t.Fatal(err)
	}
	if !only(t, s).Begun || res.Header.Get("X-A") != "1" || res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the header came with begun %t: %v", only(t, s).Begun, res.Header)
	}
	close(more)
	if r := drain(res, early); r.body != "x" || r.err != nil {
		t.Errorf("got %q, %v", r.body, r.err)
	}
}

// The client of a stream whose length is declared has the whole answer with its last byte: that one waits for the
// settle.
func TestR38_TheLastByteOfADeclaredLengthWaitsForTheSettle(t *testing.T) {
	t.Parallel()
	for _, proto := range wires {
		s := &faulty{Store: memstore.New()}
		held, open := make(chan struct{}), make(chan struct{})
		s.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			close(held)
			<-open
			return s.Store.Settle(ctx, id, by, o)
		}
		g, _ := newGuard(t, s, semel.Policy{Stream: true})
		w := newWire(t, proto, g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "01234")
			io.WriteString(w, "56789")
		})))
		res, early, err := w.open(t.Context(), "k", "{}")
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 9)
		if _, err := io.ReadFull(res.Body, first); string(first) != "012345678" || err != nil {
			t.Errorf("got %q, %v before the settle", first, err)
		}
		<-held
		last := make(chan *reply, 1)
		go func() { last <- drain(res, early) }()
		select {
		case r := <-last:
			t.Errorf("the answer ended with %q, %v before its settle", r.body, r.err)
		default:
		}
		close(open)
		if r := <-last; r.body != "9" || r.err != nil || r.length != 10 {
			t.Errorf("the end is %q, %v, length %d", r.body, r.err, r.length)
		}
	}
}

// A stream that can't end well is broken off, whatever layers above the guard make of a panic; its repeats are told
// that there is no replay.
func TestR38_R32_AStreamThatCannotEndWellIsBrokenOff(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	tests := []struct {
		name string
		end  func(t *testing.T, s *faulty, r *http.Request)
	}{
		{"panic", func(*testing.T, *faulty, *http.Request) { panic("boom") }},
		{"abort", func(*testing.T, *faulty, *http.Request) { panic(http.ErrAbortHandler) }},
		{"goexit", func(*testing.T, *faulty, *http.Request) { runtime.Goexit() }},
		{"lost", func(_ *testing.T, _ *faulty, r *http.Request) { semel.FromContext(r.Context()).Lost(down) }},
		{"fenced", func(t *testing.T, s *faulty, _ *http.Request) { seized(t, s.Store.(*memstore.Store)) }},
		{"settle not acknowledged", func(_ *testing.T, s *faulty, _ *http.Request) {
			s.set(func(f *faulty) {
				f.settle = func(context.Context, driver.ID, driver.Owner, driver.Outcome) (driver.Record, bool, error) {
					return driver.Record{}, false, down
				}
			})
		}},
	}
	for _, proto := range wires {
		for _, declared := range []bool{false, true} {
			for _, patience := range []time.Duration{0, time.Minute} {
				for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
					for _, tt := range tests {
						t.Run(fmt.Sprint(proto, "/", tt.name, "/declared ", declared, "/patience ", patience, "/", onLost), func(t *testing.T) {
							t.Parallel()
							s, l := &faulty{Store: memstore.New()}, &ledger{}
							g, _ := newGuard(t, s, semel.Policy{
								Stream: true, OnLost: onLost, Patience: patience, SettleWait: 100 * time.Millisecond,
							})
							inner := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
								l.add()
								if declared {
									w.Header().Set("Content-Length", "5")
								}
								io.WriteString(w, "whole")
								tt.end(t, s, r)
							}))
							w := newWire(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
								defer func() { recover() }() //nolint:errcheck // as middleware does
								inner.ServeHTTP(w, r)
							}))
							if r := w.send(t, "k", "{}"); r.status != 0 && !r.broken() {
								t.Errorf("the client got %d %q as if it were whole", r.status, r.body)
							}
							s.set(func(f *faulty) { f.settle = nil })
							if err := g.Drain(t.Context()); err != nil {
								t.Error(err)
							}
							if tt.name == "fenced" {
								if l.count() != 1 {
									t.Errorf("%d executions", l.count())
								}
								return
							}
							r := w.send(t, "k", "{}")
							if tt.name == "settle not acknowledged" {
								// The answer became durable once the store was back.
								if r.body != "whole" || !r.marked() {
									t.Errorf("the repeat got %d %q", r.status, r.body)
								}
							} else {
								unavailable(t, r)
							}
							if l.count() != 1 {
								t.Errorf("%d executions", l.count())
							}
						})
					}
				}
			}
		}
	}
}

func TestR38_AStreamOverTheLimitIsSentWholeAndNotReplayed(t *testing.T) {
	t.Parallel()
	for _, proto := range wires {
		l := &ledger{}
		dir := t.TempDir()
		g, seen := newGuardWith(t, nil, semel.Options{TempDir: dir, Policy: semel.Policy{Stream: true, MaxResponseBody: 100}})
		w := newWire(t, proto, g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			l.add()
			for range 30 {
				io.WriteString(w, "0123456789")
			}
			if n := openFiles(t, dir); n > 0 {
				t.Errorf("a stream made %d files", n)
			}
		})))
		if r := w.send(t, "k", "{}"); r.body != strings.Repeat("0123456789", 30) || r.err != nil {
			t.Errorf("the client got %d bytes, %v", len(r.body), r.err)
		}
		unavailable(t, w.send(t, "k", "{}"))
		if l.count() != 1 || seen.count(event.NotReplayable) != 1 {
			t.Errorf("%d executions, %d events", l.count(), seen.count(event.NotReplayable))
		}
	}
}

// Nothing that promises that nothing happened may begin: it could not be run again.
func TestR38_R42_ReleasedAnswersNeverBegin(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		policy semel.Policy
		f      http.HandlerFunc
	}{
		{"by status", semel.Policy{Stream: true}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }},
		{"by status, event stream", semel.Policy{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusTooManyRequests)
		}},
		{"only success is kept", semel.Policy{Stream: true, KeepOnlySuccess: true}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict) }},
		{"errors are released", semel.Policy{Stream: true, OnLost: semel.Rerun}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }},
		{"asked for", semel.Policy{Stream: true}, func(_ http.ResponseWriter, r *http.Request) { semel.FromContext(r.Context()).Release() }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, l := memstore.New(), &ledger{}
			g, _ := newGuard(t, s, tt.policy)
			h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := l.add()
				tt.f(w, r)
				w.(http.Flusher).Flush()
				fmt.Fprint(w, "run ", n)
				if only(t, s).Begun {
					t.Error("begun")
				}
			}))
			for n := 1; n <= 2; n++ {
				if w := answer(h, post("k", "{}")); w.Body.String() != fmt.Sprint("run ", n) || w.Flushed {
					t.Errorf("got %d %q, flushed %t", w.Code, w.Body, w.Flushed)
				}
			}
		})
	}
}

// What the handler keeps although its status alone would be released may begin.
func TestR38_R44_AKeptErrorIsStreamed(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuard(t, s, semel.Policy{Stream: true})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		semel.FromContext(r.Context()).Keep()
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, "x")
		if !only(t, s).Begun {
			t.Error("not begun")
		}
	}))
	for _, name := range []string{"live", "repeat"} {
		w := answer(h, post("k", "{}"))
		if w.Code != http.StatusServiceUnavailable || w.Body.String() != "x" || w.Header().Get("Idempotency-Retryable") != "false" {
			t.Errorf("%s: %d %v %q", name, w.Code, w.Header(), w.Body)
		}
	}
}

// A stream is settled by what was asked for at its end, but it can't be run again: what would have been released is
// done without an answer.
func TestR38_R44_AStreamReleasedTooLateIsNotRunAgain(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	g, _ := newGuard(t, nil, semel.Policy{Stream: true, OnLost: semel.Rerun})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.add()
		io.WriteString(w, "x")
		semel.FromContext(r.Context()).Release()
	}))
	if w := answer(h, post("k", "{}")); w.Body.String() != "x" {
		t.Errorf("the client got %q", w.Body)
	}
	wantRefused(t, answer(h, post("k", "{}")), http.StatusConflict, refusal.ReplayUnavailable)
	if l.count() != 1 {
		t.Errorf("%d executions", l.count())
	}
}

func TestR38_NoByteLeavesIfBegunIsRefused(t *testing.T) {
	t.Parallel()
	for _, flush := range []bool{false, true} {
		s := &faulty{Store: memstore.New()}
		g, seen := newGuard(t, s, semel.Policy{Stream: true})
		var failed error
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			seized(t, s.Store.(*memstore.Store))
			if flush {
				failed = http.NewResponseController(w).Flush()
			} else {
				_, failed = io.WriteString(w, "secret")
			}
			if _, err := io.WriteString(w, "secret"); err == nil {
				t.Error("the second write succeeded")
			}
		}))
		w := answer(h, post("k", "{}"))
		if !errors.Is(failed, semel.ErrFenced) || strings.Contains(w.Body.String(), "secret") || w.Flushed {
			t.Errorf("flush %t: %v; the client got %d %q", flush, failed, w.Code, w.Body)
		}
		wantRefused(t, w, http.StatusConflict, refusal.OutcomeUnknown)
		if seen.count(event.Fenced) != 1 {
			t.Errorf("%d fenced events", seen.count(event.Fenced))
		}
	}
}

func TestR38_NoByteLeavesIfTheStoreIsDownAtTheBegin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		onLost semel.LostPolicy
		status int
		code   refusal.Code
	}{
		{semel.Hold, http.StatusConflict, refusal.OutcomeUnknown},
		{semel.Rerun, http.StatusServiceUnavailable, refusal.OutcomePending},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, l := &faulty{Store: memstore.New()}, &ledger{}
			g, _ := newGuard(t, s, semel.Policy{Stream: true, OnLost: tt.onLost})
			down := errors.New("down")
			s.extend = func(context.Context, driver.ID, driver.Owner, driver.Extension) (bool, error) { return false, down }
			h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if n := l.add(); n > 1 {
					s.set(func(f *faulty) { f.extend = nil })
				}
				start := time.Now()
				_, err := io.WriteString(w, "answer")
				if l.count() == 1 && !errors.Is(err, down) {
					t.Errorf("write: %v", err)
				}
				if d := time.Since(start); d > usualSettleWait {
					t.Errorf("the first write took %v", d)
				}
			}))
			w := answer(h, post("k", "{}"))
			wantRefused(t, w, tt.status, tt.code)
			again := answer(h, post("k", "{}"))
			if tt.onLost == semel.Hold {
				wantRefused(t, again, tt.status, tt.code)
			} else if again.Body.String() != "answer" || l.count() != 2 {
				t.Errorf("run again it answered %d %q", again.Code, again.Body)
			}
			if err := g.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The reply of the begin is lost, not the begin: it is sent again, and succeeds as its own.
func TestR38_TheBeginIsRepeatedUntilAcknowledged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		s := &faulty{Store: mem}
		lost := 0
		s.extend = func(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
			owned, err := mem.Extend(ctx, id, by, x)
			if lost++; lost <= 3 {
				return false, errors.New("reply lost")
			}
			return owned, err
		}
		g, _ := newGuard(t, s, semel.Policy{Stream: true})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") }))
		for _, marked := range []string{"", "true"} {
			if w := answer(h, post("k", "{}")); w.Body.String() != "x" || w.Header().Get("Idempotent-Replayed") != marked {
				t.Errorf("got %d %q", w.Code, w.Body)
			}
		}
	})
}

// A client that goes in mid-stream changes nothing: the handler is told of no error, finishes, and its answer is
// replayed whole.
func TestR29_R38_TheClientGoesInMidStream(t *testing.T) {
	t.Parallel()
	for _, proto := range wires {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			l := &ledger{}
			g, _ := newGuard(t, nil, semel.Policy{Stream: true})
			gone, once := make(chan struct{}), sync.Once{}
			inner := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				l.add()
				io.WriteString(w, "begin ")
				<-gone
				for range 1000 {
					if _, err := io.WriteString(w, strings.Repeat("x", 100)); err != nil {
						t.Errorf("write: %v", err)
						return
					}
					if err := http.NewResponseController(w).Flush(); err != nil {
						t.Errorf("flush: %v", err)
						return
					}
				}
				if err := r.Context().Err(); err != nil {
					t.Errorf("the handler's context: %v", err)
				}
			}))
			w := newWire(t, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				go func() {
					<-r.Context().Done()
					once.Do(func() { close(gone) })
				}()
				inner.ServeHTTP(w, r)
			}))
			ctx, cancel := context.WithCancel(t.Context())
			res, _, err := w.open(ctx, "k", "{}")
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			res.Body.Close()
			<-gone
			if err := g.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			r := w.send(t, "k", "{}")
			if len(r.body) != len("begin ")+100_000 || !r.marked() || l.count() != 1 {
				t.Errorf("the repeat got %d, %d bytes, after %d executions", r.status, len(r.body), l.count())
			}
		})
	}
}

func TestR75_R38_PatienceEndsBeforeAStreamBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, l := memstore.New(), &ledger{}
		dir := t.TempDir()
		g, _ := newGuardWith(t, s, semel.Options{TempDir: dir, Policy: semel.Policy{Stream: true, Patience: time.Second}})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			l.add()
			time.Sleep(2 * time.Second)
			io.WriteString(w, "late")
			w.(http.Flusher).Flush()
			if only(t, s).Begun {
				t.Error("begun although no byte can leave")
			}
			if _, _, err := w.(http.Hijacker).Hijack(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("hijack: %v", err)
			}
			w.WriteHeader(http.StatusEarlyHints)
		}))
		start := time.Now()
		w := answer(h, post("k", "{}"))
		wantRefused(t, w, http.StatusGatewayTimeout, refusal.OutcomePending)
		if d := time.Since(start); d != time.Second {
			t.Errorf("answered after %v", d)
		}
		if err := g.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w := answer(h, post("k", "{}")); w.Body.String() != "late" || l.count() != 1 {
			t.Errorf("the repeat got %d %q after %d executions", w.Code, w.Body, l.count())
		}
	})
}

func TestR75_R38_PatienceDoesNotEndAStreamThatHasBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, nil, semel.Policy{Stream: true, Patience: time.Second})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "early ")
			time.Sleep(2 * time.Second)
			io.WriteString(w, "late")
		}))
		if w := answer(h, post("k", "{}")); w.Body.String() != "early late" {
			t.Errorf("got %d %q", w.Code, w.Body)
		}
	})
}

// While the store is asked to begin, the client may run out of patience: it is told so in time, and no byte follows.
func TestR75_R38_PatienceEndsWhileTheStoreIsAskedToBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		s := &faulty{Store: mem}
		s.extend = func(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
			time.Sleep(3 * time.Second)
			return mem.Extend(ctx, id, by, x)
		}
		g, _ := newGuard(t, s, semel.Policy{Stream: true, Patience: time.Second})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if _, err := io.WriteString(w, "late"); err != nil {
				t.Errorf("write: %v", err)
			}
		}))
		start := time.Now()
		w := answer(h, post("k", "{}"))
		if d := time.Since(start); d != time.Second {
			t.Errorf("answered after %v", d)
		}
		if err := g.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, w, http.StatusGatewayTimeout, refusal.OutcomePending)
		if strings.Contains(w.Body.String(), "late") {
			t.Errorf("after the refusal: %q", w.Body)
		}
		if w := answer(h, post("k", "{}")); w.Body.String() != "late" {
			t.Errorf("the repeat got %d %q", w.Code, w.Body)
		}
	})
}

// Patience also ends while an answer is made durable, but not once it is.
func TestR75_PatienceEndsDuringTheSettle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		s := &faulty{Store: mem}
		s.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			time.Sleep(3 * time.Second)
			return mem.Settle(ctx, id, by, o)
		}
		g, seen := newGuard(t, s, semel.Policy{Patience: time.Second})
		h := g.Wrap(http.HandlerFunc((&ledger{}).pay))
		start := time.Now()
		wantRefused(t, answer(h, post("k", "{}")), http.StatusGatewayTimeout, refusal.OutcomePending)
		if d := time.Since(start); d != time.Second {
			t.Errorf("answered after %v", d)
		}
		if err := g.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := seen.results(); !reflect.DeepEqual(got, []event.Result{event.Failed}) {
			t.Errorf("results %q, want one decision", got)
		}
		if w := answer(h, post("k", "{}")); w.Code != http.StatusCreated {
			t.Errorf("the repeat got %d %q", w.Code, w.Body)
		}
	})
}

// onPanic is an observer that takes its time for panics.
type onPanic struct{ during time.Duration }

func (o onPanic) Observe(_ context.Context, e event.Event) {
	if e.Kind == event.Panic {
		time.Sleep(o.during)
	}
}

// Once a run has ended its client waits for what there is to say, however its patience runs out meanwhile.
func TestR75_R32_PatienceDoesNotEndAfterTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuardWith(t, nil, semel.Options{Observer: onPanic{3 * time.Second}, Policy: semel.Policy{Patience: time.Second}})
		w := httptest.NewRecorder()
		v := thrown(g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })), w, post("k", "{}"))
		if v != "boom" || w.Body.Len() > 0 {
			t.Errorf("threw %v, answered %d %q", v, w.Code, w.Body)
		}
	})
}

// What a handler throws after its client was answered is told to the observer only.
func TestR32_R75_APanicAfterPatienceIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, seen := newGuard(t, nil, semel.Policy{Patience: time.Second})
		h := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(2 * time.Second)
			panic("boom")
		}))
		wantRefused(t, answer(h, post("k", "{}")), http.StatusGatewayTimeout, refusal.OutcomePending)
		if err := g.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, e := range seen.list {
			if e.Kind == event.Panic && strings.Contains(fmt.Sprint(e.Err), "boom") && strings.Contains(e.Err.Error(), "stream_test.go") {
				return
			}
		}
		t.Errorf("events: %v", seen.list)
	})
}

func TestR38_AHijackedConnectionHasBegun(t *testing.T) {
	t.Parallel()
	for _, explicit := range []bool{false, true} {
		s, l := memstore.New(), &ledger{}
		g, seen := newGuard(t, s, semel.Policy{OnLost: semel.Rerun})
		w := newWire(t, "HTTP/1.1", g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			l.add()
			if explicit {
				w.Header().Set("Connection", "Upgrade")
				w.Header().Set("Upgrade", "echo")
				w.WriteHeader(http.StatusSwitchingProtocols)
			}
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Errorf("hijack: %v", err)
				return
			}
			defer conn.Close()
			if rec := only(t, s); !rec.Begun {
				t.Error("hijacked before begun")
			}
			if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrHijacked) {
				t.Errorf("write after hijack: %v", err)
			}
			w.(http.Flusher).Flush()
			if !explicit {
				io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			}
			rw.Flush()
			line, err := rw.ReadString('\n')
			if err != nil {
				t.Errorf("read: %v", err)
			}
			io.WriteString(conn, "echo "+line)
		})))
		res, _, err := w.open(t.Context(), "k", "", "Connection", "Upgrade", "Upgrade", "echo")
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != "echo" {
			t.Errorf("explicit %t: got %d %v", explicit, res.StatusCode, res.Header)
		}
		conn := res.Body.(io.ReadWriteCloser)
		io.WriteString(conn, "hello\n")
		if got, err := io.ReadAll(conn); string(got) != "echo hello\n" {
			t.Errorf("explicit %t: echoed %q, %v", explicit, got, err)
		}
		conn.Close()
		if err := g.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		unavailable(t, w.send(t, "k", "", "Connection", "Upgrade", "Upgrade", "echo"))
		if l.count() != 1 || seen.count(event.NotReplayable) != 1 {
			t.Errorf("%d executions, %d events", l.count(), seen.count(event.NotReplayable))
		}
	}
}

// hijackable is a recorder whose connection can, or can't, be taken over.
type hijackable struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if h.conn == nil {
		return nil, nil, errors.New("in use")
	}
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// wrapped hides a writer as httpsnoop and others do.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// After a hijack that failed the handler still has its answer to give.
func TestR38_AHijackThatFailsLeavesTheAnswer(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	g, _ := newGuard(t, nil, semel.Policy{})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		l.add()
		if _, _, err := w.(http.Hijacker).Hijack(); err == nil || errors.Is(err, http.ErrNotSupported) {
			t.Errorf("hijack: %v", err)
		}
		http.Error(w, "no upgrade", http.StatusBadRequest)
	}))
	first := httptest.NewRecorder()
	h.ServeHTTP(wrapped{hijackable{first, nil}}, post("k", "{}"))
	for _, w := range []*httptest.ResponseRecorder{first, answer(h, post("k", "{}"))} {
		if w.Code != http.StatusBadRequest || w.Body.String() != "no upgrade\n" {
			t.Errorf("got %d %q", w.Code, w.Body)
		}
	}
	if l.count() != 1 {
		t.Errorf("%d executions", l.count())
	}
}

func TestR38_AHijackNeedsItsBegin(t *testing.T) {
	t.Parallel()
	mem := memstore.New()
	g, _ := newGuard(t, mem, semel.Policy{})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		seized(t, mem)
		if conn, _, err := w.(http.Hijacker).Hijack(); conn != nil || !errors.Is(err, semel.ErrFenced) {
			t.Errorf("hijack: %v, %v", conn, err)
		}
		if _, err := io.WriteString(w, "x"); !errors.Is(err, semel.ErrFenced) {
			t.Errorf("write: %v", err)
		}
	}))
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	w := httptest.NewRecorder()
	h.ServeHTTP(hijackable{w, server}, post("k", "{}"))
	wantRefused(t, w, http.StatusConflict, refusal.OutcomeUnknown)
}

// A connection can't be taken over once a part of a buffered answer waits: that part would overtake its settle.
func TestR38_AHijackAfterAWriteIsRefused(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	for _, stream := range []bool{false, true} {
		g, _ := newGuard(t, nil, semel.Policy{Stream: stream})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "x")
			if _, _, err := w.(http.Hijacker).Hijack(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("hijack: %v", err)
			}
		}))
		w := httptest.NewRecorder()
		h.ServeHTTP(hijackable{w, server}, post("k", "{}"))
		if w.Body.String() != "x" {
			t.Errorf("got %q", w.Body)
		}
	}
}

// A 101 that nobody takes over is an answer that can't be given twice.
func TestR38_AProtocolSwitchIsNotReplayed(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, seen := newGuard(t, s, semel.Policy{})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusSwitchingProtocols)
	}))
	if w := answer(h, post("k", "{}")); w.Code != http.StatusSwitchingProtocols {
		t.Errorf("got %d", w.Code)
	}
	if rec := only(t, s); rec.State != driver.Done || rec.Response != nil || seen.count(event.NotReplayable) != 1 {
		t.Errorf("the record is %v with %v, %d events", rec.State, rec.Response, seen.count(event.NotReplayable))
	}
	wantRefused(t, answer(h, post("k", "{}")), http.StatusConflict, refusal.ReplayUnavailable)
}

// A connection can be taken over with any status; what follows on it is never an answer to give again.
func TestR38_AHijackAfterAnyStatusIsNotReplayed(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	s := memstore.New()
	g, _ := newGuard(t, s, semel.Policy{})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		if _, _, err := w.(http.Hijacker).Hijack(); err != nil {
			t.Errorf("hijack: %v", err)
		}
	}))
	h.ServeHTTP(hijackable{httptest.NewRecorder(), server}, post("k", "{}"))
	if rec := only(t, s); rec.State != driver.Done || !rec.Begun || rec.Response != nil {
		t.Errorf("the record is %v, begun %t, with %v", rec.State, rec.Begun, rec.Response)
	}
}

// A connection that can't be taken over has not begun: what the handler answers instead may still be released.
func TestR38_R42_AHijackThatIsNotSupportedBeginsNothing(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	g, _ := newGuard(t, nil, semel.Policy{})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		l.add()
		if _, _, err := w.(http.Hijacker).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("hijack: %v", err)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	for range 2 {
		if w := answer(h, post("k", "{}")); w.Code != http.StatusServiceUnavailable {
			t.Errorf("got %d %q", w.Code, w.Body)
		}
	}
	if l.count() != 2 {
		t.Errorf("%d executions, want 2: it was released", l.count())
	}
}

// A full store can't keep the answer of a stream, but that there was one.
func TestR38_AStreamThatTheStoreHasNoRoomFor(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	s, err := memstore.Open(memstore.Options{MaxBytes: 4000})
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range []bool{false, true} {
		g, _ := newGuard(t, s, semel.Policy{Stream: stream})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			l.add()
			io.WriteString(w, strings.Repeat("x", 4000))
		}))
		key := fmt.Sprint("k", stream)
		if w := answer(h, post(key, "{}")); w.Body.Len() != 4000 {
			t.Errorf("the client got %d %q", w.Code, w.Body)
		}
		wantRefused(t, answer(h, post(key, "{}")), http.StatusConflict, refusal.ReplayUnavailable)
	}
	if l.count() != 2 {
		t.Errorf("%d executions, want one a key", l.count())
	}
}
