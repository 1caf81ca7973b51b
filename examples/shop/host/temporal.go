package host

import (
	"cmp"
	"fmt"
	"log/slog"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
)

// openTemporal returns a client, which connects when it is first used.
func (h *Host) openTemporal(c Config) (client.Client, error) {
	t, err := client.NewLazyClient(client.Options{
		HostPort: c.Temporal, Namespace: c.TemporalNamespace, Logger: log.NewStructuredLogger(cmp.Or(c.Log, slog.Default())),
	})
	if err != nil {
		return nil, fmt.Errorf("open Temporal: %w", err)
	}
	h.closers = append(h.closers, func() error { t.Close(); return nil })
	return t, nil
}
