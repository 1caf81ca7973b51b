package shop

// Key and constraint. An order is made in one transaction, together with the answer under the client's key: there is one
// commit, and if the process dies before it, nothing has happened. Stock is taken by one conditional update a line, so
// that two orders never sell the last item twice.

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/examples/shop/database"
)

// inOneCommit is the policy of calls whose effects are all in the database.
var inOneCommit = &semel.Policy{OneCommit: true}

// Line is a product in an order.
type Line struct {
	Product  string `json:"product" minLength:"1" maxLength:"64" doc:"The product's id" example:"book-1"`
	Quantity int64  `json:"quantity" minimum:"1" maximum:"1000"`
}

// NewOrder is what a client orders.
type NewOrder struct {
	Lines []Line `json:"lines" minItems:"1" maxItems:"100"`
	Note  string `json:"note,omitempty" maxLength:"500"`
}

// Order is an order as it stands. Its states are: pending, confirmed, cancelled, and those of its saga (see place.go).
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

type foundOrder struct {
	ETag string `header:"ETag"`
	Body Order
}

func (s *Shop) orders() {
	register(s, call{
		id: "create-order", method: http.MethodPost, path: "/orders", tag: "orders", summary: "Order products",
		status: http.StatusCreated, once: inOneCommit, refusals: []int{http.StatusConflict},
	}, s.createOrder)
	register(s, call{
		id: "get-order", method: http.MethodGet, path: "/orders/{id}", tag: "orders", summary: "Look at an order",
		refusals: []int{http.StatusNotFound},
	}, s.getOrder)
}

func (s *Shop) createOrder(ctx context.Context, in *struct{ Body NewOrder }) (*createdOrder, error) {
	op, tx := semel.FromContext(ctx), txOf(ctx)
	o := Order{ID: uuid.Must(uuid.NewV7()).String(), State: "pending", Lines: in.Body.Lines, Note: in.Body.Note, Created: now(), version: 1}
	// The operation may have been forgotten, and its order be there.
	earlier, err := findOrder(ctx, tx, "row_key = $1", op.Key("row"))
	switch {
	case err == nil:
		return created(earlier), nil
	case !errors.Is(err, sql.ErrNoRows):
		return nil, err
	}
	if o.Total, o.Currency, err = takeStock(ctx, tx, o.Lines); err != nil {
		return nil, err
	}
	s.crash("orders.create.taken")
	if err := insertOrder(ctx, tx, op.Key("row"), &o); err != nil {
		return nil, err
	}
	if err := s.send(ctx, tx, Event{Type: OrderPlaced, ID: o.ID, Amount: o.Total, Currency: o.Currency}); err != nil {
		return nil, err
	}
	s.crash("orders.create.inserted")
	return created(&o), nil
}

func created(o *Order) *createdOrder {
	return &createdOrder{Location: base + "/orders/" + o.ID, ETag: o.etag(), Body: *o}
}

func (s *Shop) getOrder(ctx context.Context, in *struct {
	ID string `path:"id" format:"uuid"`
},
) (*foundOrder, error) {
	o, err := findOrder(ctx, s.db, "tenant = $1 AND id = $2", principal(ctx).Tenant, in.ID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, refuse(http.StatusNotFound, "order_not_found", "there is no order "+in.ID)
	}
	if err != nil {
		return nil, err
	}
	return &foundOrder{ETag: o.etag(), Body: *o}, nil
}

// takeStock takes what the lines ask for, and returns what it costs.
func takeStock(ctx context.Context, tx database.Tx, lines []Line) (total int64, currency string, err error) {
	// In one order for all, or two transactions could wait for each other.
	lines = slices.SortedFunc(slices.Values(lines), func(a, b Line) int { return strings.Compare(a.Product, b.Product) })
	for _, l := range lines {
		var price int64
		err := tx.QueryRow(ctx, "UPDATE products SET stock = stock - $1 WHERE id = $2 AND stock >= $1 RETURNING price", l.Quantity, l.Product).Scan(&price)
		if errors.Is(err, sql.ErrNoRows) {
			semel.FromContext(ctx).Release() // nothing has happened, and there may be more of it later
			return 0, "", refuse(http.StatusConflict, "out_of_stock", fmt.Sprintf("there are not %d of %s", l.Quantity, l.Product))
		}
		if err != nil {
			return 0, "", fmt.Errorf("take stock: %w", err)
		}
		total += l.Quantity * price
	}
	return total, "EUR", nil
}

func insertOrder(ctx context.Context, tx database.Tx, rowKey string, o *Order) error {
	lines, err := json.Marshal(o.Lines)
	if err != nil {
		return fmt.Errorf("encode the lines: %w", err)
	}
	_, err = tx.Exec(ctx, "INSERT INTO orders (tenant, id, row_key, state, version, currency, total, lines, note, created) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
		principal(ctx).Tenant, o.ID, rowKey, o.State, o.version, o.Currency, o.Total, string(lines), o.Note, o.Created.UnixMilli())
	if err != nil {
		return fmt.Errorf("insert the order: %w", err)
	}
	return nil
}

func findOrder(ctx context.Context, q database.Queries, where string, args ...any) (*Order, error) {
	var (
		o       Order
		lines   string
		created int64
	)
	err := q.QueryRow(ctx, "SELECT id, state, version, currency, total, lines, note, created FROM orders WHERE "+where, args...).
		Scan(&o.ID, &o.State, &o.version, &o.Currency, &o.Total, &lines, &o.Note, &created)
	if err == nil {
		err = json.Unmarshal([]byte(lines), &o.Lines)
	}
	if err != nil {
		return nil, fmt.Errorf("find the order: %w", err)
	}
	o.Created = time.UnixMilli(created).UTC()
	return &o, nil
}

// etag is strong: an order's version changes with each change.
func (o *Order) etag() string { return fmt.Sprintf(`"%d"`, o.version) }

// now is the time in the precision in which it is stored.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
