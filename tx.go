package semel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/refusal"
)

// RunTx runs fn in a transaction of s in which the operation of ctx is settled too, so that effects and answer commit
// together or not at all. It is what the packages of stores build their own method for handlers on.
//
// The answer is what was written when fn returned; it is part of the transaction, so that what the handler writes later
// gets [ErrSettled], and fn has to write one: [refusal.NoAnswer]. From the first transaction on nothing leaves before
// the outcome is settled, on streaming routes too.
//
//   - fn returns nil, and its answer is one to keep: all commits.
//   - fn returns an error, and has written a 4xx to keep, or, in [DoTx], returns a [Final] one: what fn did is undone,
//     the record commits with that answer. RunTx returns fn's error.
//   - Else all is rolled back. An answer below 400 is dropped, so that the handler can write another one, or try again;
//     one from 400 on, if the handler does try again. RunTx returns fn's error, or one that wraps [driver.ErrRolledBack] if the
//     answer was not one to keep.
//
// If the commit fails, RunTx returns its error instead; that wraps driver.ErrRolledBack if it is certain that nothing
// has happened. Else the guard finds out before it answers: the client gets fn's answer if and only if the transaction
// has committed.
//
// A handler that answers with less than 400 after a transaction that was rolled back, or not at all, is overruled: the
// client is told 503 and may try again with the same key. A 5xx then releases the key, and so does a panic, unless
// there may be an effect elsewhere: the operation has taken a derived key ([Operation.Key]), or says that it is lost
// ([Operation.Lost]).
//
// Without an operation, as for a request without a key, it is a plain transaction.
func RunTx(ctx context.Context, s driver.Transactor, fn func(context.Context, driver.Tx) error) error {
	op := FromContext(ctx)
	if op == nil || op.run.joint.apart {
		return plainTx(ctx, s, fn)
	}
	return op.run.transact(ctx, s, fn)
}

// DoTx is [Do] with fn in a transaction of s, by the rules of [RunTx].
func DoTx[T any](ctx context.Context, g *Guard, s driver.Transactor, key Key, request Fingerprinter, fn func(context.Context, driver.Tx) (T, error)) (T, error) {
	return Do(ctx, g, key, request, func(ctx context.Context) (value T, err error) {
		err = RunTx(ctx, s, func(ctx context.Context, tx driver.Tx) error {
			value, err = fn(ctx, tx)
			if op := FromContext(ctx); op != nil {
				op.run.joint.result = &result{value, err}
			}
			return err
		})
		return value, err
	})
}

// plainTx runs fn in a transaction that settles nothing.
func plainTx(ctx context.Context, s driver.Transactor, fn func(context.Context, driver.Tx) error) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin the transaction: %w", err)
	}
	defer tx.Rollback()
	if err := fn(ctx, tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// A joint is what a run knows of the transactions in which it works.
type joint struct {
	apart bool // they settle nothing: the run is only observed

	working atomic.Bool // one is under way
	closed  atomic.Bool // no step any more: the operation is settled, or its handler has ended

	mu    sync.Mutex    // held while one is under way
	over  bool          // the handler has ended: no more transactions
	open  driver.Tx     // in one-commit mode, while it is under way
	claim *driver.Claim // that it was begun with
	state jointState
	// Of the last transaction that was to commit.
	outcome driver.Outcome
	rec     *driver.Record // once it has committed
	result  *result        // of DoTx
}

// close is called when the handler has ended. It waits for a transaction that the handler has left behind; from then on
// there are no more, and the rest may be read without mu.
func (j *joint) close() {
	j.closed.Store(true)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.over = true
	j.closed.Store(true) // a commit that has failed meanwhile may have taken it back
}

type jointState uint8

const (
	apartSoFar jointState = iota
	rolledBack            // the last transaction has left no trace
	doubtful              // its commit got no reply
	committed             // the operation is settled
)

// A result is what the function of a DoTx returned.
type result struct {
	value any
	err   error
}

// A face is what a run needs of the one who asked for it, to settle while the handler still runs. It is called on the
// goroutine of the transaction, of which there is one at a time.
type face interface {
	// mark begins what rewind takes back: the answer written since.
	mark() error
	rewind(all bool) // false leaves an error that was answered
	// freeze ends the answer, and says what the run would be settled with if the handler returned now; keep is false if
	// that goes only without the effects.
	freeze(err error) (o driver.Outcome, keep bool, failed error)
}

// claimTx is claim in one-commit mode.
func (g *Guard) claimTx(ctx context.Context, a *ask, rec *driver.Record) (*run, *Problem) {
	window := newDeadline(context.WithoutCancel(ctx), min(g.policy.SettleWait, g.life))
	defer window.end(nil)
	c := g.claimOf(a)
	sent := time.Now()
	var (
		tx    driver.Tx
		owned bool
	)
	asked, err := g.through(func() (err error) {
		tx, *rec, owned, err = g.store.BeginClaim(window, a.id, c)
		return err
	})
	switch {
	case err != nil:
		if asked {
			g.storeFailed(ctx, "claim", a.id, err)
		}
		if errors.Is(err, driver.ErrUnreadable) {
			return nil, g.problem(refusal.ReplayUnavailable, "").because(err)
		}
		return nil, g.unavailable(ctx, err)
	case !owned:
		return nil, nil
	case ctx.Err() != nil: // the client has gone; nothing was recorded
		tx.Rollback()
		return nil, g.unavailable(ctx, ctx.Err())
	}
	r := g.newRun(ctx, a, rec, c.Token, sent)
	r.joint.open, r.joint.claim = tx, &c
	return r, nil
}

func (r *run) transact(ctx context.Context, s driver.Transactor, fn func(context.Context, driver.Tx) error) (err error) {
	j := &r.joint
	if !j.mu.TryLock() {
		return ErrNested
	}
	defer j.mu.Unlock()
	j.working.Store(true)
	defer j.working.Store(false)
	switch {
	case j.over, j.state >= doubtful:
		return ErrSettled
	case r.policy.OneCommit && j.open == nil:
		return fmt.Errorf("%w: the operation has no other one in one-commit mode", driver.ErrRolledBack)
	}
	if err := r.face.mark(); err != nil {
		return err
	}
	j.state = rolledBack // until it is known better
	tx := j.open
	if tx == nil {
		if snapshots, ok := s.(driver.Snapshotter); ok && snapshots.HoldsSnapshot() {
			if err := r.lease.pause(); err != nil {
				return fmt.Errorf("renew the lease before the transaction: %w", err)
			}
			defer r.lease.goOn()
		}
		if tx, err = begin(ctx, s); err != nil {
			return fmt.Errorf("begin the transaction: %w", err)
		}
	}
	through := false
	defer func() {
		if !through {
			r.takeBack(tx)
		}
	}()
	if err := (txVerbs{tx}).Mark(ctx); err != nil {
		return fmt.Errorf("mark the transaction's beginning: %w", err)
	}
	err = fn(ctx, tx)
	o, keep, failed := r.face.freeze(err)
	switch {
	case failed != nil:
		return failed
	case o.State != driver.Done && err == nil:
		return fmt.Errorf("%w: its answer is not one to keep", driver.ErrRolledBack)
	case o.State != driver.Done || !keep:
		return err
	}
	if err != nil {
		if undo := (txVerbs{tx}).Undo(ctx); undo != nil {
			r.core.storeFailed(r.base, "undo", r.ask.id, undo)
			return err
		}
	}
	through = true
	if failed := r.commit(tx, o); failed != nil {
		return failed
	}
	return err
}

// takeBack ends a transaction without a trace, and drops what was written in it. In one-commit mode only its effects
// are undone: the handler may still give an answer to keep.
func (r *run) takeBack(tx driver.Tx) {
	r.face.rewind(false)
	if r.joint.open == nil {
		r.rollback(tx)
		return
	}
	ctx := newDeadline(r.base, r.policy.SettleWait)
	defer ctx.end(nil)
	if err := (txVerbs{tx}).Undo(ctx); err != nil {
		r.core.storeFailed(r.base, "undo", r.ask.id, err)
		r.joint.open = nil
		r.rollback(tx)
	}
}

// commit settles the run in the transaction, which commits that. The run's renewals pause, since on a record that is
// done they would be refused.
func (r *run) commit(tx driver.Tx, o driver.Outcome) error {
	j := &r.joint
	r.stored(&o)
	j.open, j.outcome = nil, o
	defer r.rollback(tx) // however this ends; after the commit it does nothing
	ctx := newDeadline(r.base, r.policy.SettleWait)
	defer ctx.end(nil)
	renewing := r.lease.stop()
	j.state = doubtful
	j.closed.Store(true)
	rec, owned, err := (txVerbs{tx}).Settle(ctx, r.ask.id, r.owner, j.outcome)
	if errors.Is(err, driver.ErrFull) && j.outcome.Response != nil {
		r.event(event.NotReplayable, err)
		j.outcome.Response = nil // a marker always fits
		rec, owned, err = (txVerbs{tx}).Settle(ctx, r.ask.id, r.owner, j.outcome)
	}
	switch {
	case err == nil && owned:
		j.state, j.rec = committed, &rec
		r.core.waiting.wake(r.ask.id)
		return nil
	case err == nil:
		j.state = rolledBack
		r.face.rewind(true)
		if renewing {
			r.lease.resume(false)
			r.lease.fenced()
		}
		return ErrFenced
	case errors.Is(err, driver.ErrFull): // the transaction is still open, and is rolled back now
		err = errors.Join(driver.ErrRolledBack, err)
		fallthrough
	case errors.Is(err, driver.ErrRolledBack):
		j.state = rolledBack
		r.face.rewind(true)
	}
	if j.state == rolledBack {
		j.closed.Store(j.over)
	}
	if renewing {
		r.lease.resume(j.state == doubtful)
	}
	r.core.storeFailed(r.base, "commit", r.ask.id, err)
	return fmt.Errorf("settle and commit: %w", err)
}

// elsewhere reports whether there may be an effect that no rollback takes back: of this run, or of a step of an earlier
// one.
func (r *run) elsewhere() bool { return r.stepped || r.op.derived.Load() || r.op.lost.Load() != nil }

// provesNothing reports whether the run's last transaction has left no trace, and nothing else can have either.
func (r *run) provesNothing() bool { return r.joint.state == rolledBack && !r.elsewhere() }

// uncommitted is what a run is settled with about whose commit there is no reply: if it is accepted, the transaction
// has not committed.
func (r *run) uncommitted() driver.Outcome {
	if r.elsewhere() {
		return r.policy.lost("its transaction was rolled back, but there may be an effect elsewhere")
	}
	return driver.Outcome{State: driver.Free, Error: "its transaction was rolled back"}
}

// errStillOpen means that a transaction that may be the one in question has not ended.
var errStillOpen = errors.New("the operation's transaction has not ended yet")

// askCommitted asks, in one-commit mode, what became of a commit that got no reply; owned says that there was none. It
// is the same claim once more: it would win.
func (r *run) askCommitted(ctx context.Context) (rec driver.Record, owned bool, err error) {
	tx, rec, owned, err := r.core.store.BeginClaim(ctx, r.ask.id, *r.joint.claim)
	switch {
	case errors.Is(err, driver.ErrFull): // there is no record
		return driver.Record{}, true, nil
	case err != nil:
		return driver.Record{}, false, err
	case owned:
		r.rollback(tx)
		return rec, true, nil
	case rec.State == driver.Running && rec.Token == driver.Token{}:
		return driver.Record{}, false, errStillOpen
	case rec.Token != r.owner.Token: // another run has begun since, so this one has not been recorded
		return rec, true, nil
	}
	return rec, false, nil
}

// resolve ends a run about whose commit the store has answered. With a lease its question was a settle by
// compare-and-set: that waits until the transaction has ended, and is refused if the transaction has settled the run.
func (r *run) resolve(rec driver.Record, owned bool) (driver.Record, settled) {
	switch {
	case !owned && rec.State == driver.Done && rec.Token == r.owner.Token:
		return r.ended(rec, true)
	case !owned:
		return r.ended(rec, false)
	}
	rec, _ = r.ended(rec, true)
	if r.elsewhere() && !r.policy.OneCommit {
		return rec, settledLost
	}
	return rec, settledNothing
}
