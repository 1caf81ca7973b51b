package shop

// Versions. Who changes an order says which version of it they have seen (If-Match), so that of two changes of one
// version one is refused, and none is lost. PUT and DELETE need no key: done twice they leave what they leave when done
// once. A repeat of a change finds the order as it wants it, and is told so, though its version is old by then: the
// first answer may have been lost. A PATCH is not so by nature, and has a key.

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/examples/shop/database"
)

// OrderPatch is a merge patch of an order (RFC 7396): what is not named stays as it is.
type OrderPatch struct {
	Lines nullable[[]Line] `json:"lines,omitempty" nullable:"false" minItems:"1" maxItems:"100" doc:"All lines"`
	Note  nullable[string] `json:"note,omitempty" maxLength:"500" pattern:"^[^\\x00]*$" doc:"null removes it"`
}

// in returns what an order is with the patch in it.
func (p *OrderPatch) in(o *Order) NewOrder {
	want := NewOrder{o.Lines, o.Note}
	if p.Lines.sent {
		want.Lines = p.Lines.value
	}
	if p.Note.sent {
		want.Note = p.Note.value
	}
	return want
}

// A nullable tells null from what was not sent. null is the zero value.
type nullable[T any] struct {
	sent  bool
	value T
}

// UnmarshalJSON is called if the value was sent.
func (n *nullable[T]) UnmarshalJSON(text []byte) error {
	n.sent = true
	return json.Unmarshal(text, &n.value)
}

// Schema implements [huma.SchemaProvider].
func (n nullable[T]) Schema(r huma.Registry) *huma.Schema {
	s := *huma.SchemaFromType(r, reflect.TypeFor[T]())
	s.Nullable = true
	return &s
}

func (s *Shop) orderChanges() {
	changes := []int{http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed, http.StatusPreconditionRequired}
	register(s, call{
		id: "put-order", method: http.MethodPut, path: "/orders/{id}", tag: "orders", summary: "Order products under an id of the client's, or replace an order",
		refusals: append(changes, http.StatusGone, http.StatusCreated),
	}, s.putOrder)
	register(s, call{
		id: "patch-order", method: http.MethodPatch, path: "/orders/{id}", tag: "orders", summary: "Change a part of an order",
		once: inOneCommit, refusals: changes,
	}, s.patchOrder)
	register(s, call{
		id: "delete-order", method: http.MethodDelete, path: "/orders/{id}", tag: "orders", summary: "Delete an order",
		status: http.StatusNoContent, refusals: []int{http.StatusConflict, http.StatusPreconditionFailed},
	}, s.deleteOrder)
}

func (s *Shop) putOrder(ctx context.Context, in *struct {
	ID          uuid.UUID `path:"id" format:"uuid"`
	IfMatch     string    `header:"If-Match" doc:"The ETag of the order that the client has seen" example:"\"1\""`
	IfNoneMatch string    `header:"If-None-Match" enum:"*" doc:"* means that there is no such order yet"`
	Body        NewOrder
},
) (out *foundOrder, err error) {
	if in.IfMatch == "" && in.IfNoneMatch == "" {
		return nil, unconditional(nil, "send If-None-Match: * to make the order, or If-Match with its ETag to replace it")
	}
	err = s.db.Write(ctx, func(tx database.Tx) (err error) {
		if in.IfNoneMatch != "" {
			out, err = s.createNamed(ctx, tx, newOrder(in.ID, in.Body))
		} else {
			out, err = s.changeOrder(ctx, tx, in.ID, in.IfMatch, func(*Order) NewOrder { return in.Body })
		}
		return err
	})
	return out, err
}

// createNamed makes an order whose id is the client's. The row comes first: of two that make it at once one waits here
// for the other, and takes no stock.
func (s *Shop) createNamed(ctx context.Context, tx database.Tx, o *Order) (*foundOrder, error) {
	want := NewOrder{o.Lines, o.Note}
	inserted, err := insertOrder(ctx, tx, nil, o)
	if err != nil {
		return nil, err
	}
	if !inserted {
		there, err := lockOrder(ctx, tx, o.ID)
		switch {
		case err != nil:
			return nil, err
		case there.State == "deleted":
			return nil, refuse(http.StatusGone, "order_deleted", "there was an order "+o.ID+", which was deleted")
		case !there.is(want):
			return nil, refuse(http.StatusPreconditionFailed, "order_exists", "there is another order "+o.ID+"; its ETag is "+there.etag())
		}
		return found(there), nil
	}
	if o.Total, o.Currency, err = moveStock(ctx, tx, nil, o.Lines); err != nil {
		return nil, err
	}
	if err := storeOrder(ctx, tx, o); err != nil {
		return nil, err
	}
	out := found(o)
	out.Status = http.StatusCreated
	return out, s.sendPlaced(ctx, tx, o)
}

func (s *Shop) patchOrder(ctx context.Context, in *struct {
	ID      uuid.UUID  `path:"id" format:"uuid"`
	IfMatch string     `header:"If-Match" doc:"The ETag of the order that the client has seen" example:"\"1\""`
	Body    OrderPatch `contentType:"application/merge-patch+json"`
},
) (*foundOrder, error) {
	if in.IfMatch == "" {
		return nil, unconditional(semel.FromContext(ctx), "send If-Match with the ETag of the order that you have seen")
	}
	if in.Body.Lines.sent && in.Body.Lines.value == nil {
		return nil, invalid("body.lines", "an order without lines is none: cancel or delete it")
	}
	return s.changeOrder(ctx, txOf(ctx), in.ID, in.IfMatch, in.Body.in)
}

// changeOrder makes an order what it is to be, if the client has seen it as it is now.
func (s *Shop) changeOrder(ctx context.Context, tx database.Tx, id uuid.UUID, ifMatch string, wish func(*Order) NewOrder) (*foundOrder, error) {
	o, err := s.lockedOrder(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	want := wish(o)
	switch {
	case o.is(want):
		return found(o), nil
	case !matches(ifMatch, o.etag(), strongly):
		return nil, changed("order", o.etag())
	case o.State != "pending":
		return nil, refuse(http.StatusConflict, "order_not_pending", "the order is "+o.State+", and can be changed no more")
	}
	if o.Total, o.Currency, err = moveStock(ctx, tx, o.Lines, want.Lines); err != nil {
		return nil, err
	}
	o.Lines, o.Note = want.Lines, want.Note
	o.version++
	return found(o), storeOrder(ctx, tx, o)
}

// deleteOrder gives the order's stock back. A repeat finds nothing to delete, which is what its client wanted.
func (s *Shop) deleteOrder(ctx context.Context, in *struct {
	ID      uuid.UUID `path:"id" format:"uuid"`
	IfMatch string    `header:"If-Match" doc:"The ETag of the order that the client has seen, if that matters" example:"\"1\""`
},
) (*struct{}, error) {
	return nil, s.db.Write(ctx, func(tx database.Tx) error {
		o, err := lockOrder(ctx, tx, in.ID.String())
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case err != nil:
			return err
		case o.State == "deleted":
			return nil
		case in.IfMatch != "" && !matches(in.IfMatch, o.etag(), strongly):
			return changed("order", o.etag())
		case o.State != "pending" && o.State != "cancelled":
			return refuse(http.StatusConflict, "illegal_move", "the order is "+o.State+": cancel it first")
		}
		if o.State == "pending" {
			if _, _, err := moveStock(ctx, tx, o.Lines, nil); err != nil {
				return err
			}
		}
		o.State = "deleted"
		o.version++
		return storeOrder(ctx, tx, o)
	})
}

// lockedOrder finds an order that was not deleted, and has it wait for this transaction.
func (s *Shop) lockedOrder(ctx context.Context, tx database.Tx, id uuid.UUID) (*Order, error) {
	o, err := lockOrder(ctx, tx, id.String())
	if errors.Is(err, sql.ErrNoRows) || err == nil && o.State == "deleted" {
		return nil, refuse(http.StatusNotFound, "order_not_found", "there is no order "+id.String())
	}
	return o, err
}

// lockOrder finds an order and lets nobody else change it before the transaction ends. (SELECT … FOR UPDATE is not
// SQLite's.) An order comes before the stock, in all transactions.
func lockOrder(ctx context.Context, tx database.Tx, id string) (*Order, error) {
	o, err := scanOrder(tx.QueryRow(ctx, "UPDATE orders SET version = version WHERE tenant = $1 AND id = $2 RETURNING "+orderColumns, principal(ctx).Tenant, id))
	if err != nil {
		return nil, fmt.Errorf("find the order: %w", err)
	}
	return o, nil
}

// storeOrder stores what can change of an order that is locked.
func storeOrder(ctx context.Context, tx database.Tx, o *Order) error {
	_, err := tx.Exec(ctx, "UPDATE orders SET state = $1, version = $2, currency = $3, total = $4, lines = $5, note = $6 WHERE tenant = $7 AND id = $8",
		o.State, o.version, o.Currency, o.Total, encode(o.Lines), o.Note, principal(ctx).Tenant, o.ID)
	if err != nil {
		return fmt.Errorf("store the order: %w", err)
	}
	return nil
}
