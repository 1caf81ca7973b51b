package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/outbox/outboxtest"
)

// A broker is a publisher that notes what comes.
type broker struct {
	mu      sync.Mutex
	came    []string
	batches [][]string
	answer  func(ctx context.Context, m *outbox.Message) error
}

func (b *broker) Publish(ctx context.Context, batch []*outbox.Message) []error {
	errs := make([]error, len(batch))
	var ids []string
	for i, m := range batch {
		ids = append(ids, m.ID)
		if b.answer != nil {
			errs[i] = b.answer(ctx, m)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.came = append(b.came, ids...)
	b.batches = append(b.batches, ids)
	return errs
}

func (b *broker) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.came)
}

func memory(t *testing.T) *outboxtest.Memory {
	t.Helper()
	m, err := outboxtest.NewMemory(outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func add(t *testing.T, m *outboxtest.Memory, messages ...outbox.Message) {
	t.Helper()
	if err := m.Add(messages...); err != nil {
		t.Fatal(err)
	}
}

// start runs a relay until what is returned is called, which returns the error of Run.
func start(t *testing.T, s outbox.Store, p outbox.Publisher, o outbox.RelayOptions) (r *outbox.Relay, stop func() error) {
	t.Helper()
	r, err := outbox.NewRelay(s, p, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return r, func() error {
		cancel()
		return <-ended
	}
}

func mustStop(t *testing.T, stop func() error) {
	t.Helper()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func states(t *testing.T, m *outboxtest.Memory, s outbox.State) (ids []string) {
	t.Helper()
	if err := m.List(t.Context(), outbox.Query{State: s}, func(e outbox.Entry) bool {
		ids = append(ids, e.ID)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return ids
}

func msg(id, topic, key string) outbox.Message { return outbox.Message{ID: id, Topic: topic, Key: key} }

func TestAMessageIsSentAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, b := memory(t), &broker{}
		_, stop := start(t, m, b, outbox.RelayOptions{})
		time.Sleep(time.Hour)
		before := time.Now()
		add(t, m, msg("1", "a", ""))
		synctest.Wait()
		if got := b.all(); len(got) != 1 || time.Since(before) != 0 {
			t.Errorf("%q was sent after %v", got, time.Since(before))
		}
		mustStop(t, stop)
	})
}

func TestABatchHasOneMessageOfAKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, b := memory(t), &broker{}
		add(t, m, msg("1", "a", "x"), msg("2", "a", "x"), msg("3", "a", "y"), msg("4", "a", ""), msg("5", "a", ""), msg("6", "a", "x"))
		_, stop := start(t, m, b, outbox.RelayOptions{})
		synctest.Wait()
		mustStop(t, stop)
		want := "[[1 3 4 5] [2] [6]]"
		if got := fmt.Sprint(b.batches); got != want {
			t.Errorf("batches are %s, want %s", got, want)
		}
	})
}

// A failed message keeps those of its key back that were leased with it, and is sent after its backoff.
func TestAFailedMessageKeepsItsKeyBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, b := memory(t), &broker{}
		var well atomic.Bool
		b.answer = func(_ context.Context, m *outbox.Message) error {
			if m.ID == "1" && !well.Load() {
				return errors.New("no")
			}
			return nil
		}
		add(t, m, msg("1", "a", "x"), msg("2", "a", "x"), msg("3", "a", "y"))
		r, stop := start(t, m, b, outbox.RelayOptions{Backoff: func(attempts int) time.Duration { return time.Duration(attempts) * time.Minute }})
		time.Sleep(time.Second)
		if got := fmt.Sprint(b.all()); got != "[1 3]" {
			t.Fatalf("sent: %s", got)
		}
		well.Store(true)
		time.Sleep(time.Minute - 2*time.Second)
		if got := fmt.Sprint(b.all()); got != "[1 3]" {
			t.Errorf("sent before the backoff was over: %s", got)
		}
		time.Sleep(3 * time.Second)
		if got := fmt.Sprint(b.all()); got != "[1 3 1 2]" {
			t.Errorf("sent: %s", got)
		}
		mustStop(t, stop)
		if c := r.Counts(); c.Sent != 3 || c.Failed != 1 || c.PutBack != 1 || c.Dead != 0 || c.StoreErrors != 0 {
			t.Errorf("counted: %+v", c)
		}
	})
}

// An outage of the broker for hours sends nobody to the dead letters, and only probes are sent meanwhile.
func TestAnOutageMakesNoDeadLetters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, b := memory(t), &broker{}
		var down atomic.Bool
		down.Store(true)
		b.answer = func(context.Context, *outbox.Message) error {
			if down.Load() {
				return errors.New("connection refused")
			}
			return nil
		}
		for i := range 60 {
			add(t, m, msg(fmt.Sprint(i), "a", fmt.Sprint(i%20)))
		}
		var mu sync.Mutex
		kinds := map[outbox.EventKind]int{}
		r, stop := start(t, m, b, outbox.RelayOptions{Observe: func(e outbox.Event) {
			mu.Lock()
			defer mu.Unlock()
			kinds[e.Kind]++
		}})
		synctest.Wait()
		if n := r.Counts().Failed; n != 1 {
			t.Errorf("%d attempts were counted of a batch in which everything failed, want 1", n)
		}
		time.Sleep(time.Hour)
		if n := len(b.all()); n < 30 || n > 300 {
			t.Errorf("%d messages were sent in an hour without an answer", n)
		}
		if n := r.Counts().Failed; n > 200 {
			t.Errorf("%d attempts were counted", n)
		}
		down.Store(false)
		time.Sleep(time.Hour) // at most the longest backoff
		mustStop(t, stop)
		if dead, left := states(t, m, outbox.Dead), states(t, m, outbox.Pending); len(dead) > 0 || len(left) > 0 {
			t.Errorf("dead: %q, pending: %q", dead, left)
		}
		if kinds[outbox.LanePaused] == 0 || kinds[outbox.LaneResumed] != 1 || kinds[outbox.MessageDead] > 0 {
			t.Errorf("observed: %v", kinds)
		}
	})
}

func TestAMessageDiesAfterItsAttempts(t *testing.T) {
	t.Parallel()
	for _, hold := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m, b := memory(t), &broker{}
			b.answer = func(_ context.Context, m *outbox.Message) error {
				if m.ID == "1" {
					return errors.New("no\x00\xff" + strings.Repeat("x", 5000))
				}
				return nil
			}
			add(t, m, msg("1", "a", "x"), msg("2", "a", "x"))
			var died outbox.Event
			r, stop := start(t, m, b, outbox.RelayOptions{HoldKey: hold, Backoff: func(int) time.Duration { return time.Second }, Observe: func(e outbox.Event) {
				if e.Kind == outbox.MessageDead {
					died = e
				}
			}})
			time.Sleep(time.Hour)
			mustStop(t, stop)
			if dead := states(t, m, outbox.Dead); fmt.Sprint(dead) != "[1]" || died.ID != "1" || died.Attempts != 25 || r.Counts().Dead != 1 {
				t.Errorf("dead: %q; observed: %+v", dead, died)
			}
			if left := states(t, m, outbox.Pending); (len(left) == 1) != hold {
				t.Errorf("pending, where the dead one holds its key (%t): %q", hold, left)
			}
		})
	}
}

func TestAnErrorSaysWhenToSendAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, b := memory(t), &broker{}
		var times []time.Duration
		begin := time.Now()
		cause := errors.New("busy")
		b.answer = func(_ context.Context, m *outbox.Message) error {
			if m.ID != "1" {
				return nil
			}
			if times = append(times, time.Since(begin).Truncate(time.Second)); len(times) == 1 {
				return fmt.Errorf("told: %w", outbox.RetryAfter(3*time.Hour, cause))
			}
			return nil
		}
		add(t, m, msg("1", "a", ""), msg("2", "a", ""))
		_, stop := start(t, m, b, outbox.RelayOptions{})
		time.Sleep(4 * time.Hour)
		mustStop(t, stop)
		if fmt.Sprint(times) != "[0s 3h0m0s]" {
			t.Errorf("sent after %v", times)
		}
		if err := outbox.RetryAfter(time.Second, cause); !errors.Is(err, cause) || err.Error() != "busy; to be sent again in 1s" {
			t.Errorf("the error is %v", err)
		}
	})
}

// A publisher that misbehaves loses nothing.
func TestAPublisherThatMisbehavesLosesNothing(t *testing.T) {
	t.Parallel()
	for name, misbehave := range map[string]func() []error{
		"panics":            func() []error { panic("bug") },
		"ends its routine":  func() []error { runtime.Goexit(); return nil },
		"too few errors":    func() []error { return make([]error, 1) },
		"too many errors":   func() []error { return make([]error, 3) },
		"changes the batch": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := memory(t)
				add(t, m, msg("1", "a", ""), msg("2", "a", ""))
				calls := 0
				var came []string
				p := publisher(func(_ context.Context, batch []*outbox.Message) []error {
					if calls++; calls == 1 && misbehave != nil {
						return misbehave()
					}
					for _, m := range batch {
						came = append(came, m.ID)
						m.ID, m.Payload = "", nil
					}
					clear(batch)
					return nil
				})
				_, stop := start(t, m, p, outbox.RelayOptions{})
				time.Sleep(time.Minute)
				mustStop(t, stop)
				slices.Sort(came)
				if left := states(t, m, outbox.Pending); fmt.Sprint(came) != "[1 2]" || len(left) > 0 {
					t.Errorf("came: %q, left: %q", came, left)
				}
			})
		})
	}
}

type publisher func(context.Context, []*outbox.Message) []error

func (p publisher) Publish(ctx context.Context, batch []*outbox.Message) []error {
	return p(ctx, batch)
}

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

// What is with the publisher at the end is waited for, and the rest put back.
func TestTheEndWaitsForWhatIsBeingSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, b := memory(t), &broker{}
		b.answer = func(ctx context.Context, _ *outbox.Message) error {
			time.Sleep(5 * time.Second)
			return ctx.Err()
		}
		add(t, m, msg("1", "a", "x"), msg("2", "a", "x"))
		_, stop := start(t, m, b, outbox.RelayOptions{})
		synctest.Wait()
		begin := time.Now()
		mustStop(t, stop)
		if d := time.Since(begin); d != 5*time.Second {
			t.Errorf("the end took %v", d)
		}
		q := outbox.LeaseRequest{Token: driver.NewToken(), Lease: time.Minute, Lanes: 1, Limit: 9, Max: 9, Bytes: 9}
		left, err := m.Lease(t.Context(), q)
		if err != nil || len(left) != 1 || left[0].ID != "2" || left[0].Attempts != 0 {
			t.Errorf("left: %+v, %v", left, err)
		}
	})
}

func TestAPublisherThatNeverReturnsDoesNotHoldTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, b := memory(t), &broker{}
		release := make(chan struct{})
		b.answer = func(context.Context, *outbox.Message) error { <-release; return nil }
		add(t, m, msg("1", "a", ""))
		_, stop := start(t, m, b, outbox.RelayOptions{})
		synctest.Wait()
		if err := stop(); err == nil {
			t.Error("Run says nothing of a publisher that did not return")
		}
		if left := states(t, m, outbox.Pending); len(left) != 1 {
			t.Errorf("left: %q", left)
		}
		close(release)
	})
}

// A relay does not send on a lease that may be over.
func TestNothingIsSentOnALeaseThatMayBeOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, b := memory(t), &broker{}
		for i := range 10 {
			add(t, m, msg(fmt.Sprint(i), "a", "x"))
		}
		var late atomic.Int64
		s := &slowStore{Store: m, lease: func() { time.Sleep(11 * time.Second) }}
		b.answer = func(_ context.Context, msg *outbox.Message) error {
			time.Sleep(3 * time.Second)
			m.List(t.Context(), outbox.Query{IDs: []string{msg.ID}}, func(e outbox.Entry) bool { //nolint:errcheck // in memory
				if !e.Leased {
					late.Add(1)
				}
				return true
			})
			return nil
		}
		_, stop := start(t, s, b, outbox.RelayOptions{PublishTimeout: 5 * time.Second, Lease: 20 * time.Second})
		time.Sleep(10 * time.Minute)
		mustStop(t, stop)
		if n := late.Load(); n > 0 || len(b.all()) != 10 {
			t.Errorf("%d messages of %d were sent without a lease", n, len(b.all()))
		}
	})
}

// A slowStore is one whose verbs take time, or fail.
type slowStore struct {
	outbox.Store
	lease  func()
	settle func() error
}

func (s *slowStore) Lease(ctx context.Context, q outbox.LeaseRequest) ([]outbox.Entry, error) {
	all, err := s.Store.Lease(ctx, q)
	if s.lease != nil && len(all) > 0 {
		s.lease()
	}
	return all, err
}

func (s *slowStore) Settle(ctx context.Context, t driver.Token, results []outbox.Result) error {
	if s.settle != nil {
		if err := s.settle(); err != nil {
			return err
		}
	}
	return s.Store.Settle(ctx, t, results)
}

func TestAStoreThatFailsIsAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, b := memory(t), &broker{}
		add(t, m, msg("1", "a", ""))
		failures := 5
		s := &slowStore{Store: m, settle: func() error {
			if failures--; failures >= 0 {
				return errors.New("no connection")
			}
			return nil
		}}
		r, stop := start(t, s, b, outbox.RelayOptions{Observe: func(e outbox.Event) {
			if e.Kind == outbox.StoreFailed {
				panic("an observer's bug")
			}
		}})
		time.Sleep(10 * time.Second)
		mustStop(t, stop)
		if left := states(t, m, outbox.Pending); len(left) > 0 || len(b.all()) != 1 || r.Counts().StoreErrors != 5 {
			t.Errorf("left: %q, sent: %q, counted: %+v", left, b.all(), r.Counts())
		}
	})
}

func TestRelayOptionsAreChecked(t *testing.T) {
	t.Parallel()
	m := memory(t)
	for why, c := range map[string]struct {
		s outbox.Store
		p outbox.Publisher
		o outbox.RelayOptions
	}{
		"no store":         {nil, &broker{}, outbox.RelayOptions{}},
		"no publisher":     {m, nil, outbox.RelayOptions{}},
		"a negative batch": {m, &broker{}, outbox.RelayOptions{Batch: -1}},
		"a negative rate":  {m, &broker{}, outbox.RelayOptions{Rate: -1}},
		"a short lease":    {m, &broker{}, outbox.RelayOptions{Lease: 19 * time.Second}},
	} {
		if _, err := outbox.NewRelay(c.s, c.p, c.o); err == nil {
			t.Errorf("%s is accepted", why)
		}
	}
	if _, err := outbox.NewRelay(m, &broker{}, outbox.RelayOptions{PublishTimeout: time.Hour}); err != nil {
		t.Errorf("a long timeout: %v", err)
	}
}

func TestAFunctionIsAPublisher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		p := outbox.Func(3, func(ctx context.Context, m *outbox.Message) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(time.Second)
			switch m.ID {
			case "panics":
				panic(outbox.ErrRefused)
			case "exits":
				runtime.Goexit()
			case "fails":
				return outbox.ErrRefused
			}
			return nil
		})
		var batch []*outbox.Message
		for _, id := range []string{"1", "panics", "exits", "fails", "2", "3"} {
			batch = append(batch, &outbox.Message{ID: id})
		}
		errs := p.Publish(t.Context(), batch)
		for i, want := range []bool{false, true, true, true, false, false} {
			if (errs[i] != nil) != want {
				t.Errorf("%s: %v", batch[i].ID, errs[i])
			}
		}
		if errors.Is(errs[1], outbox.ErrRefused) || !errors.Is(errs[3], outbox.ErrRefused) {
			t.Errorf("only what was returned is an answer: %v, %v", errs[1], errs[3])
		}
		if most.Load() != 3 {
			t.Errorf("%d at once, want 3", most.Load())
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if errs := p.Publish(ctx, batch[:1]); !errors.Is(errs[0], context.Canceled) {
			t.Errorf("after the end: %v", errs[0])
		}
	})
}
