package semelwatermill_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/semelwatermill"
)

type silent struct{}

func (silent) Observe(context.Context, event.Event) {}

func newConsumer(t *testing.T, o consumer.Options) *consumer.Consumer {
	t.Helper()
	g, err := semel.New(memstore.New(), semel.SingleTenant, semel.Rerun, semel.Options{Observer: silent{}})
	if err != nil {
		t.Fatal(err)
	}
	o.MinBackoff, o.MaxBackoff = time.Millisecond, time.Millisecond
	c, err := consumer.New(g, "email", o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A line is a topic of a broker in memory, with a router that reads it. The broker delivers a message again at once
// after a nack.
type line struct {
	t      *testing.T
	broker *gochannel.GoChannel
}

// newLine starts a router whose handler stands behind a middleware.
func newLine(t *testing.T, m message.HandlerMiddleware, handler message.NoPublishHandlerFunc) *line {
	t.Helper()
	l := &line{t, gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 100, BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})}
	r, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	r.AddMiddleware(m)
	r.AddConsumerHandler("email", "orders", l.broker, handler)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.Background()) }()
	<-r.Running()
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l
}

// send sends messages, and returns when all are acked.
func (l *line) send(ids ...string) {
	l.t.Helper()
	for _, id := range ids {
		if err := l.broker.Publish("orders", message.NewMessage(id, []byte("order "+id))); err != nil {
			l.t.Fatal(err)
		}
	}
}

// A record remembers what a handler was called for.
type record struct {
	mu   sync.Mutex
	list []string
}

func (l *record) add(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, s)
	return len(l.list)
}

func (l *record) want(t *testing.T, list ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.list, list) {
		t.Errorf("handled %v, want %v", l.list, list)
	}
}

func TestR80_ARouterHandlesAMessageOnce(t *testing.T) {
	t.Parallel()
	var handled record
	c := newConsumer(t, consumer.Options{})
	l := newLine(t, semelwatermill.Middleware(c.Handle, semelwatermill.Options{}), func(m *message.Message) error {
		if semel.FromContext(m.Context()).Attempt() != 1 || message.SubscribeTopicFromCtx(m.Context()) != "orders" {
			t.Error("the context is not that of the message's operation")
		}
		handled.add(m.UUID + " " + string(m.Payload))
		return nil
	})
	l.send("m1", "m2", "m1")
	handled.want(t, "m1 order m1", "m2 order m2")
}

// The deduplicator of Watermill marks a message as seen before its handler has succeeded: what fails once is lost.
func TestCase28_AMessageWhoseHandlerFailsIsNotLost(t *testing.T) {
	t.Parallel()
	c := newConsumer(t, consumer.Options{})
	for name, d := range map[string]struct {
		dedup   message.HandlerMiddleware
		effects int
	}{
		"Watermill's deduplicator": {(&middleware.Deduplicator{}).Middleware, 0},
		"semel's consumer":         {semelwatermill.Middleware(c.Handle, semelwatermill.Options{}), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tried, effects record
			l := newLine(t, d.dedup, func(m *message.Message) error {
				if tried.add(m.UUID) == 1 {
					return errors.New("the mail server is away")
				}
				effects.add(m.UUID)
				return nil
			})
			l.send("m1") // until it is acked
			if len(effects.list) != d.effects {
				t.Errorf("%d effects of a message that was acked, want %d", len(effects.list), d.effects)
			}
		})
	}
}

func TestADeadMessageIsAckedAfterItsLetter(t *testing.T) {
	t.Parallel()
	var handled, letters record
	c := newConsumer(t, consumer.Options{MaxAttempts: 2, DeadLetter: func(_ context.Context, m consumer.Message, reason error) error {
		letters.add(fmt.Sprint(m.ID, " of ", m.Topic, ": ", reason))
		return nil
	}})
	l := newLine(t, semelwatermill.Middleware(c.Handle, semelwatermill.Options{}), func(m *message.Message) error {
		handled.add(m.UUID)
		if m.UUID == "m1" {
			return errors.New("no such customer")
		}
		return nil
	})
	l.send("m1", "m2", "m1", "")
	handled.want(t, "m1", "m1", "m2")
	letters.want(t, "m1 of orders: no such customer", " of orders: the message has no id")
}

func TestAHandlerThatSpeaksToTheBrokerFails(t *testing.T) {
	t.Parallel()
	published := func(h message.NoPublishHandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) { return nil, h(m) }
	}
	for name, c := range map[string]struct {
		handler message.HandlerFunc
		want    error
	}{
		"acks":              {published(func(m *message.Message) error { m.Ack(); return nil }), semelwatermill.ErrAcked},
		"nacks":             {published(func(m *message.Message) error { m.Nack(); return nil }), semelwatermill.ErrAcked},
		"acks and fails":    {published(func(m *message.Message) error { m.Ack(); return errors.New("no") }), semelwatermill.ErrAcked},
		"returns a message": {func(m *message.Message) ([]*message.Message, error) { return message.Messages{m}, nil }, semelwatermill.ErrProduced},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newConsumer(t, consumer.Options{})
			msg := message.NewMessage("m1", nil)
			produced, err := semelwatermill.Middleware(k.Handle, semelwatermill.Options{Hold: -1})(c.handler)(msg)
			if len(produced) != 0 || !errors.Is(err, c.want) {
				t.Errorf("%d messages, %v; want %v", len(produced), err, c.want)
			}
			select {
			case <-msg.Acked():
				t.Error("the broker was told ack")
			case <-msg.Nacked():
				t.Error("the broker was told nack")
			default:
			}
		})
	}
}

func TestR82_AMessageIsHeldBeforeItIsNacked(t *testing.T) {
	t.Parallel()
	handle := func(delay time.Duration) semelwatermill.Handle {
		return func(context.Context, consumer.Message, func(context.Context, consumer.Message) error) consumer.Result {
			return consumer.Result{Outcome: consumer.Busy, Delay: delay, Err: errors.New("busy")}
		}
	}
	next := func(*message.Message) ([]*message.Message, error) { return nil, nil }
	for _, c := range []struct{ delay, hold, want time.Duration }{
		{time.Second, 0, time.Second},
		{time.Minute, 0, 5 * time.Second},
		{time.Minute, time.Hour, time.Minute},
		{time.Minute, -1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			_, err := semelwatermill.Middleware(handle(c.delay), semelwatermill.Options{Hold: c.hold})(next)(message.NewMessage("m1", nil))
			if took := time.Since(start); err == nil || !strings.Contains(err.Error(), "busy") || took != c.want {
				t.Errorf("nacked after %v with %v, want %v", took, err, c.want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := semelwatermill.Middleware(handle(time.Minute), semelwatermill.Options{})(next)(message.NewMessageWithContext(ctx, "m1", nil))
		if err == nil || time.Since(start) != time.Second {
			t.Errorf("nacked after %v, want when the router closes", time.Since(start))
		}
	})
}

func TestAnOutboxSendsThroughAPublisher(t *testing.T) {
	t.Parallel()
	broker := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 10}, watermill.NopLogger{})
	orders, err := broker.Subscribe(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	p := semelwatermill.NewPublisher(broker)
	for i, err := range p.Publish(t.Context(), []*outbox.Message{
		{ID: "m1", Topic: "orders", Key: "order-7", Payload: []byte("hello"), Headers: map[string]string{"trace": "t1"}},
		{ID: "m2", Topic: "other"},
	}) {
		if err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	got := <-orders
	got.Ack()
	want := message.Metadata{"trace": "t1", semelwatermill.KeyMetadata: "order-7"}
	if got.UUID != "m1" || string(got.Payload) != "hello" || fmt.Sprint(got.Metadata) != fmt.Sprint(want) {
		t.Errorf("got %s %s %v", got.UUID, got.Payload, got.Metadata)
	}
	if err := broker.Close(); err != nil {
		t.Fatal(err)
	}
	if errs := p.Publish(t.Context(), []*outbox.Message{{ID: "m3", Topic: "orders"}}); len(errs) != 1 || errs[0] == nil {
		t.Errorf("a closed broker took the message: %v", errs)
	}
}
