package semel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/budget"
	"github.com/semelhq/semel/internal/digest"
	"github.com/semelhq/semel/internal/engine"
	"github.com/semelhq/semel/internal/fingerprint"
	"github.com/semelhq/semel/internal/httpdate"
	"github.com/semelhq/semel/internal/settings"
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

// New returns a guard. The scope and the lost-policy have no default, on purpose: only the caller knows how principals
// are told apart, and whether a lost run may be run again. Nothing is started; see [Guard.Run] and [Guard.Drain].
func New(store driver.Store, scope Scope, onLost LostPolicy, o Options) (*Guard, error) {
	var f settings.Faults
	f.If(store == nil, "store is nil")
	f.Join(scope.err)
	f.If(scope.of == nil && scope.err == nil, "scope is zero: say who asks, or SingleTenant")
	headers, problems, err := o.compile(scope.single)
	f.Join(err)
	quiet := o.Observer == nil
	if quiet {
		o.Observer = &defaultLog{}
	}
	c := &core{
		scope: scope, observer: &contained{own: o.Observer}, quiet: quiet, problems: problems,
		identity: digest.New(o.IdentitySecret), derive: digest.New(o.DerivationSecret),
		keyring: o.Encryption, headers: headers, tempDir: o.TempDir, sweep: o.SweepInterval,
		steps: stepOptions{o.StepCodec, o.MaxStepResult}, path: o.Operations, guesses: engine.NewAttempts(o.MaxAttempts),
	}
	c.engine = engine.New(engine.Config{
		Store: store, Observer: c.observer, Breaker: o.Breaker, Keyring: o.Encryption, Mark: c.identity.Mark(),
		Life: o.RequestLife, MaxAttempts: o.MaxAttempts,
		MaxReleases: o.MaxOwed, MaxWaiting: o.MaxWaiting, Share: o.PrincipalShare, Single: scope.single,
	})
	c.codecs = answer.NewCodecs(o.Codec, func(err error) { c.engine.Failed(context.Background(), "encode", driver.ID{}, err) })
	c.held.Set(int(o.MaxBodyMemory), o.PrincipalShare)
	c.files.Set(int(o.MaxTempSpace), o.PrincipalShare)
	o.Policy.OnLost = onLost
	p, err := c.compile(o.Policy)
	f.Join(err)
	if err := f.Err(); err != nil {
		return nil, fmt.Errorf("semel: new guard: %w", err)
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
	if err == nil {
		memory := compiled.SpoolRequestAbove
		if memory < compiled.MaxRequestBody {
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
	f := settings.Faults{Where: "policy: "}
	f.Join(err)
	if store := c.engine.Store(); store != nil {
		_, transacts := store.(driver.Transactor)
		f.If(p.OneCommit && !transacts, "OneCommit: the store, a %T, has no transactions", store)
		if p.RespondAsync || p.Complete {
			_, lists := store.(driver.Lister)
			f.If(!lists,
				"RespondAsync and Complete: the store, a %T, can't be searched for what is to be finished", store)
			f.If(c.keyring == nil, "RespondAsync and Complete store requests: Options.Encryption is needed")
			f.If(p.RespondAsync && c.path == "",
				"RespondAsync: Options.Operations must say where operations are asked about")
		}
	}
	// The guard makes the correlation id if there is none. It would be taken for a key, and every attempt would be another
	// operation.
	h := c.headers.correlation
	f.If(h != "" && slices.Contains(compiled.KeyHeaders, h), "KeyHeaders: %s carries the correlation id", h)
	return compiled, f.Err()
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
