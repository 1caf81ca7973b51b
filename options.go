package semel

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/defaults"
	"github.com/semelhq/semel/internal/settings"
	"github.com/semelhq/semel/keyring"
)

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

// compile fills in the defaults. It returns what the guard keeps in another form.
func (o *Options) compile(single bool) (headers headerNames, problems *ProblemOptions, err error) {
	f := settings.Faults{Where: "options: "}
	f.If(short(o.IdentitySecret),
		"IdentitySecret has %d bytes, want at least %d", len(o.IdentitySecret), defaults.LeastSecret)
	f.If(short(o.DerivationSecret),
		"DerivationSecret has %d bytes, want at least %d", len(o.DerivationSecret), defaults.LeastSecret)
	problems = o.Problems.compile(&f)
	if len(o.ReplayMarkers) == 0 {
		o.ReplayMarkers = []string{"Idempotent-Replayed"}
	}
	headers.markers = canonicalNames(&f, "ReplayMarkers", o.ReplayMarkers)
	headers.renamed(&f, o.HeaderNames)
	if name := cmp.Or(o.CorrelationHeader, "X-Correlation-Id"); name != "-" {
		headers.correlation = canonicalNames(&f, "CorrelationHeader", []string{name})[0]
	}
	f.If(o.Codec != nil && o.Codec.Name() == "", "Codec has no name, by which a stored body would be known")
	if o.StepCodec == nil {
		o.StepCodec = jsonCodec{}
	}
	settings.FillUpTo(&f, "MaxStepResult", &o.MaxStepResult, 1<<20, maxLimit)
	if p := o.Operations; p != "" {
		u, err := url.Parse(p)
		f.If(err != nil || u.Path != p || p[0] != '/' || p[len(p)-1] == '/',
			"Operations %q is not a path such as /operations", p)
	}
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 100)
	settings.Fill(&f, "MaxOwed", &o.MaxOwed, 10_000)
	settings.Fill(&f, "MaxWaiting", &o.MaxWaiting, 10_000)
	settings.FillUpTo(&f, "MaxBodyMemory", &o.MaxBodyMemory, min(256<<20, math.MaxInt/4), math.MaxInt/4)
	settings.FillUpTo(&f, "MaxTempSpace", &o.MaxTempSpace, min(2<<30, math.MaxInt/4), math.MaxInt/4)
	if o.PrincipalShare == 0 {
		if o.PrincipalShare = 0.1; single {
			o.PrincipalShare = 1
		}
	}
	f.If(!(o.PrincipalShare > 0 && o.PrincipalShare <= 1),
		"PrincipalShare is %v, want above 0 and at most 1", o.PrincipalShare)
	settings.Fill(&f, "RequestLife", &o.RequestLife, defaults.RequestLife)
	f.If(o.RequestLife > defaults.MaxRequestLife,
		"RequestLife is %v, at most %v: stores rely on it", o.RequestLife, defaults.MaxRequestLife)
	settings.Fill(&f, "SweepInterval", &o.SweepInterval, time.Minute)
	if o.TempDir == "" {
		o.TempDir = os.TempDir() // which need not be there if all bodies are small
	} else {
		dir, err := os.Stat(o.TempDir)
		f.If(err != nil, "TempDir: %w", err)
		f.If(err == nil && !dir.IsDir(), "TempDir: %s is not a directory", o.TempDir)
	}
	return headers, problems, f.Err()
}

// short reports whether there is a secret that is too short.
func short(secret []byte) bool { return len(secret) > 0 && len(secret) < defaults.LeastSecret }

// headerNames are the names of the headers that the guard adds to answers.
type headerNames struct {
	markers []string

	correlation, status, expires, retryable string // "" means none
}

// own returns all of them but that of the correlation id.
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
func (h *headerNames) renamed(f *settings.Faults, names map[string]string) {
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
			f.Add("HeaderNames: %q is none of %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case names[name] == "-":
			*to = ""
		default:
			*to = canonicalNames(f, "HeaderNames", []string{names[name]})[0]
		}
	}
	sent := h.own()
	slices.Sort(sent)
	f.If(len(slices.Compact(sent)) < len(sent), "HeaderNames: two headers have one name")
}
