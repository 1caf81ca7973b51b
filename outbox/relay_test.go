package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/outbox"
)

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
