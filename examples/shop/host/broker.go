package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// openBroker connects to NATS, or starts a server in this process. Unless it is shared nobody else can connect to that.
func (h *Host) openBroker(ctx context.Context, c Config) error {
	address, options := c.NATS, []nats.Option{nats.Name("shop"), nats.MaxReconnects(-1), nats.Timeout(20 * time.Second)}
	if address == "" {
		s, err := server.NewServer(&server.Options{JetStream: true, StoreDir: filepath.Join(c.Data, "nats"), DontListen: !c.ShareBroker, Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, SyncInterval: time.Second})
		if err != nil {
			return fmt.Errorf("start NATS: %w", err)
		}
		s.Start()
		h.closers = append(h.closers, func() error { s.Shutdown(); s.WaitForShutdown(); return nil })
		if !s.ReadyForConnections(20 * time.Second) {
			return errors.New("start NATS: it is not ready after 20 s")
		}
		options = append(options, nats.InProcessServer(s))
		if c.ShareBroker {
			c.NATS = s.ClientURL()
		}
	}
	h.NATS = c.NATS
	conn, err := nats.Connect(address, options...)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	h.closers = append(h.closers, func() error { conn.Close(); return nil })
	if h.Broker, err = jetstream.New(conn); err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	return nil
}
