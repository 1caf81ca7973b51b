package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/semelhq/semel/examples/shop/database"
	"github.com/semelhq/semel/examples/shop/host"
	"github.com/semelhq/semel/examples/shop/shop"
	"github.com/semelhq/semel/outbox"
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
		s.eventually("acknowledged up to 9", func() string { return fmt.Sprint("acknowledged up to ", s.acked("email")) })
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
		s.eventually("30", func() string { return fmt.Sprint(s.acked("invoice")) })
		var last int64
		must(t, s.host.DB().QueryRow(t.Context(), "SELECT MAX(number) FROM invoices").Scan(&last))
		if got := s.handled(); got != "mails: 30, invoices: 30" || last != 30 {
			t.Fatalf("%s, the last has the number %d", got, last)
		}
	})
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

// acked returns the number in the stream up to which a consumer has acknowledged all.
func (s *stage) acked(name string) uint64 {
	c, err := s.host.Broker.Consumer(s.t.Context(), "shop", name)
	must(s.t, err)
	return c.CachedInfo().AckFloor.Stream
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
