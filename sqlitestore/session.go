package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// busyTimeout is how long SQLite itself waits for a lock. It waits longer each time, and sleeps through the moments in
	// which another process has let go; so the store waits, and sees when its callers leave.
	busyTimeout = 10 * time.Millisecond
	// lockTimeout is how long the store waits for a lock when no caller's context ends before.
	lockTimeout = 10 * time.Second
)

// Statements run on a context that does not end: an interrupt could roll back a transaction that others are part of.
var detached = context.Background()

// A session is a connection of the database, set up for the store. One goroutine uses it at a time.
type session struct {
	conn    *sql.Conn
	stmts   [statements]*sql.Stmt
	dropped bool
}

type statement int

const (
	beginWrite statement = iota
	commitWrite
	selectRecord
	insertRecord
	updateRecord
	rewriteRecord
	deleteRecord
	insertStep
	selectSteps
	deleteSteps
	selectMeta
	updateMeta
	nextTopic
	nextLane
	dueInLane
	headsOfLane
	behindHead
	leaseMessage
	firstOfKey
	makeHead
	statements
)

// texts are the statements that run with each verb. They are prepared once for each connection.
var texts = [statements]string{
	beginWrite:    "BEGIN IMMEDIATE",
	commitWrite:   "COMMIT",
	selectRecord:  "SELECT rowid, record FROM semel_records WHERE id = ?",
	insertRecord:  "INSERT INTO semel_records (id, state, started, expires, sealed, record) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
	updateRecord:  "UPDATE semel_records SET state = ?, started = ?, expires = ?, sealed = ?, record = ? WHERE rowid = ? AND id = ? AND substr(record, 1, 126) = ?",
	rewriteRecord: "UPDATE semel_records SET record = ? WHERE rowid = ? AND id = ? AND substr(record, 1, 126) = ?",
	deleteRecord:  "DELETE FROM semel_records WHERE rowid = ?",
	insertStep:    "INSERT INTO semel_steps (id, name, saved, result) VALUES (?, ?, ?, ifnull(?, x'')) ON CONFLICT DO NOTHING",
	selectSteps:   "SELECT record, NULL, NULL FROM semel_records WHERE id = ? UNION ALL SELECT NULL, name, result FROM semel_steps WHERE id = ?",
	deleteSteps:   "DELETE FROM semel_steps WHERE id = ?",
	selectMeta:    "SELECT clock, fence FROM semel_meta",
	updateMeta:    "UPDATE semel_meta SET clock = max(clock, ?), fence = max(fence, ?), records = records + ?",

	nextTopic:    "SELECT topic, tenant FROM semel_outbox WHERE state = 1 AND topic > ? ORDER BY topic, tenant LIMIT 1",
	nextLane:     "SELECT topic, tenant FROM semel_outbox WHERE state = 1 AND (topic, tenant) > (?, ?) ORDER BY topic, tenant LIMIT 1",
	dueInLane:    "SELECT 1 FROM semel_outbox WHERE state = 1 AND topic = ? AND tenant = ? AND head = 1 AND due <= ? LIMIT 1",
	headsOfLane:  "SELECT " + messageColumns + " FROM semel_outbox WHERE state = 1 AND topic = ? AND tenant = ? AND head = 1 AND due <= ? ORDER BY due, seq LIMIT ?",
	behindHead:   "SELECT " + messageColumns + " FROM semel_outbox WHERE open = 1 AND key <> '' AND topic = ? AND tenant = ? AND key = ? AND seq > ? ORDER BY seq LIMIT ?",
	leaseMessage: "UPDATE semel_outbox SET token = ?, due = ? WHERE seq = ?",
	firstOfKey:   "SELECT min(seq) FROM semel_outbox WHERE open = 1 AND key <> '' AND topic = ? AND tenant = ? AND key = ?",
	makeHead:     "UPDATE semel_outbox SET head = ? WHERE seq = ? AND head <> ?",
}

// pragmas of the store's own connections; they hold for one connection each.
var pragmas = []string{
	"PRAGMA synchronous = FULL",            // a commit is durable when it is acknowledged
	"PRAGMA journal_size_limit = 67108864", // a WAL that a long reader made grow gets small again
}

// pageSize is that of a file that has no page yet; others keep theirs. Ids come in no order, so that each new one mostly
// changes a page of their index: the smaller that is, the less is written.
const pageSize = "PRAGMA page_size = 2048"

// logSize is how large the log gets before it is copied back, in bytes: pages that change often are copied once for many
// commits.
const logSize = 16 << 20

// Sizes of a connection's cache, in KiB. A commit looks through all of the writer's whenever a page was split. Readers
// lose all of theirs whenever somebody has written, and pages that come and go cost more than to read them again from
// the system's cache.
const (
	readerCache = 1 << 10
	writerCache = 4 << 10
)

// newSession takes a connection out of the database and sets it up.
func newSession(ctx context.Context, db *sql.DB, cache int) (*session, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("take a connection: %w", interpretError(err))
	}
	s := &session{conn: conn}
	if err := s.setUp(ctx, cache); err != nil {
		s.drop()
		return nil, fmt.Errorf("set a connection up: %w", err)
	}
	return s, nil
}

func (s *session) setUp(ctx context.Context, cache int) error {
	if err := s.exec(fmt.Sprintf("PRAGMA busy_timeout = %d", busyTimeout.Milliseconds())); err != nil {
		return err
	}
	var mode string
	err := patiently(ctx, func() error {
		err := s.conn.QueryRowContext(detached, "PRAGMA journal_mode").Scan(&mode)
		if err == nil && mode != "wal" { // changing it takes a lock that nobody else may have
			if err := s.exec(pageSize); err != nil {
				return err
			}
			err = s.conn.QueryRowContext(detached, "PRAGMA journal_mode = WAL").Scan(&mode)
		}
		return interpretError(err)
	})
	if err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the database can't be in WAL mode, it is in %q: it must be a file, on a file system with shared memory and locks", mode)
	}
	if err := s.exec(fmt.Sprintf("PRAGMA cache_size = -%d", cache)); err != nil {
		return err
	}
	for _, p := range pragmas {
		if err := s.exec(p); err != nil {
			return err
		}
	}
	var size int
	if err := s.conn.QueryRowContext(detached, "PRAGMA page_size").Scan(&size); err != nil {
		return interpretError(err)
	}
	return s.exec(fmt.Sprintf("PRAGMA wal_autocheckpoint = %d", logSize/size))
}

// exec runs a statement, or a script, that has no arguments.
func (s *session) exec(query string) error {
	_, err := s.conn.ExecContext(detached, query)
	return interpretError(err)
}

// stmt returns a prepared statement.
func (s *session) stmt(which statement) (*sql.Stmt, error) {
	if st := s.stmts[which]; st != nil {
		return st, nil
	}
	st, err := s.conn.PrepareContext(detached, texts[which])
	if err != nil {
		return nil, interpretError(err)
	}
	s.stmts[which] = st
	return st, nil
}

// run executes a prepared statement.
func (s *session) run(which statement, args ...any) (sql.Result, error) {
	st, err := s.stmt(which)
	if err != nil {
		return nil, err
	}
	r, err := st.ExecContext(detached, args...)
	return r, interpretError(err)
}

// each calls scan for each row of a query's result, until it returns false.
func each(rows *sql.Rows, err error, scan func() (more bool, err error)) error {
	if err != nil {
		return interpretError(err)
	}
	defer rows.Close() //nolint:errcheck // what was wrong, scan and Err have said
	for rows.Next() {
		if more, err := scan(); err != nil || !more {
			return interpretError(err)
		}
	}
	return interpretError(rows.Err())
}

// lock is begin, but waits for the write lock until ctx ends, not longer than lockTimeout.
func (s *session) lock(ctx context.Context) error { return patiently(ctx, s.begin) }

// begin begins a transaction that holds the database's write lock. The transaction never read before it wrote, so that
// it can't fail for a snapshot that has become old (SQLITE_BUSY_SNAPSHOT).
func (s *session) begin() error {
	_, err := s.run(beginWrite)
	return err
}

// patiently repeats what fails because another connection has a lock.
func patiently(ctx context.Context, do func() error) error {
	giveUp := time.Now().Add(lockTimeout)
	for {
		err := do()
		if !errors.Is(err, ErrLocked) || time.Now().After(giveUp) {
			return err
		}
		// At random, so that processes that wait do not do so in step.
		select {
		case <-time.After(time.Millisecond + rand.N(4*time.Millisecond)):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// inTransaction reports whether a transaction is open. An error may have ended it; what is executed then would commit
// by itself.
func (s *session) inTransaction() bool {
	if err := s.exec("BEGIN"); err != nil {
		return true
	}
	s.reset()
	return false
}

// reset makes sure that no transaction is left open, if need be by giving the connection up.
func (s *session) reset() {
	if s.exec("ROLLBACK") != nil && (s.exec("BEGIN") != nil || s.exec("ROLLBACK") != nil) { // there may have been none
		s.drop()
	}
}

// finalize closes the prepared statements; while there is one, SQLite does not really close a connection.
func (s *session) finalize() {
	for _, st := range s.stmts {
		if st != nil {
			st.Close() //nolint:errcheck // it has run
		}
	}
}

// drop closes the connection, with all that was set on it, instead of giving it back to the pool.
func (s *session) drop() {
	s.dropped = true
	s.finalize()
	s.conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // it says so itself
	s.conn.Close()                                           //nolint:errcheck // it is closed
}
