package e2e

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/examples/shop/host"
	"github.com/semelhq/semel/examples/shop/processor"
	"github.com/semelhq/semel/examples/shop/shop"
	"github.com/semelhq/semel/internal/proof"
)

var toBerlin = shop.PlaceOrder{Card: "tok_visa", Country: "DE", Address: "Hauptstrasse 1"}

// place places an order, whose path it is.
func (s *stage) place(t *testing.T, order string, p shop.PlaceOrder) shop.Saga {
	t.Helper()
	r := s.want(t, http.StatusAccepted, order+"/place", "", p)
	saga := decode[shop.Saga](t, r)
	if r.Header.Get("Location") != "/api/v1/sagas/"+saga.ID {
		t.Error(r, r.Header)
	}
	return saga
}

// sagaEnds waits until a saga has ended, and returns its state, that of its order, and what was charged for it.
func (s *stage) sagaEnds(t *testing.T, id string) (saga shop.Saga, ledger string) {
	t.Helper()
	s.eventually("ended", func() string {
		r := s.call(1, "GET", "/sagas/"+id, "", nil, nil)
		if r.Status != http.StatusOK {
			return r.String()
		}
		saga = decode[shop.Saga](t, r)
		if saga.State == "running" || saga.State == "compensating" {
			return fmt.Sprint(saga)
		}
		return "ended"
	})
	var kinds []string
	for _, e := range s.entries(t) {
		if e.Kind != "closure" && s.orderOfPayment(t, e.Reference) == id {
			kinds = append(kinds, string(e.Kind))
		}
	}
	return saga, strings.Join(kinds, " ")
}

func (s *stage) orderOfPayment(t *testing.T, id string) string {
	t.Helper()
	return decode[shop.Payment](t, s.call(0, "GET", "/payments/"+id, "", nil, nil)).Order
}

func TestAnOrderIsPlacedOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		path, _ := s.ordered(orderOf("book-1", 1))
		var calls sync.WaitGroup
		for i := range 6 {
			calls.Go(func() {
				if r := s.call(i, "POST", path+"/place", "", toBerlin, nil); r.Status != http.StatusAccepted {
					t.Error(r)
				}
			})
		}
		calls.Wait()
		saga, ledger := s.sagaEnds(t, strings.TrimPrefix(path, "/orders/"))
		if saga.State != "done" || saga.Order != "shipped" || saga.Tracking == "" || ledger != "charge" {
			t.Errorf("%+v, and the ledger has %q", saga, ledger)
		}
		if again := s.place(t, path, toBerlin); again.State != "done" || again.Tracking != saga.Tracking {
			t.Errorf("placed again it is %+v", again)
		}
		other := toBerlin
		other.Card = "tok_other"
		if r := s.want(t, 409, path+"/place", "", other); !strings.Contains(r.String(), "order_placed") {
			t.Error(r)
		}
		s.want(t, 409, path+"/cancel", s.newKey(), nil)
		s.balance(t)
	})
}

func TestAnOrderThatCantBePlacedIsTakenBack(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		stock := s.stock("mug-1")
		for _, c := range []struct {
			name   string
			place  func(*shop.PlaceOrder)
			failed string
			order  string
			steps  string
			ledger string
		}{
			{"the card is declined", func(p *shop.PlaceOrder) { p.Card = "tok_declined" }, "pay", "payment_failed", "[failed pay]", "decline"},
			{"no carrier goes there", func(p *shop.PlaceOrder) { p.Country = "AQ" }, "reserve", "refunded", "[failed reserve pay undo pay]", "charge refund"},
			{"no carrier takes it", func(p *shop.PlaceOrder) { p.Address = "PO box 7" }, "ship", "refunded", "[failed ship pay reserve undo pay undo reserve]", "charge refund"},
		} {
			path, _ := s.ordered(orderOf("mug-1", 2))
			p := toBerlin
			c.place(&p)
			s.place(t, path, p)
			saga, ledger := s.sagaEnds(t, strings.TrimPrefix(path, "/orders/"))
			if saga.State != "compensated" || saga.Failed != c.failed || saga.Order != c.order || fmt.Sprint(saga.Steps) != c.steps || ledger != c.ledger {
				t.Errorf("%s: %+v, and the ledger has %q", c.name, saga, ledger)
			}
			if got := s.stock("mug-1"); got != stock {
				t.Errorf("%s: the stock is %d, want %d", c.name, got, stock)
			}
			s.want(t, 202, path+"/place", "", p) // the same saga
		}
		cancelled, _ := s.ordered(orderOf("mug-1", 1))
		s.want(t, 200, cancelled+"/cancel", s.newKey(), nil)
		if r := s.want(t, 409, cancelled+"/place", "", toBerlin); !strings.Contains(r.String(), "illegal_move") {
			t.Error(r)
		}
		if r := s.call(0, "GET", strings.Replace(cancelled, "/orders/", "/sagas/", 1), "", nil, nil); r.Status != http.StatusNotFound {
			t.Error(r)
		}
		s.balance(t)
	})
}

func TestACancellationAndAPlacingAtOnceHaveOneWinner(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		for range 4 {
			path, _ := s.ordered(orderOf("pen-1", 1))
			var both sync.WaitGroup
			var cancelled int
			key := s.newKey()
			both.Go(func() { cancelled = s.call(0, "POST", path+"/cancel", key, nil, nil).Status })
			placed := s.call(1, "POST", path+"/place", "", toBerlin, nil).Status
			both.Wait()
			if placed != 202 {
				if cancelled != 200 {
					t.Errorf("cancelled: %d, placed: %d", cancelled, placed)
				}
				continue
			}
			saga, ledger := s.sagaEnds(t, strings.TrimPrefix(path, "/orders/"))
			switch {
			case cancelled == 200 && saga.State == "compensated" && saga.Order == "cancelled" && ledger == "":
			case cancelled == 409 && saga.State == "done" && saga.Order == "shipped" && ledger == "charge":
			default:
				t.Errorf("cancelled: %d, and %+v, and the ledger has %q", cancelled, saga, ledger)
			}
		}
	})
}

// TestAnOrderWhoseRefundIsRefusedIsNotCalledRefunded: the charge was given back at the processor, beside the shop, so
// that the processor refuses the saga's refund. An operator has to look at it.
func TestAnOrderWhoseRefundIsRefusedIsNotCalledRefunded(t *testing.T) {
	t.Parallel()
	s := newStage(t, host.Config{Instances: 1, Lease: time.Second, NATS: newNATS(t)})
	nowhere := toBerlin
	nowhere.Address = "PO box 7"
	for range 20 {
		stock := s.stock("book-1")
		path, _ := s.ordered(orderOf("book-1", 1))
		p := s.newProcess(t, "saga.unpay.start")
		a, err := s.send(t, p.url, client.Key{}, crash{}, path+"/place", nowhere, 1)
		if err == nil && a.Status != http.StatusAccepted {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		<-p.ended
		for _, e := range s.entries(t) {
			if e.Kind == processor.Charge && "/orders/"+s.orderOfPayment(t, e.Reference) == path {
				s.giveBack(t, e)
			}
		}
		saga, ledger := s.sagaEnds(t, strings.TrimPrefix(path, "/orders/"))
		if ledger != "charge" {
			continue // the instance has taken the saga over, and refunded, before the test
		}
		if saga.State != "stuck" || saga.Order != "released" || !strings.Contains(saga.Reason, "the card processor refuses") {
			t.Errorf("%+v", saga)
		}
		if got := s.stock("book-1"); got != stock-1 {
			t.Errorf("the stock is %d, want %d", got, stock-1)
		}
		return
	}
	t.Error("the test never came first")
}

// giveBack refunds a charge at the processor, beside the shop, unless somebody has.
func (s *stage) giveBack(t *testing.T, e processor.Entry) {
	t.Helper()
	body := fmt.Sprintf(`{"charge": %q, "amount": %d, "reference": "by-hand"}`, e.ID, e.Amount)
	r, err := http.Post(s.host.Processor+"/refunds", "application/json", strings.NewReader(body))
	must(t, err)
	must(t, r.Body.Close())
}

// TestASagaWhoseProcessDiesIsTakenOver: at each point of each step, and of each compensation.
func TestASagaWhoseProcessDiesIsTakenOver(t *testing.T) {
	t.Parallel()
	forward := []string{"saga.pay.start", "saga.pay.begun", "saga.pay.charged", "saga.pay.finished", "saga.reserve.start", "saga.reserve.reserved", "saga.ship.start", "saga.ship.shipped"}
	back := []string{"saga.release.start", "saga.release.released", "saga.unpay.start", "saga.unpay.begun", "saga.unpay.refunded", "saga.unpay.finished"}
	onEach(t, func(t *testing.T, c host.Config) {
		c.Instances, c.Lease, c.NATS = 1, time.Second, cmp.Or(c.NATS, newNATS(t))
		s := newStage(t, c)
		each := 1
		if c.Database != "" {
			each = proof.Of(3, 1)
		}
		stock := s.stock("book-1")
		ends := map[string]string{} // by saga: how it has to end
		for n, point := range append(forward, back...) {
			if n%each != 0 {
				continue
			}
			path, _ := s.ordered(orderOf("book-1", 1))
			place, end := toBerlin, "done shipped charge"
			if n >= len(forward) {
				place.Address, end = "PO box 7", "compensated refunded charge refund"
			}
			for placed := false; !placed; {
				p := s.newProcess(t, point)
				a, err := s.send(t, p.url, client.Key{}, crash{}, path+"/place", place, 1)
				if err == nil && a.Status != http.StatusAccepted {
					t.Fatalf("%s: %d %s", point, a.Status, a.Body)
				}
				<-p.ended
				// The process may have taken over an earlier saga, and died of that before it was asked.
				placed = s.call(0, "GET", strings.Replace(path, "orders", "sagas", 1), "", nil, nil).Status != http.StatusNotFound
			}
			ends[strings.TrimPrefix(path, "/orders/")] = end + " at " + point
		}
		sold := int64(0)
		for id, want := range ends {
			saga, ledger := s.sagaEnds(t, id)
			_, point, _ := strings.Cut(want, " at ")
			if got := fmt.Sprintf("%s %s %s at %s", saga.State, saga.Order, ledger, point); got != want || saga.Runs < 2 {
				t.Errorf("it ends as %s after %d runs, want %s after 2: %+v", got, saga.Runs, want, saga)
			}
			if saga.State == "done" {
				sold++
			}
		}
		if got := s.stock("book-1"); got != stock-sold {
			t.Errorf("the stock is %d, want %d", got, stock-sold)
		}
		s.balance(t)
	})
}
