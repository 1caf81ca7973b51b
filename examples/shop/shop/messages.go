package shop

// Outbox. What others have to know is a message that is added in the transaction of what has happened: it leaves if and only if
// that is committed. A relay sends it, to NATS or to the subscriber's webhook. It may send it twice, always under one id: see
// consumers.go for the other side.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/examples/shop/database"
	"github.com/semelhq/semel/outbox"
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

// send tells others what has happened, once tx has committed. Time, Tenant and User are filled in if they are missing. The
// messages about one order or payment leave in the order of their transactions.
func (s *Shop) send(ctx context.Context, tx database.Tx, e Event) error {
	if e.Time.IsZero() {
		e.Time = now()
	}
	e.Tenant, e.User = cmp.Or(e.Tenant, principal(ctx).Tenant), cmp.Or(e.User, principal(ctx).Subject)
	payload, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("send %s: %w", e.Type, err)
	}
	headers := map[string]string{"Content-Type": "application/json"}
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
