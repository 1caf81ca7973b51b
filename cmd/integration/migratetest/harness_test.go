package migratetest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	_ "modernc.org/sqlite"             // the driver

	"github.com/semelhq/semel/internal/servers"
)

var postgres = servers.Shared[*servers.Postgres]{Start: func() (*servers.Postgres, error) {
	return servers.NewPostgres(servers.PostgresOptions{})
}}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := postgres.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// newDatabase makes a database on the server, and returns its URL.
func newDatabase(t *testing.T, name string) string {
	t.Helper()
	server := postgres.Get(t)
	if _, err := openPool(t, server.URL()).Exec(context.Background(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func openPool(t *testing.T, address string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func openDB(t *testing.T, driver, source string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// texts returns the only column of a query, sorted.
func texts(t *testing.T, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// same reports what is in one list only.
func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if len(want) < 10 {
		t.Fatalf("there are only %q", want)
	}
	for _, text := range got {
		if !slices.Contains(want, text) {
			t.Errorf("%s, and not the store, makes %s", what, text)
		}
	}
	for _, text := range want {
		if !slices.Contains(got, text) {
			t.Errorf("the store, and not %s, makes %s", what, text)
		}
	}
}
