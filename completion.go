package semel

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/engine"
	"github.com/semelhq/semel/internal/fingerprint"
	"github.com/semelhq/semel/internal/storedrequest"
	"github.com/semelhq/semel/internal/thrown"
)

// complete runs an operation without its client, if it is still due. It reports whether that failed. If a run was
// started, its outcome shows in the record.
func (c *Completer) complete(ctx context.Context, id driver.ID) (failed bool) {
	rec, err := c.guard.engine.Load(ctx, id)
	if err != nil {
		return errors.Is(err, driver.ErrUnreadable) // for other errors, the next look shows whether the store works
	}
	if at, due := c.completionDue(&rec); !due || rec.Now < at {
		return false
	}
	s, err := storedrequest.Open(c.guard.keyring, id, &rec)
	if err == nil && !c.serves(s) {
		return false // another completer's
	}
	if c.guard.engine.OpenNames(ctx, id, &rec) != nil {
		rec.Operation, rec.Correlation = "", "" // the stored request is run, and has names of its own
	}
	return c.attempt(ctx, id, &rec, func() error {
		switch {
		case c.exhausted(&rec):
			return c.giveUp(ctx, id, &rec)
		case err != nil:
			return err
		}
		return c.resume(ctx, id, &rec, s)
	})
}

// attempt reports a failure of f, also if f ends its goroutine. Hooks and handlers can do that.
func (c *Completer) attempt(ctx context.Context, id driver.ID, rec *driver.Record, f func() error) (failed bool) {
	err := errors.New("it did not return: what was called has ended its goroutine")
	defer func() { failed = c.failed(ctx, id, rec, err) }()
	err = f()
	return
}

// failed reports a failure, unless the completer's own end has caused it.
func (c *Completer) failed(ctx context.Context, id driver.ID, rec *driver.Record, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	c.event(ctx, event.CompletionFailed, id, rec, err)
	return true
}

func (c *Completer) event(ctx context.Context, kind event.Kind, id driver.ID, rec *driver.Record, err error) {
	a := engine.Ask{ID: id, Operation: rec.Operation, Correlation: rec.Correlation}
	c.guard.engine.Tell(ctx, &a, rec, kind, err)
}

// resume serves the stored request of a record that was just read.
func (c *Completer) resume(ctx context.Context, id driver.ID, rec *driver.Record, s *storedrequest.Request) error {
	if s.Kind != "" {
		return c.call(ctx, id, rec, s)
	}
	if c.guard.identity.ID(string(KindHTTP), s.Scope, s.Key) != id {
		return errForeignRequest
	}
	r, err := s.HTTP()
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, c.reader.policy.MaxRun)
	defer cancel()
	return c.serve(bounded, r, &resumption{core: c.guard.core, id: id, rec: *rec, request: s})
}

var errForeignRequest = fmt.Errorf("the stored request is that of another operation, or of another identity secret: %w", driver.ErrUnreadable)

// serve has the handler answer a request that has no client.
func (c *Completer) serve(ctx context.Context, r *http.Request, s *resumption) (err error) {
	w := &answer.Nowhere{Fields: http.Header{}}
	what := r.Method + " " + fingerprint.TargetPath(r)
	defer func() {
		switch value := recover(); {
		case value != nil && value != http.ErrAbortHandler: //nolint:errorlint // as net/http compares it
			err = thrown.Error(value)
		case err == nil && !s.taken.Load():
			err = fmt.Errorf("%s: no guard took it; it was answered with %d", what, w.Status)
		}
	}()
	// Without a server in their context, handlers such as httputil.ReverseProxy would return normally where they should
	// abort.
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

// giveUp ends an operation as unknown because it was run often enough. It does not run it.
func (c *Completer) giveUp(ctx context.Context, id driver.ID, rec *driver.Record) error {
	p := c.reader.route.Policy
	p.Retention, p.Tombstone = rec.Retention, rec.Tombstone
	a := engine.Ask{ID: id, Fingerprint: rec.Fingerprint, Operation: rec.Operation, Correlation: rec.Correlation}
	o := driver.Outcome{State: driver.Unknown, Error: fmt.Sprintf("given up after %d runs", rec.Attempt)}
	if rec.State == driver.Free && rec.Error != "" {
		o.Error += "; the last one: " + rec.Error
	}
	now, mine, err := c.reader.route.With(p).End(ctx, &a, o, (&resumption{rec: *rec}).continues)
	if err == nil && mine {
		c.event(ctx, event.CompletionGivenUp, id, &now, errors.New(o.Error))
	}
	return err
}

// inquire asks what became of an operation.
func (c *Completer) inquire(ctx context.Context, id driver.ID) bool {
	asked, cancel := context.WithTimeout(ctx, c.reader.policy.MaxRun)
	defer cancel()
	rec := driver.Record{}
	ask := func(ctx context.Context, i Inquiry) (f Finding, err error) {
		rec.Operation, rec.Correlation, rec.Attempt, rec.Fence = i.Operation, i.Correlation, uint32(i.Attempt), i.Fence
		defer thrown.Catch(&err)
		return c.o.Reconcile(ctx, i)
	}
	return c.attempt(ctx, id, &rec, func() error {
		_, err := c.reader.Reconcile(asked, id, ask)
		return err
	})
}
