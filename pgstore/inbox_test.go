package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/driver"
)

// An inbox orders what messages ask for.
type inbox struct {
	*shop
	*consumer.Consumer
	dead []error
	runs atomic.Int64
	fail error // of the handler, after its effect
}

// eachInbox runs a test for inboxes with a lease, and in one-commit mode.
func eachInbox(t *testing.T, url string, test func(*inbox)) {
	t.Helper()
	for _, m := range []mode{modes[0], modes[3]} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			test(newInbox(newShop(t, m, url, Options{}), 3))
		})
	}
}

func newInbox(s *shop, attempts int) *inbox {
	s.t.Helper()
	b := &inbox{shop: s}
	onLost := driver.Rerun
	if s.oneCommit {
		onLost = driver.Hold // it does not matter
	}
	var err error
	b.Consumer, err = consumer.New(s.guardWith(onLost, semel.Options{Policy: s.policy(), RequestLife: 2 * time.Second}), "orders", consumer.Options{
		MaxAttempts: attempts, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
		DeadLetter: func(_ context.Context, _ consumer.Message, reason error) error {
			b.dead = append(b.dead, reason)
			return nil
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

func (b *inbox) deliver(id string, deliveries int) consumer.Result {
	m := consumer.Message{ID: id, Payload: []byte(id), Deliveries: deliveries}
	return Inbox(context.Background(), b.Consumer, b.store, m, func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		b.runs.Add(1)
		if err := b.order(ctx, tx, string(m.Payload)); err != nil {
			return err
		}
		return b.fail
	})
}

func (b *inbox) want(r consumer.Result, o consumer.Outcome, orders int64) {
	b.t.Helper()
	if n := b.orders(); r.Outcome != o || n != orders {
		b.t.Errorf("%v with %d orders (%v); want %v with %d", r.Outcome, n, r.Err, o, orders)
	}
}

func TestR81_EffectAndMarkCommitTogether(t *testing.T) {
	t.Parallel()
	eachInbox(t, server.URL(), func(b *inbox) {
		b.fail = errors.New("out of hats")
		b.want(b.deliver("m1", 1), consumer.Failed, 0)
		b.fail = nil
		b.want(b.deliver("m1", 2), consumer.Done, 1)
		b.want(b.deliver("m1", 3), consumer.Duplicate, 1)
		b.want(b.deliver("m2", 0), consumer.Done, 2)
		if b.runs.Load() != 3 || len(b.dead) != 0 {
			b.t.Errorf("%d runs, dead: %v", b.runs.Load(), b.dead)
		}
		b.idle()
	})
}

// Nothing of a failed run is committed, but it counts; also if the broker does not say how often it has delivered.
func TestR81_RunsThatAreRolledBackCount(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{true, false} {
		eachInbox(t, server.URL(), func(b *inbox) {
			b.fail = errors.New("out of hats")
			for i, want := range []consumer.Outcome{consumer.Failed, consumer.Failed, consumer.Dead, consumer.Dead} {
				deliveries := 0
				if told {
					deliveries = i + 1
				}
				b.want(b.deliver("m1", deliveries), want, 0)
			}
			b.fail = semel.Final(b.fail)
			b.want(b.deliver("m2", 0), consumer.Dead, 0)
			if b.runs.Load() != 4 || len(b.dead) != 2 || b.dead[0].Error() != "out of hats" {
				b.t.Errorf("%d runs, dead: %v", b.runs.Load(), b.dead)
			}
			b.idle()
		})
	}
}

// A clock that is set back makes no handled message new, and keeps none from being handled.
func TestR81_TheDatabasesClockIsSetBack(t *testing.T) {
	t.Parallel()
	eachInbox(t, server.URL(), func(b *inbox) {
		clock := mover{pool: b.app}
		b.fail = errors.New("out of hats")
		b.want(b.deliver("m1", 1), consumer.Failed, 0)
		b.want(b.deliver("m2", 1), consumer.Failed, 0)
		b.fail = nil
		b.want(b.deliver("m1", 2), consumer.Done, 1)
		clock.advance(b.store.schema, -time.Hour)
		b.want(b.deliver("m1", 3), consumer.Duplicate, 1)
		b.want(b.deliver("m2", 2), consumer.Done, 2)
		b.want(b.deliver("m3", 1), consumer.Done, 3)
		b.want(b.deliver("m3", 2), consumer.Duplicate, 3)
		b.idle()
	})
}

// A statement that fails spoils the transaction, and not the message's record.
func TestR81_AHandlerWhoseStatementFailsCounts(t *testing.T) {
	t.Parallel()
	eachInbox(t, server.URL(), func(b *inbox) {
		b.want(b.deliver("same", 0), consumer.Done, 1)
		exec(b.t, b.store, "CREATE UNIQUE INDEX one_of_each ON {schema}.orders (item)")
		for i, want := range []consumer.Outcome{consumer.Failed, consumer.Failed, consumer.Dead} {
			r := Inbox(context.Background(), b.Consumer, b.store, consumer.Message{ID: "m2", Deliveries: i + 1}, func(ctx context.Context, tx pgx.Tx, _ consumer.Message) error {
				return b.order(ctx, tx, "same")
			})
			b.want(r, want, 1)
		}
		b.idle()
	})
}

// The connection is cut at each statement of a message, before and after the server has executed it. The message is
// delivered until it is handled: it has its effect once.
func TestR81_Case33_CutAtAnyStatementAMessageHasItsEffectOnce(t *testing.T) {
	t.Parallel()
	for _, executed := range []bool{false, true} {
		for _, m := range []mode{modes[0], modes[3]} {
			t.Run(fmt.Sprintf("%s, executed %t", m.name, executed), func(t *testing.T) {
				t.Parallel()
				cutter, url := newCutter(t, server.URL())
				s := newShop(t, m, url, Options{})
				direct := &shop{mode: m, t: t, app: newPool(t, server.URL())}
				direct.store = openOn(t, direct.app, Options{Schema: s.store.schema})
				clock := mover{pool: direct.app}
				b := newInbox(s, 100)
				b.deliver("first", 1) // connections are open, statements prepared
				cuts := 0
				for n := int64(1); ; n++ {
					id := fmt.Sprint("m", n)
					c := &cut{gone: make(chan string)}
					c.batches.Store(n)
					c.ready, c.commit = func() {}, executed
					cutter.armed.Store(c)
					r := b.deliver(id, 1)
					missed := cutter.armed.Swap(nil) != nil
					for i := 2; r.Action != consumer.Ack; i++ {
						if i > 100 || r.Action == consumer.Term {
							t.Fatalf("cut at batch %d: delivery %d: %+v", n, i, r)
						}
						if r.Outcome == consumer.Busy { // a run that nobody has ended is over with its lease
							clock.advance(s.store.schema, 31*time.Second)
						}
						r = b.deliver(id, i)
					}
					if got := direct.ordered(id); got != 1 {
						t.Fatalf("cut at batch %d: %d effects", n, got)
					}
					if missed {
						break
					}
					cuts++
				}
				if cuts < 4 {
					t.Errorf("only %d statements were cut off", cuts)
				}
			})
		}
	}
}

func (s *shop) ordered(item string) int64 {
	s.t.Helper()
	return value[int64](s.t, s.store, "SELECT count(*) FROM {schema}.orders WHERE item = $1", item)
}
