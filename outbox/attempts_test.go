package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/outbox"
)

// A failed message keeps those of its key back that were leased with it, and is sent after its backoff.
func TestAFailedMessageKeepsItsKeyBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, b := memory(t), &broker{}
		var well atomic.Bool
		b.answer = func(_ context.Context, m *outbox.Message) error {
			if m.ID == "1" && !well.Load() {
				return errors.New("no")
			}
			return nil
		}
		add(t, m, msg("1", "a", "x"), msg("2", "a", "x"), msg("3", "a", "y"))
		r, stop := start(t, m, b, outbox.RelayOptions{Backoff: func(attempts int) time.Duration { return time.Duration(attempts) * time.Minute }})
		time.Sleep(time.Second)
		if got := fmt.Sprint(b.all()); got != "[1 3]" {
			t.Fatalf("sent: %s", got)
		}
		well.Store(true)
		time.Sleep(time.Minute - 2*time.Second)
		if got := fmt.Sprint(b.all()); got != "[1 3]" {
			t.Errorf("sent before the backoff was over: %s", got)
		}
		time.Sleep(3 * time.Second)
		if got := fmt.Sprint(b.all()); got != "[1 3 1 2]" {
			t.Errorf("sent: %s", got)
		}
		mustStop(t, stop)
		if c := r.Counts(); c.Sent != 3 || c.Failed != 1 || c.PutBack != 1 || c.Dead != 0 || c.StoreErrors != 0 {
			t.Errorf("counted: %+v", c)
		}
	})
}

// An outage of the broker for hours sends nobody to the dead letters, and only probes are sent meanwhile.
func TestAnOutageMakesNoDeadLetters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, b := memory(t), &broker{}
		var down atomic.Bool
		down.Store(true)
		b.answer = func(context.Context, *outbox.Message) error {
			if down.Load() {
				return errors.New("connection refused")
			}
			return nil
		}
		for i := range 60 {
			add(t, m, msg(fmt.Sprint(i), "a", fmt.Sprint(i%20)))
		}
		var mu sync.Mutex
		kinds := map[outbox.EventKind]int{}
		r, stop := start(t, m, b, outbox.RelayOptions{Observe: func(e outbox.Event) {
			mu.Lock()
			defer mu.Unlock()
			kinds[e.Kind]++
		}})
		synctest.Wait()
		if n := r.Counts().Failed; n != 1 {
			t.Errorf("%d attempts were counted of a batch in which everything failed, want 1", n)
		}
		time.Sleep(time.Hour)
		if n := len(b.all()); n < 30 || n > 300 {
			t.Errorf("%d messages were sent in an hour without an answer", n)
		}
		if n := r.Counts().Failed; n > 200 {
			t.Errorf("%d attempts were counted", n)
		}
		down.Store(false)
		time.Sleep(time.Hour) // at most the longest backoff
		mustStop(t, stop)
		if dead, left := states(t, m, outbox.Dead), states(t, m, outbox.Pending); len(dead) > 0 || len(left) > 0 {
			t.Errorf("dead: %q, pending: %q", dead, left)
		}
		if kinds[outbox.LanePaused] == 0 || kinds[outbox.LaneResumed] != 1 || kinds[outbox.MessageDead] > 0 {
			t.Errorf("observed: %v", kinds)
		}
	})
}

func TestAMessageDiesAfterItsAttempts(t *testing.T) {
	t.Parallel()
	for _, hold := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m, b := memory(t), &broker{}
			b.answer = func(_ context.Context, m *outbox.Message) error {
				if m.ID == "1" {
					return errors.New("no\x00\xff" + strings.Repeat("x", 5000))
				}
				return nil
			}
			add(t, m, msg("1", "a", "x"), msg("2", "a", "x"))
			var died outbox.Event
			r, stop := start(t, m, b, outbox.RelayOptions{HoldKey: hold, Backoff: func(int) time.Duration { return time.Second }, Observe: func(e outbox.Event) {
				if e.Kind == outbox.MessageDead {
					died = e
				}
			}})
			time.Sleep(time.Hour)
			mustStop(t, stop)
			if dead := states(t, m, outbox.Dead); fmt.Sprint(dead) != "[1]" || died.ID != "1" || died.Attempts != 25 || r.Counts().Dead != 1 {
				t.Errorf("dead: %q; observed: %+v", dead, died)
			}
			if left := states(t, m, outbox.Pending); (len(left) == 1) != hold {
				t.Errorf("pending, where the dead one holds its key (%t): %q", hold, left)
			}
		})
	}
}

func TestAnErrorSaysWhenToSendAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, b := memory(t), &broker{}
		var times []time.Duration
		begin := time.Now()
		cause := errors.New("busy")
		b.answer = func(_ context.Context, m *outbox.Message) error {
			if m.ID != "1" {
				return nil
			}
			if times = append(times, time.Since(begin).Truncate(time.Second)); len(times) == 1 {
				return fmt.Errorf("told: %w", outbox.RetryAfter(3*time.Hour, cause))
			}
			return nil
		}
		add(t, m, msg("1", "a", ""), msg("2", "a", ""))
		_, stop := start(t, m, b, outbox.RelayOptions{})
		time.Sleep(4 * time.Hour)
		mustStop(t, stop)
		if fmt.Sprint(times) != "[0s 3h0m0s]" {
			t.Errorf("sent after %v", times)
		}
		if err := outbox.RetryAfter(time.Second, cause); !errors.Is(err, cause) || err.Error() != "busy; to be sent again in 1s" {
			t.Errorf("the error is %v", err)
		}
	})
}

// A publisher that misbehaves loses nothing.
func TestAPublisherThatMisbehavesLosesNothing(t *testing.T) {
	t.Parallel()
	for name, misbehave := range map[string]func() []error{
		"panics":            func() []error { panic("bug") },
		"ends its routine":  func() []error { runtime.Goexit(); return nil },
		"too few errors":    func() []error { return make([]error, 1) },
		"too many errors":   func() []error { return make([]error, 3) },
		"changes the batch": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := memory(t)
				add(t, m, msg("1", "a", ""), msg("2", "a", ""))
				calls := 0
				var came []string
				p := publisher(func(_ context.Context, batch []*outbox.Message) []error {
					if calls++; calls == 1 && misbehave != nil {
						return misbehave()
					}
					for _, m := range batch {
						came = append(came, m.ID)
						m.ID, m.Payload = "", nil
					}
					clear(batch)
					return nil
				})
				_, stop := start(t, m, p, outbox.RelayOptions{})
				time.Sleep(time.Minute)
				mustStop(t, stop)
				slices.Sort(came)
				if left := states(t, m, outbox.Pending); fmt.Sprint(came) != "[1 2]" || len(left) > 0 {
					t.Errorf("came: %q, left: %q", came, left)
				}
			})
		})
	}
}
