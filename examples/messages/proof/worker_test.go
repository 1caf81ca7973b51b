package proof

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/child"
	"github.com/semelhq/semel/outbox"
)

// A broker is one of those that the messages go through.
type broker interface {
	setUp(ctx context.Context) error
	// send returns once the broker has the message. With again it is sent in such a way that the broker does not recognise
	// it.
	send(ctx context.Context, m *outbox.Message, again bool) error
	// consume handles the messages of a consumer until ctx ends.
	consume(ctx context.Context, name string, handle func(context.Context, consumer.Message) consumer.Result) error
	// first returns what the broker has had, in the order in which it had it.
	first(ctx context.Context) (*order, error)
}

func openBroker(address string) (broker, error) {
	kind, address, _ := strings.Cut(address, "=")
	switch kind {
	case "nats":
		return openNATS(address)
	case "kafka":
		return openKafka(address)
	case "rabbitmq":
		return openRabbit(address)
	}
	return nil, fmt.Errorf("broker %q", kind)
}

// consumers are the names of those who handle each message once.
var consumers = []string{"email", "invoice"}

// A storage has the business data, the outbox and the records.
type storage interface {
	setUp(ctx context.Context) error
	// place adds an order to a customer, and its message, in one transaction.
	place(ctx context.Context, customer string) error
	outbox() outbox.Store
	// handle takes the effect of a message and the mark in one transaction.
	handle(ctx context.Context, name string, c *consumer.Consumer, m consumer.Message) consumer.Result
	guard(p semel.Policy) (*semel.Guard, error)
	// effects returns how often each message has had its effect on a consumer.
	effects(ctx context.Context, name string) (map[string]int, error)
}

func openStorage(ctx context.Context, address string) (storage, error) {
	if path, ok := strings.CutPrefix(address, "sqlite:"); ok {
		return openSQLite(ctx, path)
	}
	return openPostgres(ctx, address)
}

// secret makes the ids of records.
var secret = []byte("a secret of this test alone, 32 b")

func newGuard(s driver.Store, p semel.Policy) (*semel.Guard, error) {
	quiet := event.Log(slog.New(slog.DiscardHandler), "") // takeovers are what the test is about
	return semel.New(s, semel.SingleTenant, semel.Rerun, semel.Options{IdentitySecret: secret, Policy: p, Observer: quiet})
}

func message(customer string, n int64) outbox.Message {
	return outbox.Message{Topic: "orders", Key: customer, Payload: fmt.Appendf(nil, "%s %d", customer, n)}
}

func counted(all []string) map[string]int {
	n := map[string]int{}
	for _, one := range all {
		n[one]++
	}
	return n
}

// Variables that make this program a worker.
const (
	roleVar    = "SEMEL_PROOF_ROLE"
	storageVar = "SEMEL_PROOF_STORAGE"
	brokerVar  = "SEMEL_PROOF_BROKER"
	placeVar   = "SEMEL_PROOF_PLACE" // which of the workers it is
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		fmt.Fprintln(os.Stderr, work(context.Background(), role))
		os.Exit(1)
	}
	code := m.Run()
	if err := child.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// work is what a worker does until it is killed.
func work(ctx context.Context, role string) error {
	storage, err := openStorage(ctx, os.Getenv(storageVar))
	if err != nil {
		return err
	}
	b, err := openBroker(os.Getenv(brokerVar))
	if err != nil {
		return err
	}
	if role == "relay" {
		return relay(ctx, storage, b)
	}
	policy := semel.Policy{Lease: time.Second, MaxRun: 10 * time.Second, OneCommit: role == "invoice"}
	g, err := storage.guard(policy)
	if err != nil {
		return err
	}
	c, err := consumer.New(g, role, consumer.Options{MaxAttempts: 1000, MinBackoff: 50 * time.Millisecond, DeadLetter: func(_ context.Context, m consumer.Message, reason error) error {
		return fmt.Errorf("message %s is dead: %w", m.ID, reason) // none of them is
	}})
	if err != nil {
		return err
	}
	return b.consume(ctx, role, func(ctx context.Context, m consumer.Message) consumer.Result { return storage.handle(ctx, role, c, m) })
}

// relay sends one message in five twice.
func relay(ctx context.Context, s storage, b broker) error {
	r, err := outbox.NewRelay(s.outbox(), outbox.Func(32, func(ctx context.Context, m *outbox.Message) error {
		if err := b.send(ctx, m, false); err != nil {
			return err
		}
		h := fnv.New32()
		h.Write([]byte(m.ID)) //nolint:errcheck // it does not fail
		if h.Sum32()%5 != 0 {
			return nil
		}
		return b.send(ctx, m, true)
	}), outbox.RelayOptions{Lease: 2 * time.Second, PublishTimeout: time.Second, Batch: 100})
	if err != nil {
		return err
	}
	return errors.Join(r.Run(ctx), errors.New("the relay has ended"))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
