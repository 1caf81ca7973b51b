package broken

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"
)

// run runs an operation for its owner, and settles what came of it. There is no answer if the handler's connection
// broke. The handler goes on if the client hangs up.
func (l *Layer) run(r *http.Request, c *claim, body []byte) (a *answer, owned bool, err error) {
	defer close(c.ended)
	go l.beat(r.Context(), c)
	if l.bug == "cancel" {
		stop := context.AfterFunc(r.Context(), func() { l.settle(c, free, nil) }) //nolint:errcheck // the client is gone
		defer stop()
	}
	a = l.call(r, body)
	if l.bug == "resend" && a == nil {
		a = l.call(r, body)
	}
	if a == nil {
		owned, err = l.settle(c, unknown, nil)
		return nil, owned, err
	}
	if !l.keeps(a.Status) {
		owned, err = l.settle(c, free, nil)
		return a, owned, err
	}
	owned, err = l.settle(c, done, l.stored(a))
	return a, owned, err
}

// keeps reports whether an answer is the operation's for good. The others say that nothing has happened.
func (l *Layer) keeps(status int) bool {
	if l.bug == "forget" {
		return false
	}
	if l.bug == "free-on-decline" && status/100 == 4 || l.bug == "free-on-error" && status/100 == 5 {
		return false
	}
	switch status {
	case 401, 403, 407, 408, 421, 423, 425, 428, 503:
		return false
	case 429:
		return l.bug == "keep-429"
	}
	return true
}

// call calls the handler once, and returns its answer, or nil if it broke off. A panic says no more than that.
func (l *Layer) call(r *http.Request, body []byte) (a *answer) {
	defer func() {
		if recover() != nil {
			a = nil
		}
	}()
	r = r.Clone(context.WithoutCancel(r.Context()))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	w := capture{header: http.Header{}}
	l.next.ServeHTTP(&w, r)
	w.WriteHeader(http.StatusOK) // if nothing was written
	return &answer{w.status, w.sent, w.body.Bytes()}
}

// beat renews the lease of a run until it ends.
func (l *Layer) beat(client context.Context, c *claim) {
	if l.bug == "no-heartbeat" && !l.countDown(client, c) {
		return
	}
	tick := time.NewTicker(lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-c.ended:
			return
		case <-tick.C:
		}
		if !l.extend(c, lease) {
			return
		}
	}
}

// extend gives an owner a lease from now on. It reports false if the operation is not the owner's any more.
func (l *Layer) extend(c *claim, by time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec, now := l.records[c.id], time.Now()
	if rec.State != running || rec.Fence != c.fence {
		return false
	}
	if l.bug == "no-fence" && now.After(rec.lease) {
		return false
	}
	rec.lease = now.Add(by)
	return true
}

// countDown lets a lease run out while the client waits, for the bug no-heartbeat. It reports true if the client hung
// up before: then the lease is renewed. It counts in ticks, so that the time in which the process is stopped does not
// count.
func (l *Layer) countDown(client context.Context, c *claim) bool {
	const tick = lease / 20
	for left := lease; left > 0; left -= tick {
		select {
		case <-c.ended:
			return false
		case <-client.Done():
			return true
		case <-time.After(tick):
		}
	}
	l.extend(c, 0)
	return false
}
