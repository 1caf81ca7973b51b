package webhook_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/outbox/webhook"
)

const (
	billing      = "whsec_YmlsbGluZy1iaWxsaW5nLWJpbGxpbmctYmlsbGluZw=="
	billingsNext = "whsec_bmV4dC1uZXh0LW5leHQtbmV4dC1uZXh0LW5leHQ="
	shipping     = "whsec_c2hpcHBpbmctc2hpcHBpbmctc2hpcHBpbmctc2hpcA=="
)

// sources are told apart by their path.
func sources(r *http.Request) (webhook.Source, error) {
	switch r.URL.Path {
	case "/billing":
		return webhook.Source{Name: "billing", Secrets: []string{billing, billingsNext}}, nil
	case "/shipping":
		return webhook.Source{Name: "shipping", Secrets: []string{shipping}}, nil
	case "/broken":
		return webhook.Source{}, errors.New("database is down")
	case "/misset":
		return webhook.Source{Name: "misset", Secrets: []string{"whsec_abc"}}, nil
	}
	return webhook.Source{}, nil
}

// A shop receives webhooks, and counts what it has handled.
type shop struct {
	http.Handler
	runs   int
	bodies []string
	answer func(w http.ResponseWriter, r *http.Request, run int)
}

func newShop(t *testing.T, onLost semel.LostPolicy, p semel.Policy, o webhook.ReceiverOptions) *shop {
	t.Helper()
	guard, err := semel.New(memstore.New(), semel.ScopeFunc(webhook.Scope), onLost, semel.Options{Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := webhook.NewReceiver(guard, sources, o)
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{}
	s.Handler = receiver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs++
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.bodies = append(s.bodies, string(body))
		if s.answer != nil {
			s.answer(w, r, s.runs)
			return
		}
		fmt.Fprint(w, "run ", s.runs)
	}))
	return s
}

// a delivery is a request that its source has signed now.
func delivery(path, secret, id, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	r.Header.Set("webhook-id", id)
	r.Header.Set("webhook-timestamp", timestamp)
	r.Header.Set("webhook-signature", signatureOf(secret, id, timestamp, body))
	return r
}

func deliver(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A redelivery has another timestamp and another signature, by the next secret even. It is the same message.
func TestARedeliveryGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, semel.Hold, semel.Policy{}, webhook.ReceiverOptions{})
		for i, secret := range []string{billing, billingsNext, billing} {
			w := deliver(s, delivery("/billing", secret, "msg_1", `{"n":1}`))
			if w.Code != 200 || w.Body.String() != "run 1" || (w.Header().Get("Idempotent-Replayed") == "true") != (i > 0) {
				t.Errorf("delivery %d: %d %q %v", i+1, w.Code, w.Body, w.Header())
			}
			time.Sleep(2 * 24 * time.Hour) // sources try again for days
		}
		if s.runs != 1 || s.bodies[0] != `{"n":1}` {
			t.Errorf("%d runs with %q", s.runs, s.bodies)
		}
		if w := deliver(s, delivery("/billing", billing, "msg_1", `{"n":2}`)); w.Code != http.StatusUnprocessableEntity || s.runs != 1 {
			t.Errorf("another payload with the same id: %d, %d runs; want 422 and no run", w.Code, s.runs)
		}
		if w := deliver(s, delivery("/billing", billing, "msg_2", `{"n":1}`)); w.Body.String() != "run 2" {
			t.Errorf("another id: %d %q, want a run", w.Code, w.Body)
		}
		if w := deliver(s, delivery("/shipping", shipping, "msg_2", `{"n":1}`)); w.Body.String() != "run 3" {
			t.Errorf("the id of another source: %d %q, want a run", w.Code, w.Body)
		}
	})
}

func TestWhatIsNotAWebhookOfItsSourceRunsNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Hold, semel.Policy{MaxRequestBody: 100}, webhook.ReceiverOptions{})
	now := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }
	at := func(path, secret, id, timestamp, body string) *http.Request {
		r := delivery(path, secret, id, body)
		r.Header.Set("webhook-timestamp", timestamp)
		r.Header.Set("webhook-signature", signatureOf(secret, id, timestamp, body))
		return r
	}
	with := func(change func(*http.Request)) *http.Request {
		r := delivery("/billing", billing, "m", "{}")
		change(r)
		return r
	}
	for _, c := range []struct {
		why    string
		r      *http.Request
		status int
	}{
		{"signed by another source", delivery("/billing", shipping, "m", "{}"), 401},
		{"sent to another source's path", delivery("/shipping", billing, "m", "{}"), 401},
		{"of a source that is not known", delivery("/nobody", billing, "m", "{}"), 401},
		{"the body was changed", with(func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("[]")), 2 }), 401},
		{"the id was changed", with(func(r *http.Request) { r.Header.Set("webhook-id", "n") }), 401},
		{"the time was changed", with(func(r *http.Request) { r.Header.Set("webhook-timestamp", now(-time.Minute)) }), 401},
		{"a signature of another version", with(func(r *http.Request) {
			r.Header.Set("webhook-signature", "v2"+strings.TrimPrefix(r.Header.Get("webhook-signature"), "v1"))
		}), 401},
		{"an empty signature", with(func(r *http.Request) { r.Header.Set("webhook-signature", "v1,") }), 401},
		{"too old", at("/billing", billing, "m", now(-6*time.Minute), "{}"), 401},
		{"of the future", at("/billing", billing, "m", now(6*time.Minute), "{}"), 401},
		{"a time that is no number", at("/billing", billing, "m", "now", "{}"), 400},
		{"a time with a sign", at("/billing", billing, "m", "+"+now(0), "{}"), 400},
		{"a time with a zero before it", at("/billing", billing, "m", "0"+now(0), "{}"), 400},
		{"an id with a full stop", delivery("/billing", billing, "m.1", "{}"), 400},
		{"an id in quotes", delivery("/billing", billing, `"m"`, "{}"), 400},
		{"no id", with(func(r *http.Request) { r.Header.Del("webhook-id") }), 400},
		{"no time", with(func(r *http.Request) { r.Header.Del("webhook-timestamp") }), 400},
		{"no signature", with(func(r *http.Request) { r.Header.Del("webhook-signature") }), 400},
		{"two ids", with(func(r *http.Request) { r.Header.Add("webhook-id", "m") }), 400},
		{"two times", with(func(r *http.Request) { r.Header.Add("webhook-timestamp", now(0)) }), 400},
		{"two headers with signatures", with(func(r *http.Request) { r.Header.Add("webhook-signature", "v1,") }), 400},
		{"a body above the limit", delivery("/billing", billing, "m", strings.Repeat("x", 101)), 413},
		{"a body above the limit, of unknown length", with(func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", 101))), -1
		}), 413},
		{"a body that breaks off", with(func(r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), brokenReader{}))
		}), 400},
		{"a body that was read before", with(func(r *http.Request) { r.Body = http.NoBody }), 500},
		{"no POST", with(func(r *http.Request) { r.Method = http.MethodPut }), 405},
		{"the source can't be looked up", delivery("/broken", billing, "m", "{}"), 503},
		{"a secret that is none", delivery("/misset", billing, "m", "{}"), 500},
	} {
		w := deliver(s, c.r)
		if w.Code != c.status || w.Header().Get("Content-Type") != "application/problem+json" || s.runs > 0 {
			t.Errorf("%s: %d %s, %d runs; want %d and none", c.why, w.Code, w.Body, s.runs, c.status)
		}
	}
	// None of these has used the id.
	if w := deliver(s, delivery("/billing", billing, "m", "{}")); w.Code != 200 || s.runs != 1 {
		t.Errorf("the true message: %d %s, %d runs", w.Code, w.Body, s.runs)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestOneOfSeveralSignaturesIsEnough(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Hold, semel.Policy{}, webhook.ReceiverOptions{})
	r := delivery("/billing", billing, "m", "{}")
	r.Header.Set("webhook-signature", "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg== "+
		signatureOf(shipping, "m", "1", "{}")+" "+r.Header.Get("webhook-signature"))
	if w := deliver(s, r); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A source delivers again after every answer that is not 2xx. If the first such answer were given again, no delivery
// could ever succeed.
func TestAFailedDeliveryRunsAgainUntilOneSucceeds(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		s := newShop(t, onLost, semel.Policy{}, webhook.ReceiverOptions{})
		statuses := []int{500, 404, 422, 204}
		s.answer = func(w http.ResponseWriter, _ *http.Request, run int) { w.WriteHeader(statuses[run-1]) }
		for _, want := range []int{500, 404, 422, 204, 204, 204} {
			if w := deliver(s, delivery("/billing", billing, "m", "{}")); w.Code != want {
				t.Errorf("%v: answered %d, want %d", onLost, w.Code, want)
			}
		}
		if s.runs != 4 {
			t.Errorf("%v: %d runs, want 4", onLost, s.runs)
		}
	}
}

func TestALostDeliveryFollowsTheGuardsPolicy(t *testing.T) {
	t.Parallel()
	for onLost, wantRuns := range map[semel.LostPolicy]int{semel.Hold: 1, semel.Rerun: 2} {
		s := newShop(t, onLost, semel.Policy{}, webhook.ReceiverOptions{})
		s.answer = func(w http.ResponseWriter, _ *http.Request, run int) {
			if run == 1 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(http.StatusNoContent)
		}
		func() {
			defer func() { _ = recover() }()
			deliver(s, delivery("/billing", billing, "m", "{}"))
		}()
		w := deliver(s, delivery("/billing", billing, "m", "{}"))
		if s.runs != wantRuns || (w.Code == http.StatusNoContent) != (onLost == semel.Rerun) {
			t.Errorf("%v: answered %d after %d runs, want %d", onLost, w.Code, s.runs, wantRuns)
		}
	}
}

// Without its receiver in front of it, a guard for webhooks runs nothing.
func TestOnlyAVerifiedRequestHasAScope(t *testing.T) {
	t.Parallel()
	if scope, err := webhook.Scope(delivery("/billing", billing, "m", "{}")); err == nil {
		t.Errorf("the scope of a request that nobody verified is %q", scope)
	}
}

func TestReceiversThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	guard, err := semel.New(memstore.New(), semel.ScopeFunc(webhook.Scope), semel.Hold, semel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []webhook.ReceiverOptions{{Tolerance: -1}, {Retention: -1}} {
		if _, err := webhook.NewReceiver(guard, sources, o); err == nil {
			t.Errorf("accepted %+v", o)
		}
	}
	if _, err := webhook.NewReceiver(nil, sources, webhook.ReceiverOptions{}); err == nil {
		t.Error("accepted no guard")
	}
	if _, err := webhook.NewReceiver(guard, nil, webhook.ReceiverOptions{}); err == nil {
		t.Error("accepted no sources")
	}
}

func TestToleranceCanBeSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, semel.Hold, semel.Policy{}, webhook.ReceiverOptions{Tolerance: time.Minute})
		r := delivery("/billing", billing, "m", "{}")
		time.Sleep(61 * time.Second)
		if w := deliver(s, r); w.Code != http.StatusUnauthorized {
			t.Errorf("%d, want 401 after 61 s", w.Code)
		}
	})
}

// FuzzReceiver looks for a request that runs though its source has not signed it.
func FuzzReceiver(f *testing.F) {
	f.Add("m", "1764437000", "v1,abc", []byte("{}"))
	f.Add("m", "0", "v1, v1,", []byte(""))
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte) {
		s := newShop(t, semel.Hold, semel.Policy{}, webhook.ReceiverOptions{Tolerance: 1 << 62})
		r := httptest.NewRequest(http.MethodPost, "/billing", bytes.NewReader(body))
		r.Header["Webhook-Id"], r.Header["Webhook-Timestamp"], r.Header["Webhook-Signature"] = []string{id}, []string{timestamp}, []string{signature}
		if w := deliver(s, r); w.Code < 400 || s.runs > 0 {
			t.Errorf("%q %q %q: answered %d, %d runs", id, timestamp, signature, w.Code, s.runs)
		}
	})
}
