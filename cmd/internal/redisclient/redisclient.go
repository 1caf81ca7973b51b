// Package redisclient makes rueidis the client of package redisstore: for one server, what Sentinel says is the
// primary, or a Cluster, with or without TLS.
package redisclient

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel/redisstore"
)

// A Client is a [redisstore.TextClient], [redisstore.NodeVisitor] and [redisstore.Subscriber].
type Client struct {
	client rueidis.Client
}

var (
	_ redisstore.TextClient  = (*Client)(nil)
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
	for i, arg := range args {
		texts[i] = arg.(string)
	}
	v, err := c.client.Do(ctx, c.command(key, texts)).ToAny()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	return v, err
}

// DoText implements [redisstore.TextClient].
func (c *Client) DoText(ctx context.Context, key string, args ...string) (text string, ok bool, err error) {
	text, err = c.client.Do(ctx, c.command(key, args)).ToString()
	if rueidis.IsRedisNil(err) {
		return "", false, nil
	}
	return text, err == nil, err
}

// command shows rueidis where the key is, by which it routes.
func (c *Client) command(key string, args []string) rueidis.Completed {
	at := len(args)
	if i := slices.Index(args, key); key != "" && i > 0 {
		at = i
	}
	command := c.client.B().Arbitrary(args[:at]...)
	if at < len(args) {
		command = command.Keys(key).Args(args[at+1:]...)
	}
	return command.Build()
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
