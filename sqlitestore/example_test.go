package sqlitestore_test

import (
	"context"
	"database/sql"
	"log"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/sqlitestore"
)

func accountOf(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }

// A driver is registered by an import such as _ "modernc.org/sqlite"; without one this example compiles, and does not
// run.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "payments.db")
	if err != nil {
		log.Fatal(err)
	}
	store, err := sqlitestore.Open(ctx, db, sqlitestore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	guard, err := semel.New(store, semel.ScopeFunc(accountOf), driver.Hold, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}

	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	})
	http.Handle("POST /payments", guard.Wrap(pay))
	http.Handle("POST /transfers", guard.Route(semel.Policy{OneCommit: true}).Wrap(pay))
}

func ExampleOpenOutbox() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "orders.db")
	if err != nil {
		log.Fatal(err)
	}
	store, err := sqlitestore.Open(ctx, db, sqlitestore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	box, err := sqlitestore.OpenOutbox(store, outbox.Options{Keep: 7 * 24 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	publish := outbox.Func(16, func(ctx context.Context, m *outbox.Message) error {
		return nil // send it, with m.ID as the id by which a broker or a consumer recognises a repetition
	})
	relay, err := outbox.NewRelay(box, publish, outbox.RelayOptions{})
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(relay.Run(ctx)) }()

	err = store.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", "order-7"); err != nil {
			return err
		}
		return box.Add(ctx, tx, outbox.Message{Topic: "orders", Key: "order-7", Payload: []byte(`{"order":"placed"}`)})
	})
	if err != nil {
		log.Fatal(err)
	}
}
