package shop

// Intent and confirmation. The client names the intent, so that a PUT may be repeated as often as it likes: there is
// one intent of that name, and the money is held once, under a key that stands in its row. Confirming takes the money.
// An intent ends once: whether a confirmation, a cancellation or the clock has won is decided by one conditional update
// of its state. What follows from the end, at the card processor, is done by whoever comes, until it is done.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/examples/shop/database"
	"github.com/semelhq/semel/examples/shop/processor"
)

// Intent is a payment that somebody means to make. Its states are: holding (the card is being asked), created (the
// money is held), confirming, and the ends confirmed, cancelled, expired and declined.
type Intent struct {
	ID       string    `json:"id" format:"uuid"`
	State    string    `json:"state" example:"created"`
	Amount   int64     `json:"amount" doc:"In minor units of the currency" example:"4900"`
	Currency string    `json:"currency" doc:"ISO 4217" example:"EUR"`
	Order    string    `json:"order,omitempty"`
	Expires  time.Time `json:"expires" doc:"Until when it may be confirmed"`
	Created  time.Time `json:"created"`

	tenant, asked, reference, authorized, rowKey string
}

type intentRef struct {
	ID string `path:"id" format:"uuid"`
}

type putIntent struct {
	ID   string `path:"id" format:"uuid"`
	Body Purchase
}

type intentAnswer struct {
	Status int
	Body   Intent
}

type foundIntent struct {
	Body Intent
}

func (s *Shop) intents() {
	resumable := &semel.Policy{OnLost: semel.Rerun, Complete: true, Lease: s.o.Lease, Decide: lostOnError}
	register(s, call{
		id: "put-payment-intent", method: http.MethodPut, path: "/payment-intents/{id}", tag: "intents", summary: "Hold money for a payment that is to be confirmed",
		status: http.StatusCreated, refusals: []int{http.StatusOK, http.StatusPaymentRequired, http.StatusConflict, http.StatusBadGateway},
	}, s.putIntent)
	register(s, call{
		id: "confirm-payment-intent", method: http.MethodPost, path: "/payment-intents/{id}/confirm", tag: "intents", summary: "Take the money that is held",
		once: resumable, refusals: []int{http.StatusNotFound, http.StatusConflict, http.StatusBadGateway},
	}, s.confirmIntent)
	register(s, call{
		id: "cancel-payment-intent", method: http.MethodPost, path: "/payment-intents/{id}/cancel", tag: "intents", summary: "Let go of the money that is held",
		once: inOneCommit, refusals: []int{http.StatusNotFound, http.StatusConflict},
	}, s.cancelIntent)
	register(s, call{
		id: "get-payment-intent", method: http.MethodGet, path: "/payment-intents/{id}", tag: "intents", summary: "Look at a payment intent",
		refusals: []int{http.StatusNotFound},
	}, s.getIntent)
	s.loops = append(s.loops, s.endIntents)
}

func (s *Shop) putIntent(ctx context.Context, in *putIntent) (*intentAnswer, error) {
	s.crash("intents.put.start")
	i, made, err := s.openIntent(ctx, in)
	if err != nil {
		return nil, err
	}
	s.crash("intents.put.begun")
	if i.State == "holding" {
		said, err := s.cards.authorize(ctx, i.key("hold"), processor.Purchase{Amount: i.Amount, Currency: i.Currency, Card: in.Body.Card, Reference: i.reference})
		if err != nil {
			return nil, s.noAnswer(ctx, err)
		}
		s.crash("intents.put.authorized")
		if i, err = s.heldIntent(ctx, i, said); err != nil {
			return nil, err
		}
	}
	s.crash("intents.put.finished")
	if i.State == "declined" {
		return nil, refuse(http.StatusPaymentRequired, "declined", "the bank declines the card")
	}
	if made {
		return &intentAnswer{http.StatusCreated, *i}, nil
	}
	return &intentAnswer{http.StatusOK, *i}, nil
}

// openIntent finds the intent of the client's name, or makes it.
func (s *Shop) openIntent(ctx context.Context, in *putIntent) (i *Intent, made bool, err error) {
	asked := digest(in.Body)
	err = s.db.Write(ctx, func(tx database.Tx) error {
		tenant, created := principal(ctx).Tenant, now()
		n, err := tx.Exec(ctx, "INSERT INTO intents ("+intentColumns+", let_go) VALUES ($1, $2, 'holding', $3, $4, $5, $6, $7, '', NULL, $8, $9, 0) ON CONFLICT (tenant, id) DO NOTHING",
			tenant, in.ID, in.Body.Amount, in.Body.Currency, in.Body.Order, asked, uuid.Must(uuid.NewV7()).String(), created.Add(s.o.IntentLife).UnixMilli(), created.UnixMilli())
		if err != nil {
			return fmt.Errorf("insert the intent: %w", err)
		}
		made = n == 1
		i, err = lockIntent(ctx, tx, tenant, in.ID)
		return err
	})
	if err == nil && i.asked != asked {
		return nil, false, refuse(http.StatusConflict, "intent_exists", "there is another intent of this id")
	}
	return i, made, err
}

// heldIntent writes down what the card processor has said, unless the intent has ended meanwhile.
func (s *Shop) heldIntent(ctx context.Context, i *Intent, said receipt) (*Intent, error) {
	state := "created"
	if said.ID == "" {
		state = "declined"
	}
	return s.changeIntent(ctx, i, "UPDATE intents SET state = $1, authorized = $2 WHERE tenant = $3 AND id = $4 AND state = 'holding'", state, said.ID)
}

func (s *Shop) confirmIntent(ctx context.Context, in *intentRef) (*foundIntent, error) {
	s.crash("intents.confirm.start")
	i, err := s.takeIntent(ctx, in.ID, now())
	if err != nil {
		return nil, err
	}
	s.crash("intents.confirm.begun")
	if i.State == "confirming" {
		said, err := semel.Step(ctx, "capture", func(ctx context.Context) (receipt, error) {
			said, err := s.cards.capture(ctx, client.Key{}, i.authorized) // under the step's key
			if err != nil {
				return said, s.noAnswer(ctx, err)
			}
			s.crash("intents.confirm.charged")
			return said, nil
		})
		if err != nil {
			return nil, err
		}
		s.crash("intents.confirm.saved")
		if i, err = s.confirmed(ctx, i, said); err != nil {
			return nil, err
		}
	}
	s.crash("intents.confirm.finished")
	if i.State != "confirmed" {
		return nil, i.refusal(ctx)
	}
	return &foundIntent{*i}, nil
}

// takeIntent has a confirmation win, if nothing has won before.
func (s *Shop) takeIntent(ctx context.Context, id string, at time.Time) (i *Intent, err error) {
	rowKey := semel.FromContext(ctx).Key("row")
	err = s.db.Write(ctx, func(tx database.Tx) error {
		tenant := principal(ctx).Tenant
		if err := expire(ctx, tx, at, tenant, id); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE intents SET state = 'confirming', row_key = $1 WHERE tenant = $2 AND id = $3 AND state = 'created'", rowKey, tenant, id)
		if err != nil {
			return fmt.Errorf("take the intent: %w", err)
		}
		i, err = lockIntent(ctx, tx, tenant, id)
		return err
	})
	if err == nil && i.rowKey != rowKey {
		err = i.refusal(ctx)
	}
	return i, err
}

// confirmed writes down that the money was taken.
func (s *Shop) confirmed(ctx context.Context, i *Intent, said receipt) (after *Intent, err error) {
	state := "confirmed"
	if said.ID == "" {
		state = "cancelled" // by the bank: it does not hold the money any more
	}
	err = s.db.Write(ctx, func(tx database.Tx) error {
		n, err := tx.Exec(ctx, "UPDATE intents SET state = $1 WHERE tenant = $2 AND id = $3 AND state = 'confirming'", state, i.tenant, i.ID)
		if err != nil {
			return fmt.Errorf("confirm the intent: %w", err)
		}
		if after, err = lockIntent(ctx, tx, i.tenant, i.ID); err != nil || n == 0 || state != "confirmed" {
			return err
		}
		return s.send(ctx, tx, Event{Type: PaymentCompleted, Tenant: i.tenant, ID: i.ID, Order: i.Order, Amount: i.Amount, Currency: i.Currency})
	})
	return after, err
}

func (s *Shop) cancelIntent(ctx context.Context, in *intentRef) (*foundIntent, error) {
	tx, rowKey, tenant := txOf(ctx), semel.FromContext(ctx).Key("row"), principal(ctx).Tenant
	_, err := tx.Exec(ctx, "UPDATE intents SET state = 'cancelled', row_key = $1 WHERE tenant = $2 AND id = $3 AND state IN ('holding', 'created')", rowKey, tenant, in.ID)
	if err != nil {
		return nil, fmt.Errorf("cancel the intent: %w", err)
	}
	i, err := lockIntent(ctx, tx, tenant, in.ID)
	if err != nil {
		return nil, err
	}
	if i.rowKey != rowKey {
		return nil, i.refusal(ctx)
	}
	s.crash("intents.cancel.begun")
	return &foundIntent{*i}, nil
}

func (s *Shop) getIntent(ctx context.Context, in *intentRef) (*foundIntent, error) {
	tenant := principal(ctx).Tenant
	i, err := scanIntent(s.db.QueryRow(ctx, "SELECT "+intentColumns+" FROM intents WHERE tenant = $1 AND id = $2", tenant, in.ID))
	if at := now(); err == nil && i.open() && !at.Before(i.Expires) {
		err = s.db.Write(ctx, func(tx database.Tx) error {
			if err := expire(ctx, tx, at, tenant, in.ID); err != nil {
				return err
			}
			i, err = lockIntent(ctx, tx, tenant, in.ID)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	return &foundIntent{*i}, nil
}

// endIntents has intents expire, and lets go of the money of those that have ended without a confirmation.
func (s *Shop) endIntents(ctx context.Context) error {
	for {
		err := s.expireIntents(ctx, now())
		if err == nil {
			err = s.letGoOfIntents(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.o.Log.WarnContext(ctx, "ending payment intents has failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (s *Shop) expireIntents(ctx context.Context, at time.Time) error {
	return s.db.Write(ctx, func(tx database.Tx) error { return expire(ctx, tx, at, "", "") })
}

// expire ends the intents whose time is over: one, or all of them.
func expire(ctx context.Context, tx database.Tx, at time.Time, tenant, id string) error {
	_, err := tx.Exec(ctx, "UPDATE intents SET state = 'expired' WHERE state IN ('holding', 'created') AND let_go = 0 AND expires <= $1 AND (tenant = $2 AND id = $3 OR $3 = '')",
		at.UnixMilli(), tenant, id)
	if err != nil {
		return fmt.Errorf("have intents expire: %w", err)
	}
	return nil
}

func (s *Shop) letGoOfIntents(ctx context.Context) error {
	rows, err := s.db.Query(ctx, "SELECT "+intentColumns+" FROM intents WHERE state IN ('cancelled', 'expired') AND let_go = 0 LIMIT 100")
	if err != nil {
		return fmt.Errorf("find intents to let go of: %w", err)
	}
	defer rows.Close()
	var ended []*Intent
	for rows.Next() {
		i, err := scanIntent(rows)
		if err != nil {
			return err
		}
		ended = append(ended, i)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("find intents to let go of: %w", err)
	}
	rows.Close()
	var failed error
	for _, i := range ended {
		failed = errors.Join(failed, s.letGo(ctx, i))
	}
	return failed
}

// letGo may be called by several at once. The key of the hold is closed for good first: what was not held yet never is.
func (s *Shop) letGo(ctx context.Context, i *Intent) error {
	held, found, err := s.cards.settled(ctx, i.key("hold").Value, 0)
	if err != nil {
		return err
	}
	if found && held.ID != "" {
		if _, err := s.cards.void(ctx, i.key("void"), held.ID); err != nil {
			return err
		}
		s.crash("intents.end.voided")
	}
	_, err = s.changeIntent(ctx, i, "UPDATE intents SET let_go = 1 WHERE tenant = $1 AND id = $2")
	return err
}

// changeIntent makes one update, whose last two parameters are the intent's tenant and id, and returns the intent after
// it.
func (s *Shop) changeIntent(ctx context.Context, i *Intent, update string, args ...any) (after *Intent, err error) {
	err = s.db.Write(ctx, func(tx database.Tx) error {
		if _, err := tx.Exec(ctx, update, append(args, i.tenant, i.ID)...); err != nil {
			return fmt.Errorf("change the intent: %w", err)
		}
		after, err = lockIntent(ctx, tx, i.tenant, i.ID)
		return err
	})
	return after, err
}

// key is the key of a call of the card processor, the same whoever makes it.
func (i *Intent) key(call string) client.Key { return client.Key{Value: i.reference + "-" + call} }

// open reports that the intent has not ended.
func (i *Intent) open() bool {
	return i.State == "holding" || i.State == "created" || i.State == "confirming"
}

// refusal says why an intent can't be confirmed or cancelled.
func (i *Intent) refusal(ctx context.Context) *Problem {
	switch {
	case i.open():
		semel.FromContext(ctx).Release()
		return again(http.StatusConflict, "intent_in_progress", "another request works on the intent")
	case i.State == "expired":
		return refuse(http.StatusConflict, "intent_expired", "the intent has expired")
	}
	return refuse(http.StatusConflict, "intent_ended", "the intent is "+i.State)
}

const intentColumns = "tenant, id, state, amount, currency, order_id, asked, reference, authorized, row_key, expires, created"

// lockIntent finds an intent, which nobody else can change until the transaction ends.
func lockIntent(ctx context.Context, tx database.Tx, tenant, id string) (*Intent, error) {
	return scanIntent(tx.QueryRow(ctx, "UPDATE intents SET state = state WHERE tenant = $1 AND id = $2 RETURNING "+intentColumns, tenant, id))
}

func scanIntent(row interface{ Scan(to ...any) error }) (*Intent, error) {
	var (
		i                Intent
		rowKey           sql.NullString
		expires, created int64
	)
	err := row.Scan(&i.tenant, &i.ID, &i.State, &i.Amount, &i.Currency, &i.Order, &i.asked, &i.reference, &i.authorized, &rowKey, &expires, &created)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, refuse(http.StatusNotFound, "intent_not_found", "there is no such payment intent")
	}
	if err != nil {
		return nil, fmt.Errorf("find the intent: %w", err)
	}
	i.rowKey, i.Expires, i.Created = rowKey.String, time.UnixMilli(expires).UTC(), time.UnixMilli(created).UTC()
	return &i, nil
}
