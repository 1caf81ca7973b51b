package engine

import (
	"context"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
)

// work counts what Drain waits for: runs, settles that go on, and releases that are owed. It also sees to it that runs
// which last renew their leases.
type work struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to zero; nil if nobody waits

	oldest, newest *Run // the runs under way, linked in the order of their start
	runs           int

	young *Run        // the oldest of the runs that began since the last look; nil for none
	look  *time.Timer // until the next look
	looks bool        // look is running
}

// lookAfter is how often the leases of young runs get their timers. Most runs have ended before, and need none.
const lookAfter = 250 * time.Millisecond

// begin adds a run.
func (w *work) begin(r *Run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	w.runs++
	if r.before = w.newest; r.before == nil {
		w.oldest = r
	} else {
		r.before.after = r
	}
	w.newest = r
	if w.young == nil {
		w.young = r
	}
	if !w.looks {
		w.looks = true
		if w.look == nil {
			w.look = time.AfterFunc(lookAfter, w.grown)
		} else {
			w.look.Reset(lookAfter)
		}
	}
}

// grown gives the leases of the runs their timers that have begun since the last look. It looks again as long as there
// are such runs.
func (w *work) grown() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.looks = w.young != nil; w.looks {
		w.look.Reset(lookAfter)
	}
	for ; w.young != nil; w.young = w.young.after {
		w.young.lease.grown()
	}
}

// end removes a run.
func (w *work) end(r *Run) {
	w.mu.Lock()
	if w.young == r {
		w.young = r.after
	}
	if r.before == nil {
		w.oldest = r.after
	} else {
		r.before.after = r.after
	}
	if r.after == nil {
		w.newest = r.before
	} else {
		r.after.before = r.before
	}
	r.before, r.after = nil, nil
	w.runs--
	w.mu.Unlock()
	w.done()
}

// running returns how many runs there are, and when the oldest of them began.
func (w *work) running() (n int, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.oldest != nil {
		since = w.oldest.began
	}
	return w.runs, since
}

func (w *work) add() {
	w.mu.Lock()
	w.n++
	w.mu.Unlock()
}

func (w *work) done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n--
	if w.n == 0 && w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
}

// wait returns when nothing is under way. If ctx ends first, it returns how much is left, and an error.
func (w *work) wait(ctx context.Context) (left int, err error) {
	for {
		w.mu.Lock()
		if w.n == 0 {
			w.mu.Unlock()
			return 0, nil
		}
		if w.idle == nil {
			w.idle = make(chan struct{})
		}
		idle := w.idle
		w.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.n, ctx.Err()
		}
	}
}

// settles reports whether a run of this process may still settle the record that by owns. This process knows that
// better than anybody who could be asked. After twice MaxRun the run no longer counts: its handler has not obeyed its
// deadline, or its settle was abandoned.
func (w *work) settles(by driver.Owner) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := w.oldest; r != nil; r = r.after {
		if r.owner == by {
			return time.Since(r.began)/2 < r.Policy.MaxRun
		}
	}
	return false
}
