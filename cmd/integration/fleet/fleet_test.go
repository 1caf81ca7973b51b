package fleet

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/proof"
)

func TestMain(m *testing.M) {
	Act()
	os.Exit(m.Run())
}

// A pair is two gateways on one storage.
type pair struct {
	t       *testing.T
	service *Service
	storage *Storage
	a, b    *Gateway
}

func newPair(t *testing.T, kind, policy string) *pair {
	t.Helper()
	p := &pair{t: t}
	var err error
	if p.service, err = NewService(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.service.Close() })
	dir := t.TempDir()
	if p.storage, err = NewStorage(kind, dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.storage.Close() })
	for i, g := range []**Gateway{&p.a, &p.b} {
		if *g, err = NewGateway("gateway-"+strconv.Itoa(i), dir, p.service, p.storage, "single", policy); err == nil {
			err = (*g).Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { kill(t, *g) })
	}
	return p
}

func kill(t *testing.T, g *Gateway) {
	if err := g.Kill(); err != nil {
		t.Error(err)
	}
}

// effects returns how many a key has had, once there are as many as are wanted: the service does not stop because a
// gateway has died.
func (p *pair) effects(key string, want int) int {
	for giveUp := time.Now().Add(time.Minute); p.service.Effects()[key] < want && time.Now().Before(giveUp); {
		time.Sleep(10 * time.Millisecond)
	}
	return p.service.Effects()[key]
}

// A reply is what a gateway has answered; status 0 is none.
type reply struct {
	status     int
	body       string
	replayed   bool
	retryAfter string
}

func pay(t *testing.T, g *Gateway, key, takes string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/payments", strings.NewReader(`{"amount":5}`))
	if err != nil {
		t.Error(err)
		return reply{}
	}
	r.Header["idempotency-key"] = []string{key}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Takes", takes)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return reply{}
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return reply{}
	}
	return reply{answer.StatusCode, string(body), answer.Header.Get("Idempotent-Replayed") == "true", answer.Header.Get("Retry-After")}
}

// onEach runs a test on each kind of storage. In the short form it is SQLite, or tiered, in which PostgreSQL and Redis
// are: by chance.
func onEach(t *testing.T, test func(t *testing.T, kind string)) {
	for _, kind := range proof.Of(proof.Some(1, "sqlite", "tiered"), Stores()) {
		t.Run(kind, func(t *testing.T) { test(t, kind) })
	}
}

// A hundred identical requests at once over two gateways have one effect, and all get its answer, also when asked
// again.
func TestR26_R79_TwoGatewaysBehaveAsOne(t *testing.T) {
	onEach(t, func(t *testing.T, kind string) {
		p := newPair(t, kind, "wait: 20s")
		const callers = 100
		replies := make([]reply, callers)
		var all sync.WaitGroup
		start := make(chan struct{})
		for i := range callers {
			all.Go(func() {
				<-start
				replies[i] = pay(t, []*Gateway{p.a, p.b}[i%2], "k", "50ms")
			})
		}
		close(start)
		all.Wait()
		firsts := 0
		for i, r := range replies {
			switch {
			case r.status == http.StatusCreated && r.body == "k/1" && !r.replayed:
				firsts++
			case r.status == http.StatusCreated && r.body == "k/1":
			case (r.status == http.StatusConflict || r.status == http.StatusServiceUnavailable) && r.retryAfter != "":
				// More than 64 wait at one gateway, or it is too busy to claim.
			default:
				t.Errorf("request %d: answered %+v", i, r)
			}
		}
		if n := p.service.Effects()["k"]; n != 1 || firsts != 1 {
			t.Errorf("%d effects, %d first answers; want one of each", n, firsts)
		}
		for range 2 { // the second time a cache has it
			for _, g := range []*Gateway{p.a, p.b} {
				r := pay(t, g, "k", "")
				for try := 0; r.status == http.StatusServiceUnavailable && try < 20; try++ { // as above
					time.Sleep(50 * time.Millisecond)
					r = pay(t, g, "k", "")
				}
				if r != (reply{http.StatusCreated, "k/1", true, ""}) {
					t.Errorf("asked again: answered %+v", r)
				}
			}
		}
	})
}

// What a killed gateway has left behind: under rerun the other one takes over after the lease, under hold it says that
// the outcome is unknown, and nothing runs twice.
func TestR46_TheOtherGatewayAfterACrash(t *testing.T) {
	onEach(t, func(t *testing.T, kind string) {
		for _, policy := range []string{"rerun", "hold"} {
			p := newPair(t, kind, "lease: 1s, deadline: 30s, retention: 1h, on_lost: "+policy)
			arrived := p.service.Arrivals()
			key, began := "", time.Time{}
			for try, killed := 0, false; !killed; try++ { // on a busy machine it may answer before it is killed
				if try == 10 {
					t.Fatalf("%s: a gateway has answered %d times before it was killed", policy, try)
				}
				if try > 0 {
					if err := p.a.Start(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				key, began = "k-"+strconv.Itoa(try), time.Now()
				lost := make(chan reply)
				go func() { lost <- pay(t, p.a, key, "300ms") }()
				<-arrived
				if err := p.a.Kill(); err != nil {
					t.Fatal(err)
				}
				killed = (<-lost).status == 0
			}
			r := pay(t, p.b, key, "")
			inProgress := func() bool {
				return r.status == http.StatusConflict && strings.Contains(r.body, "IDEMPOTENCY_IN_PROGRESS")
			}
			if !inProgress() && time.Since(began) < time.Second { // the lease can't be over
				t.Errorf("%s: within the lease the other gateway answers %+v", policy, r)
			}
			for giveUp := time.Now().Add(time.Minute); inProgress() && time.Now().Before(giveUp); {
				time.Sleep(50 * time.Millisecond)
				r = pay(t, p.b, key, "")
			}
			effects := p.effects(key, map[string]int{"rerun": 2, "hold": 1}[policy])
			switch { // which of two effects is told of is the service's to say
			case policy == "rerun" && (r.status != http.StatusCreated || r.replayed || !strings.HasPrefix(r.body, key+"/") || effects != 2):
				t.Errorf("rerun: after the lease the other gateway answers %+v, with %d effects", r, effects)
			case policy == "hold" && (r.status != http.StatusConflict || !strings.Contains(r.body, "IDEMPOTENCY_OUTCOME_UNKNOWN") || effects != 1):
				t.Errorf("hold: after the lease the other gateway answers %+v, with %d effects", r, effects)
			}
			if err := p.a.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			again := pay(t, p.a, key, "")
			if again.status != r.status || policy == "rerun" && (again.body != r.body || !again.replayed) {
				t.Errorf("%s: started again it answers %+v, the other one %+v", policy, again, r)
			}
		}
	})
}

// The load of make stress, shorter.
func TestR79_LoadOverTwoGatewaysWithACrash(t *testing.T) {
	onEach(t, func(t *testing.T, kind string) {
		r, err := Stress{Store: kind, Rate: 25, Duration: 4 * time.Second, Repeats: 30, Seed: 1, Patience: 5 * time.Minute, Dir: t.TempDir()}.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Err(); err != nil || r.Requests != 100 || r.Replayed == 0 {
			t.Errorf("%v: %+v", err, *r)
		}
	})
}

// Three gateways are stopped and started one after the other under load: every request gets its answer.
func TestR78_ARollingRestart(t *testing.T) {
	p := newPair(t, "postgres", "wait: 5s")
	c, err := NewGateway("gateway-2", t.TempDir(), p.service, p.storage, "single", "wait: 5s")
	if err == nil {
		err = c.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(t, c) })
	gateways := []*Gateway{p.a, p.b, c}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 6 {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("client-%d-%d", i, n)
				var r reply
				for try := 0; r.status != http.StatusCreated && try < 200; try++ { // in turn, as a balancer would
					if r = pay(t, gateways[(n+try)%3], key, "5ms"); r.status != http.StatusCreated {
						time.Sleep(20 * time.Millisecond)
					}
				}
				if r.status != http.StatusCreated || r.body != key+"/1" {
					t.Errorf("%s: answered %+v", key, r)
				}
			}
		})
	}
	for _, g := range gateways {
		if err := g.Stop(); err != nil {
			t.Error(err)
		}
		if err := g.Start(t.Context()); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	clients.Wait()
	for key, n := range p.service.Effects() {
		if n != 1 {
			t.Errorf("%s has had its effect %d times", key, n)
		}
	}
}

func TestWhatAReportSays(t *testing.T) {
	t.Parallel()
	for says, r := range map[string]Report{
		"1 effects were duplicates":             {Requests: 1, Succeeded: 1, Duplicates: 1},
		"2 answers were not true":               {Requests: 1, Succeeded: 1, Untrue: 2},
		"998 of 1000 requests have succeeded":   {Requests: 1000, Succeeded: 998},
		"0 of 0 requests have succeeded, want ": {},
	} {
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", r, err, says)
		}
	}
	if err := (&Report{Requests: 1000, Succeeded: 999}).Err(); err != nil {
		t.Error(err)
	}
}
