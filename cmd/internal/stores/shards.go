package stores

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/semelhq/semel/cmd/internal/breaker"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/pgstore"
	"github.com/semelhq/semel/redisstore"
	"github.com/semelhq/semel/shardstore"
)

// A shardFile is what shards://FILE names: the stores that share the operations.
type shardFile struct {
	Change changeName `yaml:"change"`
	Shards []struct {
		Name   string `yaml:"name"`
		Store  string `yaml:"store"` // address
		Cache  string `yaml:"cache"` // address of what is in front of it; "" for nothing
		Joins  bool   `yaml:"joins"`
		Leaves bool   `yaml:"leaves"`
	} `yaml:"shards"`
}

// A changeName is the step of a change by its name; "" is none.
type changeName string

func (n changeName) change() (shardstore.Change, error) {
	for c := shardstore.None; c <= shardstore.Move; c++ {
		if string(n) == c.String() || n == "" {
			return c, nil
		}
	}
	return 0, fmt.Errorf("change is %q, want none, prepare or move", string(n))
}

// readShards reads a file of shards, and checks all in it that can be checked without opening them.
func readShards(name string) (*shardFile, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f := &shardFile{}
	if err := yaml.UnmarshalWithOptions(text, f, yaml.Strict()); err != nil {
		return nil, errors.New(yaml.FormatError(err, false, false)) // without the lines, which have passwords
	}
	var caches []string
	for _, h := range f.Shards {
		a, err := parse(h.Store)
		switch {
		case err == nil && (a.kind == memoryKind || a.kind == shardsKind):
			err = errors.New("a shard is sqlite://, postgres:// or a Redis")
		case err == nil && h.Cache != "":
			if err = CheckCache(h.Cache, h.Store); err == nil && slices.Contains(caches, h.Cache) {
				err = errors.New("another shard has the same cache; give each a prefix of its own")
			}
			caches = append(caches, h.Cache)
		}
		if err != nil {
			return nil, fmt.Errorf("shard %q: store %q: %w", h.Name, Redacted(h.Store), err)
		}
	}
	empty := make([]shardstore.Shard, len(f.Shards))
	for i := range empty {
		empty[i].Store = memstore.New()
	}
	_, _, err = f.join(empty, breaker.Options{})
	return f, err
}

// join makes one store of the shards, whose stores are given. Each shard gets a breaker; open reports whether one is
// open.
func (f *shardFile) join(
	shards []shardstore.Shard, o breaker.Options,
) (joined driver.Store, open func() bool, err error) {
	change, err := f.Change.change()
	if err != nil {
		return nil, nil, err
	}
	var breakers []*breaker.Breaker
	for i, h := range f.Shards {
		o.Name = "shard " + h.Name
		breakers = append(breakers, breaker.New(o))
		shards[i].Name, shards[i].Breaker, shards[i].Joins, shards[i].Leaves = h.Name, breakers[i], h.Joins, h.Leaves
	}
	joined, err = shardstore.New(shards, shardstore.Options{Change: change})
	return joined, func() bool { return slices.ContainsFunc(breakers, (*breaker.Breaker).Open) }, err
}

// startTime is how long shards may take to be opened at the start, where one is open by then.
const startTime = 10 * time.Second

func (a *address) openShards(ctx context.Context, o Options) (*Opened, error) {
	joined := &Opened{Lasts: true}
	var all []*openShard
	for _, h := range a.shards.Shards {
		one := newOpenShard(h.Name, h.Store, Options{Cache: h.Cache, NoMigration: o.NoMigration, Log: o.Log})
		all, joined.closers = append(all, one), append(joined.closers, one.close)
	}
	shards, err := startShards(ctx, all)
	if err != nil {
		return nil, errors.Join(err, joined.Close())
	}
	o.Breaker.Log = o.Log
	if joined.Store, joined.BreakerOpen, err = a.shards.join(shards, o.Breaker); err != nil {
		return nil, errors.Join(err, joined.Close())
	}
	joined.CheckCache = a.shards.checkCaches(all)
	return joined, nil
}

// startShards opens what is there. Those that are not are opened later; one at least has to be there.
func startShards(ctx context.Context, all []*openShard) ([]shardstore.Shard, error) {
	type attempt struct {
		shard int
		store driver.Store
		err   error
	}
	ended := make(chan attempt, len(all))
	for i, h := range all {
		go func() {
			s, err := h.open(ctx)
			ended <- attempt{i, s, err}
		}()
	}
	shards, errs := make([]shardstore.Shard, len(all)), make([]error, len(all))
	for i, h := range all {
		shards[i].Open, errs[i] = h.openLate, errors.New("it takes long to open it")
	}
	over := time.After(startTime)
	left, there, late := len(all), 0, false
	for left > 0 && (there == 0 || !late) {
		select {
		case a := <-ended:
			left--
			if errs[a.shard] = a.err; a.err == nil {
				shards[a.shard] = shardstore.Shard{Store: a.store}
				there++
			} else if !isAway(a.err) {
				return nil, fmt.Errorf("shard %q: %w", all[a.shard].name, a.err)
			}
		case <-over:
			late = true
		}
	}
	var away []error
	for i, h := range all {
		switch {
		case errs[i] == nil:
		case there == 0:
			away = append(away, fmt.Errorf("shard %q: %w", h.name, errs[i]))
		default:
			h.options.Log.Warn("a shard is not there: its operations are refused until it is", "shard", h.name, "error", errs[i])
		}
	}
	return shards, errors.Join(away...)
}

// checkCaches asks the caches of the shards that are there; nil if none has a cache to ask.
func (f *shardFile) checkCaches(all []*openShard) func(context.Context) error {
	asked := false
	for _, h := range f.Shards {
		cache, err := parse(h.Cache)
		asked = asked || err == nil && cache.kind == redisKind
	}
	if !asked {
		return nil
	}
	return func(ctx context.Context) (err error) {
		for _, h := range all {
			if check := h.cache(); check != nil {
				err = errors.Join(err, check(ctx))
			}
		}
		return err
	}
}

// isAway reports whether a store could not be opened because its server is not there, or not ready, for now. What is
// wrong with an address, an account or a schema stays wrong.
func isAway(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) || slices.ContainsFunc([]error{
		context.DeadlineExceeded, io.EOF,
		pgstore.ErrUnreachable, pgstore.ErrStarting, pgstore.ErrShutdown, pgstore.ErrTooMany,
		redisstore.ErrLoading, redisstore.ErrClusterDown,
	}, func(kind error) bool { return errors.Is(err, kind) })
}

// An openShard is a shard's store, once it is open.
type openShard struct {
	name, address string
	options       Options
	life          context.Context // ends when it is closed
	end           context.CancelFunc

	mu     sync.Mutex // held while it is opened
	opened *Opened
}

func newOpenShard(name, address string, o Options) *openShard {
	h := &openShard{name: name, address: address, options: o}
	h.life, h.end = context.WithCancel(context.Background())
	return h
}

// open opens the store, once. What opens it already is waited for.
func (h *openShard) open(ctx context.Context) (driver.Store, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.life, cancel)()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life.Err() != nil {
		return nil, errors.New("the store is closed")
	}
	if h.opened == nil {
		opened, err := Open(ctx, h.address, h.options)
		if err != nil {
			return nil, err
		}
		h.opened = opened
	}
	return h.opened.Store, nil
}

// openLate is open for a shard that was not there at the start.
func (h *openShard) openLate(ctx context.Context) (driver.Store, error) {
	s, err := h.open(ctx)
	if err == nil {
		h.options.Log.Info("the shard is there", "shard", h.name)
	}
	return s, err
}

// cache returns what asks the shard's cache; nil if there is none, or the shard is not there.
func (h *openShard) cache() func(context.Context) error {
	if !h.mu.TryLock() { // it is being opened
		return nil
	}
	defer h.mu.Unlock()
	if h.opened == nil {
		return nil
	}
	return h.opened.CheckCache
}

// close ends the store. One that is being opened is not waited for: a server that says nothing holds a connection up
// for minutes.
func (h *openShard) close() error {
	h.end()
	if !h.mu.TryLock() {
		go h.closeOpened() //nolint:errcheck // nobody is left to be told
		return nil
	}
	h.mu.Unlock()
	return h.closeOpened()
}

func (h *openShard) closeOpened() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.opened == nil {
		return nil
	}
	return h.opened.Close()
}
