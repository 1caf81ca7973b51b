package shop

import (
	"net/http"
	"strings"
	"testing"
)

// TestWhatFailsByAnErrorIsWorthAnotherAttempt: the database has failed meanwhile, and the same key is run again.
func TestWhatFailsByAnErrorIsWorthAnotherAttempt(t *testing.T) {
	t.Parallel()
	s, _ := newShop(t)
	for _, c := range []struct{ path, body, table string }{
		{"/bulk/items", `{"items":[{"client_item_id":"sku-1","name":"A book","price":2450}]}`, "items"},
		{"/orders", `{"lines":[{"product":"book-1","quantity":1}]}`, "orders"},
		{"/accounts/a/points", `{"amount":5}`, "point_entries"},
	} {
		rename := func(from, to string) {
			t.Helper()
			_, err := s.db.Exec(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to)
			must(t, err)
		}
		key := "key-" + c.table
		rename(c.table, "gone")
		failed := ask(s, http.MethodPost, c.path, key, c.body)
		rename("gone", c.table)
		said := strings.Contains(failed.Body.String(), `"retryable":true`) && failed.Header().Get("Idempotency-Retryable") == ""
		if failed.Code < 500 || !said {
			t.Errorf("%s without its table: %d %v %s", c.path, failed.Code, failed.Header(), failed.Body)
		}
		if w := ask(s, http.MethodPost, c.path, key, c.body); w.Code >= 300 || w.Header().Get("Idempotent-Replayed") != "" {
			t.Errorf("%s again: %d %v %s", c.path, w.Code, w.Header(), w.Body)
		}
	}
}
