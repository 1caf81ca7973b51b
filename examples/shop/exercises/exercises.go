// Package exercises has a task for each pattern of docs/patterns.md: a small function that is wrong in the way that its pattern
// is about. A checker runs it against faults, and says what broke. In each folder exercise.go is what the reader changes,
// check.go the checker, and solution.go one that passes.
package exercises

import (
	"context"
	"fmt"
	"time"

	key "github.com/semelhq/semel/examples/shop/exercises/01_key"
	put "github.com/semelhq/semel/examples/shop/exercises/02_put"
	retry "github.com/semelhq/semel/examples/shop/exercises/03_retry"
	consumer "github.com/semelhq/semel/examples/shop/exercises/04_consumer"
	outbox "github.com/semelhq/semel/examples/shop/exercises/05_outbox"
	insertfirst "github.com/semelhq/semel/examples/shop/exercises/06_insertfirst"
	ttl "github.com/semelhq/semel/examples/shop/exercises/07_ttl"
	etag "github.com/semelhq/semel/examples/shop/exercises/08_etag"
	intent "github.com/semelhq/semel/examples/shop/exercises/09_intent"
	saga "github.com/semelhq/semel/examples/shop/exercises/10_saga"
	gateway "github.com/semelhq/semel/examples/shop/exercises/11_gateway"
	ledger "github.com/semelhq/semel/examples/shop/exercises/12_ledger"
	status "github.com/semelhq/semel/examples/shop/exercises/13_status"
	replay "github.com/semelhq/semel/examples/shop/exercises/14_replay"
	faults "github.com/semelhq/semel/examples/shop/exercises/15_faults"
	keys "github.com/semelhq/semel/examples/shop/exercises/16_keys"
	batch "github.com/semelhq/semel/examples/shop/exercises/17_batch"
)

// An Exercise is a task.
type Exercise struct {
	Pattern string // that it is about
	Folder  string // of its files, below that of this package
	Task    string
	// check says what is wrong with what the reader has written, or with the solution.
	check func(ctx context.Context, solution bool) error
}

// All are the exercises in learning order. The first has number 1.
var All = []Exercise{
	{"key and constraint", "01_key", "one order for each key, also if two requests come at the same moment", key.Check},
	{"PUT as an upsert", "02_put", "a PUT that succeeds as often as it comes", put.Check},
	{"safe retry", "03_retry", "a client that pays once, though answers are lost", retry.Check},
	{"consumer", "04_consumer", "a consumer that neither loses a message nor takes it twice", consumer.Check},
	{"outbox", "05_outbox", "others hear of each shipment, and of nothing else", outbox.Check},
	{"insert first", "06_insertfirst", "a bank without keys is asked once", insertfirst.Check},
	{"TTL", "07_ttl", "what may be forgotten, and when", ttl.Check},
	{"ETag", "08_etag", "two people change the same thing, and no text is lost", etag.Check},
	{"intent and confirmation", "09_intent", "a confirmation and an expiry at the same moment: one of them wins", intent.Check},
	{"saga", "10_saga", "take back what has happened, or may have happened", saga.Check},
	{"gateway", "11_gateway", "a service that charges whenever it is asked, behind a gateway", gateway.Check},
	{"ledger", "12_ledger", "a total that is always the sum of its entries", ledger.Check},
	{"status", "13_status", "what to tell a client that has lost its answer", status.Check},
	{"replay", "14_replay", "give the first answer again, and only what may be given", replay.Check},
	{"fault tests", "15_faults", "write a test that finds the faults", faults.Check},
	{"key safety", "16_keys", "what a key is made of", keys.Check},
	{"batch", "17_batch", "many items, some of them wrong, sent again", batch.Check},
}

// limit is how long a check may take. A loop without an end in an exercise ends there.
const limit = 30 * time.Second

// Check returns nil if what the reader has written passes, or else an error that says in plain words what broke. With
// solution it checks the solution instead.
func (e *Exercise) Check(ctx context.Context, solution bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer func() {
			if thrown := recover(); thrown != nil {
				ended <- fmt.Errorf("it panics: %v", thrown)
			}
		}()
		ended <- e.check(ctx, solution)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("it has not ended: %w", context.Cause(ctx))
	}
}
