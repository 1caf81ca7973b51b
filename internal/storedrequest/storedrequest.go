// Package storedrequest has the encrypted form in which a request is stored, so that its operation can be finished
// without its client.
package storedrequest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/keyring"
)

// A Request is the stored part of a request. It has no credentials: whoever finishes the operation has credentials of
// its own. Only a digest of the client's is kept, for the answer.
type Request struct {
	// Kind and Operation are those of a call of Do; both are empty for a request over HTTP. A call has no more than its
	// scope, its key and, as Body, the bytes of its request.
	Kind, Operation string

	Scope     string
	Key       string // the source of the operation's identity and derived keys, even if the route's settings change
	KeyHeader string
	KeyValue  string // as it stood in the header
	Method    string
	Target    string // path and query, as sent
	Host      string
	Header    http.Header
	Body      []byte // as sent, or without the redacted fields
}

const field = "request"

// Seal encrypts the request. The stored request lasts longer than the run that claims with it, so it is bound to a
// token of its own.
func (s *Request) Seal(k *keyring.Ring, id driver.ID) []byte {
	return k.SealField(field, id, driver.NewToken(), s.append(nil))
}

// The versions of the binary form.
const (
	versionHTTP = 1
	versionCall = 2
)

// append appends the request's binary form.
func (s *Request) append(b []byte) []byte {
	if s.Kind != "" {
		b = append(b, versionCall)
		for _, text := range []string{s.Kind, s.Operation, s.Scope, s.Key} {
			b = wire.AppendString(b, text)
		}
		return append(b, s.Body...)
	}
	b = append(b, versionHTTP)
	for _, text := range []string{s.Scope, s.Key, s.KeyHeader, s.KeyValue, s.Method, s.Target, s.Host} {
		b = wire.AppendString(b, text)
	}
	b = wire.AppendFields(b, s.Header)
	return append(b, s.Body...)
}

// Open decrypts the request of a record. A request that is not encrypted was not stored by a guard, and is refused:
// somebody who can write to the store must not be able to make the service itself run a request. An error wraps
// [driver.ErrUnreadable].
func Open(k *keyring.Ring, id driver.ID, rec *driver.Record) (*Request, error) {
	if keyring.IsPlain(rec.Sealed) {
		return nil, fmt.Errorf("open stored %s: %w: it is not encrypted", field, driver.ErrUnreadable)
	}
	text, err := k.OpenField(field, id, rec.Sealed)
	if err != nil {
		return nil, err
	}
	var s Request
	d := wire.Decoder{Data: text, At: 1}
	read := func(fields ...*string) {
		for _, field := range fields {
			*field = string(d.Bytes("text"))
		}
	}
	switch {
	case len(text) > 0 && text[0] == versionHTTP:
		read(&s.Scope, &s.Key, &s.KeyHeader, &s.KeyValue, &s.Method, &s.Target, &s.Host)
		s.Header = d.Fields("header")
	case len(text) > 0 && text[0] == versionCall:
		if read(&s.Kind, &s.Operation, &s.Scope, &s.Key); s.Kind == "" && d.Err == nil {
			d.Err = errors.New("a call without a kind")
		}
	default:
		return nil, fmt.Errorf("open stored request: %w: its form is unknown", driver.ErrUnreadable)
	}
	if d.Err != nil {
		return nil, fmt.Errorf("open stored request: %w: %w", driver.ErrUnreadable, d.Err)
	}
	s.Body = text[d.At:]
	return &s, nil
}

// HTTP makes the HTTP request again, without a context of its own and without credentials.
func (s *Request) HTTP() (*http.Request, error) {
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
	delete(h, answer.CredentialsField)
	h[s.KeyHeader] = []string{s.KeyValue}
	return &http.Request{
		Method: s.Method, URL: u, RequestURI: s.Target, Host: s.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader(s.Body)), ContentLength: int64(len(s.Body)),
	}, nil
}
