package stores

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"

	"modernc.org/sqlite"

	"github.com/semelhq/semel/sqlitestore"
)

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
	return &Opened{Store: s, Lasts: true, Path: path, sqlite: db, closers: []func() error{db.Close, s.Close}}, nil
}

// Closing any descriptor of a database's file drops the locks that SQLite has on it, unless those belong to their own
// descriptors. Where there are no such locks nobody here opens that file beside SQLite, once it exists.
var _, _ = sqlite.OFDLocking(true)

// A commit then waits for the data and the size of the log, not also for the time of its last change, which is of no use
// after a crash. Builds of SQLite for Linux do so too. Where there is no such call SQLite goes on with fsync.
var _, _ = sqlite.Fdatasync(true)

// makeFile makes the database's file if it does not exist, so that only its owner can read it: answers are in it. One
// to which all have access is refused; its group may have it, as that of a volume in Kubernetes. Modes mean nothing on
// Windows. SQLite gives the files beside it the same mode.
func makeFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s is a folder, must be a file", path)
	case err == nil && info.Mode().Perm()&0o007 != 0 && runtime.GOOS != "windows":
		return fmt.Errorf("others have access to %s (mode %04o), and answers are in it: chmod o-rwx %[1]s*", path, info.Mode().Perm())
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

// sqliteVersion returns the version of the schema in a database, 0 if it has none.
func sqliteVersion(ctx context.Context, file string) (version int, err error) {
	if file, err = filepath.Abs(file); err != nil {
		return 0, err
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?mode=ro")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var n int
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master WHERE name = 'semel_meta'").Scan(&n)
	if err == nil && n > 0 {
		err = db.QueryRowContext(ctx, "SELECT version FROM semel_meta").Scan(&version)
	}
	return version, err
}
