package shop

// Outbox. What others have to know is a message that is added in the transaction of what has happened: it leaves if and
// only if that is committed. A relay sends it, to NATS or to the subscriber's webhook. It may send it twice, always
// under one id: see consumers.go for the other side.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/examples/shop/database"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/outbox/webhook"
)

// What happens, as Event.Type. Each is also the subject of its messages in NATS.
const (
	OrderPlaced      = "order.placed"
	PaymentCompleted = "payment.completed"
	PaymentRefunded  = "payment.refunded"
)

// webhookTopic is that of messages to the subscriber's webhook.
const webhookTopic = "webhook"

// An Event says what has happened. As JSON it is the payload of a message.
type Event struct {
	Type     string    `json:"type"`
	Time     time.Time `json:"time"`
	Tenant   string    `json:"tenant"`
	User     string    `json:"user"`            // who has asked for it
	ID       string    `json:"id"`              // of the order, or of the payment
	Order    string    `json:"order,omitempty"` // that the payment is for
	Amount   int64     `json:"amount"`          // in minor units: the order's total, what was paid, or what was refunded
	Currency string    `json:"currency"`
}

// send tells others what has happened, once tx has committed. Time, Tenant and User are filled in if they are missing.
// The messages about one order or payment leave in the order of their transactions.
func (s *Shop) send(ctx context.Context, tx database.Tx, e Event) error {
	if e.Time.IsZero() {
		e.Time = now()
	}
	e.Tenant, e.User = cmp.Or(e.Tenant, principal(ctx).Tenant), cmp.Or(e.User, principal(ctx).Subject)
	payload, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("send %s: %w", e.Type, err)
	}
	headers := map[string]string{"Content-Type": "application/json", "Tenant": e.Tenant}
	if op := semel.FromContext(ctx); op != nil {
		headers["Operation"], headers["Correlation"] = op.ID(), op.Correlation()
	}
	m := outbox.Message{Topic: e.Type, Key: e.ID, Tenant: e.Tenant, Payload: payload, Headers: headers} // its id is a UUIDv7
	all := []outbox.Message{m}
	if s.o.Webhook != "" && e.Type == PaymentCompleted {
		m.Topic = webhookTopic
		all = append(all, m)
	}
	if err := s.db.Send(ctx, tx, all...); err != nil {
		return fmt.Errorf("send %s: %w", e.Type, err)
	}
	return nil
}

// relay sends what is in the outbox, until ctx ends.
func (s *Shop) relay(ctx context.Context) error {
	hook, err := s.webhook()
	if err != nil {
		return err
	}
	broker := outbox.Func(64, s.publish)
	relay, err := outbox.NewRelay(s.db.Outbox, publisher(func(ctx context.Context, batch []*outbox.Message) []error {
		if batch[0].Topic == webhookTopic { // all messages of a batch have one topic
			return hook.Publish(ctx, batch)
		}
		return broker.Publish(ctx, batch)
	}), outbox.RelayOptions{Lease: s.o.Lease, PublishTimeout: s.o.Lease / 3, Observe: outbox.LogTo(s.o.Log)})
	if err != nil {
		return fmt.Errorf("make the relay: %w", err)
	}
	return relay.Run(ctx)
}

// publish sends a message to NATS. Its id is the one by which JetStream drops a second send.
func (s *Shop) publish(ctx context.Context, m *outbox.Message) error {
	msg := nats.NewMsg(m.Topic)
	msg.Data = m.Payload
	for name, value := range m.Headers {
		msg.Header.Set(name, value)
	}
	if _, err := s.o.Broker.PublishMsg(ctx, msg, jetstream.WithMsgID(m.ID)); err != nil {
		return err
	}
	s.crash("messages.published")
	return nil
}

// webhook returns what sends signed messages to the subscriber.
func (s *Shop) webhook() (outbox.Publisher, error) {
	endpoint := webhook.Endpoint{ID: "subscriber", URL: s.o.Webhook, Secrets: []string{s.o.Secrets.Webhook}, Disabled: s.o.Webhook == ""}
	sender, err := webhook.New(func(context.Context, *outbox.Message) (webhook.Endpoint, error) { return endpoint, nil }, webhook.Options{
		// The address is the operator's own, and not one that a client has given. So it may be on this machine.
		Timeout: s.o.Lease / 4, AllowHTTP: true, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	})
	if err != nil {
		return nil, fmt.Errorf("make the sender of webhooks: %w", err)
	}
	return sender, nil
}

// publisher is a function as an [outbox.Publisher].
type publisher func(ctx context.Context, batch []*outbox.Message) []error

func (p publisher) Publish(ctx context.Context, batch []*outbox.Message) []error {
	return p(ctx, batch)
}
