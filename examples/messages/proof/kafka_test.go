package proof

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/outbox"
)

// startKafka starts a broker that speaks Kafka's protocol.
func startKafka(t *testing.T) (addr string, restart func()) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "orders"))
	must(t, err)
	t.Cleanup(c.Close)
	return c.ListenAddrs()[0], nil
}

type kafkaBroker struct {
	addr   string
	client *kgo.Client
}

func openKafka(addr string) (broker, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ProducerLinger(0))
	return &kafkaBroker{addr, client}, err
}

func (b *kafkaBroker) setUp(context.Context) error { return nil }

func (b *kafkaBroker) send(ctx context.Context, m *outbox.Message, _ bool) error {
	return b.client.ProduceSync(ctx, &kgo.Record{
		Topic: m.Topic, Key: []byte(m.Key), Value: m.Payload, Headers: []kgo.RecordHeader{{Key: "Message-Id", Value: []byte(m.ID)}},
	}).FirstErr()
}

func idOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == "Message-Id" {
			return string(h.Value)
		}
	}
	return ""
}

// consume goes through each partition in order. Kafka has no answer for a single message, so that one which is busy or
// has failed is asked for again until it is handled.
func (b *kafkaBroker) consume(ctx context.Context, name string, handle func(context.Context, consumer.Message) consumer.Result) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(b.addr), kgo.ConsumerGroup(name), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(),
		// A worker that is started again takes the place of the one that was killed, without a new distribution.
		kgo.InstanceID(os.Getenv(placeVar)), kgo.Balancers(kgo.RangeBalancer()),
		kgo.SessionTimeout(30*time.Second), kgo.HeartbeatInterval(500*time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil {
		fetched := client.PollRecords(ctx, 20)
		var done []*kgo.Record
		fetched.EachRecord(func(r *kgo.Record) {
			for ctx.Err() == nil {
				result := handle(ctx, consumer.Message{ID: idOf(r), Topic: r.Topic, Payload: r.Value})
				if result.Action != consumer.Nack {
					done = append(done, r)
					return
				}
				select {
				case <-time.After(min(result.Delay, 200*time.Millisecond)):
				case <-ctx.Done():
				}
			}
		})
		if err := client.CommitRecords(ctx, done...); err != nil && !errors.Is(err, context.Canceled) {
			continue // another member has the partition: the messages come there again
		}
	}
	return ctx.Err()
}

func (b *kafkaBroker) first(ctx context.Context) (*order, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	o := newOrder()
	for {
		wait, cancel := context.WithTimeout(ctx, 3*time.Second)
		fetched := client.PollRecords(wait, 1000)
		cancel()
		if fetched.NumRecords() == 0 {
			return o, ctx.Err()
		}
		fetched.EachRecord(func(r *kgo.Record) { o.add(string(r.Key), idOf(r), r.Value) })
	}
}
