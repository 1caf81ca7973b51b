package client

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"
)

// run sends the request of a hop until it has an answer that is final, or may not be sent again.
func (h *hop) run() (*http.Response, error) {
	c := h.c
	defer h.body.drop()
	status := h.statusURL()
	if c.asks {
		return h.ask(status)
	}
	ask := false // about the operation, before sending again
	for {
		if h.keyed && !c.fresh(time.Now()) { // a computer may have slept over any delay
			c.reason = ReasonRetention
			return nil, c.fail(nil)
		}
		h.number = c.retries + c.waits + 1
		kind, rep := KindRequest, reply{}
		if ask {
			kind, rep = KindStatus, h.question(status, c.text)
			if rep.err == nil && h.ctx.Err() != nil {
				rep.discard()
				rep = reply{err: h.ctx.Err()}
			}
			if running(&rep) {
				if kind, rep = h.poll(kind, rep, status, c.text); !nothingKept(&rep) {
					return h.end(&rep)
				}
			}
			switch {
			case told(&rep) && !nothingKept(&rep):
				h.report(kind, &rep, step{})
				c.note(&rep)
				return rep.res, nil
			case !h.retryable(&rep): // never seen, not kept, or nobody there who would know
				h.report(kind, &rep, step{again: true})
				rep.discard()
				ask, c.state = false, ""
				continue
			}
		}
		if kind == KindRequest {
			rep = h.attempt()
			if location := h.polled(&rep); location != nil {
				_, rep = h.poll(kind, rep, location, "")
				return h.end(&rep)
			}
			ask = status != nil && (rep.err != nil || lost(rep.res.StatusCode, rep.doc))
		}
		next := step{}
		if h.ctx.Err() == nil && h.again && h.retryable(&rep) {
			next = h.next(&rep)
		}
		h.report(kind, &rep, next)
		if !next.again {
			if kind == KindStatus {
				c.note(&rep)
			}
			return h.end(&rep)
		}
		if rep.err == nil || !unsent(rep.err) {
			c.maybe = true
		}
		if err := c.pause(h.ctx, &rep, next.delay); err != nil {
			return nil, c.fail(err)
		}
	}
}

// attempt sends the request itself.
func (h *hop) attempt() reply {
	body, err := h.body.next()
	if err != nil {
		return reply{err: err}
	}
	r := h.r.WithContext(h.ctx)
	r.Header = h.header.Clone()
	r.Body, r.GetBody, r.ContentLength = body, h.body.again, h.body.length
	h.c.sent++
	h.c.retryAt = time.Time{}
	rep := h.c.exchange(r, false)
	if rep.answer != nil {
		h.c.last = rep.answer
	}
	if rep.err == nil || !unsent(rep.err) {
		h.c.arrived = true
	}
	rep.verdict = h.judge(&rep)
	h.c.verdict, h.c.doc = rep.verdict, rep.doc
	return rep
}

// judge says what the answer to the request itself comes to. What the caller says goes before the rules for every
// server, and after the guard's own code.
func (h *hop) judge(rep *reply) Verdict {
	c := h.c
	if rep.err != nil {
		return ""
	}
	status, header := rep.res.StatusCode, rep.res.Header
	if c.text != "" && !rep.doc.guards() && c.t.o.classifies() {
		if v := c.t.o.classify(rep.told(), c.maybe); v != "" {
			return v
		}
	}
	v := judge(status, header, rep.doc, h.keyed)
	if v == VerdictAnswer && c.text != "" && c.open(status, header, h.header) {
		return VerdictUnknown
	}
	return v
}

func (h *hop) retryable(rep *reply) bool {
	if rep.err != nil {
		return transient(rep.err)
	}
	if rep.verdict == "" { // the answer to a question
		return judge(rep.res.StatusCode, rep.res.Header, rep.doc, h.keyed).again()
	}
	return rep.verdict.again()
}

// step is what follows an attempt.
type step struct {
	again bool
	delay time.Duration
}

// next decides whether an attempt that is worth repeating is repeated, and when. Where it is not, the call's reason
// says why.
func (h *hop) next(rep *reply) step {
	c, o, now := h.c, &h.c.t.o, time.Now()
	var asked time.Duration
	c.retryAt = time.Time{}
	if rep.res != nil {
		var told bool
		if asked, told = retryAfter(rep.res.StatusCode, rep.res.Header, now); told {
			c.retryAt = now.Add(asked)
		}
	}
	waits := rep.verdict == VerdictInProgress
	delay := asked
	if waits {
		delay = cmp.Or(delay, defaultPollEvery)
		delay = max(delay, o.Backoff(c.waits, o.Random()))
	} else {
		delay = max(0, delay, o.Backoff(c.retries, o.Random()))
	}
	deadline, bounded := h.ctx.Deadline()
	switch {
	case !waits && c.retries+1 >= o.MaxAttempts:
		c.reason = ReasonAttempts
	case asked > o.MaxRetryAfter:
		c.reason = ReasonRetryAfter
	case bounded && !now.Add(delay).Before(deadline):
		c.reason = ReasonDeadline
	case h.keyed && !c.fresh(now.Add(delay)):
		c.reason = ReasonRetention
	case waits:
		c.waits++
		return step{again: true, delay: delay}
	case !c.t.budget.withdraw():
		c.reason = ReasonBudget
	default:
		c.retries++
		return step{again: true, delay: delay}
	}
	return step{}
}

// pause waits between two attempts.
func (c *call) pause(ctx context.Context, rep *reply, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	rep.discard()
	select {
	case <-timer.C:
		return ctx.Err() // both may be over
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end returns what the call ends with.
func (h *hop) end(rep *reply) (*http.Response, error) {
	if rep.err == nil {
		return rep.res, nil
	}
	return nil, h.c.fail(rep.err)
}

// fail is the error of a call that has no response to return. That of an unprotected request is left as it is.
func (c *call) fail(err error) error {
	if err != nil && c.text == "" && c.sent <= 1 {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) && c.reason == "" {
		c.reason = ReasonDeadline
	}
	return &Error{Key: c.key, Attempts: c.sent, NotSent: !c.arrived, Reason: c.reason, RetryAt: c.retryAt, Err: err}
}

func (h *hop) report(kind AttemptKind, rep *reply, next step) {
	c := h.c
	if c.t.o.OnAttempt == nil {
		return
	}
	a := Attempt{
		Kind: kind, Number: h.number, Key: c.key.Digest(), Correlation: c.correlation,
		Method: h.r.Method, Host: h.r.URL.Host, Err: rep.err, Took: rep.took,
		Again: next.again, Delay: next.delay, Reason: c.reason,
	}
	if rep.res != nil {
		a.Status = rep.res.StatusCode
	}
	if kind != KindRequest {
		a.Method = http.MethodGet
	}
	returned := false
	defer func() {
		if !returned { // it panics, and nobody else will close the answer
			rep.discard()
		}
	}()
	c.t.o.OnAttempt(a)
	returned = true
}

// statusURL returns where to ask about the operation of a keyed request, nil if nowhere.
func (h *hop) statusURL() *url.URL {
	t := h.c.t
	if t.status == nil || !h.keyed {
		return nil
	}
	return h.within(h.r.URL.ResolveReference(t.status))
}
