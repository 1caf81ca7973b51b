package saga_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/saga"
)

// An Order is what the saga is started with, and what its steps tell each other.
type Order struct {
	Total   int
	Address string
	Charge  string // as the bank calls it
}

// A bank stands for another service. It knows a repetition by the key.
type bank struct{}

func (bank) charge(ctx context.Context, total int) (string, error) {
	key, _ := saga.Key(ctx)
	fmt.Println("charged", total, "once for a key of", len(key), "characters")
	return "charge-1", nil
}

func (bank) refund(_ context.Context, charge string) error {
	fmt.Println("refunded", charge)
	return nil
}

var errNoAddress = errors.New("no such address")

func ship(_ context.Context, o *Order) error {
	if o.Address == "" {
		return semel.Final(errNoAddress) // nothing was sent, and asking again does not help
	}
	fmt.Println("shipped to", o.Address)
	return nil
}

func Example() {
	var b bank
	placeOrder, err := saga.Define("place-order",
		saga.Step[Order]{
			Name: "charge",
			Do: func(ctx context.Context, o *Order) (err error) {
				o.Charge, err = b.charge(ctx, o.Total)
				return err
			},
			Undo: func(ctx context.Context, o *Order) error {
				return b.refund(ctx, o.Charge)
			},
		},
		saga.Step[Order]{Name: "ship", Do: ship},
	)
	if err != nil {
		log.Fatal(err)
	}

	keys, err := keyring.New(keyring.Key{ID: "2026", Key: []byte("thirty-two bytes, kept elsewhere")})
	if err != nil {
		log.Fatal(err)
	}
	guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{
		Encryption: keys, DerivationSecret: []byte("never changes, 16 bytes or more"),
		Observer: event.Log(slog.New(slog.DiscardHandler), "example"),
	})
	if err != nil {
		log.Fatal(err)
	}

	runner, err := saga.New(guard, saga.Options{})
	if err != nil {
		log.Fatal(err)
	}
	orders, err := saga.Register(runner, placeOrder)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go runner.Run(ctx) //nolint:errcheck // it ends with ctx

	if _, err := orders.Start(ctx, "order-17", Order{Total: 4200}); err != nil {
		log.Fatal(err)
	}
	status, err := orders.Wait(ctx, "order-17")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.State, "because", status.Failure.Step, "failed:", status.Failure.Error)

	// Output:
	// charged 4200 once for a key of 36 characters
	// refunded charge-1
	// compensated because ship failed: no such address
}

// A version is registered beside the new one as long as sagas of it run.
func ExampleDefinition_WithVersion() {
	do := func(context.Context, *Order) error { return nil }
	first, err := saga.Define("place-order", saga.Step[Order]{Name: "charge", Do: do}, saga.Step[Order]{Name: "ship", Do: do})
	if err != nil {
		log.Fatal(err)
	}
	second, err := saga.Define("place-order", saga.Step[Order]{Name: "check", Do: do}, saga.Step[Order]{Name: "charge", Do: do}, saga.Step[Order]{Name: "ship", Do: do})
	if err != nil {
		log.Fatal(err)
	}
	second, err = second.WithVersion("2")
	if err != nil {
		log.Fatal(err)
	}
	keys, err := keyring.New(keyring.Key{ID: "2026", Key: []byte("thirty-two bytes, kept elsewhere")})
	if err != nil {
		log.Fatal(err)
	}
	guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{
		Encryption: keys, Observer: event.Log(slog.New(slog.DiscardHandler), "example"),
	})
	if err != nil {
		log.Fatal(err)
	}
	runner, err := saga.New(guard, saga.Options{})
	if err != nil {
		log.Fatal(err)
	}
	orders, err := saga.Register(runner, second, first)
	if err != nil {
		log.Fatal(err)
	}
	_, err = orders.Status(context.Background(), "order-17")
	fmt.Println(errors.Is(err, saga.ErrNotFound))
	// Output: true
}
