package shop

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/examples/shop/processor"
)

// placed orders something, and returns what a saga of it would be started with, and contexts of its steps.
func placed(t *testing.T, s *Shop) (p *Placing, step func(name string, undo bool) context.Context) {
	t.Helper()
	w := ask(s, http.MethodPost, "/orders", "order", `{"lines":[{"product":"book-1","quantity":1}]}`)
	var o struct{ ID uuid.UUID }
	must(t, json.Unmarshal(w.Body.Bytes(), &o))
	p = &Placing{Tenant: "acme", User: "dev", Order: o.ID, Card: "tok_visa", Country: "DE", Address: "Hauptstrasse 1"}
	return p, func(name string, undo bool) context.Context {
		return semel.WithStepKey(t.Context(), s.place.StepKey(s.o.Secrets.Derivation, p.id(), name, undo))
	}
}

func orderState(t *testing.T, s *Shop, p *Placing) string {
	t.Helper()
	o, err := s.order(p.as(t.Context()), s.db, p.Order)
	must(t, err)
	return o.State
}

func room(t *testing.T, s *Shop) (n int) {
	t.Helper()
	must(t, s.db.QueryRow(t.Context(), "SELECT room FROM carriers WHERE country = 'DE'").Scan(&n))
	return n
}

// TestAPaymentThatComesAfterItsCompensationTakesNothing: the call is that of a process that is thought dead, and goes
// on at some point after its step was compensated.
func TestAPaymentThatComesAfterItsCompensationTakesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		point   string
		charges int
		order   string
	}{
		{"saga.pay.start", 0, "pending"},
		{"saga.pay.begun", 0, "payment_failed"},
		{"saga.pay.charged", 1, "refunded"},
		{"saga.pay.finished", 1, "refunded"},
	} {
		t.Run(c.point, func(t *testing.T) {
			t.Parallel()
			s, ledger := newShop(t)
			p, step := placed(t, s)
			s.o.Crash = func(point string) {
				if point == c.point {
					must(t, s.unpay(step("pay", true), p))
				}
			}
			err := s.pay(step("pay", false), p)
			if (err == nil) != (c.charges > 0) {
				t.Errorf("pay: %v", err)
			}
			for range 2 { // both are tried again
				must(t, s.unpay(step("pay", true), p))
				s.pay(step("pay", false), p) //nolint:errcheck // what it leaves behind counts
			}
			if got := count(ledger, processor.Charge); got != c.charges || count(ledger, processor.Refund) != c.charges || orderState(t, s, p) != c.order {
				t.Errorf("the order is %s, want %s; the ledger has %v", orderState(t, s, p), c.order, ledger.Ledger())
			}
			var books int
			must(t, s.db.QueryRow(t.Context(), "SELECT stock FROM products WHERE id = 'book-1'").Scan(&books))
			if want := map[bool]int{true: 999, false: 1000}[c.order == "pending"]; books != want {
				t.Errorf("the stock is %d, want %d", books, want)
			}
		})
	}
}

func TestAReservationThatComesAfterItsReleaseTakesNoRoom(t *testing.T) {
	t.Parallel()
	s, _ := newShop(t)
	p, step := placed(t, s)
	must(t, s.pay(step("pay", false), p))
	before := room(t, s)
	must(t, s.release(step("reserve", true), p))
	if err := s.reserve(step("reserve", false), p); !semel.IsFinal(err) {
		t.Errorf("a late reservation: %v, want a final refusal", err)
	}
	must(t, s.release(step("reserve", true), p))
	if got := room(t, s); got != before {
		t.Errorf("the room is %d, want %d", got, before)
	}
}

func TestStepsThatAreDoneAgainChangeNothing(t *testing.T) {
	t.Parallel()
	s, ledger := newShop(t)
	p, step := placed(t, s)
	before := room(t, s)
	for _, do := range []struct {
		name string
		f    func(context.Context, *Placing) error
	}{{"pay", s.pay}, {"reserve", s.reserve}, {"ship", s.ship}} {
		for range 2 {
			must(t, do.f(step(do.name, false), p))
		}
	}
	if orderState(t, s, p) != "shipped" || count(ledger, processor.Charge) != 1 || room(t, s) != before-1 || strings.Count(p.Tracking, "-") != 4 {
		t.Errorf("the order is %s, the room %d, the parcel %q, and the ledger has %v", orderState(t, s, p), room(t, s), p.Tracking, ledger.Ledger())
	}
}
