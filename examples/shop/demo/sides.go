package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/semelhq/semel/examples/shop/demo/naive"
	"github.com/semelhq/semel/examples/shop/processor"
	"github.com/semelhq/semel/examples/shop/shop"
)

// semelSide is the shop, and package client.
type semelSide struct{ *stage }

func (s *semelSide) name() string { return "with" }
func (s *semelSide) url() string  { return s.host.URLs[0] }

func (s *semelSide) pay(ctx context.Context, by http.RoundTripper, url, card string, goesAway bool) bool {
	r := request{path: "/payments/process", key: card, user: "alice", body: map[string]any{"amount": 100, "currency": "EUR", "card": card}}
	if goesAway {
		return s.sendBy(ctx, by, url, r).status == http.StatusCreated
	}
	return s.insistAt(ctx, by, url, r, nil).status == http.StatusCreated
}

func (s *semelSide) doomed(ctx context.Context) (*instance, error) {
	return s.instance(ctx, "--crash-at", "payments.process.charged")
}

func (s *semelSide) paid(ctx context.Context) (map[string]bool, error) {
	entries, err := s.entries(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := s.host.DB().Query(ctx, "SELECT id FROM payments WHERE state = 'paid'")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	known := map[string]bool{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		known[id] = true
	}
	cards := map[string]bool{}
	for _, e := range entries {
		if e.Kind == processor.Charge && known[e.Reference] {
			cards[e.Card] = true
		}
	}
	return cards, rows.Err()
}

func (s *semelSide) deliverAgain(ctx context.Context, which []int) error {
	return s.redeliver(ctx, "shop", shop.PaymentCompleted, which, "email", "invoice")
}

func (s *semelSide) mails(ctx context.Context) (all, distinct int, err error) {
	err = s.host.DB().QueryRow(ctx, "SELECT COUNT(*), COUNT(DISTINCT message) FROM emails").Scan(&all, &distinct)
	return all, distinct, err
}

// edit is what a good client does: after a 412 it reads the order again, and makes its change in that.
func (s *semelSide) edit(ctx context.Context, n int) (bool, error) {
	made := s.insist(ctx, http.DefaultTransport, request{path: "/orders", key: fmt.Sprint("edited-", s.run, "-", n), user: "alice", body: lines(1)}, nil)
	var o shop.Order
	if made.status != http.StatusCreated {
		return false, fmt.Errorf("make an order: %v %w", made, made.err)
	}
	if err := json.Unmarshal(made.body, &o); err != nil {
		return false, err
	}
	path := "/orders/" + o.ID
	read := func() (etag string, err error) {
		found := s.send(ctx, 0, request{path: path, user: "alice"})
		return found.header.Get("ETag"), errors.Join(found.err, json.Unmarshal(found.body, &o))
	}
	write := func(etag string, change func(*shop.NewOrder)) error {
		for range 3 {
			want := shop.NewOrder{Lines: o.Lines, Note: o.Note}
			change(&want)
			got := s.send(ctx, 1, request{method: http.MethodPut, path: path, user: "alice", body: want, header: http.Header{"If-Match": {etag}}})
			if got.status == http.StatusOK {
				return nil
			}
			if got.status != http.StatusPreconditionFailed {
				return fmt.Errorf("change an order: %v %w", got, got.err)
			}
			var err error
			if etag, err = read(); err != nil {
				return err
			}
		}
		return errors.New("change an order: it is always another one")
	}
	etag, err := read()
	if err != nil {
		return false, err
	}
	seen := o
	if err := write(etag, func(w *shop.NewOrder) { w.Lines = lines(2).Lines }); err != nil {
		return false, err
	}
	o = seen // that is what the other editor has on the screen
	if err := write(etag, func(w *shop.NewOrder) { w.Note = "a present" }); err != nil {
		return false, err
	}
	_, err = read()
	return o.Lines[0].Quantity == 2 && o.Note == "a present", err
}

func lines(quantity int64) shop.NewOrder {
	return shop.NewOrder{Lines: []shop.Line{{Product: "pen-1", Quantity: quantity}}}
}

// naiveSide is the shop of package naive, and a client that tries up to three times.
type naiveSide struct {
	*stage
	shop *naive.Shop
	at   string
	end  func() error
}

func newNaiveSide(ctx context.Context, s *stage) (_ *naiveSide, err error) {
	n := &naiveSide{stage: s}
	if n.shop, err = naive.Open(ctx, naive.Options{Database: s.naiveFile(), Processor: s.host.Processor, Broker: s.host.Broker}); err != nil {
		return nil, err
	}
	address, closeServer, err := serve(n.shop)
	if err != nil {
		return nil, errors.Join(err, n.shop.DB.Close())
	}
	consuming, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- n.shop.Consume(consuming) }()
	n.at, n.end = address, func() error {
		err := closeServer()
		stop()
		return errors.Join(err, <-ended, n.shop.DB.Close())
	}
	return n, nil
}

func (s *stage) naiveFile() string { return filepath.Join(s.data, "naive.db") }

func (n *naiveSide) close() error { return n.end() }
func (n *naiveSide) name() string { return "without" }
func (n *naiveSide) url() string  { return n.at }

func (n *naiveSide) pay(ctx context.Context, by http.RoundTripper, url, card string, goesAway bool) bool {
	tries := 3
	if goesAway {
		tries = 1
	}
	for try := range tries {
		if try > 0 {
			time.Sleep(100*time.Millisecond<<(try-1) + rand.N(50*time.Millisecond))
		}
		status, err := n.call(ctx, by, http.MethodPost, url+"/payments", naive.Payment{Amount: 100, Currency: "EUR", Card: card}, nil)
		if err == nil {
			return status == http.StatusCreated
		}
	}
	return false
}

func (n *naiveSide) call(ctx context.Context, by http.RoundTripper, method, url string, body, into any) (status int, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := by.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	answer, err := io.ReadAll(res.Body)
	if err == nil && into != nil {
		err = json.Unmarshal(answer, into)
	}
	return res.StatusCode, err
}

func (n *naiveSide) doomed(ctx context.Context) (*instance, error) {
	return start(n.stage, exec.CommandContext(ctx, n.config.Self, "naive", "--database", n.naiveFile(), "--processor", n.host.Processor, "--nats", n.host.NATS, "--crash"))
}

func (n *naiveSide) paid(ctx context.Context) (map[string]bool, error) {
	rows, err := n.shop.DB.QueryContext(ctx, "SELECT card FROM payments")
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err tells what is wrong with them
	cards := map[string]bool{}
	for rows.Next() {
		var card string
		if err := rows.Scan(&card); err != nil {
			return nil, err
		}
		cards[card] = true
	}
	return cards, rows.Err()
}

func (n *naiveSide) deliverAgain(ctx context.Context, which []int) error {
	return n.redeliver(ctx, naive.Stream, naive.Subject, which, "email")
}

func (n *naiveSide) mails(ctx context.Context) (all, distinct int, err error) {
	err = n.shop.DB.QueryRowContext(ctx, "SELECT COUNT(*), COUNT(DISTINCT payment) FROM emails").Scan(&all, &distinct)
	return all, distinct, err
}

func (n *naiveSide) edit(ctx context.Context, _ int) (bool, error) {
	var o naive.Order
	call := func(method, path string, body naive.Order, into any) error {
		_, err := n.call(ctx, http.DefaultTransport, method, n.at+path, body, into)
		return err
	}
	if err := call(http.MethodPost, "/orders", naive.Order{Quantity: 1}, &o); err != nil {
		return false, err
	}
	path := "/orders/" + o.ID
	first, second := o, o // both have read it
	first.Quantity, second.Note = 2, "a present"
	err := errors.Join(call(http.MethodPut, path, first, nil), call(http.MethodPut, path, second, nil), call(http.MethodGet, path, naive.Order{}, &o))
	return o.Quantity == 2 && o.Note == "a present", err
}

// forgetIDs gives a stream a short window, so that the broker soon recognises nothing that it is sent again. It is set
// twice: nats-server 2.15 looks which ids are old as soon as the window changes, but one look of a hundred is still by
// the old window, after which there is none for two minutes.
func forgetIDs(ctx context.Context, broker jetstream.JetStream, stream jetstream.Stream) (_ jetstream.Stream, err error) {
	c := stream.CachedInfo().Config
	for _, c.Duplicates = range []time.Duration{100 * time.Millisecond, 101 * time.Millisecond} {
		if stream, err = broker.UpdateStream(ctx, c); err != nil {
			return nil, err
		}
	}
	return stream, nil
}

// redeliver has the broker deliver some messages of a subject again, and waits until consumers have acknowledged all.
func (s *stage) redeliver(ctx context.Context, name, subject string, which []int, consumers ...string) error {
	stream, err := s.host.Broker.Stream(ctx, name)
	if err != nil {
		return err
	}
	if stream, err = forgetIDs(ctx, s.host.Broker, stream); err != nil {
		return err
	}
	var all []*nats.Msg
	for next := uint64(1); ; {
		m, err := stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return err
		}
		all = append(all, &nats.Msg{Subject: m.Subject, Data: m.Data, Header: m.Header})
		next = m.Sequence + 1
	}
	var last uint64
	for _, n := range which {
		if n >= len(all) {
			return fmt.Errorf("there are %d messages of %s, and not %d", len(all), subject, n+1)
		}
		for sent := false; !sent; {
			ack, err := s.host.Broker.PublishMsg(ctx, all[n])
			if err != nil {
				return err
			}
			sent, last = !ack.Duplicate, ack.Sequence
		}
	}
	return until(ctx, func() (bool, error) {
		for _, consumer := range consumers {
			c, err := s.host.Broker.Consumer(ctx, name, consumer)
			if err != nil || c.CachedInfo().AckFloor.Stream < last {
				return false, err
			}
		}
		return true, nil
	})
}
