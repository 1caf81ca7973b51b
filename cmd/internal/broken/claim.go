package broken

import (
	"context"
	"time"
)

// A state is that of an operation.
type state string

const (
	free    state = "free"    // it may run: nothing has happened
	running state = "running" // somebody owns it
	done    state = "done"    // it has its answer
	unknown state = "unknown" // it ran, there is no answer, and perhaps an effect
)

// A record is what is known of an operation.
type record struct {
	Fingerprint string    `json:"fingerprint"`
	State       state     `json:"state"`
	Fence       uint64    `json:"fence"` // grows with each owner
	At          time.Time `json:"at"`    // since when it has this state
	Answer      *answer   `json:"answer,omitempty"`

	lease   time.Time     // until when its owner is taken for alive, if it runs
	ended   chan struct{} // closed when the run has ended; nil if it ran in another process
	crashed bool          // it ran in a process that has died
}

// A claim is the right to run an operation once.
type claim struct {
	id    string
	fence uint64
	ended chan struct{}
}

// claim returns the right to run an operation, or the answer that it has, or why neither. What is refused changes
// nothing.
func (l *Layer) claim(ctx context.Context, id, print string) (*claim, *answer, *problem) {
	c, rec, first, no := l.take(ctx, id, print)
	if c == nil || l.bug == "no-claim" {
		return c, first, no
	}
	if l.bug == "mark-before-done" {
		rec.State, rec.Answer = done, &answer{Status: 201}
	}
	if err := l.journal.append(id, rec); err != nil {
		l.giveUp(c)
		return nil, nil, &storeUnavailable
	}
	return c, nil, nil
}

// giveUp frees an operation whose claim could not be made durable: nothing has run. If the claim is in the journal all
// the same, a restart holds it.
func (l *Layer) giveUp(c *claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rec := l.records[c.id]; rec.Fence == c.fence {
		rec.State = free
	}
	close(c.ended)
}

// take makes the caller the owner of an operation, if it may run. It returns the record as it is then, to be made
// durable.
func (l *Layer) take(ctx context.Context, id, print string) (*claim, record, *answer, *problem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	rec := l.records[id]
	if rec == nil {
		rec = &record{Fingerprint: print, State: free}
	}
	if l.bug == "short-memory" && rec.State == done && now.Sub(rec.At) > shortMemory {
		rec.Fingerprint, rec.State = print, free
	}
	if l.bug == "late-fingerprint" && rec.running() && rec.Fingerprint != print && l.wait(ctx, rec, never) && rec.State == done {
		return nil, record{}, rec.Answer, nil
	}
	again := false
	if age := now.Sub(rec.At); l.bug == "no-second-look" && rec.running() && rec.Fingerprint == print && age < doubleClick {
		again = l.wait(ctx, rec, doubleClick-age)
	}
	if first, no := l.decide(rec, print, now); !again && (first != nil || no != nil) {
		return nil, record{}, first, no
	}
	l.records[id] = rec
	c := &claim{id, rec.Fence, make(chan struct{})}
	if l.bug == "no-claim" {
		return c, *rec, nil, nil
	}
	c.fence++
	rec.State, rec.Fence, rec.At, rec.Answer = running, c.fence, now, nil
	rec.lease, rec.ended, rec.crashed = now.Add(lease), c.ended, false
	if l.bug == "no-heartbeat" {
		rec.lease = now.Add(never) // until it is counted down
	}
	return c, *rec, nil, nil
}

const (
	shortMemory = 4500 * time.Millisecond
	doubleClick = 100 * time.Millisecond
)

// running reports whether an owner in this process has the operation.
func (rec *record) running() bool { return rec.State == running && !rec.crashed }

// wait waits for a run to end, without the lock that its caller holds. It reports false if the time or the client's
// patience ended first.
func (l *Layer) wait(ctx context.Context, rec *record, most time.Duration) (ended bool) {
	over := rec.ended
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-over:
		return true
	case <-time.After(most):
	case <-ctx.Done():
	}
	return false
}

// decide says what a request under an operation's key gets: its answer, or a refusal; neither if it may run. Another
// request is refused before all else.
func (l *Layer) decide(rec *record, print string, now time.Time) (*answer, *problem) {
	switch {
	case rec.Fingerprint != print:
		no := keyReused
		if l.bug == "leaky-errors" && rec.Answer != nil {
			no.stored = rec.Answer.Body
		}
		return nil, &no
	case rec.State == free:
		return nil, nil
	case rec.State == done:
		return rec.Answer, nil
	case rec.State == running && now.Before(rec.lease):
		no := inProgress(min(now.Sub(rec.At), rec.lease.Sub(now), 30*time.Second))
		return nil, &no
	}
	if (l.bug == "no-heartbeat" || l.bug == "no-fence") && rec.running() {
		return nil, nil
	}
	// The lease is over, and the owner may still live: its answer counts if it comes.
	return nil, &outcomeUnknown
}

// settle ends a run. It reports false if the caller does not own the operation any more: then nothing is changed. What
// it has acknowledged is durable.
func (l *Layer) settle(c *claim, s state, a *answer) (owned bool, err error) {
	return l.change(c, func(rec *record) { rec.State, rec.Answer, rec.At = s, a, time.Now() })
}

// change changes the record of a running operation for its owner.
func (l *Layer) change(c *claim, to func(*record)) (owned bool, err error) {
	l.mu.Lock()
	rec := l.records[c.id]
	owned = rec.State == running && rec.Fence == c.fence
	if l.bug == "no-fence" || l.bug == "no-claim" {
		owned = true
	}
	next := *rec
	l.mu.Unlock()
	if !owned {
		return false, nil
	}
	to(&next)
	written := next
	if l.bug == "store-after-send" && next.State == done {
		written.State, written.Answer = free, nil
	}
	if err := l.journal.append(c.id, written); err != nil {
		return true, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	to(rec)
	if rec.State == done {
		l.remember(c.id)
	}
	return true, nil
}

// remember notes that an operation is done.
func (l *Layer) remember(id string) {
	if l.bug != "evict" {
		return
	}
	l.done = append(l.done, id)
	if len(l.done) > 50 {
		delete(l.records, l.done[0])
		l.done = l.done[1:]
	}
}
