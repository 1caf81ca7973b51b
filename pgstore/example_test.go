package pgstore_test

import (
	"context"
	"log"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/pgstore"
)

func accountOf(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }

// The business works on a pool of its own; the store's verbs have another one, which it makes from that one's
// configuration.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://payments@localhost/payments")
	if err != nil {
		log.Fatal(err)
	}
	store, err := pgstore.Open(ctx, pool, pgstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	guard, err := semel.New(store, semel.ScopeFunc(accountOf), driver.Hold, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}

	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := store.Tx(r.Context(), func(ctx context.Context, tx pgx.Tx) error {
			op := semel.FromContext(ctx)
			if _, err := tx.Exec(ctx, "INSERT INTO payments (operation) VALUES ($1)", op.ID()); err != nil {
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

// The stock is changed once for each message, in one commit with the mark that the message is handled.
func ExampleInbox() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://stock@localhost/stock")
	if err != nil {
		log.Fatal(err)
	}
	store, err := pgstore.Open(ctx, pool, pgstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	guard, err := semel.New(store, semel.SingleTenant, driver.Hold, semel.Options{Policy: semel.Policy{OneCommit: true}})
	if err != nil {
		log.Fatal(err)
	}
	stock, err := consumer.New(guard, "stock", consumer.Options{})
	if err != nil {
		log.Fatal(err)
	}

	delivered := consumer.Message{ID: "m1", Payload: []byte("hat"), Deliveries: 1}
	result := pgstore.Inbox(ctx, stock, store, delivered, func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		_, err := tx.Exec(ctx, "UPDATE stock SET pieces = pieces - 1 WHERE item = $1", string(m.Payload))
		return err
	})
	log.Print(result.Outcome, result.Action)
}
