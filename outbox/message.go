// Package outbox sends messages exactly when the data that they tell of is committed. A message is added in the
// business transaction, to a table beside the data. A relay sends what is committed, at least once, under an id that
// stays the same, so that brokers and consumers recognise a repetition.
package outbox

import (
	"context"
	"time"
)

// Message is an event for the world outside of the database.
type Message struct {
	// ID is the message's identity for brokers and consumers, the same each time it is sent: 1 to 255 visible ASCII
	// characters. Defaults to a new UUIDv7.
	ID string
	// Topic says where the message goes: 1 to 255 bytes of UTF-8 without NUL.
	Topic string
	// Key names what the message is about, such as an order. Messages of one topic and key are first delivered in the
	// order in which they were committed, if their transactions lock what the key names. At most 255 bytes. Defaults to
	// no order.
	Key string
	// Tenant is whose message it is. Relays take turns between tenants, so that one with many messages does not make
	// others wait. At most 255 bytes. Defaults to none.
	Tenant  string
	Payload []byte
	Headers map[string]string
	// Delay is how long after Add the message may be sent at the earliest. Later messages of its topic and key wait for
	// it. Defaults to none.
	Delay time.Duration
}

// A Publisher hands messages to a broker. It is called concurrently.
type Publisher interface {
	// Publish returns once the broker has acknowledged or refused each message: the error at i is about batch[i], and a
	// nil slice means that all are acknowledged. No two messages of a batch have the same topic and key, unless the key
	// is empty. Message.ID is to be the broker's id for deduplication where it has one.
	Publish(ctx context.Context, batch []*Message) []error
}
