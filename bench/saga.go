package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/saga"
)

// An effects table stands for the services that a saga calls: each call is one durable commit, on one connection.
type effects struct {
	conn   *sql.Conn
	turn   chan struct{}
	insert *sql.Stmt
}

func newEffects(ctx context.Context, db *sql.DB) (*effects, error) {
	e := &effects{turn: make(chan struct{}, 1)}
	var err error
	if e.conn, err = db.Conn(ctx); err != nil {
		return nil, err
	}
	for _, p := range []string{
		"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA busy_timeout=10000",
		"CREATE TABLE effects (key TEXT PRIMARY KEY, payload BLOB NOT NULL) WITHOUT ROWID",
	} {
		if _, err := e.conn.ExecContext(ctx, p); err != nil {
			return nil, err
		}
	}
	e.insert, err = e.conn.PrepareContext(ctx, "INSERT INTO effects (key, payload) VALUES (?, ?)")
	return e, err
}

func (e *effects) call(ctx context.Context, key string) error {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	_, err := e.insert.ExecContext(ctx, key, answer200)
	return err
}

// order is the state of the saga that is measured.
type order struct {
	Note string
	Done int
}

var sagaSteps = []string{"charge", "reserve", "ship"}

// sagas measures a saga of three steps beside its three calls. The services have a SQLite file of their own, as those
// of others have; in the second row they share it with the records, and its lock for writers.
func sagas(ctx context.Context, m *meter) (rows []row, err error) {
	for _, shared := range []bool{false, true} {
		ratio, bare, ours, err := sagasOn(ctx, m, shared)
		if err != nil {
			return nil, err
		}
		what, goal := "SQLite, durable, three steps, 256 callers", "≥ 0.5×"
		if shared {
			what, goal = what+", services in the same file", "shown"
		}
		rows = append(rows, row{"saga", what, perOp(ours), perOp(bare), times(ratio), goal})
	}
	return rows, nil
}

func sagasOn(ctx context.Context, m *meter, shared bool) (ratio float64, bareTook, oursTook time.Duration, err error) {
	var tables [2]*effects
	var files [3]*sqliteFile
	for i := range files {
		f, err := newSQLiteFile(ctx)
		if err != nil {
			return 0, 0, 0, err
		}
		defer f.close()
		files[i] = f
	}
	own := 1
	if shared {
		own = 0
	}
	for i := range tables {
		if tables[i], err = newEffects(ctx, files[own+i].db); err != nil {
			return 0, 0, 0, err
		}
		defer tables[i].conn.Close() //nolint:errcheck // a temporary file
	}
	ring, err := keyring.New(keyring.Key{ID: "1", Key: secret})
	if err != nil {
		return 0, 0, 0, err
	}
	guard, err := semel.New(files[0].Store, semel.SingleTenant, semel.Hold, semel.Options{IdentitySecret: secret, Encryption: ring, MaxAttempts: -1})
	if err != nil {
		return 0, 0, 0, err
	}
	runner, err := saga.New(guard, saga.Options{})
	if err != nil {
		return 0, 0, 0, err
	}
	// A caller is busy with its saga up to the call of the last step. What remains is waited for at the end.
	busy := make(chan struct{}, sqliteCallers)
	var steps []saga.Step[order]
	for _, name := range sagaSteps {
		steps = append(steps, saga.Step[order]{Name: name, Do: func(ctx context.Context, o *order) error {
			key, _ := saga.Key(ctx)
			if o.Done++; o.Done == len(sagaSteps) {
				defer func() { <-busy }()
			}
			return tables[0].call(ctx, key)
		}})
	}
	definition, err := saga.Define("order", steps...)
	if err != nil {
		return 0, 0, 0, err
	}
	orders, err := saga.Register(runner, definition)
	if err != nil {
		return 0, 0, 0, err
	}
	input := order{Note: strings.Repeat("x", 150)}
	var serial atomic.Uint64 // no saga comes twice
	ours := func(n int) {
		callers(sqliteCallers, n, func(int) {
			id := strconv.FormatUint(serial.Add(1), 10)
			busy <- struct{}{}
			if _, err := orders.Start(ctx, id, input); err != nil {
				panic(fmt.Sprint("start: ", err))
			}
		})
		if err := guard.Drain(ctx); err != nil {
			panic(fmt.Sprint("drain: ", err))
		}
	}
	bare := func(n int) {
		callers(sqliteCallers, n, func(int) {
			id := strconv.FormatUint(serial.Add(1), 10)
			for _, name := range sagaSteps {
				if err := tables[1].call(ctx, id+name); err != nil {
					panic(fmt.Sprint("call: ", err))
				}
			}
		})
	}
	r := m.compare(bare, ours) // the floor first: the goal is a share of its throughput
	if err := ended(ctx, orders, serial.Load()); err != nil {
		return 0, 0, 0, err
	}
	return r.ratio, r.a, r.b, nil
}

// ended looks at one of the sagas, so that what was measured is known to have happened.
func ended(ctx context.Context, orders *saga.Saga[order], last uint64) error {
	for id := last; id > 0; id-- {
		status, err := orders.Status(ctx, strconv.FormatUint(id, 10))
		if err == nil && (status.State != saga.Done || status.Value.Done != len(sagaSteps)) {
			err = fmt.Errorf("saga %d is %s: %s", id, status.State, status.Error)
		}
		if !errors.Is(err, saga.ErrNotFound) { // the numbers are shared with the bare calls
			return err
		}
	}
	return errors.New("there is no saga")
}
