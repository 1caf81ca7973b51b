package fingerprint

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/digest"
	"github.com/semelhq/semel/internal/requestbody"
)

// A sketch is a request to take a fingerprint of.
type sketch struct {
	method, target, host, contentType, body string
	header                                  http.Header
	memory                                  int64
}

func (s sketch) fingerprint(t testing.TB, p Policy) driver.Fingerprint {
	t.Helper()
	f, err := New(p)
	if err != nil {
		t.Fatalf("policy %+v: %v", p, err)
	}
	r, b := s.request(t)
	defer b.Close()
	d := digest.New([]byte("secret"))
	fp, err := f.Of(d, nil, driver.ID{}, r, b)
	if err != nil {
		t.Fatalf("fingerprint: %v", err)
	}
	var recent Recent
	for _, when := range []string{"the first time", "the second time"} {
		if again, err := f.Of(d, &recent, driver.ID{1}, r, b); err != nil || again != fp {
			t.Fatalf("fingerprint, remembered, %s: %v, %v; want %v", when, again, err, fp)
		}
	}
	return fp
}

func (s sketch) request(t testing.TB) (*http.Request, *requestbody.Body) {
	t.Helper()
	if s.method == "" {
		s.method = "POST"
	}
	if s.target == "" {
		s.target = "/payments"
	}
	r := httptest.NewRequest(s.method, s.target, strings.NewReader(s.body))
	for name, values := range s.header {
		r.Header[name] = values
	}
	if s.host != "" {
		r.Host = s.host
	}
	if s.contentType != "" {
		r.Header["Content-Type"] = []string{s.contentType}
	}
	o := requestbody.Options{Length: r.ContentLength, Coding: r.Header["Content-Encoding"], Memory: s.memory}
	if s.memory > 0 {
		o.Dir = t.TempDir()
	}
	b, err := requestbody.Read(r.Body, o)
	if err != nil {
		t.Fatalf("read body: %v", err)
	}
	return r, b
}

func json200() sketch {
	body := `{"account":"acct_4f9d2c81","amount":1999,"currency":"EUR","capture":true,"customer":{"id":"cus_77120","email":"ada@example.org"},"description":"Order 2026-1134, two seats","metadata":{"cart":"c-99"}}`
	return sketch{target: "/v1/payments?expand=customer", contentType: "application/json", body: body}
}

func formBody(body string) sketch {
	return sketch{contentType: "application/x-www-form-urlencoded", body: body}
}

func jsonBody(body string) sketch { return sketch{contentType: "application/json", body: body} }

// R-17 and case 13: everything that makes another request makes another fingerprint, raw and canonical.
func TestR17_Case13_WhatMakesAnotherRequest(t *testing.T) {
	t.Parallel()
	one := sketch{target: "/a%2Fb?to=alice", contentType: "application/json", body: `{"amount":1}`}
	for _, c := range []struct {
		name   string
		change func(*sketch)
	}{
		{"method", func(s *sketch) { s.method = "PATCH" }},
		{"path", func(s *sketch) { s.target = "/a%2Fc?to=alice" }},
		{"an escaped slash is no slash", func(s *sketch) { s.target = "/a/b?to=alice" }},
		{"query value", func(s *sketch) { s.target = "/a%2Fb?to=mallory" }},
		{"query name", func(s *sketch) { s.target = "/a%2Fb?from=alice" }},
		{"no query", func(s *sketch) { s.target = "/a%2Fb" }},
		{"query value twice", func(s *sketch) { s.target += "&to=alice" }},
		{"query moved into the path", func(s *sketch) { s.target = "/a%2Fb%3Fto=alice" }},
		{"media type", func(s *sketch) { s.contentType = "application/problem+json" }},
		{"media type parameter", func(s *sketch) { s.contentType += "; version=2" }},
		{"charset", func(s *sketch) { s.contentType += "; charset=utf-16" }},
		{"no media type", func(s *sketch) { s.contentType = "" }},
		{"two media types", func(s *sketch) {
			s.contentType, s.header = "", http.Header{"Content-Type": {"application/json", "application/json"}}
		}},
		{"If-Match", func(s *sketch) { s.header = http.Header{"If-Match": {`"1"`}} }},
		{"If-None-Match", func(s *sketch) { s.header = http.Header{"If-None-Match": {`"1"`}} }},
		{"If-Unmodified-Since", func(s *sketch) {
			s.header = http.Header{"If-Unmodified-Since": {"Mon, 02 Jan 2006 15:04:05 GMT"}}
		}},
		{"body", func(s *sketch) { s.body = `{"amount":2}` }},
		{"empty body", func(s *sketch) { s.body = "" }},
		{"body in an unknown content coding", func(s *sketch) { s.header = http.Header{"Content-Encoding": {"br"}} }},
	} {
		other := one
		c.change(&other)
		for _, p := range []Policy{{}, {Exact: true}} {
			a, b := one.fingerprint(t, p), other.fingerprint(t, p)
			if a.Raw == b.Raw || a.Canonical == b.Canonical {
				t.Errorf("%s, exact %v: the same fingerprint", c.name, p.Exact)
			}
		}
	}
}

func TestR17_IfMatchIsNotIfNoneMatch(t *testing.T) {
	t.Parallel()
	seen := map[driver.Fingerprint]string{}
	for _, name := range conditionalHeaders {
		fp := sketch{header: http.Header{name: {`"1"`}}}.fingerprint(t, Policy{})
		if other, ok := seen[fp]; ok {
			t.Errorf("%s and %s: the same fingerprint", name, other)
		}
		seen[fp] = name
	}
}

func TestR17_HostCountsWhereSeveralAreServed(t *testing.T) {
	t.Parallel()
	a, b, upper := sketch{host: "a.example"}, sketch{host: "b.example"}, sketch{host: "A.example"}
	if p := (Policy{}); a.fingerprint(t, p) != b.fingerprint(t, p) {
		t.Error("the host counts though only one is served")
	}
	p := Policy{Host: true}
	if x, y := a.fingerprint(t, p), b.fingerprint(t, p); x.Raw == y.Raw || x.Equal(y) {
		t.Error("the host does not count")
	}
	if !a.fingerprint(t, p).Equal(upper.fingerprint(t, p)) {
		t.Error("the host's case counts")
	}
}

func TestR17_QueryIsNormalisedByName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
		why  string
	}{
		{"?a=1&b=2", "?b=2&a=1", true, "names may change places"},
		{"?a=1&b=3&a=2", "?b=3&a=1&a=2", true, "values of a name keep their order"},
		{"?a=1&a=2", "?a=2&a=1", false, "values of a name keep their order"},
		{"?a=1&%61=2&b=3", "?b=3&a=1&%61=2", true, "an escaped name is the same name"},
		{"?a=1&%61=2", "?%61=2&a=1", false, "an escaped name is the same name"},
		{"?a[x]=1&a[y]=2", "?a[y]=2&a[x]=1", false, "servers build records from brackets in their order"},
		{"?a[x]=1&b=2", "?b=2&a[x]=1", true, "only those of one root keep their order"},
		{"?a", "?a=", false, "servers may tell them apart"},
		{"?a=b+c", "?a=b%20c", false, "a plus is a space to some servers only"},
		{"?a=1&&b=2", "?a=1&b=2", false, "compared as written"},
		{"?a=1;b=2", "?b=2;a=1", false, "semicolons separate for some servers only"},
		{"?a=%zz&b=2", "?b=2&a=%zz", false, "a malformed query is compared raw"},
		{"?a=%zz", "?a=%zz", true, "a malformed query equals itself"},
		{"?", "", true, "an empty query is none"},
	} {
		a, b := sketch{target: "/p" + c.a}.fingerprint(t, Policy{}), sketch{target: "/p" + c.b}.fingerprint(t, Policy{})
		if got := a.Equal(b); got != c.same {
			t.Errorf("%s and %s: equal %v, want %v: %s", c.a, c.b, got, c.same, c.why)
		}
	}
}

func TestR17_MediaTypeIsNormalised(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"application/json", "Application/JSON", true},
		{"application/json", "application/json; charset=utf-8", true},
		{"application/json", `application/json;charset="UTF-8"`, true},
		{"application/json", "application/json;", true},
		{"application/json; a=1; b=2", "application/json; B=2; A=1", true},
		{"application/json; a=1", "application/json; a=2", false},
		{"application/json; a=b", "application/json; a=B", false},
		{"application/json", "application/json; charset=us-ascii", false},
		{"application/json", "application/json, application/json", false},
		{"application/json; a=1; a=2", "application/json; a=2; a=1", false},
		{"text/plain; boundary=a", "text/plain; boundary=b", false},
	} {
		a, b := sketch{contentType: c.a, body: "{}"}, sketch{contentType: c.b, body: "{}"}
		if got := a.fingerprint(t, Policy{}).Equal(b.fingerprint(t, Policy{})); got != c.same {
			t.Errorf("%s and %s: equal %v, want %v", c.a, c.b, got, c.same)
		}
	}
}

func TestR17_ExtraHeadersCountWhereAskedFor(t *testing.T) {
	t.Parallel()
	one := sketch{header: http.Header{"X-Api-Version": {"1"}}}
	two := sketch{header: http.Header{"X-Api-Version": {"2"}}}
	if p := (Policy{}); one.fingerprint(t, p) != two.fingerprint(t, p) {
		t.Error("a header counts unasked")
	}
	p := Policy{Headers: []string{"x-api-version", "X-Other"}}
	if a, b := one.fingerprint(t, p), two.fingerprint(t, p); a.Raw == b.Raw || a.Canonical == b.Canonical {
		t.Error("a listed header does not count")
	}
	swapped := Policy{Headers: []string{"X-Other", "X-Api-Version", "X-OTHER"}}
	if one.fingerprint(t, p) != one.fingerprint(t, swapped) {
		t.Error("the order of the list counts")
	}
	other := sketch{header: http.Header{"X-Other": {"1"}}}
	if a, b := one.fingerprint(t, p), other.fingerprint(t, p); a.Raw == b.Raw || a.Canonical == b.Canonical {
		t.Error("a value under another name is the same")
	}
	if a, b := (sketch{}).fingerprint(t, p), (sketch{}).fingerprint(t, Policy{}); a.Raw == b.Raw {
		t.Error("the raw digest does not say which headers count")
	}
}

func TestR18_HonestAttemptsMayDiffer(t *testing.T) {
	t.Parallel()
	one := json200()
	want := one.fingerprint(t, Policy{})
	for _, name := range []string{
		"Authorization", "Date", "User-Agent", "Traceparent", "Tracestate", "X-Request-Id", "X-Correlation-Id", "Signature",
		"Signature-Input", "Accept-Encoding", "Accept", "Content-Length", "Connection", "Keep-Alive", "Te", "Upgrade",
		"Proxy-Authorization", "X-Forwarded-For", "Via", "Forwarded", "Cookie", "Prefer", "Content-Digest", "Origin",
		"Idempotency-Key", "Early-Data", "Referer", "Cache-Control",
	} {
		other := one
		other.header = http.Header{name: {"another"}}
		if got := other.fingerprint(t, Policy{}); got != want {
			t.Errorf("%s counts", name)
		}
	}

	r, b := one.request(t)
	r.ContentLength, r.TransferEncoding, r.Proto, r.RemoteAddr = -1, []string{"chunked"}, "HTTP/2.0", "192.0.2.7:9"
	f, err := New(Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.Of(digest.New([]byte("secret")), nil, driver.ID{}, r, b); err != nil || got != want {
		t.Errorf("framing, protocol or address counts (error %v)", err)
	}
}

func TestR25_TheDigestFieldIsNotTheFingerprint(t *testing.T) {
	t.Parallel()
	a, b := jsonBody(`{"a":1}`), jsonBody(`{"a":2}`)
	h := http.Header{"Content-Digest": {"sha-256=:AAAA:"}}
	a.header, b.header = h, h
	if a.fingerprint(t, Policy{}).Equal(b.fingerprint(t, Policy{})) {
		t.Error("bodies with one Content-Digest are equated")
	}
}

func TestR15_TheFingerprintIsKeyed(t *testing.T) {
	t.Parallel()
	f, err := New(Policy{})
	if err != nil {
		t.Fatal(err)
	}
	r, b := json200().request(t)
	seen := map[[16]byte]bool{}
	for _, secret := range []string{"", "one", "two"} {
		fp, err := f.Of(digest.New([]byte(secret)), nil, driver.ID{}, r, b)
		if err != nil {
			t.Fatal(err)
		}
		seen[fp.Raw], seen[fp.Canonical] = true, true
	}
	if len(seen) != 6 {
		t.Errorf("%d different digests, want 6", len(seen))
	}
}

// The raw digest is stored and must be the same in every later version. The others may change, together with the
// version in the settings' domain.
func TestR23_TheEncodingIsFixed(t *testing.T) {
	t.Parallel()
	full := json200()
	full.target += "&b=2&a=1"
	full.host = "Pay.example"
	full.header = http.Header{"If-Match": {`"1"`, `"2"`}, "X-Api-Version": {"7"}}
	policy := Policy{Host: true, Headers: []string{"X-Api-Version"}, Exclude: []string{"/metadata"}, ExcludeNames: []string{"Email"}, NullIsAbsent: true}
	opaque := sketch{body: "x", header: http.Header{"Content-Encoding": {"BR"}}}
	long := sketch{method: "PUT", target: "/" + strings.Repeat("long", 300), body: strings.Repeat("body", 300)}
	for _, c := range []struct {
		name string
		s    sketch
		p    Policy
		want string
	}{
		{"JSON", json200(), Policy{}, "1e890ec44582d7e37b0a16b285c3dd07 4c33e8fde9cdbcc5cae9c4539957d5ed ace9b553cd8c4743"},
		{"everything", full, policy, "20ca13de4a1fbdd33e0636249ac776e4 8c48b55b2b58823b7de223f97f16ef86 feb99350b933caa6"},
		{"form", formBody("b=2&a=%31"), Policy{}, "ae48987de9b2f04bf2ce0b71d46ba4c8 845b03339346b045f8447097b109faa4 ace9b553cd8c4743"},
		{"multipart", sketch{contentType: "multipart/form-data; boundary=b", body: "--b\r\nContent-Type: a/b\r\n\r\nx\r\n--b--"}, Policy{}, "0c77ce6f9e6318352dcd592004e2f16f b732e970ab1f4607e302b115743a1efd ace9b553cd8c4743"},
		{"opaque", opaque, Policy{}, "b0e3ee8f0132c055029e91ce53af7fd6 f82fb79d7761c78ba5de3cc8aa8aa7d0 ace9b553cd8c4743"},
		{"nothing", sketch{}, Policy{Exact: true}, "f271c90570de87ec9d3422067515385b 1a4941bd99caca85e0adc425bc0c2898 8ef56befe4f74d43"},
		{"longer than the buffer", long, Policy{}, "190e78561da72c0a5179aa85ce1bf624 763d07bba4b5e242808fb004b57c09db ace9b553cd8c4743"},
	} {
		fp := c.s.fingerprint(t, c.p)
		got := hex.EncodeToString(fp.Raw[:]) + " " + hex.EncodeToString(fp.Canonical[:]) + " " + hex.EncodeToString(fp.Settings[:])
		if got != c.want {
			t.Errorf("%s: raw, canonical, settings\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// the canonical form of some bodies is another one than it was in the first version, so the canonical digests of
// the two say nothing about each other.
func TestField07_R23_CanonicalDigestsOfTheFirstVersionAreOfOtherSettings(t *testing.T) {
	t.Parallel()
	now := json200().fingerprint(t, Policy{})
	first := now
	copy(first.Settings[:], "\x39\x6d\xa4\x9d\xa2\x6f\xd7\x54")
	if !first.Equal(now) {
		t.Error("byte-equal requests of both versions differ")
	}
	if first.Raw = [16]byte{}; first.Equal(now) {
		t.Error("canonical digests of both versions are compared")
	}
}

func TestFingerprintsAreTakenConcurrently(t *testing.T) {
	t.Parallel()
	f, err := New(Policy{Exclude: []string{"/metadata"}})
	if err != nil {
		t.Fatal(err)
	}
	d := digest.New([]byte("secret"))
	var recent Recent
	bodies := []string{`{"a":1}`, `{"b":[{"d":1,"c":2}],"a":1}`, `{`, `{"metadata":1,"x":"\u00e9"}`}
	done := make(chan error)
	for i := range 8 {
		go func() {
			done <- func() error {
				s := jsonBody(bodies[i%len(bodies)])
				r, b := s.request(t)
				want, err := f.Of(digest.New([]byte("secret")), nil, driver.ID{}, r, b)
				for n := 0; n < 200 && err == nil; n++ {
					var got driver.Fingerprint
					if got, err = f.Of(d, &recent, driver.ID{byte(i)}, r, b); err == nil && got != want {
						err = fmt.Errorf("%s: another fingerprint than alone", s.body)
					}
				}
				return err
			}()
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkFingerprintJSON200(b *testing.B) {
	f, err := New(Policy{})
	if err != nil {
		b.Fatal(err)
	}
	d := digest.New([]byte("secret"))
	s := json200()
	sorted, reordered := s, s
	sorted.body = string(canonicalJSON(b, s.body))
	reordered.body = `{"metadata":{"cart":"c-99"},` + strings.TrimSuffix(s.body[1:], `,"metadata":{"cart":"c-99"}}`) + "}"
	for _, c := range []struct {
		name   string
		s      sketch
		recent *Recent
	}{{"sorted", sorted, nil}, {"reordered", reordered, nil}, {"repeated", sorted, &Recent{}}} {
		b.Run(c.name, func(b *testing.B) {
			r, body := c.s.request(b)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.Of(d, c.recent, driver.ID{}, r, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("floor=two-hmacs", func(b *testing.B) {
		r, _ := s.request(b)
		body := []byte(s.body)
		b.ReportAllocs()
		for b.Loop() {
			for range 2 {
				h := d.Start(rawDomain)
				h.Text(r.Method)
				h.Text(r.URL.Path)
				h.Bytes(body)
				h.Sum()
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := requestbody.Read(strings.NewReader(s.body), requestbody.Options{Length: int64(len(s.body))}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
