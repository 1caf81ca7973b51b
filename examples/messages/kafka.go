package messages

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/outbox"
)

const kafkaID = "message-id"

// ToKafka sends an outbox's messages. Those of one key go to one partition, in their order.
func ToKafka(client *kgo.Client) outbox.Publisher {
	return outbox.Func(64, func(ctx context.Context, m *outbox.Message) error {
		r := &kgo.Record{Topic: m.Topic, Key: []byte(m.Key), Value: m.Payload, Headers: []kgo.RecordHeader{{Key: kafkaID, Value: []byte(m.ID)}}}
		return client.ProduceSync(ctx, r).FirstErr()
	})
}

// FromKafka handles the messages of a group until ctx ends. Its client has kgo.DisableAutoCommit. Kafka has no answer for
// a single message: one that is to come again is handled again after the delay, and blocks its partition meanwhile.
func FromKafka(ctx context.Context, client *kgo.Client, handle Handler) error {
	for {
		fetched := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, r := range fetched.Records() {
			m := consumer.Message{ID: fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset), Payload: r.Value, Topic: r.Topic}
			for _, h := range r.Headers {
				if h.Key == kafkaID {
					m.ID = string(h.Value)
				}
			}
			for result := handle(ctx, m); result.Action == consumer.Nack; result = handle(ctx, m) {
				select {
				case <-time.After(result.Delay):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			client.CommitRecords(ctx, r) //nolint:errcheck // what Kafka does not hear is another delivery
		}
	}
}
