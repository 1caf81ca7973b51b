package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"modernc.org/sqlite"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/sqlitestore"
)

// trapCommits sets the trap within COMMIT, of every connection that this process opens to an SQLite database.
func (a *actor) trapCommits() {
	sqlite.RegisterConnectionHook(func(c sqlite.ExecQuerierContext, _ string) error {
		h, ok := c.(sqlite.HookRegisterer)
		if !ok {
			return errors.New("the driver has no commit hook")
		}
		h.RegisterCommitHook(func() int32 {
			a.traps.pass(BeforeCommit)
			return 0
		})
		return nil
	})
}

// The table has no constraint that would keep a second effect out.
const effectsTable = `CREATE TABLE IF NOT EXISTS effects (
	id TEXT NOT NULL, key TEXT NOT NULL, request TEXT NOT NULL, operation TEXT NOT NULL,
	attempt INTEGER NOT NULL, fence INTEGER NOT NULL, began INTEGER NOT NULL, at INTEGER NOT NULL)`

func openDatabase(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return db, nil
}

// serveLibrary is a service that has the library within, and its effects in the store's database.
func (a *actor) serveLibrary(ctx context.Context) error {
	a.trapCommits()
	db, err := openDatabase(a.Ledger)
	if err != nil {
		return err
	}
	store, err := sqlitestore.Open(ctx, db, sqlitestore.Options{})
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, effectsTable); err != nil {
		return fmt.Errorf("create table: %w", err)
	}
	policy := semel.Policy{Lease: a.Lease, Wait: a.Lease / 4, MaxRun: time.Minute, OneCommit: a.Mode == OneCommit}
	var under semel.Store = store
	if a.Mode == Tx {
		under = trappedStore{store, a.traps}
	}
	guard, err := semel.New(under, semel.SingleTenant, a.Mode.onLost(), semel.Options{Policy: policy, MaxKeys: -1, MaxAttempts: -1})
	if err != nil {
		return err
	}
	l, err := a.listen()
	if err != nil {
		return err
	}
	go sweep(ctx, store)
	mux := http.NewServeMux()
	mux.Handle("POST /payments", guard.Handler(&till{actor: a, db: db, store: store}))
	announce(l)
	return fmt.Errorf("serve: %w", http.Serve(l, mux))
}

// A till takes payments, each in a transaction.
type till struct {
	*actor
	db    *sql.DB
	store *sqlitestore.Store
}

var (
	errRefused = errors.New("payment refused")
	errFailed  = errors.New("something failed")
)

func (t *till) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	p, request, ok := readPayment(w, r)
	if !ok {
		return
	}
	time.Sleep(p.Takes)
	e := newEffect(r.Header.Get("Idempotency-Key"), request, began)
	op := semel.FromContext(r.Context())
	e.Operation, e.Attempt, e.Fence = op.ID(), op.Attempt, op.Fence
	if t.Flaw == effectApart {
		t.book(r.Context(), t.db, e) //nolint:errcheck // then there is no effect
	}
	err := t.store.Tx(r.Context(), func(ctx context.Context, tx *sql.Tx) error {
		if t.Flaw != effectApart {
			if err := t.book(ctx, tx, e); err != nil {
				return err
			}
		}
		t.traps.pass(InTransaction)
		switch {
		case p.Kind == refused:
			w.WriteHeader(http.StatusUnprocessableEntity)
			io.WriteString(w, refusal) //nolint:errcheck // it is buffered
			return errRefused
		case p.Kind == failing && rand.IntN(2) == 0:
			return errFailed
		}
		t.answer(w, e, p)
		return nil
	})
	if err == nil {
		t.traps.pass(AfterCommit)
		return
	}
	if !errors.Is(err, errRefused) {
		http.Error(w, err.Error(), http.StatusInternalServerError) // of no effect if the answer was given already
	}
}

// book writes the effect, in a transaction or without one.
func (*till) book(ctx context.Context, in interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, e effect,
) error {
	const insert = `INSERT INTO effects (id, key, request, operation, attempt, fence, began, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
	args := []any{e.ID, e.Key, e.Request, e.Operation, e.Attempt, int64(e.Fence), e.Began, e.At}
	if _, err := in.ExecContext(ctx, insert, args...); err != nil {
		return fmt.Errorf("book the effect: %w", err)
	}
	return nil
}

// readTable returns the committed effects, in the order of their writes.
func readTable(ctx context.Context, path string) (effects []effect, err error) {
	db, err := openDatabase(path)
	if err != nil {
		return nil, err
	}
	defer db.Close() //nolint:errcheck // it was only read
	rows, err := db.QueryContext(ctx, `SELECT id, key, request, operation, attempt, fence, began, at FROM effects ORDER BY rowid`)
	if err != nil {
		return nil, fmt.Errorf("read effects: %w", err)
	}
	defer rows.Close() //nolint:errcheck // they were only read
	for rows.Next() {
		var e effect
		var fence int64
		if err := rows.Scan(&e.ID, &e.Key, &e.Request, &e.Operation, &e.Attempt, &fence, &e.Began, &e.At); err != nil {
			return nil, fmt.Errorf("read effects: %w", err)
		}
		e.Fence = uint64(fence)
		effects = append(effects, e)
	}
	return effects, rows.Err()
}
