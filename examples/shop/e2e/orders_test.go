package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel/examples/shop/shop"
)

func TestAnOrderIsMadeOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		key, order := s.newKey(), shop.NewOrder{Lines: []shop.Line{{Product: "book-1", Quantity: 2}, {Product: "mug-1", Quantity: 1}}}
		first := s.call(0, "POST", "/orders", key, order, nil)
		if first.Status != http.StatusCreated {
			t.Fatal(first)
		}
		made := decode[shop.Order](t, first)
		if made.Total != 2*2450+1290 || made.State != "pending" || first.Header.Get("Location") != "/api/v1/orders/"+made.ID {
			t.Fatal(first, first.Header)
		}
		again := s.call(1, "POST", "/orders", key, order, nil)
		if again.String() != first.String() || again.Header.Get("Idempotent-Replayed") != "true" || again.Header.Get("ETag") != first.Header.Get("ETag") {
			t.Fatal(again, again.Header)
		}
		order.Note = "another one"
		if other := s.call(1, "POST", "/orders", key, order, nil); other.Status != http.StatusUnprocessableEntity {
			t.Fatal(other)
		}
		if found := s.call(1, "GET", "/orders/"+made.ID, "", nil, nil); found.String() != "200 "+strings.TrimSpace(string(first.Body)) {
			t.Fatal(found)
		}
	})
}

func TestAnInvalidOrderNamesItsField(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		key := s.newKey()
		wrong := s.call(0, "POST", "/orders", key, `{"lines":[{"product":"book-1","quantity":1.5}]}`, nil)
		if wrong.Status != http.StatusBadRequest || !strings.Contains(wrong.String(), "body.lines[0].quantity") {
			t.Fatal(wrong)
		}
		if right := s.call(1, "POST", "/orders", key, `{"lines":[{"product":"book-1","quantity":1}]}`, nil); right.Status != http.StatusCreated {
			t.Fatal(right)
		}
		if none := s.call(0, "POST", "/orders", "", `{"lines":[{"product":"book-1","quantity":1}]}`, nil); none.Status != http.StatusBadRequest || none.Header.Get("Idempotency-Code") != "IDEMPOTENCY_KEY_REQUIRED" {
			t.Fatal(none, none.Header)
		}
	})
}

func TestWhatIsOutOfStockMayBeOrderedAgainUnderItsKey(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		key, order := s.newKey(), shop.NewOrder{Lines: []shop.Line{{Product: "book-1", Quantity: 600}}}
		if r := s.call(0, "POST", "/orders", s.newKey(), order, nil); r.Status != http.StatusCreated {
			t.Fatal(r)
		}
		for range 2 {
			r := s.call(0, "POST", "/orders", key, order, nil)
			if r.Status != http.StatusConflict || !strings.Contains(r.String(), "out_of_stock") || r.Header.Get("Idempotent-Replayed") != "" {
				t.Fatal(r, r.Header)
			}
		}
		order.Lines[0].Quantity = 400
		if r := s.call(1, "POST", "/orders", key, order, nil); r.Status != http.StatusCreated {
			t.Fatal(r)
		}
	})
}
