package stores

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/goccy/go-yaml"

	"github.com/semelhq/semel/cmd/internal/breaker"
	"github.com/semelhq/semel/memstore"
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
	var empty []*Opened
	for range f.Shards {
		empty = append(empty, &Opened{Store: memstore.New()})
	}
	_, _, err = f.join(empty, breaker.Options{})
	return f, err
}

// join makes one store of the shards' stores. Each shard gets a breaker; open reports whether one is open.
func (f *shardFile) join(opened []*Opened, o breaker.Options) (joined *Opened, open func() bool, err error) {
	change, err := f.Change.change()
	if err != nil {
		return nil, nil, err
	}
	joined = &Opened{Lasts: true}
	var shards []shardstore.Shard
	var breakers []*breaker.Breaker
	for i, h := range f.Shards {
		one := o
		one.Name = "shard " + h.Name
		breakers = append(breakers, breaker.New(one))
		shards = append(shards, shardstore.Shard{Name: h.Name, Store: opened[i].Store, Breaker: breakers[i], Joins: h.Joins, Leaves: h.Leaves})
		joined.closers = append(joined.closers, opened[i].Close)
	}
	joined.Store, err = shardstore.New(shards, shardstore.Options{Change: change})
	return joined, func() bool { return slices.ContainsFunc(breakers, (*breaker.Breaker).Open) }, err
}

func (a *address) openShards(ctx context.Context, o Options) (*Opened, error) {
	var opened []*Opened
	closeAll := func() (err error) {
		for _, one := range opened {
			err = errors.Join(err, one.Close())
		}
		return err
	}
	for _, h := range a.shards.Shards {
		one, err := Open(ctx, h.Store, Options{Cache: h.Cache, NoMigration: o.NoMigration, Log: o.Log})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("shard %q: %w", h.Name, err), closeAll())
		}
		opened = append(opened, one)
	}
	o.Breaker.Log = o.Log
	joined, open, err := a.shards.join(opened, o.Breaker)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	joined.BreakerOpen = open
	joined.CheckCache = checkCaches(opened)
	return joined, nil
}

// checkCaches asks the caches that there are; nil if there are none.
func checkCaches(opened []*Opened) func(context.Context) error {
	opened = slices.DeleteFunc(opened, func(one *Opened) bool { return one.CheckCache == nil })
	if len(opened) == 0 {
		return nil
	}
	return func(ctx context.Context) (err error) {
		for _, one := range opened {
			err = errors.Join(err, one.CheckCache(ctx))
		}
		return err
	}
}
