package main

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
)

// large are the sizes of the suites that need millions of records.
type large struct{ records, expired int }

// A filler is a store whose storage can be filled faster than its verbs do it.
type filler interface {
	driver.Store
	// fill adds n records of operations that are done, as the verbs would leave them, in the order of their ids.
	fill(ctx context.Context, n int, retention time.Duration) error
}

// growth measures P-13: a claim in a store that holds many records beside one in a store that holds few.
func (l large) growth(ctx context.Context, m *meter, what string, limit int, reach string, few, many filler) ([]row, error) {
	const some = 10_000
	var serial atomic.Uint64
	for _, s := range []struct {
		filler
		n int
	}{{few, some}, {many, l.records}} {
		fmt.Fprintf(os.Stderr, "filling a store with %d records …\n", s.n)
		if err := s.fill(ctx, s.n, driver.DefaultRetention); err != nil {
			return nil, err
		}
	}
	r := m.each(limit).compare(
		func(n int) { callers(limit, n, func(int) { claimOnly(many, serial.Add(1)) }) },
		func(n int) { callers(limit, n, func(int) { claimOnly(few, serial.Add(1)) }) },
	)
	work := fmt.Sprintf("%s, a claim at %d records beside %d, %d callers", what, l.records, some, limit)
	return []row{{"P-13", work, perOp(r.a), perOp(r.b), times(r.ratio), reach}}, nil
}

func (l large) sqliteGrowth(ctx context.Context, m *meter) ([]row, error) {
	var files [2]*sqliteFile
	for i := range files {
		f, err := newSQLiteFile(ctx)
		if err != nil {
			return nil, err
		}
		defer f.close()
		files[i] = f
	}
	return l.growth(ctx, m, "SQLite", sqliteCallers, "≤ 1.4×", files[0], files[1])
}

func (l large) sqliteSweeping(ctx context.Context, _ *meter) ([]row, error) {
	f, err := newSQLiteFile(ctx)
	if err != nil {
		return nil, err
	}
	defer f.close()
	return l.sweeping(ctx, "SQLite", 2000, f)
}

func (f *sqliteFile) fill(ctx context.Context, n int, retention time.Duration) error {
	conn, err := f.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // a temporary file
	if _, err := conn.ExecContext(ctx, "PRAGMA synchronous = OFF"); err != nil {
		return err
	}
	const batch = 50_000
	for from := 0; from < n; from += batch {
		if err := fillBatch(ctx, conn, from, min(n, from+batch), ^uint64(0)/uint64(n), retention); err != nil {
			return err
		}
	}
	// The checkpoint waits for the disk, as it has something to copy: what the batches wrote is not still being written
	// while something is measured.
	if _, err := conn.ExecContext(ctx, "PRAGMA synchronous = FULL"); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "UPDATE semel_meta SET records = records + ?", n); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}

// fillBatch adds the records from one number up to another in one transaction. It leaves none open: the connection's
// Close would wait for it.
func fillBatch(ctx context.Context, conn *sql.Conn, from, to int, step uint64, retention time.Duration) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it has been committed, or is given up
	insert, err := tx.PrepareContext(ctx, "INSERT INTO semel_records (id, state, started, expires, sealed, record) VALUES (?, ?, ?, ?, 0, ?)")
	if err != nil {
		return err
	}
	var buf []byte
	for i := from; i < to; i++ {
		id, rec := runningRecord(uint64(i))
		binary.BigEndian.PutUint64(id[:], uint64(i)*step)
		rec.Retention = retention
		rec, _ = rec.Settle(rec.Now, rec.Owner(), driver.Outcome{State: driver.Done, Response: stored})
		if buf, err = rec.AppendBinary(buf[:0]); err != nil {
			return err
		}
		if _, err := insert.ExecContext(ctx, id[:], int64(rec.State), int64(rec.Started), int64(rec.Expires()), buf); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// claimOnly claims a new key.
func claimOnly(s driver.Store, n uint64) {
	id := idOf(n)
	var token driver.Token
	binary.LittleEndian.PutUint64(token[:], n)
	_, owned, err := s.Claim(context.Background(), id, driver.Claim{
		Token: token, Fingerprint: driver.Fingerprint{Raw: [16]byte(id[:16])}, OnLost: semel.Hold,
		Lease: 30 * time.Second, Retention: 24 * time.Hour, Operation: "POST /payments", Correlation: "0190f4d2-7a3c-7b1e-9c55-2f6d0c8e4b1a",
	})
	if err != nil || !owned {
		panic(fmt.Sprint("claim: ", owned, err))
	}
}

// sweeping measures P-14: a sweep of many expired records alone, and while claims arrive at a steady rate, in claims
// per second; and those claims alone.
func (l large) sweeping(ctx context.Context, what string, rate int, s filler) ([]row, error) {
	var serial atomic.Uint64
	expired := func() error {
		fmt.Fprintf(os.Stderr, "filling a store with %d expired records …\n", l.expired)
		return s.fill(ctx, l.expired, time.Microsecond)
	}
	if err := expired(); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := sweepAll(ctx, s, l.expired); err != nil {
		return nil, err
	}
	alone := time.Since(began)

	callers(rate, rate, func(int) { claimOnly(s, serial.Add(1)) }) // opens the connections
	quiet := claimsAtRate(s, &serial, rate, min(20*time.Second, max(5*time.Second, alone)), nil)

	if err := expired(); err != nil {
		return nil, err
	}
	swept := make(chan error, 1)
	stop := make(chan struct{})
	began = time.Now()
	var beside time.Duration
	go func() {
		err := sweepAll(ctx, s, l.expired)
		beside = time.Since(began)
		close(stop)
		swept <- err
	}()
	busy := claimsAtRate(s, &serial, rate, time.Hour, stop)
	if err := <-swept; err != nil {
		return nil, err
	}
	perSecond := func(d time.Duration) string { return fmt.Sprintf("%.0f/s", float64(l.expired)/d.Seconds()) }
	p99, q99 := quantile(busy, .99), quantile(quiet, .99)
	return []row{
		{"P-14", fmt.Sprintf("%s, sweep of %d expired beside %d claims/s", what, l.expired, rate), perSecond(beside), perSecond(alone), times(float64(alone) / float64(beside)), "≥ 0.5×"},
		{"P-14", what + ", those claims' p99, sweeping beside not", perOp(p99), perOp(q99), times(float64(p99) / float64(q99)), "≤ 2×"},
	}, nil
}

// sweepAll sweeps as Guard.Run does: in batches, each followed by a rest as long as it took.
func sweepAll(ctx context.Context, s driver.Store, want int) error {
	for swept := 0; swept < want; {
		began := time.Now()
		n, err := s.Sweep(ctx, 1000)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("swept %d records, want %d", swept, want)
		}
		swept += n
		time.Sleep(time.Since(began))
	}
	return nil
}

// claimsAtRate starts claims at a steady rate, whether or not the earlier ones have ended, and returns how long each
// took, in order.
func claimsAtRate(s driver.Store, serial *atomic.Uint64, rate int, span time.Duration, stop <-chan struct{}) []time.Duration {
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	end := time.Now().Add(span)
	for next := time.Now(); next.Before(end); next = next.Add(time.Second / time.Duration(rate)) {
		select {
		case <-stop:
			end = time.Now()
		default:
		}
		time.Sleep(time.Until(next))
		due := next
		all.Go(func() {
			claimOnly(s, serial.Add(1))
			d := time.Since(due)
			mu.Lock()
			took = append(took, d)
			mu.Unlock()
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}
