package resume

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/keyring"
)

// setupVariable tells a process that it is a service, and which.
const setupVariable = "SEMEL_RESUME_SERVICE"

func TestMain(m *testing.M) {
	if told := os.Getenv(setupVariable); told != "" {
		fmt.Fprintln(os.Stderr, serve(told))
		os.Exit(1)
	}
	code := m.Run()
	if err := closeServers(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A setup is what a service is told.
type setup struct {
	Store    string // its address
	Ledgers  string // URL of the systems that the steps reach
	DieAt    int64  // the point at which the process kills itself; 0 for none
	Complete bool   // run a completer
	Lease    time.Duration
}

// A lease that is over soon, and one that a loaded machine does not keep a process from renewing.
const (
	shortLease = 500 * time.Millisecond
	longLease  = 8 * time.Second
)

// points are the places where a process can die: before and after each verb that changes the record, and each call of a
// step. They are counted from 1.
type points struct {
	passed atomic.Int64
	dieAt  int64
}

func (p *points) pass() {
	if p.passed.Add(1) == p.dieAt {
		syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:errcheck // it does not come back
		select {}
	}
}

// capable is a store with all that the service needs.
type capable interface {
	driver.StepStore
	driver.Lister
	driver.Seizer
}

// A watchedStore passes a point before and after each verb of a run. Renewals are left out: when they come is chance.
// So is what is no operation's: it is done once a process.
type watchedStore struct {
	capable
	points *points
}

func (s *watchedStore) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	if id.Reserved() {
		return s.capable.Claim(ctx, id, c)
	}
	s.points.pass()
	rec, owned, err := s.capable.Claim(ctx, id, c)
	s.points.pass()
	return rec, owned, err
}

func (s *watchedStore) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	s.points.pass()
	owned, err := s.capable.SaveStep(ctx, id, by, name, result)
	s.points.pass()
	return owned, err
}

func (s *watchedStore) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	if id.Reserved() {
		return s.capable.Settle(ctx, id, by, o)
	}
	s.points.pass()
	rec, owned, err := s.capable.Settle(ctx, id, by, o)
	s.points.pass()
	return rec, owned, err
}

// serve is a process: a service of one route, whose handler has three effects in three other systems.
func serve(told string) error {
	var s setup
	if err := json.Unmarshal([]byte(told), &s); err != nil {
		return err
	}
	opened, err := stores.Open(context.Background(), s.Store, stores.Options{})
	if err != nil {
		return err
	}
	p := &points{dieAt: s.DieAt}
	ring, err := keyring.New(keyring.Key{ID: "1", Key: bytes.Repeat([]byte{7}, 32)})
	if err != nil {
		return err
	}
	policy := semel.Policy{OnLost: semel.Rerun, Lease: s.Lease, Complete: true, RespondAsync: true}
	guard, err := semel.New(&watchedStore{opened.Store.(capable), p}, semel.SingleTenant, semel.Rerun, semel.Options{
		Policy: policy, Encryption: ring, Operations: "/operations",
		IdentitySecret: []byte("a secret of the tests"), DerivationSecret: []byte("another secret of the tests"),
	})
	if err != nil {
		return err
	}
	transport, err := client.New(nil, client.Options{Bare: true})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", guard.Wrap(placeOrder(&http.Client{Transport: transport}, s.Ledgers, p)))
	mux.Handle("/operations", guard.Operations())
	mux.Handle("/operations/", guard.Operations())
	if s.Complete {
		completer, err := guard.Completer(mux, semel.CompleterOptions{
			Interval:  100 * time.Millisecond,
			Principal: func(_ context.Context, r *http.Request, _ string) (*http.Request, error) { return r, nil },
		})
		if err != nil {
			return err
		}
		go completer.Run(context.Background()) //nolint:errcheck // it ends with the process
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("listening %s\n", l.Addr())
	return http.Serve(l, mux)
}

// placeOrder charges, reserves and notifies: each is a step, and a call of another system, that carries the step's key.
func placeOrder(c *http.Client, ledgers string, p *points) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		order, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var receipts []string
		for _, name := range ledgerNames {
			receipt, err := semel.Step(r.Context(), name, func(ctx context.Context) (string, error) {
				p.pass()
				defer p.pass()
				return enter(ctx, c, ledgers+"/"+name, order)
			})
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			receipts = append(receipts, receipt)
		}
		w.WriteHeader(http.StatusCreated)
		json.NewEncoder(w).Encode(receipts) //nolint:errcheck // the client has left
	}
}

// enter makes an entry in a ledger, and returns its receipt.
func enter(ctx context.Context, c *http.Client, url string, order []byte) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(order))
	if err != nil {
		return "", err
	}
	res, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	receipt, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusCreated {
		err = fmt.Errorf("answered %s: %s", res.Status, receipt)
	}
	return string(receipt), err
}
