package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
	"github.com/semelhq/semel/semeltest"
)

// payments is a protected service whose first answer is lost.
func payments() *httptest.Server {
	guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	charges := 0
	h := guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		charges++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "charge %d", charges)
	}))
	return httptest.NewServer(semeltest.LosingHandler(h, func(n int) bool { return n == 1 }))
}

func Example() {
	server := payments()
	defer server.Close()
	url := server.URL + "/payments"

	transport, err := client.New(nil, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	hc := &http.Client{Transport: transport}
	res, err := hc.Post(url, "application/json", strings.NewReader(`{"order":"42","amount":4900}`))
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()

	text, err := io.ReadAll(res.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Status, string(text), "replayed:", res.Header.Get("Idempotent-Replayed"))
	// Output: 201 Created charge 1 replayed: true
}

// charge pays an order at a vendor's, under the key that was kept with it.
func charge(ctx context.Context, order order, r *http.Request) error {
	transport, err := client.New(nil, client.Options{Dialect: client.Stripe()})
	if err != nil {
		return err
	}
	hc := &http.Client{Transport: transport}
	answer, err := client.Do(ctx, hc, order.key, r) // the key was kept with the order
	if err == nil {
		fmt.Println(answer.Status, answer.Attempts)
	}
	return err
}

func ExampleStripe() {
	server := payments()
	defer server.Close()
	r, err := http.NewRequest(http.MethodPost, server.URL, strings.NewReader("amount=4900&currency=eur"))
	if err != nil {
		log.Fatal(err)
	}
	if err := charge(context.Background(), order{"42", client.Key{Value: "order-42"}}, r); err != nil {
		log.Fatal(err)
	}
	// Output: 201 2
}

// orders is where an application keeps its keys.
type orders struct{ state map[string]string }

func (o *orders) set(id, state string) { o.state[id] = state }

type order struct {
	id  string
	key client.Key
}

// pay is called for a new order, and again for each that is still pending, after a restart too.
func (o *orders) pay(ctx context.Context, hc *http.Client, url string, order order) error {
	body := strings.NewReader(`{"order":"` + order.id + `","amount":4900}`)
	r, err := http.NewRequest(http.MethodPost, url, body)
	if err != nil {
		return err
	}
	answer, err := client.Do(ctx, hc, order.key, r)
	var e *client.Error
	switch {
	case err == nil && answer.Status < 300:
		o.set(order.id, "paid")
	case err == nil:
		o.set(order.id, "declined") // by the application: a definite answer as well
	case errors.Is(err, refusal.KeyReused):
		return fmt.Errorf("order %s has the key of another request: %w", order.id, err) // a bug here
	case errors.Is(err, refusal.OutcomeUnknown), errors.Is(err, refusal.ReplayUnavailable),
		errors.Is(err, refusal.KeyExpired), errors.As(err, &e) && e.Reason == client.ReasonRetention:
		o.set(order.id, "to be looked up") // by its number, at the service: never with a new key
	default:
		o.set(order.id, "pending") // it may have been paid: again later, with the same key
	}
	return nil
}

func ExampleDo() {
	server := payments()
	defer server.Close()
	url := server.URL + "/payments"
	transport, err := client.New(nil, client.Options{MaxAttempts: 1})
	if err != nil {
		log.Fatal(err)
	}
	hc := &http.Client{Transport: transport}

	o := &orders{state: map[string]string{}}
	order := order{id: "42", key: client.NewKey()} // kept with the order, in one transaction
	for range 2 {
		if err := o.pay(context.Background(), hc, url, order); err != nil {
			log.Fatal(err)
		}
		fmt.Println(o.state["42"])
	}
	// Output:
	// pending
	// paid
}

// The snippets of docs/client.md that stand in no example.

func TestDocCallsDownstream(t *testing.T) {
	t.Parallel()
	downstream := statuses(201)
	hc := newClient(t, downstream, client.Options{})
	h := newGuard(t, semel.Policy{}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := client.WithKey(r.Context(), client.Key{Value: semel.FromContext(r.Context()).Key("charge")})
		out, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader("{}"))
		if err != nil {
			t.Error(err)
			return
		}
		status, _, err := fetch(hc, out)
		if status != 201 {
			t.Errorf("%d, %v", status, err)
		}
		w.WriteHeader(status)
	}))
	if status, _, err := fetch(newClient(t, served(h), client.Options{}), post(t, "{}")); status != 201 || len(downstream.requests()) != 1 {
		t.Errorf("%d, %v, %d requests downstream", status, err, len(downstream.requests()))
	}
}

func TestDocLogsAttempts(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	log := slog.New(slog.NewTextHandler(&text, nil))
	transport, err := client.New(statuses(201), client.Options{
		OnAttempt: func(a client.Attempt) {
			log.Info("attempt", "key", a.Key, "number", a.Number, "status", a.Status, "err", a.Err, "again", a.Again, "delay", a.Delay)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if status, _, err := fetch(&http.Client{Transport: transport}, post(t, "{}")); status != 201 || !strings.Contains(text.String(), "number=1 status=201") {
		t.Errorf("%d, %v, logged %s", status, err, text.String())
	}
}

func TestDocJudgesAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := func(code string) *wire {
			return &wire{answer: func(int, *http.Request) (*http.Response, error) { return problem(409, code), nil }}
		}
		old := client.Key{Value: "k", Made: time.Now().Add(-client.DefaultMaxAge)}
		for _, c := range []struct {
			net  *wire
			key  client.Key
			want string
		}{
			{statuses(201), client.Key{}, "paid"},
			{statuses(402), client.Key{}, "declined"},
			{statuses(0, 401), client.Key{}, "pending"}, // the token is over, the first attempt may have paid
			{statuses(503), client.Key{}, "pending"},
			{refused("IDEMPOTENCY_OUTCOME_UNKNOWN"), client.Key{}, "to be looked up"},
			{refused("IDEMPOTENCY_KEY_EXPIRED"), client.Key{}, "to be looked up"},
			{statuses(201), old, "to be looked up"},
		} {
			o := &orders{state: map[string]string{}}
			if err := o.pay(t.Context(), newClient(t, c.net, client.Options{}), target, order{"42", c.key}); err != nil || o.state["42"] != c.want {
				t.Errorf("after %d requests: %q, %v; want %q", len(c.net.requests()), o.state["42"], err, c.want)
			}
		}
	})
}
