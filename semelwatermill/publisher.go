package semelwatermill

import (
	"context"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/semelhq/semel/outbox"
)

// KeyMetadata is the name under which a message's metadata carry outbox.Message.Key, if it has one. A broker that
// partitions by key finds it there.
const KeyMetadata = "semel_key"

// atOnce is how many messages a publisher is given at once.
const atOnce = 16

// NewPublisher returns the publisher of an outbox that sends through p: the id becomes the UUID, headers and key become
// metadata. p must publish synchronously, so that nil from it means that the broker has the message. Each message is a
// call of p, and at most 16 calls are under way for a batch.
func NewPublisher(p message.Publisher) outbox.Publisher {
	return outbox.Func(atOnce, func(ctx context.Context, m *outbox.Message) error {
		msg := message.NewMessage(m.ID, m.Payload)
		maps.Copy(msg.Metadata, m.Headers)
		if m.Key != "" {
			msg.Metadata.Set(KeyMetadata, m.Key)
		}
		msg.SetContext(ctx)
		return p.Publish(m.Topic, msg)
	})
}
