package redistest

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/semelhq/semel/redisstore"
)

// A goRedis makes a client of go-redis, whatever it is connected to, one of package redisstore.
type goRedis struct {
	client redis.UniversalClient
}

// Do finds the key in the command by itself.
func (c goRedis) Do(ctx context.Context, _ string, args ...any) (any, error) {
	v, err := c.client.Do(ctx, args...).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return v, err
}

func (c goRedis) EachNode(ctx context.Context, visit func(ctx context.Context, node redisstore.Client) error) error {
	cluster, ok := c.client.(*redis.ClusterClient)
	if !ok {
		return visit(ctx, c)
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		return visit(ctx, goRedis{node})
	})
}

func (c goRedis) Subscribe(ctx context.Context, channel string, received func(message string)) error {
	sub := c.client.Subscribe(ctx, channel)
	defer sub.Close()
	messages := sub.Channel() // which subscribes again when the connection is lost
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				return errors.New("the subscription has ended")
			}
			received(m.Payload)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
