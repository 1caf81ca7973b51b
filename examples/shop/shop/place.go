package shop

// Saga. Placing an order takes several services, and no transaction spans them: the card is charged, a carrier's room
// is reserved, the parcel is handed over. Each step is saved, so that another process goes on if this one dies. If a
// step is refused, those before it are taken back, the last one first. The order's state says how far it is:
//
//	pending, confirmed → paying → paid → reserved → shipped
//	                               ↓        ↓
//	              payment_failed, refunded ← released
//
// Each move is one conditional update, so that a step which is done again, or comes from a process that is thought
// dead, changes nothing. The saga's id is the order: placing it again is the same saga.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/examples/shop/database"
	"github.com/semelhq/semel/saga"
)

// Placing is what a saga is started with, and what its steps tell each other.
type Placing struct {
	Tenant   string
	User     string
	Order    uuid.UUID
	Card     string
	Country  string
	Address  string
	Tracking string
}

// PlaceOrder says how an order is paid, and where it goes.
type PlaceOrder struct {
	Card    string `json:"card" pattern:"^tok_[a-z0-9_]{1,60}$" doc:"The card processor's token; tok_declined is always declined" example:"tok_visa"`
	Country string `json:"country" pattern:"^[A-Z]{2}$" doc:"ISO 3166-1; there are carriers to AT, CH, DE, FR and NL" example:"DE"`
	Address string `json:"address" minLength:"1" maxLength:"200" doc:"No carrier takes a parcel to a PO box" example:"Hauptstrasse 1, 10827 Berlin"`
}

// Saga is how far the placing of an order is.
type Saga struct {
	ID       string     `json:"id" format:"uuid" doc:"That of the order"`
	State    saga.State `json:"state" enum:"running,compensating,done,compensated,stuck" doc:"done, compensated and stuck are ends; an operator has to decide about one that is stuck" example:"done"`
	Order    string     `json:"order" doc:"The order's state" example:"shipped"`
	Steps    []string   `json:"steps" doc:"What is saved, in alphabetical order: steps, and what was undone" example:"[\"pay\",\"reserve\",\"ship\"]"`
	Tracking string     `json:"tracking,omitempty" doc:"The parcel's number, once it is on its way"`
	Failed   string     `json:"failed,omitempty" doc:"The step that has failed" example:"ship"`
	Reason   string     `json:"reason,omitempty" doc:"Why it has"`
	Runs     int        `json:"runs" doc:"How many processes have worked on it, or one how often" example:"1"`
	Began    time.Time  `json:"began"`
}

type sagaAnswer struct {
	Location string `header:"Location"`
	Body     Saga
}

type foundSaga struct {
	Body Saga
}

func (s *Shop) placing() error {
	placing, err := saga.Define("place-order",
		saga.Step[Placing]{Name: "pay", Do: s.pay, Undo: s.unpay},
		saga.Step[Placing]{Name: "reserve", Do: s.reserve, Undo: s.release},
		// It is tried until it succeeds or is refused: nothing takes back a parcel that may be on its way.
		saga.Step[Placing]{Name: "ship", Do: s.ship, Retry: saga.Retry{Attempts: -1}},
	)
	if err != nil {
		return fmt.Errorf("define the saga: %w", err)
	}
	s.place = placing
	runner, err := saga.New(s.guard, saga.Options{Lease: s.o.Lease, Interval: s.interval()})
	if err != nil {
		return fmt.Errorf("make the saga's runner: %w", err)
	}
	if s.sagas, err = saga.Register(runner, placing); err != nil {
		return fmt.Errorf("register the saga: %w", err)
	}
	s.loops = append(s.loops, runner.Run)
	if s.o.Temporal != nil {
		if err := s.onTemporal(); err != nil {
			return err
		}
	}
	register(s, call{
		id: "place-order", method: http.MethodPost, path: "/orders/{id}/place", tag: "sagas", summary: "Pay and ship an order",
		status: http.StatusAccepted, refusals: []int{http.StatusNotFound, http.StatusConflict},
	}, s.placeOrder)
	register(s, call{
		id: "get-saga", method: http.MethodGet, path: "/sagas/{id}", tag: "sagas", summary: "See how far the placing of an order is",
		refusals: []int{http.StatusNotFound},
	}, s.getSaga)
	return nil
}

func (s *Shop) placeOrder(ctx context.Context, in *struct {
	ID   uuid.UUID `path:"id" format:"uuid"`
	Body PlaceOrder
},
) (*sagaAnswer, error) {
	o, err := s.order(ctx, s.db, in.ID)
	if err != nil {
		return nil, err
	}
	who := principal(ctx)
	p := Placing{Tenant: who.Tenant, User: who.Subject, Order: in.ID, Card: in.Body.Card, Country: in.Body.Country, Address: in.Body.Address}
	if _, err := s.sagas.Status(ctx, p.id()); errors.Is(err, saga.ErrNotFound) && !slices.Contains(placeable, o.State) {
		return nil, refuse(http.StatusConflict, "illegal_move", fmt.Sprintf("the order is %s: there is no way to place it", o.State))
	}
	status, err := s.sagas.Start(ctx, p.id(), p)
	if errors.Is(err, saga.ErrOtherInput) {
		return nil, refuse(http.StatusConflict, "order_placed", "the order was placed with another card, country or address, or by another user")
	}
	if err != nil {
		return nil, err
	}
	if o, err = s.order(ctx, s.db, in.ID); err != nil {
		return nil, err
	}
	return &sagaAnswer{base + "/sagas/" + o.ID, sagaOf(status, o)}, nil
}

func (s *Shop) getSaga(ctx context.Context, in *struct {
	ID uuid.UUID `path:"id" format:"uuid"`
},
) (*foundSaga, error) {
	status, err := s.sagas.Status(ctx, Placing{Tenant: principal(ctx).Tenant, Order: in.ID}.id())
	if errors.Is(err, saga.ErrNotFound) {
		return nil, refuse(http.StatusNotFound, "saga_not_found", "the order was not placed")
	}
	if err != nil {
		return nil, err
	}
	o, err := s.order(ctx, s.db, in.ID)
	if err != nil {
		return nil, err
	}
	return &foundSaga{sagaOf(status, o)}, nil
}

func sagaOf(status *saga.Status[Placing], o *Order) Saga {
	v := Saga{ID: o.ID, State: status.State, Order: o.State, Steps: status.Saved, Tracking: status.Value.Tracking, Runs: status.Attempts, Began: status.Began, Reason: status.Error}
	if v.Steps == nil {
		v.Steps = []string{}
	}
	if status.Failure != nil {
		v.Failed, v.Reason = status.Failure.Step, status.Failure.Error
	}
	return v
}

// id is the saga's: two tenants may have orders of one id.
func (p Placing) id() string { return digest(p.Tenant)[:32] + "." + p.Order.String() }

// as returns a context for a step, which may run in a process that the user has never spoken to.
func (p *Placing) as(ctx context.Context) context.Context {
	return context.WithValue(ctx, principalKey{}, Principal{p.Tenant, p.User})
}

// placeable are the states from which an order can be placed.
var placeable = []string{"pending", "confirmed"}

func (s *Shop) pay(ctx context.Context, p *Placing) error {
	ctx = p.as(ctx)
	m := p.movement(ctx, charge)
	s.crash("saga.pay.start")
	err := s.db.Write(ctx, func(tx database.Tx) error {
		return m.begin(ctx, tx, func(ctx context.Context, tx database.Tx, m *movement) error {
			o, moved, err := s.moveTo(ctx, tx, p, "paying", placeable...)
			if err == nil && !moved {
				err = notFrom(o)
			}
			if err != nil {
				return err
			}
			return beginPayment(Purchase{Amount: o.Total, Currency: o.Currency, Order: o.ID})(ctx, tx, m)
		})
	})
	if err != nil {
		return err
	}
	s.crash("saga.pay.begun")
	if m.state == "pending" {
		said, err := s.ask(ctx, m)
		if err != nil {
			return err
		}
		s.crash("saga.pay.charged")
		if _, err := s.finish(ctx, m, said); err != nil {
			return err
		}
	}
	s.crash("saga.pay.finished")
	if refused := m.refusal(); refused != nil {
		return cmp.Or(s.giveUp(ctx, p, "payment_failed"), semel.Final(refused))
	}
	return s.db.Write(ctx, func(tx database.Tx) error {
		_, _, err := s.moveTo(ctx, tx, p, "paid", "paying")
		return err
	})
}

// unpay gives back what pay has taken. What it has not taken yet it never will: its key is closed.
func (s *Shop) unpay(ctx context.Context, p *Placing) error {
	ctx = p.as(ctx)
	s.crash("saga.unpay.start")
	charged, err := s.closeMovement(ctx, s.place.StepKey(s.o.Secrets.Derivation, p.id(), "pay", false), math.MaxInt64)
	if err != nil {
		return err
	}
	if charged == nil || charged.state != "done" {
		return s.giveUp(ctx, p, "payment_failed")
	}
	s.crash("saga.unpay.begun")
	m := p.movement(ctx, refund)
	err = s.db.Write(ctx, func(tx database.Tx) error { return m.begin(ctx, tx, beginRefund(NewRefund{Payment: charged.payment})) })
	if refused := (*Problem)(nil); errors.As(err, &refused) && refused.Code == "refund_too_large" {
		return s.giveUp(ctx, p, "refunded") // somebody has given it back already
	}
	if err != nil {
		return err
	}
	if m.state == "pending" {
		said, err := s.ask(ctx, m)
		if err != nil {
			return err
		}
		s.crash("saga.unpay.refunded")
		if _, err := s.finish(ctx, m, said); err != nil {
			return err
		}
	}
	s.crash("saga.unpay.finished")
	if refused := m.refusal(); refused != nil {
		return semel.Final(refused) // an operator has to see where the money is; the order has not ended
	}
	return s.giveUp(ctx, p, "refunded")
}

func (s *Shop) reserve(ctx context.Context, p *Placing) error {
	ctx = p.as(ctx)
	s.crash("saga.reserve.start")
	err := s.db.Write(ctx, func(tx database.Tx) error {
		o, moved, err := s.moveTo(ctx, tx, p, "reserved", "paid")
		if err != nil || o.State == "reserved" && !moved {
			return err
		}
		if !moved {
			return notFrom(o)
		}
		n, err := tx.Exec(ctx, "UPDATE carriers SET room = room - 1 WHERE country = $1 AND room > 0", p.Country)
		if err == nil && n == 0 {
			err = semel.Final(errors.New("no carrier has room for a parcel to " + p.Country))
		}
		return err
	})
	s.crash("saga.reserve.reserved")
	return err
}

// release gives the room back. An order for which none was reserved moves too, so that a reserve that comes late is
// refused.
func (s *Shop) release(ctx context.Context, p *Placing) error {
	ctx = p.as(ctx)
	s.crash("saga.release.start")
	err := s.db.Write(ctx, func(tx database.Tx) error {
		_, moved, err := s.moveTo(ctx, tx, p, "released", "reserved")
		switch {
		case err != nil:
		case moved:
			_, err = tx.Exec(ctx, "UPDATE carriers SET room = room + 1 WHERE country = $1", p.Country)
		default:
			_, _, err = s.moveTo(ctx, tx, p, "released", "paid")
		}
		return err
	})
	s.crash("saga.release.released")
	return err
}

func (s *Shop) ship(ctx context.Context, p *Placing) error {
	ctx = p.as(ctx)
	s.crash("saga.ship.start")
	if strings.HasPrefix(strings.ToLower(p.Address), "po box") {
		return semel.Final(errors.New("no carrier takes a parcel to a PO box"))
	}
	p.Tracking, _ = saga.Key(ctx)
	err := s.db.Write(ctx, func(tx database.Tx) error {
		o, moved, err := s.moveTo(ctx, tx, p, "shipped", "reserved")
		if err != nil || o.State == "shipped" && !moved {
			return err
		}
		if !moved {
			return notFrom(o)
		}
		_, err = tx.Exec(ctx, "INSERT INTO shipments (tenant, order_id, tracking) VALUES ($1, $2, $3)", p.Tenant, o.ID, p.Tracking)
		return err
	})
	s.crash("saga.ship.shipped")
	return err
}

// movement is what a step asks of the card processor, under the key that is derived for the step.
func (p *Placing) movement(ctx context.Context, kind kind) *movement {
	key, _ := saga.Key(ctx)
	return &movement{operation: key, rowKey: key, key: key, tenant: p.Tenant, kind: kind, card: p.Card, fence: semel.FromContext(ctx).Fence()}
}

// moveTo moves the order on, if it is in one of some states.
func (s *Shop) moveTo(ctx context.Context, tx database.Tx, p *Placing, to string, from ...string) (o *Order, moved bool, err error) {
	o, err = s.lockedOrder(ctx, tx, p.Order)
	if err != nil || !slices.Contains(from, o.State) {
		return o, false, err
	}
	o.State = to
	o.version++
	return o, true, storeOrder(ctx, tx, o)
}

// giveUp ends the order, and gives its stock back.
func (s *Shop) giveUp(ctx context.Context, p *Placing, end string) error {
	return s.db.Write(ctx, func(tx database.Tx) error {
		o, moved, err := s.moveTo(ctx, tx, p, end, "paying", "paid", "released")
		if err == nil && moved {
			_, _, err = moveStock(ctx, tx, o.Lines, nil)
		}
		return err
	})
}

// notFrom refuses a step for good.
func notFrom(o *Order) error { return semel.Final(errors.New("the order is " + o.State)) }
