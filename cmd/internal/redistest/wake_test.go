package redistest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/redisstore"
)

// A waiter in one process hears that another one has settled, in a Cluster too.
func TestASettleIsHeardElsewhere(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		for what, addrs := range map[string][]string{
			"one server": {single.get(t).Addr()},
			"a Cluster":  cluster.get(t).Addrs(),
		} {
			o := redisstore.Options{Prefix: prefix(), Notify: true}
			there := open(t, lib.connect(t, addrs...), o)
			here := open(t, lib.connect(t, addrs...), o)
			ctx, stop := context.WithCancel(t.Context())
			heard := make(chan semel.ID, 100)
			ended := make(chan error, 1)
			go func() { ended <- here.Wake(ctx, func(id semel.ID) { heard <- id }) }()

			giveUp := time.After(30 * time.Second)
			for i, state := range []semel.State{semel.Done, semel.Free, semel.Unknown} {
				for got := false; !got; { // until the subscription is there
					id := newID()
					rec := claim(t, there, id, ask(semel.Hold))
					settle(t, there, id, rec.Owner(), semel.Outcome{State: state, Response: map[bool]*semel.Response{true: done("x").Response}[state == semel.Done]})
					select {
					case other := <-heard:
						if got = other == id; !got && i > 0 {
							t.Errorf("%s: heard of %s, want %s", what, other, id)
						}
					case <-time.After(20 * time.Millisecond):
					case <-giveUp:
						t.Fatalf("%s: heard nothing of a record that is %s", what, state)
					}
				}
			}
			stop()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: Wake ended with %v", what, err)
			}
		}
	})
}

func TestWithoutNotifyNobodyIsTold(t *testing.T) {
	t.Parallel()
	s := open(t, rueidisTo(t, single.get(t).Addr()), redisstore.Options{})
	ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if err := s.Wake(ctx, func(semel.ID) { t.Error("told") }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wake ended with %v", err)
	}
	_, err := redisstore.Open(t.Context(), onlyDo{rueidisTo(t, single.get(t).Addr())}, redisstore.Options{Notify: true})
	if err == nil {
		t.Error("opened to notify with a client that can't listen")
	}
}

// A subscription that breaks is an error, so that who listens can begin again.
func TestABrokenSubscriptionIsAnError(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	s := open(t, rueidisTo(t, r.Addr()), redisstore.Options{Notify: true})
	heard, ended := make(chan semel.ID, 100), make(chan error, 1)
	go func() { ended <- s.Wake(t.Context(), func(id semel.ID) { heard <- id }) }()
	for listening := false; !listening; {
		id := newID()
		rec := claim(t, s, id, ask(semel.Hold))
		settle(t, s, id, rec.Owner(), done("x"))
		select {
		case <-heard:
			listening = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("Wake ended without an error")
		}
	case <-time.After(30 * time.Second):
		t.Error("Wake goes on after its server is gone")
	}
}
