package shop

// At most once, and asking what became of it. With Options.AtMostOnce a payment whose run was lost is never run again:
// its outcome is unknown, until the card processor has been asked. The completer asks about each such operation, by the
// movement that its run wrote down before the money moved.

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/examples/shop/database"
)

// whatBecame answers for payments. "Never" is a promise that holds also for a run which is thought dead and is not: it
// finds its movement closed when it begins, or the processor refuses its key under its fence.
func (s *Shop) whatBecame(ctx context.Context, i semel.Inquiry) (semel.Finding, error) {
	if !strings.Contains(i.Operation, base+"/payments/") {
		return semel.Finding{}, nil
	}
	m, err := s.closeMovement(ctx, i.ID.String(), i.Fence)
	switch {
	case err != nil:
		return semel.Finding{}, err
	case m == nil:
		return semel.Finding{Found: semel.FoundNever, Reason: "the card processor has not moved money"}, nil
	}
	answer, err := s.answerOf(ctx, m)
	return semel.Finding{Found: semel.FoundDone, Answer: answer, Reason: "the card processor has " + m.state + " it"}, err
}

// closeMovement brings an operation's movement to an end: as the card processor says or, if that has not heard of it,
// as one that never happens up to a fence. Then it returns nil.
func (s *Shop) closeMovement(ctx context.Context, operation string, fence uint64) (*movement, error) {
	m, err := s.movementOf(ctx, operation, fence)
	if err != nil || m == nil || m.state != "pending" {
		return m, err
	}
	said, found, err := s.cards.settled(ctx, m.key, fence)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, s.never(ctx, m, fence)
	}
	_, err = s.finish(ctx, m, said)
	return m, err
}

// movementOf returns an operation's movement. If it has none, runs up to the fence can begin none any more.
func (s *Shop) movementOf(ctx context.Context, operation string, fence uint64) (m *movement, err error) {
	err = s.db.Write(ctx, func(tx database.Tx) error {
		none := movement{operation: operation, rowKey: "never " + operation, state: "never", fence: fence}
		if mine, err := none.insert(ctx, tx); err != nil || mine {
			return err
		}
		m, err = findMovement(ctx, tx, "operation = $1", operation)
		if err == nil && m.state == "never" {
			m = nil
			_, err = tx.Exec(ctx, "UPDATE movements SET fence = $1 WHERE operation = $2 AND fence < $1", int64(fence), operation)
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
	case errors.As(m.refusal(), &refused) && s.o.SimpleErrors:
		answer.Status, body = refused.Status, refused.simple()
	case refused != nil:
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
