package consumer

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/thrown"
)

// note records a failure: in one-commit mode the run has left nothing that counts it. If it was the last one that the
// message may have, the message goes to the dead letters, and is marked dead in its own record.
func (c *Consumer) note(ctx context.Context, d *delivery) error {
	g := c.runs
	if g.Policy().OneCommit {
		g = c.notes
	}
	return call(func() error {
		_, err := semel.Do(semel.WithReport(ctx, &d.report), g, d.key, d.request, func(run context.Context) (struct{}, error) {
			attempt := semel.FromContext(run).Attempt()
			d.attempt.Store(int64(attempt))
			if !semel.IsFinal(d.failed) && attempt < c.o.MaxAttempts {
				return struct{}{}, d.failed
			}
			return struct{}{}, c.bury(ctx, run, d, d.failed)
		})
		return err
	})
}

// letter sends a message to the dead letters that can't be marked dead in its own record: it has none, or its record is
// that of another message, or of a run whose outcome nobody knows. What is recorded is the letter: once for each id and
// payload. Without an id, equal messages can't be told apart, and each is a letter at each delivery.
func (c *Consumer) letter(ctx context.Context, d *delivery, reason error) error {
	if d.ID == "" {
		return call(func() error { return c.bury(ctx, ctx, d, reason) })
	}
	key := d.key
	key.Value = letterOf(d.ID, d.request)
	return call(func() error {
		_, err := semel.Do(ctx, c.notes, key, semel.Bytes(nil), func(run context.Context) (struct{}, error) {
			d.attempt.Store(int64(semel.FromContext(run).Attempt()))
			return struct{}{}, c.bury(ctx, run, d, reason)
		})
		if _, before := err.(*semel.ReplayedError); before { //nolint:errorlint // the guard's own, as it returns it
			d.buried.Store(true)
			err = semel.Final(reason)
		}
		return err
	})
}

// bury gives a message to Options.DeadLetter, and returns the reason as a final error if that has taken it. DeadLetter
// works outside of the message's operation, so its transactions are its own. Its context ends with run.
func (c *Consumer) bury(ctx, run context.Context, d *delivery, reason error) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(run, func() { cancel(context.Cause(run)) })()
	if err := c.bring(ctx, d.Message, reason); err != nil {
		return &failure{fmt.Errorf("hand over the dead letter: %w; it is dead because of: %w", err, reason), reason.Error()}
	}
	d.buried.Store(true)
	return semel.Final(reason)
}

func (c *Consumer) bring(ctx context.Context, m Message, reason error) (err error) {
	defer thrown.Catch(&err)
	if c.o.DeadLetter != nil {
		return c.o.DeadLetter(ctx, m, reason)
	}
	slog.Default().WarnContext(ctx, "message is dead, and Options.DeadLetter is not set", "event", "message_dead",
		"consumer", c.name, "topic", m.Topic, "deliveries", m.Deliveries, "error", reason)
	return nil
}
