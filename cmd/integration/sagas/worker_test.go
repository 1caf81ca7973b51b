package sagas

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/admin"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/child"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/saga"
)

// setupVariable tells a process that it is a worker, and which.
const setupVariable = "SEMEL_SAGAS_WORKER"

func TestMain(m *testing.M) {
	if told := os.Getenv(setupVariable); told != "" {
		if err := work(told); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if err := errors.Join(postgresServer.Close(), child.Remove()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A setup is what a worker is told.
type setup struct {
	Store    string // its address
	Services string // URL of what the steps call
	Newest   bool   // it has the second version of the definition too, and begins sagas under it
}

// A state is what a saga is started with, and has the receipts of its steps.
type state struct {
	Order    string
	Receipts []string
}

// The steps of each version. The second one asks first whether the customer is known.
var versions = map[string][]string{
	"1": {"charge", "reserve", "pack", "ship"},
	"2": {"check", "charge", "reserve", "pack", "ship"},
}

const stepTimeout = 300 * time.Millisecond

// define returns the definition in one version. Each step calls a service of its name.
func define(version string, c *http.Client, services string) (*saga.Definition[state], error) {
	var steps []saga.Step[state]
	for _, name := range versions[version] {
		call := func(what string) func(ctx context.Context, s *state) error {
			return func(ctx context.Context, s *state) error {
				receipt, err := post(ctx, c, fmt.Sprintf("%s/%s/%s/%s?version=%s", services, what, name, s.Order, version))
				s.Receipts = append(s.Receipts, receipt)
				return err
			}
		}
		steps = append(steps, saga.Step[state]{
			Name: name, Do: call("do"), Undo: call("undo"), Timeout: stepTimeout,
			Retry: saga.Retry{Attempts: 3, Backoff: 5 * time.Millisecond},
		})
	}
	d, err := saga.Define("order", steps...)
	if err != nil {
		return nil, err
	}
	return d.WithVersion(version)
}

// post calls a service. It panics if the service asks for that.
func post(ctx context.Context, c *http.Client, url string) (receipt string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return "", err
	case res.Header.Get("Panic") != "":
		panic("the service has confused its caller")
	case res.StatusCode == http.StatusUnprocessableEntity:
		return "", semel.Final(fmt.Errorf("refused: %s", body))
	case res.StatusCode != http.StatusOK:
		return "", fmt.Errorf("answered %s: %s", res.Status, body)
	}
	return string(body), nil
}

// sagas opens the store and registers the definitions.
func sagas(ctx context.Context, s setup) (*semel.Guard, *saga.Runner, *saga.Saga[state], error) {
	opened, err := stores.Open(ctx, s.Store, stores.Options{OnePrincipal: true})
	if err != nil {
		return nil, nil, nil, err
	}
	ring, err := keyring.New(keyring.Key{ID: "1", Key: bytes.Repeat([]byte{7}, 32)})
	if err != nil {
		return nil, nil, nil, err
	}
	guard, err := semel.New(opened.Store, semel.SingleTenant, semel.Hold, semel.Options{
		Encryption: ring, IdentitySecret: []byte("a secret of the tests"), DerivationSecret: []byte("another secret of the tests"),
		Observer: event.Log(slog.New(slog.DiscardHandler), "worker"), // what is killed says much
	})
	if err != nil {
		return nil, nil, nil, err
	}
	desk, err := admin.New(opened.Store, admin.Options{Encryption: ring})
	if err != nil {
		return nil, nil, nil, err
	}
	runner, err := saga.New(guard, saga.Options{
		Lease: time.Second, Interval: 100 * time.Millisecond, Backoff: 20 * time.Millisecond, MaxBackoff: 500 * time.Millisecond,
		MaxAttempts: -1, Desk: desk,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	transport, err := client.New(nil, client.Options{Bare: true, MaxAttempts: 1})
	if err != nil {
		return nil, nil, nil, err
	}
	c := &http.Client{Transport: transport}
	definition, err := define("1", c, s.Services)
	var earlier []*saga.Definition[state]
	if s.Newest && err == nil {
		earlier = append(earlier, definition)
		definition, err = define("2", c, s.Services)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	orders, err := saga.Register(runner, definition, earlier...)
	return guard, runner, orders, err
}

// work is a process that starts sagas, and goes on with those of others. It stops gracefully on SIGTERM.
func work(told string) error {
	var s setup
	if err := json.Unmarshal([]byte(told), &s); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	guard, runner, orders, err := sagas(ctx, s)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /start/{id}", func(w http.ResponseWriter, r *http.Request) {
		switch _, err := orders.Start(r.Context(), r.PathValue("id"), state{Order: r.FormValue("order")}); {
		case errors.Is(err, saga.ErrOtherInput):
			http.Error(w, err.Error(), http.StatusConflict)
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(l, mux) //nolint:errcheck // it ends with the process
	fmt.Printf("listening %s\n", l.Addr())
	if err := runner.Run(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	drained, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return guard.Drain(drained)
}
