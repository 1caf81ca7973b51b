package consumer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
)

var errMail = errors.New("the mail server is away")

var secret = []byte("0123456789abcdef")

// A store is a memory store that can be down, or cut off from the end of a run.
type store struct {
	*memstore.Store
	unreadable driver.ID
	mu         sync.Mutex
	down, cut  bool
}

func newStore() *store { return &store{Store: memstore.New()} }

func (s *store) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *store) fails(cut bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down || s.cut && cut {
		return errors.New("the store is down")
	}
	return nil
}

func (s *store) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	if err := s.fails(false); err != nil {
		return driver.Record{}, false, err
	}
	if id == s.unreadable {
		return driver.Record{}, false, driver.ErrUnreadable
	}
	return s.Store.Claim(ctx, id, c)
}

func (s *store) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	if err := s.fails(true); err != nil {
		return false, err
	}
	return s.Store.Extend(ctx, id, by, x)
}

func (s *store) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	if err := s.fails(true); err != nil {
		return driver.Record{}, false, err
	}
	return s.Store.Settle(ctx, id, by, o)
}

func (s *store) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if err := s.fails(false); err != nil {
		return driver.Record{}, err
	}
	return s.Store.Load(ctx, id)
}

// A seen is what an observer was told: how often each kind of event, and each result of a decision.
type seen struct {
	mu    sync.Mutex
	times map[string]int
}

func (s *seen) Observe(_ context.Context, e event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times == nil {
		s.times = map[string]int{}
	}
	s.times[string(e.Kind)+string(e.Result)]++
}

func (s *seen) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times[what]
}

func newGuard(t *testing.T, s driver.Store, p semel.Policy) (*semel.Guard, *seen) {
	t.Helper()
	seen := &seen{}
	g, err := semel.New(s, semel.SingleTenant, p.OnLost, semel.Options{Policy: p, Observer: seen, IdentitySecret: secret})
	if err != nil {
		t.Fatal(err)
	}
	return g, seen
}

func newConsumer(t *testing.T, g *semel.Guard, o consumer.Options) *consumer.Consumer {
	t.Helper()
	c, err := consumer.New(g, "email", o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// both runs a test for both policies about lost runs.
func both(t *testing.T, test func(t *testing.T, p semel.Policy)) {
	for _, p := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			test(t, semel.Policy{OnLost: p})
		})
	}
}

// A desk takes dead letters.
type desk struct {
	mu      sync.Mutex
	letters []letter
	shut    error
}

type letter struct {
	consumer.Message
	reason error
}

func (d *desk) take(_ context.Context, m consumer.Message, reason error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut != nil {
		return d.shut
	}
	d.letters = append(d.letters, letter{m, reason})
	return nil
}

// want checks that there is one letter for each reason, and nothing else.
func (d *desk) want(t *testing.T, reasons ...error) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.letters) != len(reasons) {
		t.Fatalf("%d dead letters, want %d: %v", len(d.letters), len(reasons), d.letters)
	}
	for i, l := range d.letters {
		if !errors.Is(l.reason, reasons[i]) {
			t.Errorf("letter %d: %v, want %v", i, l.reason, reasons[i])
		}
	}
}

// want checks what has become of a message. wraps is what its error wraps; nil for no error.
func want(t *testing.T, r consumer.Result, o consumer.Outcome, a consumer.Action, wraps error) {
	t.Helper()
	if r.Outcome != o || r.Action != a || (r.Err == nil) != (wraps == nil) || !errors.Is(r.Err, wraps) {
		t.Errorf("%v, %v, %v; want %v, %v, %v", r.Outcome, r.Action, r.Err, o, a, wraps)
	}
	if (r.Delay > 0) != (a == consumer.Nack) {
		t.Errorf("%v with a delay of %v", r.Action, r.Delay)
	}
}

// within checks a delay: it is shortened at random by up to a half.
func within(t *testing.T, got, most time.Duration) {
	t.Helper()
	if got < most/2 || got > most {
		t.Errorf("the delay is %v, want %v to %v", got, most/2, most)
	}
}

func message(id string) consumer.Message {
	return consumer.Message{ID: id, Payload: []byte("order 7"), Topic: "orders"}
}

// handler counts its calls, and fails with the next error of a list.
type handler struct {
	mu    sync.Mutex
	calls int
	errs  []error
}

func (h *handler) handle(context.Context, consumer.Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	if len(h.errs) == 0 {
		return nil
	}
	err := h.errs[0]
	h.errs = h.errs[1:]
	return err
}

func (h *handler) want(t *testing.T, calls int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls != calls {
		t.Errorf("the handler has run %d times, want %d", h.calls, calls)
	}
}
