// Package host puts a shop together: database, cache, broker, secrets, and the servers in front of them.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/semelhq/semel/examples/shop/database"
	"github.com/semelhq/semel/examples/shop/processor"
	"github.com/semelhq/semel/examples/shop/shop"
	"github.com/semelhq/semel/examples/shop/web"
	"github.com/semelhq/semel/redisstore"
)

// Config says what a shop is made of.
type Config struct {
	Data      string // folder of all that is kept in files; it is made if it is missing
	Database  string // postgres://…; "" means SQLite in the folder
	Cache     string // redis://…; "" means none
	NATS      string // nats://…; "" means a server in this process, on disk
	Processor string // http://… of a card processor; "" means a simulated one in this process
	Listen    string // address of the first instance; others have the ports after it
	Instances int    // defaults to 1
	// Temporal is the host:port of a Temporal server that runs the sagas; "" means that the database does.
	// TemporalNamespace defaults to "default". See [shop.Options].
	Temporal, TemporalNamespace string
	// Dev gives anybody who opens the page a token, the card processor's ledger and its faults; see [web.Dev].
	Dev bool
	// ShareBroker lets other processes of this machine connect to the NATS server in this process.
	ShareBroker bool
	// The rest is as in [shop.Options].
	InsecureDev  bool
	AtMostOnce   bool
	SimpleErrors bool
	Webhook      string
	IntentLife   time.Duration
	Lease        time.Duration
	Crash        func(point string)
	Log          *slog.Logger
}

// Host is a shop that is open.
type Host struct {
	Keys      *Keys
	Shops     []*shop.Shop
	URLs      []string // of the instances
	Broker    jetstream.JetStream
	NATS      string // URL; "" if only this process can connect
	Processor string // URL

	pages     []http.Handler // the instances, with their checkout pages
	listeners []net.Listener
	databases []*database.DB
	temporal  client.Client // nil for none
	closers   []func() error
}

// Open opens all that the configuration names, and listens. Nothing is served before Run.
func Open(ctx context.Context, c Config) (_ *Host, err error) {
	h := &Host{}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	if h.Keys, err = OpenKeys(c.Data); err != nil {
		return nil, err
	}
	if err := h.openBroker(ctx, c); err != nil {
		return nil, err
	}
	if c.Temporal != "" {
		if h.temporal, err = h.openTemporal(c); err != nil {
			return nil, err
		}
	}
	if c.Processor == "" {
		if c.Processor, err = h.openProcessor(ctx, filepath.Join(c.Data, "processor.jsonl")); err != nil {
			return nil, err
		}
	}
	h.Processor = c.Processor
	if err := os.MkdirAll(mailIn(c.Data), 0o700); err != nil {
		return nil, fmt.Errorf("make the mail folder: %w", err)
	}
	if c.Database == "" {
		c.Database = filepath.Join(c.Data, "shop.db")
	}
	for n := range max(1, c.Instances) {
		if err := h.openInstance(ctx, c, n); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// mailIn returns the folder of the mails.
func mailIn(data string) string { return filepath.Join(data, "mail") }

// openProcessor starts a simulated card processor in this process. It is spoken to over HTTP all the same.
func (h *Host) openProcessor(ctx context.Context, ledger string) (address string, err error) {
	p, err := processor.Open(processor.Options{Ledger: ledger})
	if err != nil {
		return "", fmt.Errorf("open the card processor: %w", err)
	}
	h.closers = append(h.closers, p.Close)
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("open the card processor: %w", err)
	}
	server := &http.Server{Handler: p.Handler(), ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(l) //nolint:errcheck // it ends by Close
	h.closers = append(h.closers, server.Close)
	return "http://" + l.Addr().String(), nil
}

// openInstance opens one more shop on the same database.
func (h *Host) openInstance(ctx context.Context, c Config, n int) error {
	db, err := database.Open(ctx, c.Database, shop.Schema())
	if err != nil {
		return err
	}
	h.databases = append(h.databases, db)
	h.closers = append(h.closers, db.Close)
	o := shop.Options{
		DB: db, Broker: h.Broker, Temporal: h.temporal, Processor: c.Processor, Auth: shop.Auth{Key: h.Keys.public(), InsecureDev: c.InsecureDev}, Secrets: h.Keys.secrets(),
		Webhook: c.Webhook, Mail: mailIn(c.Data), AtMostOnce: c.AtMostOnce, SimpleErrors: c.SimpleErrors, IntentLife: c.IntentLife, Lease: c.Lease, Crash: c.Crash, Log: c.Log,
	}
	if c.Cache != "" {
		client, err := openRedis(c.Cache)
		if err != nil {
			return err
		}
		h.closers = append(h.closers, func() error { client.client.Close(); return nil })
		o.Cache = redisstore.NewCache(client, redisstore.CacheOptions{Prefix: "shop:"})
	}
	s, err := shop.New(o)
	if err != nil {
		return err
	}
	address, err := after(c.Listen, n)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	h.Shops = append(h.Shops, s)
	h.pages = append(h.pages, web.Handler(s, h.dev(c)))
	h.listeners = append(h.listeners, l)
	h.URLs = append(h.URLs, "http://"+l.Addr().String())
	return nil
}

// dev is what the page may have that is for development only.
func (h *Host) dev(c Config) *web.Dev {
	if !c.Dev && !c.InsecureDev {
		return nil
	}
	return &web.Dev{Processor: c.Processor, Session: func() (map[string]string, error) {
		if c.InsecureDev {
			return map[string]string{"X-Tenant-ID": "acme"}, nil
		}
		token, err := h.Keys.Token("acme", "visitor", 24*time.Hour)
		return map[string]string{"Authorization": "Bearer " + token}, err
	}}
}

// after returns the address with the port n higher, unless any port will do.
func after(address string, n int) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("listen at %q: %w", address, err)
	}
	first, err := net.LookupPort("tcp", port)
	if err != nil {
		return "", fmt.Errorf("listen at %q: %w", address, err)
	}
	if first != 0 {
		first += n
	}
	return net.JoinHostPort(host, fmt.Sprint(first)), nil
}

// DB returns the database.
func (h *Host) DB() *database.DB { return h.databases[0] }

// Run serves until ctx ends, then ends in order: no new requests, then the runs that go on, then what is beside them.
func (h *Host) Run(ctx context.Context) error {
	beside, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	loops, beside := errgroup.WithContext(beside)
	for _, s := range h.Shops {
		loops.Go(func() error { return s.Run(beside) })
	}
	serving, serve := errgroup.WithContext(ctx)
	for i, s := range h.Shops {
		server := &http.Server{Handler: h.pages[i], ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute}
		serving.Go(func() error {
			if err := server.Serve(h.listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve: %w", err)
			}
			return nil
		})
		serving.Go(func() error {
			select {
			case <-serve.Done():
			case <-beside.Done():
			}
			// A release that is owed is sent once more after the 30 s that a claim may be under way.
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 40*time.Second)
			defer cancel()
			return errors.Join(server.Shutdown(grace), s.Drain(grace))
		})
	}
	err := serving.Wait()
	stop()
	if failed := loops.Wait(); failed != nil && !errors.Is(failed, context.Canceled) {
		err = errors.Join(err, failed)
	}
	return err
}

// Close closes everything, after Run.
func (h *Host) Close() error {
	var all error
	for i := len(h.closers) - 1; i >= 0; i-- {
		all = errors.Join(all, h.closers[i]())
	}
	for _, l := range h.listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			all = errors.Join(all, err)
		}
	}
	h.closers, h.listeners = nil, nil
	return all
}
