package semel_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
)

// A lastOperation stores only the operation that was claimed last, and takes no memory for it.
type lastOperation struct {
	id  driver.ID
	rec driver.Record
}

func (s *lastOperation) Claim(_ context.Context, id driver.ID, c driver.Claim) (rec driver.Record, owned bool, _ error) {
	if s.id != id {
		s.id, s.rec = id, driver.Record{}
	}
	if rec, owned = s.rec.Claim(driver.TimeOf(time.Now()), c); owned {
		s.rec = rec
	}
	return rec, owned, nil
}

func (s *lastOperation) Extend(_ context.Context, _ driver.ID, by driver.Owner, x driver.Extension) (owned bool, _ error) {
	s.rec, owned = s.rec.Extend(driver.TimeOf(time.Now()), by, x)
	return owned, nil
}

func (s *lastOperation) Settle(_ context.Context, _ driver.ID, by driver.Owner, o driver.Outcome) (rec driver.Record, owned bool, _ error) {
	if rec, owned = s.rec.Settle(driver.TimeOf(time.Now()), by, o); owned {
		s.rec = rec
	}
	return rec, owned, nil
}

func (s *lastOperation) Load(context.Context, driver.ID) (driver.Record, error) { return s.rec, nil }

func (s *lastOperation) Sweep(context.Context, int) (int, error) { return 0, nil }

// discard is a ResponseWriter that takes no memory.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

type rewound struct{ *bytes.Reader }

func (rewound) Close() error { return nil }

// leastAllocations returns the allocations of one call, without those that refill a pool.
func leastAllocations(f func()) float64 {
	least := testing.AllocsPerRun(1, f)
	for range 100 {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}

// What a guard takes for a request of 200 bytes and its answer, without what the store takes. The handler's header, with
// its one field, and the text of the key are counted too. The race detector may add one. Not parallel, as AllocsPerRun
// demands.
func TestAllocationsOfARequest(t *testing.T) {
	g, err := semel.New(&lastOperation{}, semel.SingleTenant, semel.Hold, semel.Options{
		IdentitySecret: bytes.Repeat([]byte("k"), 32), MaxAttempts: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"amount":1250,"note":"` + string(bytes.Repeat([]byte("x"), 175)) + `"}`)
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) //nolint:errcheck // in memory
		w.Header()["Content-Type"] = []string{"application/json"}
		w.WriteHeader(http.StatusCreated)
		w.Write(body) //nolint:errcheck // in memory
	}))
	w, from := &discard{header: http.Header{}}, rewound{bytes.NewReader(body)}
	r := post("", "").WithContext(context.Background())
	key, n := []byte(`key-0`), byte(0)
	r.Header["Idempotency-Key"] = []string{""}
	ask := func() {
		r.Header["Idempotency-Key"][0] = string(key)
		from.Seek(0, io.SeekStart) //nolint:errcheck // from the start always works
		r.Body, r.ContentLength = from, int64(len(body))
		clear(w.header)
		h.ServeHTTP(w, r)
		if w.status != http.StatusCreated {
			t.Fatalf("answered %d", w.status)
		}
	}
	first := func() {
		n++
		key[4] = '0' + n%10
		ask()
	}
	for _, tc := range []struct {
		name string
		f    func()
		most float64
	}{
		{"first execution", first, 20},
		{"replay", ask, 8},
	} {
		if got := leastAllocations(tc.f); got > tc.most {
			t.Errorf("%s: %v allocations, want at most %v", tc.name, got, tc.most)
		}
	}
}
