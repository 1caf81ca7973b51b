package engine

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
)

// renewals returns a route with a lease of the given length, and the times at which leases are renewed, to be read when
// nothing goes on.
func renewals(lease time.Duration) (*Route, *[]time.Duration) {
	s, began := newScript(), time.Now()
	var mu sync.Mutex
	at := &[]time.Duration{}
	s.on("extend", func() error {
		mu.Lock()
		defer mu.Unlock()
		*at = append(*at, time.Since(began))
		return nil
	})
	p := testPolicy(driver.Hold)
	p.Lease = lease
	r, _ := newRoute(s, p, nil)
	return r, at
}

func TestOnlyARunThatLastsGetsATimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, at := renewals(30 * time.Second)
		run := started(t, r, 1)
		if run.lease.beat != nil {
			t.Error("a run that has just begun has a timer")
		}
		run.Settle(driver.Outcome{State: driver.Done})
		time.Sleep(time.Minute)
		synctest.Wait()
		if run.lease.beat != nil || len(*at) > 0 {
			t.Errorf("a run that has ended got a timer: renewed at %v", *at)
		}
		if r.work.looks {
			t.Error("young runs are looked for although there are none")
		}
	})
}

// Whenever a run begins, between the looks at young runs, and whichever runs end meanwhile: its lease is renewed when a
// third of it is over.
func TestR47_TheFirstHeartbeatIsPunctualWheneverARunBegins(t *testing.T) {
	t.Parallel()
	const step = 35 * time.Millisecond
	for _, lease := range []time.Duration{30 * time.Second, 3 * time.Second, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r, at := renewals(lease)
			lasts := []time.Duration{0, lookAfter * 5 / 4, lease/3 + time.Millisecond}
			var want []time.Duration
			for n := range 60 {
				run := started(t, r, n)
				time.AfterFunc(lasts[n%len(lasts)], func() { run.Settle(driver.Outcome{State: driver.Done}) })
				if n%len(lasts) == 2 {
					want = append(want, time.Duration(n)*step+lease/3)
				}
				time.Sleep(step)
			}
			drained(t, r.Engine)
			synctest.Wait()
			if !slices.Equal(*at, want) {
				t.Errorf("lease %v: renewed at %v, want %v", lease, *at, want)
			}
		})
	}
}

// A run that works in a transaction when it is looked at is renewed again after the transaction.
func TestR47_ARunThatIsPausedWhileItIsYoungIsRenewedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, at := renewals(30 * time.Second)
		run := started(t, r, 1)
		if err := run.lease.pause(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		run.lease.goOn()
		time.Sleep(10 * time.Second)
		run.Settle(driver.Outcome{State: driver.Done})
		synctest.Wait()
		if want := []time.Duration{0, 10 * time.Second}; !slices.Equal(*at, want) {
			t.Errorf("renewed at %v, want %v", *at, want)
		}
	})
}
