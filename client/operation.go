package client

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// within returns u if it may be asked about an operation: if it is of the request's own origin.
func (h *hop) within(u *url.URL) *url.URL {
	if sameOrigin(h.r.URL, u) {
		return u
	}
	return nil
}

// polled returns where the operation of a 202 is asked about until it has ended, nil if it is not.
func (h *hop) polled(rep *reply) *url.URL {
	if h.c.t.o.PollEvery == 0 || safe(h.r.Method) || rep.err != nil || rep.res.StatusCode != http.StatusAccepted {
		return nil
	}
	text := rep.res.Header.Get("Location")
	if text == "" {
		return nil
	}
	u, err := h.r.URL.Parse(text)
	if err != nil {
		return nil
	}
	return h.within(u)
}

// maxRedirects is how many redirects lead to what is told about an operation.
const maxRedirects = 10

// question asks about an operation, by key if there is a text of one. It follows redirects itself: http.Client would
// take them for those of the request, and send that.
func (h *hop) question(u *url.URL, key string) reply {
	for range maxRedirects {
		rep := h.askAt(u, key)
		if rep.err != nil || rep.res.StatusCode < 300 || rep.res.StatusCode > 399 {
			return rep
		}
		next, err := u.Parse(rep.res.Header.Get("Location"))
		told := rep.res.Header.Get("Location") != ""
		rep.discard()
		if !told || err != nil || h.within(next) == nil {
			break
		}
		u = next
	}
	return reply{err: errAskElsewhere}
}

func (h *hop) askAt(u *url.URL, key string) reply {
	c := h.c
	r := (&http.Request{
		Method: http.MethodGet, URL: u, Host: h.r.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{},
	}).WithContext(h.ctx)
	if u.Host != h.r.URL.Host {
		r.Host = ""
	}
	for name, lines := range h.header {
		if asksToo(name) {
			r.Header[name] = append([]string(nil), lines...)
		}
	}
	takeHeader(r.Header, c.t.o.Header)
	if key != "" {
		r.Header[c.t.o.Header] = []string{key}
	}
	return c.exchange(r, true)
}

// asksToo reports whether a request's header goes along with a question about its operation: not what describes its
// body, what it depends on, or how it is to be handled.
func asksToo(name string) bool {
	name = http.CanonicalHeaderKey(name)
	switch name {
	case "Prefer", "Expect", "Range", "Digest", "Repr-Digest", "Want-Content-Digest", "Transfer-Encoding", "Trailer":
		return false
	}
	return !strings.HasPrefix(name, "Content-") && !strings.HasPrefix(name, "If-")
}

// ask asks about the operation, and sends nothing else.
func (h *hop) ask(status *url.URL) (*http.Response, error) {
	if status == nil {
		return nil, h.c.fail(errors.New("client: Options.StatusURL, of the request's own origin, says where to ask"))
	}
	for {
		h.number = h.c.retries + 1
		rep := h.question(status, h.c.text)
		next := step{}
		if h.ctx.Err() == nil && h.retryable(&rep) {
			next = h.next(&rep)
		}
		h.report(KindStatus, &rep, next)
		if !next.again {
			if h.c.last = rep.answer; told(&rep) {
				h.c.state = rep.doc.State
			}
			return h.end(&rep)
		}
		if err := h.c.pause(h.ctx, &rep, next.delay); err != nil {
			return nil, h.c.fail(err)
		}
	}
}

// running reports whether an answer about an operation says that it has not ended: 202, or the state running.
func running(rep *reply) bool {
	if rep.err != nil {
		return false
	}
	return rep.res.StatusCode == http.StatusAccepted ||
		rep.res.StatusCode == http.StatusOK && rep.doc != nil && rep.doc.State == stateRunning
}

// told reports whether an answer about an operation tells its state.
func told(rep *reply) bool {
	return rep.err == nil && rep.res.StatusCode < 300 && rep.doc != nil && rep.doc.State != ""
}

// nothingKept reports whether an answer about an operation says that it has failed and nothing is kept of it, so that
// its key may be sent again as if it had never been seen.
func nothingKept(rep *reply) bool {
	return told(rep) && rep.doc.State == stateFailed && rep.doc.Retryable != nil && *rep.doc.Retryable
}

// States of an operation, as they are shown. stateRefused is ours: who should know did not tell.
const (
	stateRunning = "running"
	stateFailed  = "failed"
	stateUnknown = "unknown"
	stateExpired = "expired"
	stateRefused = "refused"
)

// note makes an answer about the operation that of the call.
func (c *call) note(rep *reply) {
	if rep.answer != nil {
		c.last = rep.answer
	}
	switch {
	case running(rep):
		c.state = stateRunning
	case rep.err == nil && rep.res.StatusCode >= 400:
		c.state = stateRefused
	case rep.doc != nil:
		c.state = rep.doc.State
	default:
		c.state = ""
	}
}

// poll asks about an operation until it has ended, beginning with an answer that says that it has not. Questions that
// fail are asked again as often in a row as a request would be. What it returns is the end of the call, and reported;
// but not if it was asked by key and nothing is kept.
func (h *hop) poll(kind AttemptKind, rep reply, u *url.URL, key string) (AttemptKind, reply) {
	c, o := h.c, &h.c.t.o
	failures := 0
	for {
		now := time.Now()
		delay := o.PollEvery
		delay = cmp.Or(delay, defaultPollEvery)
		if failures > 0 {
			delay = max(delay, o.Backoff(failures-1, o.Random()))
		}
		if rep.res != nil {
			if asked, _ := retryAfter(rep.res.StatusCode, rep.res.Header, now); asked > 0 {
				delay = min(asked, o.MaxRetryAfter)
			}
			c.note(&rep)
		}
		deadline, bounded := h.ctx.Deadline()
		switch {
		case failures >= o.MaxAttempts:
			c.reason = ReasonAttempts
		case bounded && !now.Add(delay).Before(deadline):
			c.reason = ReasonDeadline
		case h.keyed && !c.fresh(now.Add(delay)):
			c.reason = ReasonRetention
		}
		if c.reason != "" || h.ctx.Err() != nil {
			h.report(kind, &rep, step{})
			return kind, rep
		}
		h.report(kind, &rep, step{again: true, delay: delay})
		if err := c.pause(h.ctx, &rep, delay); err != nil {
			return kind, reply{err: err}
		}
		kind = KindPoll
		rep = h.question(u, key)
		switch {
		case running(&rep):
			failures = 0
		case h.retryable(&rep):
			failures++
		case key != "" && nothingKept(&rep):
			return kind, rep
		default:
			c.note(&rep)
			h.report(kind, &rep, step{})
			return kind, rep
		}
	}
}
