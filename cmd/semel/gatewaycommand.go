package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/internal/gateway"
	"github.com/semelhq/semel/cmd/internal/secret"
	"github.com/semelhq/semel/cmd/internal/stores"
)

type gatewayCommand struct {
	Config string `placeholder:"FILE" help:"Take everything from a YAML file: routes, each with its own policy, and the settings of the flags below. SIGHUP reads it again."`
	Check  bool   `help:"Only say whether the configuration is right, and what its routes are."`

	Listen  string `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address for clients (default ${default})."`
	Admin   string `default:"127.0.0.1:8081" placeholder:"HOST:PORT" help:"Address for /livez, /readyz and /metrics, apart from the clients' (default ${default})."`
	TLSCert string `name:"tls-cert" placeholder:"FILE" help:"Certificate with its chain, in PEM: clients speak TLS. SIGHUP reads it again."`
	TLSKey  string `name:"tls-key" placeholder:"FILE" help:"Key of the certificate."`

	Upstream     string        `placeholder:"URL" help:"The service to protect, http:// or https://. It gets the client's own Host header. Required without --config."`
	UpstreamIdle time.Duration `default:"1s" placeholder:"TIME" help:"How long to keep an unused connection to the service; less than the service keeps it (default ${default})."`

	Store                string   `default:"sqlite://semel.db" placeholder:"URL" help:"Where records are kept: sqlite://FILE in a file; postgres://… or redis://… on a server that several gateways share; shards://FILE on several such servers; memory:// in the process (default ${default})."`
	Cache                string   `placeholder:"URL" help:"A redis://… in front of a sqlite:// or postgres:// store, to answer repeats faster; memory:// for this process alone (default: none)."`
	ReadyWithoutStore    string   `default:"all" enum:"all,any,always" placeholder:"all|any|always" help:"Whether /readyz says ready while the store is down: if all routes fail open, if any does, or always, for requests that need no store (default ${default})."`
	IdentitySecretFile   string   `placeholder:"FILE" help:"Secret that keys the digests in the store (default: $SEMEL_IDENTITY_SECRET, else a file next to a sqlite:// store, made at first start)."`
	EncryptionKeysFile   string   `placeholder:"FILE" help:"Keys that encrypt stored answers and requests, a line each: an id and 64 hexadecimal digits; the first encrypts. Only its owner may have access to the file (default: answers are stored in the clear)."`
	Encryption           string   `default:"" enum:",required,allow-plain" placeholder:"required|allow-plain" help:"With encryption keys: whether what is stored in the clear is refused, or replayed all the same, for the change-over (default: required)."`
	DerivationSecretFile string   `placeholder:"FILE" help:"Secret that keys derived keys; it never changes (default: none)."`
	Scope                string   `placeholder:"header:NAME|single" help:"Who asks, so that two of them never meet: the header in which a trusted proxy names the authenticated principal (header:NAME,NAME for several together), or single, if there is only one. A file can say jwt, for a verified bearer token, or mtls, for a client certificate. Required without --config."`
	TrustProxy           []string `placeholder:"CIDR" help:"A network whose scope header and X-Forwarded headers are believed; may be given several times. Without any: this machine, if --listen is on loopback; elsewhere none, and a scope header needs one."`

	Host []string `placeholder:"NAME" help:"A name by which requests may come, such as api.example.com or *.example.com; may be given several times, * for all (default: on a loopback address this machine's own names, elsewhere all)."`

	Operations string        `placeholder:"PATH" help:"Path at which the gateway itself tells clients what became of an operation, such as /operations; answers that leave that open link to it (default: none)."`
	Authorize  string        `placeholder:"PATH|URL" help:"A path at the service, or an address, that is asked whether a stored answer may be given to a repeat with other credentials than the first request; 2xx allows it (default: such a repeat gets 403)."`
	ReplayTo   string        `default:"caller" enum:"caller,anyone" placeholder:"caller|anyone" help:"Who gets a stored answer: the caller of the first request, whom the scope's header tells, or with --scope single its credentials; or anyone who knows the key (default ${default})."`
	RequireKey bool          `help:"Refuse a POST or PATCH without an Idempotency-Key (default: pass it on unprotected). Others pass without one, and are protected with one."`
	Unkeyed    string        `default:"" enum:",pass,refuse,mint-random" placeholder:"pass|refuse|mint-random" help:"A POST or PATCH without a key: pass it on unprotected, refuse it as --require-key does, or give it a key of its own, by which it can be traced (default pass)."`
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
	return `A request with an Idempotency-Key runs once, whether POST, PATCH, PUT or DELETE. Repeats get the first answer, marked Idempotent-Replayed; ` +
		`a repeat while it runs gets 409 with Retry-After, another request under the same key 422.

Examples:

  One principal, one service; records in semel.db, in this folder:

    semel gateway --upstream http://127.0.0.1:9000 --scope single

  Behind a proxy on 10.0.0.0/8 that authenticates and says who it is in X-Account:

    semel gateway --listen :8080 --upstream http://payments:9000 \
        --scope header:X-Account --trust-proxy 10.0.0.0/8 --require-key

  A service that may run a request again after a crash, clients that wait 10 seconds at most:

    semel gateway --upstream http://127.0.0.1:9000 --scope single \
        --on-lost rerun --client-timeout 10s

  Several gateways that behave as one, the same on each machine; PostgreSQL
  decides, Redis answers repeats:

    export SEMEL_IDENTITY_SECRET=...
    semel gateway --upstream http://payments:9000 \
        --scope header:X-Account --trust-proxy 10.0.0.0/8 \
        --store postgres://semel@db/payments --cache redis://cache

  Routes with policies of their own, from a file; first only looking whether it is right:

    semel gateway --config gateway.yaml --check
    semel gateway --config gateway.yaml

  Such a file:

    upstream: http://127.0.0.1:9000
    scope: header:X-Account
    routes:
      - match: POST /payments
        unkeyed: refuse
        retention: 72h
      - match: POST /quotes/{id}
        on_lost: rerun

SIGHUP reads the file, and the certificate, again: no request is dropped, and a file with errors changes nothing. ` +
		`SIGTERM or Ctrl-C ends it in order: it accepts nothing more, /readyz answers 503, and what is under way comes to its ` +
		`end. A second signal ends it at once.`
}

// besidesFile are the flags that no file has settings for.
var besidesFile = []string{"config", "check", "log-format", "log-level", "help", "version"}

// AfterApply reports flags that contradict each other, or that are missing.
func (c *gatewayCommand) AfterApply(line *kong.Context) error {
	var given []string
	for _, p := range line.Path {
		if p.Flag != nil && !slices.Contains(besidesFile, p.Flag.Name) && !slices.Contains(given, "--"+p.Flag.Name) {
			given = append(given, "--"+p.Flag.Name)
		}
	}
	if c.Config != "" {
		if len(given) > 0 {
			return fmt.Errorf("with --config everything stands in the file: leave out %s", strings.Join(given, ", "))
		}
		return nil
	}
	var missing []string
	if c.Upstream == "" {
		missing = append(missing, "--upstream=URL")
	}
	if c.Scope == "" {
		missing = append(missing, "--scope=header:NAME|single")
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing flags: %s, or --config=FILE", strings.Join(missing, ", "))
	}
	if c.RequireKey && c.Unkeyed != "" && c.Unkeyed != "refuse" {
		return fmt.Errorf("--require-key contradicts --unkeyed %s", c.Unkeyed)
	}
	return nil
}

func (m *Main) gateway(ctx context.Context, c *gatewayCommand) (err error) {
	cfg, err := c.config()
	if err != nil {
		return usageError{err}
	}
	address, cache, level := cfg.StoreAddress, cfg.CacheAddress, c.LogLevel
	if c.Check {
		address, cache, level = "memory://", "", "warn" // nothing is made or changed
	}
	cfg.Log = newLog(m.Stderr, c.LogFormat, level)
	opened, err := stores.Open(ctx, address, stores.Options{Cache: cache, Log: cfg.Log, OnePrincipal: cfg.Scope.Single(), Breaker: cfg.Breaker.Options()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	cfg.Store, cfg.CheckCache, cfg.BreakerOpen = opened.Store, opened.CheckCache, opened.BreakerOpen
	if cfg.Encryption, err = secret.Keyring(cfg.EncryptionKeysFile); err != nil {
		return err
	}
	if cfg.IdentitySecret, err = secret.ForStore(ctx, opened, cfg.IdentitySecretFile, cfg.Log); err != nil {
		return err
	}
	if cfg.DerivationSecret, err = secret.Derivation(cfg.DerivationSecretFile); err != nil {
		return err
	}
	g, err := gateway.New(cfg)
	if err != nil {
		return usageError{err}
	}
	if c.Check {
		fmt.Fprintln(m.Stdout, "ok")
		return g.PrintRoutes(m.Stdout)
	}
	cfg.Memory.Use(cfg.Log)
	if cfg.File != "" || c.TLSCert != "" {
		defer reloadOnHangup(g)()
	}
	return g.Run(ctx)
}

// reloadOnHangup reloads at each SIGHUP until the function that it returns is called.
func reloadOnHangup(g *gateway.Gateway) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range hangups {
			g.Reload() //nolint:errcheck // it has logged why; what was in service stays so
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
		<-ended
	}
}

// config reads the file or the flags, and reports everything that is wrong with them.
func (c *gatewayCommand) config() (gateway.Config, error) {
	if c.Config != "" {
		return gateway.LoadFile(c.Config)
	}
	upstream, errUpstream := gateway.ParseUpstream(c.Upstream)
	scope, errScope := gateway.ParseScope(c.Scope)
	proxies, errProxies := gateway.ParseNetworks(c.TrustProxy)
	unkeyed, _ := gateway.ParseUnkeyed(c.Unkeyed)
	if c.RequireKey {
		unkeyed = gateway.UnkeyedRefuse
	}
	ready, _ := gateway.ParseReadiness(c.ReadyWithoutStore)
	replayTo, _ := gateway.ParseReplayTo(c.ReplayTo)
	plain, _ := gateway.ParsePlain(c.Encryption)
	cfg := gateway.Config{
		Listen: c.Listen, Admin: c.Admin, TLS: gateway.TLSFiles{Cert: c.TLSCert, Key: c.TLSKey},
		Upstream: upstream, UpstreamIdle: c.UpstreamIdle, StoreAddress: c.Store,
		CacheAddress: c.Cache, ReadyWithoutStore: ready, EncryptionKeysFile: c.EncryptionKeysFile,
		Plain: plain, IdentitySecretFile: c.IdentitySecretFile, DerivationSecretFile: c.DerivationSecretFile,
		Scope: scope, TrustedProxies: proxies, Hosts: c.Host, Operations: c.Operations, ShutdownTimeout: c.ShutdownTimeout,
		Default: gateway.Route{Unkeyed: unkeyed, Authorize: c.Authorize, ReplayTo: replayTo, Policy: semel.Policy{
			OnLost: lostPolicies[c.OnLost], OnError: errorPolicies[c.OnError],
			Lease: c.Lease, Retention: c.Retention, Wait: c.Wait, Patience: c.ClientTimeout, MaxRun: c.Deadline,
		}},
	}
	err := errors.Join(errUpstream, errScope, errProxies)
	if err == nil {
		err = cfg.Validate()
	}
	return cfg, err
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
