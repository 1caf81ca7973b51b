package client

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/settings"
)

// Options of a [Transport]. The zero value of each field means the documented default.
type Options struct {
	// Dialect is what the server says of keys, such as [Stripe]. Other options go before its own. Defaults to the rules
	// for every server.
	Dialect Dialect
	// Header carries the key. Defaults to Idempotency-Key.
	Header string
	// Bare sends keys as they are, as most vendors' APIs want them. Defaults to the quoted form of
	// draft-ietf-httpapi-idempotency-key-header-07, an sf-string (RFC 9651, section 3.3.3). A key that the caller has
	// put into the header is sent as it stands there.
	Bare bool
	// CorrelationHeader carries an id that stays the same over all attempts and hops: the request's own, else that of
	// the operation in whose handler the call is made, else one that is made. "-" turns it off. Defaults to
	// X-Correlation-Id.
	CorrelationHeader string
	// Methods are those whose requests get a key. Defaults to POST and PATCH. A request of another unsafe method that
	// brings its own key is keyed as well. Safe methods (RFC 9110, section 9.2.1) never are.
	Methods []string
	// Key makes the key of a request that brings none; "" leaves it without one, and so without repeats. It is called
	// once a call, concurrently. Within a step of an operation the key that is derived for the step goes first.
	// Defaults to a random UUID (version 4).
	Key func(*http.Request) string

	// MaxAttempts is how often a call is sent, not counting the hops of redirects. Defaults to 4.
	MaxAttempts int
	// MaxAge is how long after its key was made a call may still be sent: the time for which the server remembers
	// outcomes. Defaults to 24 h.
	MaxAge time.Duration
	// Backoff is the law of the delays between attempts. Defaults to FullJitter(100 ms, 30 s).
	Backoff Backoff
	// Random returns a number in [0, 1), for Backoff. It is called concurrently. Defaults to that of math/rand/v2.
	Random func() float64
	// MaxRetryAfter is the longest delay that a server may ask for. A call that is asked for more ends, and tells when
	// to come again. Defaults to 1 min.
	MaxRetryAfter time.Duration
	// Budget bounds the repeats of all calls together.
	Budget Budget
	// Classify says what an answer to a request with a key means, where the rules for every server don't know: ""
	// leaves it to them. sent says that an attempt under the key may have arrived before this one. Except with [Do], a
	// has only the first 64 KiB of the body, and none below 400. It is called concurrently. A guard's own refusals
	// (Idempotency-Code) are not asked about. Defaults to the rules.
	Classify func(a *Answer, sent bool) Verdict
	// AttemptTimeout is how long one attempt may wait for the head of its answer; with [Do], for all of it. A negative
	// one is no limit but the context's. Defaults to 30 s.
	AttemptTimeout time.Duration

	// MaxBody is the size in bytes up to which a request body without GetBody is kept in memory, so that it can be sent
	// again. Defaults to 1 MiB.
	MaxBody int64
	// MaxAnswer is the size in bytes up to which [Do] reads an answer. Defaults to 1 MiB.
	MaxAnswer int64

	// PollEvery, if set, asks for the operation that a 202 names in Location, until it has ended, and returns what it
	// was told then. It is the delay where the server gives none; a longer Retry-After than MaxRetryAfter is cut to
	// that. Defaults to returning the 202.
	PollEvery time.Duration
	// StatusURL, if set, is asked with GET and the same key, instead of sending the request again, after an answer was
	// lost: it knows the operations by key. An operation that runs is asked about again until it has ended, every
	// second unless PollEvery is set. One that has failed and of which nothing is kept (state failed, and retryable
	// true) means that the request is sent again, as does an answer without a member "state", such as 404 for a key
	// that was never seen. Any other state ends the call with what was told of it. It may be relative to the request's
	// URL; another origin than that is not asked. Defaults to sending the request again.
	StatusURL string
	// CrossOrigin names the other origins, such as "https://eu.api.example", to which key, correlation id and body go
	// along when a redirect (307, 308) leads there. Defaults to none: the call ends there, with [ErrCrossOrigin]. A
	// redirect to a safe method (303) is followed in any case, without all three.
	CrossOrigin []string

	// OnAttempt is told about each attempt when it has ended. It is called concurrently, and the call waits for it.
	OnAttempt func(Attempt)
}

// Budget bounds the repeats of all calls of a [Transport] to a share of the calls, so that clients do not keep down a
// server that is in trouble: each call adds Share to a bucket that holds at most Burst, and each repeat takes 1 from
// it.
type Budget struct {
	// Off removes the bound.
	Off bool
	// Share is how many repeats a call pays for, at most 1. Defaults to 0.1.
	Share float64
	// Burst is how many repeats are paid for at the start, and at most. Defaults to 10.
	Burst int
}

// Defaults of [Options].
const (
	DefaultHeader            = "Idempotency-Key"
	DefaultCorrelationHeader = "X-Correlation-Id"
	DefaultMaxAttempts       = 4
	DefaultMaxAge            = 24 * time.Hour
	DefaultBackoffBase       = 100 * time.Millisecond
	DefaultBackoffLimit      = 30 * time.Second
	DefaultMaxRetryAfter     = time.Minute
	DefaultBudgetShare       = 0.1
	DefaultBudgetBurst       = 10
	DefaultMaxBody           = 1 << 20
	DefaultMaxAnswer         = 1 << 20
	DefaultAttemptTimeout    = 30 * time.Second

	defaultPollEvery = time.Second
)

// compile reports what is wrong with the options, all of it, and fills in the defaults.
func (o Options) compile() (Options, *url.URL, error) {
	f := settings.Faults{Where: "client: "}
	o.Header = cmp.Or(o.Header, o.Dialect.header, DefaultHeader)
	o.Bare = o.Bare || o.Dialect.bare
	o.CorrelationHeader = cmp.Or(o.CorrelationHeader, DefaultCorrelationHeader)
	for _, name := range []string{o.Header, o.CorrelationHeader} {
		f.If(!isToken(name), "%q is not a header's name", name)
	}
	o.Header = http.CanonicalHeaderKey(o.Header)
	o.CorrelationHeader = http.CanonicalHeaderKey(o.CorrelationHeader)
	f.If(o.Header == o.CorrelationHeader, "Header and CorrelationHeader are both %s", o.Header)
	if o.CorrelationHeader == "-" {
		o.CorrelationHeader = ""
	}
	if len(o.Methods) == 0 {
		o.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	for _, m := range o.Methods {
		f.If(!isToken(m) || m != strings.ToUpper(m) || safe(m), "Methods: %q is not an unsafe method's upper-case name", m)
	}
	o.Methods = slices.Clone(o.Methods) // the caller may go on changing its own

	settings.Fill(&f, "MaxAge", &o.MaxAge, cmp.Or(o.Dialect.maxAge, DefaultMaxAge))
	settings.Fill(&f, "MaxRetryAfter", &o.MaxRetryAfter, DefaultMaxRetryAfter)
	settings.Fill(&f, "PollEvery", &o.PollEvery, 0)
	o.AttemptTimeout = cmp.Or(o.AttemptTimeout, DefaultAttemptTimeout)
	for _, origin := range o.CrossOrigin {
		u, err := url.Parse(origin)
		f.If(err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != origin,
			"CrossOrigin: %q is not an origin, such as https://api.example", origin)
	}
	o.CrossOrigin = slices.Clone(o.CrossOrigin)
	settings.Fill(&f, "MaxBody", &o.MaxBody, DefaultMaxBody)
	settings.Fill(&f, "MaxAnswer", &o.MaxAnswer, DefaultMaxAnswer)
	settings.Fill(&f, "MaxAttempts", &o.MaxAttempts, DefaultMaxAttempts)
	if b := &o.Budget; b.Off {
		f.If(b.Share != 0 || b.Burst != 0, "Budget is off, but has a share or a burst")
	} else {
		f.If(!(b.Share >= 0 && b.Share <= 1), "Budget.Share is %v, want 0 to 1", b.Share) // not a number is neither
		b.Share = cmp.Or(b.Share, DefaultBudgetShare)
		settings.Fill(&f, "Budget.Burst", &b.Burst, DefaultBudgetBurst)
	}
	if o.Backoff == nil {
		o.Backoff = FullJitter(DefaultBackoffBase, DefaultBackoffLimit)
	}
	var status *url.URL
	if o.StatusURL != "" {
		var err error
		status, err = url.Parse(o.StatusURL)
		f.If(err != nil, "StatusURL: %w", err)
	}
	return o, status, f.Err()
}

// classifies reports whether somebody knows more of the server than the rules for every one.
func (o *Options) classifies() bool { return o.Classify != nil || o.Dialect.classify != nil }

// classify asks whoever does; "" if they leave it to the rules.
func (o *Options) classify(a *Answer, sent bool) (v Verdict) {
	if o.Classify != nil {
		v = o.Classify(a, sent)
	}
	if v == "" && o.Dialect.classify != nil {
		v = o.Dialect.classify(a)
	}
	return v
}

// safe reports whether a method is safe (RFC 9110, section 9.2.1), so that it may be repeated without a key.
func safe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}
