package semel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// fields is a handler that answers with the given header, name and values, and a body.
func fields(l *ledger, h http.Header, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		l.add()
		for name, values := range h {
			w.Header()[name] = values
		}
		io.WriteString(w, body)
	}
}

func TestR35_Case19_HeadersOfOneExchangeAreNotReplayed(t *testing.T) {
	t.Parallel()
	never := http.Header{}
	for _, name := range []string{
		"Set-Cookie", "Set-Cookie2", "Date", "Server", "Alt-Svc", "Strict-Transport-Security",
		// to the connection
		"Connection", "Keep-Alive", "Te", "Upgrade", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authentication-Info",
		"X-Named", "X-Named-Too",
		// to the principal's session
		"Www-Authenticate", "Authentication-Info",
		// to the moment
		"Ratelimit", "Ratelimit-Policy", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset",
		"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Rate-Limit-Remaining",
		"X-Ms-Ratelimit-Remaining-Tenant-Writes", "X-Shopify-Shop-Api-Call-Limit", "Github-Ratelimit-Used",
		// to the trace
		"X-Request-Id", "Request-Id", "X-Correlation-Id", "Correlation-Id", "X-My-Correlation", "X-Trace-Id", "Trace-Id",
		"Traceparent", "Tracestate", "Traceresponse", "Baggage", "B3", "X-B3-Traceid", "Uber-Trace-Id", "Sentry-Trace",
		"X-Amzn-Trace-Id", "X-Amzn-Requestid", "X-Amz-Request-Id", "X-Cloud-Trace-Context", "X-Ms-Request-Id", "Cf-Ray",
		"Server-Timing", "X-Github-Request-Id", "Paypal-Debug-Id", "X-Ms-Correlation-Request-Id", "X-Ms-Client-Request-Id", "X-Amz-Id-2",
		"X-Span-Id", "X-Datadog-Trace-Id",
		// to whoever holds them
		"Authorization", "Token", "X-Auth-Token", "X-Access-Token", "X-Refresh-Token", "X-Id-Token", "X-Subject-Token", "X-Csrf-Token",
		"X-Xsrf-Token", "Csrf-Token", "X-Csrftoken", "X-Amz-Security-Token", "X-Vault-Token", "X-Shopify-Access-Token", "X-Session-Id",
		"X-Session-Token", "Session", "X-Api-Key", "Apikey", "X-Client-Secret", "X-Jwt", "X-Authorization", "X-Amz-Access-Key",
		// ours
		"Idempotency-Key", "X-Idempotency-Key", "Idempotency-Status", "Idempotency-Expires", "Idempotency-Retryable",
		"Idempotent-Replayed", "X-Replay", "Preference-Applied",
	} {
		never[name] = []string{"live only"}
	}
	never["Connection"] = []string{"close, x-named", "X-NAMED-Too"}
	never["x-request-id"] = []string{"live only"} // not in canonical form
	kept := http.Header{
		"X-Kept": {"1"}, "Location": {"/payments/1"}, "Etag": {`"1"`}, "Content-Type": {"text/plain"}, "Vary": {"Accept"},
		"X-Next-Page-Token": {"n"}, "X-Ms-Continuation-Token": {"c"}, "X-Tokens-Used": {"12"}, "X-Authors": {"2"}, "X-Secretary": {"s"},
		"Retry-After": {"7"}, "Content-Language": {"en"}, "Last-Modified": {"Mon, 02 Jan 2006 15:04:05 GMT"},
	}
	all := never.Clone()
	for name, values := range kept {
		all[name] = values
	}
	s, l := memstore.New(), &ledger{}
	g, _ := newGuardWith(t, s, semel.Options{
		CorrelationHeader: "X-My-Correlation", ReplayMarkers: []string{"X-Replay"},
		Policy: semel.Policy{KeyHeaders: []string{"X-Idempotency-Key", "Other-Key"}},
	})
	h := g.Wrap(fields(l, all, "body"))
	ask := func() http.Header { return answer(h, post("", "{}", "X-Idempotency-Key", "k")).Header() }
	live := ask()
	for name, values := range all {
		if !reflect.DeepEqual(live[name], values) && name != "Idempotency-Expires" {
			t.Errorf("the live answer lost %s: %q", name, live[name])
		}
	}
	replay := ask()
	for name := range never {
		for _, v := range replay[name] {
			if v == "live only" || name == "Connection" {
				t.Errorf("the replay has %s: %q", name, v)
			}
		}
	}
	for name, values := range kept {
		if !reflect.DeepEqual(replay[name], values) {
			t.Errorf("the replay has %s: %q, want %q", name, replay[name], values)
		}
	}
	if got := only(t, s).Response.Header; !reflect.DeepEqual(got, kept) {
		t.Errorf("stored %v", got)
	}
	if l.count() != 1 {
		t.Errorf("%d executions", l.count())
	}
}

func TestR35_OnlyListedHeadersAreStored(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuard(t, s, semel.Policy{StoreHeaders: []string{"content-type", "X-Listed", "Set-Cookie", "X-Sum"}})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/csv")
		w.Header().Set("X-Listed", "1")
		w.Header().Set("X-Unlisted", "1")
		w.Header().Set("Set-Cookie", "a=1")
		io.WriteString(w, "a,b")
		w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
		w.Header().Set(http.TrailerPrefix+"X-Unlisted-Sum", "1")
	}))
	if live := answer(h, post("k", "{}")).Header(); live.Get("X-Unlisted") != "1" || live.Get("Set-Cookie") != "a=1" {
		t.Errorf("the live answer is %v", live)
	}
	if got, want := only(t, s).Response.Header, (http.Header{"Content-Type": {"text/csv"}, "X-Listed": {"1"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("stored %v, want %v", got, want)
	}
	if got, want := only(t, s).Response.Trailer, (http.Header{"X-Sum": {"1"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("stored trailers %v, want %v", got, want)
	}
	if again := answer(h, post("k", "{}")).Header(); again.Get("Content-Type") != "text/csv" || again.Get("X-Unlisted") != "" {
		t.Errorf("the replay is %v", again)
	}

	g, _ = newGuard(t, s, semel.Policy{StoreHeaders: []string{}})
	h = g.Wrap(fields(&ledger{}, http.Header{"X-Unlisted": {"1"}}, "x"))
	answer(h, post("none", "{}"))
	if again := answer(h, post("none", "{}")); again.Header().Get("X-Unlisted") != "" || again.Body.String() != "x" {
		t.Errorf("with an empty list the replay is %v", again.Header())
	}
}

func TestR35_TrailersAreKeptButForThoseOfOneExchange(t *testing.T) {
	t.Parallel()
	for _, proto := range wires {
		for _, stream := range []bool{false, true} {
			g, _ := newGuard(t, nil, semel.Policy{Stream: stream})
			w := newWire(t, proto, g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", "X-Sum, Server-Timing")
				w.Header().Set("X-Sum", "in the header")
				io.WriteString(w, "body")
				w.Header()["X-Sum"] = []string{"a", "b, c"}
				w.Header().Set("Server-Timing", "db;dur=1")
				w.Header().Set(http.TrailerPrefix+"x-late", "1")
			})))
			live := w.send(t, "k", "{}")
			again := w.send(t, "k", "{}")
			want := http.Header{"X-Sum": {"a", "b, c"}, "X-Late": {"1"}}
			if got := http.Header(set(again.trailer)); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, stream %t: the replay's trailers are %v, want %v", proto, stream, got, want)
			}
			want["Server-Timing"] = []string{"db;dur=1"}
			if got := http.Header(set(live.trailer)); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, stream %t: the trailers are %v, want %v", proto, stream, got, want)
			}
			for _, r := range []*reply{live, again} {
				// HTTP/2 can have both trailers and a length.
				if r.body != "body" || r.length != -1 && proto == "HTTP/1.1" || r.header.Get("X-Sum") != "in the header" || r.err != nil {
					t.Errorf("%s, stream %t: %q, length %d, %v", proto, stream, r.body, r.length, r.header)
				}
			}
		}
	}
}

func TestR35_Case19_GzipIsDecodedForWhoDoesNotAcceptIt(t *testing.T) {
	t.Parallel()
	tests := []struct {
		accept  []string
		decoded bool
	}{
		{nil, true},
		{[]string{""}, true},
		{[]string{"identity"}, true},
		{[]string{"br, deflate"}, true},
		{[]string{"gzip"}, false},
		{[]string{"GZIP"}, false},
		{[]string{"x-gzip"}, false},
		{[]string{"br", "deflate, gzip"}, false},
		{[]string{"gzip;q=0"}, true},
		{[]string{"gzip; q=0.000"}, true},
		{[]string{"gzip;\tq=0"}, true},
		{[]string{"gzip ; Q = 0 "}, true},
		{[]string{"gzip;q=0.001"}, false},
		{[]string{"gzip;q=1"}, false},
		{[]string{"gzip;q=much"}, true},
		{[]string{"gzip;q=NaN"}, true},
		{[]string{"gzip;q=-1"}, true},
		{[]string{"*"}, false},
		{[]string{"*;q=0"}, true},
		{[]string{"*, gzip;q=0"}, true},
		{[]string{"gzip;q=0, *"}, true},
		{[]string{"*;q=0, gzip"}, false},
	}
	l := &ledger{}
	g, _ := newGuardWith(t, nil, semel.Options{MaxAttempts: -1})
	encoded := packedText(t, `{"a":1}`)
	h := g.Wrap(fields(l, http.Header{
		"Content-Encoding": {"gzip"}, "Content-Type": {"application/json"}, "Etag": {`"1"`}, "Content-Digest": {"sha-256=:x:"},
		"Repr-Digest": {"sha-256=:x:"}, "Digest": {"SHA-256=x"}, "Content-Md5": {"x"}, "Vary": {"Accept-Encoding"},
	}, encoded))
	if live := answer(h, post("k", "{}")); live.Body.String() != encoded {
		t.Errorf("the live answer is not the handler's")
	}
	for _, tt := range tests {
		r := post("k", "{}")
		for _, line := range tt.accept {
			r.Header.Add("Accept-Encoding", line)
		}
		w := answer(h, r)
		wantBody, wantHeader := encoded, http.Header{
			"Content-Encoding": {"gzip"}, "Etag": {`"1"`}, "Content-Digest": {"sha-256=:x:"}, "Repr-Digest": {"sha-256=:x:"},
			"Digest": {"SHA-256=x"}, "Content-Md5": {"x"},
		}
		if tt.decoded {
			wantBody, wantHeader = `{"a":1}`, http.Header{"Etag": {`W/"1"`}}
		}
		wantHeader["Content-Type"] = []string{"application/json"}
		wantHeader["Vary"] = []string{"Accept-Encoding"}
		wantHeader["Content-Length"] = []string{fmt.Sprint(len(wantBody))}
		if got := without(w.Header(), ours...); w.Body.String() != wantBody || !reflect.DeepEqual(got, wantHeader) {
			t.Errorf("Accept-Encoding %q: got %v %q, want %v", tt.accept, got, w.Body, wantHeader)
		}
	}
	if l.count() != 1 {
		t.Errorf("%d executions", l.count())
	}
}

// What can't be decoded, or would be too large, or is no gzip, goes out as it was.
func TestR35_WhatIsNoGzipIsReplayedAsItIs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ coding, body string }{
		"other coding": {"br", packedText(t, "x")},
		"two codings":  {"gzip, br", packedText(t, "x")},
		"not gzip":     {"gzip", "plain"},
		"cut off":      {"gzip", packedText(t, strings.Repeat("x", 1000))[:20]},
		"bomb":         {"gzip", packedText(t, strings.Repeat("x", 2<<20))},
		"nothing":      {"gzip", ""},
	} {
		g, _ := newGuard(t, nil, semel.Policy{MaxResponseBody: 100 << 10})
		h := g.Wrap(fields(&ledger{}, http.Header{"Content-Encoding": {tt.coding}, "Etag": {`W/"1"`}}, tt.body))
		answer(h, post("k", "{}"))
		w := answer(h, post("k", "{}"))
		if w.Body.String() != tt.body || w.Header().Get("Content-Encoding") != tt.coding || w.Header().Get("Etag") != `W/"1"` {
			t.Errorf("%s: %v, %d bytes", name, w.Header(), w.Body.Len())
		}
	}
}

// An answer without a type, which net/http does not sniff because it is encoded, has none when it is decoded either.
func TestR35_R37_ADecodedAnswerIsNotGivenAType(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, nil, semel.Policy{})
	w := newWire(t, "HTTP/1.1", g.Wrap(fields(&ledger{}, http.Header{"Content-Encoding": {"gzip"}}, packedText(t, "<!DOCTYPE html>"))))
	w.send(t, "k", "{}")
	if r := w.send(t, "k", "{}"); r.body != "<!DOCTYPE html>" || r.header["Content-Type"] != nil {
		t.Errorf("got %v %q", r.header, r.body)
	}
}

func TestR34_ReplaysAreMarkedAndNothingElseIs(t *testing.T) {
	t.Parallel()
	g, seen := newGuardWith(t, nil, semel.Options{ReplayMarkers: []string{"Idempotent-Replayed", "x-replay"}})
	l := &ledger{}
	h := g.Wrap(http.HandlerFunc(l.pay))
	marks := func(w *httptest.ResponseRecorder) string {
		return w.Header().Get("Idempotent-Replayed") + "," + w.Header().Get("X-Replay")
	}
	first := answer(h, post("k", "{}"))
	again := answer(h, post("k", "{}"))
	other := answer(h, post("k", `{"a":1}`))
	if got := []string{marks(first), marks(again), marks(other)}; !reflect.DeepEqual(got, []string{",", "true,true", ","}) {
		t.Errorf("marks %q", got)
	}
	if again.Code != http.StatusCreated || again.Header().Get("Location") != "/payments/1" || again.Body.String() != first.Body.String() {
		t.Errorf("the replay is %d %v %q", again.Code, again.Header(), again.Body)
	}
	if got := seen.results(); !reflect.DeepEqual(got, []event.Result{event.Executed, event.Replayed, event.Mismatch}) {
		t.Errorf("results %q", got)
	}
}

func TestR39_KeyedAnswersAreNotCachedAndTellUntilWhen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{}
		g, _ := newGuard(t, nil, semel.Policy{Retention: 2 * time.Hour})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Minute) // retention counts from the end
			l.pay(w, r)
		}))
		want := time.Now().Add(time.Minute + 2*time.Hour).UTC().Format(http.TimeFormat)
		for _, key := range []string{`"k"`, `"k"`, `"k";a=1`} {
			w := answer(h, post(key, "{}"))
			if got := w.Header()["Idempotency-Key"]; !reflect.DeepEqual(got, []string{key}) {
				t.Errorf("the key %s is echoed as %q", key, got)
			}
			if got := w.Header()["Cache-Control"]; !reflect.DeepEqual(got, []string{"no-store"}) {
				t.Errorf("Cache-Control is %q", got)
			}
			if got := w.Header().Get("Idempotency-Expires"); got != want {
				t.Errorf("Idempotency-Expires is %q, want %q", got, want)
			}
			time.Sleep(time.Hour / 2)
		}
		if l.count() != 1 {
			t.Errorf("%d executions", l.count())
		}
	})
}

func TestR39_OnlyWhatIsKeptExpires(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		p      semel.Policy
		status int
	}{
		"kept for ever": {semel.Policy{Retention: semel.Forever}, http.StatusOK},
		"released":      {semel.Policy{}, http.StatusTooManyRequests},
	} {
		g, _ := newGuard(t, nil, tt.p)
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tt.status) }))
		for range 2 {
			if w := answer(h, post("k", "{}")); w.Header().Get("Idempotency-Expires") != "" || w.Code != tt.status {
				t.Errorf("%s: %d %v", name, w.Code, w.Header())
			}
		}
	}
}

func TestR39_ACacheControlThatIsSetStays(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		above, handler []string
		want           []string
	}{
		"handler":      {nil, []string{"private, max-age=1"}, []string{"private, max-age=1"}},
		"layer above":  {[]string{"no-cache"}, nil, []string{"no-cache"}},
		"both":         {[]string{"no-cache"}, []string{"private"}, []string{"private"}},
		"nobody":       {nil, nil, []string{"no-store"}},
		"handler, two": {nil, []string{"private", "max-age=1"}, []string{"private", "max-age=1"}},
	} {
		g, _ := newGuard(t, nil, semel.Policy{})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if tt.handler != nil {
				w.Header()["Cache-Control"] = tt.handler
			}
			w.WriteHeader(http.StatusOK)
		}))
		for range 2 {
			w := httptest.NewRecorder()
			if tt.above != nil {
				w.Header()["Cache-Control"] = tt.above
			}
			h.ServeHTTP(w, post("k", "{}"))
			if got := w.Header()["Cache-Control"]; !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%s: %q, want %q", name, got, tt.want)
			}
		}
	}
}

func TestR40_ALateRepeatGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	payments := map[string]bool{}
	g, _ := newGuard(t, nil, semel.Policy{})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		payments["1"] = true
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(http.StatusCreated)
	}))
	answer(h, post("k", "{}"))
	delete(payments, "1")
	if w := answer(h, post("k", "{}")); w.Code != http.StatusCreated || w.Header().Get("Location") != "/payments/1" || payments["1"] {
		t.Errorf("the late repeat got %d, and the payment is there again: %t", w.Code, payments["1"])
	}
}

func TestR41_ReplayComesBeforePreconditions(t *testing.T) {
	t.Parallel()
	etag := `"1"`
	g, _ := newGuard(t, nil, semel.Policy{})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-Match") != etag {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		etag = `"2"`
		w.Header().Set("Etag", etag)
		w.WriteHeader(http.StatusOK)
	}))
	for range 2 {
		if w := answer(h, post("k", "{}", "If-Match", `"1"`)); w.Code != http.StatusOK || w.Header().Get("Etag") != `"2"` {
			t.Errorf("got %d %v", w.Code, w.Header())
		}
	}
}

// A record that can't be read is neither absent nor an answer.
func TestR41a_R57_AnUnreadableRecordIsNeverRunAgain(t *testing.T) {
	t.Parallel()
	secret := errors.New("secret: row 17")
	spoil := func(change func(*driver.Response)) func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
		mem := memstore.New()
		return func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
			rec, owned, err := mem.Claim(ctx, id, c)
			if owned {
				_, _, err = mem.Settle(ctx, id, rec.Owner(), driver.Outcome{State: driver.Done, Response: &driver.Response{Status: 200, Body: []byte("secret")}})
				if err == nil {
					rec, owned, err = mem.Claim(ctx, id, driver.Claim{Fingerprint: c.Fingerprint, Token: driver.NewToken()})
				}
			}
			r := *rec.Response
			change(&r)
			rec.Response = &r
			return rec, owned, err
		}
	}
	gzipped := []byte(packedText(t, "secret answer"))
	for name, claim := range map[string]func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error){
		"the store says so": func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
			return driver.Record{}, false, fmt.Errorf("%w: %w", driver.ErrUnreadable, secret)
		},
		"unknown codec": spoil(func(r *driver.Response) { r.Codec = "zstd" }),
		"not gzip":      spoil(func(r *driver.Response) { r.Codec = "gzip" }),
		"gzip cut off":  spoil(func(r *driver.Response) { r.Codec, r.Body = "gzip", gzipped[:len(gzipped)-4] }),
		"gzip with a wrong sum": spoil(func(r *driver.Response) {
			r.Codec, r.Body = "gzip", append(append([]byte{}, gzipped[:len(gzipped)-8]...), make([]byte, 8)...)
		}),
		"gzip and more": spoil(func(r *driver.Response) { r.Codec, r.Body = "gzip", append(append([]byte{}, gzipped...), "x"...) }),
		"no status":     spoil(func(r *driver.Response) { r.Status = 0 }),
		"a 1xx":         spoil(func(r *driver.Response) { r.Status = 101 }),
		"no HTTP status": spoil(func(r *driver.Response) {
			r.Status = 1000
		}),
	} {
		s, l := &faulty{Store: memstore.New(), claim: claim}, &ledger{}
		g, seen := newGuard(t, s, semel.Policy{})
		w := answer(g.Wrap(http.HandlerFunc(l.pay)), post("k", "{}"))
		wantRefused(t, w, http.StatusConflict, refusal.ReplayUnavailable)
		if strings.Contains(w.Body.String(), "secret") || l.count() != 0 || seen.count(event.Unreadable) != 1 {
			t.Errorf("%s: %q, %d executions, %d events", name, w.Body, l.count(), seen.count(event.Unreadable))
		}
	}
}

func TestR14_R57_AReplayCanBeForbidden(t *testing.T) {
	t.Parallel()
	s, l := memstore.New(), &ledger{}
	g, seen := newGuard(t, s, semel.Policy{AuthorizeReplay: func(r *http.Request) error {
		if r.Header.Get("Authorization") != "valid" {
			return errors.New("secret reason")
		}
		return nil
	}})
	h := g.Wrap(fields(l, http.Header{"X-Secret": {"1"}}, "secret answer"))
	if w := answer(h, post("k", "{}")); w.Body.String() != "secret answer" {
		t.Errorf("the first run was asked: %d %q", w.Code, w.Body)
	}
	before := only(t, s)
	w := answer(h, post("k", "{}"))
	wantRefused(t, w, http.StatusForbidden, refusal.ReplayForbidden)
	if strings.Contains(w.Body.String(), "secret") || w.Header().Get("X-Secret") != "" || w.Header().Get("Idempotent-Replayed") != "" {
		t.Errorf("the refusal shows %v %q", w.Header(), w.Body)
	}
	if after := only(t, s); after.State != before.State || !reflect.DeepEqual(after.Response, before.Response) || after.Fence != before.Fence {
		t.Errorf("the record became %v", after)
	}
	if w := answer(h, post("k", "{}", "Authorization", "valid")); w.Body.String() != "secret answer" {
		t.Errorf("with access the repeat got %d %q", w.Code, w.Body)
	}
	if got := seen.results(); !reflect.DeepEqual(got, []event.Result{event.Executed, event.Refused, event.Replayed}) || l.count() != 1 {
		t.Errorf("results %q, %d executions", got, l.count())
	}
}

// Policy.Decide sees what the client sees.
func TestR44_DecideSeesTheAnswer(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 2000)
	for name, tt := range map[string]struct {
		body string
		want []byte
	}{
		"body": {`{"status":"FAILED"}`, []byte(`{"status":"FAILED"}`)}, "empty": {"", []byte{}}, "too large": {big, nil},
	} {
		asked := 0
		g, _ := newGuard(t, nil, semel.Policy{MaxResponseBody: 1000, Decide: func(status int, h http.Header, body []byte) semel.Verdict {
			asked++
			if status != http.StatusAccepted || h.Get("X-A") != "1" || h.Get("X-Late") != "" || !reflect.DeepEqual(body, tt.want) {
				t.Errorf("%s: asked about %d %v %q", name, status, h, body)
			}
			_ = append(body, "scribble"...)
			return semel.VerdictRelease
		}})
		l := &ledger{}
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			l.add()
			w.Header().Set("X-A", "1")
			w.WriteHeader(http.StatusAccepted)
			w.Header().Set("X-Late", "1")
			io.WriteString(w, tt.body)
		}))
		for range 2 {
			if w := answer(h, post("k", "{}")); w.Body.String() != tt.body || w.Code != http.StatusAccepted {
				t.Errorf("%s: the client got %d %q", name, w.Code, w.Body)
			}
		}
		if asked != 2 || l.count() != 2 {
			t.Errorf("%s: asked %d times, %d executions; want 2, released each time", name, asked, l.count())
		}
	}
}

func TestR45_KeptErrorsSayThatTheyAreFinal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		onLost semel.LostPolicy
		status int
		want   string
		runs   int
	}{
		{semel.Hold, 500, "false", 1},
		{semel.Hold, 502, "false", 1},
		{semel.Hold, 504, "false", 1},
		{semel.Hold, 599, "false", 1},
		{semel.Hold, 503, "", 2},
		{semel.Rerun, 500, "", 2},
		{semel.Hold, 422, "", 1},
	} {
		l := &ledger{}
		g, _ := newGuard(t, nil, semel.Policy{OnLost: tt.onLost})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			l.add()
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(tt.status)
			io.WriteString(w, `{"retryable":true}`)
		}))
		for range 2 {
			w := answer(h, post("k", "{}"))
			if w.Code != tt.status || w.Header().Get("Idempotency-Retryable") != tt.want || w.Body.String() != `{"retryable":true}` {
				t.Errorf("%d under %v: %d %v %q", tt.status, tt.onLost, w.Code, w.Header(), w.Body)
			}
		}
		if l.count() != tt.runs {
			t.Errorf("%d under %v: %d executions, want %d", tt.status, tt.onLost, l.count(), tt.runs)
		}
	}
}

func TestCase21_R37_EmptyAnswersAreAnswers(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "0", "null", "false", `""`, "[]", "\x00"} {
		l := &ledger{}
		g, _ := newGuard(t, nil, semel.Policy{})
		h := g.Wrap(fields(l, http.Header{"Content-Type": {"application/json"}}, body))
		for i := range 3 {
			w := answer(h, post("k", "{}"))
			if w.Code != http.StatusOK || w.Body.String() != body || (w.Header().Get("Idempotent-Replayed") == "true") != (i > 0) {
				t.Errorf("%q: got %d %q", body, w.Code, w.Body)
			}
		}
		if l.count() != 1 {
			t.Errorf("%q: %d executions", body, l.count())
		}
	}
}

func TestCase01_RefusedRepeatsLeaveTheRecord(t *testing.T) {
	t.Parallel()
	s, l := memstore.New(), &ledger{}
	g, _ := newGuard(t, s, semel.Policy{})
	var h http.Handler
	h = g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before := only(t, s)
		wantRefused(t, answer(h, post("k", "{}")), http.StatusConflict, refusal.InProgress)
		wantRefused(t, answer(h, post("k", "other")), http.StatusUnprocessableEntity, refusal.KeyReused)
		unmoved(t, before, only(t, s))
		l.pay(w, r)
	}))
	answer(h, post("k", "{}"))
	before := only(t, s)
	wantRefused(t, answer(h, post("k", "other")), http.StatusUnprocessableEntity, refusal.KeyReused)
	unmoved(t, before, only(t, s))
	if w := answer(h, post("k", "{}")); w.Code != http.StatusCreated || w.Header().Get("Idempotent-Replayed") != "true" || l.count() != 1 {
		t.Errorf("the repeat got %d %q", w.Code, w.Body)
	}
}

// unmoved checks that a record is as it was, but for the clock with which it was read.
func unmoved(t testing.TB, before, after driver.Record) {
	t.Helper()
	before.Now, after.Now = 0, 0
	if !reflect.DeepEqual(before, after) {
		t.Errorf("the record was %+v, is %+v", before, after)
	}
}

// A late owner's client gets what the record says, with the replay's rules, and never the late owner's own result.
func TestR48_ALateOwnersClientGetsTheRecordsAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		s := &faulty{Store: mem}
		g, _ := newGuard(t, s, shortLease(semel.Rerun))
		n := 0
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n++
			if n > 1 {
				io.WriteString(w, "second")
				return
			}
			s.set(func(f *faulty) {
				f.extend = func(context.Context, driver.ID, driver.Owner, driver.Extension) (bool, error) {
					return false, errors.New("down")
				}
			})
			time.Sleep(4 * time.Second) // its heart stands still: the lease is over
			if w := answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, "second")
			})), post("k", "{}")); w.Body.String() != "second" {
				t.Errorf("the takeover got %d %q", w.Code, w.Body)
			}
			w.Header().Set("X-First", "1")
			io.WriteString(w, "first")
		}))
		w := answer(h, post("k", "{}"))
		if w.Body.String() != "second" || w.Header().Get("X-First") != "" || w.Header().Get("Idempotent-Replayed") != "true" {
			t.Errorf("the late owner's client got %d %v %q", w.Code, w.Header(), w.Body)
		}
	})
}

// A late owner whose key has expired meanwhile, and stands for another request now, must not give that one's answer.
func TestR48_R16_ALateOwnersClientGetsNoOtherRequestsAnswer(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"other", "{}"} {
		synctest.Test(t, func(t *testing.T) {
			mem := memstore.New()
			s := &faulty{Store: mem}
			g, _ := newGuard(t, s, semel.Policy{Stream: true, Lease: 3 * time.Second, MaxRun: time.Hour, Retention: 2 * time.Hour})
			h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				semel.FromContext(r.Context()).Release() // so that it is not streamed itself
				s.set(func(f *faulty) {
					f.extend = func(context.Context, driver.ID, driver.Owner, driver.Extension) (bool, error) {
						return false, errors.New("down")
					}
				})
				id := semel.Identify(nil, semel.KindHTTP, "alice", "k")
				rec, err := mem.Load(r.Context(), id)
				if err == nil {
					_, err = mem.Extend(r.Context(), id, rec.Owner(), driver.Extension{Lease: time.Second, Begun: true})
				}
				if err != nil {
					t.Errorf("begin: %v", err)
				}
				time.Sleep(3 * time.Hour) // begun and lapsed, it is past its retention
				s.set(func(f *faulty) { f.extend = nil })
				answer(texts(g, "secret of the second"), post("k", next))
				io.WriteString(w, "first")
			}))
			w := answer(h, post("k", "{}"))
			if next == "other" {
				wantRefused(t, w, http.StatusConflict, refusal.OutcomeUnknown)
			} else if w.Header().Get("Idempotent-Replayed") != "true" {
				t.Errorf("the late owner's client got %d %q", w.Code, w.Body)
			}
			if strings.Contains(w.Body.String(), "first") || next == "other" && strings.Contains(w.Body.String(), "secret") {
				t.Errorf("the late owner's client got %q", w.Body)
			}
		})
	}
}

// texts is a handler of a guard that answers with a text.
func texts(g *semel.Guard, text string) http.Handler {
	return g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }))
}

// What a handler's goroutine says after its return comes too late to change an answer that is durable.
func TestR30_LostAfterTheReturnChangesNothing(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		mem := memstore.New()
		s := &faulty{Store: mem}
		var op *semel.Operation
		s.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			op.Lost(errors.New("late"))
			return mem.Settle(ctx, id, by, o)
		}
		g, _ := newGuard(t, s, semel.Policy{Stream: stream})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			op = semel.FromContext(r.Context())
			io.WriteString(w, "answer")
		}))
		for range 2 {
			if w := answer(h, post("k", "{}")); w.Code != http.StatusOK || w.Body.String() != "answer" {
				t.Errorf("got %d %q", w.Code, w.Body)
			}
		}
	}
}
