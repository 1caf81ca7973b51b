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
func (f *shardFile) join(shards []shardstore.Shard, o breaker.Options) (joined driver.Store, open func() bool, err error) {
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

// startTime is how long a shard may take to be opened at the start. A server that does not answer for longer is down.
const startTime = 20 * time.Second

func (a *address) openShards(ctx context.Context, o Options) (*Opened, error) {
	joined := &Opened{Lasts: true}
	all := make([]*openShard, len(a.shards.Shards))
	errs := make([]error, len(all))
	var work sync.WaitGroup
	for i, h := range a.shards.Shards {
		all[i] = newOpenShard(h.Name, h.Store, Options{Cache: h.Cache, NoMigration: o.NoMigration, Log: o.Log})
		joined.closers = append(joined.closers, all[i].close)
		work.Go(func() {
			starting, cancel := context.WithTimeout(ctx, startTime)
			defer cancel()
			if _, err := all[i].open(starting); err != nil {
				errs[i] = fmt.Errorf("shard %q: %w", h.Name, err)
			}
		})
	}
	work.Wait()
	shards := make([]shardstore.Shard, len(all))
	away := 0
	for i, h := range all {
		if errs[i] == nil {
			shards[i].Store = h.opened.Store
			continue
		}
		away++
		if h.late = isAway(errs[i]); !h.late || away == len(all) {
			return nil, errors.Join(errors.Join(errs...), joined.Close())
		}
		shards[i].Open = h.open
	}
	o.Breaker.Log = o.Log
	var err error
	if joined.Store, joined.BreakerOpen, err = a.shards.join(shards, o.Breaker); err != nil {
		return nil, errors.Join(err, joined.Close())
	}
	for i, h := range all {
		if h.late {
			o.Log.Warn("a shard is not there: its operations are refused until it is", "shard", h.name, "error", errs[i])
		}
	}
	joined.CheckCache = a.shards.checkCaches(all)
	return joined, nil
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
		context.DeadlineExceeded, io.EOF, pgstore.ErrUnreachable, pgstore.ErrStarting, pgstore.ErrShutdown, pgstore.ErrTooMany,
		redisstore.ErrLoading, redisstore.ErrClusterDown,
	}, func(kind error) bool { return errors.Is(err, kind) })
}

// An openShard is a shard's store, once it is open.
type openShard struct {
	name, address string
	options       Options
	late          bool            // it was not there at the start
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

func (h *openShard) open(ctx context.Context) (driver.Store, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.life, cancel)()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life.Err() != nil {
		return nil, errors.New("the store is closed")
	}
	opened, err := Open(ctx, h.address, h.options)
	if err != nil {
		return nil, err
	}
	if h.late {
		h.options.Log.Info("the shard is there", "shard", h.name)
	}
	h.opened = opened
	return opened.Store, nil
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

func (h *openShard) close() error {
	h.end()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.opened == nil {
		return nil
	}
	return h.opened.Close()
}
