package shop

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/semelhq/semel/examples/shop/database"
)

// A movement is what one operation asks of the card processor, once. Its row is there before the money moves, with the
// key under which the processor is asked. So a run that comes later, whatever has become of the operation's record,
// finds it and goes on, or answers from it; and what became of the money can be asked without the client
// (reconcile.go).
type movement struct {
	id        string
	operation string // its public id
	rowKey    string // derived from the operation
	fence     uint64
	tenant    string
	payment   string
	kind      kind
	amount    int64
	key       string // under which the processor is asked
	state     string // pending; then done, declined or refused; or never: it did not happen up to the fence
	said      receipt
	asked     string // digest of what the client has asked for

	call string // of the API; not stored
	card string // not stored
}

type kind string

const (
	authorization kind = "authorization"
	charge        kind = "charge"
	capture       kind = "capture"
	void          kind = "void"
	refund        kind = "refund"
)

func (m *movement) makesPayment() bool { return m.kind == authorization || m.kind == charge }

// done says in a word what has happened.
func (k kind) done() string {
	switch k {
	case authorization:
		return "authorized"
	case void:
		return "voided"
	case refund:
		return "refunded"
	}
	return "charged"
}

// begin finds the operation's movement, or writes it down with what the call does to its payment.
func (m *movement) begin(ctx context.Context, tx database.Tx, first func(context.Context, database.Tx, *movement) error) error {
	earlier, err := findMovement(ctx, tx, "row_key = $1 OR operation = $2", m.rowKey, m.operation)
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return err
	case earlier.state != "never" && earlier.asked != m.asked:
		return reused()
	case earlier.state != "never":
		earlier.call, earlier.card = m.call, m.card
		*m = *earlier
		return nil
	case earlier.fence >= m.fence:
		return fmt.Errorf("the run with the fence %d was declared dead", m.fence)
	default:
		if _, err := tx.Exec(ctx, "DELETE FROM movements WHERE operation = $1", m.operation); err != nil {
			return fmt.Errorf("delete the movement that never happened: %w", err)
		}
	}
	m.id, m.state = uuid.Must(uuid.NewV7()).String(), "pending"
	if err := first(ctx, tx, m); err != nil {
		return err
	}
	if mine, err := m.insert(ctx, tx); err != nil || !mine {
		return cmp.Or(err, errors.New("another run of the operation has begun it meanwhile"))
	}
	return nil
}

// insert returns false if the operation has a movement.
func (m *movement) insert(ctx context.Context, tx database.Tx) (bool, error) {
	n, err := tx.Exec(ctx, "INSERT INTO movements ("+movementColumns+", created) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT (operation) DO NOTHING",
		m.operation, m.rowKey, int64(m.fence), m.id, m.tenant, m.payment, string(m.kind), m.amount, m.key, m.state, encode(m.said), m.asked, now().UnixMilli())
	if err != nil {
		return false, fmt.Errorf("insert the movement: %w", err)
	}
	return n == 1, nil
}

// finish writes down what the card processor has said, once, and returns the payment.
func (s *Shop) finish(ctx context.Context, m *movement, said receipt) (*Payment, error) {
	m.said, m.state = said, "done"
	if said.Declined {
		m.state = "declined"
	} else if said.Refused != "" {
		m.state = "refused"
	}
	return s.settle(ctx, m)
}

// settle moves a movement out of pending, and its payment with it, unless that was done before.
func (s *Shop) settle(ctx context.Context, m *movement) (p *Payment, err error) {
	err = s.db.Write(ctx, func(tx database.Tx) (err error) {
		n, err := tx.Exec(ctx, "UPDATE movements SET state = $1, receipt = $2, fence = $3 WHERE operation = $4 AND state = 'pending'", m.state, encode(m.said), int64(m.fence), m.operation)
		if err != nil {
			return fmt.Errorf("settle the movement: %w", err)
		}
		if p, err = lockPayment(ctx, tx, m.tenant, m.payment); err != nil || n == 0 {
			return err
		}
		p.apply(m)
		if err := p.update(ctx, tx, m.tenant); err != nil {
			return err
		}
		return s.announce(ctx, tx, m, p)
	})
	return p, err
}

// never writes down that a movement did not happen, and will not up to a fence. A run with a higher one may have begun
// it again meanwhile: that is another movement, which stays.
func (s *Shop) never(ctx context.Context, m *movement, fence uint64) error {
	return s.db.Write(ctx, func(tx database.Tx) error {
		n, err := tx.Exec(ctx, "UPDATE movements SET state = 'never', fence = $1 WHERE operation = $2 AND state = 'pending' AND fence <= $1", int64(fence), m.operation)
		if err != nil {
			return fmt.Errorf("close the movement: %w", err)
		}
		if n == 0 {
			return nil
		}
		if m.makesPayment() {
			_, err := tx.Exec(ctx, "DELETE FROM payments WHERE tenant = $1 AND id = $2", m.tenant, m.payment)
			return err
		}
		p, err := lockPayment(ctx, tx, m.tenant, m.payment)
		if err != nil {
			return err
		}
		m.state = "never"
		p.apply(m)
		return p.update(ctx, tx, m.tenant)
	})
}

// apply changes a payment as the end of a movement says.
func (p *Payment) apply(m *movement) {
	done := m.state == "done"
	switch m.kind {
	case authorization, charge:
		switch {
		case !done:
			p.State = "declined"
		case m.kind == authorization:
			p.State, p.authorized = "prepared", m.said.ID
		default:
			p.State, p.charge = "paid", m.said.ID
		}
	case capture, void:
		p.moving = ""
		switch {
		case !done:
		case m.kind == capture:
			p.State, p.charge = "paid", m.said.ID
		default:
			p.State = "cancelled"
		}
	case refund:
		if !done {
			p.Refunded -= m.amount
		}
	}
}

// announce tells others of money that has come or gone.
func (s *Shop) announce(ctx context.Context, tx database.Tx, m *movement, p *Payment) error {
	e := Event{Tenant: m.tenant, ID: p.ID, Order: p.Order, Amount: m.amount, Currency: p.Currency}
	switch {
	case m.state != "done":
		return nil
	case m.kind == charge, m.kind == capture:
		e.Type = PaymentCompleted
	case m.kind == refund:
		e.Type = PaymentRefunded
	default:
		return nil
	}
	return s.send(ctx, tx, e)
}

// refusal is what the client of a movement that was declined or refused is told, each time.
func (m *movement) refusal() error {
	switch m.state {
	case "declined":
		return refuse(http.StatusPaymentRequired, "declined", "the bank declines the card")
	case "refused":
		return refuse(http.StatusConflict, "refused_by_processor", "the card processor refuses: "+m.said.Refused)
	}
	return nil
}

const movementColumns = "operation, row_key, fence, id, tenant, payment, kind, amount, processor_key, state, receipt, asked"

func findMovement(ctx context.Context, q database.Queries, where string, args ...any) (*movement, error) {
	var (
		m     movement
		fence int64
		said  string
	)
	err := q.QueryRow(ctx, "SELECT "+movementColumns+" FROM movements WHERE "+where, args...).
		Scan(&m.operation, &m.rowKey, &fence, &m.id, &m.tenant, &m.payment, &m.kind, &m.amount, &m.key, &m.state, &said, &m.asked)
	if err == nil {
		err = json.Unmarshal([]byte(said), &m.said)
	}
	if err != nil {
		return nil, fmt.Errorf("find the movement: %w", err)
	}
	m.fence = uint64(fence)
	return &m, nil
}
