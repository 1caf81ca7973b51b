package demo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/examples/shop/host"
	"github.com/semelhq/semel/examples/shop/processor"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/outbox/webhook"
)

// lease is how long after a process's death the demo's shop takes its operations over. The shop's default is 30 s.
const lease = 2 * time.Second

// tenant is whose data the demo works on.
const tenant = "acme"

// A stage is a shop that serves, and what is around it.
type stage struct {
	screen
	config Config
	data   string
	run    string // names what this run of the demo makes
	host   *host.Host
	log    *os.File
	hooks  *hooks
	acts   []*act
	ended  chan error
	stop   context.CancelFunc
}

func open(ctx context.Context, c Config) (_ *stage, err error) {
	s := &stage{
		screen: screen{c.Out, c.Color}, config: c, data: c.Data, run: strconv.FormatInt(time.Now().UnixMilli(), 36),
		ended: make(chan error, 1), stop: func() {},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.data == "" {
		if s.data, err = os.MkdirTemp("", "shop-demo-*"); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(s.data, 0o700); err != nil {
		return nil, err
	}
	if s.log, err = os.OpenFile(filepath.Join(s.data, "shop.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	keys, err := host.OpenKeys(s.data)
	if err != nil {
		return nil, err
	}
	if s.hooks, err = newHooks(keys.Webhook); err != nil {
		return nil, err
	}
	o := host.Config{
		Data: s.data, Instances: 2, Dev: true, Listen: c.Listen, Lease: lease, Webhook: s.hooks.url, ShareBroker: true,
		Log: slog.New(slog.NewTextHandler(s.log, nil)),
	}
	if o.Listen == "" && !c.Once && free(8080) && free(8081) {
		o.Listen = "localhost:8080"
	} else if o.Listen == "" {
		o.Listen = "localhost:0"
	}
	if s.host, err = host.Open(ctx, o); err != nil {
		return nil, err
	}
	var running context.Context
	running, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() { s.ended <- s.host.Run(running) }()
	token, err := s.token("alice")
	if err != nil {
		return nil, err
	}
	return s, os.WriteFile(s.tokenFile(), []byte("Authorization: Bearer "+token+"\n"), 0o600)
}

func (s *stage) close() (err error) {
	s.stop()
	if s.host != nil {
		err = errors.Join(<-s.ended, s.host.Close())
	}
	if s.hooks != nil {
		err = errors.Join(err, s.hooks.close())
	}
	if s.log != nil {
		err = errors.Join(err, s.log.Close())
	}
	if s.config.Data == "" && s.data != "" {
		err = errors.Join(err, os.RemoveAll(s.data))
	}
	return err
}

func free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("localhost", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func (s *stage) token(user string) (string, error) {
	return s.host.Keys.Token(tenant, user, 24*time.Hour)
}

func (s *stage) tokenFile() string { return filepath.Join(s.data, "token") }

func (s *stage) opening() {
	token, _ := s.token("alice") //nolint:errcheck // it was made before
	url := s.host.URLs[0]
	s.printf("%s   orders and payments that take effect once\n\n", s.bold("shop demo"))
	s.printf("   click      %s/   the checkout page, with buttons that break things\n", url)
	s.printf("   instances  %s, %s   on one database\n", url, s.host.URLs[1])
	s.printf("   data       %s\n", s.data)
	s.printf("   processor  %s/ledger   what was really charged: the judge of every scene\n", s.host.Processor)
	s.printf("   token      %s\n\n", token)
	s.printf("%s, as often as you like: one order, one charge. The second line asks the other instance.\n\n", s.bold("Type"))
	for _, line := range s.lines() {
		s.printf("   %s\n", line)
	}
}

// lines are what can be typed into a shell.
func (s *stage) lines() []string {
	const form = "curl -i %s%s -H @%s \\\n     -H 'Idempotency-Key: \"%s\"' --json '%s'"
	return []string{
		fmt.Sprintf(form, s.host.URLs[0], "/api/v1/orders", s.tokenFile(), "my-order", `{"lines":[{"product":"book-1","quantity":2}]}`),
		fmt.Sprintf(form, s.host.URLs[1], "/api/v1/payments/process", s.tokenFile(), "my-payment", `{"amount":4900,"currency":"EUR","card":"tok_visa"}`),
		"curl -s " + s.host.Processor + "/ledger",
	}
}

func (s *stage) table() {
	rows := [][]string{{"", "", "scene", "the card processor's ledger"}}
	right := 0
	for _, a := range s.acts {
		rows = append(rows, []string{s.mark(!a.wrong), strconv.Itoa(a.number), a.title, a.ledger})
		if !a.wrong {
			right++
		}
	}
	s.printf("\n")
	s.columns("   ", rows, 1)
	s.printf("\n   %s\n", s.bold(fmt.Sprintf("%d of %d scenes came out right", right, len(rows)-1)))
}

// entries returns the card processor's ledger.
func (s *stage) entries(ctx context.Context) (all []processor.Entry, err error) {
	return all, s.ask(ctx, http.MethodGet, s.host.Processor+"/ledger", nil, &all)
}

// faults tells the card processor how to fail; none heals it.
func (s *stage) faults(ctx context.Context, f map[string]any) error {
	return s.ask(ctx, http.MethodPut, s.host.Processor+"/faults", f, nil)
}

// ask calls what is no part of the shop.
func (s *stage) ask(ctx context.Context, method, url string, body map[string]any, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, url, res.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(into)
}

// send sends a request to an instance, once.
func (s *stage) send(ctx context.Context, instance int, r request) reply {
	return s.sendBy(ctx, http.DefaultTransport, s.host.URLs[instance], r)
}

func (s *stage) sendBy(ctx context.Context, by http.RoundTripper, url string, r request) reply {
	hr, err := s.request(ctx, url, r)
	if err != nil {
		return reply{err: err}
	}
	if r.key != "" {
		hr.Header["idempotency-key"] = []string{`"` + r.key + `"`} // net/http resends a request if it finds the header
	}
	res, err := by.RoundTrip(hr)
	if err != nil {
		return reply{err: err, attempts: 1}
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(res.Body)
	return reply{status: res.StatusCode, header: res.Header, body: body, err: err, attempts: 1}
}

// insist sends a request with package client, until there is an answer.
func (s *stage) insist(ctx context.Context, by http.RoundTripper, r request, told func(client.Attempt)) reply {
	return s.insistAt(ctx, by, s.host.URLs[0], r, told)
}

func (s *stage) insistAt(ctx context.Context, by http.RoundTripper, url string, r request, told func(client.Attempt)) reply {
	t, err := client.New(by, client.Options{MaxAttempts: 20, Budget: client.Budget{Off: true}, OnAttempt: told})
	if err != nil {
		return reply{err: err}
	}
	hr, err := s.request(ctx, url, r)
	if err != nil {
		return reply{err: err}
	}
	a, err := client.Do(ctx, &http.Client{Transport: t}, client.Key{Value: r.key}, hr)
	if err != nil {
		return reply{err: err}
	}
	return reply{status: a.Status, header: a.Header, body: a.Body, attempts: a.Attempts}
}

func (s *stage) request(ctx context.Context, url string, r request) (*http.Request, error) {
	token, err := s.token(r.user)
	if err != nil {
		return nil, err
	}
	method, body := http.MethodGet, []byte(nil)
	if r.key != "" {
		method = http.MethodPost
	}
	method = cmp.Or(r.method, method)
	if r.body != nil {
		if body, err = json.Marshal(r.body); err != nil {
			return nil, err
		}
	}
	hr, err := http.NewRequestWithContext(ctx, method, url+"/api/v1"+r.path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	hr.Header.Set("Authorization", "Bearer "+token)
	maps.Copy(hr.Header, r.header)
	if r.body != nil {
		hr.Header.Set("Content-Type", "application/json")
	}
	return hr, nil
}

// hooks is a subscriber to the shop's webhooks. Its guard makes sure that each is handled once.
type hooks struct {
	url   string
	close func() error
	mu    sync.Mutex
	seen  map[string]int // by payment
}

func newHooks(secret string) (*hooks, error) {
	guard, err := semel.New(memstore.New(), semel.ScopeFunc(webhook.Scope), semel.Rerun, semel.Options{IdentitySecret: []byte(secret)})
	if err != nil {
		return nil, err
	}
	source := func(*http.Request) (webhook.Source, error) {
		return webhook.Source{Name: "shop", Secrets: []string{secret}}, nil
	}
	receiver, err := webhook.NewReceiver(guard, source, webhook.ReceiverOptions{})
	if err != nil {
		return nil, err
	}
	h := &hooks{seen: map[string]int{}}
	h.url, h.close, err = serve(receiver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e struct{ ID string }
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.seen[e.ID]++
		w.WriteHeader(http.StatusNoContent)
	})))
	return h, err
}

// serve serves at any port of this machine.
func serve(h http.Handler) (url string, end func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(l) //nolint:errcheck // it ends by Close
	return "http://" + l.Addr().String(), server.Close, nil
}

func (h *hooks) of(payment string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen[payment]
}

// until looks until it sees what it waits for, or ctx ends.
func until(ctx context.Context, look func() (bool, error)) error {
	for {
		ok, err := look()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
