package sqlitetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/sqlitestore"
)

var serveKey = verbs.Order

// A shop has orders in the store's database.
type shop struct {
	t     *testing.T
	store *sqlitestore.Store
	db    *sql.DB
	mode  string
}

// eachMode runs a test with a lease and in one-commit mode.
func eachMode(t *testing.T, test func(*shop)) {
	t.Helper()
	for _, mode := range []string{"leased", "one-commit"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			test(newShop(t, mode, ""))
		})
	}
}

func newShop(t *testing.T, mode, params string) *shop {
	t.Helper()
	db := openDB(t, newFile(t), params)
	s, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	execSQL(t, db, "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT UNIQUE NOT NULL)")
	return &shop{t, s, db, mode}
}

func (s *shop) guard(onLost semel.LostPolicy) *semel.Guard {
	s.t.Helper()
	g, err := semel.New(s.store, semel.SingleTenant, onLost, semel.Options{Policy: semel.Policy{OneCommit: s.mode == "one-commit"}})
	if err != nil {
		s.t.Fatal(err)
	}
	return g
}

func (s *shop) orders() (n int) {
	s.t.Helper()
	if err := s.db.QueryRow("SELECT count(*) FROM orders").Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func order(ctx context.Context, tx *sql.Tx, item string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO orders (item) VALUES (?)", item)
	return err
}

func TestR31_EffectAndAnswerCommitTogether(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		runs := 0
		h := s.guard(semel.Hold).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			err := s.store.Tx(r.Context(), func(ctx context.Context, tx *sql.Tx) error {
				if err := order(ctx, tx, "hat"); err != nil {
					return err
				}
				if n := s.orders(); n != 0 {
					s.t.Errorf("%d orders show before the commit", n)
				}
				w.WriteHeader(http.StatusCreated)
				io.WriteString(w, `{"order":1}`)
				return nil
			})
			if err != nil {
				s.t.Error(err)
			}
			if n := s.orders(); n != 1 {
				s.t.Errorf("%d orders show after the commit", n)
			}
			if _, err := io.WriteString(w, "late"); !errors.Is(err, semel.ErrSettled) {
				s.t.Errorf("writing after the commit: %v, want ErrSettled", err)
			}
		}))
		for i := range 3 {
			w := serveKey(h, "k")
			if w.Code != 201 || w.Body.String() != `{"order":1}` || (w.Header().Get("Idempotent-Replayed") == "true") != (i > 0) {
				s.t.Errorf("request %d: %d %q %v", i, w.Code, w.Body, w.Header())
			}
		}
		if runs != 1 || s.orders() != 1 {
			s.t.Errorf("%d runs, %d orders", runs, s.orders())
		}
	})
}

// A function that fails with an answer to keep is undone, and its answer is kept; without one all is, and the key is
// free.
func TestR31_AFunctionThatFailsIsUndone(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		runs := 0
		declined := errors.New("declined")
		h := s.guard(semel.Hold).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			err := s.store.Tx(r.Context(), func(ctx context.Context, tx *sql.Tx) error {
				if err := order(ctx, tx, "hat"); err != nil {
					return err
				}
				if runs > 1 {
					w.WriteHeader(http.StatusPaymentRequired)
				}
				return declined
			})
			if !errors.Is(err, declined) {
				s.t.Errorf("Tx: %v", err)
			}
			if runs == 1 {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))
		for i, want := range []int{500, 402, 402} {
			if w := serveKey(h, "k"); w.Code != want {
				s.t.Errorf("request %d: %d, want %d", i, w.Code, want)
			}
		}
		if runs != 2 || s.orders() != 0 {
			s.t.Errorf("%d runs, %d orders; want 2 and none", runs, s.orders())
		}
	})
}

// A handler that ends the transaction by itself would commit its effects without the record. It can't: nothing is
// committed, it is told so, and so is who reads the log.
func TestR31_AHandlerCanNotEndTheTransaction(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*sql.Tx) error{
		"Commit":           (*sql.Tx).Commit,
		"Rollback":         (*sql.Tx).Rollback,
		"deferred":         func(tx *sql.Tx) error { defer tx.Rollback(); return sqlitestore.ErrEnded }, //nolint:errcheck // a habit
		"COMMIT":           func(tx *sql.Tx) error { _, err := tx.Exec("COMMIT"); return err },
		"end transaction":  func(tx *sql.Tx) error { _, err := tx.Exec(" -- so\n /* be */ end transaction"); return err },
		"rollback as text": func(tx *sql.Tx) error { _, err := tx.Exec("rollback"); return err },
		"begin":            func(tx *sql.Tx) error { _, err := tx.Query("begin"); return err },
		"prepared":         func(tx *sql.Tx) error { _, err := tx.Prepare("commit;"); return err },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(s *shop) {
				ends := true
				h := s.guard(semel.Hold).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					err := s.store.Tx(r.Context(), func(ctx context.Context, tx *sql.Tx) error {
						err := order(ctx, tx, "hat")
						if ends {
							if err := end(tx); !errors.Is(err, sqlitestore.ErrEnded) {
								s.t.Errorf("ending the transaction: %v, want ErrEnded", err)
							}
						}
						w.WriteHeader(http.StatusCreated)
						return err
					})
					if ends != errors.Is(err, sqlitestore.ErrEnded) || ends != (err != nil) {
						s.t.Errorf("Tx: %v", err)
					}
				}))
				if w := serveKey(h, "k"); w.Code != http.StatusServiceUnavailable || s.orders() != 0 {
					s.t.Errorf("answered %d, with %d orders", w.Code, s.orders())
				}
				ends = false
				if w := serveKey(h, "k"); w.Code != 201 || s.orders() != 1 {
					s.t.Errorf("the next try: answered %d, with %d orders", w.Code, s.orders())
				}
			})
		})
	}
}

// An error can make the database roll a transaction back by itself. What the handler does then would commit at once.
func TestR31_ATransactionThatTheDatabaseEndedTakesNothingMore(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		execSQL(s.t, s.db, "INSERT INTO orders (item) VALUES ('coat')")
		h := s.guard(semel.Hold).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := s.store.Tx(r.Context(), func(ctx context.Context, tx *sql.Tx) error {
				if err := order(ctx, tx, "hat"); err != nil {
					return err
				}
				if _, err := tx.ExecContext(ctx, "INSERT OR ROLLBACK INTO orders (item) VALUES ('coat')"); err == nil {
					s.t.Error("two coats were ordered")
				}
				if err := order(ctx, tx, "scarf"); err == nil {
					s.t.Error("a statement was executed after the transaction had ended")
				}
				w.WriteHeader(http.StatusCreated)
				return nil // the handler has noticed nothing
			})
			if err == nil {
				s.t.Error("Tx: no error")
			}
		}))
		if w := serveKey(h, "k"); w.Code != http.StatusServiceUnavailable || s.orders() != 1 {
			s.t.Errorf("answered %d, with %d orders; want 503 and the coat", w.Code, s.orders())
		}
		// The store goes on.
		claim(s.t, s.store, newID(), ask(semel.Hold))
	})
}

// A commit that fails leaves nothing, and it is certain that it does.
func TestCase09_ACommitThatFailsIsRolledBack(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"leased", "one-commit"} {
		s := newShop(t, mode, "_pragma=foreign_keys(1)")
		execSQL(t, s.db, "CREATE TABLE lines (item TEXT REFERENCES orders (item) DEFERRABLE INITIALLY DEFERRED)")
		broken := true
		h := s.guard(semel.Hold).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := s.store.Tx(r.Context(), func(ctx context.Context, tx *sql.Tx) error {
				err := order(ctx, tx, "hat")
				if broken {
					_, failed := tx.ExecContext(ctx, "INSERT INTO lines VALUES ('scarf')")
					err = errors.Join(err, failed)
				}
				w.WriteHeader(http.StatusCreated)
				return err
			})
			if broken != errors.Is(err, driver.ErrRolledBack) {
				t.Errorf("Tx: %v", err)
			}
		}))
		if w := serveKey(h, "k"); w.Code != http.StatusServiceUnavailable || s.orders() != 0 {
			t.Errorf("%s: answered %d, with %d orders", mode, w.Code, s.orders())
		}
		broken = false
		if w := serveKey(h, "k"); w.Code != 201 || s.orders() != 1 {
			t.Errorf("%s, the next try: answered %d, with %d orders", mode, w.Code, s.orders())
		}
	}
}

// Transactions that wait for each other hold no connection, so that the one that works can use others.
func TestTransactionsDoNotStarveEachOther(t *testing.T) {
	t.Parallel()
	db := openDB(t, newFile(t), "")
	db.SetMaxOpenConns(4)
	s, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	execSQL(t, db, "CREATE TABLE orders (item TEXT)")
	db.SetMaxOpenConns(db.Stats().InUse + 2)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			err := s.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				var n int
				if err := db.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&n); err != nil {
					return err
				}
				return order(ctx, tx, "hat")
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var n int
	if err := db.QueryRow("SELECT count(*) FROM orders").Scan(&n); err != nil || n != 20 {
		t.Errorf("%d orders, %v", n, err)
	}
}

// A function that panics, or whose context ends, leaves nothing, and the store goes on.
func TestR32_AFunctionThatDoesNotReturnLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t, "leased", "")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		s.store.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { //nolint:errcheck // it panics
			if err := order(ctx, tx, "hat"); err != nil {
				t.Error(err)
			}
			panic("handler")
		})
	}()
	ctx, cancel := context.WithCancel(t.Context())
	err := s.store.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := order(ctx, tx, "coat"); err != nil {
			return err
		}
		cancel()
		return order(ctx, tx, "scarf")
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Tx whose context ended: %v", err)
	}
	if n := s.orders(); n != 0 {
		t.Errorf("%d orders", n)
	}
	claim(t, s.store, newID(), ask(semel.Hold))
}

// What a function gets is a *sql.Tx like any other.
func TestTheTransactionIsLikeAnyOther(t *testing.T) {
	t.Parallel()
	s := newShop(t, "leased", "")
	err := s.store.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		st, err := tx.PrepareContext(ctx, "INSERT INTO orders (id, item) VALUES (?, ?) RETURNING id, item")
		if err != nil {
			return err
		}
		defer st.Close()
		for i := range 3 {
			var id int
			var item string
			if err := st.QueryRowContext(ctx, i, fmt.Sprint("item ", i)).Scan(&id, &item); err != nil || id != i {
				return fmt.Errorf("order %d: %d, %w", i, id, err)
			}
		}
		r, err := tx.ExecContext(ctx, "UPDATE orders SET item = upper(item) WHERE id > ?", sql.Named("least", 0).Value)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); n != 2 || err != nil {
			t.Errorf("%d rows affected, %v", n, err)
		}
		rows, err := tx.QueryContext(ctx, "SELECT id, item FROM orders ORDER BY id")
		if err != nil {
			return err
		}
		types, err := rows.ColumnTypes()
		if err != nil || types[0].DatabaseTypeName() != "INTEGER" || types[1].Name() != "item" {
			t.Errorf("columns %v, %v", types, err)
		}
		var items []string
		for rows.Next() {
			var id int
			var item string
			if err := rows.Scan(&id, &item); err != nil {
				return err
			}
			items = append(items, item)
		}
		if got := strings.Join(items, ","); got != "item 0,ITEM 1,ITEM 2" || rows.Err() != nil {
			t.Errorf("items %s, %v", got, rows.Err())
		}
		for _, q := range []string{"SAVEPOINT mine", "INSERT INTO orders (item) VALUES ('gone')", "ROLLBACK TO mine", "RELEASE mine"} {
			if _, err := tx.ExecContext(ctx, q); err != nil {
				t.Errorf("%s: %v", q, err)
			}
		}
		left, err := tx.QueryContext(ctx, "SELECT id FROM orders") // not closed
		if err != nil || !left.Next() {
			t.Errorf("a query: %v", err)
		}
		return nil
	})
	if err != nil || s.orders() != 3 {
		t.Errorf("%v, %d orders", err, s.orders())
	}
	claim(t, s.store, newID(), ask(semel.Hold))
}

func TestField10_DoAnswersWithWhatItCommitted(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		g := s.guard(semel.Hold)
		for i := range 3 {
			var report semel.Report
			id, err := sqlitestore.Do(semel.WithReport(s.t.Context(), &report), g, s.store, semel.Key{Scope: "s", Operation: "pay", Value: "k"}, semel.Bytes("hat"), func(ctx context.Context, tx *sql.Tx) (int64, error) {
				r, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES (42, 'hat')")
				if err != nil {
					return 0, err
				}
				return r.LastInsertId()
			})
			if id != 42 || err != nil || s.orders() != 1 || report.Replayed != (i > 0) || report.Attempt != 1 || report.Expires.IsZero() {
				s.t.Errorf("%d, %v, %d orders, %+v", id, err, s.orders(), report)
			}
		}
		refused := errors.New("sold out")
		for range 2 {
			_, err := sqlitestore.Do(s.t.Context(), g, s.store, semel.Key{Scope: "s", Operation: "pay", Value: "k2"}, semel.Bytes("coat"), func(ctx context.Context, tx *sql.Tx) (int64, error) {
				if err := order(ctx, tx, "coat"); err != nil {
					return 0, err
				}
				return 0, semel.Final(refused)
			})
			if err == nil || !strings.Contains(err.Error(), "sold out") || s.orders() != 1 {
				s.t.Errorf("%v, %d orders", err, s.orders())
			}
		}
	})
}

// A transaction that can't begin in time gives back what it has taken, and nobody waits for it.
func TestATransactionThatCanNotBeginLeavesNothing(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s, db := openStore(t, path, sqlitestore.Options{})
	before := db.Stats().InUse
	release := lock(t, path)
	defer release()
	fails := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := s.Begin(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: Begin: %v", what, err)
		}
		if got := db.Stats().InUse; got != before {
			t.Errorf("%s: %d connections are in use, want %d", what, got, before)
		}
	}
	fails("another process has the lock")
	release()
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before++
	fails("another transaction is under way")
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	tx.Rollback()
	if err := tx.Commit(t.Context()); err == nil || errors.Is(err, driver.ErrRolledBack) {
		t.Errorf("a second Commit: %v", err)
	}
	before--
	// Verbs wait for nothing while the application keeps all its connections.
	db.SetMaxOpenConns(before + 1)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before++
	fails("no connection is left")
	waiting := make(chan error, 1)
	go func() {
		tx, err := s.Begin(t.Context())
		if err == nil {
			err = tx.Commit(t.Context())
		}
		waiting <- err
	}()
	claim(t, s, newID(), ask(semel.Hold))
	conn.Close()
	if err := <-waiting; err != nil {
		t.Error(err)
	}
}

// The handler of README.md, asked with a key and without one: a transaction each, and a row of its own.
func TestField11_ReadmeTransactionWithAndWithoutAKey(t *testing.T) {
	t.Parallel()
	db := openDB(t, newFile(t), "")
	store, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	execSQL(t, db, "CREATE TABLE payments (operation TEXT UNIQUE NOT NULL)")
	guard, err := semel.New(store, semel.SingleTenant, semel.Hold, semel.Options{Policy: semel.Policy{KeyOptional: true}})
	if err != nil {
		t.Fatal(err)
	}
	h := guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := store.Tx(r.Context(), func(ctx context.Context, tx *sql.Tx) error {
			op := semel.FromContext(ctx)
			if _, err := tx.ExecContext(ctx, "INSERT INTO payments (operation) VALUES (?)", op.ID()); err != nil {
				return err
			}
			w.WriteHeader(http.StatusCreated)
			return nil
		})
		if err != nil {
			http.Error(w, "the payment was not made", http.StatusInternalServerError)
		}
	}))
	for _, key := range []string{"k", "k", "", ""} {
		r := httptest.NewRequest(http.MethodPost, "/payments", nil)
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusCreated {
			t.Errorf("key %q: %d %s", key, w.Code, w.Body)
		}
	}
	var n int
	if err := db.QueryRow("SELECT count(*) FROM payments").Scan(&n); err != nil || n != 3 {
		t.Errorf("%d payments, %v; want one with the key, and two without", n, err)
	}
}
