package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/examples/shop/database"
	"github.com/semelhq/semel/examples/shop/host"
	"github.com/semelhq/semel/examples/shop/shop"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/outbox/webhook"
)

func TestR80_EachConsumerHandlesAMessageOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		stream := s.consuming()
		c := stream.CachedInfo().Config
		c.Duplicates = 100 * time.Millisecond // so that the broker takes a message again
		_, err := s.host.Broker.UpdateStream(t.Context(), c)
		must(t, err)
		s.order()
		s.pay("payment-1", 4900)
		s.eventually("mails: 2, invoices: 1", s.handled)
		for n := uint64(1); n <= 2; n++ {
			sent, err := stream.GetMsg(t.Context(), n)
			must(t, err)
			again := &nats.Msg{Subject: sent.Subject, Data: sent.Data, Header: sent.Header}
			for copies := 0; copies < 3; {
				ack, err := s.host.Broker.PublishMsg(t.Context(), again)
				must(t, err)
				if !ack.Duplicate {
					copies++
				}
			}
		}
		s.pay("payment-2", 100)
		s.eventually("mails: 3, invoices: 2", s.handled)
		s.eventually("nothing", s.waiting)
		if got := s.handled(); got != "mails: 3, invoices: 2" {
			t.Fatal(got)
		}
		files, err := os.ReadDir(filepath.Join(s.data, "mail"))
		if must(t, err); len(files) != 3 {
			t.Fatalf("%d files of mails, want 3", len(files))
		}
	})
}

func TestAMessageThatNobodyCanHandleIsADeadLetter(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *stage) {
		s.consuming()
		good, err := json.Marshal(shop.Event{Type: shop.PaymentCompleted, Tenant: "acme", ID: "payment-1"})
		must(t, err)
		for id, payload := range map[string]string{uuid.NewString(): "no JSON\x00\xff", uuid.NewString(): `{"type":"order.placed","tenant":"acme","id":"1"}`, "../../mail": string(good)} {
			m := &nats.Msg{Subject: shop.PaymentCompleted, Data: []byte(payload), Header: nats.Header{"Tenant": {"acme"}}}
			_, err := s.host.Broker.PublishMsg(t.Context(), m, jetstream.WithMsgID(id))
			must(t, err)
		}
		s.pay("payment-2", 100)
		s.eventually("mails: 1, invoices: 1", s.handled)
		letters := func(tenant string) (all struct{ Letters []shop.DeadLetter }) {
			token, err := s.host.Keys.Token(tenant, "alice", time.Hour)
			must(t, err)
			r := s.call(0, "GET", "/dead-letters", "", nil, http.Header{"Authorization": {"Bearer " + token}})
			must(t, json.Unmarshal(r.Body, &all))
			return all
		}
		s.eventually("6 dead letters", func() string { return fmt.Sprint(len(letters("acme").Letters), " dead letters") })
		for _, l := range letters("acme").Letters {
			if l.Topic != shop.PaymentCompleted || l.Payload == "" || !strings.Contains(l.Reason, "read the event: ") || l.Consumer != "email" && l.Consumer != "invoice" {
				t.Errorf("%+v", l)
			}
		}
		if other := letters("globex").Letters; len(other) != 0 {
			t.Errorf("another tenant sees %v", other)
		}
	})
}

// The command semel looks only into files that others can't read.
func TestTheDatabaseIsItsOwnersAlone(t *testing.T) {
	t.Parallel()
	s := newStage(t, host.Config{})
	s.order()
	for _, name := range []string{"shop.db", "shop.db-wal", "keys.json"} {
		if info, err := os.Stat(filepath.Join(s.data, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestNoMessageIsLostWhenTheBrokerIsRestarted(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c host.Config) {
		var restart func()
		c.NATS, restart = newRestartableNATS(t)
		c.Lease = 2 * time.Second // after so long the broker misses an acknowledgement that was lost
		s := newStage(t, c)
		s.consuming()
		for n := range 30 {
			s.pay(fmt.Sprint("payment-", n), 100)
			if n%10 == 5 {
				restart()
			}
		}
		s.eventually("mails: 30, invoices: 30", s.handled)
		s.eventually("nothing", s.waiting)
		var last int64
		must(t, s.host.DB().QueryRow(t.Context(), "SELECT MAX(number) FROM invoices").Scan(&last))
		if got := s.handled(); got != "mails: 30, invoices: 30" || last != 30 {
			t.Fatalf("%s, the last has the number %d", got, last)
		}
	})
}

// The process that handles or sends a message dies: before it has committed, when it has, and when the broker has the
// message.
func TestAMessageIsHandledOnceThoughItsProcessDies(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"messages.email.handled", "messages.email.committed", "messages.invoice.handled", "messages.invoice.committed", "messages.published"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, c host.Config) {
				c.Instances, c.NATS, c.Lease = 1, newNATS(t), 2*time.Second
				s := newStage(t, c)
				p := s.newProcess(t, point)
				s.urls = append(s.urls, p.url)
				s.consuming()
				paid := 0
				s.eventually("dead", func() string {
					paid++
					s.pay(fmt.Sprint("payment-", paid), 100)
					return map[bool]string{true: "dead"}[p.dead()]
				})
				want := fmt.Sprintf("mails: %d, invoices: %d", paid, paid)
				s.eventually(want, s.handled)
				s.eventually("nothing", s.waiting)
				if got := s.handled(); got != want {
					t.Fatalf("%s, want %s", got, want)
				}
				if files, err := os.ReadDir(filepath.Join(s.data, "mail")); err != nil || len(files) != paid {
					t.Fatalf("%d files of mails, want %d, %v", len(files), paid, err)
				}
			})
		})
	}
}

func TestR83_ASubscriberIsToldOnceThatAPaymentHasCompleted(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c host.Config) {
		var s *stage
		guard, err := semel.New(memstore.New(), semel.ScopeFunc(webhook.Scope), semel.Rerun, semel.Options{IdentitySecret: make([]byte, 16)})
		must(t, err)
		receiver, err := webhook.NewReceiver(guard, func(*http.Request) (webhook.Source, error) {
			return webhook.Source{Name: "shop", Secrets: []string{s.host.Keys.Webhook}}, nil
		}, webhook.ReceiverOptions{})
		must(t, err)
		var deliveries atomic.Int64
		told := make(chan shop.Event, 10)
		h := receiver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var e shop.Event
			if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
				t.Error(err)
			}
			told <- e
			w.WriteHeader(http.StatusNoContent)
		}))
		subscriber := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if deliveries.Add(1) == 1 { // it is handled, and the answer is lost
				h.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
			h.ServeHTTP(w, r)
		}))
		defer subscriber.Close()
		c.Webhook = subscriber.URL
		s = newStage(t, c)
		p := s.charge(t)
		select {
		case e := <-told:
			if e.Type != shop.PaymentCompleted || e.ID != p.ID || e.Amount != p.Amount || e.Tenant != "acme" {
				t.Errorf("%+v", e)
			}
		case <-time.After(time.Minute):
			t.Fatal("the subscriber was not told")
		}
		s.eventually("nothing", s.waiting)
		if len(told) != 0 || deliveries.Load() != 2 {
			t.Errorf("told %d times more, delivered %d times, want 0 and 2", len(told), deliveries.Load())
		}
	})
}

// waiting says what the outbox and the broker have that is not handled yet.
func (s *stage) waiting() string {
	stats, err := s.host.DB().Outbox.Stats(s.t.Context())
	must(s.t, err)
	if stats.Pending > 0 || stats.Dead > 0 {
		return fmt.Sprintf("%d in the outbox, %d dead", stats.Pending, stats.Dead)
	}
	for _, name := range []string{"email", "invoice"} {
		c, err := s.host.Broker.Consumer(s.t.Context(), "shop", name)
		must(s.t, err)
		if i := c.CachedInfo(); i.NumPending > 0 || i.NumAckPending > 0 {
			return fmt.Sprintf("%d to be delivered and %d to be acknowledged by %s", i.NumPending, i.NumAckPending, name)
		}
	}
	return "nothing"
}

// consuming waits until both consumers of all instances wait for messages.
func (s *stage) consuming() jetstream.Stream {
	s.t.Helper()
	var stream jetstream.Stream
	s.eventually("consuming", func() string {
		for _, name := range []string{"email", "invoice"} {
			c, err := s.host.Broker.Consumer(s.t.Context(), "shop", name)
			if err != nil {
				return err.Error()
			}
			if c.CachedInfo().NumWaiting < len(s.urls) {
				return fmt.Sprint(name, " has ", c.CachedInfo().NumWaiting, " instances")
			}
		}
		return "consuming"
	})
	stream, err := s.host.Broker.Stream(s.t.Context(), "shop")
	must(s.t, err)
	return stream
}

// order makes an order.
func (s *stage) order() {
	s.t.Helper()
	if r := s.call(0, "POST", "/orders", s.newKey(), `{"lines":[{"product":"pen-1","quantity":1}]}`, nil); r.Status != http.StatusCreated {
		s.t.Fatal(r)
	}
}

// pay adds the message of a payment to the outbox.
func (s *stage) pay(id string, amount int64) {
	s.t.Helper()
	payload, err := json.Marshal(shop.Event{Type: shop.PaymentCompleted, Tenant: "acme", User: "alice", ID: id, Amount: amount, Currency: "EUR"})
	must(s.t, err)
	db := s.host.DB()
	must(s.t, db.Write(s.t.Context(), func(tx database.Tx) error {
		return db.Send(s.t.Context(), tx, outbox.Message{Topic: shop.PaymentCompleted, Key: id, Tenant: "acme", Payload: payload})
	}))
}

// handled counts what the consumers have done.
func (s *stage) handled() string {
	var mails, invoices int
	must(s.t, s.host.DB().QueryRow(s.t.Context(), "SELECT (SELECT COUNT(*) FROM emails), (SELECT COUNT(*) FROM invoices)").Scan(&mails, &invoices))
	return fmt.Sprintf("mails: %d, invoices: %d", mails, invoices)
}

// eventually waits until look returns what is wanted, for as long as a busy machine may take.
func (s *stage) eventually(want string, look func() string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for {
		got := look()
		if got == want {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
			continue
		}
		s.t.Fatalf("%s, want %s", got, want)
	}
}
