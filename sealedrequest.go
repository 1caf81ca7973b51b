package semel

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/settings"
	"github.com/semelhq/semel/internal/storedrequest"
)

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
func (p *Policy) compileSealing(f *settings.Faults) []string {
	if !p.RespondAsync && !p.Complete {
		f.If(len(p.SealHeaders) > 0, "SealHeaders without RespondAsync or Complete: no request is stored")
		f.If(len(p.Redact) > 0, "Redact without RespondAsync or Complete: no request is stored")
		return nil
	}
	f.If(p.OnLost == Hold, "RespondAsync and Complete do not go with OnLost Hold")
	f.If(p.OneCommit, "RespondAsync and Complete do not go with OneCommit")
	f.If(p.ObserveOnly, "RespondAsync and Complete do not go with ObserveOnly")
	// A request would run twice: unprotected, and from the stored form of a claim that got no reply.
	f.If(p.FailOpen, "RespondAsync and Complete do not go with FailOpen")
	f.If(p.RespondAsync && p.Stream, "RespondAsync does not go with Stream")
	names := append(slices.Clone(headersSealed), canonicalNames(f, "SealHeaders", p.SealHeaders)...)
	names = append(names, canonicalNames(f, "Fingerprint.Headers", p.Fingerprint.Headers)...)
	for _, name := range names {
		f.If(slices.Contains(headersNeverSealed, name) || strings.HasPrefix(name, "Proxy-"),
			"%s can't be stored with a request: it carries credentials, or belongs to one connection", name)
	}
	return names
}

// sealRequest prepares the request to be stored with the claim. It does so on routes whose operations are finished
// without a client.
func (x *exchange) sealRequest() *Problem {
	if !x.g.policy.Complete && !x.async {
		return nil
	}
	var err error
	if x.ask.Sealed, err = x.seal(); err != nil {
		return x.g.bodyProblem(err)
	}
	return nil
}

// seal encrypts the stored form of the request.
func (x *exchange) seal() ([]byte, error) {
	p := x.g.policy
	s := storedrequest.Request{
		Scope: x.ask.scope, Key: x.ask.key, KeyHeader: x.keyHeader, KeyValue: x.keyValue,
		Method: x.r.Method, Target: x.r.URL.RequestURI(), Host: x.r.Host, Header: http.Header{},
	}
	for _, name := range p.sealHeaders {
		if lines := x.r.Header[name]; len(lines) > 0 {
			s.Header[name] = lines
		}
	}
	if name := x.g.headers.correlation; name != "" {
		s.Header[name] = []string{x.ask.Correlation}
	}
	x.ask.credentials.Store(s.Header)
	var err error
	if s.Body, err = x.storedBody(s.Header); err != nil {
		return nil, fmt.Errorf("store the request: %w", err)
	}
	return s.Seal(x.g.keyring, x.ask.ID), nil
}

// bodyHeaders are the stored headers that are true only for exactly these bytes of the body.
var bodyHeaders = []string{"Content-Encoding", "Content-Digest", "Repr-Digest", "Digest", "Content-Md5"}

// storedBody returns the body as it is stored. If fields are redacted, the body differs from the one that was sent, so
// storedBody removes from header what describes its coding and digests.
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
