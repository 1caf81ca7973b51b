package semel

import (
	"context"
	"sync"
)

// work counts what Drain waits for: runs, settles that go on, releases that are owed.
type work struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to zero; nil if nobody waits
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

// wait returns when nothing is under way, or with what is left when ctx ends.
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
