package event

import (
	"context"
	"log/slog"

	"github.com/semelhq/semel/driver"
)

// Log writes one structured line for each event. Decisions have level Info. A decision whose result is unknown has
// level Warn, because somebody has to decide about the operation. Dangerous events have level Warn too, except that
// BodyConsumed, a fault in the service's set-up, has level Error. The fields are event, result, code, digest (the
// operation's public id, a digest of scope and key; never the key), endpoint, correlation, instance, attempt, fence,
// status, duration_ms, verb and error.
func Log(log *slog.Logger, instance string) Observer {
	return &logObserver{log: log, instance: instance}
}

type logObserver struct {
	log      *slog.Logger
	instance string
}

func (o *logObserver) Observe(ctx context.Context, e Event) {
	level, name := slog.LevelWarn, "idempotency_"+string(e.Kind)
	switch e.Kind {
	case Decision:
		name = "idempotency_check"
		if e.Result != Unknown {
			level = slog.LevelInfo
		}
	case BodyConsumed:
		level = slog.LevelError
	}
	if !o.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 16)
	add := func(present bool, a slog.Attr) {
		if present {
			attrs = append(attrs, a)
		}
	}
	add(true, slog.String("event", name))
	add(e.Result != "", slog.String("result", string(e.Result)))
	add(e.Code != "", slog.String("code", string(e.Code)))
	add(e.Observed, slog.Bool("observed", true))
	add(e.ID != driver.ID{}, slog.String("digest", e.ID.String()))
	add(e.Operation != "", slog.String("endpoint", e.Operation))
	add(e.Correlation != "", slog.String("correlation", e.Correlation))
	add(o.instance != "", slog.String("instance", o.instance))
	add(e.Attempt != 0, slog.Uint64("attempt", uint64(e.Attempt)))
	add(e.Fence != 0, slog.Uint64("fence", e.Fence))
	add(e.Status != 0, slog.Int("status", e.Status))
	add(e.Kind == Decision, slog.Float64("duration_ms", float64(e.Duration.Microseconds())/1000))
	add(e.Verb != "", slog.String("verb", e.Verb))
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	o.log.LogAttrs(ctx, level, "idempotency", attrs...)
}
