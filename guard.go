package semel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/budget"
	"github.com/semelhq/semel/internal/defaults"
	"github.com/semelhq/semel/internal/digest"
	"github.com/semelhq/semel/internal/engine"
	"github.com/semelhq/semel/internal/fingerprint"
	"github.com/semelhq/semel/internal/httpdate"
	"github.com/semelhq/semel/keyring"
)

// A Guard makes operations take effect once. It is made by [New], is safe for concurrent use, and holds all the logic;
// stores only store. Several guards, in several processes, may share one storage.
type Guard struct {
	*core
	policy *policy
	route  *engine.Route
}

// core is what a guard and those made from it by Route share.
type core struct {
	engine   *engine.Engine
	scope    Scope
	observer event.Observer
	quiet    bool             // the observer wants no decisions
	identity *digest.Digester // of ids and fingerprints
	recent   fingerprint.Recent
	derive   *digest.Digester // of derived keys
	problems *ProblemOptions  // of policies that have none of their own
	codecs   answer.Codecs
	keyring  *keyring.Ring
	headers  headerNames
	tempDir  string
	sweep    time.Duration
	steps    stepOptions
	path     string // of Operations; "" for none

	authorizes atomic.Bool // some policy has AuthorizeReplay
	compares   atomic.Bool // some policy has Credentials

	dates   httpdate.Writer
	guesses *engine.Attempts // for questions about operations
	held    budget.Budget    // memory of bodies, both of requests and answers
	files   budget.Budget    // temporary files of requests and answers
}

type headerNames struct {
	markers []string

	correlation, status, expires, retryable string // "" means none
}

// own returns the names of the headers that the guard adds to answers.
func (h *headerNames) own() []string {
	names := slices.Clone(h.markers)
	for _, name := range []string{h.expires, h.retryable, h.status} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// sends reports whether a name is among own.
func (h *headerNames) sends(name string) bool {
	return slices.Contains(h.markers, name) || name == h.expires || name == h.retryable || name == h.status
}

// renamed fills in the names that are sent for the headers which [Options].HeaderNames can rename.
func (h *headerNames) renamed(names map[string]string, fail func(string, ...any)) {
	known := map[string]*string{
		"Idempotency-Status": &h.status, "Idempotency-Expires": &h.expires, "Idempotency-Retryable": &h.retryable,
	}
	for name, to := range known {
		*to = name
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		to, ok := known[http.CanonicalHeaderKey(name)]
		switch {
		case !ok:
			fail("options: HeaderNames: %q is none of %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case names[name] == "-":
			*to = ""
		default:
			*to = http.CanonicalHeaderKey(names[name])
			canonicalNames([]string{names[name]}, "options: HeaderNames", fail)
		}
	}
	if sent := h.own(); len(canonicalNames(sent, "", func(string, ...any) {})) < len(sent) {
		fail("options: HeaderNames: two headers have one name")
	}
}

// Options are a guard's settings that all its routes share. The zero value of each field means the documented default.
type Options struct {
	// Policy is the policy of the guard that New returns; its OnLost is replaced by New's argument. Other routes get their
	// policies from [Guard.Route]. Defaults to the zero Policy.
	Policy Policy

	// IdentitySecret keys the digests that stand for keys, scopes and requests in the store; at least 16 bytes. All guards
	// on one storage need the same secret, and it never changes. Defaults to none, which means plain SHA-256: a reader of
	// the store can then guess short keys.
	IdentitySecret []byte
	// DerivationSecret keys derived keys ([Operation.Key]); at least 16 bytes. It never changes. Defaults to none.
	DerivationSecret []byte

	// Observer is told every decision and dangerous event. Defaults to one that writes dangerous events to slog.Default(),
	// as event.Log does, at most 10 lines a minute of each kind. The attribute left_out counts the lines above this limit.
	// For silence give event.Log a logger that writes nothing: slog.New(slog.DiscardHandler).
	Observer event.Observer
	// Problems changes the form of the guard's own answers.
	Problems ProblemOptions
	// ReplayMarkers are the headers that mark a replay, each with the value "true". Defaults to Idempotent-Replayed.
	ReplayMarkers []string
	// HeaderNames renames the headers Idempotency-Status, Idempotency-Expires and Idempotency-Retryable, which the guard
	// adds to answers. It is a map from these names to others, or to "-" for no header. The clients of this project know
	// the headers only by these names. Defaults to renaming none.
	HeaderNames map[string]string
	// CorrelationHeader carries a request's correlation id; the guard makes an id if the request has none. "-" turns it
	// off. Defaults to X-Correlation-Id.
	CorrelationHeader string
	// Codec compresses stored bodies. Defaults to gzip.
	Codec Codec
	// Encryption encrypts stored answers, steps and requests. It refuses those that are not encrypted, unless
	// [keyring.Ring.AllowPlain] made it. Defaults to none: answers, steps and names are stored in the clear, and requests
	// not at all.
	Encryption *keyring.Ring
	// StepCodec encodes the results of steps ([Step]). Defaults to encoding/json.
	StepCodec StepCodec
	// MaxStepResult is the largest result of a step in bytes, as encoded. Defaults to 1 MiB.
	MaxStepResult int64
	// Operations is the path at which [Guard.Operations] is served, as its clients see it, such as "/operations". Answers
	// that leave an operation's outcome open carry a link below it. Defaults to no link.
	Operations string
	// Breaker keeps a store that is down from adding its timeout to every request. It is asked before each claim, and
	// before each look of a request that waits. It never refuses the store calls that end a run. Defaults to none.
	Breaker driver.Breaker

	// MaxAttempts is how often the same request may be asked for under one key within a minute, in this process, with the
	// same credentials ([Policy].Credentials). It is also how often within a minute one principal may ask, from one
	// address or one IPv6 network of 64 bits, about operations that it can't have ([Guard.Operations]). Beyond that the
	// answer is 429 too-many-attempts. Negative means no limit. Defaults to 100.
	MaxAttempts int
	// MaxKeys is how many live keys one principal may have on one guard, as counted in this process. Zero and negative
	// mean no limit.
	MaxKeys int
	// MaxOwed is how many releases the guard may owe. It owes the release of each claim to which the store gave no reply,
	// in time or for the first copy. Beyond it, requests are refused until the store has taken some of the releases.
	// Defaults to 10 000.
	MaxOwed int
	// MaxWaiting is how many requests may wait for another run in this process, whatever their keys; Policy.MaxWaiters is
	// the limit for one key. Further requests are answered as in progress. Defaults to 10 000.
	MaxWaiting int
	// MaxBodyMemory is how many bytes of bodies this process may hold in memory at once: bodies of requests while they are
	// read and run, and of answers until their clients have read them. If there is no room, a request and a replay are
	// refused with 503. The answer of a run goes to a temporary file then, like an answer above Policy.MaxResponseBody,
	// and can't be replayed. The limit is always enough for twice the largest request and answer that one route keeps in
	// memory. Defaults to 256 MiB.
	MaxBodyMemory int64
	// MaxTempSpace is how many bytes the temporary files of requests and answers in TempDir may have at once. A request
	// that needs more is refused with 503. An answer that needs more goes out as it is written, if it may, and can't be
	// replayed. The limit is always enough for twice the largest body that one route keeps in a file. Defaults to 2 GiB.
	MaxTempSpace int64
	// PrincipalShare is the largest part of MaxOwed, MaxWaiting, MaxBodyMemory and MaxTempSpace that one principal may
	// take; above 0, at most 1. Defaults to 0.1, and to 1 if the guard's scope is SingleTenant: then there is no other
	// principal to protect.
	PrincipalShare float64

	// RequestLife is the longest that a request to the store may be under way before it is executed or lost. The guard
	// ends its own requests within this time. A network that delivers a request later breaks this assumption. At most a
	// minute: package redisstore relies on it. Defaults to 30 s.
	RequestLife time.Duration
	// SweepInterval is how often [Guard.Run] sweeps. Defaults to 1 min.
	SweepInterval time.Duration
	// TempDir is where large bodies are kept. Defaults to os.TempDir.
	TempDir string
}

// Limits and defaults of [Options].
const (
	defaultMaxAttempts    = 100
	defaultMaxOwed        = 10_000
	defaultMaxWaiting     = 10_000
	defaultMaxBodyMemory  = 256 << 20
	defaultMaxTempSpace   = 2 << 30
	defaultPrincipalShare = 0.1
	defaultSweepInterval  = time.Minute
	defaultMaxStepResult  = 1 << 20
)

// New returns a guard. The scope and the lost-policy have no default, on purpose: only the caller knows how principals
// are told apart, and whether a lost run may be run again. Nothing is started; see [Guard.Run] and [Guard.Drain].
func New(store driver.Store, scope Scope, onLost LostPolicy, o Options) (*Guard, error) {
	var errs []error
	fail := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if store == nil {
		fail("store is nil")
	}
	switch {
	case scope.err != nil:
		errs = append(errs, scope.err)
	case scope.of == nil:
		fail("scope is zero: say who asks, or SingleTenant")
	}
	for _, s := range []struct {
		name   string
		secret []byte
	}{{"IdentitySecret", o.IdentitySecret}, {"DerivationSecret", o.DerivationSecret}} {
		if len(s.secret) > 0 && len(s.secret) < defaults.LeastSecret {
			fail("options: %s has %d bytes, want at least %d", s.name, len(s.secret), defaults.LeastSecret)
		}
	}
	problems, err := o.Problems.compile("options")
	if err != nil {
		errs = append(errs, err)
	}
	if o.RequestLife < 0 {
		fail("options: RequestLife is negative: %v", o.RequestLife)
	}
	if o.RequestLife > defaults.MaxRequestLife {
		fail("options: RequestLife is %v, at most %v: stores rely on it", o.RequestLife, defaults.MaxRequestLife)
	}
	if o.SweepInterval < 0 {
		fail("options: SweepInterval is negative: %v", o.SweepInterval)
	}
	quiet := o.Observer == nil
	if quiet {
		o.Observer = &defaultLog{}
	}
	if len(o.ReplayMarkers) == 0 {
		o.ReplayMarkers = []string{"Idempotent-Replayed"}
	}
	o.ReplayMarkers = canonicalNames(o.ReplayMarkers, "options: ReplayMarkers", fail)
	headers := headerNames{markers: o.ReplayMarkers}
	headers.renamed(o.HeaderNames, fail)
	switch o.CorrelationHeader {
	case "":
		o.CorrelationHeader = "X-Correlation-Id"
	case "-":
		o.CorrelationHeader = ""
	default:
		o.CorrelationHeader = canonicalNames([]string{o.CorrelationHeader}, "options: CorrelationHeader", fail)[0]
	}
	headers.correlation = o.CorrelationHeader
	if o.MaxStepResult < 0 || o.MaxStepResult > maxLimit {
		fail("options: MaxStepResult is %d, want 1 to %d", o.MaxStepResult, int64(maxLimit))
	}
	if p := o.Operations; p != "" {
		if u, err := url.Parse(p); err != nil || u.Path != p || p[0] != '/' || p[len(p)-1] == '/' {
			fail("options: Operations %q is not a path such as /operations", p)
		}
	}
	if o.MaxAttempts == 0 {
		o.MaxAttempts = defaultMaxAttempts
	}
	switch {
	case o.MaxOwed < 0:
		fail("options: MaxOwed is negative: %d", o.MaxOwed)
	case o.MaxOwed == 0:
		o.MaxOwed = defaultMaxOwed
	}
	switch {
	case o.MaxWaiting < 0:
		fail("options: MaxWaiting is negative: %d", o.MaxWaiting)
	case o.MaxWaiting == 0:
		o.MaxWaiting = defaultMaxWaiting
	}
	for _, m := range []struct {
		name  string
		bytes *int64
		most  int64
	}{{"MaxBodyMemory", &o.MaxBodyMemory, defaultMaxBodyMemory}, {"MaxTempSpace", &o.MaxTempSpace, defaultMaxTempSpace}} {
		switch {
		case *m.bytes < 0 || *m.bytes > math.MaxInt/4:
			fail("options: %s is %d, want 1 to %d", m.name, *m.bytes, math.MaxInt/4)
		case *m.bytes == 0:
			*m.bytes = min(m.most, math.MaxInt/4)
		}
	}
	switch {
	case o.PrincipalShare == 0 && scope.single:
		o.PrincipalShare = 1
	case o.PrincipalShare == 0:
		o.PrincipalShare = defaultPrincipalShare
	case !(o.PrincipalShare > 0 && o.PrincipalShare <= 1):
		fail("options: PrincipalShare is %v, want above 0 and at most 1", o.PrincipalShare)
	}
	if o.TempDir == "" {
		o.TempDir = os.TempDir()
	} else if dir, err := os.Stat(o.TempDir); err != nil {
		fail("options: TempDir: %w", err)
	} else if !dir.IsDir() {
		fail("options: TempDir: %s is not a directory", o.TempDir)
	}
	c := &core{
		scope: scope, observer: &contained{own: o.Observer}, quiet: quiet, problems: problems,
		identity: digest.New(o.IdentitySecret), derive: digest.New(o.DerivationSecret),
		keyring: o.Encryption, headers: headers, tempDir: o.TempDir,
		sweep: cmp.Or(max(o.SweepInterval, 0), defaultSweepInterval),
		steps: newStepOptions(&o), path: o.Operations, guesses: engine.NewAttempts(o.MaxAttempts),
	}
	c.engine = engine.New(engine.Config{
		Store: store, Observer: c.observer, Breaker: o.Breaker, Keyring: o.Encryption, Mark: c.identity.Mark(),
		Life: cmp.Or(max(o.RequestLife, 0), defaults.RequestLife), MaxAttempts: o.MaxAttempts,
		MaxReleases: o.MaxOwed, MaxWaiting: o.MaxWaiting, Share: o.PrincipalShare, Single: scope.single,
	})
	c.codecs = answer.NewCodecs(o.Codec, func(err error) { c.engine.Failed(context.Background(), "encode", driver.ID{}, err) })
	c.held.Set(int(o.MaxBodyMemory), o.PrincipalShare)
	c.files.Set(int(o.MaxTempSpace), o.PrincipalShare)
	if o.Codec != nil && o.Codec.Name() == "" {
		fail("options: Codec has no name, by which a stored body would be known")
	}
	o.Policy.OnLost = onLost
	p, err := c.compile(o.Policy)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("semel: new guard: %w", errors.Join(errs...))
	}
	if len(o.IdentitySecret) == 0 {
		c.observer.Observe(context.Background(), event.Event{Kind: event.PlainIdentity, Err: errPlainIdentity})
	}
	return &Guard{core: c, policy: p, route: c.engine.Route(p.engine(), o.MaxKeys)}, nil
}

var errPlainIdentity = errors.New("Options.IdentitySecret is not set: whoever reads the store can guess short keys from it")

// Route returns a guard with another policy on the same store. It panics if the policy is not valid, as http.ServeMux
// does for a pattern. Use [Policy.Validate] to check a policy that comes from a configuration.
func (g *Guard) Route(p Policy) *Guard {
	c, err := g.compile(p)
	if err != nil {
		panic("semel: guard with policy: " + err.Error())
	}
	return &Guard{core: g.core, policy: c, route: g.route.Route(c.engine(), g.route.MaxKeys())}
}

// Policy returns the guard's policy, with its defaults filled in. What its fields refer to belongs to the guard, and is
// read-only. A layer between the guard and a framework looks in it for settings that the framework can't support.
func (g *Guard) Policy() Policy { return g.policy.Policy }

// compile compiles a policy, and checks it against what all routes share.
func (c *core) compile(p Policy) (*policy, error) {
	compiled, err := p.compile()
	if compiled.problems == nil {
		compiled.problems = c.problems
	}
	if _, ok := c.engine.Store().(driver.Transactor); p.OneCommit && !ok && c.engine.Store() != nil {
		err = errors.Join(err, fmt.Errorf("policy: OneCommit: the store, a %T, has no transactions", c.engine.Store()))
	}
	if err == nil {
		memory := compiled.SpoolRequestAbove
		if memory > 0 && memory < compiled.MaxRequestBody {
			c.files.AtLeast(compiled.MaxRequestBody)
		} else {
			memory = compiled.MaxRequestBody
		}
		c.held.AtLeast(memory + 1 + compiled.MaxResponseBody)
	}
	if p.AuthorizeReplay != nil {
		c.authorizes.Store(true)
	}
	if len(p.Credentials) > 0 {
		c.compares.Store(true)
	}
	if (p.RespondAsync || p.Complete) && c.engine.Store() != nil {
		if _, ok := c.engine.Store().(driver.Lister); !ok {
			err = errors.Join(err, fmt.Errorf("policy: RespondAsync and Complete: the store, a %T, can't be searched for what is to be finished", c.engine.Store()))
		}
		if c.keyring == nil {
			err = errors.Join(err, errors.New("policy: RespondAsync and Complete store requests: Options.Encryption is needed"))
		}
		if p.RespondAsync && c.path == "" {
			err = errors.Join(err, errors.New("policy: RespondAsync: Options.Operations must say where operations are asked about"))
		}
	}
	if h := c.headers.correlation; h != "" && slices.Contains(compiled.KeyHeaders, h) {
		// The guard makes the id if there is none. It would be taken for a key, and every attempt would be another
		// operation.
		err = errors.Join(err, fmt.Errorf("policy: KeyHeaders: %s carries the correlation id", h))
	}
	return compiled, err
}

// Run sweeps the store until ctx ends, and returns ctx's error. It sweeps in batches. After each batch it rests as long
// as the batch took, so that a backlog does not hold up claims. One Run in each process is enough, whatever the number
// of guards. A store that is never swept keeps expired records, unless it reclaims them by itself.
func (g *Guard) Run(ctx context.Context) error { return g.engine.Run(ctx, g.sweep) }

// Drain waits until every run has ended, every outcome is durable or given up, and every claim that was given up has
// been released. This includes the second copy of that release (up to [Options].RequestLife later). It returns an error
// if ctx ends before. It does not stop new requests: shut the server down first.
func (g *Guard) Drain(ctx context.Context) error {
	if err := g.engine.Drain(ctx); err != nil {
		return fmt.Errorf("semel: drain: %w", err)
	}
	return nil
}

// Stats says what the guard is doing in this process, together with all guards that were made from it.
type Stats struct {
	Running   int           // runs whose outcome is not settled
	OldestRun time.Duration // age of the oldest of these runs; 0 if there is none
	Waiters   int           // requests that wait for another run of their operation
	Owed      int           // claims that were given up and are still being released

	BodyMemory    int64 // bytes of bodies, of requests and answers, that are held in memory
	MaxBodyMemory int64 // the limit: Options.MaxBodyMemory, or what the routes need at least
	TempSpace     int64 // bytes of bodies that are held in temporary files
	MaxTempSpace  int64
}

// Stats returns what the guard is doing.
func (g *Guard) Stats() Stats {
	e := g.engine.Stats()
	s := Stats{Running: e.Running, OldestRun: e.OldestRun, Waiters: e.Waiters, Owed: e.Releases}
	s.BodyMemory, s.MaxBodyMemory = g.held.Use()
	s.TempSpace, s.MaxTempSpace = g.files.Use()
	return s
}

// CORSHeaders returns the request headers that a cross-origin client must be allowed to send, and the response headers
// that it must be allowed to read, for Access-Control-Allow-Headers and Access-Control-Expose-Headers. Put the layer
// that sends them above the guard, so that the guard's refusals have them too.
func (g *Guard) CORSHeaders() (allow, expose []string) {
	allow = append(allow, g.policy.KeyHeaders...)
	expose = append(expose, g.policy.KeyHeaders...)
	expose = append(expose, g.headers.own()...)
	expose = append(expose, "Location", "Link", "Retry-After", "Preference-Applied")
	expose = append(expose, answer.CodeHeader)
	if g.policy.RespondAsync || g.policy.MaxWait > 0 {
		allow = append(allow, "Prefer")
	}
	if g.headers.correlation != "" {
		allow = append(allow, g.headers.correlation)
		expose = append(expose, g.headers.correlation)
	}
	return allow, expose
}
