package semel

import (
	"context"
	"log/slog"
	"time"

	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/brake"
	"github.com/semelhq/semel/internal/thrown"
)

// A defaultLog is the Observer of a guard that was given none. It writes dangerous events to the slog.Default() of the
// moment, and no decisions.
type defaultLog struct{ brake brake.Brake }

func (o *defaultLog) Observe(ctx context.Context, e event.Event) {
	if e.Kind == event.Decision {
		return
	}
	leftOut, ok := o.brake.Allow(string(e.Kind)+" "+e.Verb, time.Now())
	if !ok {
		return
	}
	log := slog.Default()
	if leftOut > 0 {
		log = log.With("left_out", leftOut)
	}
	event.Log(log, "").Observe(ctx, e)
}

// contained is an Observer that never panics. It catches the panics of the observer inside and writes them to
// slog.Default(), so that an observer can't disturb the operation.
type contained struct {
	own   event.Observer
	brake brake.Brake
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
	leftOut, ok := o.brake.Allow("", time.Now())
	if !ok {
		return
	}
	defer func() { recover() }() //nolint:errcheck // the log has panicked too: nobody is left to tell
	slog.Default().ErrorContext(ctx, "idempotency: the observer panicked", "event", "idempotency_"+string(kind),
		"left_out", leftOut, "error", err)
}
