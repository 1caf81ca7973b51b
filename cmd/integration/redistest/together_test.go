package redistest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/redisstore"
)

// several reports whether a command is for several operations.
func several(args []any) bool {
	return args[0] == "MGET" && len(args) > 2 || (args[0] == "EVALSHA" || args[0] == "EVAL") && args[2] != "0" && args[2] != "1"
}

// atOnceUntil has callers at work at the same time, again and again until enough says so.
func atOnceUntil(t *testing.T, enough func() bool, work func(caller int)) {
	t.Helper()
	for range 1000 {
		var all sync.WaitGroup
		begin := make(chan struct{})
		for caller := range 100 {
			all.Go(func() {
				<-begin
				work(caller)
			})
		}
		close(begin)
		all.Wait()
		if enough() || t.Failed() {
			return
		}
	}
	t.Error("nothing goes together")
}

// once claims, settles and asks again, and checks that all is the caller's own.
func once(t *testing.T, s *redisstore.Store, caller int) {
	id, c := newID(), ask(semel.Hold)
	c.Correlation = fmt.Sprintf("caller %d", caller)
	rec, owned, err := s.Claim(t.Context(), id, c)
	if err != nil || !owned || rec.Token != c.Token || rec.Attempt != 1 {
		t.Errorf("claim: owned is %t, attempt %d, error %v", owned, rec.Attempt, err)
		return
	}
	got, owned, err := s.Settle(t.Context(), id, rec.Owner(), done(c.Correlation))
	if err != nil || !owned || got.State != driver.Done || got.Owner() != rec.Owner() {
		t.Errorf("settle: owned is %t, %s, error %v", owned, got.State, err)
	}
	for range 2 {
		got, owned, err = s.Claim(t.Context(), id, retry(c))
		if err != nil || owned || got.Response == nil || string(got.Response.Body) != c.Correlation || got.Correlation != c.Correlation {
			t.Errorf("a repeat: owned is %t, %+v, error %v", owned, got, err)
		}
	}
}

// callers who ask at the same time share commands, and each has what is its own; over every client, with
// notifications too.
func TestR26_WhatGoesTogetherIsAnsweredToEach(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		for _, notify := range []bool{false, true} {
			var writes, reads atomic.Int64
			client := lib.connect(t, single.Get(t).Addr())
			s := open(t, tappedSubscriber{tapped{client, func(args []any, send func(...any) (any, error)) (any, error) {
				if several(args) && args[0] == "MGET" {
					reads.Add(1)
				} else if several(args) {
					writes.Add(1)
				}
				return send(args...)
			}}, client.(redisstore.Subscriber)}, redisstore.Options{Notify: notify})
			atOnceUntil(t, func() bool { return writes.Load() > 0 && reads.Load() > 0 }, func(caller int) { once(t, s, caller) })
		}
	})
}

// A tappedSubscriber is a tapped client that can listen.
type tappedSubscriber struct {
	tapped
	redisstore.Subscriber
}

// Case 7: the reply to several is lost, after all of it was executed or before. Each of them asks alone, and has its
// own.
func TestTheReplyToSeveralIsLost(t *testing.T) {
	t.Parallel()
	for _, executed := range []bool{true, false} {
		var lost atomic.Int64
		client := rueidisTo(t, single.Get(t).Addr())
		s := open(t, tapped{client, func(args []any, send func(...any) (any, error)) (any, error) {
			if !several(args) {
				return send(args...)
			}
			lost.Add(1)
			if executed {
				if _, err := send(args...); err != nil {
					return nil, err
				}
			}
			return nil, errors.New("connection reset by peer")
		}}, redisstore.Options{})
		atOnceUntil(t, func() bool { return lost.Load() > 0 }, func(caller int) { once(t, s, caller) })
	}
}

// A key that holds what is no record is the matter of who asks about it.
func TestOneThatFailsFailsAlone(t *testing.T) {
	t.Parallel()
	var together atomic.Int64
	client := rueidisTo(t, single.Get(t).Addr())
	name := prefix()
	s := open(t, tapped{client, func(args []any, send func(...any) (any, error)) (any, error) {
		if several(args) {
			together.Add(1)
		}
		return send(args...)
	}}, redisstore.Options{Prefix: name})
	atOnceUntil(t, func() bool { return together.Load() > 0 }, func(caller int) {
		if caller%10 > 0 {
			once(t, s, caller)
			return
		}
		id := newID()
		key := name + "{" + id.String() + "}"
		if _, err := client.Do(t.Context(), key, "LPUSH", key, "not a record"); err != nil {
			t.Error(err)
		}
		if _, owned, err := s.Claim(t.Context(), id, ask(semel.Hold)); err == nil || owned {
			t.Errorf("a claim of a key that holds a list: owned is %t, error %v", owned, err)
		}
	})
}

// In a Cluster there is no command for keys of several nodes: repeats of a cache are answered all the same.
func TestNothingGoesTogetherInACluster(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		client := lib.connect(t, cluster.Get(t).Addrs()...)
		s, c := open(t, client, redisstore.Options{}), redisstore.NewCache(client, redisstore.CacheOptions{Prefix: prefix()})
		rounds := 0
		atOnceUntil(t, func() bool { rounds++; return rounds == 3 }, func(caller int) {
			once(t, s, caller)
			id, ask := newID(), ask(semel.Hold)
			rec, _ := driver.Record{}.Claim(1_700_000_000_000_000, ask)
			rec, _ = rec.Settle(rec.Now, rec.Owner(), done(fmt.Sprint(caller)))
			_, ticket, err := c.Get(t.Context(), id)
			if err == nil {
				err = c.Fill(t.Context(), id, rec, ticket)
			}
			for range 3 {
				got, _, failed := c.Get(t.Context(), id)
				if err != nil || failed != nil || got.Response == nil || string(got.Response.Body) != fmt.Sprint(caller) {
					t.Errorf("error %v, error %v, %+v", err, failed, got)
				}
			}
		})
	})
}
