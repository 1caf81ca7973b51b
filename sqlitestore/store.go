package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/bell"
)

// Options are a store's settings. The zero value is valid.
type Options struct {
	// NoMigration leaves the schema as it is: Open fails with [ErrVersion] unless it is the one that this version of the
	// package knows. See [Migrations].
	NoMigration bool

	// Log gets what an operator should know of, such as a machine's clock that was set back. Defaults to nobody.
	Log *slog.Logger

	// Clock tells the machine's time. It is called concurrently. The store's clock follows it, but never goes back.
	// Defaults to the machine's clock as it stands in Open, moved on by the monotonic clock, so that setting the machine's
	// clock ends no lease and no retention early.
	Clock func() time.Time
}

// maxReaders is how many connections read at most; more than there are cores only displace each other's caches.
const maxReaders = 4

// Store is a [driver.Store] in a SQLite database. It is also a [driver.StepStore], [driver.Seizer],
// [driver.Lister], [driver.Transactor], [driver.Auditor] and [driver.Counter]. It is safe for
// concurrent use. Several stores, in several processes of one machine, may be open on one file.
type Store struct {
	db       *sql.DB
	clock    *clock
	line     line
	known    known
	seen     seen
	writer   chan *session // its one connection that writes
	readers  chan *session // those that read; the same channel as writer if there are none
	sessions int           // how many there are
	closed   chan struct{}
	begins   chan struct{} // held by the one that takes a connection for a transaction
	messages bell.Bell     // rung when the outbox may have messages
}

var (
	_ driver.StepStore  = (*Store)(nil)
	_ driver.Seizer     = (*Store)(nil)
	_ driver.Lister     = (*Store)(nil)
	_ driver.Transactor = (*Store)(nil)
	_ driver.Auditor    = (*Store)(nil)
	_ driver.Counter    = (*Store)(nil)
)

// Open returns a store in the database, and makes or migrates its schema. It takes up to five connections out of db for
// as long as the store is open, as db.SetMaxOpenConns allows, which must be 2 or more and set before: at least one is
// left to the application. The database must be a file, not in memory. The store sets up its own connections and those
// of its transactions, whatever the driver's data source name says of them.
//
// Errors wrap [ErrVersion] for a schema of a newer version, and [ErrLocked], [ErrReadOnly], [ErrCorrupt] and the like.
func Open(ctx context.Context, db *sql.DB, o Options) (*Store, error) {
	s, err := open(ctx, db, o)
	if err != nil {
		return nil, fmt.Errorf("open sqlitestore: %w", err)
	}
	return s, nil
}

func open(ctx context.Context, db *sql.DB, o Options) (*Store, error) {
	allowed := db.Stats().MaxOpenConnections
	if allowed == 1 {
		return nil, fmt.Errorf("the DB may have 1 connection (SetMaxOpenConns), must be 2 or more: one writes for the store, one is the application's")
	}
	readers := min(maxReaders, runtime.GOMAXPROCS(0))
	if allowed > 0 {
		readers = min(readers, allowed-2)
	}
	s := &Store{
		db: db, clock: newClock(o.Clock), known: known{}, writer: make(chan *session, 1), readers: make(chan *session, maxReaders),
		closed: make(chan struct{}), begins: make(chan struct{}, 1),
	}
	for i := range 1 + readers {
		cache := readerCache
		if i == 0 {
			cache = writerCache
		}
		c, err := newSession(ctx, db, cache)
		if err != nil {
			s.drop(i)
			return nil, err
		}
		if i > 0 {
			s.readers <- c
			continue
		}
		s.writer <- c
		if err = migrate(ctx, c, !o.NoMigration); err == nil {
			err = s.readClock(c, o.Log)
		}
		if err != nil {
			s.drop(1)
			return nil, err
		}
	}
	if readers == 0 {
		s.readers = s.writer
	}
	s.sessions = 1 + readers
	return s, nil
}

// readClock moves the clock to the latest time in the database.
func (s *Store) readClock(w *session, log *slog.Logger) error {
	machine := s.clock.tell()
	var mark driver.Time
	if err := w.conn.QueryRowContext(detached, "SELECT clock FROM semel_meta").Scan(&mark); err != nil {
		return fmt.Errorf("read the clock: %w", interpretError(err))
	}
	s.clock.reach(mark)
	if behind := mark.Sub(machine); behind > time.Second && log != nil {
		log.Warn("the machine's clock is behind the times in the database: the store goes on from those, so that leases and retentions end as they should",
			"machine", machine.Time(), "database", mark.Time(), "behind", behind)
	}
	return nil
}

// Close waits for the verbs and transactions under way, and closes the store's connections; db stays open. Verbs called
// later fail with [ErrClosed].
func (s *Store) Close() error {
	last := &call{last: true}
	leads, err := s.line.enter(last)
	if err != nil {
		return nil //nolint:nilerr // it is closed already
	}
	if !leads {
		s.line.wait(detached, last) //nolint:errcheck // the context does not end
	}
	close(s.closed)
	s.drop(s.sessions)
	s.line.resign(last)
	return nil
}

// drop closes the first so many of the store's sessions. It waits for those that are in use.
func (s *Store) drop(sessions int) {
	for i := range sessions {
		if i == 0 {
			(<-s.writer).drop()
		} else {
			(<-s.readers).drop()
		}
	}
}

// take takes a session out of a channel, to which it must be given back.
func (s *Store) take(ctx context.Context, from chan *session) (*session, error) {
	var c *session
	select {
	case c = <-from:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.closed:
		return nil, ErrClosed
	}
	if !c.dropped {
		return c, nil
	}
	cache := readerCache
	if from == s.writer {
		cache = writerCache
	}
	fresh, err := newSession(ctx, s.db, cache)
	if err != nil {
		from <- c
		return nil, err
	}
	return fresh, nil
}

// read has do read, on a connection that does. It takes no lock that anybody else waits for.
func (s *Store) read(ctx context.Context, do func(*session) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := s.take(ctx, s.readers)
	if err != nil {
		return err
	}
	defer func() { s.readers <- c }()
	return patiently(ctx, func() error { return do(c) }) // another process may be recovering the log of one that was killed
}
