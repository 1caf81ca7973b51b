package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

func newGuard(t testing.TB, p semel.Policy) *semel.Guard {
	t.Helper()
	g, err := semel.New(memstore.New(), semel.SingleTenant, p.OnLost, semel.Options{Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// bank is a handler with effects: it captures what the body names, and says so.
type bank struct {
	takes time.Duration

	mu      sync.Mutex
	effects map[string]int
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	time.Sleep(b.takes)
	b.mu.Lock()
	if b.effects == nil {
		b.effects = map[string]int{}
	}
	b.effects[string(text)]++
	n := b.effects[string(text)]
	b.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "%s captured %d", text, n)
}

// total returns how many effects there were, and of how many payments.
func (b *bank) total() (effects, payments int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.effects {
		effects += n
	}
	return effects, len(b.effects)
}

// flaky is a network to a guarded handler that loses requests and answers, storms with 503, and breaks connections
// while the handler runs.
type flaky struct {
	*wire
	random *rand.Rand
	storm  int
	faults map[string]int
	wg     sync.WaitGroup
	due    time.Time // when the next request is to come
	late   int
}

func newFlaky(h http.Handler, seed uint64) *flaky {
	f := &flaky{random: rand.New(rand.NewPCG(seed, 0)), faults: map[string]int{}}
	f.wire = &wire{answer: func(_ int, r *http.Request) (*http.Response, error) {
		if !f.due.IsZero() && !time.Now().Equal(f.due) {
			f.late++
		}
		f.due = time.Time{}
		if f.storm > 0 {
			f.storm--
			f.faults["storm"]++
			return response(503, "{}"), nil
		}
		switch p := f.random.IntN(100); {
		case p < 20:
			f.faults["dropped before"]++
			return nil, errBroken
		case p < 40:
			f.faults["dropped after"]++
			serve(h, r)
			return nil, errBroken
		case p < 50:
			f.faults["dropped meanwhile"]++
			f.wg.Go(func() { serve(h, r.WithContext(context.WithoutCancel(r.Context()))) })
			return nil, errBroken
		case p < 55:
			f.storm = f.random.IntN(4)
			f.faults["storm"]++
			return response(503, "{}"), nil
		}
		return serve(h, r), nil
	}}
	return f
}

// A thousand calls over a network that loses, doubles and delays: every one ends with its own answer, each has one
// effect, and the delays are those of the law.
func TestR67_AThousandCallsOverAFlakyNetwork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const calls = 1000
		b := &bank{takes: 50 * time.Millisecond}
		net := newFlaky(newGuard(t, semel.Policy{}).Wrap(b), 1)
		var told []client.Attempt
		random := rand.New(rand.NewPCG(2, 0))
		hc := newClient(t, net, client.Options{
			MaxAttempts: 100, Random: random.Float64,
			OnAttempt: func(a client.Attempt) {
				told = append(told, a)
				if a.Again {
					net.due = time.Now().Add(a.Delay)
				}
			},
		})
		replays := 0
		for n := range calls {
			body := fmt.Sprintf("payment-%d", n)
			a, err := client.Do(t.Context(), hc, client.NewKey(), post(t, body))
			if err != nil || a.Status != http.StatusCreated || string(a.Body) != body+" captured 1" {
				t.Fatalf("call %d: %+v, %v", n, a, err)
			}
			if a.Replayed {
				replays++
			}
			net.wg.Wait()
		}
		if effects, payments := b.total(); effects != calls || payments != calls {
			t.Errorf("%d effects of %d payments, want %d", effects, payments, calls)
		}
		if replays == 0 || len(net.faults) != 4 {
			t.Errorf("%d replays, faults %v: the network was not flaky", replays, net.faults)
		}
		if net.late != 0 {
			t.Errorf("%d requests did not come when their delay was over", net.late)
		}

		// Each delay is within its bound, and their shares of it are spread evenly: a mean of 1/2, and a variance of
		// 1/12.
		var shares []float64
		busy := 0
		for _, a := range told {
			bound := min(30*time.Second, 100*time.Millisecond<<min(a.Number-1, 20))
			switch {
			case !a.Again:
			case a.Status == http.StatusConflict: // never less than Retry-After
				busy++
				if a.Delay < time.Second || a.Delay > max(time.Second, bound) {
					t.Errorf("attempt %d: delay %v after 409, want 1s or up to %v", a.Number, a.Delay, bound)
				}
			case a.Delay < 0 || a.Delay > bound:
				t.Errorf("attempt %d: delay %v, want up to %v", a.Number, a.Delay, bound)
			default:
				shares = append(shares, float64(a.Delay)/float64(bound))
			}
		}
		mean, variance := 0.0, 0.0
		for _, s := range shares {
			mean += s / float64(len(shares))
		}
		for _, s := range shares {
			variance += (s - mean) * (s - mean) / float64(len(shares))
		}
		if len(shares) < 800 || mean < 0.47 || mean > 0.53 || variance < 0.075 || variance > 0.092 {
			t.Errorf("%d delays with a mean share of %.3f and a variance of %.4f, want 1/2 and 1/12", len(shares), mean, variance)
		}
		if busy == 0 {
			t.Error("nobody was told that the operation is in progress")
		}
		t.Logf("%d attempts, %d replays, %d in progress, faults %v, mean %.3f, variance %.4f",
			len(told), replays, busy, net.faults, mean, variance)
	})
}

// With the budget on, the same network is asked for no more than it pays for, and every call ends either with its
// answer or with an error that says why.
func TestR68_AThousandCallsWithinTheBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const calls = 1000
		b := &bank{takes: 50 * time.Millisecond}
		net := newFlaky(newGuard(t, semel.Policy{}).Wrap(b), 3)
		waits := 0 // for an operation that runs, which costs nothing
		hc := newClient(t, net, client.Options{
			Budget: client.Budget{Share: client.DefaultBudgetShare}, Random: rand.New(rand.NewPCG(4, 0)).Float64,
			OnAttempt: func(a client.Attempt) {
				if a.Again && a.Status == http.StatusConflict {
					waits++
				}
			},
		})
		answered := 0
		ended := map[client.Reason]int{}
		for n := range calls {
			body := fmt.Sprintf("payment-%d", n)
			a, err := client.Do(t.Context(), hc, client.NewKey(), post(t, body))
			var e *client.Error
			switch {
			case err == nil && string(a.Body) == body+" captured 1":
				answered++
			case errors.As(err, &e) && errors.Is(err, client.ErrExhausted):
				ended[e.Reason]++
			default:
				t.Fatalf("call %d: %+v, %v", n, a, err)
			}
			net.wg.Wait()
		}
		if effects, payments := b.total(); effects != payments || effects < answered {
			t.Errorf("%d effects of %d payments, %d answered; want one each", effects, payments, answered)
		}
		if ended[client.ReasonBudget] == 0 || answered+ended[client.ReasonBudget]+ended[client.ReasonAttempts] != calls {
			t.Errorf("%d answered, the others ended by %v; want the budget", answered, ended)
		}
		if got := len(net.requests()) - waits; got > calls+calls/10+10 {
			t.Errorf("%d requests for %d calls, want at most 10%% more, and 10", got, calls)
		}
	})
}

// Many callers of one client, over real connections.
func TestR65_CallsAtOnceTakeEffectOnce(t *testing.T) {
	t.Parallel()
	const callers, each = 8, 25
	b := &bank{}
	var mu sync.Mutex
	n := 0
	guarded := newGuard(t, semel.Policy{}).Wrap(b)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n++
		fault := n % 4
		mu.Unlock()
		switch fault {
		case 0:
			panic(http.ErrAbortHandler) // before the effect
		case 1:
			guarded.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler) // after it
		}
		guarded.ServeHTTP(w, r)
	}))
	defer server.Close()
	hc := newClient(t, &http.Transport{}, client.Options{MaxAttempts: 50, Backoff: client.FullJitter(time.Millisecond, time.Millisecond)})
	defer hc.CloseIdleConnections()
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := range each {
				body := fmt.Sprintf("payment-%d-%d", caller, i)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				if status, got, err := fetch(hc, r); status != 201 || got != body+" captured 1" {
					t.Errorf("%s: %d %q, %v", body, status, got, err)
				}
			}
		})
	}
	wg.Wait()
	if effects, payments := b.total(); effects != callers*each || payments != callers*each {
		t.Errorf("%d effects of %d payments, want %d", effects, payments, callers*each)
	}
}

// What a guard refuses arrives as what it is.
func TestR71_AGuardsRefusalsAreTyped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lost := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-How") == "lost" {
				semel.FromContext(r.Context()).Lost(errors.New("upstream broke"))
				return
			}
			time.Sleep(20 * time.Second)
			w.WriteHeader(http.StatusCreated)
		})
		net := served(newGuard(t, semel.Policy{OnLost: semel.Hold}).Wrap(lost))
		hc := newClient(t, net, client.Options{})

		key := client.Key{Value: "slow"}
		done := make(chan error)
		go func() {
			_, err := client.Do(t.Context(), hc, key, post(t, "{}"))
			done <- err
		}()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := client.Do(ctx, hc, key, post(t, "{}"))
		if e := checkError(t, err, client.ReasonDeadline); !errors.Is(err, refusal.InProgress) || e.RetryAt.IsZero() {
			t.Errorf("while it runs: %v, want in progress, and when to come again", err)
		}
		_, err = client.Do(t.Context(), hc, key, post(t, `{"other":1}`))
		if e := checkError(t, err, ""); e.Attempts != 1 || !errors.Is(err, refusal.KeyReused) {
			t.Errorf("another body: %v, want ErrKeyReused", err)
		}
		if err := <-done; err != nil {
			t.Errorf("the first: %v", err)
		}

		r := post(t, "{}")
		r.Header.Set("X-How", "lost")
		_, err = client.Do(t.Context(), hc, client.Key{Value: "lost"}, r)
		if e := checkError(t, err, ""); !errors.Is(err, refusal.OutcomeUnknown) || e.Answer.Status != 409 {
			t.Errorf("lost: %v, want ErrOutcomeUnknown", err)
		}
	})
}

// the answer is lost, and the operation is asked about by key.
func TestR70_ALostAnswerEndsAsAStatusQuery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		guarded := newGuard(t, semel.Policy{}).Wrap(&bank{takes: 4 * time.Second})
		began := time.Now()
		var questions []http.Header
		net := &wire{answer: func(n int, r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost {
				go serve(guarded, r.WithContext(context.WithoutCancel(r.Context())))
				return nil, errBroken
			}
			questions = append(questions, r.Header)
			if time.Since(began) < 4*time.Second {
				return response(200, `{"id":"op-1","state":"running"}`, "Retry-After", "2"), nil
			}
			return response(200, `{"id":"op-1","state":"succeeded"}`), nil
		}}
		r := post(t, "{}")
		r.Header.Set("Authorization", "Bearer x")
		r.Header.Set("If-Match", `"1"`)
		hc := newClient(t, net, client.Options{StatusURL: "/operations"})
		a, err := client.Do(t.Context(), hc, client.Key{Value: "order-42"}, r)
		if err != nil || a.State != "succeeded" || a.URL.Path != "/operations" || a.Attempts != 1 {
			t.Errorf("%+v, %v; want the operation's success after one attempt", a, err)
		}
		posts := 0
		for _, r := range net.requests() {
			if r.method == http.MethodPost {
				posts++
			}
		}
		if posts != 1 || len(questions) != 3 {
			t.Errorf("%d requests and %d questions, want 1 and 3", posts, len(questions))
		}
		for _, h := range questions {
			if h.Get("Idempotency-Key") != `"order-42"` || h.Get("Authorization") != "Bearer x" || h.Get("If-Match") != "" ||
				h.Get("Content-Type") != "" || h.Get("X-Correlation-Id") == "" {
				t.Errorf("asked with %v", h)
			}
		}
	})
}

func TestR72_KeyAndCorrelationIdTravelTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ids := func(net *wire, name string) (list []string) {
			for _, r := range net.requests() {
				list = append(list, r.header.Get(name))
			}
			return slices.Compact(list)
		}
		send := func(o client.Options, own string) *wire {
			net := &wire{answer: func(n int, _ *http.Request) (*http.Response, error) {
				return []*http.Response{
					response(503, "{}"), response(307, "", "Location", "/b"), response(503, "{}"), response(303, "", "Location", "/c"),
					response(200, "{}"),
				}[n-1], nil
			}}
			r := post(t, "{}")
			if own != "" {
				r.Header.Set("X-Correlation-Id", own)
			}
			if status, _, err := fetch(newClient(t, net, o), r); status != 200 {
				t.Fatalf("%d, %v", status, err)
			}
			return net
		}
		a, b := send(client.Options{}, ""), send(client.Options{}, "")
		first, second := ids(a, "X-Correlation-Id"), ids(b, "X-Correlation-Id")
		if len(first) != 1 || len(second) != 1 || first[0] == "" || first[0] == second[0] {
			t.Errorf("ids %q and %q, want one a call", first, second)
		}
		if got := ids(send(client.Options{}, "c-1"), "X-Correlation-Id"); !slices.Equal(got, []string{"c-1"}) {
			t.Errorf("ids %q, want the caller's", got)
		}
		if got := ids(send(client.Options{CorrelationHeader: "X-Request-Id"}, ""), "X-Request-Id"); len(got) != 1 || got[0] == "" {
			t.Errorf("ids %q under another name", got)
		}
		if got := ids(send(client.Options{CorrelationHeader: "-"}, ""), "X-Correlation-Id"); !slices.Equal(got, []string{""}) {
			t.Errorf("ids %q, want none", got)
		}
	})
}

// In a handler the downstream call has the operation's correlation id and a key derived from the operation, in every
// run.
func TestR72_InAHandlerTheDerivedKeyIsUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		downstream := statuses(503, 503, 201)
		hc := newClient(t, downstream, client.Options{MaxAttempts: 1})
		guarded := newGuard(t, semel.Policy{OnLost: semel.Rerun}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := r.Context()
			ctx = client.WithKey(ctx, client.Key{Value: semel.FromContext(ctx).Key("charge")})
			out, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.example/charges", strings.NewReader("{}"))
			if err != nil {
				t.Error(err)
				return
			}
			status, _, err := fetch(hc, out)
			if err != nil {
				t.Error(err)
			}
			w.WriteHeader(status)
		}))
		outer := served(guarded)
		r := post(t, "{}")
		r.Header.Set("X-Correlation-Id", "c-1")
		if status, _, err := fetch(newClient(t, outer, client.Options{}), r); status != 201 {
			t.Errorf("%d, %v", status, err)
		}
		keys := slices.Compact(downstream.keys())
		if len(downstream.requests()) != 3 || len(keys) != 1 || keys[0] == "" || keys[0] == outer.keys()[0] {
			t.Errorf("downstream keys %q, want one derived key in three runs", downstream.keys())
		}
		for _, r := range downstream.requests() {
			if got := r.header.Get("X-Correlation-Id"); got != "c-1" {
				t.Errorf("downstream correlation id %q, want the first caller's", got)
			}
		}
	})
}
