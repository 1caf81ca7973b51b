package e2e

import (
	"net/http"
	"testing"

	"github.com/semelhq/semel/examples/shop/shop"
)

func TestAChargeIsMadeOnceUnderItsClientsName(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		want := shop.NewCharge{Account: "acc-1", Amount: 1290, Currency: "EUR", Description: "Delivery"}
		statuses := atOnce(t, 12, func(i int) (*reply, error) { return s.try(i, "PUT", "/charges/delivery-17", "", want, nil) })
		if statuses[http.StatusCreated] != 1 || statuses[http.StatusOK] != 11 {
			t.Fatal(statuses)
		}
		first := s.expect(http.StatusOK, s.call(0, "PUT", "/charges/delivery-17", "", want, nil))
		if found := s.expect(http.StatusOK, s.call(1, "GET", "/charges/delivery-17", "", nil, nil)); found.String() != first.String() {
			t.Fatal(found, first)
		}
		other := want
		other.Amount = 1291
		s.expect(http.StatusConflict, s.call(0, "PUT", "/charges/delivery-17", "", other, nil), "charge_exists")
		s.expect(http.StatusCreated, s.call(0, "PUT", "/charges/delivery-18", "", want, nil)) // it may be meant twice
		s.expect(http.StatusNotFound, s.call(0, "GET", "/charges/delivery-19", "", nil, nil), "charge_not_found")
		globex := http.Header{"Authorization": {s.bearer("globex", "bob")}}
		s.expect(http.StatusNotFound, s.call(0, "GET", "/charges/delivery-17", "", nil, globex), "charge_not_found")
		s.expect(http.StatusCreated, s.call(0, "PUT", "/charges/delivery-17", "", other, globex))
	})
}
