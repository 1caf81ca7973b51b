package proof

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/child"
	form "github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/internal/servers"
)

// Each message has its effect once on each consumer and none is lost, whoever is killed; the broker first has the
// messages of a key in order. In the short form it is with two of the brokers, by chance.
func TestR81_R83_EachMessageHasItsEffectOnceOnEachConsumer(t *testing.T) {
	t.Parallel()
	for _, c := range form.Some(2,
		way{"nats", 200, 10_000, startNATS},
		way{"kafka", 200, 2_000, startKafka},
		way{"rabbitmq", 200, 2_000, startRabbit},
	) {
		for storage, address := range map[string]func(t *testing.T) string{
			"sqlite": func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "shop.db") },
			"postgres": func(t *testing.T) string {
				p, err := servers.NewPostgres(servers.PostgresOptions{})
				must(t, err)
				t.Cleanup(func() { must(t, p.Close()) })
				return p.URL()
			},
		} {
			if !form.Long() && (c.broker == "nats") != (storage == "sqlite") {
				continue // the brokers are alike to the storage
			}
			t.Run(c.broker+" and "+storage, func(t *testing.T) {
				n := c.long
				if !form.Long() {
					n = c.short
					t.Parallel()
				}
				at, restart := c.start(t)
				(&proof{storage: address(t), broker: c.broker + "=" + at, restart: restart, least: n}).run(t)
			})
		}
	}
}

type way struct {
	broker      string
	short, long int
	start       func(t *testing.T) (address string, restart func())
}

func startRabbit(t *testing.T) (url string, restart func()) {
	t.Helper()
	r, err := servers.NewRabbitMQ()
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r.URL(), func() {
		must(t, r.Kill())
		must(t, r.Start())
	}
}

type proof struct {
	storage, broker string
	restart         func() // the broker; nil if it stays up
	least           int    // messages
	messages        int    // those that were sent, at last
}

const customers = 40

// leastKilled is how many workers are killed while messages come.
const leastKilled = 8

func (p *proof) run(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s, err := openStorage(ctx, p.storage)
	must(t, err)
	must(t, s.setUp(ctx))
	b, err := openBroker(p.broker)
	must(t, err)
	must(t, b.setUp(ctx))

	seed := rand.Uint64()
	if text := os.Getenv("SEMEL_SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("SEMEL_SEED=%d", seed)
		}
	})
	workers := newWorkers(t, p, rand.New(rand.NewPCG(seed, 1)), "relay", "relay", "relay", "email", "email", "invoice", "invoice")

	var producers sync.WaitGroup
	var placed atomic.Int64
	for range 4 {
		producers.Go(func() {
			for int(placed.Load()) < p.least || workers.killed.Load() < leastKilled {
				n := placed.Add(1)
				if err := s.place(ctx, fmt.Sprint("customer-", n%customers)); err != nil {
					t.Errorf("place an order: %v", err)
					return
				}
				if int(n) > p.least {
					time.Sleep(20 * time.Millisecond) // it goes on for the sake of those who are killed
				}
			}
		})
	}
	if p.restart != nil {
		for int(placed.Load()) < p.least/2 && !t.Failed() {
			time.Sleep(10 * time.Millisecond)
		}
		p.restart()
	}
	producers.Wait()
	p.messages = int(placed.Load())
	for !t.Failed() {
		if p.all(ctx, t, s) {
			break
		}
		if ctx.Err() != nil {
			t.Error("not everything is handled in five minutes")
		}
		time.Sleep(100 * time.Millisecond)
	}
	workers.end()
	t.Logf("%d workers killed", workers.killed.Load())
	p.settled(ctx, t, s)
	p.ordered(ctx, t, b)
}

// all reports whether each consumer has had each message.
func (p *proof) all(ctx context.Context, t *testing.T, s storage) bool {
	for _, name := range consumers {
		had, err := s.effects(ctx, name)
		if err != nil {
			t.Errorf("count the effects: %v", err)
			return false
		}
		if len(had) < p.messages {
			return false
		}
	}
	return true
}

// settled counts the effects.
func (p *proof) settled(ctx context.Context, t *testing.T, s storage) {
	for _, name := range consumers {
		had, err := s.effects(ctx, name)
		must(t, err)
		if len(had) != p.messages {
			t.Errorf("%s has had %d messages of %d", name, len(had), p.messages)
		}
		for message, n := range had {
			if n != 1 {
				t.Errorf("%s has had %s %d times", name, message, n)
			}
		}
	}
}

// ordered checks what the broker had first of each key.
func (p *proof) ordered(ctx context.Context, t *testing.T, b broker) {
	had, err := b.first(ctx)
	must(t, err)
	if had.twice < p.messages/10 {
		t.Errorf("%d messages of %d were delivered twice: that shows nothing", had.twice, p.messages)
	}
	sum := 0
	for customer, got := range had.byKey {
		sum += len(got)
		want := make([]string, len(got))
		for i := range want {
			want[i] = fmt.Sprintf("%s %d", customer, i+1)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the broker first had %s", strings.Join(got, ", "))
		}
	}
	t.Logf("%d messages, %d of them twice", sum, had.twice)
	if sum != p.messages {
		t.Errorf("the broker has had %d messages of %d", sum, p.messages)
	}
}

// Workers are processes that are killed at random, and started again.
type workers struct {
	t       *testing.T
	p       *proof
	program string
	dice    *rand.Rand
	stop    chan struct{}
	ended   chan struct{}
	killed  atomic.Int64
}

func newWorkers(t *testing.T, p *proof, dice *rand.Rand, roles ...string) *workers {
	program, err := child.Program()
	must(t, err)
	w := &workers{t: t, p: p, program: program, dice: dice, stop: make(chan struct{}), ended: make(chan struct{})}
	all := make([]*exec.Cmd, len(roles))
	for i, role := range roles {
		all[i] = w.start(i, role)
	}
	go func() {
		defer close(w.ended)
		for {
			select {
			case <-w.stop:
				for _, c := range all {
					w.kill(c)
				}
				return
			case <-time.After(w.pause()):
			}
			i := w.dice.IntN(len(roles))
			w.kill(all[i])
			w.killed.Add(1)
			all[i] = w.start(i, roles[i])
		}
	}()
	return w
}

// pause returns how long nobody is killed. It grows with those who were killed, so that a worker comes to do something on
// a machine where it needs seconds to start.
func (w *workers) pause() time.Duration {
	return time.Duration(100+w.dice.IntN(400)) * time.Millisecond * time.Duration(20+w.killed.Load()) / 20
}

func (w *workers) start(i int, role string) *exec.Cmd {
	c := exec.Command(w.program)
	c.Env = append(os.Environ(), roleVar+"="+role, storageVar+"="+w.p.storage, brokerVar+"="+w.p.broker, placeVar+"="+strconv.Itoa(i))
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		w.t.Errorf("start a worker: %v", err)
	}
	return c
}

func (w *workers) kill(c *exec.Cmd) {
	if c.Process == nil {
		return
	}
	c.Process.Kill() //nolint:errcheck // it has ended by itself, which the test sees
	c.Wait()         //nolint:errcheck // it was killed
}

// end kills all.
func (w *workers) end() {
	close(w.stop)
	<-w.ended
}

// An order is the order in which messages were first delivered.
type order struct {
	seen  map[string]bool
	byKey map[string][]string
	twice int
}

func newOrder() *order { return &order{seen: map[string]bool{}, byKey: map[string][]string{}} }

func (o *order) add(key, id string, payload []byte) {
	if o.seen[id] {
		o.twice++
		return
	}
	o.seen[id] = true
	o.byKey[key] = append(o.byKey[key], strings.TrimSpace(string(payload)))
}
