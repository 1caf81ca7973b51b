package e2e

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/semelhq/semel/examples/shop/host"
	"github.com/semelhq/semel/examples/shop/processor"
	"github.com/semelhq/semel/examples/shop/shop"
)

// intent returns the path of an intent that nobody has made.
func intent() string { return "/payment-intents/" + uuid.Must(uuid.NewV7()).String() }

func (s *stage) intentState(t *testing.T, path string) string {
	t.Helper()
	return decode[shop.Intent](t, s.call(1, "GET", path, "", nil, nil)).State
}

// kinds returns what the processor has done, in order.
func (s *stage) kinds(t *testing.T) string {
	t.Helper()
	var kinds []string
	for _, e := range s.entries(t) {
		kinds = append(kinds, string(e.Kind))
	}
	return strings.Join(kinds, " ")
}

func TestAnIntentHoldsMoneyOnceAndTakesItOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		path := intent()
		var puts sync.WaitGroup
		var made atomic.Int32
		for i := range 6 {
			puts.Go(func() {
				r := s.call(i, "PUT", path, "", purchase, nil)
				if r.Status == http.StatusCreated {
					made.Add(1)
				} else if r.Status != http.StatusOK {
					t.Error(r)
				}
			})
		}
		puts.Wait()
		if made.Load() != 1 || s.kinds(t) != "authorization" {
			t.Errorf("%d requests have made the intent, and the ledger has %q", made.Load(), s.kinds(t))
		}
		other := purchase
		other.Amount++
		if r := s.call(1, "PUT", path, "", other, nil); r.Status != http.StatusConflict || !strings.Contains(r.String(), "intent_exists") {
			t.Error(r)
		}
		key := s.newKey()
		first := s.want(t, 200, path+"/confirm", key, nil)
		if again := s.call(1, "POST", path+"/confirm", key, nil, nil); again.String() != first.String() || decode[shop.Intent](t, first).State != "confirmed" {
			t.Errorf("%s, then %s", first, again)
		}
		s.want(t, 409, path+"/confirm", s.newKey(), nil)
		s.want(t, 409, path+"/cancel", s.newKey(), nil)
		if got := s.kinds(t); got != "authorization capture" {
			t.Errorf("the ledger has %q", got)
		}
	})
}

func TestACancelledIntentLetsGoOfItsMoney(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		path, key := intent(), s.newKey()
		if r := s.call(0, "PUT", path, "", purchase, nil); r.Status != http.StatusCreated {
			t.Fatal(r)
		}
		first := s.want(t, 200, path+"/cancel", key, nil)
		if again := s.call(1, "POST", path+"/cancel", key, nil, nil); again.String() != first.String() {
			t.Errorf("%s, then %s", first, again)
		}
		s.want(t, 409, path+"/confirm", s.newKey(), nil)
		s.eventually("authorization void", func() string { return s.kinds(t) })
	})
}

func TestAnIntentExpires(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c host.Config) {
		c.IntentLife = time.Millisecond
		s := newStage(t, c)
		path := intent()
		if r := s.call(0, "PUT", path, "", purchase, nil); r.Status != http.StatusCreated {
			t.Fatal(r)
		}
		s.eventually("expired", func() string { return s.intentState(t, path) })
		if r := s.want(t, 409, path+"/confirm", s.newKey(), nil); !strings.Contains(r.String(), "intent_expired") {
			t.Error(r)
		}
		s.eventually("authorization void", func() string { return s.kinds(t) })
	})
}

func TestADeclinedIntentStaysDeclined(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		path, declined := intent(), purchase
		declined.Card = processor.Declined
		for i := range 2 {
			if r := s.call(i, "PUT", path, "", declined, nil); r.Status != http.StatusPaymentRequired {
				t.Error(r)
			}
		}
		s.want(t, 409, path+"/confirm", s.newKey(), nil)
		if got := s.kinds(t); got != "decline" {
			t.Errorf("the ledger has %q", got)
		}
	})
}

// TestALateRepeatOfAForgottenIntentsEndIsAnsweredFromItsRow: confirmed or cancelled, it is not refused as ended.
func TestALateRepeatOfAForgottenIntentsEndIsAnsweredFromItsRow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]host.Config{"SQLite": {}, "PostgreSQL": {Database: newDatabase(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, c)
			for _, end := range []string{"/confirm", "/cancel"} {
				path, key := s.held(t)+end, s.newKey()
				first := s.want(t, 200, path, key, nil)
				s.forget(t, key)
				if late := s.want(t, 200, path, key, nil); late.String() != first.String() || late.Header.Get("Idempotent-Replayed") != "" {
					t.Errorf("%s, then %s", first, late)
				}
			}
			s.balance(t)
		})
	}
}
