package shop

// A call without an effect, beside one that has one. To calculate a price changes nothing: it needs no key, no record
// and no transaction, and may be asked for as often as one likes. A key there would only fill the store. To save a
// price makes a row: that call has a key, and the same calculation within its transaction.
//
// Money is whole minor units. A discount is a share in basis points of a whole amount, rounded half up to a whole minor
// unit, once for each line and once for the coupon; so the parts add up to the total, in whatever order they are added.

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/examples/shop/database"
)

// PriceQuestion asks what something costs.
type PriceQuestion struct {
	Lines  []Line `json:"lines" minItems:"1" maxItems:"100"`
	Coupon string `json:"coupon,omitempty" maxLength:"32" pattern:"^[^\\x00]*$" example:"WELCOME"`
}

// PricedLine is what a line costs. Net is gross less discount.
type PricedLine struct {
	Line
	UnitPrice int64 `json:"unit_price" example:"2450"`
	Gross     int64 `json:"gross" example:"24500"`
	Discount  int64 `json:"discount" doc:"For the quantity" example:"1225"`
	Net       int64 `json:"net" example:"23275"`
}

// Price is what something costs, in minor units of the currency.
type Price struct {
	Lines    []PricedLine `json:"lines"`
	Subtotal int64        `json:"subtotal" doc:"The sum of all net amounts" example:"23275"`
	Coupon   string       `json:"coupon,omitempty" example:"WELCOME"`
	Discount int64        `json:"discount" doc:"For the coupon" example:"2909"`
	Total    int64        `json:"total" example:"20366"`
	Currency string       `json:"currency" doc:"ISO 4217" example:"EUR"`
}

// SavedPrice is a price that was given to somebody.
type SavedPrice struct {
	ID string `json:"id" format:"uuid"`
	Price
	Created time.Time `json:"created"`
}

type priceAnswer struct{ Body Price }

type savedPrice struct {
	Location string `header:"Location"`
	Body     SavedPrice
}

func (s *Shop) pricing() {
	register(s, call{
		id: "calculate-price", method: http.MethodPost, path: "/pricing/calculate", tag: "pricing", summary: "Calculate what something costs",
	}, s.calculatePrice)
	register(s, call{
		id: "save-price", method: http.MethodPost, path: "/pricing/save", tag: "pricing", summary: "Save what something costs now",
		status: http.StatusCreated, once: inOneCommit,
	}, s.savePrice)
	register(s, call{
		id: "get-price", method: http.MethodGet, path: "/pricing/{id}", tag: "pricing", summary: "Look at a saved price",
		refusals: []int{http.StatusNotFound},
	}, s.getPrice)
}

func (s *Shop) calculatePrice(ctx context.Context, in *struct{ Body PriceQuestion }) (*priceAnswer, error) {
	p, err := priceOf(ctx, s.db, in.Body)
	if err != nil {
		return nil, err
	}
	return &priceAnswer{*p}, nil
}

func (s *Shop) savePrice(ctx context.Context, in *struct{ Body PriceQuestion }) (*savedPrice, error) {
	op, tx, asked := semel.FromContext(ctx), txOf(ctx), encode(in.Body)
	// The operation may have been forgotten, and its price be there.
	earlier, askedEarlier, err := findPrice(ctx, tx, "row_key = $1", op.Key("row"))
	switch {
	case err == nil && askedEarlier != asked:
		return nil, reused()
	case err == nil:
		return earlier, nil
	case !errors.Is(err, sql.ErrNoRows):
		return nil, err
	}
	p, err := priceOf(ctx, tx, in.Body)
	if err != nil {
		return nil, err
	}
	saved := SavedPrice{uuid.Must(uuid.NewV7()).String(), *p, now()}
	_, err = tx.Exec(ctx, "INSERT INTO saved_prices (tenant, id, row_key, asked, price, created) VALUES ($1, $2, $3, $4, $5, $6)",
		principal(ctx).Tenant, saved.ID, op.Key("row"), asked, encode(p), saved.Created.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("save the price: %w", err)
	}
	return located(saved), nil
}

func (s *Shop) getPrice(ctx context.Context, in *struct {
	ID uuid.UUID `path:"id" format:"uuid"`
},
) (*savedPrice, error) {
	found, _, err := findPrice(ctx, s.db, "tenant = $1 AND id = $2", principal(ctx).Tenant, in.ID.String())
	if errors.Is(err, sql.ErrNoRows) {
		return nil, refuse(http.StatusNotFound, "price_not_found", "there is no price "+in.ID.String())
	}
	return found, err
}

func located(p SavedPrice) *savedPrice {
	return &savedPrice{Location: base + "/pricing/" + p.ID, Body: p}
}

func findPrice(ctx context.Context, q database.Queries, where string, args ...any) (found *savedPrice, asked string, err error) {
	var (
		p       SavedPrice
		price   string
		created int64
	)
	err = q.QueryRow(ctx, "SELECT id, asked, price, created FROM saved_prices WHERE "+where, args...).Scan(&p.ID, &asked, &price, &created)
	if err == nil {
		err = json.Unmarshal([]byte(price), &p.Price)
	}
	if err != nil {
		return nil, "", fmt.Errorf("find the price: %w", err)
	}
	p.Created = time.UnixMilli(created).UTC()
	return located(p), asked, nil
}

// priceOf calculates what something costs now.
func priceOf(ctx context.Context, q database.Queries, of PriceQuestion) (*Price, error) {
	p := &Price{Coupon: of.Coupon, Currency: currency}
	for i, l := range of.Lines {
		var price, share int64
		err := q.QueryRow(ctx, `SELECT price, COALESCE((SELECT MAX(share) FROM price_breaks WHERE product = products.id AND least <= $2), 0)
			FROM products WHERE id = $1`, l.Product, l.Quantity).Scan(&price, &share)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, invalid(fmt.Sprintf("body.lines[%d].product", i), "there is no product "+l.Product)
		}
		if err != nil {
			return nil, fmt.Errorf("find the price of %s: %w", l.Product, err)
		}
		line := PricedLine{Line: l, UnitPrice: price, Gross: l.Quantity * price}
		line.Discount = shareOf(line.Gross, share)
		line.Net = line.Gross - line.Discount
		p.Lines = append(p.Lines, line)
		p.Subtotal += line.Net
	}
	if of.Coupon != "" {
		var share, amount int64
		err := q.QueryRow(ctx, "SELECT share, amount FROM coupons WHERE code = $1", of.Coupon).Scan(&share, &amount)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, invalid("body.coupon", "there is no coupon "+of.Coupon)
		}
		if err != nil {
			return nil, fmt.Errorf("find the coupon: %w", err)
		}
		p.Discount = min(shareOf(p.Subtotal, share)+amount, p.Subtotal)
	}
	p.Total = p.Subtotal - p.Discount
	return p, nil
}

// shareOf returns a share in basis points of an amount that is not negative, rounded half up. It is exact for amounts
// below 9·10¹⁴, which are 9 trillion of most currencies.
func shareOf(amount, share int64) int64 { return (amount*share + 5000) / 10000 }
