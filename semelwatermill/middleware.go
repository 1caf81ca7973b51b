package semelwatermill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/semelhq/semel/consumer"
)

var (
	// ErrAcked means that a handler has acked or nacked its message by itself. The broker has not been told.
	ErrAcked = errors.New("the handler has acked or nacked the message by itself; that is for the middleware, after the message is recorded")
	// ErrProduced means that a handler has returned messages to publish. The router would publish them after this one is
	// recorded as handled, so that they would be lost if that fails.
	ErrProduced = errors.New("the handler has returned messages to publish; add them to an outbox, or publish them in the handler")
)

// A Handle handles one message once: [consumer.Consumer.Handle], or a function of yours that calls Inbox of a store's
// package.
type Handle func(ctx context.Context, m consumer.Message, fn func(context.Context, consumer.Message) error) consumer.Result

// Options are the settings of [Middleware]. The zero value of each field means the documented default.
type Options struct {
	// Hold is the longest that a message which is to come again is kept before it is nacked: a router can't pass on
	// consumer.Result.Delay to its broker. Negative means not at all, for a subscriber that delays nacked messages by
	// itself. Defaults to 5 s.
	Hold time.Duration
}

const defaultHold = 5 * time.Second

// Middleware handles each message of a router once, by its UUID. It is for consumers: a handler that returns messages to
// publish fails with [ErrProduced]. The UUID must be the producer's: a subscriber that makes a new one for each delivery
// makes each delivery a new message. Put it below middlewares that retry or time out, so that they see its errors.
//
// The handler gets a copy of the message, whose context is that of [consumer.Consumer.Handle]. Acks of the copy do not
// reach the broker; a handler that tries has failed with [ErrAcked]. The router acks a message that is done, a
// duplicate, or dead, and nacks the others.
func Middleware(handle Handle, o Options) message.HandlerMiddleware {
	if o.Hold == 0 {
		o.Hold = defaultHold
	}
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context()
			r := handle(ctx, Message(msg), func(ctx context.Context, _ consumer.Message) error {
				return run(ctx, msg, next)
			})
			if r.Action != consumer.Nack {
				return nil, nil
			}
			hold(ctx, min(r.Delay, o.Hold))
			return nil, fmt.Errorf("semelwatermill: %w", r.Err)
		}
	}
}

// Message returns what a consumer needs to know of a message: its UUID is the id, its metadata are the headers, and the
// topic is the one that the router's handler has subscribed to.
func Message(msg *message.Message) consumer.Message {
	return consumer.Message{
		ID: msg.UUID, Payload: msg.Payload, Headers: msg.Metadata, Topic: message.SubscribeTopicFromCtx(msg.Context()),
	}
}

// run calls a handler with a copy of the message.
func run(ctx context.Context, msg *message.Message, next message.HandlerFunc) error {
	own := msg.Copy()
	own.SetContext(ctx)
	produced, err := next(own)
	if len(produced) > 0 {
		err = errors.Join(ErrProduced, err)
	}
	select {
	case <-own.Acked():
		err = errors.Join(ErrAcked, err)
	case <-own.Nacked():
		err = errors.Join(ErrAcked, err)
	default:
	}
	return err
}

func hold(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
