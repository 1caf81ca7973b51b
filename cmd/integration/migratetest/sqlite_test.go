package migratetest

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	migratesqlite "github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/sqlitestore"
)

func sqliteWithGoose(ctx context.Context, db *sql.DB) error {
	p, err := goose.NewProvider(goose.DialectSQLite3, db, sqlitestore.Migrations(0))
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

func sqliteWithGolangMigrate(_ context.Context, db *sql.DB) error {
	files, err := iofs.New(sqlitestore.Migrations(0), ".")
	if err != nil {
		return err
	}
	database, err := migratesqlite.WithInstance(db, &migratesqlite.Config{})
	if err != nil {
		return err
	}
	m, err := migrate.NewWithInstance("iofs", files, "sqlite", database)
	if err != nil {
		return err
	}
	return m.Up()
}

func TestTheToolsMakeTheSQLiteSchema(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const made = `SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema WHERE tbl_name LIKE 'semel_%'
		UNION ALL SELECT 'version ' || version FROM semel_meta`
	byStore := openDB(t, "sqlite", filepath.Join(t.TempDir(), "semel.db"))
	s, err := sqlitestore.Open(ctx, byStore, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := texts(t, byStore, made)
	for name, up := range map[string]func(context.Context, *sql.DB) error{"goose": sqliteWithGoose, "golang-migrate": sqliteWithGolangMigrate} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openDB(t, "sqlite", filepath.Join(t.TempDir(), "semel.db"))
			if err := up(ctx, db); err != nil {
				t.Fatal(err)
			}
			same(t, name, texts(t, db, made), want)
			s, err := sqlitestore.Open(ctx, db, sqlitestore.Options{NoMigration: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			verbs.Claim(t, s, verbs.NewID(), verbs.Ask(driver.Hold))
		})
	}
}
