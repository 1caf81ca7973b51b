package redistest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/redisstore"
)

// A waiter in one process hears that another one has settled, in a Cluster too.
func TestASettleIsHeardElsewhere(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		for what, addrs := range map[string][]string{
			"one server": {single.Get(t).Addr()},
			"a Cluster":  cluster.Get(t).Addrs(),
		} {
			o := redisstore.Options{Prefix: prefix(), Notify: true}
			there := open(t, lib.connect(t, addrs...), o)
			heard, stop := listen(t, open(t, lib.connect(t, addrs...), o))
			for _, outcome := range []driver.Outcome{done("x"), {State: driver.Done}, {State: driver.Free}, {State: driver.Unknown}} {
				hears(t, what, there, heard, outcome)
			}
			stop()
		}
	})
}

// A subscription comes back when its server does.
func TestABrokenSubscriptionComesBack(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		r := startRedis(t)
		s := open(t, lib.connect(t, r.Addr()), redisstore.Options{Notify: true})
		heard, stop := listen(t, s)
		hears(t, "at first", s, heard, done("x"))
		if err := r.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
		hears(t, "after a restart", s, heard, done("x"))
		stop()
	})
}

// listen has a store call back, again if that fails, and returns a function that ends it.
func listen(t *testing.T, s *redisstore.Store) (heard chan driver.ID, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	heard, ended := make(chan driver.ID, 1000), make(chan error, 1)
	go func() {
		var err error
		for ctx.Err() == nil {
			err = s.Wake(ctx, func(id driver.ID) { heard <- id })
		}
		ended <- err
	}()
	return heard, func() {
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Wake ended with %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("Wake goes on after its context has ended")
		}
	}
}

// hears settles records until one of them is heard of: the subscription may not be there yet.
func hears(t *testing.T, what string, s *redisstore.Store, heard chan driver.ID, o driver.Outcome) {
	t.Helper()
	giveUp := time.Now().Add(60 * time.Second)
	for {
		id := newID()
		rec, owned, err := s.Claim(t.Context(), id, ask(semel.Hold))
		if err == nil && owned {
			_, _, err = s.Settle(t.Context(), id, rec.Owner(), o)
		}
		select {
		case other := <-heard:
			for ; other != id && len(heard) > 0; other = <-heard { // those before came late
			}
			if other == id {
				return
			}
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(giveUp) {
			t.Fatalf("%s: heard nothing of a record that is %s, error %v", what, o.State, err)
		}
	}
}

func TestWithoutNotifyNobodyIsTold(t *testing.T) {
	t.Parallel()
	s := open(t, rueidisTo(t, single.Get(t).Addr()), redisstore.Options{})
	ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if err := s.Wake(ctx, func(driver.ID) { t.Error("told") }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wake ended with %v", err)
	}
	_, err := redisstore.Open(t.Context(), onlyDo{rueidisTo(t, single.Get(t).Addr())}, redisstore.Options{Notify: true})
	if err == nil {
		t.Error("opened to notify with a client that can't listen")
	}
}
