package chaos

import (
	"context"
	"time"
)

// A watch notices when this machine has no time for its processes. A lease that can't be renewed for that is lost, and
// nobody has been killed.
type watch struct {
	most   time.Duration // how late a process may wake up
	stalls []trouble
}

const blink = 5 * time.Millisecond

// keep notes stalls until ctx ends.
func (w *watch) keep(ctx context.Context) {
	for {
		due := time.Now().Add(blink)
		if !sleep(ctx, blink) {
			return
		}
		if woke := time.Now(); woke.Sub(due) > w.most {
			w.stalls = append(w.stalls, trouble{what: "machine stalled", from: due, to: woke})
		}
	}
}
