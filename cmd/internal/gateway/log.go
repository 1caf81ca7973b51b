package gateway

import (
	"context"
	"log/slog"

	"github.com/semelhq/semel/event"
)

// observer writes one line an event. A memory store needs no identity secret, because what could be read from its
// records ends with the process, so that event is no warning there.
func observer(c *Config) event.Observer {
	return identityTeller{event.Log(c.Log, c.Instance), c.Log, c.storeKind() != "memory"}
}

type identityTeller struct {
	event.Observer
	log   *slog.Logger
	lasts bool // the store outlives the process
}

func (o identityTeller) Observe(ctx context.Context, e event.Event) {
	switch {
	case e.Kind != event.PlainIdentity:
		o.Observer.Observe(ctx, e)
	case o.lasts:
		o.log.LogAttrs(ctx, slog.LevelWarn, "no identity secret: short keys can be guessed from the store; to have one takes a new store",
			slog.String("event", "idempotency_"+string(e.Kind)))
	default:
		o.log.LogAttrs(ctx, slog.LevelInfo, "no identity secret: record ids are plain SHA-256, which is enough for a store that ends with the process")
	}
}

// observers are told every event, one after the other.
type observers []event.Observer

func (all observers) Observe(ctx context.Context, e event.Event) {
	for _, o := range all {
		o.Observe(ctx, e)
	}
}
