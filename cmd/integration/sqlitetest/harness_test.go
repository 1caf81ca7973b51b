package sqlitetest

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"

	_ "modernc.org/sqlite" // the driver

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/sqlitestore"
)

var (
	newID    = verbs.NewID
	ask      = verbs.Ask
	claim    = verbs.Claim
	settle   = verbs.Settle
	load     = verbs.Load
	done     = verbs.Done
	saveStep = verbs.SaveStep
	newClock = verbs.NewClock
)

// newFile returns the path of a database in a folder of the test's own.
func newFile(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "semel.db")
}

// openDB opens a database; params are those of the driver, such as "mode=ro".
func openDB(t testing.TB, path, params string) *sql.DB {
	t.Helper()
	db, err := openFile(path, params)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func openFile(path, params string) (*sql.DB, error) {
	return sql.Open("sqlite", dataSource(path, params))
}

func dataSource(path, params string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + params
}

// openStore opens a store with a DB of its own.
func openStore(t testing.TB, path string, o sqlitestore.Options) (*sqlitestore.Store, *sql.DB) {
	t.Helper()
	db := openDB(t, path, "")
	s, err := sqlitestore.Open(context.Background(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s, db
}

func steps(t testing.TB, s driver.StepStore, id driver.ID) map[string][]byte {
	t.Helper()
	saved, err := s.Steps(context.Background(), id)
	if err != nil {
		t.Fatalf("Steps: %v", err)
	}
	return saved
}

// A watched context tells that a verb has begun to wait.
type watched struct {
	context.Context
	asked atomic.Int32
	at    int32
	waits chan struct{} // closed when the verb waits
}

// watch returns a context that tells when it is waited for the nth time. A Claim of an
// operation that the store has loaded waits for a connection to look with, and then in the line; other verbs only in the
// line.
func watch(t testing.TB, nth int32) *watched {
	return &watched{Context: t.Context(), at: nth, waits: make(chan struct{})}
}

// An ending context passes its deadline when a verb waits, however long it took to come to that.
type ending struct {
	context.Context
	asked atomic.Int32
	at    int32
	over  chan struct{}
}

// endAt returns a context that ends when it is waited for the nth time: see watch.
func endAt(ctx context.Context, nth int32) *ending {
	return &ending{Context: ctx, at: nth, over: make(chan struct{})}
}

func (e *ending) Done() <-chan struct{} {
	if e.asked.Add(1) == e.at {
		close(e.over)
	}
	return e.over
}

func (e *ending) Err() error {
	select {
	case <-e.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func (w *watched) Done() <-chan struct{} {
	if w.asked.Add(1) == w.at {
		close(w.waits)
	}
	return w.Context.Done()
}
