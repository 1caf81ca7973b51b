package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/examples/shop/database"
	"github.com/semelhq/semel/examples/shop/shop"
)

var scenes = [...]scene{
	{"A double click", "The same payment arrives twice at once, at both instances.", doubleClick},
	{"A lost answer", "The card is charged. The answer is lost on its way to the shop, then on its way to the client.", lostAnswer},
	{"A process killed in the middle of a payment", "It dies right after the card was charged. Another instance takes the payment over.", killed},
	{"Forty customers and ten items", "All order at once. Each who gets one pays.", oversell},
	{"A message delivered twice", "The broker delivers again what the shop has handled.", deliveredTwice},
	{"A parcel that nobody delivers", "The order is paid when the carrier refuses its address. A saga takes back what was done.", compensated},
}

func doubleClick(ctx context.Context, a *act) {
	if !a.did(a.faults(ctx, map[string]any{"delay_ms": 300})) {
		return
	}
	defer a.heal(ctx)
	r := a.payment(4900)
	r.key = a.key("click")
	a.sent(r, "2 × ")
	replies := make([]reply, 2)
	var both sync.WaitGroup
	for i := range replies {
		both.Go(func() { replies[i] = a.send(ctx, i, r) })
	}
	both.Wait()
	made := 0
	var first reply
	for _, got := range replies {
		a.got(got)
		if got.status == http.StatusCreated && !got.replayed() {
			made++
			first = got
		}
	}
	again := a.send(ctx, 1, r)
	a.note("the one that was sent away asks again:")
	a.got(again)
	a.check(made == 1, "one of the two made the payment")
	a.check(again.replayed() && string(again.body) == string(first.body), "the other one gets the same answer, byte by byte")
	a.judge(ctx, "1 charge, 49.00 EUR")
}

func lostAnswer(ctx context.Context, a *act) {
	if !a.did(a.faults(ctx, map[string]any{"lose_answer": map[string]int{"next": 1}})) {
		return
	}
	defer a.heal(ctx)
	r := a.payment(1290)
	r.key = a.key("lost")
	a.sent(r, "")
	got := a.insist(ctx, &lossy{lose: 1}, r, a.attempts())
	a.check(got.status == http.StatusCreated && got.replayed(), "the client has got the answer that was lost: it is marked Idempotent-Replayed")
	a.judge(ctx, "1 charge, 12.90 EUR")
}

func killed(ctx context.Context, a *act) {
	victim, err := a.instance(ctx, "--crash-at", "payments.process.charged")
	if !a.did(err) {
		return
	}
	defer victim.end()
	r := a.payment(2450)
	r.key = a.key("killed")
	a.sent(r, "")
	got := a.insist(ctx, &balancer{urls: []string{victim.url, a.host.URLs[0]}}, r, a.attempts())
	a.note("the first attempt was at an instance that killed itself (SIGKILL) when the card was charged;")
	a.note("its lease was over after %v (30 s by default), and another instance went on", lease)
	a.check(victim.died(ctx), "the instance is dead")
	a.check(got.status == http.StatusCreated, "the client has its answer: %d", got.status)
	a.judge(ctx, "1 charge, 24.50 EUR")
}

func oversell(ctx context.Context, a *act) {
	const customers, items = 40, 10
	product := "last-" + a.run
	err := a.host.DB().Write(ctx, func(tx database.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO products (id, name, price, stock) VALUES ($1, $2, $3, $4)", product, "The last ones", 990, items)
		return err
	})
	if !a.did(err) {
		return
	}
	r := request{path: "/orders", key: a.key("order"), body: shop.NewOrder{Lines: []shop.Line{{Product: product, Quantity: 1}}}}
	a.sent(r, fmt.Sprintf("%d × ", customers))
	var sold, soldOut, paid atomic.Int64
	var all sync.WaitGroup
	for n := range customers {
		all.Go(func() {
			order := r
			order.user = fmt.Sprint("customer-", n)
			got := a.send(ctx, n%2, order)
			if got.code() == "out_of_stock" {
				soldOut.Add(1)
			}
			if got.status != http.StatusCreated {
				return
			}
			sold.Add(1)
			var made shop.Order
			if json.Unmarshal(got.body, &made) != nil {
				return
			}
			pay := a.payment(made.Total)
			pay.user, pay.key = order.user, a.key("pay")
			pay.body.(map[string]any)["order"] = made.ID
			if a.insist(ctx, http.DefaultTransport, pay, nil).status == http.StatusCreated {
				paid.Add(1)
			}
		})
	}
	all.Wait()
	a.printf("   ← %2d × 201 Created\n   ← %2d × 409 out_of_stock\n", sold.Load(), soldOut.Load())
	var stock int64
	if !a.did(a.host.DB().QueryRow(ctx, "SELECT stock FROM products WHERE id = $1", product).Scan(&stock)) {
		return
	}
	a.check(sold.Load() == items && soldOut.Load() == customers-items && paid.Load() == items && stock == 0, "%d orders for %d items, %d are left", sold.Load(), items, stock)
	a.judge(ctx, "10 charges, 99.00 EUR")
}

func deliveredTwice(ctx context.Context, a *act) {
	r := a.payment(190)
	r.key = a.key("message")
	a.sent(r, "")
	got := a.send(ctx, 0, r)
	a.got(got)
	var payment shop.Payment
	if !a.did(json.Unmarshal(got.body, &payment)) {
		return
	}
	if !a.did(until(ctx, func() (bool, error) {
		mails, invoices, err := a.handled(ctx, payment.ID)
		return mails > 0 && invoices > 0 && a.hooks.of(payment.ID) > 0, err
	})) {
		return
	}
	last, err := a.count(ctx, shop.PaymentCompleted)
	if !a.did(err) || !a.did(a.redeliver(ctx, "shop", shop.PaymentCompleted, []int{last - 1, last - 1, last - 1}, "email", "invoice")) {
		return
	}
	a.note("the broker has delivered payment.completed four times")
	mails, invoices, err := a.handled(ctx, payment.ID)
	a.check(err == nil && mails == 1 && invoices == 1, "%s, %s, %s", plural(mails, "mail"), plural(invoices, "invoice"), plural(a.hooks.of(payment.ID), "signed webhook"))
	a.judge(ctx, "1 charge, 1.90 EUR")
}

func compensated(ctx context.Context, a *act) {
	order := a.send(ctx, 0, request{path: "/orders", key: a.key("parcel"), user: "alice", body: shop.NewOrder{Lines: []shop.Line{{Product: "book-1", Quantity: 1}}}})
	a.printf("   → POST /api/v1/orders\n")
	a.got(order)
	path := strings.TrimPrefix(order.header.Get("Location"), "/api/v1") + "/place"
	place := request{method: http.MethodPost, path: path, user: "alice", body: map[string]any{"card": a.card, "country": "DE", "address": "PO box 12"}}
	a.sent(place, "")
	begun := a.send(ctx, 1, place)
	a.got(begun)
	var saga struct{ State, Order, Failed, Reason string }
	at := request{path: strings.TrimPrefix(begun.header.Get("Location"), "/api/v1"), user: "alice"}
	if begun.status != http.StatusAccepted || !a.did(until(ctx, func() (bool, error) {
		err := json.Unmarshal(a.send(ctx, 0, at).body, &saga)
		return saga.State != "running" && saga.State != "compensating", err
	})) {
		a.check(false, "the saga has begun")
		return
	}
	a.note("%s: %s", saga.Failed, saga.Reason)
	a.check(saga.State == "compensated" && saga.Order == "refunded", "the saga is %s, the order is %s", saga.State, saga.Order)
	a.judge(ctx, "1 charge, 24.50 EUR; 1 refund, 24.50 EUR")
}

// heal ends the card processor's faults.
func (a *act) heal(ctx context.Context) { a.did(a.faults(ctx, nil)) }

// attempts tells what became of the attempts of package client; what is answered again and again is told once.
func (a *act) attempts() func(client.Attempt) {
	before := -1
	return func(t client.Attempt) {
		switch {
		case t.Status == before:
		case t.Err != nil:
			a.printf("   ← attempt %d: no answer\n", t.Number)
		case t.Again:
			a.printf("   ← attempt %d: %d %s; the client asks again\n", t.Number, t.Status, http.StatusText(t.Status))
		default:
			a.printf("   ← attempt %d: %d %s\n", t.Number, t.Status, http.StatusText(t.Status))
		}
		before = t.Status
	}
}

// handled counts what the consumers have made of a payment's messages.
func (a *act) handled(ctx context.Context, payment string) (mails, invoices int, err error) {
	err = a.host.DB().QueryRow(ctx, "SELECT (SELECT COUNT(*) FROM emails WHERE message IN (SELECT message FROM invoices WHERE payment = $1)), (SELECT COUNT(*) FROM invoices WHERE payment = $1)", payment).
		Scan(&mails, &invoices)
	return mails, invoices, err
}

// count returns how many messages of a subject there are.
func (a *act) count(ctx context.Context, subject string) (int, error) {
	stream, err := a.host.Broker.Stream(ctx, "shop")
	if err != nil {
		return 0, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return 0, err
	}
	return int(info.State.Subjects[subject]), nil
}

// An instance is a shop in a process of its own, on the demo's data.
type instance struct {
	url   string
	cmd   *exec.Cmd
	ended chan struct{}
}

func (s *stage) instance(ctx context.Context, flags ...string) (*instance, error) {
	args := []string{"serve", "--data", s.data, "--nats", s.host.NATS, "--processor", s.host.Processor, "--listen", "localhost:0", "--lease", lease.String()}
	return start(s, exec.CommandContext(ctx, s.config.Self, append(args, flags...)...))
}

// start starts a process that says where it serves.
func start(s *stage, cmd *exec.Cmd) (*instance, error) {
	i := &instance{cmd: cmd, ended: make(chan struct{})}
	i.cmd.Stderr = s.log
	out, err := i.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := i.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start an instance: %w", err)
	}
	lines := bufio.NewScanner(out)
	for i.url == "" && lines.Scan() {
		i.url, _ = strings.CutPrefix(lines.Text(), "serving at ")
	}
	go func() {
		for lines.Scan() { // until it has ended
		}
		i.cmd.Wait() //nolint:errcheck // it is killed
		close(i.ended)
	}()
	if i.url == "" {
		i.end()
		return nil, errors.New("start an instance: it does not serve")
	}
	return i, nil
}

// died waits for the end of the process.
func (i *instance) died(ctx context.Context) bool {
	select {
	case <-i.ended:
		return true
	case <-ctx.Done():
		return false
	}
}

func (i *instance) end() {
	i.cmd.Process.Kill() //nolint:errcheck // it may have ended
	<-i.ended
}
