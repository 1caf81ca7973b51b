package shop

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/examples/shop/database"
)

// Product is what can be ordered.
type Product struct {
	ID       string `json:"id" example:"book-1"`
	Name     string `json:"name" example:"A book"`
	Price    int64  `json:"price" doc:"In minor units of the currency" example:"2450"`
	Currency string `json:"currency" doc:"ISO 4217" example:"EUR"`
	Stock    int64  `json:"stock" doc:"How many are left"`
}

// currency is that of all prices.
const currency = "EUR"

type productList struct {
	Body struct {
		Products []Product `json:"products"`
	}
}

func (s *Shop) listProducts(ctx context.Context, _ *struct{}) (*productList, error) {
	var (
		out productList
		err error
	)
	out.Body.Products, err = scanAll(func(row scanner) (*Product, error) {
		p := Product{Currency: currency}
		return &p, row.Scan(&p.ID, &p.Name, &p.Price, &p.Stock)
	})(s.db.Query(ctx, "SELECT id, name, price, stock FROM products ORDER BY id"))
	if err != nil {
		return nil, fmt.Errorf("list products: %w", err)
	}
	return &out, nil
}

// moveStock takes from the stock what an order has more than before, gives back what it has less, and returns what the
// order costs. Each product is one conditional update: of two orders that want the last item, one changes no row.
// Products are updated in one order by all, or two transactions could wait for each other.
func moveStock(ctx context.Context, tx database.Tx, before, after []Line) (total int64, _ string, err error) {
	more := map[string]int64{}
	for _, l := range before {
		more[l.Product] -= l.Quantity
	}
	for _, l := range after {
		more[l.Product] += l.Quantity
	}
	prices := map[string]int64{}
	for _, product := range slices.Sorted(maps.Keys(more)) {
		var price int64
		err := tx.QueryRow(ctx, "UPDATE products SET stock = stock - $1 WHERE id = $2 AND stock >= $1 RETURNING price", more[product], product).Scan(&price)
		if errors.Is(err, sql.ErrNoRows) {
			err = shortOf(ctx, tx, product, after)
		}
		if err != nil {
			return 0, "", fmt.Errorf("move stock: %w", err)
		}
		prices[product] = price
	}
	for _, l := range after {
		total += l.Quantity * prices[l.Product]
	}
	return total, currency, nil
}

// shortOf says why there is not enough of a product.
func shortOf(ctx context.Context, tx database.Tx, product string, lines []Line) error {
	var left int64
	err := tx.QueryRow(ctx, "SELECT stock FROM products WHERE id = $1", product).Scan(&left)
	if errors.Is(err, sql.ErrNoRows) {
		return unknownProduct(product, lines)
	}
	if err != nil {
		return err
	}
	semel.FromContext(ctx).Release() // nothing has happened, and there may be more of it later
	p := refuse(http.StatusConflict, "out_of_stock", fmt.Sprintf("only %d of %s are left", left, product))
	p.Retryable = true
	return p
}

func unknownProduct(product string, lines []Line) error {
	n := slices.IndexFunc(lines, func(l Line) bool { return l.Product == product })
	return invalid(fmt.Sprintf("body.lines[%d].product", n), "there is no product "+product)
}
