package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/internal/gateway"
)

type gatewayCommand struct {
	Listen string `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address for clients (default ${default})."`
	Admin  string `default:"127.0.0.1:8081" placeholder:"HOST:PORT" help:"Address for /healthz and /readyz, apart from the clients' (default ${default})."`

	Upstream     string        `required:"" placeholder:"URL" help:"The service to protect, http:// or https://. It gets the client's own Host header."`
	UpstreamIdle time.Duration `default:"1s" placeholder:"TIME" help:"How long to keep an unused connection to the service; less than the service keeps it (default ${default})."`

	Store      string   `default:"memory://" placeholder:"URL" help:"Where records are kept. memory:// is in this process, and ends with it (default ${default})."`
	Scope      string   `required:"" placeholder:"header:NAME|single" help:"Who asks, so that two of them never meet: the header in which a trusted proxy names the authenticated principal, or single, if there is only one."`
	TrustProxy []string `placeholder:"CIDR" help:"A network whose scope header and X-Forwarded headers are believed; may be given several times. Without any: this machine."`

	RequireKey bool          `help:"Refuse a POST or PATCH without an Idempotency-Key (default: pass it on unprotected)."`
	Lease      time.Duration `default:"30s" placeholder:"TIME" help:"How long a run is owned unless renewed; after a crash repeats wait so long (default ${default})."`
	Retention  time.Duration `default:"24h" placeholder:"TIME" help:"How long an answer is kept and replayed (default ${default})."`
	Wait       time.Duration `default:"0s" placeholder:"TIME" help:"How long a repeat waits for the run in progress before it gets 409 (default ${default})."`

	ClientTimeout time.Duration `default:"0s" placeholder:"TIME" help:"How long a client waits for its run before it gets 504, while the run goes on; 0s is without end (default ${default})."`
	Deadline      time.Duration `default:"15m" placeholder:"TIME" help:"The longest that the service may take for a keyed request (default ${default})."`

	OnLost  string `default:"hold" enum:"hold,rerun" placeholder:"hold|rerun" help:"A run whose answer was lost: hold never runs it again, until an operator decides; rerun does, for a service that can take it (default ${default})."`
	OnError string `default:"" enum:",keep,release" placeholder:"keep|release" help:"A 5xx of the service: keep replays it, release lets a repeat run (default: keep under hold, release under rerun)."`

	ShutdownTimeout time.Duration `default:"40s" placeholder:"TIME" help:"How long to finish what is under way after SIGTERM (default ${default})."`
	LogFormat       string        `default:"text" enum:"text,json" placeholder:"text|json" help:"Form of the log on standard error (default ${default})."`
	LogLevel        string        `default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" help:"Least level to log: debug, info, warn, error (default ${default})."`
}

func (*gatewayCommand) Help() string {
	return `A POST or PATCH with an Idempotency-Key runs once. Repeats get the first answer, marked Idempotent-Replayed; ` +
		`a repeat while it runs gets 409 with Retry-After, another request under the same key 422.

Examples:

  One principal, one service:

    semel gateway --upstream http://127.0.0.1:9000 --scope single

  Behind a proxy on 10.0.0.0/8 that authenticates and says who it is in X-Account:

    semel gateway --listen :8080 --upstream http://payments:9000 \
        --scope header:X-Account --trust-proxy 10.0.0.0/8 --require-key

  A service that may run a request again after a crash, clients that wait 10 seconds at most:

    semel gateway --upstream http://127.0.0.1:9000 --scope single \
        --on-lost rerun --client-timeout 10s

SIGTERM or Ctrl-C ends it in order: it accepts nothing more, /readyz answers 503, and what is under way comes to its end. ` +
		`A second signal ends it at once.`
}

func (m *Main) gateway(ctx context.Context, c *gatewayCommand) error {
	cfg, err := c.config(m.Stderr)
	if err != nil {
		return usageError{err}
	}
	g, err := gateway.New(cfg)
	if err != nil {
		return usageError{err}
	}
	return g.Run(ctx)
}

// config reads the flags, and reports everything that is wrong with them.
func (c *gatewayCommand) config(log io.Writer) (gateway.Config, error) {
	upstream, errUpstream := gateway.ParseUpstream(c.Upstream)
	store, errStore := gateway.OpenStore(c.Store)
	scope, errScope := gateway.ParseScope(c.Scope)
	proxies, errProxies := gateway.ParseNetworks(c.TrustProxy)
	if err := errors.Join(errUpstream, errStore, errScope, errProxies); err != nil {
		return gateway.Config{}, err
	}
	instance, err := os.Hostname()
	if err != nil {
		instance = "unknown"
	}
	return gateway.Config{
		Listen: c.Listen, Admin: c.Admin, Upstream: upstream, Store: store, Scope: scope, TrustedProxies: proxies,
		RequireKey: c.RequireKey, OnLost: lostPolicies[c.OnLost], OnError: errorPolicies[c.OnError],
		Lease: c.Lease, Retention: c.Retention, Wait: c.Wait, ClientTimeout: c.ClientTimeout, Deadline: c.Deadline,
		UpstreamIdle: c.UpstreamIdle, ShutdownTimeout: c.ShutdownTimeout,
		Log: newLog(log, c.LogFormat, c.LogLevel), Instance: instance,
	}, nil
}

var (
	lostPolicies  = map[string]semel.LostPolicy{"hold": semel.Hold, "rerun": semel.Rerun}
	errorPolicies = map[string]semel.ErrorPolicy{"keep": semel.KeepErrors, "release": semel.ReleaseErrors}
	logLevels     = map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}
)

func newLog(w io.Writer, format, level string) *slog.Logger {
	o := &slog.HandlerOptions{Level: logLevels[level]}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
