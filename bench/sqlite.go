package main

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/sqlitestore"
)

const sqliteCallers = 256

// A sqliteFile is a store on a file of its own.
type sqliteFile struct {
	*sqlitestore.Store
	dir string
	db  *sql.DB
}

func newSQLiteFile(ctx context.Context) (*sqliteFile, error) {
	dir, err := os.MkdirTemp("", "semel-bench-*")
	if err != nil {
		return nil, err
	}
	f := &sqliteFile{dir: dir}
	if f.db, err = sql.Open("sqlite", filepath.Join(dir, "semel.db")); err != nil {
		return nil, err
	}
	if f.Store, err = sqlitestore.Open(ctx, f.db, sqlitestore.Options{Log: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *sqliteFile) close() {
	if f.Store != nil {
		f.Store.Close() //nolint:errcheck // a temporary file
	}
	f.db.Close()        //nolint:errcheck // a temporary file
	os.RemoveAll(f.dir) //nolint:errcheck // a temporary file
}

// sqliteStore measures P-7.
func sqliteStore(ctx context.Context, m *meter) ([]row, error) {
	var files [3]*sqliteFile
	for i := range files {
		f, err := newSQLiteFile(ctx)
		if err != nil {
			return nil, err
		}
		defer f.close()
		files[i] = f
	}
	var serial atomic.Uint64 // no key comes twice
	ours := func(n int) {
		callers(sqliteCallers, n, func(int) { claimAndSettle(files[0], serial.Add(1)) })
	}
	loop, err := newBareLoop(ctx, files[1].db, sqliteCallers)
	if err != nil {
		return nil, err
	}
	bare := func(n int) {
		callers(sqliteCallers, n, func(int) { loop.claimAndSettle(serial.Add(1)) })
	}
	single, err := newBareLoop(ctx, files[2].db, 1)
	if err != nil {
		return nil, err
	}
	alone := func(n int) {
		callers(sqliteCallers, n, func(int) { single.claimAndSettle(serial.Add(1)) })
	}
	group := m.compare(bare, ours) // the floor first: the goal is a share of its throughput
	one := m.compare(alone, ours)
	loop.stop()
	single.stop()
	return []row{
		{"P-7", "SQLite, durable, claim + settle, 256 callers", perOp(group.b), perOp(group.a), times(group.ratio), "≥ 0.9×"},
		{"P-7", "the same beside one commit for each", perOp(one.b), perOp(one.a), times(one.ratio), "≥ 8×"},
	}, nil
}

// A bareLoop is the floor: one goroutine that takes what callers have queued, at most limit, and writes it in one
// transaction, to a table that can be looked up by id and swept by time. It decides nothing.
type bareLoop struct {
	queue chan bareOp
	ended chan struct{}
}

type bareOp struct {
	rec  *driver.Record
	id   driver.ID
	done chan error
}

func newBareLoop(ctx context.Context, db *sql.DB, limit int) (*bareLoop, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range []string{
		"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL",
		"CREATE TABLE bare (id BLOB PRIMARY KEY, record BLOB NOT NULL, expires INTEGER)",
		"CREATE INDEX bare_expires ON bare (expires) WHERE expires IS NOT NULL",
	} {
		if _, err := conn.ExecContext(ctx, p); err != nil {
			return nil, err
		}
	}
	insert, err := conn.PrepareContext(ctx, "INSERT INTO bare (id, record, expires) VALUES (?, ?, NULL)")
	if err != nil {
		return nil, err
	}
	update, err := conn.PrepareContext(ctx, "UPDATE bare SET record = ?, expires = ? WHERE id = ?")
	if err != nil {
		return nil, err
	}
	l := &bareLoop{queue: make(chan bareOp, sqliteCallers), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		defer conn.Close() //nolint:errcheck // a temporary file
		var batch []bareOp
		for op := range l.queue {
			batch = append(batch[:0], op)
			for len(batch) < limit && len(l.queue) > 0 {
				batch = append(batch, <-l.queue)
			}
			err := bareBatch(ctx, conn, insert, update, batch)
			for _, op := range batch {
				op.done <- err
			}
		}
	}()
	return l, nil
}

func (l *bareLoop) stop() {
	close(l.queue)
	<-l.ended
}

func bareBatch(ctx context.Context, conn *sql.Conn, insert, update *sql.Stmt, batch []bareOp) error {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for _, op := range batch {
		b, err := op.rec.AppendBinary(nil)
		if err != nil {
			return err
		}
		if op.rec.State == driver.Running {
			_, err = insert.ExecContext(ctx, op.id[:], b)
		} else {
			_, err = update.ExecContext(ctx, b, int64(op.rec.Expires()), op.id[:])
		}
		if err != nil {
			return err
		}
	}
	_, err := conn.ExecContext(ctx, "COMMIT")
	return err
}

func (l *bareLoop) claimAndSettle(n uint64) {
	id, rec := runningRecord(n)
	done := make(chan error, 1)
	write := func() {
		l.queue <- bareOp{&rec, id, done}
		if err := <-done; err != nil {
			panic(fmt.Sprint("bare loop: ", err))
		}
	}
	write()
	answer := *stored
	answer.Body = append([]byte(nil), answer200...)
	rec, _ = rec.Settle(rec.Now, rec.Owner(), driver.Outcome{State: driver.Done, Response: &answer})
	write()
}

// runningRecord is what a store writes for the claim of claimAndSettle.
func runningRecord(n uint64) (driver.ID, driver.Record) {
	id := idOf(n)
	var token driver.Token
	binary.LittleEndian.PutUint64(token[:], n)
	rec, _ := (driver.Record{}).Claim(driver.TimeOf(time.Now()), driver.Claim{
		Token: token, Fingerprint: driver.Fingerprint{Raw: [16]byte(id[:16])}, OnLost: semel.Hold,
		Lease: 30 * time.Second, Retention: 24 * time.Hour, Operation: "POST /payments", Correlation: "0190f4d2-7a3c-7b1e-9c55-2f6d0c8e4b1a",
	})
	return id, rec
}
