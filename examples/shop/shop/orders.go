package shop

// Key and constraint. An order is made in one transaction, together with the answer under the client's key: there is
// one commit, and if the process dies before it, nothing has happened. Stock is taken by one conditional update a
// product (see stock.go), so that two orders never sell the last item twice.
//
// What changes an order is in orderchanges.go, what moves it on is in ordermoves.go.

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/examples/shop/database"
)

// inOneCommit is the policy of calls whose effects are all in the database. One that fails has had none, so its key may
// be tried again. The guard can't know that: handlers ask for keys, which might be for calls elsewhere.
var inOneCommit = &semel.Policy{OneCommit: true, OnError: semel.ReleaseErrors}

// Line is a product in an order.
type Line struct {
	Product  string `json:"product" minLength:"1" maxLength:"64" pattern:"^[^\\x00]*$" doc:"The product's id" example:"book-1"`
	Quantity int64  `json:"quantity" minimum:"1" maximum:"1000"`
}

// NewOrder is what a client orders. It names no prices: those are the shop's.
type NewOrder struct {
	Lines []Line `json:"lines" minItems:"1" maxItems:"100"`
	Note  string `json:"note,omitempty" maxLength:"500" pattern:"^[^\\x00]*$"`
}

// Order is an order as it stands. Its states are: pending, confirmed, cancelled, deleted, and those of its saga (see
// place.go).
type Order struct {
	ID       string    `json:"id" format:"uuid"`
	State    string    `json:"state" example:"pending"`
	Lines    []Line    `json:"lines"`
	Note     string    `json:"note,omitempty"`
	Total    int64     `json:"total" doc:"In minor units of the currency" example:"4900"`
	Currency string    `json:"currency" doc:"ISO 4217" example:"EUR"`
	Created  time.Time `json:"created"`
	version  int64
}

type createdOrder struct {
	Location string `header:"Location"`
	ETag     string `header:"ETag"`
	Body     Order
}

// foundOrder has no body if its status is 304.
type foundOrder struct {
	Status int
	ETag   string `header:"ETag"`
	Body   Order
}

func (s *Shop) orders() {
	register(s, call{
		id: "create-order", method: http.MethodPost, path: "/orders", tag: "orders", summary: "Order products",
		status: http.StatusCreated, once: inOneCommit, refusals: []int{http.StatusConflict},
	}, s.createOrder)
	register(s, call{
		id: "list-orders", method: http.MethodGet, path: "/orders", tag: "orders", summary: "List orders, the newest first",
	}, s.listOrders)
	register(s, call{
		id: "get-order", method: http.MethodGet, path: "/orders/{id}", tag: "orders", summary: "Look at an order",
		refusals: []int{http.StatusNotFound, http.StatusNotModified},
	}, s.getOrder)
	register(s, call{
		id: "list-products", method: http.MethodGet, path: "/products", tag: "orders", summary: "List what can be ordered",
	}, s.listProducts)
	s.orderChanges()
	s.orderMoves()
}

func (s *Shop) createOrder(ctx context.Context, in *struct{ Body NewOrder }) (*createdOrder, error) {
	op, tx := semel.FromContext(ctx), txOf(ctx)
	// The operation may have been forgotten, and its order be there.
	earlier, err := findOrder(ctx, tx, "row_key = $1", op.Key("row"))
	switch {
	case err == nil:
		return created(earlier), nil
	case !errors.Is(err, sql.ErrNoRows):
		return nil, err
	}
	o := newOrder(uuid.Must(uuid.NewV7()), in.Body)
	if o.Total, o.Currency, err = moveStock(ctx, tx, nil, o.Lines); err != nil {
		return nil, err
	}
	s.crash("orders.create.taken")
	if _, err := insertOrder(ctx, tx, op.Key("row"), o); err != nil {
		return nil, err
	}
	s.crash("orders.create.inserted")
	return created(o), s.sendPlaced(ctx, tx, o)
}

func (s *Shop) sendPlaced(ctx context.Context, tx database.Tx, o *Order) error {
	return s.send(ctx, tx, Event{Type: OrderPlaced, ID: o.ID, Amount: o.Total, Currency: o.Currency})
}

func newOrder(id uuid.UUID, of NewOrder) *Order {
	return &Order{ID: id.String(), State: "pending", Lines: of.Lines, Note: of.Note, Created: now(), version: 1}
}

func created(o *Order) *createdOrder {
	return &createdOrder{Location: base + "/orders/" + o.ID, ETag: o.etag(), Body: *o}
}

func (s *Shop) getOrder(ctx context.Context, in *struct {
	ID          uuid.UUID `path:"id" format:"uuid"`
	IfNoneMatch string    `header:"If-None-Match" doc:"The ETag of the order that the client has" example:"\"1\""`
},
) (*foundOrder, error) {
	o, err := s.order(ctx, s.db, in.ID)
	if err != nil {
		return nil, err
	}
	if matches(in.IfNoneMatch, o.etag(), weakly) {
		return &foundOrder{Status: http.StatusNotModified, ETag: o.etag()}, nil
	}
	return found(o), nil
}

func found(o *Order) *foundOrder { return &foundOrder{Status: http.StatusOK, ETag: o.etag(), Body: *o} }

type orderPage struct {
	Link string `header:"Link" doc:"rel=\"next\" is the next page"`
	Body struct {
		Orders []Order `json:"orders"`
		Next   string  `json:"next,omitempty" doc:"The cursor of the next page; missing on the last one"`
	}
}

// orderCursor is the last order of a page.
type orderCursor struct {
	Created int64
	ID      string
}

func (s *Shop) listOrders(ctx context.Context, in *struct{ Page }) (*orderPage, error) {
	after := orderCursor{Created: 1<<63 - 1}
	if err := in.read(&after); err != nil {
		return nil, err
	}
	orders, err := findOrders(ctx, s.db, "tenant = $1 AND state <> 'deleted' AND (created, id) < ($2, $3) ORDER BY created DESC, id DESC LIMIT $4",
		principal(ctx).Tenant, after.Created, after.ID, in.Limit+1)
	if err != nil {
		return nil, err
	}
	out := &orderPage{}
	if len(orders) > in.Limit {
		orders = orders[:in.Limit]
		last := orders[in.Limit-1]
		out.Body.Next, out.Link = in.next("/orders", orderCursor{last.Created.UnixMilli(), last.ID})
	}
	out.Body.Orders = orders
	return out, nil
}

// order finds an order that was not deleted.
func (s *Shop) order(ctx context.Context, q database.Queries, id uuid.UUID) (*Order, error) {
	o, err := findOrder(ctx, q, "tenant = $1 AND id = $2 AND state <> 'deleted'", principal(ctx).Tenant, id.String())
	if errors.Is(err, sql.ErrNoRows) {
		return nil, refuse(http.StatusNotFound, "order_not_found", "there is no order "+id.String())
	}
	return o, err
}

// insertOrder reports false if the tenant has an order of that id. The row key is nil if the client has named the
// order.
func insertOrder(ctx context.Context, tx database.Tx, rowKey any, o *Order) (inserted bool, err error) {
	n, err := tx.Exec(ctx, `INSERT INTO orders (tenant, id, row_key, state, version, currency, total, lines, note, created)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (tenant, id) DO NOTHING`,
		principal(ctx).Tenant, o.ID, rowKey, o.State, o.version, o.Currency, o.Total, encode(o.Lines), o.Note, o.Created.UnixMilli())
	if err != nil {
		return false, fmt.Errorf("insert the order: %w", err)
	}
	return n > 0, nil
}

const orderColumns = "id, state, version, currency, total, lines, note, created"

func findOrder(ctx context.Context, q database.Queries, where string, args ...any) (*Order, error) {
	o, err := scanOrder(q.QueryRow(ctx, "SELECT "+orderColumns+" FROM orders WHERE "+where, args...))
	if err != nil {
		return nil, fmt.Errorf("find the order: %w", err)
	}
	return o, nil
}

func findOrders(ctx context.Context, q database.Queries, where string, args ...any) ([]Order, error) {
	orders, err := scanAll(scanOrder)(q.Query(ctx, "SELECT "+orderColumns+" FROM orders WHERE "+where, args...))
	if err != nil {
		return nil, fmt.Errorf("find orders: %w", err)
	}
	return orders, nil
}

func scanOrder(row scanner) (*Order, error) {
	var (
		o       Order
		lines   string
		created int64
	)
	err := row.Scan(&o.ID, &o.State, &o.version, &o.Currency, &o.Total, &lines, &o.Note, &created)
	if err == nil {
		err = json.Unmarshal([]byte(lines), &o.Lines)
	}
	o.Created = time.UnixMilli(created).UTC()
	return &o, err
}

// etag is strong: an order's version changes with each change, and its id is never used again.
func (o *Order) etag() string { return fmt.Sprintf(`"%d"`, o.version) }

// is reports whether an order is what a client wants it to be.
func (o *Order) is(want NewOrder) bool {
	return o.Note == want.Note && slices.Equal(o.Lines, want.Lines)
}

// now is the time in the precision in which it is stored.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
