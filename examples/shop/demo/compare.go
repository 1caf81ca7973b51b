package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Comparison is the same faults, without and with semel: at the shop of package naive with a client that tries again,
// and at the shop with package client.
type Comparison struct {
	Seed  uint64 // of the choice what is hit by a fault
	SVG   string // path of a picture to write; "" means none
	Out   io.Writer
	Color bool
	Self  string // this program's executable, for the processes that are killed
}

// How much is done in each scene, and how often a fault hits it.
const (
	payments  = 40
	loseShare = 0.2 // of the answers
	kills     = 6
	proxied   = 6
	patience  = 300 * time.Millisecond // of the proxy: 3 s, scaled down by 10
	slow      = 400 * time.Millisecond // a payment behind it: 4 s, scaled down by 10
	doubled   = 12                     // messages that are delivered again
	edited    = 12                     // orders with two editors
)

// Figures are what has come out.
type Figures struct {
	Seed          uint64
	Without, With Outcome
}

// An Outcome is that of one on.
type Outcome struct {
	Duplicates      [3]int // charges beyond the first one of a payment: by a flaky network, killed processes, the proxy
	LostOrders      int    // payments that the card processor has, and the shop has not
	DoubledMessages int    // mails beyond the first one of a message
	LostUpdates     int    // changes of an order that another one has undone
	P95             time.Duration
}

func (o Outcome) charges() int { return o.Duplicates[0] + o.Duplicates[1] + o.Duplicates[2] }

func (o Outcome) wrong() int { return o.charges() + o.LostOrders + o.DoubledMessages + o.LostUpdates }

// A side is a shop and its clients.
type side interface {
	name() string
	// pay has a customer pay with a card. Its client tries again as the side's clients do, unless the customer goes
	// away after the first attempt. It reports whether the customer was told that the payment was made.
	pay(ctx context.Context, by http.RoundTripper, url, card string, goesAway bool) bool
	url() string
	// doomed starts an instance that kills itself when a card was charged.
	doomed(ctx context.Context) (*instance, error)
	// paid returns the cards of payments that the shop knows of, among those that were charged.
	paid(ctx context.Context) (map[string]bool, error)
	// deliverAgain has the broker deliver some of the messages again, and waits until all are handled.
	deliverAgain(ctx context.Context, which []int) error
	// mails counts them, and the messages that they are for.
	mails(ctx context.Context) (all, distinct int, err error)
	// edit has two editors change one order, who have both read it before. It reports whether both changes are there.
	edit(ctx context.Context, n int) (bool, error)
}

// Run plays the faults on both sides, and prints what has come of them. Its error wraps [ErrFalse] if semel has let one
// of them do harm.
func (c Comparison) Run(ctx context.Context) (err error) {
	s, err := open(ctx, Config{Once: true, Out: c.Out, Color: c.Color, Self: c.Self})
	if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	defer func() { err = errors.Join(err, s.close()) }()
	without, err := newNaiveSide(ctx, s)
	if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	defer func() { err = errors.Join(err, without.close()) }()
	c.opening(s)
	f := Figures{Seed: c.Seed}
	if f.Without, err = c.play(ctx, s, without); err == nil {
		f.With, err = c.play(ctx, s, &semelSide{s})
	}
	if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	f.print(&s.screen)
	if c.SVG != "" {
		if err := os.WriteFile(c.SVG, f.picture(), 0o644); err != nil {
			return fmt.Errorf("compare: write the picture: %w", err)
		}
	}
	if n := f.With.wrong(); n > 0 {
		return fmt.Errorf("compare: %w: %d effects with semel are wrong", ErrFalse, n)
	}
	return nil
}

func (c Comparison) opening(s *stage) {
	s.printf("%s   the same faults, without and with semel; seed %d\n\n", s.bold("shop demo --compare"), c.Seed)
	s.printf("   without   A usual shop (examples/shop/demo/naive): it checks, charges, writes in a transaction and answers.\n")
	s.printf("             Its clients try a payment up to three times if there is no answer. No keys, no versions.\n")
	s.printf("   with      This shop. Its clients are those of package client, and editors send If-Match.\n")
	s.printf("   both      The same card processor, the same broker, SQLite, this machine.\n\n")
	s.columns("   ", [][]string{
		{"flaky network", fmt.Sprintf("%d payments; %.0f %% of the answers are lost, and the client tries again", payments, 100*loseShare)},
		{"killed process", fmt.Sprintf("%d instances die (SIGKILL) right after a charge; half of the customers try again, half go away", kills)},
		{"impatient proxy", fmt.Sprintf("%d payments of %v behind a proxy that waits for %v and then tries again, once (4 s and 3 s, scaled by 10)", proxied, slow, patience)},
		{"duplicates", fmt.Sprintf("the broker delivers %d messages again", doubled)},
		{"two editors", fmt.Sprintf("%d orders; two people read each, then one changes the quantity, and one the note", edited)},
	})
	s.printf("\n")
}

func (c Comparison) play(ctx context.Context, s *stage, on side) (o Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	s.printf("   %s", s.dim("playing "+on.name()+" …"))
	defer s.printf("\n")
	scenes := []func(context.Context, *stage, side, *Outcome) error{c.flaky, c.killed, c.proxied, c.again, c.editors}
	for _, scene := range scenes {
		if err := scene(ctx, s, on, &o); err != nil {
			return o, fmt.Errorf("%s: %w", on.name(), err)
		}
		s.printf(" %s", s.mark(true))
	}
	return o, nil
}

// random returns the choices of one scene.
func (c Comparison) random(scene uint64) *rand.Rand {
	return rand.New(rand.NewPCG(c.Seed, scene*0x9e3779b97f4a7c15))
}

func (c Comparison) flaky(ctx context.Context, s *stage, on side, o *Outcome) error {
	took := make([]time.Duration, payments)
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for n := range payments {
		g.Go(func() error {
			began := time.Now()
			on.pay(inner, &unreliable{random: c.random(uint64(100 + n)), share: loseShare}, on.url(), cardOf(s, on, "flaky", n), false)
			took[n] = time.Since(began)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	slices.Sort(took)
	o.P95 = took[payments*95/100-1]
	return duplicates(ctx, s, on, "flaky", payments, &o.Duplicates[0])
}

func (c Comparison) killed(ctx context.Context, s *stage, on side, o *Outcome) error {
	goesAway := make([]bool, kills)
	for _, n := range c.random(1).Perm(kills)[:kills/2] {
		goesAway[n] = true
	}
	for n := range kills {
		victim, err := on.doomed(ctx)
		if err != nil {
			return err
		}
		on.pay(ctx, &balancer{urls: []string{victim.url, on.url()}}, on.url(), cardOf(s, on, "killed", n), goesAway[n])
		died := victim.died(ctx)
		victim.end()
		if !died {
			return errors.New("an instance lives that was to die")
		}
	}
	// A lease has to be over until another instance goes on with a payment whose customer has gone away.
	settled, cancel := context.WithTimeout(ctx, 3*lease)
	defer cancel()
	err := until(settled, func() (bool, error) {
		n, err := lost(ctx, s, on)
		o.LostOrders = n
		return n == 0, err
	})
	if err != nil && settled.Err() == nil {
		return err
	}
	return duplicates(ctx, s, on, "killed", kills, &o.Duplicates[1])
}

func (c Comparison) proxied(ctx context.Context, s *stage, on side, o *Outcome) error {
	if err := s.faults(ctx, map[string]any{"delay_ms": slow.Milliseconds()}); err != nil {
		return err
	}
	front, end, err := serve(&impatient{to: on.url()})
	if err != nil {
		return err
	}
	defer end() //nolint:errcheck // it has served
	var all sync.WaitGroup
	for n := range proxied {
		all.Go(func() { on.pay(ctx, http.DefaultTransport, front, cardOf(s, on, "proxied", n), false) })
	}
	all.Wait()
	// What the proxy has given up may still run.
	timer := time.NewTimer(2 * slow)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.faults(ctx, nil); err != nil {
		return err
	}
	return duplicates(ctx, s, on, "proxied", proxied, &o.Duplicates[2])
}

func (c Comparison) again(ctx context.Context, _ *stage, on side, o *Outcome) error {
	if err := on.deliverAgain(ctx, c.random(2).Perm(payments)[:doubled]); err != nil {
		return err
	}
	all, distinct, err := on.mails(ctx)
	o.DoubledMessages = all - distinct
	return err
}

func (c Comparison) editors(ctx context.Context, _ *stage, on side, o *Outcome) error {
	for n := range edited {
		both, err := on.edit(ctx, n)
		if err != nil {
			return err
		}
		if !both {
			o.LostUpdates++
		}
	}
	return nil
}

// cardOf names a payment: each has a card of its own.
func cardOf(s *stage, on side, scene string, n int) string {
	return fmt.Sprintf("tok_%s_%s_%s_%d", s.run, on.name(), scene, n)
}

// duplicates counts the charges beyond the first of each payment of a scene.
func duplicates(ctx context.Context, s *stage, on side, scene string, n int, more *int) error {
	entries, err := s.entries(ctx)
	if err != nil {
		return err
	}
	charged := map[string]int{}
	for _, e := range entries {
		if moves[e.Kind] == "charge" {
			charged[e.Card]++
		}
	}
	for i := range n {
		*more += max(0, charged[cardOf(s, on, scene, i)]-1)
	}
	return nil
}

// lost counts the payments of killed processes that the card processor has, and the shop has not.
func lost(ctx context.Context, s *stage, on side) (n int, err error) {
	entries, err := s.entries(ctx)
	if err != nil {
		return 0, err
	}
	paid, err := on.paid(ctx)
	if err != nil {
		return 0, err
	}
	for i := range kills {
		card := cardOf(s, on, "killed", i)
		for _, e := range entries {
			if e.Card == card && moves[e.Kind] == "charge" {
				if !paid[card] {
					n++
				}
				break
			}
		}
	}
	return n, nil
}

func (f Figures) print(s *screen) {
	number := func(n int) string { return fmt.Sprint(n) }
	rows := [][]string{
		{"", "without", "with semel"},
		{"duplicate charges", number(f.Without.charges()), number(f.With.charges())},
	}
	for i, scene := range []string{"flaky network", "killed process", "impatient proxy"} {
		rows = append(rows, []string{"  " + scene, number(f.Without.Duplicates[i]), number(f.With.Duplicates[i])})
	}
	rows = append(rows,
		[]string{"lost orders", number(f.Without.LostOrders), number(f.With.LostOrders)},
		[]string{"doubled messages", number(f.Without.DoubledMessages), number(f.With.DoubledMessages)},
		[]string{"lost updates", number(f.Without.LostUpdates), number(f.With.LostUpdates)},
		[]string{"p95 of a payment", milliseconds(f.Without.P95), milliseconds(f.With.P95)},
	)
	s.printf("\n")
	s.columns("   ", rows, 1, 2)
	s.printf("\n   A lost order was paid for, says the card processor's ledger, and the shop knows nothing of it.\n")
	s.printf("   p95 is that of the payments over the flaky network, repeats included.\n")
}

func milliseconds(d time.Duration) string { return fmt.Sprint(d.Milliseconds(), " ms") }
