package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

// Check says what is wrong with Ship and Relay, or nil.
func Check(ctx context.Context, solution bool) (err error) {
	ship, relay := Ship, Relay
	if solution {
		ship, relay = solvedShip, solvedRelay
	}
	db, err := drill.Open(ctx, schema)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	down, heard := true, map[string]int{}
	publish := func(message string) error {
		if down {
			return errors.New("the broker is down")
		}
		heard[message]++
		return nil
	}
	ship(ctx, db, publish, "parcel-0") //nolint:errcheck // what counts is whether there is a shipment
	down = false
	for n := 1; n <= 5; n++ {
		db.Die(n - 1)
		if ship(ctx, db, publish, fmt.Sprintf("parcel-%d", n)) == nil {
			relay(ctx, db, publish) //nolint:errcheck // it runs again
		}
		db.Restart()
	}
	for range 2 {
		if err := relay(ctx, db, publish); err != nil {
			return fmt.Errorf("the relay failed though all is well: %w", err)
		}
	}
	for n := range 6 {
		parcel := fmt.Sprintf("parcel-%d", n)
		shipped, err := db.Number(ctx, "SELECT count(*) FROM shipments WHERE parcel = $1", parcel)
		if err != nil {
			return err
		}
		message := "shipped " + parcel
		switch {
		case shipped == 1 && heard[message] == 0 && n == 0:
			return fmt.Errorf("the broker was down when %s was shipped, and nobody has ever heard of it", parcel)
		case shipped == 1 && heard[message] == 0:
			return fmt.Errorf("the process died after statement %d of shipping %s, and nobody has ever heard of it", n-1, parcel)
		case shipped == 0 && heard[message] > 0:
			return fmt.Errorf("others have heard that %s was shipped, but it was not", parcel)
		}
	}
	if shipped, err := db.Number(ctx, "SELECT count(*) FROM shipments"); err != nil || shipped == 0 {
		return errors.Join(errors.New("nothing was shipped at all"), err)
	}
	return nil
}
