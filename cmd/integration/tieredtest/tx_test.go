package tieredtest

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/pgstore"
	"github.com/semelhq/semel/sqlitestore"
	"github.com/semelhq/semel/tieredstore"
)

// business is a database with a table of payments, in which handlers pay by the store's own transactions.
type business struct {
	durable
	pay   func(ctx context.Context, key string) error // one transaction, with the operation's answer
	count func(key string) int
}

func newBusiness(t *testing.T, name string, s durable, answer func(ctx context.Context)) *business {
	t.Helper()
	b := &business{durable: s}
	switch s := s.(type) {
	case *sqlitestore.Store:
		exec := func(ctx context.Context, query string, args ...any) error {
			return s.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, query, args...)
				answer(ctx)
				return err
			})
		}
		must(t, exec(t.Context(), "CREATE TABLE payments (key TEXT)"))
		b.pay = func(ctx context.Context, key string) error { return exec(ctx, "INSERT INTO payments VALUES (?)", key) }
		b.count = func(key string) (n int) {
			must(t, s.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
				return tx.QueryRowContext(ctx, "SELECT count(*) FROM payments WHERE key = ?", key).Scan(&n)
			}))
			return n
		}
	case *pgstore.Store:
		table := "payments_" + name
		_, err := sharedPool(t).Exec(t.Context(), "CREATE TABLE "+table+" (key text)")
		must(t, err)
		b.pay = func(ctx context.Context, key string) error {
			return s.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ($1)", key)
				answer(ctx)
				return err
			})
		}
		b.count = func(key string) (n int) {
			must(t, sharedPool(t).QueryRow(context.Background(), "SELECT count(*) FROM "+table+" WHERE key = $1", key).Scan(&n))
			return n
		}
	}
	return b
}

type writerKey struct{}

// Handlers work in transactions of the durable store; the guard, in front of the layers, sees that they have settled
// their operations, in both modes.
func TestR31_TransactionsOfTheDurableStoreSettleTheOperation(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		for _, oneCommit := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, one commit %t", k.name, oneCommit), func(t *testing.T) {
				t.Parallel()
				answer := func(ctx context.Context) {
					if w, ok := ctx.Value(writerKey{}).(http.ResponseWriter); ok {
						w.WriteHeader(http.StatusCreated)
						w.Write([]byte("paid"))
					}
				}
				b := newBusiness(t, fmt.Sprintf("%d", made.Add(1)), k.make(t)(), answer)
				d := &counted{durable: b.durable}
				g, err := semel.New(tieredstore.New(d, both.options(newCache(t))), semel.SingleTenant, semel.Hold, semel.Options{
					Policy: semel.Policy{OneCommit: oneCommit},
				})
				must(t, err)
				runs := 0
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs++
					ctx := context.WithValue(r.Context(), writerKey{}, w)
					if err := b.pay(ctx, r.Header.Get("Idempotency-Key")); err != nil {
						t.Errorf("pay: %v", err)
					}
				}))
				send := func(body string, want int) {
					t.Helper()
					r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
					r.Header.Set("Idempotency-Key", "k-1")
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					if w.Code != want || want == http.StatusCreated && w.Body.String() != "paid" {
						t.Errorf("%d %q, want %d", w.Code, w.Body, want)
					}
				}
				for range 3 {
					send("amount=5", http.StatusCreated)
				}
				asked := d.asked.Load()
				for range 3 {
					send("amount=5", http.StatusCreated)
					send("amount=6", http.StatusUnprocessableEntity)
				}
				if n := d.asked.Load() - asked; n != 0 && !oneCommit {
					t.Errorf("the durable store was asked %d times for repeats", n)
				}
				if n := b.count("k-1"); n != 1 || runs != 1 {
					t.Errorf("%d payments in %d runs, want one", n, runs)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				must(t, g.Drain(ctx))
			})
		}
	}
}
