package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/driver"
)

// A handler that ends the transaction by itself would commit its effects without the record. It can't: nothing is
// committed, it is told so, and so is who reads the log.
func TestR31_AHandlerCanNotEndTheTransaction(t *testing.T) {
	t.Parallel()
	exec := func(sql string, args ...any) func(context.Context, pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, sql, args...); return err }
	}
	endings := map[string]func(context.Context, pgx.Tx) error{
		"Commit":          func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"Rollback":        func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		"deferred":        func(ctx context.Context, tx pgx.Tx) error { defer tx.Rollback(ctx); return ErrEnded }, //nolint:errcheck // a habit
		"COMMIT":          exec("COMMIT"),
		"end transaction": exec(" -- so\n /* be */ end transaction"),
		"rollback":        exec("rollback"),
		"begin":           func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Query(ctx, "begin"); return err },
		"one of several":  exec("INSERT INTO nowhere VALUES (';'); COMMIT"),
		"in a row":        func(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, "abort").Scan() },
		"prepared":        func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Prepare(ctx, "c", "commit;"); return err },
		"in a batch": func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue("SELECT 1")
			b.Queue("commit")
			return tx.SendBatch(ctx, b).Close()
		},
		"a batch that begins": func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.BeginTx(pgx.TxOptions{})
			return tx.SendBatch(ctx, b).Close()
		},
		"in a savepoint": func(ctx context.Context, tx pgx.Tx) error {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			_, err = inner.Exec(ctx, "commit")
			return err
		},
	}
	eachMode(t, func(s *shop) {
		g, n := s.guard(driver.Hold), int64(0)
		for what, end := range endings {
			key := strings.ReplaceAll(what, " ", "-")
			ends := true
			h := g.Wrap(s.ordering(func(ctx context.Context, tx pgx.Tx) error {
				if ends {
					if err := end(ctx, tx); !errors.Is(err, ErrEnded) {
						s.t.Errorf("%s: %v, want ErrEnded", what, err)
					}
				}
				return nil
			}, func(err error) {
				if ends != errors.Is(err, ErrEnded) || ends != (err != nil) {
					s.t.Errorf("%s: Tx: %v", what, err)
				}
			}))
			if w := serveKey(h, key); w.Code != http.StatusServiceUnavailable || s.orders() != n {
				s.t.Errorf("%s: answered %d, with %d orders", what, w.Code, s.orders())
			}
			ends, n = false, n+1
			if w := serveKey(h, key); w.Code != 201 || s.orders() != n {
				s.t.Errorf("%s, the next try: answered %d, with %d orders", what, w.Code, s.orders())
			}
		}
		s.idle()
	})
}

// Past all checks, on the connection itself, a handler can commit. Then there is an effect without a record, and nobody
// says that nothing has happened.
func TestR31_ACommitBehindTheStoresBackIsNoticed(t *testing.T) {
	t.Parallel()
	s := newShop(t, modes[0], server.URL(), Options{})
	h := s.guard(driver.Hold).Wrap(s.ordering(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Conn().Exec(ctx, "COMMIT")
		return err
	}, func(err error) {
		if !errors.Is(err, ErrEnded) {
			t.Errorf("Tx: %v, want ErrEnded", err)
		}
	}))
	for range 2 {
		if w := serveKey(h, "k"); w.Code != http.StatusConflict {
			t.Errorf("answered %d %s, want that the outcome is unknown", w.Code, w.Body)
		}
	}
	if n := s.orders(); n != 1 {
		t.Errorf("%d orders", n)
	}
	s.idle()
}

// What a function gets is a pgx.Tx like any other.
func TestTheTransactionIsLikeAnyOther(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		var kept pgx.Tx
		h := s.guard(driver.Hold).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := s.tx(r.Context(), func(ctx context.Context, tx pgx.Tx) error {
				kept = tx
				s.useAll(ctx, tx)
				w.WriteHeader(http.StatusCreated)
				return nil
			})
			if err != nil {
				s.t.Error(err)
			}
		}))
		if w := serveKey(h, "k"); w.Code != 201 || s.orders() != 6 {
			s.t.Errorf("answered %d, with %d orders, want 6", w.Code, s.orders())
		}
		if _, err := kept.Exec(s.t.Context(), "SELECT 1"); !errors.Is(err, pgx.ErrTxClosed) {
			s.t.Errorf("a statement after the end: %v, want ErrTxClosed", err)
		}
		if err := kept.Rollback(s.t.Context()); !errors.Is(err, pgx.ErrTxClosed) {
			s.t.Errorf("a rollback after the end: %v, want ErrTxClosed", err)
		}
		s.idle()
	})
}

// useAll makes six orders by all the ways that a pgx.Tx has, and undoes others.
func (s *shop) useAll(ctx context.Context, tx pgx.Tx) {
	fails := func(what string, err error) {
		s.t.Helper()
		if err != nil {
			s.t.Errorf("%s: %v", what, err)
		}
	}
	insert := s.sql("INSERT INTO {schema}.orders (item) VALUES ($1)")
	fails("Exec", s.order(ctx, tx, "1"))
	b := &pgx.Batch{}
	b.Queue(insert, "2")
	b.Queue(insert, "3")
	fails("SendBatch", tx.SendBatch(ctx, b).Close())
	n, err := tx.CopyFrom(ctx, pgx.Identifier{s.store.schema, "orders"}, []string{"item"}, pgx.CopyFromRows([][]any{{"4"}, {"5"}}))
	fails("CopyFrom", err)
	if n != 2 {
		s.t.Errorf("%d rows copied", n)
	}
	inner, err := tx.Begin(ctx)
	fails("Begin", err)
	fails("Exec in a savepoint", s.order(ctx, inner, "undone"))
	innermost, err := inner.Begin(ctx)
	fails("Begin in a savepoint", err)
	fails("Exec in a savepoint in a savepoint", s.order(ctx, innermost, "undone too"))
	fails("Commit of a savepoint", innermost.Commit(ctx))
	fails("Rollback of a savepoint", inner.Rollback(ctx))
	fails("BeginFunc", pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return s.order(ctx, tx, "6") }))
	for _, sql := range []string{"SAVEPOINT mine", "SELECT 1; SELECT 2", "ROLLBACK TO mine", "RELEASE mine"} {
		_, err := tx.Exec(ctx, sql)
		fails(sql, err)
	}
	rows, err := tx.Query(ctx, s.sql("SELECT item FROM {schema}.orders ORDER BY id"))
	fails("Query", err)
	items, err := pgx.CollectRows(rows, pgx.RowTo[string])
	fails("CollectRows", err)
	if len(items) != 6 {
		s.t.Errorf("items %q", items)
	}
	if !s.pooled {
		_, err = tx.Prepare(ctx, "count_orders", s.sql("SELECT count(*) FROM {schema}.orders"))
		fails("Prepare", err)
		fails("QueryRow of a prepared statement", tx.QueryRow(ctx, "count_orders").Scan(&n))
	}
	objects := tx.LargeObjects()
	oid, err := objects.Create(ctx, 0)
	fails("Create", err)
	object, err := objects.Open(ctx, oid, pgx.LargeObjectModeRead|pgx.LargeObjectModeWrite)
	fails("Open", err)
	if err != nil {
		return
	}
	_, err = object.Write([]byte("large"))
	fails("Write", err)
	_, err = object.Seek(0, io.SeekStart)
	fails("Seek", err)
	got := make([]byte, 5)
	_, err = io.ReadFull(object, got)
	fails("Read", err)
	if string(got) != "large" {
		s.t.Errorf("read %q", got)
	}
}

// A function that leaves something open can't commit, and is told so.
func TestAFunctionThatLeavesRowsOpenIsRolledBack(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		leaves := true
		h := s.guard(driver.Hold).Wrap(s.ordering(func(ctx context.Context, tx pgx.Tx) error {
			if leaves {
				_, err := tx.Query(ctx, "SELECT generate_series(1, 1000)")
				return err
			}
			return nil
		}, func(err error) {
			if leaves != errors.Is(err, driver.ErrRolledBack) {
				s.t.Errorf("Tx: %v", err)
			}
		}))
		if w := serveKey(h, "k"); w.Code != http.StatusServiceUnavailable || s.orders() != 0 {
			s.t.Errorf("answered %d, with %d orders", w.Code, s.orders())
		}
		leaves = false
		untilAnswered(s.t, h, "k") // once the server has noticed that the connection is gone
		if s.orders() != 1 {
			s.t.Errorf("the next try: %d orders", s.orders())
		}
		s.idle()
	})
}

// A function that drops all prepared statements drops those of the store. That fails once, not for ever.
func TestAFunctionThatDropsPreparedStatements(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		if s.pooled {
			return // none are kept
		}
		g := s.guard(driver.Hold)
		drops := true
		h := g.Wrap(s.ordering(func(ctx context.Context, tx pgx.Tx) error {
			if !drops {
				return nil
			}
			_, err := tx.Exec(ctx, "DEALLOCATE ALL")
			return err
		}, nil))
		if w := serveKey(h, "k"); w.Code != http.StatusServiceUnavailable || s.orders() != 0 {
			s.t.Errorf("answered %d, with %d orders", w.Code, s.orders())
		}
		drops = false
		for i := range int64(8) { // on each of the pool's connections
			if w := serveKey(h, fmt.Sprint("k", i)); w.Code != 201 || s.orders() != i+1 {
				s.t.Errorf("the next try: answered %d, with %d orders", w.Code, s.orders())
			}
		}
		s.idle()
	})
}

// An error that the function swallows has ended the transaction all the same.
func TestAFunctionThatSwallowsAnErrorIsRolledBack(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		h := s.guard(driver.Hold).Wrap(s.ordering(func(ctx context.Context, tx pgx.Tx) error {
			tx.Exec(ctx, "SELECT 1/0") //nolint:errcheck // that is the mistake
			return nil
		}, func(err error) {
			if !errors.Is(err, driver.ErrRolledBack) {
				s.t.Errorf("Tx: %v, want ErrRolledBack", err)
			}
		}))
		if w := serveKey(h, "k"); w.Code != http.StatusServiceUnavailable || s.orders() != 0 {
			s.t.Errorf("answered %d, with %d orders", w.Code, s.orders())
		}
		s.idle()
	})
}
