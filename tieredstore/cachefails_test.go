package tieredstore_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/tieredstore"
)

// A breaker that notes what it is told.
type breaker struct {
	mu      sync.Mutex
	refuses bool
	told    []error
	asked   int
}

func (b *breaker) Allow() (func(error), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	if b.refuses {
		return nil, errors.New("open")
	}
	return func(err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.told = append(b.told, err)
	}, nil
}

// A cache that does not answer costs its timeout, and no more; the answer is the durable store's.
func TestACacheThatHangsCostsItsTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		durable, c, b := newDurable(t, time.Now), newCache(time.Now), &breaker{}
		var out bytes.Buffer
		s := tieredstore.New(durable, tieredstore.Options{Cache: c, Breaker: b, Log: slog.New(slog.NewTextHandler(&out, nil))})
		id := newID()
		claim := ask(driver.Hold)
		finish(t, s, id, claim)
		load(t, s, id)
		hang := func(ctx context.Context, _ string, _ driver.ID) error {
			<-ctx.Done()
			return ctx.Err()
		}
		c.gate, b.told = hang, nil
		const timeout = tieredstore.DefaultCacheTimeout
		for range 10 {
			began := time.Now()
			if rec := refuse(t, s, id, retry(claim)); rec.Response == nil {
				t.Errorf("the answer is not there: %+v", rec)
			}
			if d := time.Since(began); d < timeout || d > timeout*5/4 {
				t.Errorf("it took %s, want %s and at most a quarter more", d, timeout)
			}
			time.Sleep(timeout / 10)
		}
		for _, err := range b.told {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the breaker was told %v", err)
			}
		}
		if len(b.told) != 10 {
			t.Errorf("the breaker was told %d results, want 10", len(b.told))
		}
		if n := strings.Count(out.String(), "level=WARN"); n != 1 {
			t.Errorf("the log has %d warnings, want 1:\n%s", n, out.String())
		}
		time.Sleep(10 * time.Second)
		load(t, s, id)
		if !strings.Contains(out.String(), "failures=10") {
			t.Errorf("the log does not tell how often it failed:\n%s", out.String())
		}

		// A client that leaves says nothing about the cache.
		b.told = nil
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := s.Load(ctx, id); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a client that left: error %v", err)
		}
		if len(b.told) != 1 || !errors.Is(b.told[0], context.Canceled) {
			t.Errorf("the breaker was told %v of a client that left, want that it was canceled", b.told)
		}

		b.refuses, c.gate = true, func(_ context.Context, verb string, _ driver.ID) error {
			t.Errorf("the cache was asked to %s, against the breaker", verb)
			return nil
		}
		if rec := load(t, s, id); rec.State != driver.Done {
			t.Errorf("with an open breaker the record is %s", rec.State)
		}
	})
}

// What a caller's context carries reaches the cache; the time to answer is the layer's.
func TestTheCacheGetsTheCallersValues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		c := newCache(time.Now)
		const timeout = time.Second
		s := tieredstore.New(newDurable(t, time.Now), tieredstore.Options{Cache: c, CacheTimeout: timeout})
		seen := 0
		c.gate = func(ctx context.Context, _ string, _ driver.ID) error {
			seen++
			if got := ctx.Value(key{}); got != seen {
				t.Errorf("call %d: the cache got %v", seen, got)
			}
			end, ok := ctx.Deadline()
			if left := time.Until(end); !ok || left < timeout || left > timeout*5/4 {
				t.Errorf("call %d: %s are left, want %s and at most a quarter more", seen, left, timeout)
			}
			return ctx.Err()
		}
		for i := range 30 {
			if _, err := s.Load(context.WithValue(t.Context(), key{}, i+1), newID()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(timeout / 10)
		}
		if seen != 30 {
			t.Errorf("the cache was asked %d times, want 30", seen)
		}
	})
}

// A cache that panics takes the request with it, and the breaker learns of it.
func TestTheBreakerLearnsOfAPanic(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &breaker{}
	s := tieredstore.New(w.durable, tieredstore.Options{Clock: w.Now, Cache: w.cache, Breaker: b})
	w.cache.gate = func(context.Context, string, driver.ID) error { panic("broken") }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		s.Load(t.Context(), newID()) //nolint:errcheck // it panics
	}()
	if len(b.told) != 1 || b.told[0] == nil {
		t.Errorf("the breaker was told %v, want a failure", b.told)
	}
}
