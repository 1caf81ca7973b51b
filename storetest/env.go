package storetest

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
)

// reporter is the part of testing.TB that checks use. Fatalf does not return.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Logf(format string, args ...any)
}

// means is a Storage, bound to the test that it serves. Only open is never nil.
type means struct {
	open    func() driver.Store
	advance func(d time.Duration)
	restart func()
}

// An env is what a check works with: two handles on one storage, and its clock.
type env struct {
	reporter
	means
	ctx  context.Context
	a, b handle

	short time.Duration // of leases and retentions that a check waits out
	idle  driver.ID     // of a record that never exists: loading it tells the clock
}

const (
	// long is for leases and retentions that a check does not outlive.
	long = time.Hour

	// What a check waits out: with a clock that can be moved, and without.
	shortMoved  = time.Second
	shortWaited = 100 * time.Millisecond

	// checkTimeout is the end of a check that hangs, clockTimeout of waiting for a clock that stands still.
	checkTimeout = 2 * time.Minute
	clockTimeout = 30 * time.Second
)

func newEnv(ctx context.Context, r reporter, m means) *env {
	e := &env{reporter: r, means: m, ctx: ctx, short: shortWaited}
	if m.advance != nil {
		e.short = shortMoved
	}
	e.idle = newID()
	e.reopen()
	return e
}

func (e *env) reopen() {
	e.a, e.b = handle{e, e.open()}, handle{e, e.open()}
}

// both returns one handle for even i, the other for odd.
func (e *env) both(i int) handle {
	if i%2 == 0 {
		return e.a
	}
	return e.b
}

// now returns the store's clock.
func (e *env) now() driver.Time {
	e.Helper()
	return e.a.load(e.idle).Now
}

// until returns when the store's clock shows at least t.
func (e *env) until(t driver.Time) {
	e.Helper()
	giveUp := time.Now().Add(clockTimeout)
	for tries := 0; ; tries++ {
		now := e.now()
		if now >= t {
			return
		}
		if e.advance != nil {
			if tries == 100 {
				e.Fatalf("the store's clock shows %s after having been moved to %s", now.Time(), t.Time())
			}
			// A clock that rounds needs a little more than what is left.
			e.advance(t.Sub(now) + time.Duration(tries)*time.Millisecond)
			continue
		}
		if time.Now().After(giveUp) {
			e.Fatalf("the store's clock stands still at %s", now.Time())
		}
		select {
		case <-time.After(min(t.Sub(now), 20*time.Millisecond)):
		case <-e.ctx.Done():
			e.Fatalf("waiting for the store's clock: %v", e.ctx.Err())
		}
	}
}

// pass lets d pass on the store's clock.
func (e *env) pass(d time.Duration) {
	e.Helper()
	e.until(e.now().Add(d))
}

// same reports where got differs from want; Now is not compared.
func (e *env) same(what string, got, want driver.Record) {
	e.Helper()
	if d := diff(got, want); d != "" {
		e.Errorf("%s: %s", what, d)
	}
}

// unchanged reports where the record differs from what it was before.
func (e *env) unchanged(what string, id driver.ID, before driver.Record) {
	e.Helper()
	e.same(what+": the record changed", e.a.load(id), before)
	e.same(what+": the record changed as the other handle sees it", e.b.load(id), before)
}

// together calls do n times at once and waits for all.
func (e *env) together(n int, do func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			do(i)
		})
	}
	close(start)
	wg.Wait()
}

// A handle is one of the store's handles, with verbs that end the check if the store fails.
type handle struct {
	e *env
	driver.Store
}

// begin claims and must own.
func (h handle) begin(id driver.ID, c driver.Claim) driver.Record {
	h.e.Helper()
	rec, owned := h.claim(id, c)
	if !owned {
		h.e.Fatalf("Claim was refused; the record is %s, reads as %s", rec.State, rec.Reads(c.OnLost))
	}
	return rec
}

// refuse claims and must not own.
func (h handle) refuse(what string, id driver.ID, c driver.Claim) driver.Record {
	h.e.Helper()
	rec, owned := h.claim(id, c)
	if owned {
		h.e.Fatalf("%s: Claim was granted, fence %d, attempt %d", what, rec.Fence, rec.Attempt)
	}
	return rec
}

func (h handle) claim(id driver.ID, c driver.Claim) (driver.Record, bool) {
	h.e.Helper()
	rec, owned, err := h.Store.Claim(h.e.ctx, id, c)
	if err != nil {
		h.e.Fatalf("Claim: %v", err)
	}
	return rec, owned
}

func (h handle) extend(id driver.ID, by driver.Owner, x driver.Extension) bool {
	h.e.Helper()
	owned, err := h.Store.Extend(h.e.ctx, id, by, x)
	if err != nil {
		h.e.Fatalf("Extend: %v", err)
	}
	return owned
}

// renew extends and must own. It returns the record.
func (h handle) renew(id driver.ID, by driver.Owner, x driver.Extension) driver.Record {
	h.e.Helper()
	if !h.extend(id, by, x) {
		h.e.Fatalf("Extend was refused to the owner")
	}
	return h.load(id)
}

func (h handle) settle(id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool) {
	h.e.Helper()
	rec, owned, err := h.Store.Settle(h.e.ctx, id, by, o)
	if err != nil {
		h.e.Fatalf("Settle as %s: %v", o.State, err)
	}
	return rec, owned
}

// end settles and must own.
func (h handle) end(id driver.ID, by driver.Owner, o driver.Outcome) driver.Record {
	h.e.Helper()
	rec, owned := h.settle(id, by, o)
	if !owned {
		h.e.Fatalf("Settle as %s was refused to the owner; the record is %s", o.State, rec.State)
	}
	return rec
}

// ran claims and settles, and must own.
func (h handle) ran(id driver.ID, c driver.Claim, o driver.Outcome) driver.Record {
	h.e.Helper()
	rec := h.begin(id, c)
	return h.end(id, rec.Owner(), o)
}

func (h handle) load(id driver.ID) driver.Record {
	h.e.Helper()
	rec, err := h.Store.Load(h.e.ctx, id)
	if err != nil {
		h.e.Fatalf("Load: %v", err)
	}
	return rec
}

func (h handle) sweep(limit int) int {
	h.e.Helper()
	n, err := h.Store.Sweep(h.e.ctx, limit)
	if err != nil {
		h.e.Fatalf("Sweep: %v", err)
	}
	return n
}

// sweepAll sweeps until none is left, and returns how many were removed.
func (h handle) sweepAll() int {
	h.e.Helper()
	const limit = 50
	for total, tries := 0, 0; ; tries++ {
		n := h.sweep(limit)
		total += n
		if n < limit {
			return total
		}
		if tries == 100 {
			h.e.Fatalf("Sweep removed %d records and says that there are more", total)
		}
	}
}

// exists reports whether the record is still there.
func (h handle) exists(id driver.ID) bool {
	h.e.Helper()
	return h.load(id).State != driver.Absent
}

func (h handle) seize(id driver.ID, t driver.Token) driver.Record {
	h.e.Helper()
	rec, err := h.Store.(driver.Seizer).Seize(h.e.ctx, id, t)
	if err != nil {
		h.e.Fatalf("Seize: %v", err)
	}
	return rec
}

func (h handle) forget(id driver.ID, by driver.Owner) bool {
	h.e.Helper()
	forgot, err := h.Store.(driver.Seizer).Forget(h.e.ctx, id, by)
	if err != nil {
		h.e.Fatalf("Forget: %v", err)
	}
	return forgot
}

func newID() (id driver.ID) {
	rand.Read(id[:])
	return id
}

// ask returns a claim for a request that nobody made before.
func ask(p driver.LostPolicy) driver.Claim {
	return driver.Claim{
		Fingerprint: newFingerprint(),
		Token:       driver.NewToken(),
		Lease:       long,
		Retention:   long,
		OnLost:      p,
		Operation:   "POST /payments",
		Correlation: driver.NewToken().String(),
	}
}

// retry returns a claim for the same request by another guard.
func retry(c driver.Claim) driver.Claim {
	c.Token = driver.NewToken()
	c.Correlation = driver.NewToken().String()
	return c
}

func newFingerprint() driver.Fingerprint {
	settings := driver.NewToken()
	return driver.Fingerprint{
		Raw:       driver.NewToken(),
		Canonical: driver.NewToken(),
		Settings:  [8]byte(settings[:8]),
	}
}

// answer returns an answer with a bit of everything.
func answer() *driver.Response {
	return &driver.Response{
		Status:  201,
		Header:  http.Header{"Content-Type": {"application/json"}, "Location": {"/payments/7"}},
		Trailer: http.Header{"Content-Digest": {"sha-256=:47DEQpj8HBSa:"}},
		Body:    []byte(`{"id":7}`),
	}
}

func done(a *driver.Response) driver.Outcome { return driver.Outcome{State: driver.Done, Response: a} }

func free(why string) driver.Outcome { return driver.Outcome{State: driver.Free, Error: why} }

// owed is free with an end that is owed.
func owed(why string) driver.Outcome {
	return driver.Outcome{State: driver.Free, Error: why, Owed: true}
}

func unknown(why string) driver.Outcome { return driver.Outcome{State: driver.Unknown, Error: why} }
