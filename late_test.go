package semel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// lateUses are all that a goroutine can do with a writer that its handler has left it; each reports whether it was
// refused.
var lateUses = map[string]func(w http.ResponseWriter) bool{
	"Write": func(w http.ResponseWriter) bool {
		n, err := w.Write([]byte("late"))
		return n == 0 && errors.Is(err, semel.ErrSettled)
	},
	"WriteString": func(w http.ResponseWriter) bool {
		n, err := io.WriteString(w, "late")
		return n == 0 && errors.Is(err, semel.ErrSettled)
	},
	"ReadFrom": func(w http.ResponseWriter) bool {
		n, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("late"))
		return n == 0 && errors.Is(err, semel.ErrSettled)
	},
	"WriteHeader": func(w http.ResponseWriter) bool {
		w.WriteHeader(http.StatusTeapot)
		return true
	},
	"early hints": func(w http.ResponseWriter) bool {
		w.WriteHeader(http.StatusEarlyHints)
		return true
	},
	"Header": func(w http.ResponseWriter) bool {
		w.Header().Set("X-Late", "1")
		w.Header().Set(http.TrailerPrefix+"X-Late", "1")
		return w.Header().Get("X-Late") == ""
	},
	"Flush": func(w http.ResponseWriter) bool {
		w.(http.Flusher).Flush()
		return true
	},
	"Hijack": func(w http.ResponseWriter) bool {
		_, _, err := http.NewResponseController(w).Hijack()
		return errors.Is(err, semel.ErrSettled)
	},
	"SetReadDeadline": func(w http.ResponseWriter) bool {
		return errors.Is(http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)), semel.ErrSettled)
	},
	"SetWriteDeadline": func(w http.ResponseWriter) bool {
		return errors.Is(http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)), semel.ErrSettled)
	},
	"EnableFullDuplex": func(w http.ResponseWriter) bool {
		return errors.Is(http.NewResponseController(w).EnableFullDuplex(), semel.ErrSettled)
	},
}

// A goroutine that a handler has left behind changes nothing of its answer, while that is settled and sent, nor later.
func TestField09_AWriterIsOverWhenItsHandlerHasReturned(t *testing.T) {
	t.Parallel()
	for name, use := range lateUses {
		for _, policy := range []semel.Policy{{}, {Stream: true}, {Patience: time.Hour}, {EmptyOK: true}} {
			for _, silent := range []bool{false, true} {
				t.Run(fmt.Sprint(name, " stream ", policy.Stream, " ", policy.Patience, " empty ", policy.EmptyOK, " silent ", silent), func(t *testing.T) {
					t.Parallel()
					f := &faulty{Store: memstore.New()}
					left := make(chan http.ResponseWriter, 1)
					f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
						w := <-left
						if !use(w) {
							t.Error("not refused, while the outcome is settled")
						}
						left <- w
						return f.Store.Settle(ctx, id, by, o)
					}
					g, _ := newGuard(t, f, policy)
					wire := newWire(t, "HTTP/1.1", g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						if !silent {
							w.Header().Set("X-Mine", "1")
							w.WriteHeader(http.StatusCreated)
							io.WriteString(w, "first")
						}
						left <- w
					})))
					first := wire.send(t, "k", "")
					if !use(<-left) {
						t.Error("not refused, after the answer")
					}
					status, body := http.StatusCreated, "first"
					if silent && policy.EmptyOK {
						status, body = http.StatusOK, ""
					} else if silent {
						if first.status != http.StatusInternalServerError || !strings.Contains(first.body, string(refusal.NoAnswer)) {
							t.Errorf("answered %d %q", first.status, first.body)
						}
						return
					}
					for i, r := range []*reply{first, wire.send(t, "k", "")} {
						if r.err != nil || r.status != status || r.body != body || r.header.Get("X-Late") != "" || len(r.trailer) > 0 {
							t.Errorf("answer %d: %d %q %v, %v, %v", i, r.status, r.body, r.header, r.trailer, r.err)
						}
					}
				})
			}
		}
	}
}

// However many use it at once, while the handler ends: the answer is what was written of it by then, live and repeated.
func TestField09_WritesThatRaceTheHandlersEnd(t *testing.T) {
	t.Parallel()
	for _, policy := range []semel.Policy{{}, {Stream: true}, {MaxResponseBody: 64}, {Stream: true, MaxResponseBody: 64}} {
		t.Run(fmt.Sprint("stream ", policy.Stream, " limit ", policy.MaxResponseBody), func(t *testing.T) {
			t.Parallel()
			g, _ := newGuard(t, nil, policy)
			var left sync.WaitGroup
			wire := newWire(t, "HTTP/1.1", g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusCreated)
				started := make(chan bool)
				for range 4 {
					left.Go(func() {
						started <- true
						for range 100 {
							io.WriteString(w, "late ")
							w.(http.Flusher).Flush()
							http.NewResponseController(w).SetWriteDeadline(time.Time{}) //nolint:errcheck // refused once the handler has ended
						}
					})
				}
				for range 4 {
					<-started
				}
			})))
			for i := range 20 {
				key := fmt.Sprint("k", i)
				first := wire.send(t, key, "")
				left.Wait()
				again := wire.send(t, key, "")
				if first.err != nil || first.status != http.StatusCreated || len(first.body)%len("late ") != 0 {
					t.Errorf("answered %d, %d bytes, %v", first.status, len(first.body), first.err)
				}
				if again.marked() && again.body != first.body || !again.marked() && len(first.body) <= 64 {
					t.Errorf("%d bytes, then %d %d bytes", len(first.body), again.status, len(again.body))
				}
			}
		})
	}
}

// So it is if the handler did not return.
func TestField09_R32_AWriterIsOverWhenItsHandlerHasThrown(t *testing.T) {
	t.Parallel()
	for name, use := range lateUses {
		store := memstore.New()
		g, _ := newGuard(t, store, semel.Policy{})
		var left http.ResponseWriter
		thrown(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			left = w
			panic(errThrown)
		})), httptest.NewRecorder(), post("k", "{}"))
		if !use(left) || loaded(t, store, "k").State != driver.Unknown {
			t.Errorf("%s: the record is %v", name, loaded(t, store, "k").State)
		}
	}
}

// The header that it had taken before is its own.
func TestField09_R34_AHeaderThatWasTakenBeforeChangesNothingLater(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		f := &faulty{Store: memstore.New()}
		left := make(chan http.Header, 1)
		late := func(h http.Header) {
			h.Set("X-Mine", "late")
			h["X-Many"][0] = "late"
			h.Set("X-Sum", "late")
			h.Set(http.TrailerPrefix+"X-Late", "late")
		}
		f.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			h := <-left
			late(h)
			left <- h
			return f.Store.Settle(ctx, id, by, o)
		}
		g, _ := newGuard(t, f, semel.Policy{Stream: stream})
		wire := newWire(t, "HTTP/1.1", g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("X-Mine", "1")
			h["X-Many"] = []string{"1", "2"}
			h.Set("Trailer", "X-Sum")
			io.WriteString(w, "first")
			h.Set("X-Sum", "1")
			left <- h
		})))
		first := wire.send(t, "k", "")
		late(<-left)
		for i, r := range []*reply{first, wire.send(t, "k", "")} {
			if r.header.Get("X-Mine") != "1" || r.header.Get("X-Many") != "1" || r.trailer.Get("X-Sum") != "1" || len(r.trailer) != 1 {
				t.Errorf("stream %t, answer %d: %v, %v", stream, i, r.header, r.trailer)
			}
		}
	}
}
