package shop

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/examples/shop/processor"
)

// ask sends a request of acme to a shop that nobody serves.
func ask(s *Shop, method, path, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, base+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Tenant-ID", "acme")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

const intentBody = `{"amount":4200,"currency":"EUR","card":"tok_visa"}`

// TestAConfirmationThatRacesExpiryHasOneWinner: the money is taken if and only if the client is told so.
func TestAConfirmationThatRacesExpiryHasOneWinner(t *testing.T) {
	t.Parallel()
	s, p := newShop(t)
	late := time.Now().Add(time.Hour)
	confirmed := 0
	for n := range 50 {
		path := fmt.Sprintf("/payment-intents/0198f5a0-0000-7000-8000-%012d", n)
		if w := ask(s, http.MethodPut, path, "", intentBody); w.Code != http.StatusCreated {
			t.Fatal(w.Code, w.Body)
		}
		var both sync.WaitGroup
		both.Go(func() {
			if err := errors.Join(s.expireIntents(t.Context(), late), s.letGoOfIntents(t.Context())); err != nil {
				t.Error(err)
			}
		})
		key := fmt.Sprint("confirm-", n)
		first := ask(s, http.MethodPost, path+"/confirm", key, "").Code
		both.Wait()
		must(t, s.letGoOfIntents(t.Context()))
		again := ask(s, http.MethodPost, path+"/confirm", key, "").Code
		shown := ask(s, http.MethodGet, path, "", "").Body.String()
		switch {
		case first == again && first == http.StatusOK && strings.Contains(shown, `"confirmed"`):
			confirmed++
		case first == again && first == http.StatusConflict && strings.Contains(shown, `"expired"`):
		default:
			t.Fatalf("confirmed with %d, then %d, and it is %s", first, again, shown)
		}
		if captures, voids := count(p, processor.Capture), count(p, processor.Void); captures != confirmed || captures+voids != n+1 {
			t.Fatalf("%d of %d were confirmed; the processor has %d captures and %d voids", confirmed, n+1, captures, voids)
		}
	}
	t.Logf("%d of 50 confirmations have won", confirmed)
}

// TestAnIntentWhoseTimeIsOverCantBeConfirmed: nobody has to have marked it.
func TestAnIntentWhoseTimeIsOverCantBeConfirmed(t *testing.T) {
	t.Parallel()
	s, p := newShop(t)
	s.o.IntentLife = -time.Second
	const path = "/payment-intents/0198f5a0-0000-7000-8000-000000000000"
	if w := ask(s, http.MethodPut, path, "", intentBody); w.Code != http.StatusCreated {
		t.Fatal(w.Code, w.Body)
	}
	for _, key := range []string{"one", "two"} {
		if w := ask(s, http.MethodPost, path+"/confirm", key, ""); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "intent_expired") {
			t.Errorf("confirmed: %d %s", w.Code, w.Body)
		}
	}
	if shown := ask(s, http.MethodGet, path, "", "").Body.String(); !strings.Contains(shown, `"expired"`) {
		t.Error(shown)
	}
	must(t, s.letGoOfIntents(t.Context()))
	if count(p, processor.Capture) != 0 || count(p, processor.Void) != 1 {
		t.Errorf("the ledger has %v", p.Ledger())
	}
}

func count(p *processor.Processor, kind processor.Kind) (n int) {
	for _, e := range p.Ledger() {
		if e.Kind == kind {
			n++
		}
	}
	return n
}
