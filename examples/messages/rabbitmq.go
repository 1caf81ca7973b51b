package messages

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/outbox"
)

// openRabbit returns a channel of a new connection, with a durable queue.
func openRabbit(url, queue string) (*amqp.Channel, error) {
	c, err := amqp.Dial(url)
	if err != nil {
		return nil, fmt.Errorf("connect to RabbitMQ: %w", err)
	}
	ch, err := c.Channel()
	if err == nil {
		_, err = ch.QueueDeclare(queue, true, false, false, false, nil)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make queue %s: %w", queue, err), c.Close())
	}
	return ch, nil
}

// ToRabbitMQ sends an outbox's messages to a queue. It makes the queue first: RabbitMQ drops a message for which there
// is no queue, and confirms it.
func ToRabbitMQ(url, queue string) outbox.Publisher {
	var mu sync.Mutex
	var ch *amqp.Channel
	send := func(ctx context.Context, m *outbox.Message) (*amqp.DeferredConfirmation, error) {
		mu.Lock()
		defer mu.Unlock()
		if ch == nil || ch.IsClosed() {
			fresh, err := openRabbit(url, queue)
			if err == nil {
				err = fresh.Confirm(false)
			}
			if err != nil {
				return nil, err
			}
			ch = fresh
		}
		return ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, false, false, amqp.Publishing{
			MessageId: m.ID, DeliveryMode: amqp.Persistent, Body: m.Payload,
		})
	}
	return outbox.Func(64, func(ctx context.Context, m *outbox.Message) error {
		sent, err := send(ctx, m)
		if err != nil {
			return err
		}
		stored, err := sent.WaitContext(ctx)
		if err == nil && !stored {
			err = errors.New("RabbitMQ has not stored it")
		}
		return err
	})
}

// FromRabbitMQ handles the messages of a queue until ctx ends. RabbitMQ delivers at once what it is given back, so that
// a message that is to come later is kept for the delay first.
func FromRabbitMQ(ctx context.Context, url, queue string, handle Handler) error {
	for ctx.Err() == nil {
		ch, err := openRabbit(url, queue)
		if err == nil {
			err = receive(ctx, ch, queue, handle)
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond) // the server is away
		}
	}
	return ctx.Err()
}

func receive(ctx context.Context, ch *amqp.Channel, queue string, handle Handler) error {
	defer ch.Close() //nolint:errcheck // what it had is delivered again
	if err := ch.Qos(16, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.ConsumeWithContext(ctx, queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	defer all.Wait()
	for d := range deliveries {
		all.Go(func() {
			m := consumer.Message{ID: d.MessageId, Topic: queue, Payload: d.Body}
			if d.Redelivered {
				m.Deliveries = 2
			}
			r := handle(ctx, m)
			if r.Action != consumer.Nack {
				d.Ack(false) //nolint:errcheck // what RabbitMQ does not hear is another delivery
				return
			}
			select {
			case <-time.After(r.Delay):
			case <-ctx.Done():
			}
			d.Nack(false, true) //nolint:errcheck // the same
		})
	}
	return errors.New("the connection is gone")
}
