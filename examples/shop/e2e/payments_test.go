package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/examples/shop/host"
	"github.com/semelhq/semel/examples/shop/processor"
	"github.com/semelhq/semel/examples/shop/shop"
)

var purchase = shop.Purchase{Amount: 4200, Currency: "EUR", Card: "tok_visa"}

// pay charges a card at once.
func (s *stage) charge(t *testing.T) shop.Payment {
	t.Helper()
	return decode[shop.Payment](t, s.want(t, 201, "/payments/process", s.newKey(), purchase))
}

// want makes a POST that has to be answered with the status.
func (s *stage) want(t *testing.T, status int, path, key string, body any) *reply {
	t.Helper()
	r := s.call(0, "POST", path, key, body, nil)
	if r.Status != status {
		t.Fatalf("POST %s %v: %s, want %d", path, body, r, status)
	}
	return r
}

// ledger returns what the card processor has done for a payment, in short.
func (s *stage) ledger(t *testing.T, reference string) string {
	t.Helper()
	var short []string
	for _, e := range s.entries(t) {
		if e.Reference == reference {
			short = append(short, fmt.Sprintf("%s %d", e.Kind, e.Amount))
		}
	}
	return strings.Join(short, ", ")
}

func (s *stage) entries(t *testing.T) []processor.Entry {
	t.Helper()
	r := s.processor(t, "GET", "/ledger", "")
	return decode[[]processor.Entry](t, r)
}

// processor asks the card processor.
func (s *stage) processor(t *testing.T, method, path, body string) *reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.host.Processor+path, strings.NewReader(body))
	must(t, err)
	res, err := http.DefaultClient.Do(r)
	must(t, err)
	defer res.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(res.Body)
	must(t, err)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, text)
	}
	return &reply{Status: res.StatusCode, Body: text}
}

func TestAPaymentIsChargedOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		key := s.newKey()
		first := s.call(0, "POST", "/payments/process", key, purchase, nil)
		made := decode[shop.Payment](t, first)
		if first.Status != 201 || made.State != "paid" || made.Amount != 4200 || first.Header.Get("Location") != "/api/v1/payments/"+made.ID {
			t.Fatal(first, first.Header)
		}
		again := s.call(1, "POST", "/payments/process", key, purchase, nil)
		if again.String() != first.String() || again.Header.Get("Idempotent-Replayed") != "true" {
			t.Fatal(again, again.Header)
		}
		if found := s.call(1, "GET", "/payments/"+made.ID, "", nil, nil); found.String() != "200 "+strings.TrimSpace(string(first.Body)) {
			t.Fatal(found)
		}
		if got := s.ledger(t, made.ID); got != "charge 4200" {
			t.Errorf("the ledger has %q, want one charge", got)
		}
		if other := s.charge(t); other.ID == made.ID {
			t.Error("two keys with the same body made one payment")
		}
	})
}

func TestManyAtOnceUnderOneKeyChargeOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		key := s.newKey()
		var calls sync.WaitGroup
		for i := range 10 {
			calls.Go(func() {
				r := s.call(i, "POST", "/payments/process", key, purchase, nil)
				if r.Status != 201 && r.Header.Get("Idempotency-Code") != "IDEMPOTENCY_IN_PROGRESS" {
					t.Error(r)
				}
			})
		}
		calls.Wait()
		made := decode[shop.Payment](t, s.want(t, 201, "/payments/process", key, purchase))
		if got := s.entries(t); len(got) != 1 || got[0].Reference != made.ID {
			t.Errorf("the ledger has %v, want one charge for %s", got, made.ID)
		}
	})
}

func TestAPreparedPaymentIsTakenOrLetGoOf(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		prepare := func() shop.Payment {
			p := decode[shop.Payment](t, s.want(t, 201, "/payments/prepare", s.newKey(), purchase))
			if p.State != "prepared" {
				t.Fatal(p)
			}
			return p
		}
		taken, gone := prepare(), prepare()
		key := s.newKey()
		if r := s.want(t, 201, "/payments/process", key, shop.ProcessPayment{Payment: taken.ID}); decode[shop.Payment](t, r).State != "paid" {
			t.Error(r)
		}
		if r := s.want(t, 200, "/payments/cancel", s.newKey(), shop.PaymentRef{Payment: gone.ID}); decode[shop.Payment](t, r).State != "cancelled" {
			t.Error(r)
		}
		s.want(t, 409, "/payments/cancel", s.newKey(), shop.PaymentRef{Payment: taken.ID})
		s.want(t, 409, "/payments/process", s.newKey(), shop.ProcessPayment{Payment: taken.ID})
		s.want(t, 409, "/payments/process", s.newKey(), shop.ProcessPayment{Payment: gone.ID})
		s.want(t, 201, "/payments/process", key, shop.ProcessPayment{Payment: taken.ID})
		if got := s.ledger(t, taken.ID); got != "authorization 4200, capture 4200" {
			t.Error(got)
		}
		if got := s.ledger(t, gone.ID); got != "authorization 4200, void 4200" {
			t.Error(got)
		}
	})
}

func TestACaptureAndAVoidAtOnceHaveOneWinner(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		for range 3 {
			p := decode[shop.Payment](t, s.want(t, 201, "/payments/prepare", s.newKey(), purchase))
			s.processor(t, "PUT", "/faults", `{"delay_ms":50}`) // both have begun before one ends
			var calls sync.WaitGroup
			var won atomic.Int32
			for i, call := range []struct {
				path string
				body any
			}{{"/payments/process", shop.ProcessPayment{Payment: p.ID}}, {"/payments/cancel", shop.PaymentRef{Payment: p.ID}}} {
				key := s.newKey()
				calls.Go(func() {
					switch r := s.call(i, "POST", call.path, key, call.body, nil); r.Status {
					case 200, 201:
						won.Add(1)
					case 409:
						if strings.Contains(r.String(), "refused_by_processor") {
							t.Errorf("the processor had to decide: %s", r)
						}
					default:
						t.Error(r)
					}
				})
			}
			calls.Wait()
			s.processor(t, "PUT", "/faults", `{}`)
			if got := s.ledger(t, p.ID); won.Load() != 1 || got != "authorization 4200, capture 4200" && got != "authorization 4200, void 4200" {
				t.Errorf("%d have won, and the ledger has %q", won.Load(), got)
			}
		}
	})
}

func TestADeclinedCardIsKeptAndNeverCharged(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		declined := purchase
		declined.Card = processor.Declined
		for _, path := range []string{"/payments/process", "/payments/prepare"} {
			key := s.newKey()
			first := s.want(t, 402, path, key, declined)
			again := s.call(1, "POST", path, key, declined, nil)
			if again.String() != first.String() || again.Header.Get("Idempotent-Replayed") != "true" || !strings.Contains(first.String(), `"code":"declined"`) {
				t.Errorf("%s, then %s", first, again)
			}
		}
		for _, e := range s.entries(t) {
			if e.Kind != processor.Decline {
				t.Errorf("the ledger has a %s", e.Kind)
			}
		}
	})
}

func TestRefundsAreNeverAboveWhatWasPaid(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		p := s.charge(t)
		key := s.newKey()
		first := s.want(t, 201, "/payments/refund", key, shop.NewRefund{Payment: p.ID, Amount: 200})
		if again := s.call(1, "POST", "/payments/refund", key, shop.NewRefund{Payment: p.ID, Amount: 200}, nil); again.String() != first.String() {
			t.Errorf("%s, then %s", first, again)
		}
		var calls sync.WaitGroup
		var refunded atomic.Int64
		for i := range 10 {
			key := s.newKey()
			calls.Go(func() {
				switch r := s.call(i, "POST", "/payments/refund", key, shop.NewRefund{Payment: p.ID, Amount: 900}, nil); r.Status {
				case 201:
					refunded.Add(900)
				case 409:
				default:
					t.Error(r)
				}
			})
		}
		calls.Wait()
		if refunded.Load() != 3600 {
			t.Errorf("ten refunds of 900 at once gave back %d of 4000, want 3600", refunded.Load())
		}
		if rest := decode[shop.Refund](t, s.want(t, 201, "/payments/refund", s.newKey(), shop.NewRefund{Payment: p.ID})); rest.Amount != 400 {
			t.Errorf("the rest is %d, want 400", rest.Amount)
		}
		s.want(t, 409, "/payments/refund", s.newKey(), shop.NewRefund{Payment: p.ID})
		if got := s.ledger(t, p.ID); got != "charge 4200, refund 200, refund 900, refund 900, refund 900, refund 900, refund 400" {
			t.Error(got)
		}
		if r := s.call(0, "GET", "/payments/"+p.ID, "", nil, nil); decode[shop.Payment](t, r).Refunded != 4200 {
			t.Error(r)
		}
	})
}

// TestTheFaultsOfTheProcessorAreInvisible: lost answers and errors after the effect end in one charge, and those before
// it in one as well, once the client asks again.
func TestTheFaultsOfTheProcessorAreInvisible(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		for _, fault := range []string{`{"lose_answer":{"next":1}}`, `{"fail_after":{"next":1}}`, `{"fail_before":{"next":1}}`, `{"fail_after":{"next":6}}`, `{"lose_answer":{"next":6}}`} {
			s.processor(t, "PUT", "/faults", fault)
			key := s.newKey()
			r := s.call(0, "POST", "/payments/process", key, purchase, nil)
			for range 10 {
				if r.Status == 201 {
					break
				}
				if r.Status != 502 && r.Status != 409 && r.Status != 500 {
					t.Fatalf("%s: %s", fault, r)
				}
				r = s.call(1, "POST", "/payments/process", key, purchase, nil)
			}
			if got := s.ledger(t, decode[shop.Payment](t, r).ID); got != "charge 4200" {
				t.Errorf("%s: %s, and the ledger has %q", fault, r, got)
			}
		}
	})
}

func TestAnInvalidPaymentNamesItsField(t *testing.T) {
	t.Parallel()
	s := newStage(t, host.Config{Instances: 1})
	for _, c := range []struct{ path, body, field, why string }{
		{"process", `{"amount":42.5,"currency":"EUR","card":"tok_visa"}`, "body.amount", "money is never a decimal"},
		{"process", `{"amount":0,"currency":"EUR","card":"tok_visa"}`, "body.amount", "nothing is no payment"},
		{"process", `{"currency":"EUR","card":"tok_visa"}`, "body.amount", "it is missing"},
		{"process", `{"amount":1,"currency":"euro","card":"tok_visa"}`, "body.currency", "ISO 4217"},
		{"process", `{"amount":1,"currency":"EUR","card":"4111111111111111"}`, "body.card", "no card's number comes here"},
		{"process", `{"payment":"0198f5a0-0000-7000-8000-000000000000","amount":1}`, "body.payment", "two wishes at once"},
		{"prepare", `{}`, "body.amount", "it is missing"},
		{"cancel", `{}`, "body", "the payment is missing"},
		{"refund", `{"payment":"0198f5a0-0000-7000-8000-000000000000","amount":1.5}`, "body.amount", "money is never a decimal"},
	} {
		r := s.call(0, "POST", "/payments/"+c.path, s.newKey(), c.body, nil)
		if r.Status != http.StatusBadRequest || !strings.Contains(r.String(), `"field":"`+c.field+`"`) {
			t.Errorf("%s %s: %s, want 400 for %s (%s)", c.path, c.body, r, c.field, c.why)
		}
	}
	s.want(t, 404, "/payments/refund", s.newKey(), `{"payment":"0198f5a0-0000-7000-8000-000000000000"}`)
}

// TestALateRepeatOfAForgottenPaymentFindsItsRow: the last line of defence, when a record has expired or was lost.
func TestALateRepeatOfAForgottenPaymentFindsItsRow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]host.Config{"SQLite": {Instances: 1}, "PostgreSQL": {Instances: 1, Database: newDatabase(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lateRepeats(t, newStage(t, c))
		})
	}
}

func lateRepeats(t *testing.T, s *stage) {
	prepared := decode[shop.Payment](t, s.want(t, 201, "/payments/prepare", s.newKey(), purchase))
	paid := s.charge(t)
	declined := purchase
	declined.Card = processor.Declined
	for _, c := range []struct {
		status      int
		path        string
		body, other any
	}{
		{201, "process", purchase, declined},
		{402, "process", declined, purchase},
		{201, "prepare", purchase, declined},
		{201, "process", shop.ProcessPayment{Payment: prepared.ID}, purchase},
		{201, "refund", shop.NewRefund{Payment: paid.ID, Amount: 7}, shop.NewRefund{Payment: paid.ID, Amount: 8}},
	} {
		key, path := s.newKey(), "/payments/"+c.path
		first := s.want(t, c.status, path, key, c.body)
		charged := len(s.entries(t))
		s.forget(t, key)
		late := s.want(t, c.status, path, key, c.body)
		if late.Header.Get("Idempotent-Replayed") != "" || late.String() != first.String() || late.Header.Get("Location") != first.Header.Get("Location") {
			t.Errorf("%s: %s, then %s", path, first, late)
		}
		s.forget(t, key)
		if other := s.want(t, 422, path, key, c.other); !strings.Contains(other.String(), "key_reused") {
			t.Error(other)
		}
		if got := len(s.entries(t)); got != charged {
			t.Errorf("%s: the ledger has %d entries more", path, got-charged)
		}
	}
}

// forget deletes the record of the operation with a key.
func (s *stage) forget(t *testing.T, key string) {
	t.Helper()
	r := s.call(0, "GET", "/operations", key, nil, nil)
	id, err := driver.ParseID(decode[struct{ ID string }](t, r).ID)
	must(t, err)
	store := s.host.DB().Store
	rec, err := store.Load(t.Context(), id)
	must(t, err)
	gone, err := store.(driver.Seizer).Forget(t.Context(), id, driver.Owner{Fence: rec.Fence, Token: rec.Token})
	if must(t, err); !gone {
		t.Fatalf("%s was not forgotten: %v", key, rec.State)
	}
}

// TestWithAtMostOnceTheProcessorIsAskedWhatBecameOfALostPayment: the payment is never run again, and the client's
// repeat gets its answer all the same.
func TestWithAtMostOnceTheProcessorIsAskedWhatBecameOfALostPayment(t *testing.T) {
	t.Parallel()
	s := newStage(t, host.Config{Instances: 2, AtMostOnce: true, Lease: 2 * time.Second})
	prepared := decode[shop.Payment](t, s.want(t, 201, "/payments/prepare", s.newKey(), purchase))
	paid := s.charge(t)
	declined := purchase
	declined.Card = processor.Declined
	for _, c := range []struct {
		fault, path string
		body        any
		want        int
		ledger      string // what is added, but for keys that were closed for the lost run
	}{
		{`{"fail_after":1}`, "process", purchase, 201, "charge"},
		{`{"fail_before":1}`, "process", purchase, 201, "charge"},
		{`{"fail_after":1}`, "process", declined, 402, "decline"},
		{`{"fail_after":1}`, "process", shop.ProcessPayment{Payment: prepared.ID}, 201, "capture"},
		{`{"fail_before":1}`, "refund", shop.NewRefund{Payment: paid.ID, Amount: 4200}, 201, "refund"},
	} {
		before := len(s.entries(t))
		s.processor(t, "PUT", "/faults", c.fault)
		key := s.newKey()
		r := s.call(0, "POST", "/payments/"+c.path, key, c.body, nil)
		if r.Status < 409 {
			t.Fatalf("%s %s: %s, want no answer yet", c.path, c.fault, r)
		}
		s.processor(t, "PUT", "/faults", `{}`)
		for r.Status != c.want {
			if code := r.Header.Get("Idempotency-Code"); r.Status != 502 && code != "IDEMPOTENCY_OUTCOME_UNKNOWN" && code != "IDEMPOTENCY_IN_PROGRESS" {
				t.Fatalf("%s %s: %s, want %d or not yet", c.path, c.fault, r, c.want)
			}
			s.pause(t)
			r = s.call(1, "POST", "/payments/"+c.path, key, c.body, nil)
		}
		var moved []string
		for _, e := range s.entries(t)[before:] {
			if e.Kind != processor.Closure {
				moved = append(moved, string(e.Kind))
			}
		}
		if got := strings.Join(moved, ", "); got != c.ledger {
			t.Errorf("%s %s: %s, and the ledger has %q more, want %q", c.path, c.fault, r, got, c.ledger)
		}
		if again := s.call(0, "POST", "/payments/"+c.path, key, c.body, nil); again.String() != r.String() {
			t.Errorf("%s %s: %s, then %s", c.path, c.fault, r, again)
		}
	}
}

// pause waits before something is looked at again.
func (s *stage) pause(t *testing.T) {
	t.Helper()
	select {
	case <-time.After(50 * time.Millisecond):
	case <-t.Context().Done():
		t.Fatal("the test has ended")
	}
}
