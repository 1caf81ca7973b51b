// Package stores opens the stores that addresses name.
package stores

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/cmd/internal/breaker"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/pgstore"
	"github.com/semelhq/semel/sqlitestore"
)

// Opened is an open store.
type Opened struct {
	Store driver.Store
	Lasts bool   // its records outlive this process
	Path  string // of its file, absolute; "" if it has none
	// CheckCache asks the cache in front of the store whether it works; nil if there is none to ask.
	CheckCache func(ctx context.Context) error
	// BreakerOpen reports whether a circuit breaker within the store is open; nil if it has none.
	BreakerOpen func() bool

	closers []func() error

	sqlite   *sql.DB // the database that the store is in, if it is one
	postgres *pgxpool.Pool
	schema   string // in postgres
}

// Close closes the store. It waits for what is under way in it.
func (o *Opened) Close() error {
	var errs []error
	for i := len(o.closers) - 1; i >= 0; i-- {
		errs = append(errs, o.closers[i]())
	}
	o.closers = nil
	return errors.Join(errs...)
}

// Options say how a store is opened. The zero value is valid.
type Options struct {
	// Cache is the address of what answers repeats in front of the store: that of a Redis, or memory:// for this process.
	// The store must last. Defaults to none.
	Cache string
	// NoMigration leaves the schema as it is: Open fails with an error of which [OtherVersion] is true if that is not the
	// one needed.
	NoMigration bool
	// Breaker is what the breaker of each shard is like; its name and its log are set. A store that is no shards has none.
	Breaker breaker.Options
	// OnePrincipal lets one principal fill a store in memory, because there is no other. Defaults to half of it for each.
	OnePrincipal bool
	// Log gets what an operator should know of. Defaults to nobody.
	Log *slog.Logger
}

// Forms are the addresses that there are, for help texts.
const Forms = "memory://, sqlite://FILE, postgres://HOST/DATABASE, redis://HOST, rediss://HOST, redis+cluster://HOST, rediss+cluster://HOST and shards://FILE"

// Open opens the store that an address names, and makes or migrates its schema:
//
//   - memory:// keeps records in this process, so that they end with it;
//   - sqlite://FILE keeps them in a SQLite database, which is made if it does not exist: sqlite://semel.db in the working
//     folder, sqlite:///var/lib/semel/semel.db from the root;
//   - postgres:// is a PostgreSQL URL. Its query may also have schema=NAME, notify=true and partition_answers=true, which
//     are those of [pgstore.Options]; pool_max_conns is how many connections the verbs have at most;
//   - redis://, rediss://, redis+cluster:// and rediss+cluster:// are those of redisclient.Open. The query may also have
//     prefix=TEXT, notify=true and allow_eviction=true, which are those of [redisstore.Options];
//   - shards://FILE is a YAML file that names the stores which share the operations ([shardFile]).
func Open(ctx context.Context, address string, o Options) (*Opened, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a, err := parse(address)
	var opened *Opened
	if err == nil {
		opened, err = a.open(ctx, o)
	}
	if err != nil {
		return nil, fmt.Errorf("store %q: %w", Redacted(address), err)
	}
	if o.Cache == "" {
		return opened, nil
	}
	if err := opened.cache(o); err != nil {
		return nil, errors.Join(fmt.Errorf("cache %q: %w", Redacted(o.Cache), err), opened.Close())
	}
	return opened, nil
}

// Check reports what is wrong with the address of a store, without opening it.
func Check(address string) error {
	if _, err := parse(address); err != nil {
		return fmt.Errorf("store %q: %w", Redacted(address), err)
	}
	return nil
}

// CheckCache reports what is wrong with the address of a cache in front of a store, without opening them. No cache is
// right.
func CheckCache(cache, address string) error {
	if cache == "" {
		return nil
	}
	if a, err := parse(address); err == nil { // else that is said of the store
		if err := checkCache(cache, a); err != nil {
			return fmt.Errorf("cache %q: %w", Redacted(cache), err)
		}
	}
	return nil
}

// OtherVersion reports whether a store could not be opened because its schema is not of the version needed.
func OtherVersion(err error) bool {
	return errors.Is(err, sqlitestore.ErrVersion) || errors.Is(err, pgstore.ErrVersion)
}

type kind uint8

const (
	memoryKind kind = iota
	sqliteKind
	postgresKind
	redisKind
	shardsKind
)

var kinds = map[string]kind{
	"memory": memoryKind, "sqlite": sqliteKind, "postgres": postgresKind, "postgresql": postgresKind,
	"redis": redisKind, "rediss": redisKind, "redis+cluster": redisKind, "rediss+cluster": redisKind, "shards": shardsKind,
}

// settings are those of our own that a kind has in its query.
var settings = map[kind]map[string]bool{ // whether it is yes or no
	postgresKind: {"schema": false, "notify": true, "partition_answers": true},
	redisKind:    {"prefix": false, "notify": true, "allow_eviction": true},
}

// An address is a store's, in parts.
type address struct {
	kind kind
	rest string // behind ://, of sqlite and shards
	url  string // without our own settings, of servers
	own  map[string]string

	shards *shardFile
}

func (a *address) text(setting string) string { return a.own[setting] }
func (a *address) on(setting string) bool     { on, _ := strconv.ParseBool(a.own[setting]); return on }

func parse(s string) (*address, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	kind, known := kinds[scheme]
	a := &address{kind: kind, rest: rest, own: map[string]string{}}
	switch {
	case !ok || !known:
		return nil, errors.New("unknown kind; there are " + Forms)
	case kind == memoryKind && rest != "":
		return nil, errors.New("memory:// takes nothing behind it")
	case kind == sqliteKind && rest == "":
		return nil, errors.New("sqlite:// needs the path of a file behind it")
	case kind == sqliteKind && strings.Contains(rest, "?"):
		return nil, errors.New("sqlite:// takes a path, and no settings behind it")
	case kind == memoryKind, kind == sqliteKind:
		return a, nil
	case kind == shardsKind:
		var err error
		a.shards, err = readShards(rest)
		return a, err
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("the address is malformed") // the cause may quote its password
	}
	query := u.Query()
	for name, yesNo := range settings[kind] {
		values, given := query[name]
		if !given {
			continue
		}
		if _, err := strconv.ParseBool(values[0]); len(values) > 1 || yesNo && err != nil {
			return nil, fmt.Errorf("%s is %q, want it once, true or false", name, strings.Join(values, " "))
		}
		a.own[name] = values[0]
		query.Del(name)
	}
	u.RawQuery = query.Encode()
	a.url = u.String()
	if kind == postgresKind {
		return a, a.checkPostgres()
	}
	return a, a.checkRedis()
}

func (a *address) open(ctx context.Context, o Options) (*Opened, error) {
	switch a.kind {
	case sqliteKind:
		return openSQLite(ctx, a.rest, sqlitestore.Options{Log: o.Log, NoMigration: o.NoMigration})
	case postgresKind:
		return a.openPostgres(ctx, o)
	case redisKind:
		return a.openRedis(ctx, o)
	case shardsKind:
		return a.openShards(ctx, o)
	}
	memory := memstore.Options{}
	if o.OnePrincipal {
		memory.PrincipalShare = 1
	}
	store, err := memstore.Open(memory)
	if err != nil {
		return nil, err
	}
	return &Opened{Store: store}, nil
}

// Redacted returns an address without its password, which may also stand there because the kind, or what follows it,
// was misspelt. Of what is no address it shows the beginning.
func Redacted(address string) string {
	scheme, rest, whole := strings.Cut(address, "://")
	kind, known := kinds[scheme]
	if whole && known && (kind == sqliteKind || kind == memoryKind || kind == shardsKind) {
		return address
	}
	u, err := url.Parse(address)
	if err != nil || !whole || u.User == nil && strings.Contains(rest, "@") {
		if end := strings.IndexAny(address, ":/@= "); end >= 0 {
			return address[:end] + "…"
		}
		return address
	}
	query := u.Query()
	for name := range query {
		if strings.Contains(strings.ToLower(name), "pass") {
			query.Set(name, "xxxxx")
		}
	}
	u.RawQuery = query.Encode()
	return u.Redacted()
}
