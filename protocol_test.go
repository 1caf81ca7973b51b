package semel_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/refusal"
)

// errDown is what a store says that can't be reached.
var errDown = errors.New("store down")

// keyed returns the id of a key of headerScope's default principal, under no secret.
func keyed(key string) driver.ID { return semel.Identify(nil, semel.KindHTTP, "alice", key) }

// loaded loads what the store holds of a key.
func loaded(t testing.TB, s driver.Store, key string) driver.Record {
	t.Helper()
	rec, err := s.Load(context.Background(), keyed(key))
	if err != nil {
		t.Fatalf("load %s: %v", key, err)
	}
	return rec
}

// sameRecord fails unless two readings of a record differ in the store's clock at most.
func sameRecord(t testing.TB, before, after driver.Record) {
	t.Helper()
	before.Now, after.Now = 0, 0
	if !reflect.DeepEqual(before, after) {
		t.Errorf("the record has changed:\nbefore %+v\nafter  %+v", before, after)
	}
}

// served is an answer that may still be on its way.
type served struct {
	w       *httptest.ResponseRecorder
	done    chan struct{}
	started time.Time
	at      time.Time // when it ended
	thrown  any       // what the handler panicked with
	exited  bool      // neither returned nor panicked: Goexit
}

// serve sends a request on a goroutine of its own.
func serve(h http.Handler, r *http.Request) *served {
	s := &served{w: httptest.NewRecorder(), done: make(chan struct{}), started: time.Now(), exited: true}
	go func() {
		defer close(s.done)
		defer func() {
			s.at = time.Now()
			if s.thrown = recover(); s.thrown != nil {
				s.exited = false
			}
		}()
		h.ServeHTTP(s.w, r)
		s.exited = false
	}()
	return s
}

// answer waits for the answer.
func (s *served) answer() *httptest.ResponseRecorder {
	<-s.done
	return s.w
}

// refusalCode returns the code of a problem, "" for another answer.
func refusalCode(w *httptest.ResponseRecorder) refusal.Code {
	var p semel.Problem
	if w.Header().Get("Content-Type") != "application/problem+json" || json.Unmarshal(w.Body.Bytes(), &p) != nil {
		return ""
	}
	return p.Code
}

func replayed(w *httptest.ResponseRecorder) bool {
	return w.Header().Get("Idempotent-Replayed") == "true"
}

// wantProblem fails unless w is the problem of that status and code.
func wantProblem(t testing.TB, w *httptest.ResponseRecorder, status int, code refusal.Code) {
	t.Helper()
	if w.Code != status || refusalCode(w) != code {
		t.Errorf("answered %d %q (%s), want %d %s", w.Code, w.Body, refusalCode(w), status, code)
	}
}

// wantAnswer fails unless w is the handler's answer: live, or marked as a replay.
func wantAnswer(t testing.TB, w *httptest.ResponseRecorder, status int, body string, replay bool) {
	t.Helper()
	if w.Code != status || w.Body.String() != body || replayed(w) != replay {
		t.Errorf("answered %d %q, replayed %v; want %d %q, replayed %v", w.Code, w.Body, replayed(w), status, body, replay)
	}
}

// mortal is one guard's way to a store; it can be cut, as when the guard's process dies or its network breaks.
type mortal struct {
	driver.Store
	dead   atomic.Bool
	budget atomic.Int64 // verbs until it dies; 0 means none is set
}

func (m *mortal) lost() bool {
	if m.dead.Load() {
		return true
	}
	if m.budget.Load() > 0 && m.budget.Add(-1) == 0 {
		m.dead.Store(true)
	}
	return false
}

// after passes on the reply of a verb that was executed, unless the way was cut meanwhile.
func (m *mortal) after(err error) error {
	if m.dead.Load() {
		return errDown
	}
	return err
}

func (m *mortal) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	if m.lost() {
		return driver.Record{}, false, errDown
	}
	rec, owned, err := m.Store.Claim(ctx, id, c)
	if err = m.after(err); err != nil {
		return driver.Record{}, false, err
	}
	return rec, owned, nil
}

func (m *mortal) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	if m.lost() {
		return false, errDown
	}
	owned, err := m.Store.Extend(ctx, id, by, x)
	if err = m.after(err); err != nil {
		return false, err
	}
	return owned, nil
}

func (m *mortal) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	if m.lost() {
		return driver.Record{}, false, errDown
	}
	rec, owned, err := m.Store.Settle(ctx, id, by, o)
	if err = m.after(err); err != nil {
		return driver.Record{}, false, err
	}
	return rec, owned, nil
}

func (m *mortal) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if m.lost() {
		return driver.Record{}, errDown
	}
	return m.Store.Load(ctx, id)
}

// counting counts the verbs of one guard that write, and when they and the loads were sent.
type counting struct {
	driver.Store
	mu         sync.Mutex
	claimed    int
	settles    int
	extendedAt []time.Time
	load       []time.Time
}

func (c *counting) note(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *counting) Claim(ctx context.Context, id driver.ID, cl driver.Claim) (driver.Record, bool, error) {
	rec, owned, err := c.Store.Claim(ctx, id, cl)
	c.note(func() {
		if owned {
			c.claimed++
		}
	})
	return rec, owned, err
}

func (c *counting) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	c.note(func() { c.extendedAt = append(c.extendedAt, time.Now()) })
	return c.Store.Extend(ctx, id, by, x)
}

func (c *counting) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	c.note(func() { c.settles++ })
	return c.Store.Settle(ctx, id, by, o)
}

func (c *counting) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	c.note(func() { c.load = append(c.load, time.Now()) })
	return c.Store.Load(ctx, id)
}

// writes returns how many verbs were sent that change a record, or could have.
func (c *counting) writes() (n int) {
	c.note(func() { n = c.claimed + len(c.extendedAt) + c.settles })
	return n
}

// since returns times as durations after start.
func since(start time.Time, times []time.Time) []time.Duration {
	list := make([]time.Duration, len(times))
	for i, at := range times {
		list[i] = at.Sub(start)
	}
	return list
}

// drained waits until the guards have nothing left to do; a test's store must work by then.
func drained(t testing.TB, guards ...*semel.Guard) {
	t.Helper()
	for _, g := range guards {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Hour)
		if err := g.Drain(ctx); err != nil {
			t.Errorf("drain: %v", err)
		}
		cancel()
	}
}
