package chaos

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/semelhq/semel/cmd/integration/faults"
	"github.com/semelhq/semel/internal/servers"
)

// A site is the servers of a run and the fronts' ways to them, or the disk of its files.
type site struct {
	postgres *servers.Postgres // nil if there is none
	shards   []*site           // those after this one, each with its server and the ways to it
	redis    *servers.Redis    // the store, or the cache; nil if there is none
	ways     []way
	disk     *disk // nil if there is none
}

// A way is a front's: nobody else uses it.
type way struct{ postgres, redis *faults.Proxy }

// survives has a killed PostgreSQL keep what it has acknowledged. It need not reach the disk for that, which the kernel
// sees to; but a page may be written by half.
var survives = map[string]string{
	"full_page_writes": "on", "max_connections": "50", "superuser_reserved_connections": "0", "deadlock_timeout": "50ms",
}

// newSite makes what the run needs. Where there is no disk to be had, what would fill it is left out.
func newSite(c *Config) (*site, error) {
	at := &site{}
	if c.Storage.server() {
		if err := at.open(c); err != nil {
			return nil, errors.Join(fmt.Errorf("start the servers: %w", err), at.close())
		}
		return at, nil
	}
	if !slices.Contains(c.faults, DiskFull) {
		return at, nil
	}
	d, err := newDisk(filepath.Join(c.Dir, "disk"))
	if err != nil {
		c.leaveOut(DiskFull, err)
		return at, nil
	}
	at.disk, c.files = d, d.dir
	return at, nil
}

func (s *site) open(c *Config) (err error) {
	if c.Storage == Postgres || c.Storage == Tiered || c.Storage == Sharded {
		if s.postgres, err = servers.NewPostgres(servers.PostgresOptions{Settings: survives}); err != nil {
			return err
		}
	}
	switch {
	case c.Storage == Redis && c.flaw != forgetful:
		s.redis, err = servers.NewRedis("--appendonly", "yes", "--appendfsync", "always")
	case c.Storage == Tiered || c.Storage == Redis:
		s.redis, err = servers.NewRedis()
	}
	if err != nil {
		return err
	}
	for range c.Fronts {
		var w way
		if s.postgres != nil {
			if w.postgres, err = faults.New(s.postgres.Addr()); err != nil {
				return err
			}
		}
		s.ways = append(s.ways, w)
		if s.redis != nil {
			if s.ways[len(s.ways)-1].redis, err = faults.New(s.redis.Addr()); err != nil {
				return err
			}
		}
	}
	for range c.Storage.shards() - 1 {
		alone := *c
		alone.Storage = Postgres
		next := &site{}
		s.shards = append(s.shards, next)
		if err := next.open(&alone); err != nil {
			return err
		}
	}
	return nil
}

// shard returns the site of one of the servers that decide.
func (s *site) shard(n int) *site {
	if n == 0 {
		return s
	}
	return s.shards[n-1]
}

func (s *site) close() error {
	for _, w := range s.ways {
		for _, p := range []*faults.Proxy{w.postgres, w.redis} {
			if p != nil {
				p.Close()
			}
		}
	}
	var errs []error
	for _, next := range s.shards {
		errs = append(errs, next.close())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Close())
	}
	if s.redis != nil {
		errs = append(errs, s.redis.Close())
	}
	if s.disk != nil {
		errs = append(errs, s.disk.close())
	}
	return errors.Join(errs...)
}

// addresses returns those of a front's store, and of its cache if it has one. Stores of one schema may differ in what
// the odd fronts ask for.
func (s *site) addresses(storage Storage, front int) (store, cache string) {
	w := s.ways[front]
	if s.redis != nil {
		cache = "redis://" + w.redis.Addr() + "?prefix=chaos%3A"
	}
	if storage == Redis {
		return cache + "&notify=true", ""
	}
	query := url.Values{"sslmode": {"disable"}, "schema": {schema}}
	if front%2 == 1 {
		query.Set("notify", "true")
		query.Set("partition_answers", "true")
	}
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: w.postgres.Addr(), Path: "/postgres", RawQuery: query.Encode()}
	return u.String(), cache
}

// schema is that of the records.
const schema = "chaos"
