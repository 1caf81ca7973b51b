package semel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/keyring"
)

// A sealedRequest is what is stored of a request, encrypted, so that its operation can be finished without its client.
// It has no credentials: whoever finishes it has its own. Only their digest is kept, for the answer.
type sealedRequest struct {
	Scope     string
	Key       string // what the operation's identity and its derived keys are made of, whatever the route's settings become
	KeyHeader string
	KeyValue  string // as it stood in the header
	Method    string
	Target    string // path and query, as sent
	Host      string
	Header    http.Header
	Body      []byte // as sent, or without the redacted fields
}

const sealedField = "request"

// headersSealed are stored with every request.
var headersSealed = []string{
	"Accept", "Accept-Language", "Content-Type", "Content-Encoding", "Content-Language", "Content-Digest",
	"If-Match", "If-None-Match", "If-Unmodified-Since",
}

// headersNeverSealed carry credentials, or belong to one connection.
var headersNeverSealed = []string{
	"Authorization", "Cookie", "Cookie2", "Connection", "Content-Length", "Expect", "Host", "Te", "Trailer", "Transfer-Encoding",
	"Upgrade", "Api-Key", "Dpop", "X-Access-Token", "X-Api-Key", "X-Auth-Token", "X-Amz-Security-Token", "X-Csrf-Token",
	"X-Goog-Api-Key", "X-Session-Token", "X-Xsrf-Token",
}

// compileSealing checks what the policy says about stored requests, and returns the headers that are stored with one;
// nil if none is.
func (p *Policy) compileSealing(fail func(string, ...any)) []string {
	if !p.RespondAsync && !p.Complete {
		if len(p.SealHeaders) > 0 {
			fail("policy: SealHeaders without RespondAsync or Complete: no request is stored")
		}
		if len(p.Redact) > 0 {
			fail("policy: Redact without RespondAsync or Complete: no request is stored")
		}
		return nil
	}
	for _, x := range []struct {
		name string
		set  bool
	}{
		{"OnLost Hold", p.OnLost == Hold},
		{"OneCommit", p.OneCommit},
		{"Observe", p.Observe},
		{"FailOpen", p.FailOpen}, // what was run unprotected would be run again from the request of a claim that got no reply
	} {
		if x.set {
			fail("policy: RespondAsync and Complete do not go with %s", x.name)
		}
	}
	if p.RespondAsync && p.Stream {
		fail("policy: RespondAsync does not go with Stream")
	}
	names := append(slices.Clone(headersSealed), canonicalNames(p.SealHeaders, "policy: SealHeaders", fail)...)
	names = append(names, canonicalNames(p.Fingerprint.Headers, "policy: Fingerprint.Headers", fail)...)
	for _, name := range names {
		if slices.Contains(headersNeverSealed, name) || strings.HasPrefix(name, "Proxy-") {
			fail("policy: %s can't be stored with a request: it carries credentials, or belongs to one connection", name)
		}
	}
	return names
}

// sealRequest prepares the request to be stored with the claim, on routes whose operations are finished without a
// client.
func (x *exchange) sealRequest() *Problem {
	if !x.g.policy.Complete && !x.async {
		return nil
	}
	var err error
	if x.ask.sealed, err = x.seal(); err != nil {
		return x.g.bodyProblem(err)
	}
	return nil
}

// seal encrypts the request. It outlasts the run that claims with it, so it is bound to a token of its own.
func (x *exchange) seal() ([]byte, error) {
	p := x.g.policy
	s := sealedRequest{
		Scope: x.ask.scope, Key: x.ask.key, KeyHeader: x.keyHeader, KeyValue: x.keyValue,
		Method: x.r.Method, Target: x.r.URL.RequestURI(), Host: x.r.Host, Header: http.Header{},
	}
	for _, name := range p.sealHeaders {
		if lines := x.r.Header[name]; len(lines) > 0 {
			s.Header[name] = lines
		}
	}
	if name := x.g.headers.correlation; name != "" {
		s.Header[name] = []string{x.ask.correlation}
	}
	x.ask.credentials.store(s.Header)
	var err error
	if s.Body, err = x.storedBody(s.Header); err != nil {
		return nil, fmt.Errorf("store the request: %w", err)
	}
	return x.g.keyring.SealField(sealedField, x.ask.id, driver.NewToken(), s.append(nil)), nil
}

// bodyHeaders are those of the stored headers that are true of a body's very bytes only.
var bodyHeaders = []string{"Content-Encoding", "Content-Digest", "Repr-Digest", "Digest", "Content-Md5"}

// storedBody returns the body as it is stored. Without its redacted fields it is another one, of which header no longer
// tells coding and digests.
func (x *exchange) storedBody(header http.Header) ([]byte, error) {
	if redactor := x.g.policy.redactor; redactor != nil {
		rest, had, err := redactor.Body(x.body, x.r.Header["Content-Type"])
		if err != nil {
			return nil, err
		}
		if had {
			for _, name := range bodyHeaders {
				delete(header, name)
			}
			return rest, nil
		}
	}
	return io.ReadAll(x.body.Open())
}

const sealedVersion = 1

// append appends the request's binary form.
func (s *sealedRequest) append(b []byte) []byte {
	b = append(b, sealedVersion)
	for _, text := range []string{s.Scope, s.Key, s.KeyHeader, s.KeyValue, s.Method, s.Target, s.Host} {
		b = wire.AppendString(b, text)
	}
	b = wire.AppendFields(b, s.Header)
	return append(b, s.Body...)
}

// openRequest decrypts the request of a record. One that is not encrypted was not stored by a guard: whoever can write
// to the store must not have a request run by the service itself. An error wraps [driver.ErrUnreadable].
func openRequest(k *keyring.Ring, id driver.ID, rec *driver.Record) (*sealedRequest, error) {
	if keyring.IsPlain(rec.Sealed) {
		return nil, fmt.Errorf("open stored %s: %w: it is not encrypted", sealedField, driver.ErrUnreadable)
	}
	text, err := k.OpenField(sealedField, id, rec.Sealed)
	if err != nil {
		return nil, err
	}
	if len(text) == 0 || text[0] != sealedVersion {
		return nil, fmt.Errorf("open stored request: %w: its form is unknown", driver.ErrUnreadable)
	}
	d := wire.Decoder{Data: text, At: 1}
	var s sealedRequest
	for _, field := range []*string{&s.Scope, &s.Key, &s.KeyHeader, &s.KeyValue, &s.Method, &s.Target, &s.Host} {
		*field = string(d.Bytes("text"))
	}
	s.Header = d.Fields("header")
	if d.Err != nil {
		return nil, fmt.Errorf("open stored request: %w: %w", driver.ErrUnreadable, d.Err)
	}
	s.Body = text[d.At:]
	return &s, nil
}

// request makes the request again, without a context of its own and without credentials.
func (s *sealedRequest) request() (*http.Request, error) {
	u, err := url.ParseRequestURI(s.Target)
	if err != nil {
		return nil, fmt.Errorf("make the stored request again: %w", err)
	}
	if s.KeyHeader == "" || s.KeyValue == "" {
		return nil, errors.New("make the stored request again: it has no key")
	}
	h := s.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	delete(h, credentialsField)
	h[s.KeyHeader] = []string{s.KeyValue}
	return &http.Request{
		Method: s.Method, URL: u, RequestURI: s.Target, Host: s.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader(s.Body)), ContentLength: int64(len(s.Body)),
	}, nil
}
