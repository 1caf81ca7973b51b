package gateway

import (
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel"
)

// correlationHeader carries the correlation id of every request, with or without a key (R-76a).
const correlationHeader = "X-Correlation-Id"

// bodyTime is how long a client may take to send the body of a keyed request.
const bodyTime = time.Minute

// newHandler puts what concerns every request in front of the guard.
func (g *Gateway) newHandler(guarded http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !forwardable(r.Method) {
			methodRefused.write(w)
			return
		}
		correlate(w, r)
		if keyed(r) && r.Body != http.NoBody {
			r = bounded(w, r, g.bodyTime)
		}
		guarded.ServeHTTP(w, r)
	})
}

// forwardable refuses CONNECT, which asks for a tunnel past the guard, and methods with lower-case letters: "post" is not
// POST to the guard, so it would pass unprotected to a service that doesn't make the difference.
func forwardable(method string) bool {
	return method != http.MethodConnect && method == strings.ToUpper(method)
}

// correlate takes the request's correlation id, or makes one, for the methods that the guard lets pass too.
func correlate(w http.ResponseWriter, r *http.Request) {
	v := r.Header[correlationHeader]
	if len(v) != 1 || !plainID(v[0]) {
		v = []string{rand.Text()}
		r.Header[correlationHeader] = v
	}
	w.Header()[correlationHeader] = v
}

// plainID reports whether an id may stand in logs and headers as it is.
func plainID(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// keyed reports whether the guard will read the request's body before anything is run.
func keyed(r *http.Request) bool {
	return (r.Method == http.MethodPost || r.Method == http.MethodPatch) && len(r.Header["Idempotency-Key"]) > 0
}

// bounded returns a copy of the request with a body that must arrive within a time; the server lifts that limit itself
// once the body has been read. In the request itself the server must find its own body: it decides by that how much of an
// unread one it skips.
//
// A body over the limit is refused by the guard. MaxBytesReader tells the server to let the client read that answer
// before it resets the connection. A client that asked to close the connection has to be read up to the limit for that,
// even if its Content-Length says enough.
func bounded(w http.ResponseWriter, r *http.Request, limit time.Duration) *http.Request {
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit)); err != nil {
		return r // not a connection of a server's
	}
	r = r.WithContext(r.Context())
	r.Body = http.MaxBytesReader(w, r.Body, semel.DefaultMaxRequestBody)
	if r.Close && r.ContentLength > semel.DefaultMaxRequestBody {
		r.ContentLength = -1
	}
	return r
}

// policy is the one policy of all routes.
func policy(c *Config) semel.Policy {
	return semel.Policy{
		OnLost: c.OnLost, OnError: c.OnError, Decide: decide(c.OnLost), KeyOptional: !c.RequireKey,
		Lease: c.Lease, Retention: c.Retention, Wait: c.Wait, Patience: c.ClientTimeout, MaxRun: c.Deadline,
	}
}
