package pgstore_test

import (
	"context"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/pgstore"
)

func ExampleOpenOutbox() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://shop@localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	store, err := pgstore.Open(ctx, pool, pgstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	box, err := pgstore.OpenOutbox(ctx, store, pgstore.OutboxOptions{})
	if err != nil {
		log.Fatal(err)
	}

	relay, err := outbox.NewRelay(box, outbox.Func(64, publish), outbox.RelayOptions{})
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(relay.Run(ctx)) }()

	err = store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", "order-7"); err != nil {
			return err
		}
		return box.Add(ctx, tx, outbox.Message{Topic: "orders", Key: "order-7", Payload: []byte(`{"placed":"order-7"}`)})
	})
	if err != nil {
		log.Fatal(err)
	}
}

// publish sends one message, and returns when the broker has acknowledged it.
func publish(ctx context.Context, m *outbox.Message) error {
	return nil
}
