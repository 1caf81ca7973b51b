package semel

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/thrown"
)

// A defaultLog is the Observer of a guard that was given none. It writes dangerous events to slog.Default(), as that is
// at the time of the event, and no decisions.
type defaultLog struct{ brake brake }

func (o *defaultLog) Observe(ctx context.Context, e event.Event) {
	if e.Kind == event.Decision {
		return
	}
	leftOut, ok := o.brake.allow(string(e.Kind)+" "+e.Verb, time.Now())
	if !ok {
		return
	}
	log := slog.Default()
	if leftOut > 0 {
		log = log.With("left_out", leftOut)
	}
	event.Log(log, "").Observe(ctx, e)
}

// contained is an Observer that does not throw: what is observed goes on as if nobody had looked. It writes to
// slog.Default() what its own observer has thrown.
type contained struct {
	own   event.Observer
	brake brake
}

func (o *contained) Observe(ctx context.Context, e event.Event) {
	defer func() {
		if value := recover(); value != nil {
			o.thrown(ctx, e.Kind, thrown.Error(value))
		}
	}()
	o.own.Observe(ctx, e)
}

func (o *contained) thrown(ctx context.Context, kind event.Kind, err error) {
	leftOut, ok := o.brake.allow("", time.Now())
	if !ok {
		return
	}
	defer func() { recover() }() //nolint:errcheck // the log has thrown as well: there is nobody left to tell
	slog.Default().ErrorContext(ctx, "idempotency: the observer panicked", "event", "idempotency_"+string(kind),
		"left_out", leftOut, "error", err)
}

// A brake bounds what is written of one kind: a store that is down must not write a line for each request.
type brake struct {
	mu    sync.Mutex
	kinds map[string]*braked
}

// braked is a kind's present minute.
type braked struct {
	since            time.Time
	written, leftOut int
}

const linesAMinute = 10 // of each kind

// allow reports whether one more line of the kind may be written, and how many were left out since the last one.
func (b *brake) allow(kind string, now time.Time) (leftOut int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.kinds[kind]
	if k == nil {
		if b.kinds == nil {
			b.kinds = map[string]*braked{}
		}
		k = &braked{since: now}
		b.kinds[kind] = k
	}
	if now.Sub(k.since) >= time.Minute {
		k.since, k.written = now, 0
	}
	if k.written == linesAMinute {
		k.leftOut++
		return 0, false
	}
	k.written++
	leftOut, k.leftOut = k.leftOut, 0
	return leftOut, true
}
