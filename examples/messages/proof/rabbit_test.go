package proof

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

type rabbitBroker struct {
	url string

	mu      sync.Mutex
	channel *amqp.Channel
}

func openRabbit(url string) (broker, error) { return &rabbitBroker{url: url}, nil }

// open returns a new channel of a new connection.
func (b *rabbitBroker) open() (*amqp.Channel, error) {
	c, err := amqp.Dial(b.url)
	if err != nil {
		return nil, err
	}
	return c.Channel()
}

// log is the queue that keeps everything in the order in which it came.
const log = "log"

func (b *rabbitBroker) setUp(context.Context) error {
	ch, err := b.open()
	if err != nil {
		return err
	}
	if err := ch.ExchangeDeclare("orders", "fanout", true, false, false, false, nil); err != nil {
		return err
	}
	for _, name := range append([]string{log}, consumers...) {
		if _, err := ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
			return err
		}
		if err := ch.QueueBind(name, "", "orders", false, nil); err != nil {
			return err
		}
	}
	return ch.Close()
}

func (b *rabbitBroker) sender() (*amqp.Channel, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.channel != nil && !b.channel.IsClosed() {
		return b.channel, nil
	}
	ch, err := b.open()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err == nil {
		b.channel = ch
	}
	return ch, err
}

func (b *rabbitBroker) send(ctx context.Context, m *outbox.Message, _ bool) error {
	ch, err := b.sender()
	if err != nil {
		return err
	}
	told, err := ch.PublishWithDeferredConfirmWithContext(ctx, m.Topic, "", false, false, amqp.Publishing{
		MessageId: m.ID, CorrelationId: m.Key, Body: m.Payload, DeliveryMode: amqp.Persistent,
	})
	if err != nil {
		return err
	}
	switch acked, err := told.WaitContext(ctx); {
	case err != nil:
		return err
	case !acked:
		return errors.New("the broker has refused it")
	}
	return nil
}

func (b *rabbitBroker) consume(ctx context.Context, name string, handle func(context.Context, consumer.Message) consumer.Result) error {
	for ctx.Err() == nil {
		if err := b.session(ctx, name, handle); err != nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
	return ctx.Err()
}

func (b *rabbitBroker) session(ctx context.Context, name string, handle func(context.Context, consumer.Message) consumer.Result) error {
	ch, err := b.open()
	if err != nil {
		return err
	}
	defer ch.Close() //nolint:errcheck // what it had comes again
	if err := ch.Qos(16, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.ConsumeWithContext(ctx, name, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	defer all.Wait()
	for d := range deliveries {
		all.Go(func() {
			m := consumer.Message{ID: d.MessageId, Payload: d.Body}
			if d.Redelivered {
				m.Deliveries = 2
			}
			r := handle(ctx, m)
			if r.Action == consumer.Nack {
				time.Sleep(min(r.Delay, 200*time.Millisecond)) // RabbitMQ has no delay
				d.Nack(false, true)                            //nolint:errcheck // what is not answered comes again
			} else {
				d.Ack(false) //nolint:errcheck // the same
			}
		})
	}
	return errors.New("the connection is gone")
}

func (b *rabbitBroker) first(ctx context.Context) (*order, error) {
	ch, err := b.open()
	if err != nil {
		return nil, err
	}
	o := newOrder()
	for ctx.Err() == nil {
		d, ok, err := ch.Get(log, true)
		if err != nil {
			return nil, fmt.Errorf("read the log: %w", err)
		}
		if !ok {
			break
		}
		o.add(d.CorrelationId, d.MessageId, d.Body)
	}
	return o, ctx.Err()
}
