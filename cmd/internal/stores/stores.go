// Package stores opens the stores that addresses name.
package stores

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/sqlitestore"
)

// Opened is an open store.
type Opened struct {
	Store semel.Store
	Lasts bool   // its records outlive this process
	Path  string // of its file, absolute; "" if it has none
	close func() error
}

// Close closes the store. It waits for what is under way in it.
func (o *Opened) Close() error {
	if o.close == nil {
		return nil
	}
	return o.close()
}

// Open opens the store that an address names, and makes or migrates its schema:
//
//   - memory:// keeps records in this process, so that they end with it;
//   - sqlite://FILE keeps them in a SQLite database, which is made if it does not exist: sqlite://semel.db in the working
//     folder, sqlite:///var/lib/semel/semel.db from the root.
//
// log gets what an operator should know of; nil means nobody.
func Open(ctx context.Context, address string, log *slog.Logger) (*Opened, error) {
	return open(ctx, address, sqlitestore.Options{Log: log})
}

// OpenUnmigrated is Open for a store whose schema is made already: it fails with an error that wraps
// [sqlitestore.ErrVersion] if that is of another version.
func OpenUnmigrated(ctx context.Context, address string, log *slog.Logger) (*Opened, error) {
	return open(ctx, address, sqlitestore.Options{Log: log, NoMigration: true})
}

// Migrations returns the script that makes the schema of the store that an address names; "" if it needs none.
func Migrations(address string) (string, error) {
	kind, _, err := split(address)
	if err != nil {
		return "", fmt.Errorf("store %q: %w", redacted(address), err)
	}
	if kind == "sqlite" {
		return sqlitestore.Migrations(), nil
	}
	return "", nil
}

func open(ctx context.Context, address string, o sqlitestore.Options) (*Opened, error) {
	kind, rest, err := split(address)
	var opened *Opened
	switch {
	case err != nil:
	case kind == "memory":
		opened = &Opened{Store: memstore.New()}
	default:
		opened, err = openSQLite(ctx, rest, o)
	}
	if err != nil {
		return nil, fmt.Errorf("store %q: %w", redacted(address), err)
	}
	return opened, nil
}

func split(address string) (kind, rest string, err error) {
	kind, rest, ok := strings.Cut(address, "://")
	switch {
	case !ok || kind != "memory" && kind != "sqlite":
		return "", "", errors.New("unknown kind; there are memory:// and sqlite://FILE")
	case kind == "memory" && rest != "":
		return "", "", errors.New("memory:// takes nothing behind it")
	case kind == "sqlite" && rest == "":
		return "", "", errors.New("sqlite:// needs the path of a file behind it")
	case kind == "sqlite" && strings.Contains(rest, "?"):
		return "", "", errors.New("sqlite:// takes a path, and no settings behind it")
	}
	return kind, rest, nil
}

// redacted returns an address without its password, which may stand there because the kind was misspelt.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		scheme, _, _ := strings.Cut(address, "://")
		return scheme + "://…"
	}
	return u.Redacted()
}

func openSQLite(ctx context.Context, path string, o sqlitestore.Options) (*Opened, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := makeFile(path); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath())
	if err != nil {
		return nil, err
	}
	s, err := sqlitestore.Open(ctx, db, o)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Opened{
		Store: s, Lasts: true, Path: path,
		close: func() error { return errors.Join(s.Close(), db.Close()) },
	}, nil
}

// Closing any descriptor of a database's file drops the locks that SQLite has on it, unless those belong to their own
// descriptors. Where there are no such locks nobody here opens that file beside SQLite, once it exists.
var _, _ = sqlite.OFDLocking(true)

// makeFile makes the database's file if it does not exist, so that only its owner can read it: answers are in it. SQLite
// gives the files beside it the same mode.
func makeFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s is a folder, must be a file", path)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, fs.ErrExist):
		return nil // another process was faster
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the folder %s does not exist", filepath.Dir(path))
	}
	return err
}
