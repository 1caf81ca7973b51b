package semel

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/defaults"
	"github.com/semelhq/semel/internal/engine"
	"github.com/semelhq/semel/internal/fingerprint"
	"github.com/semelhq/semel/internal/structuredfield"
)

// Policy says how one route or job treats its operations. A Policy is complete: it is never merged with another
// guard's. The zero value of each field means the documented default.
type Policy struct {
	// OnLost says what becomes of a run that was lost. Defaults to Hold.
	OnLost LostPolicy
	// OnError says what becomes of a written 5xx that is not released anyway. Defaults to what OnLost implies: Keep
	// under Hold, Release under Rerun.
	OnError ErrorPolicy
	// EmptyOK says that a handler which returns without having written anything means 200 with an empty body, as for
	// net/http. Not if the guard has ended its context, nor in a transaction ([RunTx]). Defaults to taking it for no
	// answer: the run counts as lost, and its client is told 500 no-answer. A framework that writes its error after the
	// guard has returned looks the same.
	EmptyOK bool
	// KeepOnlySuccess releases every answer that is not 2xx.
	KeepOnlySuccess bool
	// Decide, if set, has a say on each answer of the handler; see [Verdict]. What the handler itself asked for with
	// [Operation].Keep or Release goes first. header and body are read-only, also later; body is nil where the answer was
	// too large to keep.
	Decide func(status int, header http.Header, body []byte) Verdict

	// Methods, if any are named, are the only ones that are protected. A request of theirs without a key is treated as
	// KeyOptional and Mint say. Defaults to POST and PATCH, and besides to every other unsafe method if the request
	// carries a key: who sends one with a PUT or DELETE means it, and without one it passes. GET, HEAD, OPTIONS and TRACE
	// can't be protected.
	Methods []string
	// KeyHeaders are the names under which the key may come. Defaults to Idempotency-Key.
	KeyHeaders []string
	// KeyField is a JSON Pointer to a string in the body that may carry the key as well, such as "/idempotency_key". In a
	// form (application/x-www-form-urlencoded) it names a field, "/meta/key" also meta[key]. null is no key. Defaults to
	// none.
	//
	// A body that says to be JSON, or a form, or has no Content-Type, and in which the field can't be told, is refused: a
	// key that it may carry can't be told from none. So is one that is kept in a file (SpoolRequestAbove). One of another
	// type has the field only if it is JSON all the same; else its key is in a header. A PUT, DELETE or the like that
	// Methods does not name is looked into only if its Content-Type is that of JSON or of a form.
	KeyField string
	// KeyOptional lets a request without a key run unprotected. Defaults to refusing it with 400, if its method needs a
	// key (Methods).
	KeyOptional bool
	// Mint, if set, makes the key of a request that carries none, from what tells operations apart in it: an order number
	// and the method, for example. body is the request's, decoded, and read-only; nil if it is kept in a file. The key is
	// used, told in the answer and shown to the handler as if it had come in the first of KeyHeaders. "" leaves the
	// request without a key; an error refuses it with 400, and its text is shown. Not in [Do]. Defaults to none.
	Mint func(r *http.Request, body []byte) (string, error)
	// KeyFormat says which keys are accepted.
	KeyFormat KeyFormat
	// PerOperation makes method and path part of the identity, so that one key may be used on several routes; in [Do], it
	// is the operation's name. Defaults to refusing that with 422.
	PerOperation bool
	// Fingerprint says how requests are told apart.
	Fingerprint FingerprintPolicy
	// Operation names the route in records, events and logs. Defaults to the pattern of http.ServeMux, else method and
	// path. In [Do] it is the name of what is asked for where the key has none ([Key].Operation), without a default.
	Operation string

	// Lease is how long a run is owned without renewal; it is renewed every third of it. Defaults to 30 s.
	Lease time.Duration
	// MaxRun is the longest a run may take; it is the deadline of the handler's context. Defaults to 15 min.
	MaxRun time.Duration
	// Patience is the longest a client is kept waiting for its own run. Past it the client is told 504 outcome-pending,
	// and the run goes on. Defaults to no limit.
	Patience time.Duration
	// SettleWait is how long a client waits for its answer to become durable. Past it the client is told 503
	// outcome-pending, and settling goes on. Defaults to 5 s.
	SettleWait time.Duration
	// Retention is how long an outcome is kept, from its completion; [driver.Forever] is allowed. At least MaxRun + Lease.
	// Defaults to 24 h.
	Retention time.Duration
	// MinRetention and MaxRetention bound what a handler asks for with [Operation.Retain]: what is outside is the nearer
	// of them. At least MaxRun + Lease. Both default to Retention, so that a handler changes nothing.
	MinRetention, MaxRetention time.Duration
	// Tombstone is how long a key is refused as expired after Retention, instead of standing for a new operation. Its
	// record is small then: the answer is gone. [driver.Forever] is allowed. Defaults to not at all.
	Tombstone time.Duration
	// Wait is how long a request waits for another run of its operation before it is told 409. Defaults to not at all.
	Wait time.Duration
	// MaxWait bounds the wait that a client may ask for with "Prefer: wait=N" (RFC 7240). Defaults to Wait.
	MaxWait time.Duration
	// MaxWaiters is how many requests may wait for one key in this process. Defaults to 64.
	MaxWaiters int

	// MaxRequestBody is the largest request body in bytes, as sent and decoded. Defaults to 1 MiB.
	MaxRequestBody int64
	// SpoolRequestAbove is the size in bytes above which a request body is kept in a temporary file, and hashed as a
	// stream, without canonicalising JSON and forms. Defaults to MaxRequestBody, that is never.
	SpoolRequestAbove int64
	// MaxResponseBody is the largest answer in bytes that is stored. A larger one is sent whole to its own client, from a
	// temporary file, and repeats get replay-unavailable. Defaults to 1 MiB.
	MaxResponseBody int64
	// NoStore stores no answer and no result, for one that shows a secret once: whoever gets it is the only one. The
	// operation is done without an answer, and repeats get replay-unavailable; so does a client that has lost its
	// connection. Answers that release the key are not affected. Above MaxResponseBody an answer waits in a temporary file
	// for its outcome, as any does. Not with RespondAsync. Defaults to storing them.
	NoStore bool
	// CompressAbove is the size in bytes from which a stored body is compressed. Negative means never. Defaults to 8 KiB.
	CompressAbove int

	// OneCommit runs the handler in a transaction of the store's database, in which its outcome is recorded too: one
	// commit, and nothing at all if the process dies before it. For handlers that have their effects there, through the
	// store's own method, and are short. Only with a store that is a [driver.Transactor]. There is no lease and no record
	// before the commit, so a request with another body meanwhile gets 409 or waits, and [Operation.Fence] orders only
	// what was committed. OnLost does not matter: what was not committed did not happen. Not with Stream, Patience or
	// ObserveOnly, nor with FailOpen: a handler whose database can't be asked could not work either, and one that waits in
	// vain for its turn must not run beside the one that it waits for. Defaults to a lease and a record from the start.
	OneCommit bool
	// RespondAsync lets a client ask not to wait for its answer, with "Prefer: respond-async" (RFC 7240, section 4.1), or
	// only for a while, with "wait=N" beside it: past that it is told 202 and where the operation can be asked about
	// ([Options].Operations), and the run goes on. Its request is stored, encrypted, so that a [Completer] finishes it
	// should its process die. Needs Rerun, [Options].Encryption, and a store that is a [driver.Lister]. Not with
	// OneCommit, ObserveOnly, FailOpen or Stream. Requests that do not ask for it are not stored. Defaults to letting clients
	// wait.
	RespondAsync bool
	// Complete stores the request of each operation, encrypted, so that a [Completer] can finish one whose run was lost
	// though no client asks again. Needs what RespondAsync needs, but for Options.Operations. Not with OneCommit, ObserveOnly
	// or FailOpen, and not for [Do]. Defaults to storing no request.
	Complete bool
	// SealHeaders are request headers that are stored with a request, besides those that describe its body or make it
	// conditional, those of Fingerprint, Accept, Accept-Language and the correlation id. Headers that carry credentials
	// can't be, nor can such of Fingerprint. Defaults to no more.
	SealHeaders []string
	// Redact lists JSON Pointers (RFC 6901) to fields that are not stored with a request, such as "/card/code". The token
	// * stands for every element of an array: "/items/*/secret". In a form a pointer names a field, "card[code]" too.
	// Names are matched in either case, as many handlers do. A [Completer] runs the request without them. A request that
	// is to be stored, and whose body is neither JSON nor a form, or can't be taken apart, or holds two names in one
	// object that are the same but for their case, is refused with 400. Answers are not redacted: a replay is true, or
	// there is none. Needs RespondAsync or Complete. Defaults to none.
	Redact []string
	// Problems, if not nil, is the form of the guard's own answers on this route. Defaults to that of [Options].
	Problems *ProblemOptions

	// Stream sends the answer as the handler writes it; the operation is never run again once the first byte may have
	// left. Answers of type text/event-stream are always streamed. Defaults to buffering.
	Stream bool
	// StoreHeaders, if not nil, lists the only response headers that are stored. Defaults to all but those that must never
	// be replayed: cookies, credentials, ids of requests and traces, rate limits, and what is the connection's. CORS
	// headers are replayed to the origin that they name, or to all.
	StoreHeaders []string
	// Credentials are the request headers, and as "cookie:NAME" the cookies, that prove who sends a request, where what
	// checks them is below the guard: a stored answer is then given only to a repeat with the same ones, none included,
	// and others get 403 replay-forbidden and run nothing. A digest of them is stored with the answer, keyed by
	// [Options].IdentitySecret. A renewed token, and a signature that differs from one attempt to the next, are other
	// credentials; so are those of an answer that was stored without them, as by another policy or by [Guard.Reconcile].
	// AuthorizeReplay, if set, decides about those. Not in [Do]. Defaults to none: whoever passes what stands above the
	// guard, and has the key and the scope, may have the answer.
	Credentials []string
	// AuthorizeReplay, if set, is asked before a stored answer is given to a request, with Credentials only to one with
	// others than the first; an error refuses it with 403, or, if it is [refusal.OutcomePending], with 503: it could not
	// be asked.
	AuthorizeReplay func(*http.Request) error
	// FailOpen runs the handler unprotected when the store can't be asked, or has no room. Such answers carry
	// "Idempotency-Status: bypassed". It does not open for a client that has gone, nor for a principal whose share is
	// full, of what may be owed ([Options].PrincipalShare) or of the store ([driver.ErrShareFull]). Defaults to refusing
	// with 503.
	FailOpen bool
	// ObserveOnly records and reports what would happen, but never refuses and never replays.
	ObserveOnly bool
}

// ErrorPolicy says what becomes of a written 5xx.
type ErrorPolicy uint8

const (
	// ErrorDefault is Keep under Hold and Release under Rerun.
	ErrorDefault ErrorPolicy = iota
	// KeepErrors replays the 5xx to repeats.
	KeepErrors
	// ReleaseErrors lets a repeat run again. It is a promise that a 5xx means that nothing happened, or that running again
	// is safe.
	ReleaseErrors
)

// Verdict says what becomes of an answer.
type Verdict uint8

const (
	// VerdictDefault leaves it to the status, as if Policy.Decide were nil.
	VerdictDefault Verdict = iota
	// VerdictKeep stores the answer and replays it.
	VerdictKeep
	// VerdictRelease stores nothing and lets a repeat run. It is a promise that nothing happened.
	VerdictRelease
	// VerdictLost means that there may have been an effect: Policy.OnLost decides. The answer goes to its client.
	VerdictLost
	// VerdictUnknown means that there may have been an effect, and that only an operator can tell, whatever OnLost says.
	VerdictUnknown
)

// Limits and defaults of [Policy].
const (
	defaultSettleWait    = 5 * time.Second
	defaultMaxWaiters    = 64
	defaultCompressAbove = 8 << 10
	maxLimit             = 1 << 40 // far from where sums of limits overflow
)

// Validate reports what is wrong with the policy, all of it.
func (p Policy) Validate() error {
	_, err := p.compile()
	return err
}

// A policy that was validated, with its defaults filled in and its tables built.
type policy struct {
	Policy
	methods       map[string]bool // those that are protected without a key, too
	named         bool            // no others are
	fingerprinter *fingerprint.Fingerprinter
	storeHeaders  map[string]bool       // nil: all but the never-list
	sealHeaders   []string              // of Policy.Complete and RespondAsync
	redactor      *fingerprint.Redactor // nil for nothing to leave out of what is stored
	problems      *ProblemOptions       // the route's own; else the guard's, once it is known
}

// engine returns what the engine needs of the policy.
func (p *policy) engine() engine.Policy {
	return engine.Policy{
		OnLost: p.OnLost, Lease: p.Lease, MaxRun: p.MaxRun, SettleWait: p.SettleWait, Retention: p.Retention,
		Tombstone: p.Tombstone, MinRetention: p.MinRetention, MaxRetention: p.MaxRetention, MaxWaiters: p.MaxWaiters,
		OneCommit: p.OneCommit, FailOpen: p.FailOpen,
	}
}

func (p Policy) compile() (*policy, error) {
	var errs []error
	fail := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }

	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"Lease", p.Lease},
		{"MaxRun", p.MaxRun},
		{"Patience", p.Patience},
		{"SettleWait", p.SettleWait},
		{"Retention", p.Retention},
		{"MinRetention", p.MinRetention},
		{"MaxRetention", p.MaxRetention},
		{"Tombstone", p.Tombstone},
		{"Wait", p.Wait},
		{"MaxWait", p.MaxWait},
	} {
		if d.value < 0 {
			fail("policy: %s is negative: %v", d.name, d.value)
		}
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"MaxRequestBody", p.MaxRequestBody},
		{"SpoolRequestAbove", p.SpoolRequestAbove},
		{"MaxResponseBody", p.MaxResponseBody},
		{"MaxWaiters", int64(p.MaxWaiters)},
	} {
		switch {
		case n.value < 0:
			fail("policy: %s is negative: %d", n.name, n.value)
		case n.value > maxLimit:
			fail("policy: %s is %d, want at most %d", n.name, n.value, int64(maxLimit))
		}
	}
	if p.OnLost > Rerun {
		fail("policy: OnLost is %v, want Hold or Rerun", p.OnLost)
	}
	if p.OnError > ReleaseErrors {
		fail("policy: OnError is %d, want ErrorDefault, KeepErrors or ReleaseErrors", p.OnError)
	}

	if p.OnError == ErrorDefault {
		p.OnError = KeepErrors
		if p.OnLost == Rerun {
			p.OnError = ReleaseErrors
		}
	}
	p.Lease = cmp.Or(max(p.Lease, 0), driver.DefaultLease)
	p.MaxRun = cmp.Or(max(p.MaxRun, 0), defaults.MaxRun)
	p.SettleWait = cmp.Or(max(p.SettleWait, 0), defaultSettleWait)
	p.Retention = cmp.Or(max(p.Retention, 0), driver.DefaultRetention)
	p.MinRetention = cmp.Or(max(p.MinRetention, 0), p.Retention)
	p.MaxRetention = cmp.Or(max(p.MaxRetention, 0), p.Retention)
	p.MaxWait = cmp.Or(max(p.MaxWait, 0), p.Wait)
	if p.MaxWaiters == 0 {
		p.MaxWaiters = defaultMaxWaiters
	}
	if p.MaxRequestBody == 0 {
		p.MaxRequestBody = defaults.MaxRequestBody
	}
	if p.SpoolRequestAbove == 0 {
		p.SpoolRequestAbove = p.MaxRequestBody
	}
	if p.MaxResponseBody == 0 {
		p.MaxResponseBody = defaults.MaxResponseBody
	}
	if p.CompressAbove == 0 {
		p.CompressAbove = defaultCompressAbove
	}
	if p.Lease < 3*time.Millisecond {
		fail("policy: Lease is %v, want at least 3ms: it is renewed every third of it", p.Lease)
	}
	// A record must outlive any run that may still settle it.
	switch {
	case p.MaxRun > Forever-p.Lease, p.Retention < p.MaxRun+p.Lease:
		fail("policy: Retention is %v, want at least MaxRun + Lease, which is %v + %v", p.Retention, p.MaxRun, p.Lease)
	case p.MinRetention < p.MaxRun+p.Lease:
		fail("policy: MinRetention is %v, want at least MaxRun + Lease, which is %v + %v", p.MinRetention, p.MaxRun, p.Lease)
	case p.MinRetention > p.Retention:
		fail("policy: MinRetention is %v, want at most Retention, which is %v", p.MinRetention, p.Retention)
	}
	if p.MaxRetention < p.Retention {
		fail("policy: MaxRetention is %v, want at least Retention, which is %v", p.MaxRetention, p.Retention)
	}
	if p.MaxWait < p.Wait {
		fail("policy: MaxWait is %v, want at least Wait, which is %v", p.MaxWait, p.Wait)
	}

	c := &policy{methods: map[string]bool{}, named: len(p.Methods) > 0}
	if len(p.Methods) == 0 {
		p.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	for _, m := range p.Methods {
		switch {
		case !structuredfield.IsToken(m) || m != strings.ToUpper(m):
			fail("policy: Methods: %q is not an upper-case method name", m)
		case safeMethod(m):
			fail("policy: Methods: %s is a safe method and can't be protected", m)
		}
		c.methods[m] = true
	}
	if len(p.KeyHeaders) == 0 {
		p.KeyHeaders = []string{"Idempotency-Key"}
	}
	p.KeyHeaders = canonicalNames(p.KeyHeaders, "policy: KeyHeaders", fail)
	if p.StoreHeaders != nil {
		c.storeHeaders = map[string]bool{}
		for _, h := range canonicalNames(p.StoreHeaders, "policy: StoreHeaders", fail) {
			c.storeHeaders[h] = true
		}
	}
	p.Credentials = credentialNames(p.Credentials, fail)
	if _, err := fingerprint.ParseJSONPointer(p.KeyField); err != nil {
		fail("policy: KeyField: %w", err)
	}
	if err := p.KeyFormat.validate(); err != nil {
		fail("policy: KeyFormat: %w", err)
	}
	var err error
	if c.fingerprinter, err = fingerprint.New(fingerprint.Policy(p.Fingerprint)); err != nil {
		fail("policy: Fingerprint: %w", err)
	}
	if p.Problems != nil {
		if c.problems, err = p.Problems.compile("policy"); err != nil {
			errs = append(errs, err)
		}
	}
	c.sealHeaders = p.compileSealing(fail)
	if c.redactor, err = fingerprint.NewRedactor(p.Redact); err != nil {
		fail("policy: %w", err)
	}
	if p.NoStore && p.RespondAsync {
		fail("policy: NoStore does not go with RespondAsync: a client that was told 202 could never get its answer")
	}
	if p.OneCommit {
		for _, x := range []struct {
			name string
			set  bool
		}{{"Stream", p.Stream}, {"Patience", p.Patience > 0}, {"ObserveOnly", p.ObserveOnly}, {"FailOpen", p.FailOpen}} {
			if x.set {
				fail("policy: OneCommit does not go with %s", x.name)
			}
		}
	}
	c.Policy = p
	return c, errors.Join(errs...)
}

// canonicalNames returns header names in canonical form, without repetitions.
func canonicalNames(names []string, field string, fail func(string, ...any)) []string {
	var out []string
	for _, n := range names {
		if !structuredfield.IsToken(n) {
			fail("%s: %q is not a header name", field, n)
		}
		if n = http.CanonicalHeaderKey(n); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// protects reports whether a request is the guard's to look at.
func (p *policy) protects(r *http.Request) bool {
	return p.methods[r.Method] || !p.named && !safeMethod(r.Method) && p.mayBeKeyed(r)
}

// mayBeKeyed reports whether a request carries a key, as far as its header tells.
func (p *policy) mayBeKeyed(r *http.Request) bool {
	for _, name := range p.KeyHeaders {
		if len(r.Header[name]) > 0 {
			return true
		}
	}
	if p.KeyField == "" || r.ContentLength == 0 || r.Body == nil {
		return false
	}
	media := fingerprint.ParseMediaType(r.Header["Content-Type"])
	return media.JSON() || media.Form()
}

func safeMethod(m string) bool {
	return m == http.MethodGet || m == http.MethodHead || m == http.MethodOptions || m == http.MethodTrace
}
