package messages

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/sqlitestore"
)

// limit is a protection from waiting for ever, not an expectation.
const limit = 5 * time.Minute

type silent struct{}

func (silent) Observe(context.Context, event.Event) {}

// A shop has orders, an outbox, and a consumer that sends e-mails, in one database.
type shop struct {
	t        *testing.T
	db       *sql.DB
	outbox   *sqlitestore.Outbox
	consumer *consumer.Consumer

	mu      sync.Mutex
	tried   map[string]int
	mails   map[string]int
	acks    map[string]int // deliveries that were to be acked
	letters map[string]int
	changed chan struct{}
}

func newShop(t *testing.T) *shop {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "shop.db")+"?_pragma=busy_timeout(60000)&_txlock=immediate")
	must(t, err)
	t.Cleanup(func() { db.Close() })
	_, err = db.Exec("CREATE TABLE orders (item TEXT NOT NULL)")
	must(t, err)
	store, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{})
	must(t, err)
	t.Cleanup(func() { store.Close() })
	s := &shop{
		t: t, db: db, tried: map[string]int{}, mails: map[string]int{}, acks: map[string]int{}, letters: map[string]int{},
		changed: make(chan struct{}, 1),
	}
	s.outbox, err = sqlitestore.OpenOutbox(store, outbox.Options{})
	must(t, err)
	guard, err := semel.New(store, semel.SingleTenant, semel.Rerun, semel.Options{Observer: silent{}, MaxAttempts: -1})
	must(t, err)
	s.consumer, err = consumer.New(guard, "email", consumer.Options{
		DeadLetter: s.park, MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, Hold: time.Second,
	})
	must(t, err)
	return s
}

// order commits an order and its message.
func (s *shop) order(item string) {
	s.t.Helper()
	tx, err := s.db.Begin()
	must(s.t, err)
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	_, err = tx.Exec("INSERT INTO orders (item) VALUES (?)", item)
	must(s.t, err)
	must(s.t, s.outbox.Add(s.t.Context(), tx, outbox.Message{ID: item, Topic: "orders", Key: item, Payload: []byte(item)}))
	must(s.t, tx.Commit())
	s.outbox.Wake()
}

// relay sends what is committed, until the test ends.
func (s *shop) relay(p outbox.Publisher) {
	s.t.Helper()
	r, err := outbox.NewRelay(s.outbox, p, outbox.RelayOptions{Backoff: func(int) time.Duration { return 50 * time.Millisecond }})
	must(s.t, err)
	s.run(r.Run)
}

// run runs a loop until the test ends.
func (s *shop) run(loop func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := loop(ctx); err != nil && !errors.Is(err, context.Canceled) {
			s.t.Error(err)
		}
	}()
	s.t.Cleanup(func() { cancel(); <-ended })
}

// mail is the handler. It fails once for each message, and always for one that is poisoned.
func (s *shop) mail(_ context.Context, m consumer.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried[m.ID]++
	if m.ID == "poison" {
		return semel.Final(errors.New("no such customer"))
	}
	if s.tried[m.ID] == 1 {
		return errors.New("the mail server is away")
	}
	s.mails[m.ID]++
	return nil
}

func (s *shop) park(_ context.Context, m consumer.Message, _ error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letters[m.ID]++
	return nil
}

// handle is the consumer's Handle. The first acknowledgement of each message is lost: the broker delivers it again.
func (s *shop) handle(ctx context.Context, m consumer.Message, fn func(context.Context, consumer.Message) error) consumer.Result {
	r := s.consumer.Handle(ctx, m, fn)
	if r.Action == consumer.Nack {
		return r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acks[m.ID]++
	select {
	case s.changed <- struct{}{}:
	default:
	}
	if s.acks[m.ID] == 1 {
		return consumer.Result{Action: consumer.Nack, Delay: time.Millisecond, Err: errors.New("the acknowledgement is lost")}
	}
	return r
}

// await waits until each item's message was acked in the end.
func (s *shop) await(items ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	for {
		s.mu.Lock()
		missing := ""
		for _, item := range items {
			if s.acks[item] < 2 {
				missing = item
			}
		}
		s.mu.Unlock()
		if missing == "" {
			return
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			s.t.Fatalf("%s was not handled: tried %d times, acked %d times", missing, s.tried[missing], s.acks[missing])
		}
	}
}

// A broker can be restarted.
type broker struct {
	restart func()
}

// takesEffectOnce sends orders through a broker, and restarts the broker in between.
func (s *shop) takesEffectOnce(b broker) {
	s.t.Helper()
	var items []string
	for i := range 10 {
		items = append(items, fmt.Sprint("order-", i))
	}
	for _, item := range items[:5] {
		s.order(item)
	}
	s.order("poison")
	s.await(append(items[:5:5], "poison")...)
	s.order(items[5])
	b.restart()
	for _, item := range items[6:] {
		s.order(item)
	}
	s.await(items...)

	s.mu.Lock()
	defer s.mu.Unlock()
	for _, item := range items {
		if s.mails[item] != 1 {
			s.t.Errorf("%s: %d e-mails", item, s.mails[item])
		}
	}
	if s.letters["poison"] != 1 || len(s.letters) != 1 || s.mails["poison"] != 0 {
		s.t.Errorf("dead letters %v, and %d e-mails of the poisoned message", s.letters, s.mails["poison"])
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
