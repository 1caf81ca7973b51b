package shop

// Resumable calls with an effect elsewhere. Money moves at the card processor, which no transaction of ours can take
// back. So each call first writes down what it is about to ask for (a movement, in movements.go), then asks within a
// semel.Step under a key derived from the operation, then writes down what came of it. A process may die between any
// two of these: the next run, here or in another process, with or without the client, goes on where it ended, and the
// processor recognises its key.
//
// "Declined" is kept: the same key never charges the card later. With Options.AtMostOnce no run follows a lost one;
// instead the processor is asked what became of it (reconcile.go).

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/examples/shop/database"
	"github.com/semelhq/semel/examples/shop/processor"
)

// Purchase says what is to be paid, and how.
type Purchase struct {
	Amount   int64  `json:"amount,omitempty" minimum:"1" maximum:"100000000000" doc:"In minor units of the currency" example:"4900"`
	Currency string `json:"currency,omitempty" pattern:"^[A-Z]{3}$" doc:"ISO 4217" example:"EUR"`
	Card     string `json:"card,omitempty" pattern:"^tok_[a-z0-9_]{1,60}$" doc:"The card processor's token; tok_declined is always declined" example:"tok_visa"`
	Order    string `json:"order,omitempty" format:"uuid" doc:"The order that is paid"`
}

// ProcessPayment asks for the money of a prepared payment, or for a whole payment at once.
type ProcessPayment struct {
	Payment string `json:"payment,omitempty" format:"uuid" doc:"A prepared payment; then nothing else is said"`
	Purchase
}

// PaymentRef names a payment.
type PaymentRef struct {
	Payment string `json:"payment" format:"uuid"`
}

// NewRefund asks to give back a part of a payment.
type NewRefund struct {
	Payment string `json:"payment" format:"uuid"`
	Amount  int64  `json:"amount,omitempty" minimum:"1" doc:"In minor units; all that is left, if it is not said" example:"1000"`
}

// Payment is a payment as it stands. Its states are: pending, prepared (the money is held), paid, declined, cancelled.
type Payment struct {
	ID       string    `json:"id" format:"uuid"`
	State    string    `json:"state" example:"paid"`
	Amount   int64     `json:"amount" doc:"In minor units of the currency" example:"4900"`
	Refunded int64     `json:"refunded" doc:"What was given back of it, or is about to be" example:"0"`
	Currency string    `json:"currency" doc:"ISO 4217" example:"EUR"`
	Order    string    `json:"order,omitempty"`
	Created  time.Time `json:"created"`

	authorized, charge, moving string
}

// Refund is money that was given back.
type Refund struct {
	ID       string `json:"id" format:"uuid"`
	Payment  string `json:"payment" format:"uuid"`
	Amount   int64  `json:"amount" example:"1000"`
	Currency string `json:"currency" example:"EUR"`
}

type paymentAnswer struct {
	Location string `header:"Location"`
	Body     Payment
}

type foundPayment struct {
	Body Payment
}

type refundAnswer struct {
	Body Refund
}

func (s *Shop) payments() {
	policy := &semel.Policy{OnLost: semel.Rerun, Complete: true, Lease: s.o.Lease, Decide: lostOnError}
	if s.o.AtMostOnce {
		policy = &semel.Policy{OnLost: semel.Hold, Lease: s.o.Lease, Decide: lostOnError}
	}
	refusals := []int{http.StatusPaymentRequired, http.StatusNotFound, http.StatusConflict, http.StatusBadGateway}
	register(s, call{
		id: "prepare-payment", method: http.MethodPost, path: "/payments/prepare", tag: "payments", summary: "Hold money on a card",
		status: http.StatusCreated, once: policy, refusals: refusals,
	}, s.preparePayment)
	register(s, call{
		id: "process-payment", method: http.MethodPost, path: "/payments/process", tag: "payments", summary: "Take money that is held, or charge a card at once",
		status: http.StatusCreated, once: policy, refusals: refusals,
	}, s.processPayment)
	register(s, call{
		id: "cancel-payment", method: http.MethodPost, path: "/payments/cancel", tag: "payments", summary: "Let go of money that is held",
		once: policy, refusals: refusals,
	}, s.cancelPayment)
	register(s, call{
		id: "refund-payment", method: http.MethodPost, path: "/payments/refund", tag: "payments", summary: "Give back a payment, or a part of it",
		status: http.StatusCreated, once: policy, refusals: refusals,
	}, s.refundPayment)
	register(s, call{
		id: "get-payment", method: http.MethodGet, path: "/payments/{id}", tag: "payments", summary: "Look at a payment",
		refusals: []int{http.StatusNotFound},
	}, s.getPayment)
}

func (s *Shop) preparePayment(ctx context.Context, in *struct{ Body Purchase }) (*paymentAnswer, error) {
	m := &movement{call: "prepare", kind: authorization, card: in.Body.Card, asked: digest(in.Body)}
	p, err := s.move(ctx, m, beginPayment(in.Body))
	if err != nil {
		return nil, err
	}
	return paymentOf(p), nil
}

func (s *Shop) processPayment(ctx context.Context, in *struct{ Body ProcessPayment }) (*paymentAnswer, error) {
	m, begin := &movement{call: "process", kind: charge, card: in.Body.Card, asked: digest(in.Body)}, beginPayment(in.Body.Purchase)
	if in.Body.Payment != "" {
		m.kind, begin = capture, beginEnd(in.Body.Payment)
	}
	p, err := s.move(ctx, m, begin)
	if err != nil {
		return nil, err
	}
	return paymentOf(p), nil
}

func (s *Shop) cancelPayment(ctx context.Context, in *struct{ Body PaymentRef }) (*foundPayment, error) {
	m := &movement{call: "cancel", kind: void, asked: digest(in.Body)}
	p, err := s.move(ctx, m, beginEnd(in.Body.Payment))
	if err != nil {
		return nil, err
	}
	return &foundPayment{*p}, nil
}

func (s *Shop) refundPayment(ctx context.Context, in *struct{ Body NewRefund }) (*refundAnswer, error) {
	m := &movement{call: "refund", kind: refund, asked: digest(in.Body)}
	p, err := s.move(ctx, m, beginRefund(in.Body))
	if err != nil {
		return nil, err
	}
	return refundOf(m, p), nil
}

// move is the pattern: begin, ask, finish. Whatever a run before this one has done, it does not do again.
func (s *Shop) move(ctx context.Context, m *movement, begin func(context.Context, database.Tx, *movement) error) (*Payment, error) {
	op := semel.FromContext(ctx)
	m.operation, m.rowKey, m.key, m.fence, m.tenant = op.ID(), op.Key("row"), op.Key("card"), op.Fence(), principal(ctx).Tenant
	s.crash("payments." + m.call + ".start")
	if err := s.db.Write(ctx, func(tx database.Tx) error { return m.begin(ctx, tx, begin) }); err != nil {
		return nil, err
	}
	s.crash("payments." + m.call + ".begun")
	if m.state != "pending" { // an earlier run has finished it, and the operation was forgotten
		p, err := findPayment(ctx, s.db, m.tenant, m.payment)
		return p, cmp.Or(err, m.refusal())
	}
	said, err := semel.Step(ctx, "card", func(ctx context.Context) (receipt, error) {
		said, err := s.ask(ctx, m)
		if err == nil {
			s.crash("payments." + m.call + "." + m.kind.done())
		}
		return said, err
	})
	if err != nil {
		return nil, err
	}
	s.crash("payments." + m.call + ".saved")
	p, err := s.finish(ctx, m, said)
	if err != nil {
		return nil, err
	}
	s.crash("payments." + m.call + ".finished")
	return p, m.refusal()
}

func paymentOf(p *Payment) *paymentAnswer {
	return &paymentAnswer{base + "/payments/" + p.ID, *p}
}

func refundOf(m *movement, p *Payment) *refundAnswer {
	return &refundAnswer{Refund{m.id, p.ID, m.amount, p.Currency}}
}

// ask has the card processor move the money.
func (s *Shop) ask(ctx context.Context, m *movement) (said receipt, err error) {
	p, err := findPayment(ctx, s.db, m.tenant, m.payment)
	if err != nil {
		return said, err
	}
	purchase := processor.Purchase{Amount: p.Amount, Currency: p.Currency, Card: m.card, Reference: p.ID}
	var key client.Key // that of the step
	switch m.kind {
	case authorization:
		said, err = s.cards.authorize(ctx, key, purchase)
	case charge:
		said, err = s.cards.charge(ctx, key, purchase)
	case capture:
		said, err = s.cards.capture(ctx, key, p.authorized)
	case void:
		said, err = s.cards.void(ctx, key, p.authorized)
	case refund:
		said, err = s.cards.refund(ctx, key, processor.Return{Charge: p.charge, Amount: m.amount, Reference: p.ID})
	}
	if err != nil {
		return said, s.noAnswer(ctx, err)
	}
	return said, nil
}

// beginPayment makes a payment, whose money has yet to move.
func beginPayment(in Purchase) func(context.Context, database.Tx, *movement) error {
	return func(ctx context.Context, tx database.Tx, m *movement) error {
		m.payment, m.amount = m.id, in.Amount
		_, err := tx.Exec(ctx, "INSERT INTO payments ("+paymentColumns+") VALUES ($1, $2, 'pending', $3, $4, $5, '', '', '', 0, $6)",
			m.tenant, m.payment, in.Amount, in.Currency, in.Order, now().UnixMilli())
		if err != nil {
			return fmt.Errorf("insert the payment: %w", err)
		}
		return nil
	}
}

// beginEnd takes a prepared payment for its end: the money is either taken or let go of.
func beginEnd(id string) func(context.Context, database.Tx, *movement) error {
	return func(ctx context.Context, tx database.Tx, m *movement) error {
		p, err := lockPayment(ctx, tx, m.tenant, id)
		switch {
		case err != nil:
			return err
		case p.moving != "" || p.State == "pending":
			semel.FromContext(ctx).Release()
			return again(http.StatusConflict, "payment_in_progress", "another request works on the payment")
		case p.State != "prepared":
			return refuse(http.StatusConflict, "payment_not_prepared", "the payment is "+p.State)
		}
		m.payment, m.amount = p.ID, p.Amount
		_, err = tx.Exec(ctx, "UPDATE payments SET moving = $1 WHERE tenant = $2 AND id = $3", m.rowKey, m.tenant, p.ID)
		if err != nil {
			return fmt.Errorf("take the payment: %w", err)
		}
		return nil
	}
}

// beginRefund sets the refund's amount aside, so that all refunds together are never above what was paid.
func beginRefund(in NewRefund) func(context.Context, database.Tx, *movement) error {
	return func(ctx context.Context, tx database.Tx, m *movement) error {
		p, err := lockPayment(ctx, tx, m.tenant, in.Payment)
		if err != nil {
			return err
		}
		left := p.Amount - p.Refunded
		switch {
		case p.State != "paid":
			return refuse(http.StatusConflict, "payment_not_paid", "the payment is "+p.State+", so that nothing of it can be given back")
		case left == 0 || in.Amount > left:
			return refuse(http.StatusConflict, "refund_too_large", fmt.Sprintf("amount: only %d of the payment are left to give back", left))
		}
		m.payment, m.amount = p.ID, cmp.Or(in.Amount, left)
		_, err = tx.Exec(ctx, "UPDATE payments SET refunded = refunded + $1 WHERE tenant = $2 AND id = $3", m.amount, m.tenant, p.ID)
		if err != nil {
			return fmt.Errorf("set the refund aside: %w", err)
		}
		return nil
	}
}

func (s *Shop) getPayment(ctx context.Context, in *struct {
	ID string `path:"id" format:"uuid"`
},
) (*foundPayment, error) {
	p, err := findPayment(ctx, s.db, principal(ctx).Tenant, in.ID)
	if err != nil {
		return nil, err
	}
	return &foundPayment{*p}, nil
}

// Resolve implements huma.ResolverWithPath: a purchase needs all of its parts.
func (p Purchase) Resolve(_ huma.Context, path *huma.PathBuffer) (faults []error) {
	for _, part := range []struct {
		name    string
		missing bool
	}{{"amount", p.Amount == 0}, {"currency", p.Currency == ""}, {"card", p.Card == ""}} {
		if part.missing {
			faults = append(faults, &huma.ErrorDetail{Location: path.With(part.name), Message: "expected to be present"})
		}
	}
	return faults
}

// Resolve implements huma.ResolverWithPath.
func (p ProcessPayment) Resolve(ctx huma.Context, path *huma.PathBuffer) []error {
	switch {
	case p.Payment == "":
		return p.Purchase.Resolve(ctx, path)
	case p.Purchase != Purchase{}:
		return []error{&huma.ErrorDetail{Location: path.With("payment"), Message: "a prepared payment has its amount, currency, card and order already"}}
	}
	return nil
}

// lostOnError has every 5xx count as lost: there is no answer, but money may have moved.
func lostOnError(status int, header http.Header, body []byte) semel.Verdict {
	if status >= http.StatusInternalServerError {
		return semel.VerdictLost
	}
	return releaseInvalid(status, header, body)
}

func findPayment(ctx context.Context, q database.Queries, tenant, id string) (*Payment, error) {
	return scanPayment(id, q.QueryRow(ctx, "SELECT "+paymentColumns+" FROM payments WHERE tenant = $1 AND id = $2", tenant, id))
}

// lockPayment finds a payment, which nobody else can change until the transaction ends.
func lockPayment(ctx context.Context, tx database.Tx, tenant, id string) (*Payment, error) {
	return scanPayment(id, tx.QueryRow(ctx, "UPDATE payments SET state = state WHERE tenant = $1 AND id = $2 RETURNING "+paymentColumns, tenant, id))
}

const paymentColumns = "tenant, id, state, amount, currency, order_id, authorized, charge, moving, refunded, created"

func scanPayment(id string, row interface{ Scan(to ...any) error }) (*Payment, error) {
	var (
		p       Payment
		tenant  string
		created int64
	)
	err := row.Scan(&tenant, &p.ID, &p.State, &p.Amount, &p.Currency, &p.Order, &p.authorized, &p.charge, &p.moving, &p.Refunded, &created)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, refuse(http.StatusNotFound, "payment_not_found", "there is no payment "+id)
	}
	if err != nil {
		return nil, fmt.Errorf("find the payment: %w", err)
	}
	p.Created = time.UnixMilli(created).UTC()
	return &p, nil
}

func (p *Payment) update(ctx context.Context, tx database.Tx, tenant string) error {
	_, err := tx.Exec(ctx, "UPDATE payments SET state = $1, authorized = $2, charge = $3, moving = $4, refunded = $5 WHERE tenant = $6 AND id = $7",
		p.State, p.authorized, p.charge, p.moving, p.Refunded, tenant, p.ID)
	if err != nil {
		return fmt.Errorf("update the payment: %w", err)
	}
	return nil
}
