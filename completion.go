package semel

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/fingerprint"
)

// complete runs an operation without its client, if it is still due. It reports whether it failed to: what became of a
// run that was started shows in the record.
func (c *Completer) complete(ctx context.Context, id driver.ID) (failed bool) {
	rec, err := c.guard.load(ctx, id)
	if err != nil {
		return errors.Is(err, driver.ErrUnreadable) // else the next look shows whether the store works
	}
	if at, due := c.completionDue(&rec); !due || rec.Now < at {
		return false
	}
	if c.guard.openNames(ctx, id, &rec) != nil {
		rec.Operation, rec.Correlation = "", "" // what is run is the stored request, which has names of its own
	}
	return c.attempt(ctx, id, &rec, func() error {
		if c.exhausted(&rec) {
			return c.giveUp(ctx, id, &rec)
		}
		return c.resume(ctx, id, &rec)
	})
}

// attempt reports a failure of f, also if f ends its goroutine, as hooks and handlers can.
func (c *Completer) attempt(ctx context.Context, id driver.ID, rec *driver.Record, f func() error) (failed bool) {
	err := errors.New("it did not return: what was called has ended its goroutine")
	defer func() { failed = c.failed(ctx, id, rec, err) }()
	err = f()
	return
}

// failed reports a failure, unless it comes of the completer's own end.
func (c *Completer) failed(ctx context.Context, id driver.ID, rec *driver.Record, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	c.event(ctx, event.CompletionFailed, id, rec, err)
	return true
}

func (c *Completer) event(ctx context.Context, kind event.Kind, id driver.ID, rec *driver.Record, err error) {
	c.guard.observer.Observe(context.WithoutCancel(ctx), event.Event{
		Kind: kind, ID: id, Operation: rec.Operation, Correlation: rec.Correlation,
		Attempt: rec.Attempt, Fence: rec.Fence, Err: err,
	})
}

// resume serves the stored request of a record that was just read.
func (c *Completer) resume(ctx context.Context, id driver.ID, rec *driver.Record) error {
	s, err := openRequest(c.guard.keyring, id, rec)
	if err != nil {
		return err
	}
	if c.guard.identity.ID(string(KindHTTP), s.Scope, s.Key) != id {
		return fmt.Errorf("the stored request is that of another operation, or of another identity secret: %w", driver.ErrUnreadable)
	}
	r, err := s.request()
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, c.reader.policy.MaxRun)
	defer cancel()
	return c.serve(bounded, r, &resumption{core: c.guard.core, id: id, rec: *rec, request: s})
}

// serve has the handler answer a request to nobody.
func (c *Completer) serve(ctx context.Context, r *http.Request, s *resumption) (err error) {
	w := &nowhere{header: http.Header{}}
	what := r.Method + " " + fingerprint.TargetPath(r)
	defer func() {
		switch thrown := recover(); {
		case thrown != nil && thrown != http.ErrAbortHandler: //nolint:errorlint // as net/http compares it
			err = thrownError(thrown)
		case err == nil && !s.taken.Load():
			err = fmt.Errorf("%s: no guard took it; it was answered with %d", what, w.status)
		}
	}()
	// Without a server in their context handlers such as httputil.ReverseProxy end in order where they would abort.
	ctx = context.WithValue(ctx, http.ServerContextKey, &http.Server{Handler: c.handler})
	r, err = c.o.Principal(ctx, r.WithContext(ctx), s.request.Scope)
	switch {
	case err != nil:
		return fmt.Errorf("make its principal: %w", err)
	case r == nil:
		return errors.New("make its principal: Principal returned no request")
	}
	ctx = context.WithValue(r.Context(), resumptionKey{}, s)
	if ctx.Value(http.ServerContextKey) == nil { // Principal has made a context of its own
		ctx = context.WithValue(ctx, http.ServerContextKey, &http.Server{Handler: c.handler})
	}
	c.handler.ServeHTTP(w, r.WithContext(ctx))
	return s.failure()
}

// giveUp ends an operation unknown that was run often enough, without running it.
func (c *Completer) giveUp(ctx context.Context, id driver.ID, rec *driver.Record) error {
	p := *c.reader.policy
	p.Retention, p.Tombstone = rec.Retention, rec.Tombstone
	g := &Guard{core: c.guard.core, policy: &p, keys: c.guard.keys}
	a := ask{
		kind: KindHTTP, id: id, fingerprint: rec.Fingerprint, operation: rec.Operation, correlation: rec.Correlation,
	}
	o := driver.Outcome{State: driver.Unknown, Error: fmt.Sprintf("given up after %d runs", rec.Attempt)}
	if rec.State == driver.Free && rec.Error != "" {
		o.Error += "; the last one: " + rec.Error
	}
	now, mine, err := g.end(ctx, &a, &resumption{rec: *rec}, o)
	if err == nil && mine {
		c.event(ctx, event.CompletionGivenUp, id, &now, errors.New(o.Error))
	}
	return err
}

// end claims an operation and settles it at once, if it is still what was due. It returns the record as it stands then,
// and whether it did both. A settle that gets no reply goes on without it, and counts as done: nobody else would tell
// of it.
func (g *Guard) end(ctx context.Context, a *ask, s *resumption, o driver.Outcome) (driver.Record, bool, error) {
	var rec driver.Record
	run, p := g.claim(ctx, a, &rec)
	switch {
	case p != nil:
		return rec, false, p
	case run == nil:
		return rec, false, nil
	case !s.continues(&rec):
		run.unstarted()
		return rec, false, nil
	}
	run.lease.handlerEnded()
	now, how := run.settle(o)
	if how == settledLater {
		now = rec
	}
	return now, how == settledOwn || how == settledLater, nil
}

// inquire asks what became of an operation.
func (c *Completer) inquire(ctx context.Context, id driver.ID) bool {
	asked, cancel := context.WithTimeout(ctx, c.reader.policy.MaxRun)
	defer cancel()
	rec := driver.Record{}
	ask := func(ctx context.Context, i Inquiry) (f Finding, err error) {
		rec.Operation, rec.Correlation, rec.Attempt, rec.Fence = i.Operation, i.Correlation, uint32(i.Attempt), i.Fence
		defer noReply(&err)
		return c.o.Reconcile(ctx, i)
	}
	return c.attempt(ctx, id, &rec, func() error {
		_, err := c.reader.Reconcile(asked, id, ask)
		return err
	})
}

// nowhere is where the answer to nobody goes.
type nowhere struct {
	header http.Header
	status int
}

func (w *nowhere) Header() http.Header { return w.header }

func (w *nowhere) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
}

func (w *nowhere) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return len(b), nil
}

// What net/http's own writer can do lets handlers that rely on it work as they do with a client.

func (w *nowhere) Flush() {}

func (w *nowhere) SetReadDeadline(time.Time) error { return nil }

func (w *nowhere) SetWriteDeadline(time.Time) error { return nil }

func (w *nowhere) EnableFullDuplex() error { return nil }
