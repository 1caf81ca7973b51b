package e2e

import (
	"net/http"
	"testing"

	"github.com/semelhq/semel/examples/shop/host"
	"github.com/semelhq/semel/examples/shop/shop"
)

// The last line of defence, when the record of an operation has expired or was lost: what the call has made names it.
func TestALateRepeatFindsWhatItsForgottenOperationHasMade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]host.Config{"SQLite": {}, "PostgreSQL": {Database: newDatabase(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, c)
			toConfirm, _ := s.ordered(orderOf("book-1", 1))
			toCancel, _ := s.ordered(orderOf("book-1", 1))
			const points = "/accounts/acc-1/points"
			for _, c := range []struct {
				path        string
				body, other any // other is nil if any body is taken for the first
				status      int
			}{
				{"/orders", orderOf("mug-1", 3), nil, http.StatusCreated},
				{toConfirm + "/confirm", nil, nil, http.StatusOK},
				{toCancel + "/cancel", nil, nil, http.StatusOK},
				{points, shop.NewEntry{Amount: 7}, shop.NewEntry{Amount: 8}, http.StatusCreated},
				{"/bulk/items", batchOf("A book"), batchOf("A pen"), http.StatusOK},
				{"/pricing/save", shop.PriceQuestion{Lines: orderOf("pen-1", 2).Lines}, shop.PriceQuestion{Lines: orderOf("pen-1", 3).Lines}, http.StatusCreated},
			} {
				key := s.newKey()
				first := s.expect(c.status, s.call(0, "POST", c.path, key, c.body, nil))
				s.forget(t, key)
				late := s.call(0, "POST", c.path, key, c.body, nil)
				if late.Header.Get("Idempotent-Replayed") != "" || late.String() != first.String() || late.Header.Get("Location") != first.Header.Get("Location") {
					t.Errorf("%s: %s, then %s", c.path, first, late)
				}
				if c.other != nil {
					s.forget(t, key)
					s.expect(http.StatusUnprocessableEntity, s.call(0, "POST", c.path, key, c.other, nil), "key_reused")
				}
			}
			books, mugs, page := s.stock("book-1"), s.stock("mug-1"), decode[pointsOf](t, s.call(0, "GET", points, "", nil, nil))
			if books != 999 || mugs != 997 || page.Balance != 7 || page.Count != 1 {
				t.Error(books, mugs, page)
			}
		})
	}
}

func batchOf(name string) any {
	return map[string]any{"items": []shop.BulkItem{{ClientItemID: "sku-1", Name: name, Price: 100}}}
}
