package shop

// At most once, and asking what became of it. With Options.AtMostOnce a payment whose run was lost is never run again: its
// outcome is unknown, until the card processor has been asked. The completer asks about each such operation, by the movement
// that its run wrote down before the money moved.

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/examples/shop/database"
)

// whatBecame answers for payments. "Never" is a promise that holds also for a run which is thought dead and is not: it finds
// its movement closed when it begins, or the processor refuses its key under its fence.
func (s *Shop) whatBecame(ctx context.Context, i semel.Inquiry) (semel.Finding, error) {
	if !strings.Contains(i.Operation, base+"/payments/") {
		return semel.Finding{}, nil
	}
	m, err := s.movementOf(ctx, i)
	if err != nil || m == nil {
		return semel.Finding{Found: semel.FoundNever, Reason: "it had not begun"}, err
	}
	if m.state == "pending" {
		said, found, err := s.cards.settled(ctx, m.key, i.Fence)
		if err != nil {
			return semel.Finding{}, err
		}
		if !found {
			return semel.Finding{Found: semel.FoundNever, Reason: "the card processor has not moved money"}, s.never(ctx, m, i.Fence)
		}
		if _, err := s.finish(ctx, m, said); err != nil {
			return semel.Finding{}, err
		}
	}
	answer, err := s.answerOf(ctx, m)
	return semel.Finding{Found: semel.FoundDone, Answer: answer, Reason: "the card processor has " + m.state + " it"}, err
}

// movementOf returns the operation's movement. If it has none, runs up to the inquiry's fence can begin none any more.
func (s *Shop) movementOf(ctx context.Context, i semel.Inquiry) (m *movement, err error) {
	id := i.ID.String()
	err = s.db.Write(ctx, func(tx database.Tx) error {
		none := movement{operation: id, rowKey: "never " + id, state: "never", fence: i.Fence}
		if mine, err := none.insert(ctx, tx); err != nil || mine {
			return err
		}
		m, err = findMovement(ctx, tx, "operation = $1", id)
		if err == nil && m.state == "never" {
			m = nil
			_, err = tx.Exec(ctx, "UPDATE movements SET fence = $1 WHERE operation = $2 AND fence < $1", int64(i.Fence), id)
		}
		return err
	})
	return m, err
}

// answerOf is what the client would have been told.
func (s *Shop) answerOf(ctx context.Context, m *movement) (*driver.Response, error) {
	p, err := findPayment(ctx, s.db, m.tenant, m.payment)
	if err != nil {
		return nil, err
	}
	answer := &driver.Response{Status: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}}
	var (
		body    any
		refused *Problem
	)
	switch {
	case errors.As(m.refusal(), &refused):
		answer.Status, answer.Header, body = refused.Status, http.Header{"Content-Type": {refused.ContentType("")}}, refused
	case m.kind == refund:
		body = refundOf(m, p).Body
	case m.kind == void:
		answer.Status, body = http.StatusOK, p
	default:
		answer.Header.Set("Location", paymentOf(p).Location)
		body = p
	}
	answer.Body = []byte(encode(body))
	return answer, nil
}
