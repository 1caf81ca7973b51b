package messages

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/outbox"
)

// ToNATS sends an outbox's messages to streams. The id is the one by which JetStream drops a second send.
func ToNATS(js jetstream.JetStream) outbox.Publisher {
	return outbox.Func(64, func(ctx context.Context, m *outbox.Message) error {
		msg := nats.NewMsg(m.Topic)
		msg.Data = m.Payload
		for name, value := range m.Headers {
			msg.Header.Set(name, value)
		}
		_, err := js.PublishMsg(ctx, msg, jetstream.WithMsgID(m.ID))
		return err
	})
}

// FromNATS handles the messages of a consumer of JetStream until the context that it returns is stopped.
func FromNATS(ctx context.Context, c jetstream.Consumer, handle Handler) (jetstream.ConsumeContext, error) {
	return c.Consume(func(msg jetstream.Msg) {
		m := consumer.Message{ID: msg.Headers().Get(jetstream.MsgIDHeader), Payload: msg.Data(), Topic: msg.Subject(), KeepAlive: msg.InProgress}
		if about, err := msg.Metadata(); err == nil {
			m.Deliveries = int(about.NumDelivered)
		}
		// What the server does not hear is another delivery.
		switch r := handle(ctx, m); r.Action {
		case consumer.Ack:
			msg.Ack() //nolint:errcheck // see above
		case consumer.Nack:
			msg.NakWithDelay(r.Delay) //nolint:errcheck // see above
		case consumer.Term:
			msg.Term() //nolint:errcheck // see above
		}
	})
}
