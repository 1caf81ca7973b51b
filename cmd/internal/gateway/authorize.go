package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

// defaultCredentials prove who asks where the scope does not tell callers apart: what services read credentials from by
// themselves. Cookies count whole, because which of them is a session's can't be told.
var defaultCredentials = []string{"Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Auth-Token", "X-Access-Token"}

// ReplayTo says to whom stored answers are given.
type ReplayTo uint8

const (
	// ReplayToCaller gives them to the caller of the first request. Who that was a scope header tells, since a proxy has
	// authenticated it, or, if there is no such header, or the route names credentials, the credentials of the request.
	ReplayToCaller ReplayTo = iota
	// ReplayToAnyone gives them to anyone of the same scope who knows the key.
	ReplayToAnyone
)

var replayNames = map[string]ReplayTo{"caller": ReplayToCaller, "anyone": ReplayToAnyone}

// ParseReplayTo reads "caller" or "anyone".
func ParseReplayTo(s string) (ReplayTo, bool) {
	r, ok := replayNames[s]
	return r, ok
}

// credentials are those that a repeat must have in common with the first request.
func (r *Route) credentials(c *Config) []string {
	switch {
	case r.ReplayTo == ReplayToAnyone:
		return nil
	case r.Policy.Credentials == nil && c.Scope.Single():
		return defaultCredentials
	}
	return r.Policy.Credentials
}

// checkReplay says what is wrong with to whom the route gives its answers.
func (r *Route) checkReplay(c *Config, fail func(string, string, ...any)) {
	if r.Policy.Credentials != nil && len(r.Policy.Credentials) == 0 {
		fail("credentials", "credentials: the list is empty; to give answers to anyone who knows the key say replay_to: anyone")
	}
	if r.ReplayTo == ReplayToAnyone {
		if len(r.Policy.Credentials) > 0 {
			fail("replay_to", "replay_to: anyone does not go with credentials")
		}
		if r.Authorize != "" {
			fail("replay_to", "replay_to: anyone does not go with authorize")
		}
	}
	if r.Authorize != "" && c.Upstream != nil {
		if _, err := authorizeAddress(c.Upstream, r.Authorize); err != nil {
			fail("authorize", "%v", err)
		}
	}
}

// authorizeAddress is the address at which is asked whether an answer may be given again: a path on the upstream, or an
// address of its own.
func authorizeAddress(upstream *url.URL, s string) (*url.URL, error) {
	at, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, fmt.Errorf("authorize: %w", err)
	case at.User != nil:
		return nil, errors.New("authorize: user and password don't belong into the address; they would not be sent")
	case at.Fragment != "":
		return nil, fmt.Errorf("authorize %q: a fragment is not sent", s)
	case strings.HasPrefix(s, "/") && at.Host == "":
		u := upstream.JoinPath(at.EscapedPath())
		u.RawQuery = at.RawQuery
		return u, nil
	case at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "":
		return nil, fmt.Errorf("authorize %q: want a path on the upstream, such as /may-see, or an address such as http://127.0.0.1:9001/may-see", s)
	}
	return at, nil
}

// pathAtService returns the path by which clients would reach an address, if that is at the service, by the name that
// the upstream has.
func pathAtService(upstream, at *url.URL) (string, bool) {
	port := func(u *url.URL) string {
		return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	if at.Scheme != upstream.Scheme || !strings.EqualFold(at.Hostname(), upstream.Hostname()) || port(at) != port(upstream) {
		return "", false
	}
	path := strings.TrimPrefix(at.EscapedPath(), strings.TrimSuffix(upstream.EscapedPath(), "/"))
	return "/" + strings.TrimPrefix(path, "/"), true
}

// authorizePath is that at which the route's question is asked, if that is at the service.
func (r *Route) authorizePath(c *Config) (string, bool) {
	if at, err := authorizeAddress(c.Upstream, r.Authorize); r.Authorize != "" && err == nil {
		return pathAtService(c.Upstream, at)
	}
	return "", false
}

const (
	authorizeTime = 10 * time.Second // for one question
	authorizeKept = 3 * time.Second  // how long its answer counts, by default
	authorizeMost = 1 << 12          // answers that are remembered
)

// An authorizer asks the upstream, or a service of its own, whether an answer may be given to a repeat, as nginx's
// auth_request and Traefik's forward auth ask: by a GET with the repeat's own headers. 2xx allows it.
type authorizer struct {
	cfg    *Config
	proxy  *proxy
	at     *url.URL
	inside bool // it is at the service
	client http.Client

	mu    sync.Mutex
	known map[[sha256.Size]byte]authorized
}

type authorized struct {
	err   error // nil if it is allowed
	until time.Time
}

// newAuthorizer returns nil if nobody is asked.
func newAuthorizer(c *Config, r *Route, to transports) *authorizer {
	if r.Authorize == "" {
		return nil
	}
	at, err := authorizeAddress(c.Upstream, r.Authorize)
	if err != nil {
		return nil // Config.check has refused it
	}
	_, inside := pathAtService(c.Upstream, at)
	transport := to.elsewhere
	if inside {
		transport = to.service
	}
	return &authorizer{
		cfg: c, proxy: newProxy(c, r, nil, transport), at: at, inside: inside, known: map[[sha256.Size]byte]authorized{},
		client: http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// allow reports why a stored answer must not be given to a request, or nil. Whoever can't be asked has not allowed it,
// nor refused it for good.
func (a *authorizer) allow(r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), authorizeTime)
	defer cancel()
	question, err := a.question(ctx, r)
	if err != nil {
		return fmt.Errorf("authorize: %w", err)
	}
	key := a.digest(question)
	if known, ok := a.remembered(key); ok {
		return known.err
	}
	res, err := a.client.Do(question)
	if err != nil {
		return a.unanswered(r, err)
	}
	defer res.Body.Close()
	io.CopyN(io.Discard, res.Body, 4<<10) //nolint:errcheck // only so that the connection can be used again
	if res.StatusCode/100 != 2 {
		err = fmt.Errorf("authorize: %s answered %d", a.at.Host, res.StatusCode)
	}
	if res.StatusCode >= http.StatusInternalServerError {
		return a.unanswered(r, err)
	}
	a.remember(key, authorized{err, time.Now().Add(cmp.Or(a.cfg.allowedFor, authorizeKept))})
	return err
}

// unanswered says that a request's question got no answer; it is asked again with the next repeat.
func (a *authorizer) unanswered(r *http.Request, err error) error {
	a.cfg.Log.LogAttrs(r.Context(), slog.LevelWarn, "whether an answer may be given again could not be asked",
		slog.String("endpoint", a.proxy.endpoint(r)), slog.String("error", err.Error()))
	return fmt.Errorf("authorize: %w: %w", refusal.OutcomePending, err)
}

// question makes the question about a repeat. It has no body, and nothing of what the gateway tells runs by.
func (a *authorizer) question(ctx context.Context, r *http.Request) (*http.Request, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, a.at.String(), nil)
	if err != nil {
		return nil, err
	}
	q.Header = r.Header.Clone()
	for _, name := range connectionHeaders(r.Header) {
		delete(q.Header, name)
	}
	for _, name := range runHeaders {
		delete(q.Header, name)
	}
	a.proxy.forward(&httputil.ProxyRequest{In: r, Out: q})
	withholdResend(q.Header, r.Header)
	q.Header["X-Forwarded-Method"] = []string{r.Method}
	q.Header["X-Forwarded-Uri"] = []string{r.URL.RequestURI()}
	if a.inside {
		q.Host = r.Host
	}
	return q, nil
}

// connectionHeaders are those of a request that belong to its body or its connection, or say for whom it comes, by
// their names.
func connectionHeaders(h http.Header) []string {
	names := []string{
		"Connection", "Content-Length", "Content-Encoding", "Content-Type", "Content-Digest", "Expect", "Keep-Alive", "Proxy-Connection",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Prefer", "Forwarded", "X-Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
	}
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			names = append(names, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	return names
}

// digest is of all of a question but what differs from one attempt to the next.
func (a *authorizer) digest(q *http.Request) (sum [sha256.Size]byte) {
	h := sha256.New()
	part := func(s string) { fmt.Fprintf(h, "%d:%s", len(s), s) }
	part(q.Host)
	for _, name := range slices.Sorted(maps.Keys(q.Header)) {
		switch name {
		case a.cfg.CorrelationHeader, "Traceparent", "Tracestate", "X-Request-Id", "Date":
			continue
		}
		part(name)
		fmt.Fprintf(h, "%d,", len(q.Header[name]))
		for _, value := range q.Header[name] {
			part(value)
		}
	}
	h.Sum(sum[:0])
	return sum
}

func (a *authorizer) remembered(key [sha256.Size]byte) (authorized, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.known[key]
	return known, ok && time.Now().Before(known.until)
}

func (a *authorizer) remember(key [sha256.Size]byte, answer authorized) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) >= authorizeMost {
		now := time.Now()
		maps.DeleteFunc(a.known, func(_ [sha256.Size]byte, known authorized) bool { return now.After(known.until) })
		if len(a.known) >= authorizeMost {
			clear(a.known)
		}
	}
	a.known[key] = answer
}

// warnOfReplay says to whom the answers of routes are given, where that may not be who is meant.
func (c *Config) warnOfReplay() {
	if c.Scope.Single() {
		c.Log.Warn("scope single: all callers are one to the gateway, which checks no credentials; a repeat gets the stored answer only with the credentials of the first request, " +
			"so one with a renewed token or session gets 403 unless authorize says who may have it")
	}
	for _, r := range c.all() {
		switch {
		case r.ReplayTo == ReplayToAnyone:
			c.Log.Warn("stored answers are given to anyone of the scope who knows the key, with any credentials or none", "route", r.name())
		case r.Reconcile != "" && r.Authorize == "" && len(r.credentials(c)) > 0:
			c.Log.Warn("an answer that reconcile finds has nobody's credentials, and is given to nobody: name authorize, or say replay_to: anyone", "route", r.name())
		}
	}
}

// operationsAuthorizer asks for questions about operations what all routes ask that ask at all; nil if they differ.
func (c *Config) operationsAuthorizer(to transports) *authorizer {
	var one *Route
	for _, r := range c.all() {
		switch {
		case r.Authorize == "":
		case one == nil:
			one = r
		case one.Authorize != r.Authorize:
			return nil
		}
	}
	return newAuthorizer(c, cmp.Or(one, &Route{}), to)
}

// authorizing has a policy ask an authorizer, if there is one.
func (a *authorizer) authorizing(p *semel.Policy) {
	if a != nil {
		p.AuthorizeReplay = a.allow
	}
}
