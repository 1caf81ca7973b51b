package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/pause"
)

// A lease keeps a run's record owned while its handler lives and until its outcome is settled. It renews the record
// every third of the lease. If a renewal is refused, somebody else owns the record: the lease cancels the run. Under
// Rerun it also cancels the run when 80 % of the lease has passed, on this process's monotonic clock, since the last
// acknowledged claim or renewal was sent: from then on somebody else may own the record. Under Hold nobody else will
// run the operation, so the handler goes on.
type lease struct {
	run *Run

	sending  sync.Mutex // held while a renewal is under way
	mu       sync.Mutex
	acked    time.Time   // when the last acknowledged claim or renewal was sent
	beat     *time.Timer // fires the next renewal; nil while the run is young ([work])
	margin   *time.Timer // fires at 80 %; nil under Hold, and before the first renewal
	handling bool        // the handler has not ended
	stopped  bool        // settled, fenced or given up: no more renewals
	doubtful bool        // the record may be settled: a refused renewal does not mean that somebody else owns it
	resting  bool        // past MaxRun, and the handler still runs: no renewals until it ends
	paused   bool        // in a transaction: a renewal would make it fail
}

// start takes over the lease of a claim that was sent at the given time. If the first renewal is due before the next
// look at young runs can be relied on, the lease gets its timer at once.
func (l *lease) start(r *Run, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run, l.acked, l.handling = r, sent, true
	if due := l.due(); due < 4*lookAfter {
		l.after(due)
	}
}

// grown is called when the run has lasted for a while.
func (l *lease) grown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.beat == nil && !l.stopped && !l.paused {
		l.after(l.due())
	}
}

// due is the time until the next renewal. The caller holds the lock.
func (l *lease) due() time.Duration { return max(0, l.interval()-time.Since(l.acked)) }

// after sets the timer for the next renewal. The caller holds the lock.
func (l *lease) after(d time.Duration) {
	if l.beat == nil {
		l.beat = time.AfterFunc(d, l.renew)
	} else {
		l.beat.Reset(d)
	}
}

// none is the lease of a run in one-commit mode, where the transaction holds the record.
func (l *lease) none(r *Run) { l.run, l.stopped = r, true }

// resume starts the renewals again for a run whose transaction did not commit, or may not have committed. The run's
// handler has not ended. An earlier renewal may still be under way; two at once do no harm.
func (l *lease) resume(doubtful bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped, l.doubtful = false, doubtful
	if l.margin != nil {
		l.margin.Reset(marginOf(l.run.Policy.Lease) - time.Since(l.acked))
	}
	if !l.resting && !l.paused {
		l.after(0)
	}
}

func (l *lease) interval() time.Duration { return l.run.Policy.Lease / 3 }

// renew sends one renewal. It runs on the timer's goroutine, and sets the timer for the next renewal.
func (l *lease) renew() {
	l.mu.Lock()
	if l.stopped || l.paused {
		l.mu.Unlock()
		return
	}
	if l.handling && time.Since(l.run.began) >= l.run.Policy.MaxRun {
		l.resting = true
		l.mu.Unlock()
		l.run.Tell(event.RunTooLong, nil)
		return
	}
	l.mu.Unlock()
	replied := false
	defer func() {
		if !replied { // no reply in time, or the store has ended this goroutine
			l.again(pause.Jitter(l.run.Policy.Lease / 10))
		}
	}()
	replied = l.extend(l.interval()) == nil
}

// extend sends one renewal. It returns an error if no reply came within the given time. A refusal ends the lease.
func (l *lease) extend(within time.Duration) error {
	l.sending.Lock()
	defer l.sending.Unlock()
	l.mu.Lock()
	if l.margin == nil && l.run.Policy.OnLost == driver.Rerun {
		l.margin = time.AfterFunc(marginOf(l.run.Policy.Lease)-time.Since(l.acked), l.tooLate)
	}
	l.mu.Unlock()

	owned, sent, err := l.run.extend(time.Now().Add(min(within, l.run.life)), driver.Extension{Lease: l.run.Policy.Lease})
	switch {
	case errors.Is(err, driver.ErrHeld):
		l.renewed(sent) // nobody can take the record before the renewal is executed
	case err != nil:
		return err
	case owned:
		l.renewed(sent)
	default:
		l.fenced()
	}
	return nil
}

// extend sends one renewal of the record.
func (r *Run) extend(until time.Time, x driver.Extension) (owned bool, sent time.Time, err error) {
	var held error
	sent = time.Now()
	err = r.askUntil(r.base, until, request{verb: "extend", id: r.ask.ID}, func(ctx context.Context) (err error) {
		if owned, err = r.store.Extend(ctx, r.ask.ID, r.owner, x); errors.Is(err, driver.ErrHeld) {
			held, err = err, nil // an answer
		}
		return err
	})
	return owned, sent, errors.Join(err, held)
}

// MarkBegun makes it durable that the first byte of a streamed answer may leave. The byte may leave only if this is
// acknowledged.
func (r *Run) MarkBegun() error {
	t := r.within(r.Policy.SettleWait)
	for try := 1; ; try++ {
		owned, sent, err := r.extend(t.until, driver.Extension{Lease: r.Policy.Lease, Begun: true})
		switch {
		case err == nil && owned:
			r.lease.renewed(sent)
			return nil
		case err == nil:
			r.lease.fenced()
			return ErrFenced
		case !t.wait(r.base, try):
			return err
		}
	}
}

// pause renews the lease, and then not again until goOn. The margin keeps running.
func (l *lease) pause() error {
	l.mu.Lock()
	if l.paused = true; l.stopped {
		l.mu.Unlock()
		return nil // what stopped it has cancelled the run, or there is no lease
	}
	if l.beat != nil {
		l.beat.Stop()
	}
	l.mu.Unlock()
	err := errEnded
	defer func() {
		if err != nil {
			l.goOn()
		}
	}()
	err = l.extend(marginOf(l.run.Policy.Lease))
	return err
}

// goOn ends a pause.
func (l *lease) goOn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paused = false
	if !l.stopped && !l.resting {
		l.after(l.due())
	}
}

// renewed notes an acknowledged claim or renewal that was sent at the given time.
func (l *lease) renewed(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent.After(l.acked) {
		l.acked = sent
	}
	if l.stopped {
		return
	}
	if l.margin != nil {
		l.margin.Reset(marginOf(l.run.Policy.Lease) - time.Since(l.acked))
	}
	if !l.paused {
		l.after(l.due())
	}
}

func (l *lease) again(after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped && !l.paused {
		l.after(after)
	}
}

// fenced cancels the run, because the store has refused its owner.
func (l *lease) fenced() {
	l.mu.Lock()
	doubtful := l.doubtful
	l.mu.Unlock()
	if l.stop() && !doubtful {
		l.run.ctx.End(ErrFenced)
	}
}

// tooLate cancels the handler when the margin has passed. Renewals go on: if nobody has taken over the record, they
// keep others from taking it while the handler ends.
func (l *lease) tooLate() {
	l.mu.Lock()
	late := !l.stopped && l.handling && time.Since(l.acked) >= marginOf(l.run.Policy.Lease)
	l.mu.Unlock()
	if late {
		l.run.ctx.End(ErrLeaseLost)
		l.run.Tell(event.LeaseLost, nil)
	}
}

// handlerEnded begins the second part of the lease, in which the outcome is settled. MaxRun no longer counts.
func (l *lease) handlerEnded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handling = false
	if l.margin != nil {
		l.margin.Stop()
	}
	if l.resting && !l.stopped {
		l.resting = false
		l.after(0)
	}
}

// stop ends the renewals. It reports whether they were still going on. A renewal under way may still arrive; the store
// refuses it, because the record is no longer running or no longer this run's.
func (l *lease) stop() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := !l.stopped
	l.stopped = true
	if l.beat != nil {
		l.beat.Stop()
	}
	if l.margin != nil {
		l.margin.Stop()
	}
	return was
}
