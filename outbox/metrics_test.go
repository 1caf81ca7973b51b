package outbox_test

import (
	"os"
	"time"

	"github.com/semelhq/semel/outbox"
)

func ExampleWriteMetrics() {
	counts := outbox.Counts{Sent: 1204, Failed: 7, Dead: 1, PutBack: 30, Pauses: 2, StoreErrors: 3}
	stats := outbox.Stats{Topics: map[string]outbox.TopicStats{
		"orders":             {Pending: 12, Dead: 1, Lag: 1500 * time.Millisecond},
		"a\\\"strange\nname": {Pending: 1},
	}}
	if err := outbox.WriteMetrics(os.Stdout, counts, stats); err != nil {
		panic(err)
	}
	// Output:
	// # HELP idempotency_outbox_sent_total Messages that this relay has sent.
	// # TYPE idempotency_outbox_sent_total counter
	// idempotency_outbox_sent_total 1204
	// # HELP idempotency_outbox_failed_total Attempts of this relay that failed and count.
	// # TYPE idempotency_outbox_failed_total counter
	// idempotency_outbox_failed_total 7
	// # HELP idempotency_outbox_dead_total Messages that this relay has given up.
	// # TYPE idempotency_outbox_dead_total counter
	// idempotency_outbox_dead_total 1
	// # HELP idempotency_outbox_put_back_total Messages that this relay has leased and put back.
	// # TYPE idempotency_outbox_put_back_total counter
	// idempotency_outbox_put_back_total 30
	// # HELP idempotency_outbox_pauses_total Pauses of a tenant's topic in which everything has failed.
	// # TYPE idempotency_outbox_pauses_total counter
	// idempotency_outbox_pauses_total 2
	// # HELP idempotency_outbox_store_error_total Calls of the store that have failed.
	// # TYPE idempotency_outbox_store_error_total counter
	// idempotency_outbox_store_error_total 3
	// # HELP idempotency_outbox_pending Messages to be sent.
	// # TYPE idempotency_outbox_pending gauge
	// idempotency_outbox_pending{topic="a\\\"strange\nname"} 1
	// idempotency_outbox_pending{topic="orders"} 12
	// # HELP idempotency_outbox_dead Dead letters.
	// # TYPE idempotency_outbox_dead gauge
	// idempotency_outbox_dead{topic="a\\\"strange\nname"} 0
	// idempotency_outbox_dead{topic="orders"} 1
	// # HELP idempotency_outbox_lag_seconds Since when the message could have been sent that waits longest; 0 if none waits.
	// # TYPE idempotency_outbox_lag_seconds gauge
	// idempotency_outbox_lag_seconds{topic="a\\\"strange\nname"} 0
	// idempotency_outbox_lag_seconds{topic="orders"} 1.5
}
