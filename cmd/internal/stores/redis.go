package stores

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/semelhq/semel/cmd/internal/breaker"
	"github.com/semelhq/semel/cmd/internal/redisclient"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/redisstore"
	"github.com/semelhq/semel/tieredstore"
)

func (a *address) checkRedis() error { return redisclient.Check(a.url) }

func (a *address) openRedis(ctx context.Context, o Options) (*Opened, error) {
	client, err := redisclient.Open(a.url)
	if err != nil {
		return nil, err
	}
	closeClient := func() error { client.Close(); return nil }
	s, err := redisstore.Open(ctx, client, redisstore.Options{
		Prefix: a.text("prefix"), Notify: a.on("notify"), AllowEviction: a.on("allow_eviction"), Log: o.Log,
	})
	if err != nil {
		return nil, errors.Join(err, closeClient())
	}
	return &Opened{Store: s, Lasts: true, closers: []func() error{closeClient}}, nil
}

// memoryEntries is how many records a cache in the process holds.
const memoryEntries = 10_000

func checkCache(cache string, store *address) error {
	a, err := parse(cache)
	switch {
	case err != nil:
		return err
	case a.kind != redisKind && a.kind != memoryKind:
		return errors.New("a cache is memory:// or a Redis")
	case store.kind == shardsKind:
		return errors.New("a cache goes in front of each shard: name it in the file of the shards")
	case store.kind != sqliteKind && store.kind != postgresKind:
		return errors.New("a cache goes in front of a sqlite:// or postgres:// store")
	case a.text("notify") != "" || a.text("allow_eviction") != "":
		return errors.New("notify and allow_eviction are settings of a store; a cache has only prefix")
	}
	return nil
}

// cache puts what Options.Cache names in front of an open store. A Redis that is down does not matter: it is connected
// to once it is there.
func (o *Opened) cache(options Options) error {
	a, err := parse(options.Cache)
	if err != nil {
		return err
	}
	if a.kind == memoryKind {
		o.Store = tieredstore.New(o.Store, tieredstore.Options{Memory: tieredstore.Memory{Entries: memoryEntries}, Log: options.Log})
		return nil
	}
	client := &lateClient{url: a.url}
	o.closers = append(o.closers, client.close)
	if err := client.connect(); err != nil {
		options.Log.Warn("the cache is not there: repeats are answered from the store until it is", "cache", Redacted(options.Cache), "error", err)
	}
	cache := redisstore.NewCache(client, redisstore.CacheOptions{Prefix: a.text("prefix")})
	o.CheckCache = func(ctx context.Context) error {
		_, _, err := cache.Get(ctx, driver.ID{})
		return err
	}
	o.Store = tieredstore.New(o.Store, tieredstore.Options{
		Cache: cache, Breaker: breaker.New(breaker.Options{Name: "cache", Log: options.Log}), Log: options.Log,
	})
	return nil
}

// reconnectAfter is how long after a failure a client tries to connect again.
const reconnectAfter = time.Second

var errNotConnected = errors.New("not connected")

// A lateClient is the client of a Redis that need not be there yet. It connects in the background, so that no call
// waits for that.
type lateClient struct {
	url  string
	work sync.WaitGroup

	mu     sync.Mutex
	client *redisclient.Client
	busy   bool
	closed bool
	tried  time.Time
	err    error
}

// Do implements [redisstore.Client].
func (l *lateClient) Do(ctx context.Context, key string, args ...any) (any, error) {
	client, err := l.connected()
	if err != nil {
		return nil, err
	}
	return client.Do(ctx, key, args...)
}

// DoText implements [redisstore.TextClient].
func (l *lateClient) DoText(ctx context.Context, key string, args ...string) (text string, ok bool, err error) {
	client, err := l.connected()
	if err != nil {
		return "", false, err
	}
	return client.DoText(ctx, key, args...)
}

// connected returns the client, or why there is none; then it may have begun to connect.
func (l *lateClient) connected() (*redisclient.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client != nil {
		return l.client, nil
	}
	if !l.busy && !l.closed && time.Since(l.tried) >= reconnectAfter {
		l.busy = true
		l.work.Go(func() { l.connect() }) //nolint:errcheck // it is kept
	}
	if l.err != nil {
		return nil, fmt.Errorf("%w: %w", errNotConnected, l.err)
	}
	return nil, errNotConnected
}

func (l *lateClient) connect() error {
	client, err := redisclient.Open(l.url)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy, l.tried, l.err = false, time.Now(), err
	switch {
	case err != nil:
	case l.closed:
		client.Close()
	default:
		l.client = client
	}
	return err
}

func (l *lateClient) close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.work.Wait()
	if l.client != nil {
		l.client.Close()
	}
	return nil
}
