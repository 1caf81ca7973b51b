// Package verbs calls the verbs of a store for tests: what is asked must succeed, in clean-up
// functions too, when the test's own context has ended.
package verbs

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
)

// NewID returns an identity that no other test has.
func NewID() driver.ID {
	a, b, c := driver.NewToken(), driver.NewToken(), driver.NewToken()
	return driver.ID([]byte(string(a[:]) + string(b[:]) + string(c[:])))
}

// Ask returns a claim for a request that is like no other, with a lease and a retention of an hour.
func Ask(p driver.LostPolicy) driver.Claim {
	return driver.Claim{
		Fingerprint: driver.Fingerprint{Raw: driver.NewToken()},
		Token:       driver.NewToken(),
		Lease:       time.Hour,
		Retention:   time.Hour,
		OnLost:      p,
		Operation:   "POST /payments",
		Correlation: "0190f4d2-7a3c-7b1e-9c55-2f6d0c8e4b1a",
	}
}

// Retry returns a claim for the same request by another guard.
func Retry(c driver.Claim) driver.Claim {
	c.Token = driver.NewToken()
	return c
}

// Claim claims a record that must be owned.
func Claim(t testing.TB, s driver.Store, id driver.ID, c driver.Claim) driver.Record {
	t.Helper()
	rec, owned, err := s.Claim(context.Background(), id, c)
	if err != nil || !owned {
		t.Fatalf("Claim: owned is %t, error %v", owned, err)
	}
	return rec
}

// Settle settles a record that must be the owner's.
func Settle(t testing.TB, s driver.Store, id driver.ID, by driver.Owner, o driver.Outcome) driver.Record {
	t.Helper()
	rec, owned, err := s.Settle(context.Background(), id, by, o)
	if err != nil || !owned {
		t.Fatalf("Settle: owned is %t, error %v", owned, err)
	}
	return rec
}

// Finish runs an operation to its end.
func Finish(t testing.TB, s driver.Store, id driver.ID, c driver.Claim) driver.Record {
	t.Helper()
	rec := Claim(t, s, id, c)
	return Settle(t, s, id, rec.Owner(), Done("paid"))
}

// Done is an outcome with an answer.
func Done(body string) driver.Outcome {
	return driver.Outcome{State: driver.Done, Response: &driver.Response{Status: http.StatusCreated, Body: []byte(body)}}
}

// Load loads a record, also one that is absent.
func Load(t testing.TB, s driver.Store, id driver.ID) driver.Record {
	t.Helper()
	rec, err := s.Load(context.Background(), id)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return rec
}

// SaveStep saves a step that must be the owner's.
func SaveStep(t testing.TB, s driver.StepStore, id driver.ID, by driver.Owner, name, result string) {
	t.Helper()
	if owned, err := s.SaveStep(context.Background(), id, by, name, []byte(result)); err != nil || !owned {
		t.Fatalf("SaveStep: owned is %t, error %v", owned, err)
	}
}

// Order has a handler answer one request for a hat, under a key, "" for none.
func Order(h http.Handler, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"item":"hat"}`))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A Clock stands still until it is moved.
type Clock struct{ ns atomic.Int64 }

// NewClock returns a clock that shows a time with no round number in it.
func NewClock() *Clock {
	c := &Clock{}
	c.ns.Store(time.Date(2030, 2, 3, 4, 5, 6, 789e6, time.UTC).UnixNano())
	return c
}

// Now returns the clock's time.
func (c *Clock) Now() time.Time { return time.Unix(0, c.ns.Load()) }

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) { c.ns.Add(int64(d)) }
