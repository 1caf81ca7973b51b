// Package messages shows an outbox and a consumer on four brokers: NATS JetStream, Kafka, Redis Streams and RabbitMQ. Its
// tests restart the brokers, lose acknowledgements and fail handlers, and count effects.
package messages

import (
	"context"

	"github.com/semelhq/semel/consumer"
)

// A Handler handles one message, and says what its broker has to be told.
type Handler func(context.Context, consumer.Message) consumer.Result
