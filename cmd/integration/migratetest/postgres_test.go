package migratetest

import (
	"context"
	"database/sql"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/pgstore"
)

func withGoose(ctx context.Context, db *sql.DB) error {
	// The table keeps semel's versions apart from those of the application.
	p, err := goose.NewProvider(goose.DialectPostgres, db, pgstore.Migrations("semel", 0), goose.WithTableName("goose_semel"))
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

func withGolangMigrate(_ context.Context, db *sql.DB) error {
	files, err := iofs.New(pgstore.Migrations("semel", 0), ".")
	if err != nil {
		return err
	}
	// The table keeps semel's versions apart from those of the application.
	database, err := migratepgx.WithInstance(db, &migratepgx.Config{MigrationsTable: "migrate_semel"})
	if err != nil {
		return err
	}
	m, err := migrate.NewWithInstance("iofs", files, "pgx5", database)
	if err != nil {
		return err
	}
	return m.Up()
}

// made is all that the schema has, from PostgreSQL's catalogues.
const made = `
	SELECT concat_ws(' ', c.relkind, c.relname, c.reloptions::text, c.relpersistence, pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid))
	FROM pg_class c WHERE c.relnamespace = 'semel'::regnamespace
UNION ALL
	SELECT concat_ws(' ', 'column', c.relname, a.attname, a.attnum, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attstorage,
		a.attcollation::regcollation, pg_get_expr(d.adbin, d.adrelid))
	FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
	WHERE c.relnamespace = 'semel'::regnamespace AND a.attnum > 0
UNION ALL
	SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = 'semel'::regnamespace
UNION ALL
	SELECT concat_ws(' ', c.conrelid::regclass, c.conname, pg_get_constraintdef(c.oid)) FROM pg_constraint c WHERE c.connamespace = 'semel'::regnamespace
UNION ALL
	SELECT pg_get_triggerdef(g.oid) FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid WHERE c.relnamespace = 'semel'::regnamespace
UNION ALL
	SELECT concat_ws(' ', v.viewname, v.definition) FROM pg_views v WHERE v.schemaname = 'semel'
UNION ALL
	SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = 'semel'::regnamespace
UNION ALL
	SELECT 'version ' || m.version || ', readable ' || m.readable FROM semel.meta m`

func TestTheToolsMakeThePostgreSQLSchema(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	address := newDatabase(t, "by_store")
	s, err := pgstore.Open(ctx, openPool(t, address), pgstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := texts(t, openDB(t, "pgx", address), made)
	for name, up := range map[string]func(context.Context, *sql.DB) error{"goose": withGoose, "golang_migrate": withGolangMigrate} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := newDatabase(t, "by_"+name)
			db := openDB(t, "pgx", address)
			if err := up(ctx, db); err != nil {
				t.Fatal(err)
			}
			same(t, name, texts(t, db, made), want)
			s, err := pgstore.Open(ctx, openPool(t, address), pgstore.Options{NoMigration: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			verbs.Claim(t, s, verbs.NewID(), verbs.Ask(driver.Hold))
		})
	}
}
