package redisstore

import (
	"context"
	"fmt"
)

// A Client sends commands to Redis: a server, what Sentinel says is the primary, or a Cluster. It is what any client
// library can do, in three lines. Methods are called concurrently.
type Client interface {
	// Do sends one command and returns its reply: a string or []byte, an int64, a []any of these, or nil for a null. An
	// error that Redis replied keeps the text of Redis, at its beginning or in the error that it wraps.
	//
	// The command goes to where the key is; an empty key means any node. All args are strings, with any bytes. A Client
	// may send a command again if the connection was lost: every command of this package can be repeated. It returns soon
	// after ctx ends.
	Do(ctx context.Context, key string, args ...any) (any, error)
}

// A TextClient is a [Client] that can also send a command of texts that replies a text. The store uses it for what it
// asks most: it spares both sides the boxing of [Client.Do]. Without it everything goes through Do.
type TextClient interface {
	Client
	// DoText sends one command, as Do does, and returns its reply: a string, or false for a null. Any other reply is an
	// error. The store does not change args afterwards.
	DoText(ctx context.Context, key string, args ...string) (text string, ok bool, err error)
}

// A boxing client is a [TextClient] of one that has only Do.
type boxing struct{ Client }

func (b boxing) DoText(ctx context.Context, key string, args ...string) (string, bool, error) {
	command := make([]any, len(args))
	for i, arg := range args {
		command[i] = arg
	}
	got, err := b.Do(ctx, key, command...)
	if err != nil || got == nil {
		return "", false, err
	}
	text, ok := textOf(got)
	if !ok {
		err = fmt.Errorf("%s replied a %T", args[0], got)
	}
	return text, ok, err
}

func textClient(c Client) TextClient {
	if t, ok := c.(TextClient); ok {
		return t
	}
	return boxing{c}
}

// doText sends a command unless ctx has ended.
func doText(ctx context.Context, c TextClient, key string, args ...string) (string, bool, error) {
	if err := ctx.Err(); err != nil {
		return "", false, err
	}
	return c.DoText(ctx, key, args...)
}

// A NodeVisitor is a [Client] that knows all nodes that have a part of the keys. For a single server it is not needed.
type NodeVisitor interface {
	// EachNode calls visit for each primary with a client of that node alone, at once or one after another. It returns the
	// first error, at which it ends.
	EachNode(ctx context.Context, visit func(ctx context.Context, node Client) error) error
}

// A Subscriber is a [Client] that can listen to a channel.
type Subscriber interface {
	// Subscribe calls received with each message on the channel, until ctx ends or it fails. It does not return nil.
	Subscribe(ctx context.Context, channel string, received func(message string)) error
}
