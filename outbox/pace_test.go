package outbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/outbox/outboxtest"
)

// One topic that is slow holds up only itself, however many tenants it has.
func TestCase31_ASlowTopicHoldsUpOnlyItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, b := memory(t), &broker{}
		var slow, most atomic.Int64
		b.answer = func(ctx context.Context, m *outbox.Message) error {
			if m.Topic == "slow" {
				most.Store(max(most.Load(), slow.Add(1)))
				defer slow.Add(-1)
				time.Sleep(8*time.Second + rand.N(time.Second))
			}
			return nil
		}
		for i := range 100 {
			add(t, m, outbox.Message{ID: fmt.Sprint("slow-", i), Topic: "slow", Tenant: fmt.Sprint(i)})
		}
		_, stop := start(t, m, b, outbox.RelayOptions{Concurrency: 2})
		time.Sleep(time.Second)
		begin := time.Now()
		for i := range 10 {
			add(t, m, msg(fmt.Sprint("fast-", i), "fast", "k"))
		}
		time.Sleep(100 * time.Millisecond)
		if n := len(b.all()); n != 10 {
			t.Errorf("%d messages of the fast topic were sent after %v, want 10", n, time.Since(begin))
		}
		time.Sleep(time.Minute)
		mustStop(t, stop)
		if n := most.Load(); n > 2 {
			t.Errorf("%d batches of one topic were sent at once, want 2", n)
		}
	})
}

func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, b := memory(t), &broker{}
		b.answer = func(context.Context, *outbox.Message) error { time.Sleep(time.Millisecond); return nil }
		for i := range 1000 {
			add(t, m, outbox.Message{ID: fmt.Sprintf("big-%04d", i), Topic: "a", Tenant: "big"})
		}
		for i := range 10 {
			add(t, m, outbox.Message{ID: fmt.Sprint("small-", i), Topic: "a", Tenant: fmt.Sprint("small-", i)})
		}
		_, stop := start(t, m, b, outbox.RelayOptions{Batch: 10, Concurrency: 1})
		time.Sleep(time.Minute)
		mustStop(t, stop)
		last := 0
		for i, id := range b.all() {
			if strings.HasPrefix(id, "small") {
				last = i
			}
		}
		if last > 150 {
			t.Errorf("%d messages were sent before the last one of a small tenant, of 1010", last)
		}
	})
}

// A timedStore's Lease takes 20 ms, and notes when it begins and returns.
type timedStore struct {
	*outboxtest.Memory
	began, ended []time.Time
}

func (s *timedStore) Lease(ctx context.Context, q outbox.LeaseRequest) ([]outbox.Entry, error) {
	s.began = append(s.began, time.Now())
	time.Sleep(20 * time.Millisecond)
	defer func() { s.ended = append(s.ended, time.Now()) }()
	return s.Memory.Lease(ctx, q)
}

// Relays that look again at each end of a small batch take ever smaller ones from each other.
func TestARelayRestsAfterALookThatFoundLittle(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		found int // of 10
		rests time.Duration
		why   string
	}{
		{10, 0, "there may be more"},
		{7, time.Millisecond, "until the batch has ended"},
		{3, 20 * time.Millisecond, "as long as the look took"},
		{0, 160 * time.Millisecond, "what it has read is being sent by others"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &timedStore{Memory: memory(t)}
			b := &broker{answer: func(_ context.Context, m *outbox.Message) error {
				if m.ID == "0" {
					time.Sleep(time.Millisecond)
				}
				return nil
			}}
			for i := range row.found {
				add(t, s.Memory, msg(fmt.Sprint(i), "orders", ""))
			}
			_, stop := start(t, s, b, outbox.RelayOptions{Batch: 10})
			time.Sleep(time.Second)
			mustStop(t, stop)
			if got := s.began[1].Sub(s.ended[0]); got != row.rests {
				t.Errorf("after %d of 10 it rested for %v, want %v: %s", row.found, got, row.rests, row.why)
			}
		})
	}
}

// A busyStore says at first that another relay looks.
type busyStore struct {
	*outboxtest.Memory
	busy  int
	looks []time.Time
}

func (s *busyStore) Lease(ctx context.Context, q outbox.LeaseRequest) ([]outbox.Entry, error) {
	s.looks = append(s.looks, time.Now())
	if len(s.looks) <= s.busy {
		return nil, fmt.Errorf("lease: %w", outbox.ErrBusy)
	}
	return s.Memory.Lease(ctx, q)
}

// Of two relays for which there is too little work, one leads and the other one stands by.
func TestARelayThatMeetsAnotherStandsBy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, b := &busyStore{Memory: memory(t), busy: 3}, &broker{}
		var events []outbox.Event
		_, stop := start(t, s, b, outbox.RelayOptions{Observe: func(e outbox.Event) { events = append(events, e) }})
		for i := range 3 {
			time.Sleep(100 * time.Millisecond)
			add(t, s.Memory, msg(fmt.Sprint(i), "orders", "")) // which wakes no relay that stands by
		}
		time.Sleep(2 * time.Second)
		mustStop(t, stop)
		for i := range 3 {
			if got := s.looks[i+1].Sub(s.looks[i]); got != 500*time.Millisecond {
				t.Errorf("after look %d it stood by for %v", i, got)
			}
		}
		if got := b.all(); len(got) != 3 {
			t.Errorf("then it sent %q", got)
		}
		for _, e := range events {
			if e.Kind == outbox.StoreFailed {
				t.Errorf("it told of %+v", e)
			}
		}
	})
}

// A countedStore counts the looks that find nothing.
type countedStore struct {
	*outboxtest.Memory
	looks, empty atomic.Int64
}

func (s *countedStore) Lease(ctx context.Context, q outbox.LeaseRequest) ([]outbox.Entry, error) {
	all, err := s.Memory.Lease(ctx, q)
	s.looks.Add(1)
	if len(all) == 0 {
		s.empty.Add(1)
	}
	return all, err
}

// Where all the rest is behind what is being sent, a relay looks again when that has ended.
func TestARelayLearnsHowManyBatchesAreEnough(t *testing.T) {
	t.Parallel()
	for _, relays := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			s := &countedStore{Memory: memory(t)}
			b := &broker{answer: func(context.Context, *outbox.Message) error { time.Sleep(time.Millisecond); return nil }}
			const keys, of, batch = 40, 25, 20
			for i := range keys * of {
				add(t, s.Memory, msg(fmt.Sprint(i), "orders", fmt.Sprint(i%keys)))
			}
			began := time.Now()
			var stops []func() error
			for range relays {
				_, stop := start(t, s, b, outbox.RelayOptions{Batch: batch})
				stops = append(stops, stop)
			}
			for len(b.all()) < keys*of {
				time.Sleep(time.Millisecond)
			}
			empty, took := s.empty.Load(), time.Since(began)
			for _, stop := range stops {
				mustStop(t, stop)
			}
			if empty > 12 {
				t.Errorf("%d relays looked %d times for nothing", relays, empty)
			}
			if want := keys * of / 2 * time.Millisecond; took > want*11/10 { // two batches of different keys at once
				t.Errorf("%d relays took %v, want %v", relays, took, want)
			}
		})
	}
}

// A relay that has once found little looks for more in time, when there is more.
func TestARelayThatHasFoundLittleFindsMoreSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, b := memory(t), &broker{answer: func(context.Context, *outbox.Message) error { time.Sleep(time.Second); return nil }}
		add(t, m, msg("a", "orders", ""))
		_, stop := start(t, m, b, outbox.RelayOptions{Batch: 10, Concurrency: 8})
		time.Sleep(100 * time.Millisecond)
		add(t, m, msg("b", "orders", ""))
		time.Sleep(100 * time.Millisecond)
		for i := range 40 {
			add(t, m, msg(fmt.Sprint(i), "orders", ""))
		}
		time.Sleep(200 * time.Millisecond)
		leased := 0
		if err := m.List(t.Context(), outbox.Query{}, func(e outbox.Entry) bool {
			if e.Leased {
				leased++
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if leased != 42 {
			t.Errorf("%d messages are leased, want 42", leased)
		}
		mustStop(t, stop)
	})
}

func TestTheRateIsHeeded(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0.5, 10, 100} {
		synctest.Test(t, func(t *testing.T) {
			m, b := memory(t), &broker{}
			for i := range 300 {
				add(t, m, msg(fmt.Sprint(i), "a", ""))
			}
			_, stop := start(t, m, b, outbox.RelayOptions{Rate: rate})
			time.Sleep(2 * time.Second)
			if n, want := float64(len(b.all())), 2*rate; n < 0.8*want || n > 1.2*want+1 {
				t.Errorf("%v messages were sent in 2 seconds, want %v", n, want)
			}
			mustStop(t, stop)
		})
	}
}
