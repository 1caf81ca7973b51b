package batch_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/batch"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

func ExampleDo() {
	guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	type Payout struct {
		ID    string
		Cents int
	}
	ctx := context.Background()
	payouts := []Payout{{"p-1", 500}, {"p-2", 120}, {"p-1", 500}, {"p-2", 999}, {"p-3", -1}}
	pay := func(_ context.Context, p Payout) (string, error) {
		if p.Cents < 0 {
			return "", semel.Final(errors.New("nothing to pay"))
		}
		return "paid " + p.ID, nil
	}

	var items []batch.Item
	for _, p := range payouts {
		items = append(items, batch.Item{Key: semel.Key{Scope: "tenant-7", Operation: "pay out", Value: p.ID}, Request: semel.JSON(p)})
	}
	results := batch.Do(ctx, guard, items, batch.Options{Concurrency: 8}, func(ctx context.Context, i int) (string, error) {
		return pay(ctx, payouts[i])
	})
	for i, r := range results {
		switch {
		case errors.Is(r.Err, refusal.KeyReused):
			fmt.Println(payouts[i].ID, "stands for another payout")
		case r.Err != nil:
			fmt.Println(payouts[i].ID, "failed:", r.Err)
		default:
			fmt.Println(r.Value)
		}
	}
	// Output:
	// paid p-1
	// paid p-2
	// paid p-1
	// p-2 stands for another payout
	// p-3 failed: nothing to pay
}
