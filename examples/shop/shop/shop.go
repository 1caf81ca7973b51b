// Package shop is an order, payment and pricing service that stays correct when clients double-click, networks lose
// answers, processes die and messages come twice. Each of its files shows one way to that: see docs/patterns.md.
//
// A call of your own, such as POST /vouchers, is made so:
//
//   - vouchers.go, after orders.go: a method vouchers that registers the call, and its handler. New calls vouchers.
//   - schema/10_vouchers.sql with its table; row_key in it is UNIQUE. Look whether another file has a table of the name.
//   - In openapi.go a line in tags, and the codes of its refusals in codes.
//   - e2e/vouchers_test.go, after orders_test.go. The stage compares each answer with what /openapi.json says.
package shop

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/nats-io/nats.go/jetstream"
	temporalclient "go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/examples/shop/database"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/saga"
	"github.com/semelhq/semel/tieredstore"
)

//go:embed schema/*.sql
var schemas embed.FS

// Schema returns the SQL that makes the shop's tables where they are missing.
func Schema() string {
	files, err := fs.Glob(schemas, "schema/*.sql")
	var all strings.Builder
	for _, name := range files {
		var text []byte
		if text, err = schemas.ReadFile(name); err == nil {
			all.Write(text)
		}
	}
	if err != nil {
		panic(err) // it is embedded
	}
	return all.String()
}

// Secrets belong to a shop's data: all its processes have the same, and they never change.
type Secrets struct {
	Identity   []byte // keys the digests by which operations are found; at least 16 bytes
	Derivation []byte // keys the derived keys; at least 16 bytes
	Encryption []byte // of stored requests; 32 bytes
	Webhook    string // signs webhooks: "whsec_…"
}

// Options are what a shop is made of. The caller opens and closes it.
type Options struct {
	DB        *database.DB
	Cache     tieredstore.Cache   // answers repeats before the database does; may be nil
	Broker    jetstream.JetStream // may be nil: then messages wait in the outbox
	Processor string              // URL of the card processor
	Auth      Auth
	Secrets   Secrets
	// Temporal runs the sagas that begin, instead of the database; may be nil. Its namespace belongs to this shop's
	// data. All processes of the shop have it or none, and once they have had it they keep it: without it they don't
	// see those sagas. Its histories have card tokens and addresses in plain text, unless the client's DataConverter
	// encrypts them.
	Temporal temporalclient.Client
	// Webhook is where it is told that a payment has completed. "" means nowhere.
	Webhook string
	// Mail is the folder that mails are written to. "" means none.
	Mail string
	// AtMostOnce never runs a payment again whose outcome is unknown. It asks the card processor instead.
	AtMostOnce bool
	// SimpleErrors gives refusals as {"success":false,"error":{"code","message"}}.
	SimpleErrors bool
	// IntentLife is how long a payment intent may be confirmed. Defaults to 15 minutes.
	IntentLife time.Duration
	// Lease is how long after a process's death its operations are taken over. Defaults to 30 s.
	Lease time.Duration
	// Crash is called at each named point before and after an effect. It may end the process. Defaults to nothing.
	Crash func(point string)
	Log   *slog.Logger // defaults to slog.Default()
}

// Shop is one process's part of the service. Several may work on one database.
type Shop struct {
	o     Options
	db    *database.DB
	guard *semel.Guard
	cards *cards
	place *saga.Definition[Placing]
	sagas sagas
	api   huma.API
	mux   *http.ServeMux
	loops []func(context.Context) error // what Run runs
}

// sagas is an engine that runs sagas: that of package saga, or Temporal.
type sagas interface {
	Start(ctx context.Context, id string, p Placing) (*saga.Status[Placing], error)
	Status(ctx context.Context, id string) (*saga.Status[Placing], error)
}

// New returns the shop. It runs nothing yet.
func New(o Options) (*Shop, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Crash == nil {
		o.Crash = func(string) {}
	}
	if o.IntentLife == 0 {
		o.IntentLife = 15 * time.Minute
	}
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	ring, err := keyring.New(keyring.Key{ID: "shop", Key: o.Secrets.Encryption})
	if err != nil {
		return nil, fmt.Errorf("make the keyring: %w", err)
	}
	store := o.DB.Store
	if o.Cache != nil {
		store = tieredstore.New(store, tieredstore.Options{Cache: o.Cache})
	}
	s := &Shop{o: o, db: o.DB, mux: http.NewServeMux()}
	// Each call says by its policy what becomes of a run that was lost. Rerun is right for what is in one transaction,
	// and for what is resumable.
	s.guard, err = semel.New(store, semel.ScopeFunc(scope), semel.Rerun, semel.Options{
		IdentitySecret: o.Secrets.Identity, DerivationSecret: o.Secrets.Derivation, Encryption: ring,
		Operations: base + "/operations", Problems: o.guardProblems(), Observer: event.Log(o.Log, ""),
	})
	if err != nil {
		return nil, fmt.Errorf("make the guard: %w", err)
	}
	s.loops = append(s.loops, s.guard.Run)
	if s.cards, err = newCards(o.Processor); err != nil {
		return nil, err
	}
	api := http.NewServeMux()
	s.api = humago.New(api, s.config())
	s.mux.Handle(base+"/", s.authenticate(s.known(api)))
	s.mux.Handle("/", s.known(api)) // the description of the API
	s.operations(api)
	s.orders()
	s.payments()
	s.charges()
	s.points()
	s.pricing()
	s.intents()
	if err := s.placing(); err != nil {
		return nil, err
	}
	s.bulk()
	s.messages()
	if o.SimpleErrors {
		delete(s.api.OpenAPI().Components.Schemas.Map(), "Problem") // huma describes it with each call
	}
	if err := s.servePage(api); err != nil {
		return nil, err
	}
	return s, s.complete(api)
}

// ServeHTTP serves the API.
func (s *Shop) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// OpenAPI returns the description of the API as OpenAPI 3.1, in JSON.
func (s *Shop) OpenAPI() ([]byte, error) { return s.api.OpenAPI().MarshalJSON() }

// Run does what has to be done beside requests, until ctx ends: it sweeps, sends messages and handles them, and goes on
// with the sagas of dead processes.
func (s *Shop) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, loop := range s.loops {
		g.Go(func() error { return loop(ctx) })
	}
	return g.Wait()
}

// Drain waits for the runs that go on after their clients have gone.
func (s *Shop) Drain(ctx context.Context) error { return s.guard.Drain(ctx) }
