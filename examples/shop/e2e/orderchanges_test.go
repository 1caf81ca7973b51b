package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/semelhq/semel/examples/shop/shop"
)

// orderOf is an order of one line.
func orderOf(product string, quantity int64) shop.NewOrder {
	return shop.NewOrder{Lines: []shop.Line{{Product: product, Quantity: quantity}}}
}

// ordered orders something, and returns where the order is.
func (s *stage) ordered(of shop.NewOrder) (path string, first *reply) {
	s.t.Helper()
	first = s.expect(http.StatusCreated, s.call(0, "POST", "/orders", s.newKey(), of, nil))
	return strings.TrimPrefix(first.Header.Get("Location"), "/api/v1"), first
}

// expect fails the test if a reply does not have the status, or if its problem does not have the code.
func (s *stage) expect(status int, r *reply, code ...string) *reply {
	s.t.Helper()
	if r.Status != status || len(code) > 0 && !strings.Contains(string(r.Body), `"`+code[0]+`"`) {
		s.t.Fatalf("%s, want %d %v", r, status, code)
	}
	return r
}

// stock returns how many of a product are left.
func (s *stage) stock(product string) int64 {
	s.t.Helper()
	all := decode[struct{ Products []shop.Product }](s.t, s.expect(http.StatusOK, s.call(0, "GET", "/products", "", nil, nil)))
	for _, p := range all.Products {
		if p.ID == product {
			return p.Stock
		}
	}
	s.t.Fatalf("there is no product %s", product)
	return 0
}

// atOnce calls f n times at once, and returns how often each status was answered.
func atOnce(t *testing.T, n int, f func(i int) (*reply, error)) map[int]int {
	t.Helper()
	var (
		mu  sync.Mutex
		all = map[int]int{}
		wg  sync.WaitGroup
	)
	for i := range n {
		wg.Go(func() {
			r, err := f(i)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all[r.Status]++
		})
	}
	wg.Wait()
	return all
}

func ifMatch(tag string) http.Header { return http.Header{"If-Match": {tag}} }

var ifNone = http.Header{"If-None-Match": {"*"}}

func TestAnOrderIsReadOnlyIfItHasChanged(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		path, first := s.ordered(orderOf("book-1", 1))
		tag := first.Header.Get("ETag")
		for _, have := range []string{tag, "W/" + tag, `"0", ` + tag, "*"} {
			same := s.expect(http.StatusNotModified, s.call(1, "GET", path, "", nil, http.Header{"If-None-Match": {have}}))
			if len(same.Body) > 0 || same.Header.Get("ETag") != tag {
				t.Fatal(have, same, same.Header)
			}
		}
		other := s.expect(http.StatusOK, s.call(1, "GET", path, "", nil, http.Header{"If-None-Match": {`"0"`}}))
		if other.Header.Get("ETag") != tag {
			t.Fatal(other.Header)
		}
		s.expect(http.StatusNotFound, s.call(1, "GET", "/orders/"+uuid.NewString(), "", nil, nil), "order_not_found")
		s.expect(http.StatusNotFound, s.call(1, "GET", path, "", nil, http.Header{"Authorization": {s.bearer("globex", "bob")}}), "order_not_found")
	})
}

func TestAPutMakesAnOrderOnceUnderItsClientsID(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		path, want := "/orders/"+uuid.NewString(), orderOf("pen-1", 3)
		s.expect(http.StatusPreconditionRequired, s.call(0, "PUT", path, "", want, nil))
		statuses := atOnce(t, 10, func(i int) (*reply, error) { return s.try(i, "PUT", path, "", want, ifNone) })
		if statuses[http.StatusCreated] != 1 || statuses[http.StatusOK] != 9 {
			t.Fatal(statuses)
		}
		s.expect(http.StatusPreconditionFailed, s.call(0, "PUT", path, "", orderOf("pen-1", 4), ifNone), "order_exists")
		if left := s.stock("pen-1"); left != 1000-3 {
			t.Fatal(left, "are left")
		}
		made := decode[shop.Order](t, s.expect(http.StatusOK, s.call(0, "GET", "/orders/"+strings.ToUpper(strings.TrimPrefix(path, "/orders/")), "", nil, nil)))
		if made.Total != 3*190 || made.State != "pending" {
			t.Fatal(made)
		}
		// A deleted order is not made again by a late copy of the request.
		s.expect(http.StatusNoContent, s.call(1, "DELETE", path, "", nil, nil))
		s.expect(http.StatusGone, s.call(0, "PUT", path, "", want, ifNone), "order_deleted")
		// What is not in stock makes no order.
		path = "/orders/" + uuid.NewString()
		s.expect(http.StatusCreated, s.call(0, "PUT", path, "", orderOf("mug-1", 1000), ifNone))
		s.expect(http.StatusConflict, s.call(0, "PUT", "/orders/"+uuid.NewString(), "", orderOf("mug-1", 1), ifNone), "out_of_stock")
	})
}

func TestOfTwoChangesOfOneVersionOneWins(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		path, first := s.ordered(orderOf("book-1", 2))
		statuses := atOnce(t, 8, func(i int) (*reply, error) {
			if i%2 == 0 {
				return s.try(i/2, "PUT", path, "", orderOf("book-1", int64(10+i)), ifMatch(first.Header.Get("ETag")))
			}
			return s.try(i/2, "PATCH", path, fmt.Sprint("race-", i), fmt.Sprintf(`{"note":"%d"}`, i), ifMatch(first.Header.Get("ETag")))
		})
		if statuses[http.StatusOK] != 1 || statuses[http.StatusPreconditionFailed] != 7 {
			t.Fatal(statuses)
		}
		now := decode[shop.Order](t, s.call(0, "GET", path, "", nil, nil))
		if left := s.stock("book-1"); left != 1000-now.Lines[0].Quantity || now.Total != now.Lines[0].Quantity*2450 {
			t.Fatal(left, now)
		}
	})
}

func TestARepeatedChangeIsToldThatItIsThere(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		path, first := s.ordered(orderOf("book-1", 2))
		tag, want := first.Header.Get("ETag"), shop.NewOrder{Lines: []shop.Line{{Product: "mug-1", Quantity: 1}, {Product: "book-1", Quantity: 1}}}
		changed := s.expect(http.StatusOK, s.call(0, "PUT", path, "", want, ifMatch(tag)))
		again := s.expect(http.StatusOK, s.call(1, "PUT", path, "", want, ifMatch(tag)))
		if changed.String() != again.String() || changed.Header.Get("ETag") == tag || changed.Header.Get("ETag") != again.Header.Get("ETag") {
			t.Fatal(changed, again)
		}
		s.expect(http.StatusPreconditionFailed, s.call(1, "PUT", path, "", orderOf("pen-1", 1), ifMatch(tag)), "changed")
		s.expect(http.StatusPreconditionFailed, s.call(1, "PUT", path, "", orderOf("pen-1", 1), ifMatch("W/"+again.Header.Get("ETag"))), "changed")
		if books, mugs := s.stock("book-1"), s.stock("mug-1"); books != 999 || mugs != 999 {
			t.Fatal(books, mugs)
		}
		s.ordered(orderOf("mug-1", 999))
		s.expect(http.StatusConflict, s.call(1, "PUT", path, "", orderOf("mug-1", 2), ifMatch("*")), "out_of_stock")
	})
}

func TestAPatchChangesWhatItNames(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		path, first := s.ordered(orderOf("book-1", 2))
		tag, key := first.Header.Get("ETag"), s.newKey()
		patch := func(key, body, tag string) *reply {
			h := http.Header{"Content-Type": {"application/merge-patch+json"}}
			if tag != "" {
				h["If-Match"] = []string{tag}
			}
			return s.call(0, "PATCH", path, key, body, h)
		}
		s.expect(http.StatusPreconditionRequired, patch(key, `{"note":"soon"}`, ""))
		noted := s.expect(http.StatusOK, patch(key, `{"note":"soon"}`, tag)) // the key has not been used
		if again := patch(key, `{"note":"soon"}`, tag); again.String() != noted.String() || again.Header.Get("Idempotent-Replayed") != "true" {
			t.Fatal(again, again.Header)
		}
		s.expect(http.StatusBadRequest, patch("", `{"note":"soon"}`, tag))
		o := decode[shop.Order](t, s.expect(http.StatusOK, patch(s.newKey(), `{"lines":[{"product":"pen-1","quantity":5}]}`, noted.Header.Get("ETag"))))
		if o.Note != "soon" || o.Total != 5*190 {
			t.Fatal(o)
		}
		o = decode[shop.Order](t, s.expect(http.StatusOK, patch(s.newKey(), `{"note":null}`, "*")))
		if o.Note != "" || len(o.Lines) != 1 {
			t.Fatal(o)
		}
		for body, field := range map[string]string{`{"lines":null}`: "body.lines", `{"lines":[]}`: "body.lines", `{"note":5}`: "body.note", `{"total":1}`: "body.total", `{"state":"paid"}`: "body.state"} {
			if r := s.expect(http.StatusBadRequest, patch(s.newKey(), body, "*")); !strings.Contains(r.String(), `"field":"`+field+`"`) {
				t.Fatal(body, r)
			}
		}
	})
}

func TestADeletedOrderGivesItsStockBackOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		path, first := s.ordered(orderOf("book-1", 7))
		s.expect(http.StatusPreconditionFailed, s.call(0, "DELETE", path, "", nil, ifMatch(`"7"`)), "changed")
		statuses := atOnce(t, 6, func(i int) (*reply, error) {
			return s.try(i, "DELETE", path, "", nil, ifMatch(first.Header.Get("ETag")))
		})
		if left := s.stock("book-1"); statuses[http.StatusNoContent] != 6 || left != 1000 {
			t.Fatal(statuses, left)
		}
		s.expect(http.StatusNotFound, s.call(0, "GET", path, "", nil, nil))
		s.expect(http.StatusNoContent, s.call(0, "DELETE", "/orders/"+uuid.NewString(), "", nil, nil))
	})
}

func TestAnOrderMovesByTheRules(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		path, _ := s.ordered(orderOf("book-1", 5))
		confirm := s.newKey()
		first := s.expect(http.StatusOK, s.call(0, "POST", path+"/confirm", confirm, nil, nil))
		if again := s.call(1, "POST", path+"/confirm", confirm, nil, nil); again.String() != first.String() || decode[shop.Order](t, first).State != "confirmed" {
			t.Fatal(first, again)
		}
		key := s.newKey()
		refused := s.expect(http.StatusConflict, s.call(0, "POST", path+"/confirm", key, nil, nil), "illegal_move")
		s.expect(http.StatusConflict, s.call(0, "PUT", path, "", orderOf("book-1", 6), ifMatch("*")), "order_not_pending")
		s.expect(http.StatusConflict, s.call(0, "DELETE", path, "", nil, nil), "illegal_move")
		statuses := atOnce(t, 10, func(i int) (*reply, error) {
			return s.try(i, "POST", path+"/cancel", fmt.Sprint("cancel-", i), nil, nil)
		})
		if left := s.stock("book-1"); statuses[http.StatusOK] != 1 || statuses[http.StatusConflict] != 9 || left != 1000 {
			t.Fatal(statuses, left)
		}
		if kept := s.call(1, "POST", path+"/confirm", key, nil, nil); kept.String() != refused.String() || kept.Header.Get("Idempotent-Replayed") != "true" {
			t.Fatal(kept, kept.Header)
		}
		s.expect(http.StatusNoContent, s.call(0, "DELETE", path, "", nil, nil))
		s.expect(http.StatusNotFound, s.call(0, "POST", path+"/confirm", s.newKey(), nil, nil), "order_not_found")
		if left := s.stock("book-1"); left != 1000 {
			t.Fatal(left)
		}
	})
}

func TestTheLastItemsAreSoldOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		s.ordered(orderOf("book-1", 990))
		statuses := atOnce(t, 200, func(i int) (*reply, error) {
			for { // 503 says that the machine is busy, and a repeat has no second effect
				r, err := s.try(i, "POST", "/orders", fmt.Sprint("last-", i), orderOf("book-1", 1), nil)
				if err != nil || r.Status != http.StatusServiceUnavailable {
					return r, err
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
		if left := s.stock("book-1"); statuses[http.StatusCreated] != 10 || statuses[http.StatusConflict] != 190 || left != 0 {
			t.Fatal(statuses, left)
		}
	})
}

func TestOrdersAreListedPageByPage(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		var want []string
		for range 7 {
			path, _ := s.ordered(orderOf("pen-1", 1))
			want = append([]string{strings.TrimPrefix(path, "/orders/")}, want...)
		}
		s.expect(http.StatusNoContent, s.call(0, "DELETE", "/orders/"+want[3], "", nil, nil))
		want = append(want[:3:3], want[4:]...)
		var got []string
		for path := "/orders?limit=2"; path != ""; {
			r := s.expect(http.StatusOK, s.call(len(got), "GET", path, "", nil, nil))
			page := decode[struct {
				Orders []shop.Order
				Next   string
			}](t, r)
			for _, o := range page.Orders {
				got = append(got, o.ID)
			}
			s.ordered(orderOf("pen-1", 1)) // what comes meanwhile shifts no page
			path = ""
			if page.Next != "" {
				path = "/orders?limit=2&cursor=" + url.QueryEscape(page.Next)
				if link := r.Header.Get("Link"); link != "</api/v1"+path+`>; rel="next"` {
					t.Fatal(link)
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		for _, q := range []string{"cursor=x", "cursor=e30x", "limit=0", "limit=101", "limit=many"} {
			if r := s.expect(http.StatusBadRequest, s.call(0, "GET", "/orders?"+q, "", nil, nil)); !strings.Contains(r.String(), "query."+strings.Split(q, "=")[0]) {
				t.Fatal(q, r)
			}
		}
	})
}
