package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/examples/shop/host"
	"github.com/semelhq/semel/examples/shop/shop"
)

type itemList struct {
	Count int64
	Items []shop.BulkItem
	Next  string
}

func (s *stage) items() itemList {
	s.t.Helper()
	return decode[itemList](s.t, s.expect(http.StatusOK, s.call(0, "GET", "/bulk/items?limit=100", "", nil, nil)))
}

// statuses are those of a batch's items, by their first letters; ! is a conflict.
func statuses(a shop.BulkAnswer) string {
	var all strings.Builder
	for _, r := range a.Items {
		letter := r.Status[:1]
		if r.Status == "conflict" {
			letter = "!"
		}
		all.WriteString(letter)
	}
	return all.String()
}

func TestABatchReportsEachItem(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		key := s.newKey()
		body := `{"items":[
			{"client_item_id":"sku-b","name":"A book","price":2450,"quantity":3},
			{"client_item_id":"sku-a","name":"A pen","price":190},
			{"client_item_id":"sku-b","name":"Another book","price":1},
			{"client_item_id":"sku-c","name":"A mug","price":12.90}]}`
		first := s.expect(http.StatusOK, s.call(0, "POST", "/bulk/items", key, body, nil))
		a := decode[shop.BulkAnswer](t, first)
		if statuses(a) != "cc!i" || a.Summary.Created != 2 || a.Summary.Conflict != 1 || a.Summary.Invalid != 1 || a.Items[3].Detail != "price: expected int64, got number 12.90" {
			t.Fatal(first)
		}
		if again := s.call(1, "POST", "/bulk/items", key, body, nil); again.String() != first.String() || again.Header.Get("Idempotent-Replayed") != "true" {
			t.Fatal(again, again.Header)
		}
		// A correction is a new batch with the same names.
		corrected := decode[shop.BulkAnswer](t, s.expect(http.StatusOK, s.call(1, "POST", "/bulk/items", s.newKey(), `{"items":[
			{"client_item_id":"sku-c","name":"A mug","price":1290},
			{"client_item_id":"sku-a","name":"A pen","price":180},
			{"client_item_id":"sku-b","name":"A book","price":2450,"quantity":3}]}`, nil)))
		if statuses(corrected) != "cuu" || corrected.Items[2].Status != "unchanged" || corrected.BatchID == a.BatchID {
			t.Fatal(corrected)
		}
		if l := s.items(); l.Count != 3 || l.Items[0].Price != 180 || l.Items[1].Name != "A book" || l.Next != "" {
			t.Fatal(l)
		}
		if l := decode[itemList](t, s.call(0, "GET", "/bulk/items?limit=2", "", nil, nil)); len(l.Items) != 2 || l.Next == "" {
			t.Fatal(l)
		}
		if r := s.expect(http.StatusBadRequest, s.call(0, "POST", "/bulk/items", s.newKey(), `{"items":[]}`, nil)); !strings.Contains(r.String(), `"field":"body"`) {
			t.Fatal(r)
		}
	})
}

// manyItems are n items, in an order that is not that of their names.
func manyItems(n int) (all []shop.BulkItem) {
	for i := range n {
		all = append(all, shop.BulkItem{ClientItemID: fmt.Sprintf("sku-%05d", i*7919%n), Name: fmt.Sprint("Item ", i), Price: int64(i)})
	}
	return all
}

func TestABatchIsResumedAfterACrash(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c host.Config) {
		c.Instances, c.Lease, c.NATS = 1, 2*time.Second, cmp.Or(c.NATS, newNATS(t))
		s := newStage(t, c)
		items := manyItems(10_000)
		there := append([]shop.BulkItem(nil), items[:100]...)
		for i := range 50 {
			there[i].Name = "Another"
		}
		s.expect(http.StatusOK, s.call(0, "POST", "/bulk/items", s.newKey(), map[string]any{"items": there}, nil))

		p, key, batch := s.newProcess(t, "bulk.chunk.3"), client.NewKey(), map[string]any{"items": items}
		for !p.dead() { // a busy machine may let the lease end before the batch begins
			if a, err := s.send(t, p.url, key, crash{}, "/bulk/items", batch, 1); err == nil {
				t.Fatalf("the process answers %d instead of dying", a.Status)
			}
		}
		if l := s.items(); l.Count <= 100 || l.Count >= 10_000 {
			t.Fatal(l.Count, "items were written before the process died")
		}
		a, err := s.send(t, s.urls[0], key, crash{}, "/bulk/items", batch, 30)
		must(t, err)
		var got shop.BulkAnswer
		must(t, json.Unmarshal(a.Body, &got))
		if a.Status != http.StatusOK || got.Summary.Created != 9900 || got.Summary.Updated != 50 || got.Summary.Unchanged != 50 || len(got.Items) != 10_000 {
			t.Fatalf("%d %+v", a.Status, got.Summary)
		}
		for i, r := range got.Items {
			want := "created"
			if i < 50 {
				want = "updated"
			} else if i < 100 {
				want = "unchanged"
			}
			if r.ClientItemID != items[i].ClientItemID || r.Status != want {
				t.Fatal(i, r, want)
			}
		}
		if l := s.items(); l.Count != 10_000 {
			t.Fatal(l.Count, "items")
		}
		again, err := s.send(t, s.urls[0], key, crash{}, "/bulk/items", batch, 1)
		if must(t, err); !again.Replayed || string(again.Body) != string(a.Body) {
			t.Fatal(again.Status, again.Replayed)
		}
	})
}

// TestABatchThatIsResumedLateUndoesNoCorrection: it is finished without its client, after a later batch.
func TestABatchThatIsResumedLateUndoesNoCorrection(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c host.Config) {
		c.Instances, c.Lease, c.NATS = 1, 2*time.Second, cmp.Or(c.NATS, newNATS(t))
		s := newStage(t, c)
		p, key, names := s.newProcess(t, "bulk.begun"), "", [2]string{}
		for !p.dead() { // a busy machine may let the lease end before the batch begins: then the other instance has done it
			key = s.newKey()
			names = [2]string{"sku-1-" + key, "sku-2-" + key}
			r, err := http.NewRequest(http.MethodPost, p.url+"/api/v1/bulk/items", strings.NewReader(fmt.Sprintf(`{"items":[{"client_item_id":%q,"name":"Old","price":1},{"client_item_id":%q,"name":"Old","price":1}]}`, names[0], names[1])))
			must(t, err)
			r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {s.bearer("acme", "alice")}, "idempotency-key": {`"` + key + `"`}, "Prefer": {"respond-async"}}
			if res, err := http.DefaultClient.Do(r); err == nil {
				res.Body.Close() //nolint:errcheck // only the effect counts
			}
			s.eventually("over", func() string {
				if p.dead() || decode[struct{ State string }](t, s.call(0, "GET", "/operations", key, nil, nil)).State == "succeeded" {
					return "over"
				}
				return "under way"
			})
		}
		corrected := decode[shop.BulkAnswer](t, s.expect(http.StatusOK, s.call(0, "POST", "/bulk/items", s.newKey(), fmt.Sprintf(`{"items":[{"client_item_id":%q,"name":"New","price":2}]}`, names[0]), nil)))
		if statuses(corrected) != "c" {
			t.Fatal(corrected)
		}
		var ended *reply
		s.eventually("succeeded", func() string {
			ended = s.call(0, "GET", "/operations", key, nil, nil)
			return decode[struct{ State string }](t, ended).State
		})
		result := decode[struct{ Result struct{ Href string } }](t, ended).Result.Href
		got := decode[shop.BulkAnswer](t, s.call(0, "GET", strings.TrimPrefix(result, "/api/v1"), "", nil, nil))
		if statuses(got) != "!c" || got.Items[0].Detail != "a later batch has it" {
			t.Fatal(got)
		}
		for _, i := range s.items().Items {
			if want := map[string]string{names[0]: "New", names[1]: "Old"}[i.ClientItemID]; want != "" && i.Name != want {
				t.Fatal(i, want)
			}
		}
	})
}

func TestABatchMayBeAskedAbout(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		key := s.newKey()
		accepted := s.call(0, "POST", "/bulk/items", key, map[string]any{"items": manyItems(500)}, http.Header{"Prefer": {"respond-async"}})
		operation := strings.TrimPrefix(accepted.Header.Get("Location"), "/api/v1")
		if accepted.Status != http.StatusAccepted || operation == "" {
			t.Fatal(accepted, accepted.Header)
		}
		s.eventually("succeeded", func() string {
			return decode[struct{ State string }](t, s.call(1, "GET", operation, "", nil, nil)).State
		})
		got := decode[shop.BulkAnswer](t, s.expect(http.StatusOK, s.call(1, "POST", "/bulk/items", key, map[string]any{"items": manyItems(500)}, nil)))
		if got.Summary.Created != 500 || s.items().Count != 500 {
			t.Fatal(got.Summary, s.items().Count)
		}
	})
}
