package client

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
)

// A Transport is an [http.RoundTripper] that gives unsafe requests an idempotency key and repeats them under it. It
// keeps to that interface's contract: the response that ends a call is returned as it came, whatever its status, and an
// error only where there is none. It is safe for concurrent use.
//
// It knows the hops of one call by what http.Client tells it of them, so wrappers that make requests of their own, or
// send them again, belong around its base and not around it.
type Transport struct {
	base   http.RoundTripper
	o      Options
	status *url.URL
	budget *bucket
}

// New returns a transport around base, http.DefaultTransport if that is nil. It reports all that is wrong with the
// options.
//
// The key reaches base under a name in lower case, idempotency-key, where http.Header.Get does not find it: Go's own
// transport resends a request by itself, beyond every bound, if it finds it. On the wire that has no meaning.
func New(base http.RoundTripper, o Options) (*Transport, error) {
	o, status, err := o.compile()
	if err != nil {
		return nil, err
	}
	if base == nil {
		base = http.DefaultTransport
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	return &Transport{base: base, o: o, status: status, budget: newBucket(o.Budget)}, nil
}

// RoundTrip implements [http.RoundTripper]. The error of a call that has a key, or was sent more than once, is an
// [*Error], unless the request itself can't be sent.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.base == nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, errors.New("client: a Transport that was not made by New")
	}
	h, err := t.callOf(r).hop(r)
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	return h.run()
}

// CloseIdleConnections closes those of the base, for http.Client's method of that name.
func (t *Transport) CloseIdleConnections() {
	if b, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}
