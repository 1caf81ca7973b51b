package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel/examples/shop/shop"
)

func TestAPriceIsCalculatedWithoutAKeyAndSavedWithOne(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		// 10 × 24.50 less 5 % is 232.75; 3 × 1.90 is 5.70; the coupon's 12.5 % of 238.45 is 29.80625.
		ask := shop.PriceQuestion{Lines: []shop.Line{{Product: "book-1", Quantity: 10}, {Product: "pen-1", Quantity: 3}}, Coupon: "WELCOME"}
		calculated := s.expect(http.StatusOK, s.call(0, "POST", "/pricing/calculate", "", ask, nil))
		p := decode[shop.Price](t, calculated)
		if p.Lines[0].Discount != 1225 || p.Subtotal != 23845 || p.Discount != 2981 || p.Total != 20864 || p.Currency != "EUR" {
			t.Fatal(p)
		}
		if again := s.call(1, "POST", "/pricing/calculate", "", ask, nil); again.String() != calculated.String() || again.Header.Get("Idempotency-Key") != "" {
			t.Fatal(again, again.Header)
		}
		// An amount is never more than there is.
		ask.Coupon, ask.Lines = "FIVER", []shop.Line{{Product: "pen-1", Quantity: 1}}
		if p := decode[shop.Price](t, s.call(0, "POST", "/pricing/calculate", "", ask, nil)); p.Discount != 190 || p.Total != 0 {
			t.Fatal(p)
		}
		key := s.newKey()
		ask.Coupon = "NONE"
		if r := s.expect(http.StatusBadRequest, s.call(0, "POST", "/pricing/save", key, ask, nil)); !strings.Contains(r.String(), `"field":"body.coupon"`) {
			t.Fatal(r)
		}
		ask.Coupon = ""
		saved := s.expect(http.StatusCreated, s.call(0, "POST", "/pricing/save", key, ask, nil))
		if again := s.call(1, "POST", "/pricing/save", key, ask, nil); again.String() != saved.String() || again.Header.Get("Idempotent-Replayed") != "true" {
			t.Fatal(again, again.Header)
		}
		path := strings.TrimPrefix(saved.Header.Get("Location"), "/api/v1")
		if found := s.expect(http.StatusOK, s.call(1, "GET", path, "", nil, nil)); string(found.Body) != string(saved.Body) {
			t.Fatal(found, saved)
		}
		s.expect(http.StatusNotFound, s.call(1, "GET", path, "", nil, http.Header{"Authorization": {s.bearer("globex", "bob")}}), "price_not_found")
	})
}
