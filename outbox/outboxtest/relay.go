package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/outbox"
)

func contextEnded() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx, cancel
}

// A broker is a publisher that remembers what came, in its order.
type broker struct {
	mu     sync.Mutex
	came   []string
	within map[string]bool // with it now
	twice  []string        // that were with it twice at once

	// answer decides about a message that has come; nil acknowledges all.
	answer func(ctx context.Context, m *outbox.Message) error
}

func (b *broker) Publish(ctx context.Context, batch []*outbox.Message) []error {
	b.mu.Lock()
	if b.within == nil {
		b.within = map[string]bool{}
	}
	for _, m := range batch {
		if b.within[m.ID] {
			b.twice = append(b.twice, m.ID)
		}
		b.within[m.ID] = true
		b.came = append(b.came, m.ID)
	}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, m := range batch {
			delete(b.within, m.ID)
		}
	}()
	errs := make([]error, len(batch))
	for i, m := range batch {
		if b.answer != nil {
			errs[i] = b.answer(ctx, m)
		}
	}
	return errs
}

func (b *broker) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.came)
}

// count returns how often a message came.
func (b *broker) count(id string) (n int) {
	for _, came := range b.all() {
		if came == id {
			n++
		}
	}
	return n
}

// relays runs relays until what is returned is called, which waits for their end.
func (e *env) relays(n int, p outbox.Publisher, o outbox.RelayOptions, stores func() outbox.Store) (stop func()) {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	var all sync.WaitGroup
	for range n {
		r, err := outbox.NewRelay(stores(), p, o)
		e.must("new relay", err)
		all.Go(func() {
			if err := r.Run(ctx); err != nil {
				e.Errorf("Run: %v", err)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	e.Cleanup(stop)
	return stop
}

func (e *env) handles() outbox.Store { return e.open(outbox.Options{}).Store }

// until waits for something.
func (e *env) until(what string, is func() bool) {
	e.Helper()
	for !is() {
		if e.ctx.Err() != nil {
			e.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// empty waits until there are no pending messages but some.
func (e *env) left(h handle, want ...string) {
	e.Helper()
	e.until(fmt.Sprintf("only %q are pending", want), func() bool {
		return slices.Equal(ids(h.list(outbox.Query{State: outbox.Pending})), want)
	})
}

func soon(int) time.Duration { return time.Millisecond }

// A killed store does not settle: its relay has died after the broker had the messages.
type killed struct {
	outbox.Store
	tried atomic.Int64
}

func (k *killed) Settle(ctx context.Context, _ driver.Token, _ []outbox.Result) error {
	k.tried.Add(1)
	<-ctx.Done()
	return ctx.Err()
}

var relayChecks = []check{
	{
		name:    "Case32: three relays send each message once, in the order of its key",
		promise: "Messages that nothing goes wrong with are sent once each, by whichever relay, and those of a key in their order.",
		run: func(e *env) {
			const messages, keys = 300, 10
			h := e.open(outbox.Options{})
			b := &broker{}
			stop := e.relays(3, b, outbox.RelayOptions{Batch: 16}, e.handles)
			for i := range messages / 10 {
				var ms []outbox.Message
				for j := range 10 {
					ms = append(ms, message(fmt.Sprintf("%03d", 10*i+j), fmt.Sprint(j%keys)))
				}
				h.add(ms...)
			}
			e.left(h)
			stop()
			came := b.all()
			if len(came) != messages || len(b.twice) > 0 {
				e.Fatalf("%d messages were sent, %q of them twice at once; want %d", len(came), b.twice, messages)
			}
			for k := range keys {
				of := slices.DeleteFunc(slices.Clone(came), func(id string) bool { return !strings.HasSuffix(id, fmt.Sprint(k)) })
				if !slices.IsSorted(of) {
					e.Errorf("those of key %d were sent in the order %q", k, of)
				}
			}
		},
	},
	{
		name:    "Case40: an acknowledgement that is lost",
		promise: "A message whose acknowledgement was lost is sent again, under the same id, and then not any more.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			b := &broker{}
			b.answer = func(_ context.Context, m *outbox.Message) error {
				if b.count(m.ID) == 1 {
					return errors.New("connection reset")
				}
				return nil
			}
			h.add(message("1", "k"), message("2", "k"), message("3", ""))
			stop := e.relays(1, b, outbox.RelayOptions{Backoff: soon}, e.handles)
			e.left(h)
			stop()
			for _, id := range []string{"1", "2", "3"} {
				if n := b.count(id); n < 2 || n > 3 { // a third time as one of those whose attempt does not count
					e.Errorf("%s was sent %d times", id, n)
				}
			}
			if came := b.all(); slices.Index(came, "2") < slices.Index(came, "1") {
				e.Errorf("sent in the order %q", came)
			}
		},
	},
	{
		name:    "Case40: a relay that dies after it has sent, before that is stored",
		promise: "What a dead relay has sent comes again, under the same id, once its lease is over.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			h.add(message("1", "k"), message("2", "k"))
			b := &broker{}
			dead := &killed{Store: e.handles()}
			r, err := outbox.NewRelay(dead, b, outbox.RelayOptions{Lease: time.Second, PublishTimeout: 100 * time.Millisecond})
			e.must("new relay", err)
			ctx, cancel := context.WithCancel(e.ctx)
			var running sync.WaitGroup
			running.Go(func() { r.Run(ctx) }) //nolint:errcheck // it is killed
			e.until("the relay has sent", func() bool { return dead.tried.Load() > 0 })
			cancel()
			running.Wait()
			sentOnce := b.all()
			e.same("sent by the dead relay", sentOnce, []string{"1", "2"})
			e.storage.Advance(lease)
			stop := e.relays(1, b, outbox.RelayOptions{}, e.handles)
			e.left(h)
			stop()
			e.same("sent in all", b.all(), []string{"1", "2", "1", "2"})
		},
	},
	{
		name:    "Case31: a poisoned message",
		promise: "A message that fails always goes to the dead letters, at once if it is refused for good; all others go on.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			b := &broker{answer: func(_ context.Context, m *outbox.Message) error {
				switch m.ID {
				case "refused":
					return fmt.Errorf("no such subject: %w", outbox.ErrRefused)
				case "poison":
					return errors.New("out of order")
				}
				return nil
			}}
			h.add(message("poison", "k"), message("1", "k"), message("refused", "r"), message("2", "r"), message("3", ""))
			stop := e.relays(1, b, outbox.RelayOptions{Backoff: soon, MaxAttempts: 3}, e.handles)
			e.left(h)
			stop()
			e.same("the dead", ids(h.list(outbox.Query{State: outbox.Dead})), []string{"poison", "refused"})
			if got := h.entry("poison"); got.Attempts != 3 || got.Error != "out of order" {
				e.Errorf("the poisoned message: %+v", got)
			}
			if n := b.count("refused"); n != 1 {
				e.Errorf("the refused message was sent %d times", n)
			}
			for _, id := range []string{"1", "2", "3"} {
				if n := b.count(id); n != 1 {
					e.Errorf("%s was sent %d times", id, n)
				}
			}
		},
	},
	{
		name:    "Case31: topics that are down, slow or full",
		promise: "A topic in which everything fails or takes long holds up only itself, and its messages stay.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			release := make(chan struct{})
			var well atomic.Bool
			b := &broker{answer: func(ctx context.Context, m *outbox.Message) error {
				switch {
				case well.Load():
				case m.Topic == "down":
					return errors.New("connection refused")
				case m.Topic == "full":
					return outbox.RetryAfter(time.Millisecond, errors.New("maximum messages exceeded"))
				case m.Topic == "slow":
					select {
					case <-release:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				return nil
			}}
			for i := range 40 {
				for _, topic := range []string{"down", "full", "slow"} {
					h.add(in(fmt.Sprintf("%s-%02d", topic, i), topic, fmt.Sprint("tenant-", i%4)))
				}
			}
			stop := e.relays(2, b, outbox.RelayOptions{Batch: 8, Concurrency: 1, Backoff: soon, MaxAttempts: 1000, PublishTimeout: time.Minute}, e.handles)
			e.until("the slow one is with the broker", func() bool {
				return slices.ContainsFunc(b.all(), func(id string) bool { return strings.HasPrefix(id, "slow") })
			})
			for i := range 20 {
				h.add(in(fmt.Sprintf("well-%02d", i), "well", ""))
			}
			e.until("the topic that is well is empty", func() bool {
				return len(h.list(outbox.Query{Topic: "well"})) == 0
			})
			if n := len(h.list(outbox.Query{State: outbox.Pending})); n != 120 {
				e.Errorf("%d messages wait, want 120", n)
			}
			well.Store(true)
			close(release)
			e.left(h)
			stop()
			if dead := ids(h.list(outbox.Query{State: outbox.Dead})); len(dead) > 0 {
				e.Errorf("dead: %q", dead)
			}
			came := map[string]bool{}
			for _, id := range b.all() {
				came[id] = true
			}
			if len(came) != 140 {
				e.Errorf("%d messages came, want 140: %q", len(came), slices.Sorted(maps.Keys(came)))
			}
		},
	},
}

var restartChecks = []check{
	{
		name:    "the storage is killed while relays work",
		promise: "What was committed is sent, whatever becomes of the storage meanwhile.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			var ms []outbox.Message
			for i := range 200 {
				ms = append(ms, message(fmt.Sprintf("%03d", i), fmt.Sprint(i%10)))
			}
			h.add(ms...)
			half := make(chan struct{})
			var once sync.Once
			b := &broker{}
			b.answer = func(_ context.Context, m *outbox.Message) error {
				if m.ID == "100" {
					once.Do(func() { close(half) })
				}
				return nil
			}
			stop := e.relays(2, b, outbox.RelayOptions{Batch: 8, Lease: time.Second, PublishTimeout: 100 * time.Millisecond}, e.handles)
			select {
			case <-half:
			case <-e.ctx.Done():
				e.Fatal("the relays did not come to the half")
			}
			e.storage.Restart(e.T)
			e.until("nothing is pending", func() bool {
				s, err := h.Stats(e.ctx)
				return err == nil && s.Pending == 0
			})
			stop()
			first := map[string]bool{}
			var order []string
			for _, id := range b.all() {
				if !first[id] {
					first[id] = true
					order = append(order, id)
				}
			}
			if len(order) != len(ms) {
				e.Errorf("%d messages came, want %d", len(order), len(ms))
			}
			for k := range 10 {
				of := slices.DeleteFunc(slices.Clone(order), func(id string) bool { return !strings.HasSuffix(id, fmt.Sprint(k)) })
				if !slices.IsSorted(of) {
					e.Errorf("those of key %d came first in the order %q", k, of)
				}
			}
		},
	},
}
