package semel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/pause"
	"github.com/semelhq/semel/internal/rounds"
	"github.com/semelhq/semel/internal/settings"
	"github.com/semelhq/semel/internal/storedrequest"
)

// A Completer finishes operations whose client does not ask again. These are operations whose run was lost and whose
// request is stored: by Policy.Complete, or because the client asked for a 202 (Policy.RespondAsync). They are also
// operations whose client was told that they will be finished. A completer runs the stored requests as one more
// claimant: a client that asks again at the same time, another completer and a late owner are treated as with any run.
// It does not run an operation that was released with an answer to its client, and never runs one under Hold.
//
// A Completer is made by [Guard.Completer]. Several may work on one store.
type Completer struct {
	guard   *Guard
	reader  *Guard       // reads records as their own owners do
	handler http.Handler // nil if it serves calls of Do alone
	lister  driver.Lister
	o       CompleterOptions
}

// CompleterOptions are the settings of a [Completer]. The zero value of each field but Principal means the documented
// default.
type CompleterOptions struct {
	// Principal sets the principal of a stored request, in the request's context or its header. It is the principal under
	// which the service itself runs the request for the scope of the client, in the form that the layers between the
	// completer's handler and the guard expect. The request carries none of the client's credentials. Principal may change
	// r, or return another request. An error leaves the operation for later. It is called concurrently. ctx, which is also
	// r's context, ends after Policy.MaxRun, but does not end the run that follows. Required with a handler.
	Principal func(ctx context.Context, r *http.Request, scope string) (*http.Request, error)
	// Do has the functions that finish stored calls of [Do] (Policy.Complete), by their kind. A function calls Do with ctx,
	// the same key and the same request: that call becomes the operation's next run. What the function returns is of no
	// account, as the outcome shows in the record. It is called concurrently; ctx ends as for Principal. Calls of kinds
	// that are not named here are left to other completers.
	Do map[Kind]func(ctx context.Context, key Key, request []byte) error
	// Interval is the time between two looks into the store. Each interval is shortened at random, by up to a half.
	// Defaults to 5 s.
	Interval time.Duration
	// Backoff is how long an operation rests before it is run without its client: after its lease ran out, or its last run
	// was released. It doubles with each run. Defaults to 1 s.
	Backoff time.Duration
	// MaxBackoff is the longest such rest. Defaults to 5 min, or Backoff if that is longer.
	MaxBackoff time.Duration
	// MaxAttempts is how many runs an operation has, those of its clients included, before the completer gives it up. Then
	// the operation ends unknown, and an operator decides. Each time the operator sets it free it has one more run.
	// Negative means no limit. Defaults to 10.
	MaxAttempts int
	// Concurrency is how many operations are run at once, and how many Reconcile is asked about at once. Defaults to 8.
	Concurrency int
	// Reconcile, if set, is asked what became of operations that read as unknown, as by [Guard.Reconcile]. It is asked
	// about operations of all routes, also about those under Hold. An operation whose lease ran out is asked about after
	// Backoff. Any other is asked about once its unknown outcome is as old as its run was then, after Backoff at the
	// earliest and MaxBackoff at the latest. Reconcile is called concurrently; ctx ends after Policy.MaxRun. It needs a
	// store that is a [driver.Seizer]. Defaults to leaving such operations to operators.
	Reconcile func(ctx context.Context, i Inquiry) (Finding, error)
}

// Completer returns a completer of the operations in the guard's store. h serves their requests. It is the routes that
// clients use, guarded by this guard or by guards made from it, without the layers above that authenticate clients. All
// that h serves must be guarded: an unguarded route would be run without protection. h may be nil for a completer of
// calls of [Do] alone (CompleterOptions.Do). Nothing is started; see [Completer.Run].
//
// The store must be a [driver.Lister], and [Options].Encryption set.
func (g *Guard) Completer(h http.Handler, o CompleterOptions) (*Completer, error) {
	var f settings.Faults
	store := g.engine.Store()
	_, lists := store.(driver.Lister)
	f.If(!lists, "the store, a %T, can't be searched for what is to be finished: %w", store, errors.ErrUnsupported)
	f.If(g.keyring == nil, "Options.Encryption is needed: without it no request is stored")
	f.If(h == nil && len(o.Do) == 0, "the handler is nil, and Do has no function: there is nothing to finish")
	f.If(h != nil && o.Principal == nil, "Principal is nil: say who runs the requests")
	for kind, do := range o.Do {
		f.If(kind == "" || kind == KindHTTP, "Do[%q]: no call of Do is of that kind", kind)
		f.If(do == nil, "Do[%q] is nil", kind)
	}
	settings.Fill(&f, "Interval", &o.Interval, 5*time.Second)
	settings.Fill(&f, "Backoff", &o.Backoff, time.Second)
	settings.Fill(&f, "MaxBackoff", &o.MaxBackoff, max(5*time.Minute, o.Backoff))
	f.If(o.MaxBackoff < o.Backoff, "MaxBackoff is %v, want at least Backoff, which is %v", o.MaxBackoff, o.Backoff)
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 10)
	settings.Fill(&f, "Concurrency", &o.Concurrency, 8)
	_, seizes := store.(driver.Seizer)
	f.If(o.Reconcile != nil && !seizes, "Reconcile: the store, a %T, can't be seized: %w", store, errors.ErrUnsupported)
	if err := f.Err(); err != nil {
		return nil, fmt.Errorf("semel: new completer: %w", err)
	}
	return &Completer{guard: g, reader: g.reading(), handler: h, lister: g.engine, o: o}, nil
}

// reading returns the guard with a policy for a claim whose handler does not run. Each record says by itself whether it
// is held.
func (g *Guard) reading() *Guard {
	p := *g.policy
	p.OnLost, p.OneCommit = Rerun, false
	return &Guard{core: g.core, policy: &p, route: g.route.With(p.engine())}
}

// Run finishes operations until ctx ends. Then it waits for the runs that it has started, and returns ctx's error. The
// end of ctx does not end these runs, as the end of a client does not end the run of a request; each has its policy's
// MaxRun.
func (c *Completer) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	store := c.guard.engine.Store()
	scanned := rounds.Scans(store)
	loops.Go(func() {
		rounds.Scan(ctx, store, func(err error) { c.guard.engine.Failed(ctx, "scan", driver.ID{}, err) })
	})
	if c.o.Reconcile != nil {
		loops.Go(func() {
			c.rounds(driver.Query{Reading: driver.ReadsUnknown, Scanned: scanned}, c.inquiryDue, c.inquire).Run(ctx)
		})
	}
	c.rounds(driver.Query{Sealed: true, Reading: driver.ReadsFree, Scanned: scanned}, c.completionDue, c.complete).Run(ctx)
	loops.Wait()
	return ctx.Err()
}

const (
	completerMost = 1024 // operations that one look finds
	// A store that gives no answer must not keep the completer from its work for longer than this.
	completerListing = 15 * time.Minute
)

func (c *Completer) rounds(q driver.Query, due func(*driver.Record) (driver.Time, bool), do func(context.Context, driver.ID) (failed bool)) *rounds.Rounds {
	return rounds.New(rounds.Settings{
		Lister: c.lister, Query: q, Listing: completerListing, Most: completerMost,
		Due: func(id driver.ID, rec *driver.Record, _ uint64) (at driver.Time, is bool) {
			if at, is = due(rec); is && q.Sealed {
				s, err := storedrequest.Open(c.guard.keyring, id, rec)
				is = err != nil || c.serves(s)
			}
			return at, is
		},
		Do:          func(ctx context.Context, o rounds.Operation) (again bool, fence uint64) { return do(ctx, o.ID), 0 },
		Concurrency: c.o.Concurrency,
		Delay:       c.delay,
		Rest: func(took time.Duration, more bool) time.Duration {
			rest := pause.Jitter(c.o.Interval)
			if more {
				rest = min(rest, took) // a backlog does not keep the store busy with lists
			}
			return rest
		},
		Looked: func(ctx context.Context, err error) {
			if err != nil {
				c.guard.engine.Failed(ctx, "list", driver.ID{}, err)
			}
		},
	})
}

// completionDue returns the time from which an operation may be run without its client. It returns false if the
// operation must not be run. The result depends on the record alone, so that all completers agree.
func (c *Completer) completionDue(rec *driver.Record) (driver.Time, bool) {
	if len(rec.Sealed) == 0 || rec.OnLost == Hold || rec.Reads(Rerun) != driver.ReadsFree {
		return 0, false
	}
	since := rec.Settled
	if rec.State == driver.Running {
		since = rec.LeaseEnd
	} else if !rec.Owed {
		return 0, false // its client has an answer: nothing happened
	}
	if freed(rec) {
		return since.Add(c.o.Backoff), true
	}
	return since.Add(c.delay(int(rec.Attempt))), true
}

// inquiryDue returns the time from which an operation whose outcome is unknown may be asked about. Each inquiry seizes
// the record, so that the time between inquiries doubles.
func (c *Completer) inquiryDue(rec *driver.Record) (driver.Time, bool) {
	switch {
	case rec.Reads(rec.OnLost) != driver.ReadsUnknown:
		return 0, false
	case rec.State == driver.Running:
		return rec.LeaseEnd.Add(c.o.Backoff), true
	}
	return rec.Settled.Add(min(max(rec.Settled.Sub(rec.Started), c.o.Backoff), c.o.MaxBackoff)), true
}

// delay returns the rest after the given number of attempts.
func (c *Completer) delay(attempts int) time.Duration {
	return pause.Backoff(c.o.Backoff, c.o.MaxBackoff, attempts)
}

// exhausted reports whether the next claim gives the operation up: it was run often enough, and since then nobody has
// said that nothing happened.
func (c *Completer) exhausted(rec *driver.Record) bool {
	return c.o.MaxAttempts > 0 && int(rec.Attempt) >= c.o.MaxAttempts && !freed(rec)
}

// freed reports whether an operator or reconcile has set an owed operation free: only they clear Maybe of an owed
// operation.
func freed(rec *driver.Record) bool { return rec.State == driver.Free && !rec.Maybe }
