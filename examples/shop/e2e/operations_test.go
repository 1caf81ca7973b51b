package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/examples/shop/shop"
)

func TestWhoHasLostAnAnswerAsksWhatBecameOfTheRequest(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		key := s.newKey()
		if r := s.call(0, "GET", "/operations", key, nil, nil); r.Status != http.StatusNotFound {
			t.Fatal(r)
		}
		first := s.call(0, "POST", "/orders", key, shop.NewOrder{Lines: []shop.Line{{Product: "pen-1", Quantity: 1}}}, nil)
		told := s.call(1, "GET", "/operations", key, nil, nil)
		o := decode[shop.Operation](t, told)
		if o.State != "succeeded" || o.Result == nil || o.Result.Status != http.StatusCreated || o.Result.Location != first.Header.Get("Location") {
			t.Fatal(told)
		}
		if r := s.call(0, "GET", strings.TrimPrefix(o.Links.Self, "/api/v1"), "", nil, nil); decode[shop.Operation](t, r).State != "succeeded" {
			t.Error(r)
		}
		result := s.call(1, "GET", strings.TrimPrefix(o.Result.Href, "/api/v1"), "", nil, nil)
		if result.String() != first.String() || result.Header.Get("Idempotent-Replayed") != "true" {
			t.Error(result, result.Header)
		}
	})
}

func TestAKeyBelongsToItsUser(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		key, order, made := s.newKey(), shop.NewOrder{Lines: []shop.Line{{Product: "pen-1", Quantity: 1}}}, map[string]bool{}
		for _, who := range [][2]string{{"acme", "alice"}, {"acme", "bob"}, {"other", "alice"}} {
			token, err := s.host.Keys.Token(who[0], who[1], time.Hour)
			must(t, err)
			as := http.Header{"Authorization": {"Bearer " + token}}
			r := s.call(0, "POST", "/orders", key, order, as)
			if r.Status != http.StatusCreated || r.Header.Get("Idempotent-Replayed") != "" {
				t.Errorf("%s: %s", who, r)
			}
			made[r.Header.Get("Location")] = true
			order.Note = who[1] + "'s next" // no mismatch either: they are other operations
		}
		if len(made) != 3 {
			t.Errorf("three users with one key made %d orders", len(made))
		}
	})
}
