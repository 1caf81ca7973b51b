package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/semelhq/semel/examples/shop/host"
	"github.com/semelhq/semel/examples/shop/shop"
	"github.com/semelhq/semel/internal/command"
)

// A program is the command, as tests can start it.
type program struct {
	Stdout, Stderr io.Writer
}

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // what was asked for could not be done
	exitUsage  = 2 // it was asked for in a way that makes no sense
)

type commandLine struct {
	Version  kong.VersionFlag `help:"Print the version and exit."`
	Demo     demoCommand      `cmd:"" help:"Show what happens to shops, and what becomes of it here; then stay open to be tried."`
	Serve    serveCommand     `cmd:"" help:"Serve the API, the checkout page and a simulated card processor."`
	Naive    naiveCommand     `cmd:"" hidden:""`
	Token    tokenCommand     `cmd:"" help:"Print a token for the API."`
	OpenAPI  openAPICommand   `cmd:"" name:"openapi" help:"Print the description of the API, OpenAPI 3.1."`
	Exercise exerciseCommand  `cmd:"" help:"List the exercises of docs/patterns.md, or mark one."`
}

// exited is thrown by the parser when --help or --version has been answered.
type exited int

func (m *program) run(ctx context.Context, args []string) (status int) {
	defer func() {
		thrown := recover()
		if code, ok := thrown.(exited); ok {
			status = int(code)
		} else if thrown != nil {
			panic(thrown)
		}
	}()
	var line commandLine
	parser := kong.Must(&line,
		kong.Name("shop"), kong.Description("The reference system of semel: a shop that is correct under repeats."),
		kong.Writers(m.Stdout, m.Stderr), kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100, NoExpandSubcommands: true}),
		kong.Vars{"version": command.Version("shop")},
		kong.BindTo(ctx, (*context.Context)(nil)), kong.BindTo(m.Stdout, (*io.Writer)(nil)),
	)
	parsed, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(m.Stderr, "shop: %v (see shop --help)\n", err)
		return exitUsage
	}
	if err := parsed.Run(); err != nil {
		fmt.Fprintf(m.Stderr, "shop: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// data are the flags of commands that work on a shop's data.
type data struct {
	Data string `default:"shop-data" placeholder:"FOLDER" help:"Folder of the database, the broker's files, the card processor's ledger and the keys."`
}

type serveCommand struct {
	data
	Listen            string        `default:"localhost:8080" help:"Address to serve at. Further instances have the ports after it."`
	Instances         int           `default:"1" help:"How many instances work on the database, in this process."`
	Database          string        `placeholder:"URL" help:"postgres://… instead of SQLite in the data folder."`
	Cache             string        `placeholder:"URL" help:"redis://… that answers repeats before the database does."`
	NATS              string        `placeholder:"URL" help:"nats://… instead of a server in this process."`
	Temporal          string        `placeholder:"HOST:PORT" help:"A Temporal server that runs the sagas instead of the database. All instances have it, and keep it."`
	TemporalNamespace string        `default:"default" placeholder:"NAME" help:"Temporal's namespace of this shop. It keeps card tokens and addresses in plain text."`
	Processor         string        `placeholder:"URL" help:"http://… of a card processor instead of a simulated one in this process."`
	Webhook           string        `placeholder:"URL" help:"Where to tell that a payment has completed."`
	InsecureDev       bool          `help:"Believe the header X-Tenant-ID instead of asking for a token. With it goes all that --dev gives."`
	Dev               bool          `help:"Let anybody who opens the page pay, see the card processor's ledger and break things. Not for production."`
	AtMostOnce        bool          `help:"Never run a payment again whose outcome is unknown: ask the card processor."`
	SimpleErrors      bool          `help:"Refuse with {success, error: {code, message}} instead of problem documents (RFC 9457)."`
	IntentLife        time.Duration `default:"15m" help:"How long a payment intent may be confirmed."`
	Lease             time.Duration `default:"30s" help:"How long after a process's death its operations are taken over."`
	CrashAt           string        `placeholder:"POINT" help:"Kill this process at a named point, such as payments.process.charged, to see what becomes of the operation."`
}

// Validate is called by the parser.
func (c *serveCommand) Validate() error {
	if c.CrashAt == "" {
		return nil
	}
	return shop.CheckCrashPoint(c.CrashAt)
}

func (c *serveCommand) config() host.Config {
	crash := func(string) {}
	if c.CrashAt != "" {
		crash = func(point string) {
			if point == c.CrashAt {
				die()
			}
		}
	}
	return host.Config{
		Data: c.Data, Database: c.Database, Cache: c.Cache, NATS: c.NATS, Temporal: c.Temporal, TemporalNamespace: c.TemporalNamespace, Processor: c.Processor, Listen: c.Listen, Instances: c.Instances,
		Dev: c.Dev, InsecureDev: c.InsecureDev, AtMostOnce: c.AtMostOnce, SimpleErrors: c.SimpleErrors, Webhook: c.Webhook, IntentLife: c.IntentLife, Lease: c.Lease, Crash: crash,
	}
}

// die ends the process as kill -9 does.
func die() {
	syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:errcheck // it does not return
	select {}
}

func (c *serveCommand) Run(ctx context.Context, out io.Writer) error {
	h, err := host.Open(ctx, c.config())
	if err != nil {
		return err
	}
	defer h.Close() //nolint:errcheck // the process ends
	for _, url := range h.URLs {
		fmt.Fprintf(out, "serving at %s\n", url)
	}
	fmt.Fprintf(out, "card processor at %s\n", h.Processor)
	if !c.InsecureDev {
		fmt.Fprintf(out, "a token: shop token --data %s\n", c.Data)
	}
	return h.Run(ctx)
}

type tokenCommand struct {
	data
	Tenant string        `default:"acme" help:"Whose data the token is for."`
	User   string        `default:"alice" help:"Who has the token."`
	Life   time.Duration `default:"24h" help:"How long it is valid."`
}

func (c *tokenCommand) Run(out io.Writer) error {
	keys, err := host.OpenKeys(c.Data)
	if err != nil {
		return err
	}
	token, err := keys.Token(c.Tenant, c.User, c.Life)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, token)
	return err
}

type openAPICommand struct{}

func (openAPICommand) Run(ctx context.Context, out io.Writer) (err error) {
	folder, err := os.MkdirTemp("", "shop-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	h, err := host.Open(ctx, host.Config{Data: folder, Listen: "localhost:0"})
	if err != nil {
		return err
	}
	text, err := h.Shops[0].OpenAPI()
	if err == nil {
		_, err = out.Write(text)
	}
	return errors.Join(err, h.Close())
}
