package semel

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/credentials"
	"github.com/semelhq/semel/internal/defaults"
	"github.com/semelhq/semel/internal/engine"
	"github.com/semelhq/semel/internal/fingerprint"
	"github.com/semelhq/semel/internal/settings"
	"github.com/semelhq/semel/internal/structuredfield"
)

// Policy says how one route or job treats its operations. A Policy is complete: it is never merged with another
// guard's. The zero value of each field means the documented default.
type Policy struct {
	// OnLost says what becomes of a run that was lost. Defaults to Hold.
	OnLost LostPolicy
	// OnError says what becomes of a written 5xx that is not released anyway. Its default follows from OnLost: Keep under
	// Hold, Release under Rerun.
	OnError ErrorPolicy
	// EmptyOK says that a handler which returns without having written anything means 200 with an empty body, as in
	// net/http. It does not apply if the guard has ended the handler's context, nor in a transaction ([RunTx]). By default
	// nothing written means no answer: the run counts as lost, and its client is told 500 no-answer. A framework that
	// writes its error after the guard has returned looks the same.
	EmptyOK bool
	// KeepOnlySuccess releases every answer that is not 2xx.
	KeepOnlySuccess bool
	// Decide, if set, has a say on each answer of the handler; see [Verdict]. A verdict that the handler itself asked for
	// with [Operation].Keep or Release comes first. header and body are read-only, also later; body is nil if the answer
	// was too large to keep.
	Decide func(status int, header http.Header, body []byte) Verdict

	// Methods, if it names any, are the only methods that are protected. KeyOptional and Mint say how a request with one
	// of them but without a key is treated. Defaults to POST and PATCH. By default every other unsafe method is protected
	// too if the request carries a key, because a client that sends a key with a PUT or DELETE wants this; without a key
	// such a request passes. GET, HEAD, OPTIONS and TRACE can't be protected.
	Methods []string
	// KeyHeaders are the names of the headers that may carry the key. Defaults to Idempotency-Key.
	KeyHeaders []string
	// KeyField is a JSON Pointer to a string in the body that may carry the key as well, such as "/idempotency_key". In a
	// form (application/x-www-form-urlencoded) it names a field; "/meta/key" also names meta[key]. null is no key.
	// Defaults to none.
	//
	// A body with the Content-Type of JSON or of a form, or with none, is refused if it can't be told whether it has the
	// field: a key that it may carry can't be told from no key. A body that is kept in a file (SpoolRequestAbove) is
	// refused too. A body of another type has the field only if it is JSON all the same; else its key is in a header. The
	// body of a PUT, DELETE or the like that Methods does not name is looked into only if its Content-Type is that of JSON
	// or of a form.
	KeyField string
	// KeyOptional lets a request without a key run unprotected. Defaults to refusing such a request with 400, if its
	// method needs a key (Methods).
	KeyOptional bool
	// Mint, if set, makes the key of a request that carries none. It uses what tells operations apart in the request: an
	// order number and the method, for example. body is the request's body, decoded and read-only; nil if it is kept in a
	// file. The key is used, told in the answer and shown to the handler as if it had come in the first of KeyHeaders. ""
	// leaves the request without a key. An error refuses it with 400, and the error's text is shown. Not in [Do]. Defaults
	// to none.
	Mint func(r *http.Request, body []byte) (string, error)
	// KeyFormat says which keys are accepted.
	KeyFormat KeyFormat
	// PerOperation makes method and path part of the identity, so that one key may be used on several routes. In [Do], it
	// makes the operation's name part of it. By default the same key on another route is refused with 422.
	PerOperation bool
	// Fingerprint says how requests are told apart.
	Fingerprint FingerprintPolicy
	// Operation names the route in records, events and logs. Defaults to the pattern of http.ServeMux, else to method and
	// path. In [Do] it is the name of the operation if the key has none ([Key].Operation); there it has no default.
	Operation string

	// Lease is how long a run owns its record without renewal. It is renewed every third of this time. Defaults to 30 s.
	Lease time.Duration
	// MaxRun is the longest a run may take; it is the deadline of the handler's context. Defaults to 15 min.
	MaxRun time.Duration
	// Patience is the longest that a client waits for its own run. After it the client is told 504 outcome-pending, and
	// the run goes on. Defaults to no limit.
	Patience time.Duration
	// SettleWait is how long a client waits for its answer to become durable. After it the client is told 503
	// outcome-pending, and settling goes on. Defaults to 5 s.
	SettleWait time.Duration
	// Retention is how long an outcome is kept, from its completion. It is at least MaxRun + Lease; [driver.Forever] is
	// allowed. Defaults to 24 h.
	Retention time.Duration
	// MinRetention and MaxRetention bound the time that a handler asks for with [Operation.Retain]; the nearer bound
	// replaces a time outside of them. At least MaxRun + Lease. Both default to Retention, so that a handler changes
	// nothing.
	MinRetention, MaxRetention time.Duration
	// Tombstone is how long after Retention a key is refused as expired. During this time it does not stand for a new
	// operation. Its record is small then, because the answer is gone. [driver.Forever] is allowed. Defaults to no such
	// time.
	Tombstone time.Duration
	// Wait is how long a request waits for another run of its operation before it is told 409. Defaults to no wait.
	Wait time.Duration
	// MaxWait bounds the wait that a client may ask for with "Prefer: wait=N" (RFC 7240). Defaults to Wait.
	MaxWait time.Duration
	// MaxWaiters is how many requests may wait for one key in this process. Defaults to 64.
	MaxWaiters int

	// MaxRequestBody is the largest request body in bytes, as sent and decoded. Defaults to 1 MiB.
	MaxRequestBody int64
	// SpoolRequestAbove is the size in bytes above which a request body is kept in a temporary file. Such a body is hashed
	// as a stream, and its JSON or form is not canonicalised. Defaults to MaxRequestBody, that is never.
	SpoolRequestAbove int64
	// MaxResponseBody is the largest answer in bytes that is stored. A larger answer is sent whole to its own client, from
	// a temporary file, and repeats get replay-unavailable. Defaults to 1 MiB.
	MaxResponseBody int64
	// NoStore stores no answer and no result. It is for an answer that shows a secret once: only the first client gets it.
	// The operation is done without an answer. Repeats get replay-unavailable; so does a client that has lost its
	// connection. Answers that release the key are not affected. Above MaxResponseBody an answer waits in a temporary file
	// for its outcome, as on any route. Not with RespondAsync. Defaults to storing them.
	NoStore bool
	// CompressAbove is the size in bytes from which a stored body is compressed. Negative means never. Defaults to 8 KiB.
	CompressAbove int

	// OneCommit runs the handler in a transaction of the store's database. The outcome is recorded in the same
	// transaction: there is one commit, and if the process dies before it, nothing has happened. It is for short handlers
	// that have their effects in that database, through the store's own method. It needs a store that is a
	// [driver.Transactor]. Before the commit there is no lease and no record. So a request with another body meanwhile
	// gets 409 or waits, and [Operation.Fence] orders only committed runs. OnLost does not matter: a run that was not
	// committed did not happen. OnError does: a 5xx of a handler that has asked for an [Operation.Key] is kept by default,
	// although its transaction was rolled back, as the key may have been used elsewhere. Not with Stream, Patience,
	// ObserveOnly or FailOpen. FailOpen would not help: a handler whose database does not reply could not work either. And
	// a request that gets no turn must not run beside the request that it waits for. Defaults to a lease and a record from
	// the start.
	OneCommit bool
	// RespondAsync lets a client ask not to wait for its answer, with "Prefer: respond-async" (RFC 7240, section 4.1).
	// With "wait=N" beside it, the client waits at most for that time. Then it is told 202 and where it can ask about the
	// operation ([Options].Operations), and the run goes on. The request is stored, encrypted, so that a [Completer]
	// finishes it if its process dies. RespondAsync needs Rerun, [Options].Encryption, and a store that is a
	// [driver.Lister]. Not with OneCommit, ObserveOnly, FailOpen or Stream. Requests that do not ask for it are not
	// stored. Defaults to letting clients wait.
	RespondAsync bool
	// Complete stores the request of each operation, encrypted. With it a [Completer] can finish an operation whose run
	// was lost, even if no client asks again. It needs what RespondAsync needs, except for Options.Operations. Not with
	// OneCommit, ObserveOnly or FailOpen. Defaults to storing no request.
	//
	// In [Do] it stores what the Fingerprinter gives, and makes the call a job that lasts: an error that is not [Final]
	// says that the operation has not ended, and a completer runs it again (CompleterOptions.Do).
	Complete bool
	// SealHeaders are further request headers that are stored with a request. These are always stored: headers that
	// describe its body or make it conditional, the headers of Fingerprint, Accept, Accept-Language and the correlation
	// id. Headers that carry credentials can't be stored, also if Fingerprint names them. Defaults to no further headers.
	SealHeaders []string
	// Redact lists JSON Pointers (RFC 6901) to fields that are not stored with a request, such as "/card/code". The token
	// * stands for every element of an array: "/items/*/secret". In a form a pointer names a field, also "card[code]".
	// Upper and lower case of names do not matter, as for many handlers. A [Completer] runs the request without these
	// fields. A request that is to be stored is refused with 400 if its body is neither JSON nor a form, or can't be
	// parsed. It is refused too if two names in one object are the same but for their case. Answers are not redacted: a
	// replay is true, or there is none. Needs RespondAsync or Complete. Defaults to none.
	Redact []string
	// Problems, if not nil, is the form of the guard's own answers on this route. Defaults to that of [Options].
	Problems *ProblemOptions

	// Stream sends the answer while the handler writes it. The operation is never run again once the first byte may have
	// left. Answers of type text/event-stream are always streamed. Defaults to buffering.
	Stream bool
	// StoreHeaders, if not nil, lists the only response headers that are stored. Defaults to all headers except those that
	// must never be replayed: cookies, credentials, ids of requests and traces, rate limits, and headers of the
	// connection. CORS headers are replayed to the origin that they name, or to all.
	StoreHeaders []string
	// Credentials are the request headers that prove who sends a request, and as "cookie:NAME" the cookies. They are for
	// routes where the layer that checks them is below the guard. A stored answer is then given only to a repeat with the
	// same credentials, or with none if the first request had none; others get 403 replay-forbidden and run nothing. A
	// digest of the credentials is stored with the answer, keyed by [Options].IdentitySecret. A renewed token counts as
	// other credentials, and so does a signature that differs from one attempt to the next. An answer that was stored
	// without credentials, as by another policy or by [Guard.Reconcile], counts as one with other credentials.
	// AuthorizeReplay, if set, decides about all these. Not in [Do]. Defaults to none: any request that passes the layers
	// above the guard, and has the key and the scope, may have the answer.
	Credentials []string
	// AuthorizeReplay, if set, is asked before a stored answer is given to a request. With Credentials it is asked only if
	// the request has other credentials than the first. An error refuses the request with 403. If the error is
	// [refusal.OutcomePending], which means that the decision could not be made, it is 503.
	AuthorizeReplay func(*http.Request) error
	// FailOpen runs the handler unprotected if the store can't be asked, or has no room. Such answers carry
	// "Idempotency-Status: bypassed". FailOpen does not apply to a client that has gone. It does not apply either to a
	// principal that has used its whole share of the releases that may be owed ([Options].PrincipalShare) or of the store
	// ([driver.ErrShareFull]). Defaults to refusing with 503.
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

// A Verdict says what becomes of an answer.
type Verdict uint8

const (
	// VerdictDefault leaves it to the status, as if Policy.Decide were nil.
	VerdictDefault Verdict = iota
	// VerdictKeep stores the answer and replays it.
	VerdictKeep
	// VerdictRelease stores nothing and lets a repeat run. It is a promise that nothing happened.
	VerdictRelease
	// VerdictLost means that there may have been an effect: Policy.OnLost decides. The client of the run gets the answer.
	VerdictLost
	// VerdictUnknown means that there may have been an effect, and that only an operator can find out, whatever OnLost
	// says.
	VerdictUnknown
)

// maxLimit is the largest limit that can be set: far below the size at which sums of limits overflow.
const maxLimit = 1 << 40

// Validate returns an error that names everything that is wrong with the policy.
func (p Policy) Validate() error {
	_, err := p.compile()
	return err
}

// A policy is a Policy that was validated, with its defaults filled in and its tables built.
type policy struct {
	Policy
	methods       map[string]bool // methods that are protected, also without a key
	named         bool            // no other methods are protected
	fingerprinter *fingerprint.Fingerprinter
	storeHeaders  map[string]bool       // nil for all headers but the never-list
	sealHeaders   []string              // stored with requests, by Policy.Complete and RespondAsync
	redactor      *fingerprint.Redactor // nil if nothing is redacted
	problems      *ProblemOptions       // the route's own, else the guard's; nil until that is known
}

// engine returns the part of the policy that the engine needs.
func (p *policy) engine() engine.Policy {
	return engine.Policy{
		OnLost: p.OnLost, Lease: p.Lease, MaxRun: p.MaxRun, SettleWait: p.SettleWait, Retention: p.Retention,
		Tombstone: p.Tombstone, MinRetention: p.MinRetention, MaxRetention: p.MaxRetention, MaxWaiters: p.MaxWaiters,
		OneCommit: p.OneCommit, FailOpen: p.FailOpen,
	}
}

func (p Policy) compile() (*policy, error) {
	f := settings.Faults{Where: "policy: "}
	f.If(p.OnLost > Rerun, "OnLost is %v, want Hold or Rerun", p.OnLost)
	f.If(p.OnError > ReleaseErrors, "OnError is %d, want ErrorDefault, KeepErrors or ReleaseErrors", p.OnError)
	if p.OnError == ErrorDefault {
		p.OnError = KeepErrors
		if p.OnLost == Rerun {
			p.OnError = ReleaseErrors
		}
	}
	p.compileTimes(&f)
	settings.FillUpTo(&f, "MaxWaiters", &p.MaxWaiters, 64, min(maxLimit, math.MaxInt))
	settings.FillUpTo(&f, "MaxRequestBody", &p.MaxRequestBody, defaults.MaxRequestBody, maxLimit)
	settings.FillUpTo(&f, "SpoolRequestAbove", &p.SpoolRequestAbove, p.MaxRequestBody, maxLimit)
	settings.FillUpTo(&f, "MaxResponseBody", &p.MaxResponseBody, defaults.MaxResponseBody, maxLimit)
	p.CompressAbove = cmp.Or(p.CompressAbove, 8<<10)

	c := &policy{methods: map[string]bool{}, named: len(p.Methods) > 0}
	if len(p.Methods) == 0 {
		p.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	for _, m := range p.Methods {
		f.If(!structuredfield.IsToken(m) || m != strings.ToUpper(m), "Methods: %q is not an upper-case method name", m)
		f.If(safeMethod(m), "Methods: %s is a safe method and can't be protected", m)
		c.methods[m] = true
	}
	if len(p.KeyHeaders) == 0 {
		p.KeyHeaders = []string{"Idempotency-Key"}
	}
	p.KeyHeaders = canonicalNames(&f, "KeyHeaders", p.KeyHeaders)
	if p.StoreHeaders != nil {
		c.storeHeaders = map[string]bool{}
		for _, h := range canonicalNames(&f, "StoreHeaders", p.StoreHeaders) {
			c.storeHeaders[h] = true
		}
	}
	p.Credentials = credentials.Names(&f, "Credentials", p.Credentials)
	_, err := fingerprint.ParseJSONPointer(p.KeyField)
	f.If(err != nil, "KeyField: %w", err)
	err = p.KeyFormat.format().Validate()
	f.If(err != nil, "KeyFormat: %w", err)
	c.fingerprinter, err = fingerprint.New(fingerprint.Policy(p.Fingerprint))
	f.If(err != nil, "Fingerprint: %w", err)
	if p.Problems != nil {
		c.problems = p.Problems.compile(&f)
	}
	c.sealHeaders = p.compileSealing(&f)
	c.redactor, err = fingerprint.NewRedactor(p.Redact)
	f.If(err != nil, "%w", err)
	f.If(p.NoStore && p.RespondAsync,
		"NoStore does not go with RespondAsync: a client that was told 202 could never get its answer")
	if p.OneCommit {
		f.If(p.Stream, "OneCommit does not go with Stream")
		f.If(p.Patience > 0, "OneCommit does not go with Patience")
		f.If(p.ObserveOnly, "OneCommit does not go with ObserveOnly")
		f.If(p.FailOpen, "OneCommit does not go with FailOpen")
	}
	c.Policy = p
	return c, f.Err()
}

func (p *Policy) compileTimes(f *settings.Faults) {
	settings.Fill(f, "Lease", &p.Lease, driver.DefaultLease)
	settings.Fill(f, "MaxRun", &p.MaxRun, defaults.MaxRun)
	settings.Fill(f, "Patience", &p.Patience, 0)
	settings.Fill(f, "SettleWait", &p.SettleWait, 5*time.Second)
	settings.Fill(f, "Retention", &p.Retention, driver.DefaultRetention)
	settings.Fill(f, "MinRetention", &p.MinRetention, p.Retention)
	settings.Fill(f, "MaxRetention", &p.MaxRetention, p.Retention)
	settings.Fill(f, "Tombstone", &p.Tombstone, 0)
	settings.Fill(f, "Wait", &p.Wait, 0)
	settings.Fill(f, "MaxWait", &p.MaxWait, p.Wait)
	f.If(p.Lease < 3*time.Millisecond, "Lease is %v, want at least 3ms: it is renewed every third of it", p.Lease)
	// A record must outlive any run that may still settle it.
	switch least := p.MaxRun + p.Lease; {
	case p.MaxRun > Forever-p.Lease, p.Retention < least:
		f.Add("Retention is %v, want at least MaxRun + Lease, which is %v + %v", p.Retention, p.MaxRun, p.Lease)
	case p.MinRetention < least:
		f.Add("MinRetention is %v, want at least MaxRun + Lease, which is %v + %v", p.MinRetention, p.MaxRun, p.Lease)
	case p.MinRetention > p.Retention:
		f.Add("MinRetention is %v, want at most Retention, which is %v", p.MinRetention, p.Retention)
	}
	f.If(p.MaxRetention < p.Retention,
		"MaxRetention is %v, want at least Retention, which is %v", p.MaxRetention, p.Retention)
	f.If(p.MaxWait < p.Wait, "MaxWait is %v, want at least Wait, which is %v", p.MaxWait, p.Wait)
}

// canonicalNames returns the header names of a setting in canonical form, without repetitions.
func canonicalNames(f *settings.Faults, setting string, names []string) []string {
	var out []string
	for _, n := range names {
		f.If(!structuredfield.IsToken(n), "%s: %q is not a header name", setting, n)
		if n = http.CanonicalHeaderKey(n); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// protects reports whether the guard has to look at a request.
func (p *policy) protects(r *http.Request) bool {
	return p.methods[r.Method] || !p.named && !safeMethod(r.Method) && p.mayBeKeyed(r)
}

// mayBeKeyed reports whether a request carries a key, as far as its headers show.
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
