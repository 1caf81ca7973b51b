package gateway

import (
	"crypto/rand"
	"net/http"
	"time"
)

// bodyTime is how long a client may take to send the body of a keyed request.
const bodyTime = time.Minute

// serve does what concerns every request, before its route's guard. A request keeps the table under which it came,
// whatever is reloaded meanwhile.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) {
	w, r, end := pace(w, r, g.cfg.IdleTimeout)
	defer end()
	t := g.table.Load()
	if hasTwoLengths(r) {
		w.Header().Set("Connection", "close")
		t.others.proxy.form.refuse(w, notForwardable)
		return
	}
	if r.TLS != nil && mayHaveTwoLengths(r) {
		w.Header().Set("Connection", "close") // it may have had two lengths, which does not show
	}
	if r.Method == http.MethodOptions && r.RequestURI == "*" {
		w.Header().Set("Content-Length", "0") // about the gateway itself
		return
	}
	if !t.hosts.admits(r.Host) {
		t.others.proxy.form.refuse(w, hostRefused)
		return
	}
	if t.readable(w, r) {
		return
	}
	t.screen.clean(r)
	if local, refused := t.screen.refuses(r); refused {
		t.others.proxy.form.refuse(w, local)
		return
	}
	correlate(w, r, g.cfg.CorrelationHeader)
	if g.cfg.asksAbout(r.URL.Path) {
		t.operations.ServeHTTP(w, r)
		return
	}
	route := t.route(r)
	keyed := route.carriesKey(r)
	if body, ok := r.Body.(*pacedBody); ok && route.readsBody(r, keyed) {
		body.until = time.Now().Add(g.bodyTime)
		bounded(w, r, route.maxBody)
	}
	if route.stores {
		g.cfg.vouch(r)
	}
	if keyed {
		route.guarded.ServeHTTP(w, r)
	} else {
		route.unkeyed.ServeHTTP(w, r)
	}
}

// correlate takes the request's correlation id, or makes one, for the methods that the guard lets pass too.
func correlate(w http.ResponseWriter, r *http.Request, header string) {
	v := r.Header[header]
	if len(v) != 1 || !plainID(v[0]) {
		v = []string{rand.Text()}
		r.Header[header] = v
	}
	w.Header()[header] = v
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

// bounded gives a body its limit. One over it is refused by the guard. MaxBytesReader tells the server to let the
// client read that answer before it resets the connection. A client that asked to close the connection has to be read
// up to the limit for that, even if its Content-Length says enough.
func bounded(w http.ResponseWriter, r *http.Request, limit int64) {
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	if r.Close && r.ContentLength > limit {
		r.ContentLength = -1
	}
}
