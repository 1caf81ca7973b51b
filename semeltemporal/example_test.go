package semeltemporal_test

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/semelhq/semel/saga"
	"github.com/semelhq/semel/semeltemporal"
)

type Order struct{ Total int }

// A worker that runs the sagas of a definition, and a start of one. It takes a Temporal server.
func Example() {
	if err := place(context.Background(), client.Options{}, nil, nil); err != nil {
		fmt.Println(err)
	}
}

func place(ctx context.Context, options client.Options, secret []byte, order *saga.Definition[Order]) error {
	temporal, err := client.Dial(options)
	if err != nil {
		return err
	}
	defer temporal.Close()
	w := worker.New(temporal, "orders", worker.Options{WorkerStopTimeout: 10 * time.Second})
	if err := semeltemporal.Register(w, secret, order); err != nil {
		return err
	}
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()

	orders, err := semeltemporal.New(temporal, "orders", order, semeltemporal.Options{})
	if err != nil {
		return err
	}
	if _, err := orders.Start(ctx, "order-17", Order{Total: 4200}); err != nil {
		return err
	}
	status, err := orders.Wait(ctx, "order-17")
	if err != nil {
		return err
	}
	fmt.Println(status.State, status.Failure)
	return nil
}
