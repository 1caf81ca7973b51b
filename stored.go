package semel

import (
	"errors"
	"net/http"
	"slices"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/answer"
)

// storable reports whether a response header is stored and replayed. named holds the headers that Connection names.
func (x *exchange) storable(name string, named []string) bool {
	name = http.CanonicalHeaderKey(name)
	if answer.NeverReplayed(name) || slices.Contains(named, name) || name == x.g.headers.correlation ||
		x.g.headers.sends(name) || name == x.keyHeader {
		return false
	}
	return x.g.policy.storeHeaders == nil || x.g.policy.storeHeaders[name]
}

// allStorable reports whether all the fields are stored, so that they need not be copied.
func (x *exchange) allStorable(fields http.Header, named []string) bool {
	for name := range fields {
		if !x.storable(name, named) {
			return false
		}
	}
	return true
}

// storedFields copies the header or trailer fields that are stored.
func (x *exchange) storedFields(fields http.Header, named []string) http.Header {
	return answer.Some(fields, func(name string) bool { return x.storable(name, named) })
}

// response makes the stored form of the captured answer, or nil if the answer can't be replayed. It shares with the
// live answer only the body, which is read-only; middleware can change the rest. If the headers are shared, the live
// answer gets a copy.
func (c *capture) response() *driver.Response {
	if c.whyNotStored() != nil {
		return nil
	}
	named := answer.FieldNames(c.sent["Connection"])
	r := &driver.Response{Status: c.status, Trailer: c.x.storedFields(c.trailer(), named)}
	own := &c.x.ask.credentials
	if c.shared = own.Digest == "" && c.x.allStorable(c.sent, named); c.shared {
		r.Header = c.sent
	} else {
		r.Header = c.x.storedFields(c.sent, named)
	}
	if own.Digest != "" {
		if r.Header == nil {
			r.Header = http.Header{}
		}
		own.Store(r.Header)
	}
	threshold := c.x.g.policy.CompressAbove
	if c.sent.Get("Content-Encoding") != "" {
		threshold = -1
	}
	r.Body, r.Codec = c.x.g.codecs.Pack(c.body.Bytes(), threshold)
	return r
}

// whyNotStored says why the answer can't be replayed, or nil.
func (c *capture) whyNotStored() error {
	switch {
	case c.unkept != nil:
		return c.unkept
	case c.hijacked:
		return errors.New("the connection was hijacked")
	case c.status == http.StatusSwitchingProtocols:
		return errors.New("the connection was switched to another protocol")
	case c.body.WhyNotWhole() != nil:
		return c.body.WhyNotWhole()
	case answer.BodyAllowed(c.status) && c.declared >= 0 && c.body.Size() != c.declared:
		return errors.New("the answer is shorter than its Content-Length")
	}
	return nil
}

// trailer returns the trailers that the handler has set, under their own names.
func (c *capture) trailer() http.Header {
	if c.frozen {
		return c.trailers
	}
	return answer.Trailers(c.header, c.sent["Trailer"])
}
