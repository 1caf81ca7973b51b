package semel_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// Keys of version 7 in both cases.
const (
	lowerUUID = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
	upperUUID = "017F22E2-79B0-7CC3-98C4-DC0C0C07398F"
)

// with a UUID rule a key is the same in either case, wherever it stands; its client is told it as it was sent, and
// so is the handler.
func TestField15_UUIDKeysCompareWithoutCase(t *testing.T) {
	t.Parallel()
	mint := ""
	p := semel.Policy{
		KeyFormat: semel.KeyFormat{UUID: semel.UUIDAny}, KeyHeaders: []string{"Idempotency-Key", "X-Request-Key"},
		KeyField: "/key", Mint: func(*http.Request, []byte) (string, error) { return mint, nil },
	}
	store, l := memstore.New(), &ledger{}
	g, _ := newGuard(t, store, p)
	derived := map[string]bool{}
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		derived[semel.FromContext(r.Context()).Key("row")] = true
		if got := r.Header.Get("Idempotency-Key"); got != `"`+upperUUID+`"` {
			t.Errorf("the handler sees %q", got)
		}
		l.pay(w, r)
	}))
	w := answer(h, post(`"`+upperUUID+`"`, `{"a":1}`))
	checkRun(t, w)
	if got := w.Header().Get("Idempotency-Key"); got != `"`+upperUUID+`"` {
		t.Errorf("echoed as %q", got)
	}
	if rec := recordOfKey(t, store, "alice", lowerUUID); rec.State != driver.Done {
		t.Errorf("under the key in lower case is a record %v", rec.State)
	}
	for _, key := range []string{lowerUUID, upperUUID, `"` + lowerUUID + `";a=1`, " " + strings.ToUpper(lowerUUID[:9]) + lowerUUID[9:]} {
		w := answer(h, post(key, `{"a":1}`))
		checkReplay(t, w)
		if got := w.Header().Get("Idempotency-Key"); got != key {
			t.Errorf("%q is echoed as %q", key, got)
		}
	}
	checkReplay(t, answer(h, post(lowerUUID, `{"a":1}`, "X-Request-Key", upperUUID)))
	checkProblem(t, answer(h, post("", `{"key":"`+lowerUUID+`"}`)), 422, refusal.KeyReused) // the same key, another body
	checkProblem(t, answer(h, post(lowerUUID, `{"key":"`+upperUUID+`"}`)), 422, refusal.KeyReused)
	for _, mint = range []string{lowerUUID, upperUUID} {
		checkReplay(t, answer(h, post("", `{"a":1}`)))
	}
	checkEffects(t, l, 1)
	checkRecords(t, store, 1)
	if len(derived) != 1 {
		t.Errorf("%d derived keys", len(derived))
	}
}

func TestField15_UUIDKeysOfVersionFourCompareWithoutCase(t *testing.T) {
	t.Parallel()
	const key = "919108f7-52d1-4320-9bac-f847db4148a8"
	h, l, _, _ := payHandler(t, semel.Policy{KeyFormat: semel.KeyFormat{UUID: semel.UUIDv4}, PerOperation: true})
	checkRun(t, answer(h, post(key, `{}`)))
	checkReplay(t, answer(h, post(strings.ToUpper(key), `{}`)))
	checkProblem(t, answer(h, post(upperUUID, `{}`)), 400, refusal.KeyInvalid)
	checkEffects(t, l, 1)
}

// Where any key is one, two in different case are two, also if they happen to be UUIDs; and so are minted ones that are
// none.
func TestField15_UUIDsAmongOtherKeysAreTwoInEitherCase(t *testing.T) {
	t.Parallel()
	h, l, store, _ := payHandler(t, semel.Policy{})
	checkRun(t, answer(h, post(lowerUUID, `{}`)))
	checkRun(t, answer(h, post(upperUUID, `{}`)))
	checkEffects(t, l, 2)
	checkRecords(t, store, 2)

	mint := ""
	h, l, _, _ = payHandler(t, semel.Policy{
		KeyFormat: semel.KeyFormat{UUID: semel.UUIDAny}, Mint: func(*http.Request, []byte) (string, error) { return mint, nil },
	})
	for _, mint = range []string{"minted-a", "minted-A"} {
		checkRun(t, answer(h, post("", `{}`)))
	}
	checkEffects(t, l, 2)
}

func TestField15_UUIDKeysOfDoCompareWithoutCase(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, nil, semel.Policy{KeyFormat: semel.KeyFormat{UUID: semel.UUIDAny}, Operation: "pay"})
	var l ledger
	for _, key := range []string{upperUUID, lowerUUID} {
		n, err := semel.Do(t.Context(), g, semel.Key{Scope: "alice", Operation: "pay", Value: key}, semel.Bytes("x"), func(context.Context) (int, error) {
			return l.add(), nil
		})
		if n != 1 || err != nil {
			t.Errorf("%s: %d, %v", key, n, err)
		}
	}
}

// A question about an operation finds it by the key in any case, though it does not know the route.
func TestField15_UUIDKeysAreAskedAboutInEitherCase(t *testing.T) {
	t.Parallel()
	g, questions, _ := linkedGuard(t, nil, semel.Options{})
	var l ledger
	exact := g.Wrap(http.HandlerFunc(l.pay))
	uuids := g.Route(semel.Policy{KeyFormat: semel.KeyFormat{UUID: semel.UUIDAny}}).Wrap(http.HandlerFunc(l.pay))
	ask := func(key string) string {
		return statusOf(t, answer(questions, about("", "Idempotency-Key", key)), http.StatusOK).ID
	}
	checkRun(t, answer(uuids, post(upperUUID, `{}`)))
	id := ask(lowerUUID)
	if got := ask(upperUUID); got != id {
		t.Errorf("found %s, want %s", got, id)
	}
	checkRun(t, answer(exact, post(upperUUID, `{}`)))
	if got := ask(upperUUID); got == id {
		t.Error("the key as it was sent leads to another operation")
	}
	if got := answer(questions, about("", "Idempotency-Key", strings.Replace(upperUUID, "0", "1", 1))); got.Code != http.StatusNotFound {
		t.Errorf("another key: %d %s", got.Code, got.Body)
	}
}
