package engine

import (
	"context"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
)

// work counts what Drain waits for: runs, settles that go on, and releases that are owed.
type work struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to zero; nil if nobody waits

	oldest, newest *Run // the runs under way, linked in the order of their start
	runs           int
}

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
}

// end removes a run.
func (w *work) end(r *Run) {
	w.mu.Lock()
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
