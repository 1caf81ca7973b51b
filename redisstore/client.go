package redisstore

import "context"

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
