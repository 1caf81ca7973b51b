package broken

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// An answer is what the handler has written. It is not changed any more.
type answer struct {
	Status int         `json:"status"`
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
}

// A capture keeps an answer until it is durable; streams too.
type capture struct {
	header http.Header
	status int
	sent   http.Header // as it was when the status was written
	body   bytes.Buffer
}

// Header returns the fields of the answer.
func (w *capture) Header() http.Header { return w.header }

// WriteHeader sets the status, once. Interim answers are left out.
func (w *capture) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status, w.sent = status, w.header.Clone()
	}
}

// Write adds to the body.
func (w *capture) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush is what a stream does between its events. Nothing leaves before the answer is durable.
func (w *capture) Flush() { w.WriteHeader(http.StatusOK) }

// stored returns what is kept of an answer: all but what belongs to this exchange.
func (l *Layer) stored(a *answer) *answer {
	s := &answer{a.Status, http.Header{}, a.Body}
	for name, values := range a.Header {
		if !ofOneExchange(name) || l.bug == "replays-cookie" && name == "Set-Cookie" {
			s.Header[name] = values
		}
	}
	if l.bug == "lost-location" {
		delete(s.Header, "Location")
	}
	if l.bug == "truncate" {
		s.Body = s.Body[:min(len(s.Body), 64<<10)]
	}
	if l.bug == "text-only" {
		s.Body = asText(s.Body)
	}
	if l.bug == "cut-stream" && strings.HasPrefix(a.Header.Get("Content-Type"), "text/event-stream") {
		first, _, _ := bytes.Cut(s.Body, []byte("\n\n"))
		s.Body = append(bytes.Clone(first), "\n\n"...)
	}
	return s
}

// asText returns what is left of bytes that were kept as a JSON string.
func asText(b []byte) []byte {
	var text string
	kept, err := json.Marshal(string(b))
	if err == nil {
		err = json.Unmarshal(kept, &text)
	}
	if err != nil {
		panic("broken: a text in JSON: " + err.Error()) // any string marshals, and comes back
	}
	return []byte(text)
}

// ofOneExchange reports whether a field belongs to one client, connection, moment or trace.
func ofOneExchange(name string) bool {
	switch name {
	case "Set-Cookie", "Date", "Server", "Connection", "Keep-Alive", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length",
		"Www-Authenticate", "Alt-Svc", "Strict-Transport-Security", "Traceparent", "X-Request-Id", "X-Correlation-Id":
		return true
	}
	for _, prefix := range []string{"Proxy-", "Access-Control-", "Ratelimit", "X-Ratelimit"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// replay gives the first answer again, marked.
func (l *Layer) replay(w http.ResponseWriter, a *answer) {
	again := *a
	if l.bug == "status-200" && a.Status == http.StatusCreated {
		again.Status = http.StatusOK
	}
	if l.bug == "empty-body" && len(a.Body) == 0 {
		again.Status, again.Body = http.StatusOK, []byte("{}")
	}
	if l.bug != "no-marker" {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	again.writeHeader(w)
	again.writeBody(w) //nolint:errcheck // the client is gone; it may ask again
}

// writeHeader writes what stands before the body.
func (a *answer) writeHeader(w http.ResponseWriter) {
	h := w.Header()
	for name, values := range a.Header {
		h[name] = values
	}
	if a.Status != http.StatusNoContent && a.Status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	w.WriteHeader(a.Status)
}

func (a *answer) writeBody(w http.ResponseWriter) error {
	if len(a.Body) == 0 {
		return nil
	}
	_, err := w.Write(a.Body)
	return err
}

// send sends an answer to the client of the run that it came from. The answer is durable.
func (l *Layer) send(w http.ResponseWriter, r *http.Request, c *claim, a *answer) {
	there := r.Context().Err() == nil
	a.writeHeader(w)
	if l.bug == "free-on-partial-send" && there {
		l.flush(w)
		time.Sleep(partialPause)
		there = r.Context().Err() == nil
		if err := a.writeBody(w); err != nil || !there {
			l.amend(c, func(rec *record) { rec.State, rec.Answer = free, nil })
		}
		return
	}
	a.writeBody(w) //nolint:errcheck // the client is gone; it may ask again
	if l.bug == "store-after-send" {
		l.flush(w)
		time.Sleep(storePause)
		l.amend(c, func(*record) {})
	}
}

const (
	partialPause = 100 * time.Millisecond // until a client that has hung up is noticed
	storePause   = 300 * time.Millisecond
)

func (l *Layer) flush(w http.ResponseWriter) {
	http.NewResponseController(w).Flush() //nolint:errcheck // the next write says the same
}

// amend changes the record of an operation that has ended, and journals it. Only bugs do that.
func (l *Layer) amend(c *claim, to func(*record)) {
	l.mu.Lock()
	rec := l.records[c.id]
	to(rec)
	now := *rec
	l.mu.Unlock()
	l.journal.append(c.id, now) //nolint:errcheck // the bug has nobody to tell
}
