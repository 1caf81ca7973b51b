package messages

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/outbox"
)

// ToRedis adds an outbox's messages to streams. Redis does not recognise a second send: the consumer does, by the id.
func ToRedis(client redis.UniversalClient) outbox.Publisher {
	return outbox.Func(64, func(ctx context.Context, m *outbox.Message) error {
		return client.XAdd(ctx, &redis.XAddArgs{Stream: m.Topic, Values: []any{"id", m.ID, "key", m.Key, "payload", m.Payload}}).Err()
	})
}

// FromRedis handles the messages of a stream's group until ctx ends. What is not acknowledged within idle is read
// again, by whatever member of the group comes first.
func FromRedis(ctx context.Context, client redis.UniversalClient, stream, group, member string, idle time.Duration, handle Handler) error {
	for ctx.Err() == nil {
		messages, _, err := client.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: stream, Group: group, Consumer: member, MinIdle: idle, Start: "0", Count: 16}).Result()
		if err == nil && len(messages) == 0 {
			var read []redis.XStream
			read, err = client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: group, Consumer: member, Streams: []string{stream, ">"}, Count: 16, Block: idle / 2}).Result()
			for _, s := range read {
				messages = append(messages, s.Messages...)
			}
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			time.Sleep(100 * time.Millisecond) // the server is away
			continue
		}
		for _, x := range messages {
			id, _ := x.Values["id"].(string)
			payload, _ := x.Values["payload"].(string)
			if handle(ctx, consumer.Message{ID: id, Topic: stream, Payload: []byte(payload)}).Action != consumer.Nack {
				client.XAck(ctx, stream, group, x.ID) //nolint:errcheck // what Redis does not hear is another delivery
			}
		}
	}
	return ctx.Err()
}
