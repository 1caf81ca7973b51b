package host

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"
)

// A redisClient is a [redisstore.Client].
type redisClient struct {
	client rueidis.Client
}

func openRedis(address string) (*redisClient, error) {
	o, err := rueidis.ParseURL(address)
	if err != nil {
		return nil, fmt.Errorf("open Redis: %w", err)
	}
	client, err := rueidis.NewClient(o)
	if err != nil {
		return nil, fmt.Errorf("open Redis: %w", err)
	}
	return &redisClient{client}, nil
}

// Do implements [redisstore.Client], for one server.
func (c *redisClient) Do(ctx context.Context, _ string, args ...any) (any, error) {
	texts := make([]string, len(args))
	for i, arg := range args {
		texts[i] = arg.(string)
	}
	v, err := c.client.Do(ctx, c.client.B().Arbitrary(texts...).Build()).ToAny()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	return v, err
}
