package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/refusal"
)

// A Consumer handles the messages that come to one name. It is safe for concurrent use. Consumers of the same name, in
// several processes that share a storage, are one consumer; under another name the same message is handled once more.
type Consumer struct {
	name string
	o    Options
	runs *semel.Guard // of handlers
	// notes is the guard of what is recorded beside a run: dead letters, and the failures of one-commit mode. Such a
	// run may be repeated, and always has a lease.
	notes *semel.Guard
}

// New returns the consumer of that name: 1 to 255 bytes of UTF-8 without NUL. It works on the guard's store, with
// OnLost, OneCommit, Lease, MaxRun, SettleWait, Tombstone and MaxWaiters of the guard's policy. A name stands for what
// is done with messages; it must not be changed as long as messages may be delivered again.
func New(g *semel.Guard, name string, o Options) (*Consumer, error) {
	if g == nil {
		return nil, errors.New("consumer: guard is nil")
	}
	err := o.compile()
	if name == "" || len(name) > 255 || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		err = errors.Join(errors.New("the name is not 1 to 255 bytes of UTF-8 without NUL"), err)
	}
	p := o.policy(g.Policy())
	if err == nil {
		err = p.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("consumer: new consumer %q: %w", name, err)
	}
	c := &Consumer{name: name, o: o}
	notes := p
	notes.OnLost, notes.OneCommit = semel.Rerun, false
	if p.OneCommit {
		p.OnLost = semel.Rerun // it does not matter to a run, but a note is read by it
	}
	c.runs, c.notes = g.Route(p), g.Route(notes)
	return c, nil
}

// Handle runs fn for the message, unless the message was handled before, and returns what the broker has to be told. It
// is a [semel.Do] whose key is the message's id: fn gets a context that ends after Policy.MaxRun and not with ctx, and
// may use [semel.Step], derived keys and a transaction of the store. "Handled" is recorded after fn has returned nil,
// never before.
//
// An error of fn says that nothing has happened, under Hold too: the message comes again, and its runs are counted. An
// error that [semel.Final] has marked says that no other run is of use: the message is dead at once. If fn panics or
// calls runtime.Goexit, the message has failed, and its run is lost: under Rerun it is run again, under Hold it is dead
// at its next delivery, because it may have had its effect.
//
// A message is dead, too, if it has no id, if its payload is too large or is not the one that its id stood for before,
// if under Hold its run was lost, or if its record can't be read. It goes to Options.DeadLetter with the reason.
//
// If ctx ends first, fn goes on, and the message is [Busy]; [semel.Guard.Drain] waits for fn.
func (c *Consumer) Handle(ctx context.Context, m Message, fn func(context.Context, Message) error) Result {
	return c.handle(ctx, m, func(ctx context.Context, g *semel.Guard, d *delivery) error {
		_, err := semel.Do(ctx, g, d.key, d.request, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, c.begin(ctx, d, func() error { return fn(ctx, d.Message) })
		})
		return err
	})
}

// HandleTx is [Consumer.Handle] with fn in a transaction of s, which is the store of the consumer's guard. What fn does
// in the transaction and the mark that the message is handled commit together or not at all. Packages of stores
// build their function Inbox on it.
//
// If the guard's policy is OneCommit, there is one commit and no lease. What would be counted with a claim is then
// counted after a failure. A run that ended with its process leaves nothing to count. So a message that the broker
// calls a redelivery (Message.Deliveries above 1) is run with a lease.
func (c *Consumer) HandleTx(ctx context.Context, s driver.Transactor, m Message, fn func(context.Context, driver.Tx, Message) error) Result {
	return c.handle(ctx, m, func(ctx context.Context, g *semel.Guard, d *delivery) error {
		_, err := semel.DoTx(ctx, g, s, d.key, d.request, func(ctx context.Context, tx driver.Tx) (struct{}, error) {
			return struct{}{}, c.begin(ctx, d, func() error { return fn(ctx, tx, d.Message) })
		})
		return err
	})
}

// A delivery is one delivery of a message.
type delivery struct {
	Message
	key     semel.Key
	request semel.Bytes
	report  semel.Report
	attempt atomic.Int64 // number of the last run; 0 if there was none
	failed  error        // what the handler has returned
	buried  atomic.Bool  // Options.DeadLetter has taken it
}

// begin counts the run, and calls the handler unless the message is exhausted. What it returns is never stored as the
// message's outcome: whether an error is the end is decided in a note, because a dead letter comes before its record.
func (c *Consumer) begin(ctx context.Context, d *delivery, handler func() error) error {
	op := semel.FromContext(ctx)
	d.attempt.Store(int64(op.Attempt()))
	err := exhausted(op.LastError())
	if op.Attempt() <= c.o.MaxAttempts {
		err = returning(handler)
	}
	if err != nil {
		err = &failure{err, err.Error()}
	}
	return err
}

// A failure is an error with which a run is released. It hides whether semel.Final has marked it.
type failure struct {
	err  error
	text string // for the record
}

func (f *failure) Error() string { return f.text }

// exhausted is the error of a message that is not run any more.
func exhausted(last string) error {
	last = strings.TrimPrefix(strings.TrimPrefix(last, ErrExhausted.Error()), ": ")
	if last == "" {
		return ErrExhausted
	}
	return fmt.Errorf("%w: %s", ErrExhausted, last)
}

func (c *Consumer) handle(ctx context.Context, m Message, run func(context.Context, *semel.Guard, *delivery) error) Result {
	defer c.keepAlive(&m)()
	d := &delivery{Message: m, key: semel.Key{Kind: semel.KindMessage, Scope: c.name, Operation: c.name}}
	if reason := c.identify(d); reason != nil {
		return c.result(d, c.letter(ctx, d, reason))
	}
	g := c.runs
	if m.Deliveries > 1 && g.Policy().OneCommit {
		g = c.notes
	}
	err := contained(func() error { return run(semel.WithReport(ctx, &d.report), g, d) })
	if failed := failureOf(err); failed != nil {
		err, d.failed = failed, failed
		if semel.IsFinal(failed) || d.attempt.Load() >= int64(c.o.MaxAttempts) || g.Policy().OneCommit {
			err = c.note(ctx, d)
		}
	}
	if p, refused := err.(*semel.Problem); refused && hopeless(p.Code) { //nolint:errorlint // the guard's own, as it returns it
		err = c.letter(ctx, d, p)
	}
	return c.result(d, err)
}

// failureOf returns the error with which a run has failed; nil if it has not. A refusal is no failure, and neither is
// the stored error of a dead message.
func failureOf(err error) error {
	switch err := err.(type) { //nolint:errorlint // the guard's own, as it returns them
	case nil, *semel.Problem, *semel.ReplayedError:
		return nil
	case *failure:
		return err.err
	}
	var inner *failure
	if errors.As(err, &inner) { // joined with what the store has to say
		err = errors.Join(err, inner.err)
	}
	return err
}

// hopeless reports whether no other delivery of a message can change that it is refused.
func hopeless(code refusal.Code) bool {
	return code == refusal.KeyReused || code == refusal.OutcomeUnknown || code == refusal.ReplayUnavailable
}

// identify fills in the key and the request of a delivery. An error is the reason why the message is dead.
func (c *Consumer) identify(d *delivery) (reason error) {
	defer func() {
		if value := recover(); value != nil {
			reason = fmt.Errorf("find out which message it is: panic: %v", value)
		}
	}()
	d.request = d.Payload
	if d.ID == "" && c.o.ID != nil {
		d.ID = c.o.ID(d.Message)
	}
	if d.ID == "" {
		return ErrNoID
	}
	d.key.Value = keyOf(d.ID)
	if n := int64(len(d.Payload)); c.o.MaxPayload > 0 && n > c.o.MaxPayload {
		return fmt.Errorf("%w: it has %d bytes, Options.MaxPayload allows %d", ErrTooLarge, n, c.o.MaxPayload)
	}
	if c.o.Fingerprint != nil {
		d.request = c.o.Fingerprint(d.Message)
	}
	return nil
}

// result says what the end of a delivery means for the broker.
func (c *Consumer) result(d *delivery, err error) Result {
	var r Result
	switch refused := err.(type) { //nolint:errorlint // the guard's own, as it returns them
	case nil:
		r.Outcome, r.Action = Done, Ack
		if d.report.Replayed {
			r.Outcome = Duplicate
		}
		return r
	case *semel.ReplayedError:
		r.Outcome, r.Action = Dead, Term
	case *semel.Problem:
		r.Outcome, r.Delay = Busy, max(refused.RetryAfter, c.o.MinBackoff)
		switch refused.Code {
		case refusal.KeyExpired: // it was handled longer ago than Retention
			return Result{Outcome: Duplicate, Action: Ack}
		case refusal.InProgress, refusal.OutcomePending, refusal.TooManyAttempts, refusal.TooManyKeys:
		default:
			r.Outcome, r.Delay = Failed, max(refused.RetryAfter, c.backoff(d.Deliveries))
		}
		if d.failed != nil { // the error is about the note
			err = fmt.Errorf("%w; it can't be recorded: %w", d.failed, err)
		}
	default:
		if d.buried.Load() {
			r.Outcome, r.Action = Dead, Term
			break
		}
		err, r.Delay = failureOf(err), c.backoff(int(d.attempt.Load()))
	}
	r.Err = fmt.Errorf("consumer %q: the message is %v: %w", c.name, r.Outcome, err)
	return r
}

// backoff is the delay after the run, or delivery, of that number.
func (c *Consumer) backoff(n int) time.Duration {
	d := c.o.MinBackoff
	for ; n > 1 && d < c.o.MaxBackoff; n-- {
		d *= 2
	}
	d = min(d, c.o.MaxBackoff)
	return d - rand.N(d/2+1)
}
