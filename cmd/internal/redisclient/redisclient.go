// Package redisclient makes rueidis the client of package redisstore: for one server, what Sentinel says is the
// primary, or a Cluster, with or without TLS.
package redisclient

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel/redisstore"
)

// A Client is a [redisstore.Client], [redisstore.NodeVisitor] and [redisstore.Subscriber].
type Client struct {
	client rueidis.Client
}

var (
	_ redisstore.Client      = (*Client)(nil)
	_ redisstore.NodeVisitor = (*Client)(nil)
	_ redisstore.Subscriber  = (*Client)(nil)
)

// New returns the client as package redisstore wants it.
func New(client rueidis.Client) *Client { return &Client{client} }

// Close closes the client's connections.
func (c *Client) Close() { c.client.Close() }

// Do implements [redisstore.Client].
func (c *Client) Do(ctx context.Context, key string, args ...any) (any, error) {
	texts := make([]string, len(args))
	at := len(args) // where the key is, which rueidis routes by
	for i, arg := range args {
		texts[i] = arg.(string)
		if i > 0 && key != "" && at == len(args) && texts[i] == key {
			at = i
		}
	}
	command := c.client.B().Arbitrary(texts[:at]...)
	if at < len(args) {
		command = command.Keys(key).Args(texts[at+1:]...)
	}
	v, err := c.client.Do(ctx, command.Build()).ToAny()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	return v, err
}

// EachNode implements [redisstore.NodeVisitor].
func (c *Client) EachNode(ctx context.Context, visit func(ctx context.Context, node redisstore.Client) error) error {
	if c.client.Mode() != rueidis.ClientModeCluster {
		return visit(ctx, c)
	}
	for addr, client := range c.client.Nodes() {
		node := New(client)
		role, err := node.Do(ctx, "", "ROLE")
		if err != nil {
			return fmt.Errorf("ask %s for its role: %w", addr, err)
		}
		if parts, _ := role.([]any); len(parts) == 0 || parts[0] != "master" {
			continue
		}
		if err := visit(ctx, node); err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
	}
	return nil
}

// Subscribe implements [redisstore.Subscriber].
func (c *Client) Subscribe(ctx context.Context, channel string, received func(message string)) error {
	err := c.client.Receive(ctx, c.client.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) {
		received(m.Message)
	})
	if err == nil {
		err = errors.New("the subscription has ended")
	}
	return err
}
