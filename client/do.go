package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
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

// Do makes one logical call with ctx through hc, whose Transport must be a [*Transport], under a key that the caller
// has kept. If it ends with an [*Error] that is [ErrExhausted], or the process dies meanwhile, the same request is to
// be made again with the same key: the answer, once there is one, is the same. r itself may be passed again: where its
// body has no GetBody, Do gives it one. A zero key is made as for any request.
//
// The answer is read to its end as a part of each attempt, so that one which breaks off is asked for again. It is
// returned whatever its status, unless it says that there is no answer to give, or leaves open whether there was an
// effect: then, and on any other failure, the error is an [*Error]. A 5xx to a call with a key leaves it open, unless
// it is marked as a replay (Idempotent-Replayed: true) or as kept (Idempotency-Retryable: false): if it was not worth
// another attempt, the error is [refusal.OutcomePending]. A 401, 403 or 407 is returned, but says nothing of earlier
// attempts under the key.
func Do(ctx context.Context, hc *http.Client, key Key, r *http.Request) (*Answer, error) {
	t, ok := hc.Transport.(*Transport)
	if !ok {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, &Error{Key: key, Err: errors.New("client: the Transport of the http.Client is not a *client.Transport")}
	}
	c := &call{t: t, whole: true, key: key}
	if err := rewound(r, t.o.MaxBody); err != nil {
		return nil, c.failed(err)
	}
	res, err := hc.Do(r.WithContext(context.WithValue(ctx, doContext{}, c)))
	if err != nil {
		return nil, c.failed(err)
	}
	res.Body.Close()
	return c.answered()
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
	e.Key, e.Attempts, e.Reason, e.RetryAt, e.Answer = c.key, c.sent, c.reason, c.retryAt, c.last
	c.sign(e.Answer)
	return e
}

// answered judges the response with which the call ended.
func (c *call) answered() (*Answer, error) {
	a := c.last
	e := &Error{Key: c.key, Attempts: c.sent, Reason: c.reason, RetryAt: c.retryAt, Answer: a, state: stateError(c.state)}
	refused := false
	if a.Problem != nil {
		_, refused = again[a.Problem.Code]
	}
	if c.text != "" && c.reason == "" && e.state == nil && !refused && open(a.Status, a.Header) {
		e.state = fmt.Errorf("%d: %w", a.Status, refusal.OutcomePending)
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
