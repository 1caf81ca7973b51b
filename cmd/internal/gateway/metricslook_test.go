package gateway

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
)

// looking has metrics look at a store, in a synctest bubble, until the test ends.
func looking(t *testing.T, s driver.Store) *metrics {
	t.Helper()
	m := newMetrics(nil)
	m.instrument(s, "s")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.store.run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	synctest.Wait()
	return m
}

func TestR56_Field19_TheStoreIsAskedForItsSizeOnceInAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newCountingStore()
		var asked atomic.Int64
		var fails atomic.Bool
		s.count = func(context.Context) (driver.Counts, error) {
			n := asked.Add(1)
			if fails.Load() {
				return driver.Counts{}, errors.New("down")
			}
			return driver.Counts{Records: n}, nil
		}
		m := looking(t, s)
		for range 100 {
			if got := scraped(t, m, "idempotency_records"); got != "idempotency_records 1" {
				t.Fatalf("scraped %q", got)
			}
		}
		if got := scraped(t, m, "idempotency_store_bytes"); got != "" {
			t.Errorf("scraped %q of a store that does not know its size", got)
		}
		time.Sleep(lookEvery)
		synctest.Wait()
		if got := scraped(t, m, "idempotency_records"); got != "idempotency_records 2" || asked.Load() != 2 {
			t.Errorf("scraped %q, asked %d times", got, asked.Load())
		}
		fails.Store(true)
		time.Sleep(lookEvery)
		synctest.Wait()
		if got := scraped(t, m, "idempotency_records"); got != "" {
			t.Errorf("scraped %q while the store gives no answer", got)
		}
		if got := scraped(t, m, "idempotency_store_error_total"); !strings.Contains(got, `verb="count"} 1`) {
			t.Errorf("the failure is not counted: %s", got)
		}
	})
}

func TestR56_ACountThatTakesLongIsAskedForMoreRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newCountingStore()
		var asked atomic.Int64
		s.count = func(context.Context) (driver.Counts, error) {
			asked.Add(1)
			time.Sleep(10 * time.Second)
			return someCounts, nil
		}
		m := looking(t, s)
		if got := scraped(t, m, "idempotency_unknown"); got != "" {
			t.Errorf("scraped %q before there is an answer", got)
		}
		time.Sleep(140 * time.Second) // a pause is four times as long as the look before it
		if asked.Load() != 3 {
			t.Errorf("asked %d times, want 3", asked.Load())
		}
		if got := scraped(t, m, "idempotency_unknown"); got != "idempotency_unknown 2" {
			t.Errorf("scraped %q", got)
		}
	})
}

// hangingStore answers no Load once it hangs.
type hangingStore struct {
	*countingStore
	hangs atomic.Bool
}

func (s *hangingStore) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	if s.hangs.Load() {
		<-ctx.Done()
		return driver.Record{}, ctx.Err()
	}
	return s.countingStore.Load(ctx, id)
}

func TestField19_AStoreThatHangsIsDownAndHoldsUpNoScrape(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &hangingStore{countingStore: newCountingStore()}
		m := looking(t, s)
		if got := scraped(t, m, "idempotency_store_up"); got != "idempotency_store_up 1" {
			t.Errorf("scraped %q", got)
		}
		s.hangs.Store(true)
		time.Sleep(15 * time.Second)
		began := time.Now()
		if got := scraped(t, m, "idempotency_store_up"); got != "idempotency_store_up 0" {
			t.Errorf("scraped %q of a store that hangs", got)
		}
		if got := scraped(t, m, "idempotency_unknown"); got != "" {
			t.Errorf("scraped %q of a store that hangs", got)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("two scrapes took %v", took)
		}
	})
}

// A process that died under Hold has left a record that nobody asks for again.
func TestField19_AnOperationThatNobodyAsksForAgainIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		if _, owned, err := s.Claim(t.Context(), driver.ID{7}, driver.Claim{Token: driver.NewToken(), Lease: time.Minute}); !owned || err != nil {
			t.Fatal(owned, err)
		}
		var out bytes.Buffer
		m := looking(t, s)
		m.store.log = slog.New(slog.NewTextHandler(&out, nil))
		if got := scraped(t, m, "idempotency_unknown"); got != "idempotency_unknown 0" {
			t.Errorf("scraped %q while it runs", got)
		}
		time.Sleep(time.Minute + 15*time.Second)
		if got := scraped(t, m, "idempotency_unknown"); got != "idempotency_unknown 1" {
			t.Errorf("scraped %q 15 s after its lease was over", got)
		}
		time.Sleep(time.Minute)
		if n := strings.Count(out.String(), "level=WARN"); n != 1 || !strings.Contains(out.String(), "unknown=1") {
			t.Errorf("it is logged %d times, want once: %s", n, out.String())
		}
		rec, err := s.Seize(t.Context(), driver.ID{7}, driver.NewToken())
		if err != nil {
			t.Fatal(err)
		}
		if _, owned, err := s.Settle(t.Context(), driver.ID{7}, rec.Owner(), driver.Outcome{State: driver.Done}); !owned || err != nil {
			t.Fatal(owned, err)
		}
		time.Sleep(15 * time.Second)
		if got := scraped(t, m, "idempotency_unknown"); got != "idempotency_unknown 0" {
			t.Errorf("scraped %q after somebody has decided", got)
		}
	})
}
