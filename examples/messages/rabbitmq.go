package messages

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/semelwatermill"
)

// rabbitConfig is for durable queues whose server confirms what it has stored, and connects again soon.
func rabbitConfig(url string) amqp.Config {
	config := amqp.NewDurableQueueConfig(url)
	config.Publish.ConfirmDelivery = true
	config.Connection.Reconnect = amqp.DefaultReconnectConfig()
	config.Connection.Reconnect.BackoffMaxInterval = time.Second
	return config
}

// ToRabbitMQ sends an outbox's messages to queues of their topics' names, by a publisher of Watermill.
func ToRabbitMQ(url string) (outbox.Publisher, error) {
	p, err := amqp.NewPublisher(rabbitConfig(url), watermill.NopLogger{})
	if err != nil {
		return nil, fmt.Errorf("connect to RabbitMQ: %w", err)
	}
	return semelwatermill.NewPublisher(p), nil
}

// FromRabbitMQ handles the messages of a queue until ctx ends, with a router of Watermill.
func FromRabbitMQ(ctx context.Context, url, queue string, handle semelwatermill.Handle, handler message.NoPublishHandlerFunc) error {
	s, err := amqp.NewSubscriber(rabbitConfig(url), watermill.NopLogger{})
	if err != nil {
		return fmt.Errorf("connect to RabbitMQ: %w", err)
	}
	router := message.NewDefaultRouter(watermill.NopLogger{})
	router.AddMiddleware(semelwatermill.Middleware(handle, semelwatermill.Options{}))
	router.AddConsumerHandler(queue, queue, s, handler)
	return router.Run(ctx)
}
