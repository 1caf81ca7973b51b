package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// peekLimit is how much of a streamed answer is looked at: problems, and the states of operations, are small.
const peekLimit = 64 << 10

// drainTime is how long the rest of an answer is waited for that nobody wants: no longer than its connection is worth.
const drainTime = 100 * time.Millisecond

// reply is what came of one request.
type reply struct {
	res     *http.Response // nil with an error
	err     error
	doc     *document // a problem, or the state of an operation that was asked about
	text    []byte    // what was read of the body
	verdict Verdict   // of an answer to the request itself
	took    time.Duration

	answer *Answer            // where it was read to its end
	cancel context.CancelFunc // ends the reading of an answer that was not
}

// exchange sends one request, and reads the answer as far as the call needs it. question says that the answer tells the
// state of an operation.
func (c *call) exchange(r *http.Request, question bool) (rep reply) {
	started := time.Now()
	ctx, cancel := context.WithCancel(r.Context())
	rep.cancel = cancel
	var timer *time.Timer
	if limit := c.t.o.AttemptTimeout; limit > 0 {
		timer = time.AfterFunc(limit, cancel)
	}
	res, err := c.t.base.RoundTrip(r.WithContext(ctx))
	if res == nil && err == nil {
		err = fmt.Errorf("client: the base, a %T, has returned neither a response nor an error", c.t.base)
	}
	if err == nil {
		if sent := res.Request; sent == nil || sent.Context().Value(sentContext{}) != any(c) {
			res.Request = r // the next hop finds the call in it
		}
		if res.Body == nil {
			res.Body = http.NoBody
		}
		rep.res = res
		if err = rep.read(c, question); err != nil {
			res.Body.Close()
		}
	}
	late := timer != nil && !timer.Stop() && r.Context().Err() == nil
	if late && !(err == nil && c.whole) { // else it came all the same
		if err == nil {
			res.Body.Close()
		}
		err = errAttemptTimeout
	}
	switch {
	case err != nil:
		cancel()
		rep = reply{err: err}
	case c.whole:
		cancel()
	default:
		if _, upgraded := res.Body.(io.Writer); !upgraded { // its context lives as long as the caller's
			res.Body = &cancelBody{res.Body, cancel}
		}
	}
	rep.took = time.Since(started)
	return rep
}

// read reads the answer, or the beginning of it, which is then put back.
func (rep *reply) read(c *call, question bool) error {
	res := rep.res
	problem := res.StatusCode >= 400 && media(res.Header) == mediaProblem
	state := question && res.StatusCode < 300 && isJSON(media(res.Header))
	switch {
	case c.whole:
		if err := rep.readWhole(c.t.o.MaxAnswer); err != nil {
			return err
		}
		rep.look(rep.answer.Body, state)
		rep.answer.Problem = rep.doc.problem(res.StatusCode, res.Header)
	case problem || state || res.StatusCode >= 400 && c.text != "" && c.t.o.classifies():
		text, err := io.ReadAll(io.LimitReader(res.Body, peekLimit))
		rest := io.Reader(res.Body)
		if err != nil {
			rest = failing{err}
		}
		res.Body = &putBack{io.MultiReader(bytes.NewReader(text), rest), res.Body}
		rep.look(text, state)
	default:
		rep.look(nil, false)
	}
	return nil
}

// told is the answer as Options.Classify gets it.
func (rep *reply) told() *Answer {
	if rep.answer != nil {
		return rep.answer
	}
	return &Answer{
		Status: rep.res.StatusCode, Header: rep.res.Header, Body: rep.text, URL: rep.res.Request.URL,
		Problem: rep.doc.problem(rep.res.StatusCode, rep.res.Header), Replayed: replayed(rep.res.Header),
	}
}

func (rep *reply) look(text []byte, state bool) {
	rep.text = text
	if state {
		rep.doc = readDocument(text)
		return
	}
	rep.doc = readProblem(rep.res.StatusCode, rep.res.Header, text)
}

// readWhole reads an answer of Do. One that breaks off was lost.
func (rep *reply) readWhole(limit int64) error {
	res := rep.res
	var (
		text []byte
		err  error
	)
	if res.StatusCode != http.StatusSwitchingProtocols { // which has no end
		text, err = io.ReadAll(io.LimitReader(res.Body, limit+1))
	}
	res.Body.Close()
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	cut := int64(len(text)) > limit
	if cut {
		text = text[:limit]
	}
	rep.answer = &Answer{
		Status: res.StatusCode, Header: res.Header, Body: text, URL: res.Request.URL,
		Replayed: replayed(res.Header), cut: cut,
	}
	res.Body = io.NopCloser(bytes.NewReader(text))
	return nil
}

// discard ends a response that is not returned. A short rest of it is read, if it comes at once, so that its connection
// can be used again.
func (rep *reply) discard() {
	if rep.res == nil {
		return
	}
	if n := rep.res.ContentLength; n >= 0 && n <= peekLimit {
		timer := time.AfterFunc(drainTime, rep.cancel)
		io.CopyN(io.Discard, rep.res.Body, n) //nolint:errcheck // the connection is given up then
		timer.Stop()
	}
	rep.res.Body.Close()
}

func isJSON(media string) bool { return media == mediaJSON || strings.HasSuffix(media, "+json") }

type cancelBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *cancelBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

type putBack struct {
	io.Reader
	io.Closer
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
