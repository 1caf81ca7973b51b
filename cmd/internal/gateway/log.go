package gateway

import (
	"context"
	"log/slog"

	"github.com/semelhq/semel"
)

// observer writes one line an event. A memory store needs no identity secret, because what could be read from its
// records ends with the process, so that event is no warning here.
func observer(log *slog.Logger, instance string) semel.Observer {
	return quietIdentity{semel.LogObserver(log, instance), log}
}

type quietIdentity struct {
	semel.Observer
	log *slog.Logger
}

func (o quietIdentity) Observe(ctx context.Context, e semel.Event) {
	if e.Kind == semel.EventPlainIdentity {
		o.log.LogAttrs(ctx, slog.LevelInfo, "no identity secret: record ids are plain SHA-256, which is enough for a store that ends with the process")
		return
	}
	o.Observer.Observe(ctx, e)
}

// observers are told every event, one after the other.
type observers []semel.Observer

func (all observers) Observe(ctx context.Context, e semel.Event) {
	for _, o := range all {
		o.Observe(ctx, e)
	}
}
