package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/semelhq/semel"
)

// An Answer is the operation's own answer, whatever its status: a refusal by the application is one as well.
type Answer struct {
	Status   int
	Header   http.Header
	Body     []byte         // in an [Error], no more than Options.MaxAnswer of it
	URL      *url.URL       // that gave it
	Problem  *semel.Problem // nil if the answer is none (RFC 9457); what of it is told in a header only has no title
	Replayed bool           // marked with Idempotent-Replayed: it was given before
	State    string         // of the operation, where that was asked about instead: the answer is what was told of it

	Key      Key // of the call
	Attempts int // how often the request was sent, over all hops of redirects

	cut bool
}

// Do makes one logical call with ctx through hc, whose Transport must be a [*Transport] or lead to one, under a key
// that the caller has kept. If it ends with an [*Error] that is [ErrExhausted], or the process dies meanwhile, the same
// request is to be made again with the same key: the answer, once there is one, is the same. r itself may be passed
// again: where its body has no GetBody, Do gives it one. A zero key is made as for any request.
//
// The answer is read to its end as a part of each attempt, so that one which breaks off is asked for again. It is
// returned whatever its status, unless it says that there is no answer to give, or leaves open whether there was an
// effect: then, and on any other failure, the error is an [*Error]. A 5xx to a call with a key leaves it open, unless
// it is marked as a replay (Idempotent-Replayed: true) or as kept (Idempotency-Retryable: false). So does, once an
// attempt under the key may have arrived before, what says nothing of that one: a 400, 401, 403, 407, 409, 417 or 422
// without a code that is known, and an answer to which a redirect has led. Then the error is [refusal.OutcomePending].
// Any key that [NewKey] has not made in this process since it was last sent may have been sent before.
func Do(ctx context.Context, hc *http.Client, key Key, r *http.Request) (*Answer, error) {
	c := &call{whole: true, key: key}
	res, err := c.through(ctx, hc, r)
	if err != nil {
		return nil, c.failed(err)
	}
	res.Body.Close()
	return c.answered()
}

var errNoTransport = errors.New("client: the http.Client does not send with a *client.Transport")

// through hands a request to hc, in whose transports it finds the one that makes the call.
func (c *call) through(ctx context.Context, hc *http.Client, r *http.Request) (*http.Response, error) {
	limit := int64(DefaultMaxBody)
	switch t := hc.Transport.(type) {
	case *Transport:
		limit = t.o.MaxBody
	case nil, *http.Transport:
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, errNoTransport
	}
	if err := rewound(r, limit); err != nil {
		return nil, err
	}
	res, err := hc.Do(r.WithContext(context.WithValue(ctx, doContext{}, c)))
	if err == nil && !c.begun {
		res.Body.Close()
		return nil, fmt.Errorf("%w; the request was sent without protection", errNoTransport)
	}
	return res, err
}

// Status asks what became of the operation of a key, at Options.StatusURL, and sends nothing else. r is the request as
// [Do] would make it: its URL and headers say where and for whom to ask. The answer has the operation's state in State;
// "" if none is told, as for a key that was never seen.
func Status(ctx context.Context, hc *http.Client, key Key, r *http.Request) (*Answer, error) {
	c := &call{whole: true, key: key, asks: true}
	r = r.Clone(ctx)
	r.Body, r.GetBody, r.ContentLength = nil, nil, 0
	res, err := c.through(ctx, hc, r)
	if err != nil {
		return nil, c.failed(err)
	}
	res.Body.Close()
	c.sign(c.last)
	c.last.State = c.state
	return c.last, nil
}

// Doer returns what sends requests as [Do] does, for generated clients and others that take such an interface: it
// returns a response only if that is the operation's own answer, read to its end, and else an [*Error]. The key is that
// of [WithKey] in the request's context, or one as for any request.
func Doer(hc *http.Client) interface {
	Do(r *http.Request) (*http.Response, error)
} {
	return doer{hc}
}

type doer struct{ hc *http.Client }

func (d doer) Do(r *http.Request) (*http.Response, error) {
	c := &call{whole: true}
	res, err := c.through(r.Context(), d.hc, r)
	if err != nil {
		return nil, c.failed(err)
	}
	if _, err := c.answered(); err != nil {
		res.Body.Close()
		return nil, err
	}
	return res, nil
}

// ErrorOf returns the error that [Do] would have returned in place of a response of http.Client, nil if that is the
// operation's own answer or the request had no key. Its Answer has no body: that is in the response.
func ErrorOf(res *http.Response) *Error {
	if res == nil || res.Request == nil {
		return nil
	}
	c, ok := res.Request.Context().Value(sentContext{}).(*call)
	if !ok {
		return nil
	}
	if c.last == nil {
		c.last = &Answer{
			Status: res.StatusCode, Header: res.Header, URL: res.Request.URL,
			Problem: c.doc.problem(res.StatusCode, res.Header), Replayed: replayed(res.Header),
		}
	}
	_, err := c.answered()
	e, _ := err.(*Error) //nolint:errorlint // it is no other
	return e
}

// rewound makes a request's body start from its beginning, also if an earlier call has read it, and gives it a GetBody:
// http.Client follows a 307 only with one.
func rewound(r *http.Request, limit int64) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	b, err := bodyOf(r, true, limit)
	if err != nil {
		r.Body.Close()
		return err
	}
	r.GetBody, r.ContentLength = b.again, b.length
	b.first.Close()
	b.used = true
	r.Body, err = b.next()
	return err
}

// failed returns the error of a call that http.Client ended with err.
func (c *call) failed(err error) *Error {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Err: err}
	}
	e.Key, e.Attempts, e.NotSent, e.Reason, e.RetryAt, e.Answer = c.key, c.sent, !c.arrived, c.reason, c.retryAt, c.last
	c.sign(e.Answer)
	return e
}

// answered judges the response with which the call ended.
func (c *call) answered() (*Answer, error) {
	a := c.last
	e := &Error{Key: c.key, Attempts: c.sent, Reason: c.reason, RetryAt: c.retryAt, Answer: a, state: stateError(c.state)}
	refused := c.doc.guards()
	if c.text != "" && e.state == nil && !refused && c.state == "" && !(c.verdict == VerdictUnknown && c.reason != "") {
		e.state = c.verdict.err(a.Status)
	}
	if a.cut && c.reason == "" && e.state == nil && !refused {
		e.Err = ErrAnswerTooLarge
	}
	c.sign(a)
	if e.Err != nil || c.reason != "" || e.state != nil || refused {
		return nil, e
	}
	a.State = c.state
	return a, nil
}

// sign tells an answer whose it is.
func (c *call) sign(a *Answer) {
	if a != nil {
		a.Key, a.Attempts = c.key, c.sent
	}
}
