package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/lazyctx"
	"github.com/semelhq/semel/refusal"
)

// A joint is what a run knows about the transactions in which it works.
type joint struct {
	working atomic.Bool // a transaction is under way
	closed  atomic.Bool // no more steps: the operation is settled, or its handler has ended

	mu    sync.Mutex    // held while a transaction is under way
	over  bool          // the handler has ended: no more transactions
	open  driver.Tx     // the transaction of one-commit mode, while it is under way
	claim *driver.Claim // the claim with which it was begun
	state jointState
	// Of the last transaction that tried to commit.
	outcome driver.Outcome
	rec     *driver.Record // set once it has committed
}

// close is called when the handler has ended. It waits for a transaction that the handler has left behind. After it
// there are no more transactions, and the other fields may be read without mu.
func (j *joint) close() {
	j.closed.Store(true)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.over = true
	j.closed.Store(true) // a commit that has failed meanwhile may have set it to false
}

type jointState uint8

const (
	untried    jointState = iota // there was no transaction
	rolledBack                   // the last transaction has left no trace
	doubtful                     // its commit got no reply
	committed                    // the operation is settled
)

// claimTx is Claim in one-commit mode.
func (r *Route) claimTx(ctx context.Context, a *Ask, rec *driver.Record) (*Run, *Refusal) {
	c := r.claimOf(a)
	sent := time.Now()
	var (
		tx    driver.Tx
		owned bool
	)
	until, base := sent.Add(min(r.Policy.SettleWait, r.life)), context.WithoutCancel(ctx)
	err := r.askUntil(base, until, request{verb: "claim", id: a.ID, refusable: true}, func(ctx context.Context) (err error) {
		tx, *rec, owned, err = r.store.(driver.Transactor).BeginClaim(ctx, a.ID, c)
		return err
	})
	switch {
	case wasAsked(err) && errors.Is(err, driver.ErrUnreadable):
		return nil, &Refusal{Code: refusal.ReplayUnavailable, Cause: err}
	case err != nil:
		return nil, unavailable(ctx, err)
	case !owned:
		return nil, nil
	case ctx.Err() != nil: // the client has gone; nothing was recorded
		r.rollback(ctx, a.ID, tx)
		return nil, unavailable(ctx, ctx.Err())
	}
	run := r.newRun(base, a, rec, c.Token, sent)
	run.joint.open, run.joint.claim = tx, &c
	return run, nil
}

// Committed reports whether a transaction has settled the run, or may have settled it. Then the run's answer is that of
// the transaction.
func (r *Run) Committed() bool { return r.joint.state >= doubtful }

// inTx reports whether the run works in a transaction now, or always does.
func (r *Run) inTx() bool { return r.Policy.OneCommit || r.joint.working.Load() }

// Transact runs fn in a transaction of s. The run is settled in the same transaction.
func (r *Run) Transact(ctx context.Context, s driver.Transactor, fn func(context.Context, driver.Tx) error) (err error) {
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
	case r.Policy.OneCommit && j.open == nil:
		return fmt.Errorf("%w: the operation has no other one in one-commit mode", driver.ErrRolledBack)
	}
	if err := r.face.Mark(); err != nil {
		return err
	}
	j.state = rolledBack // until more is known
	tx := j.open
	if tx == nil {
		if snapshots, ok := s.(driver.Snapshotter); ok && snapshots.HoldsSnapshot() {
			if err := r.lease.pause(); err != nil {
				return fmt.Errorf("renew the lease before the transaction: %w", err)
			}
			defer r.lease.goOn()
		}
		if err = contained(ctx, func(ctx context.Context) (err error) { tx, err = s.Begin(ctx); return err }); err != nil {
			return fmt.Errorf("begin the transaction: %w", err)
		}
	}
	through := false
	defer func() {
		if !through {
			r.takeBack(tx)
		}
	}()
	if err := contained(ctx, tx.Mark); err != nil {
		return fmt.Errorf("mark the transaction's beginning: %w", err)
	}
	err = fn(ctx, tx)
	o, keep, failed := r.face.Freeze(err)
	switch {
	case failed != nil:
		return failed
	case o.State != driver.Done && err == nil:
		return fmt.Errorf("%w: its answer is not one to keep", driver.ErrRolledBack)
	case o.State != driver.Done || !keep:
		return err
	}
	if err != nil {
		if undo := contained(ctx, tx.Undo); undo != nil {
			r.Failed(r.base, "undo", r.ask.ID, undo)
			return err
		}
	}
	through = true
	if failed := r.commit(tx, o); failed != nil {
		return failed
	}
	return err
}

// takeBack ends a transaction without a trace, and drops the answer written in it. In one-commit mode only the
// transaction's effects are undone: the handler may still give an answer to keep.
func (r *Run) takeBack(tx driver.Tx) {
	r.face.Rewind(false)
	if r.joint.open == nil {
		r.rollback(tx)
		return
	}
	ctx := lazyctx.For(r.base, r.Policy.SettleWait)
	defer ctx.End(nil)
	if err := contained(ctx, tx.Undo); err != nil {
		r.Failed(r.base, "undo", r.ask.ID, err)
		r.joint.open = nil
		r.rollback(tx)
	}
}

// commit settles the run in the transaction and so commits the transaction. The run's renewals pause, because they
// would be refused once the record is done.
func (r *Run) commit(tx driver.Tx, o driver.Outcome) error {
	j := &r.joint
	r.stored(&o)
	j.open, j.outcome = nil, o
	defer r.rollback(tx) // whatever happens; after the commit it does nothing
	ctx := lazyctx.For(r.base, r.Policy.SettleWait)
	defer ctx.End(nil)
	renews := r.lease.stop()
	j.state = doubtful
	j.closed.Store(true)
	defer func() {
		if renews && j.state != committed { // also if the store ends this goroutine
			r.lease.resume(j.state == doubtful)
		}
	}()
	var (
		rec   driver.Record
		owned bool
	)
	settle := func(ctx context.Context) (err error) {
		rec, owned, err = tx.Settle(ctx, r.ask.ID, r.owner, j.outcome)
		return err
	}
	err := contained(ctx, settle)
	if errors.Is(err, driver.ErrFull) && j.outcome.Response != nil {
		r.Tell(event.NotReplayable, err)
		j.outcome.Response = nil // a marker always fits
		err = contained(ctx, settle)
	}
	switch {
	case err == nil && owned:
		j.state, j.rec = committed, &rec
		r.waiting.wake(r.ask.ID)
		return nil
	case err == nil:
		j.state = rolledBack
		r.face.Rewind(true)
		if renews {
			r.lease.resume(false)
			r.lease.fenced()
			renews = false
		}
		return ErrFenced
	case errors.Is(err, driver.ErrFull): // the transaction is still open, and is rolled back now
		err = errors.Join(driver.ErrRolledBack, err)
		fallthrough
	case errors.Is(err, driver.ErrRolledBack):
		j.state = rolledBack
		r.face.Rewind(true)
	}
	if j.state == rolledBack {
		j.closed.Store(j.over)
	}
	r.Failed(r.base, "commit", r.ask.ID, err)
	return fmt.Errorf("settle and commit: %w", err)
}

// elsewhere reports whether there may be an effect that no rollback undoes: an effect of this run, or of a step of an
// earlier run.
func (r *Run) elsewhere() bool { return r.stepped || r.touched.Load() || r.lost.Load() != nil }

// provesNothing reports whether certainly nothing has happened: the run's last transaction has left no trace, and there
// can be no effect elsewhere.
func (r *Run) provesNothing() bool { return r.joint.state == rolledBack && !r.elsewhere() }

// uncommitted is the outcome with which a run is settled if its commit got no reply. If the store accepts it, the
// transaction has not committed.
func (r *Run) uncommitted() driver.Outcome {
	if r.elsewhere() {
		return r.Policy.lost("its transaction was rolled back, but there may be an effect elsewhere")
	}
	return driver.Outcome{State: driver.Free, Error: "its transaction was rolled back"}
}

// errStillOpen means that a transaction has not ended that may be the one in question.
var errStillOpen = errors.New("the operation's transaction has not ended yet")

// askCommitted asks, in one-commit mode, what became of a commit that got no reply. owned says that there was no
// commit. It asks by sending the same claim again: without a commit, the claim would win.
func (r *Run) askCommitted(ctx context.Context) (rec driver.Record, owned bool, err error) {
	tx, rec, owned, err := r.store.(driver.Transactor).BeginClaim(ctx, r.ask.ID, *r.joint.claim)
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
	case rec.Token != r.owner.Token: // another run has started since, so this run was not recorded
		return rec, true, nil
	}
	return rec, false, nil
}

// resolve ends a run after the store has answered what became of its commit. With a lease, the question was a settle by
// compare-and-set. The store executes it only after the transaction has ended, and refuses it if the transaction has
// settled the run.
func (r *Run) resolve(rec driver.Record, owned bool) (driver.Record, Settlement) {
	switch {
	case !owned && rec.State == driver.Done && rec.Token == r.owner.Token:
		return r.ended(rec, true)
	case !owned:
		return r.ended(rec, false)
	}
	rec, _ = r.ended(rec, true)
	if r.elsewhere() && !r.Policy.OneCommit {
		return rec, SettleLost
	}
	return rec, SettleRolledBack
}

// rollback ends a transaction without a trace.
func (r *Run) rollback(tx driver.Tx) { r.Route.rollback(r.base, r.ask.ID, tx) }

func (e *Engine) rollback(ctx context.Context, id driver.ID, tx driver.Tx) {
	if err := contained(ctx, func(context.Context) error { tx.Rollback(); return nil }); err != nil {
		e.Failed(ctx, "rollback", id, err)
	}
}
