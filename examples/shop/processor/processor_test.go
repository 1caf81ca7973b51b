package processor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/examples/shop/processor"
)

// A bench is a processor that is served, with the file of its ledger.
type bench struct {
	*testing.T
	p    *processor.Processor
	url  string
	path string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, path: filepath.Join(t.TempDir(), "ledger.jsonl")}
	b.open()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.p.Handler().ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

func (b *bench) open() {
	b.Helper()
	p, err := processor.Open(processor.Options{Ledger: b.path})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close() })
	b.p = p
}

type answer struct {
	status   int
	replayed bool
	body     string
	err      error
}

func (b *bench) call(method, path, key, body string) answer {
	b.Helper()
	r, err := http.NewRequest(method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	if key != "" {
		r.Header["idempotency-key"] = []string{key} // under this name net/http sends nothing again by itself
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("Idempotent-Replayed") == "true", string(data), err}
}

// post makes a call that has to be answered with the status.
func (b *bench) post(want int, path, key, body string) answer {
	b.Helper()
	a := b.call("POST", path, key, body)
	if a.err != nil || a.status != want {
		b.Fatalf("POST %s %s: %d %s%v, want %d", path, body, a.status, a.body, a.err, want)
	}
	return a
}

func (b *bench) faults(body string) {
	b.Helper()
	if a := b.call("PUT", "/faults", "", body); a.status != http.StatusOK {
		b.Fatalf("PUT /faults %s: %d %s", body, a.status, a.body)
	}
}

// ledger returns the entries in short: kind and amount.
func (b *bench) ledger() string {
	var s []string
	for _, e := range b.p.Ledger() {
		s = append(s, fmt.Sprintf("%s %d", e.Kind, e.Amount))
	}
	return strings.Join(s, ", ")
}

func (b *bench) wantLedger(want string) {
	b.Helper()
	if got := b.ledger(); got != want {
		b.Errorf("the ledger has %q, want %q", got, want)
	}
}

const purchase = `{"amount":4200,"currency":"EUR","card":"tok_visa","reference":"order-1"}`

func TestAPurchaseIsHeldTakenAndGivenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.post(201, "/authorizations", "a", purchase)
	b.post(201, "/authorizations/authorization_1/capture", "b", `{"amount":4000}`)
	b.post(201, "/refunds", "c", `{"charge":"capture_2","amount":1500}`)
	b.post(409, "/refunds", "d", `{"charge":"capture_2","amount":2501}`)
	b.post(201, "/refunds", "e", `{"charge":"capture_2","amount":2500}`)
	b.post(201, "/charges", "f", purchase)
	b.post(201, "/authorizations", "g", purchase)
	b.post(201, "/authorizations/authorization_6/void", "h", ``)
	b.wantLedger("authorization 4200, capture 4000, refund 1500, refund 2500, charge 4200, authorization 4200, void 4200")
}

func TestFundsAreTakenOnceAndNeverAfterAVoid(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.post(201, "/authorizations", "", purchase)
	b.post(409, "/authorizations/authorization_1/capture", "", `{"amount":4201}`)
	b.post(201, "/authorizations/authorization_1/capture", "", ``)
	b.post(409, "/authorizations/authorization_1/capture", "", ``)
	b.post(409, "/authorizations/authorization_1/void", "", ``)
	b.post(201, "/authorizations", "", purchase)
	b.post(201, "/authorizations/authorization_3/void", "", ``)
	b.post(409, "/authorizations/authorization_3/void", "", ``)
	b.post(409, "/authorizations/authorization_3/capture", "", ``)
	b.post(404, "/authorizations/capture_2/void", "", ``)
	b.post(404, "/refunds", "", `{"charge":"authorization_3","amount":1}`)
	b.wantLedger("authorization 4200, capture 4200, authorization 4200, void 4200")
}

func TestARepetitionIsAnsweredAsTheFirstTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.post(201, "/charges", `"k-1"`, purchase)
	if first.replayed {
		t.Error("the first answer is marked as a replay")
	}
	declined := b.post(402, "/charges", "k-2", strings.Replace(purchase, "tok_visa", processor.Declined, 1))
	b.p.Close()
	b.open()
	for key, want := range map[string]answer{`"k-1"`: first, `k-1`: first} {
		if got := b.post(201, "/charges", key, purchase); !got.replayed || got.body != want.body {
			t.Errorf("key %s: %+v, want a replay of %s", key, got, want.body)
		}
	}
	if got := b.post(402, "/charges", "k-2", strings.Replace(purchase, "tok_visa", processor.Declined, 1)); !got.replayed || got.body != declined.body {
		t.Errorf("a declined charge is repeated: %+v, want a replay of %s", got, declined.body)
	}
	b.post(422, "/charges", "k-1", strings.Replace(purchase, "4200", "4300", 1))
	b.post(422, "/authorizations", "k-1", purchase)
	b.wantLedger("charge 4200, decline 4200")
}

func TestManyAtOnceUnderOneKeyChargeOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			if a := b.call("POST", "/charges", "k", purchase); a.status != 201 {
				t.Errorf("%d %s%v, want 201", a.status, a.body, a.err)
			}
		})
	}
	calls.Wait()
	b.wantLedger("charge 4200")
}

func TestWithoutDedupEachCallCharges(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.faults(`{"dedup":false}`)
	b.post(201, "/charges", "k", purchase)
	if again := b.post(201, "/charges", "k", purchase); again.replayed {
		t.Error("the second answer is marked as a replay")
	}
	b.wantLedger("charge 4200, charge 4200")
}

func TestErrorsNameTheField(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, c := range []struct {
		path, body, field, why string
	}{
		{"/charges", `{"amount":42.5,"currency":"EUR","card":"tok_visa"}`, "amount", "money is never a decimal"},
		{"/charges", `{"amount":"42","currency":"EUR","card":"tok_visa"}`, "amount", "nor a text"},
		{"/charges", `{"amount":-1,"currency":"EUR","card":"tok_visa"}`, "amount", "a charge takes money"},
		{"/charges", `{"amount":0,"currency":"EUR","card":"tok_visa"}`, "amount", "a charge of nothing is none"},
		{"/charges", `{"amount":1,"currency":"eur","card":"tok_visa"}`, "currency", "ISO 4217 has capital letters"},
		{"/charges", `{"amount":1,"currency":"EUR","card":"4111"}`, "card", "a card's number must not come here"},
		{"/refunds", `{"charge":"x","amount":1.5}`, "amount", "money is never a decimal"},
		{"/closures", `{}`, "key", "nothing to close"},
	} {
		var got struct {
			Error struct{ Field, Message string }
		}
		a := b.post(400, c.path, "", c.body)
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || got.Error.Field != c.field || !strings.HasPrefix(got.Error.Message, c.field+": ") {
			t.Errorf("%s %s: %s, want the field %s (%s)", c.path, c.body, a.body, c.field, c.why)
		}
	}
	b.wantLedger("")
}

func TestFaultsFailBeforeAndAfterTheEffect(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.faults(`{"fail_before":{"next":1}}`)
	b.post(500, "/charges", "a", purchase)
	b.wantLedger("")
	b.post(201, "/charges", "a", purchase)

	b.faults(`{"fail_after":{"next":1}}`)
	b.post(500, "/charges", "b", purchase)
	b.wantLedger("charge 4200, charge 4200")
	if a := b.post(201, "/charges", "b", purchase); !a.replayed {
		t.Error("the charge behind a 500 is made again")
	}

	b.faults(`{"lose_answer":{"next":1}}`)
	if a := b.call("POST", "/charges", "c", purchase); a.err == nil {
		t.Errorf("%d %s, want no answer", a.status, a.body)
	}
	if a := b.post(201, "/charges", "c", purchase); !a.replayed {
		t.Error("the charge whose answer was lost is made again")
	}

	b.faults(`{"decline":1}`)
	b.post(402, "/charges", "d", purchase)
	b.faults(`{}`)
	b.post(201, "/charges", "e", purchase)
	b.wantLedger("charge 4200, charge 4200, charge 4200, decline 4200, charge 4200")
}

func TestASeedChoosesTheSameFaultsAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := func() (statuses string) {
		b.faults(`{"fail_before":0.5,"seed":7}`)
		for range 20 {
			statuses += fmt.Sprint(b.call("POST", "/charges", "", purchase).status, " ")
		}
		return statuses
	}
	first, second := run(), run()
	if first != second || !strings.Contains(first, "500") || !strings.Contains(first, "201") {
		t.Errorf("statuses %s, then %s: want the same, some of both kinds", first, second)
	}
}

func TestFaultsAreShownAndChecked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.faults(`{"delay_ms":3,"lose_answer":0.2,"fail_after":{"next":2}}`)
	const want = `{"delay_ms":3,"fail_before":0,"fail_after":{"next":2,"share":0},"lose_answer":0.2,"decline":0,"seed":0,"dedup":true}`
	if a := b.call("GET", "/faults", "", ""); strings.TrimSpace(a.body) != want {
		t.Errorf("GET /faults: %s, want %s", a.body, want)
	}
	for _, body := range []string{`{"delay_ms":-1}`, `{"decline":1.1}`, `{"decline":"often"}`, `{"decline":{"next":-1}}`, `{"unknown":1}`} {
		if a := b.call("PUT", "/faults", "", body); a.status != 400 {
			t.Errorf("PUT /faults %s: %d %s, want 400", body, a.status, a.body)
		}
	}
}

func TestALookUpFindsWhatBecameOfAKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.post(201, "/charges", "k", purchase)
	b.post(201, "/refunds", "r", `{"charge":"charge_1","amount":1}`)
	for _, path := range []string{"/lookup?key=k", "/charges?key=k"} {
		var e processor.Entry
		a := b.call("GET", path, "", "")
		if err := json.Unmarshal([]byte(a.body), &e); err != nil || a.status != 200 || e.ID != "charge_1" || e.Key != "k" {
			t.Errorf("GET %s: %d %s, want the charge", path, a.status, a.body)
		}
	}
	if a := b.call("GET", "/lookup?key=other", "", ""); a.status != 404 {
		t.Errorf("an unknown key: %d, want 404", a.status)
	}
	if a := b.call("GET", "/lookup", "", ""); a.status != 400 {
		t.Errorf("no key: %d, want 400", a.status)
	}
	var entries []processor.Entry
	if a := b.call("GET", "/ledger", "", ""); json.Unmarshal([]byte(a.body), &entries) != nil || len(entries) != 2 {
		t.Errorf("GET /ledger: %s, want both entries", a.body)
	}
}

func TestAClosedKeyIsRefusedUpToItsFence(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.post(204, "/closures", "", `{"key":"k","fence":7}`)
	b.post(204, "/closures", "", `{"key":"k","fence":6}`)
	b.post(204, "/closures", "", `{"key":"gone"}`)
	b.post(409, "/charges", "k", purchase)
	b.p.Close()
	b.open()
	b.post(409, "/charges", "k", purchase)
	b.post(409, "/charges", "gone", purchase)
	r, _ := http.NewRequest("POST", b.url+"/charges", strings.NewReader(purchase))
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("Idempotency-Fence", "8")
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != 201 {
		t.Fatalf("a later run: %v %v, want 201", resp, err)
	}
	resp.Body.Close()
	if a := b.post(200, "/closures", "", `{"key":"k"}`); !strings.Contains(a.body, `"charge_3"`) {
		t.Errorf("closing a key that was used: %s, want its charge", a.body)
	}
	b.wantLedger("closure 0, closure 0, charge 4200")
}

func TestATornLastLineIsCutOff(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.post(201, "/charges", "a", purchase)
	whole, err := os.ReadFile(b.path)
	if err != nil {
		t.Fatal(err)
	}
	b.post(201, "/charges", "b", purchase)
	both, err := os.ReadFile(b.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{len(whole), len(whole) + 1, len(both) - 1} {
		b.p.Close()
		if err := os.WriteFile(b.path, both[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		b.open()
		b.wantLedger("charge 4200")
		if data, _ := os.ReadFile(b.path); !bytes.Equal(data, whole) {
			t.Errorf("torn at byte %d the file has %d bytes after opening, want %d", size, len(data), len(whole))
		}
		if a := b.post(201, "/charges", "b", purchase); a.replayed {
			t.Errorf("torn at byte %d: the charge that was never recorded is replayed", size)
		}
	}
}

func TestADamagedLedgerIsRefused(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"{}\n", "garbage\n", `{"seq":2,"kind":"charge","id":"charge_2","amount":1}` + "\n"} {
		path := filepath.Join(t.TempDir(), "ledger.jsonl")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := processor.Open(processor.Options{Ledger: path}); err == nil {
			p.Close()
			t.Errorf("a ledger of %q was opened", content)
		}
	}
}

func TestASecondWriterOfTheLedgerIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.p
	b.open()
	b.post(201, "/charges", "a", purchase)
	b.p = first
	b.post(500, "/charges", "a", purchase)
	b.wantLedger("")
}
