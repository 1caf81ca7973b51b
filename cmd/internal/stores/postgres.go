package stores

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/pgstore"
)

func (a *address) checkPostgres() error {
	if _, err := a.pool(); err != nil {
		return err
	}
	return pgstore.CheckSchema(a.text("schema"))
}

// pool returns the pool's configuration. Its errors do not show the password.
func (a *address) pool() (*pgxpool.Config, error) { return pgxpool.ParseConfig(a.url) }

func (a *address) openPostgres(ctx context.Context, o Options) (*Opened, error) {
	c, err := a.pool()
	if err != nil {
		return nil, err
	}
	own := pgstore.Options{
		Schema: a.text("schema"), Notify: a.on("notify"), PartitionAnswers: a.on("partition_answers"),
		NoMigration: o.NoMigration, Log: o.Log,
	}
	if u, err := url.Parse(a.url); err == nil && u.Query().Has("pool_max_conns") {
		own.MaxConns = c.MaxConns
	}
	c.MinConns, c.MinIdleConns = 0, 0 // nobody has transactions here
	app, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	s, err := pgstore.Open(ctx, app, own)
	if err != nil {
		app.Close()
		return nil, err
	}
	return &Opened{Store: s, Lasts: true, postgres: app, schema: cmp.Or(own.Schema, "semel"), closers: []func() error{
		func() error { app.Close(); return nil },
		s.Close,
	}}, nil
}

// Version returns the version of the schema of the store that an address names; 0 if it has none yet, or needs none.
func Version(ctx context.Context, address string) (version int, err error) {
	a, err := parse(address)
	switch {
	case err != nil:
	case a.kind == sqliteKind:
		version, err = sqliteVersion(ctx, a.rest)
	case a.kind == postgresKind:
		version, err = a.postgresVersion(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("store %q: read the schema's version: %w", Redacted(address), err)
	}
	return version, nil
}

func (a *address) postgresVersion(ctx context.Context) (int, error) {
	c, err := a.pool()
	if err != nil {
		return 0, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	version, err := pgstore.Version(ctx, pool, a.text("schema"))
	if errors.Is(err, pgstore.ErrSchema) {
		return 0, nil
	}
	return version, err
}
