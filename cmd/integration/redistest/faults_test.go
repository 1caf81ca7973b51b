package redistest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/redisstore"
)

// A server forgets scripts when it is told to, restarts, or becomes the primary: they are sent again.
func TestScriptsThatAreForgottenAreSentAgain(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		r := startRedis(t)
		s := open(t, lib.connect(t, r.Addr()), redisstore.Options{})
		operator := rueidisTo(t, r.Addr())
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				do(t, operator, "", "SCRIPT", "FLUSH")
			}
		})
		var work sync.WaitGroup
		for range 8 {
			work.Go(func() {
				for range 40 {
					id := newID()
					rec, owned, err := s.Claim(ctx, id, ask(semel.Hold))
					if err != nil || !owned {
						t.Errorf("claim: owned is %t, error %v", owned, err)
						return
					}
					if owned, err = s.Extend(ctx, id, rec.Owner(), driver.Extension{}); err != nil || !owned {
						t.Errorf("extend: owned is %t, error %v", owned, err)
					}
					if _, owned, err = s.Settle(ctx, id, rec.Owner(), done("answer")); err != nil || !owned {
						t.Errorf("settle: owned is %t, error %v", owned, err)
					}
				}
			})
		}
		work.Wait()
		stop()
		wg.Wait()
	})
}

// What docs/guarantees.md says that a restart loses, and what not: a late owner is kept out in both cases.
func TestARestartLosesOnlyWhatIsNotOnTheDisk(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		args  []string
		keeps bool
	}{
		{"without persistence", nil, false},
		{"with each write synced", []string{"--appendonly", "yes", "--appendfsync", "always"}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := startRedis(t, row.args...)
			s := open(t, goRedisTo(t, r.Addr()), redisstore.Options{})
			finished, finishedClaim := newID(), ask(semel.Hold)
			rec := claim(t, s, finished, finishedClaim)
			settled := settle(t, s, finished, rec.Owner(), done("answer"))
			running, runningClaim := newID(), ask(semel.Hold)
			run := claim(t, s, running, runningClaim)
			if err := r.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := r.Start(); err != nil {
				t.Fatal(err)
			}
			if row.keeps {
				if got := load(t, s, finished); got.Response == nil || got.Fence != settled.Fence {
					t.Errorf("the answer is gone: %s", got.State)
				}
				settle(t, s, running, run.Owner(), done("late"))
				return
			}
			next := claim(t, s, finished, retry(finishedClaim))
			if next.Fence <= settled.Fence {
				t.Errorf("fence %d follows %d", next.Fence, settled.Fence)
			}
			locksOut(t, s, running, run) // nothing is there
			claim(t, s, running, retry(runningClaim))
			locksOut(t, s, running, run) // another's run is there
		})
	}
}

// locksOut checks that a late owner can do nothing.
func locksOut(t *testing.T, s *redisstore.Store, id driver.ID, late driver.Record) {
	t.Helper()
	before := load(t, s, id)
	by := late.Owner()
	if owned, err := s.Extend(t.Context(), id, by, driver.Extension{}); err != nil || owned {
		t.Errorf("extend by the late owner: owned is %t, error %v", owned, err)
	}
	for _, o := range []driver.Outcome{done("late"), {State: driver.Free}, {State: driver.Unknown}} {
		if _, owned, err := s.Settle(t.Context(), id, by, o); err != nil || owned {
			t.Errorf("settle as %s by the late owner: owned is %t, error %v", o.State, owned, err)
		}
	}
	by.Above, by.Fence = true, 0
	if _, owned, err := s.Settle(t.Context(), id, by, driver.Outcome{State: driver.Free}); err != nil || owned {
		t.Errorf("release by the late owner's token: owned is %t, error %v", owned, err)
	}
	if after := load(t, s, id); after.State != before.State || after.Owner() != before.Owner() {
		t.Errorf("the record was %s of %+v, is %s of %+v", before.State, before.Owner(), after.State, after.Owner())
	}
}

// what a failover to a replica that was behind loses, and what not.
func TestR48_AFailoverKeepsStaleOwnersOut(t *testing.T) {
	t.Parallel()
	primary, replica, err := servers.NewRedisPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { primary.Close(); replica.Close() })
	name := prefix()
	old := open(t, rueidisTo(t, primary.Addr()), redisstore.Options{Prefix: name})
	promoted := rueidisTo(t, replica.Addr())
	s := open(t, promoted, redisstore.Options{Prefix: name})

	copied, copiedClaim := newID(), ask(semel.Hold)
	copiedRun := claim(t, old, copied, copiedClaim)
	finished, finishedClaim := newID(), ask(semel.Hold)
	rec := claim(t, old, finished, finishedClaim)
	settle(t, old, finished, rec.Owner(), done("answer"))
	taken, takenClaim := newID(), ask(semel.Rerun)
	takenClaim.Lease = time.Microsecond // over at once
	takenRun := claim(t, old, taken, takenClaim)
	for until := time.Now().Add(30 * time.Second); load(t, s, taken).State == driver.Absent; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the replica does not follow")
		}
	}

	// The replica is made a primary while the old one, cut off from it, still takes requests.
	do(t, promoted, "", "REPLICAOF", "NO", "ONE")
	lost, lostClaim := newID(), ask(semel.Hold)
	lostRun := claim(t, old, lost, lostClaim)
	takeover := claim(t, old, taken, retry(takenClaim))
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}

	if got, owned, err := s.Claim(t.Context(), finished, retry(finishedClaim)); err != nil || owned || got.Response == nil {
		t.Errorf("a repeat of what was copied: owned is %t, error %v", owned, err)
	}
	settle(t, s, copied, copiedRun.Owner(), done("its owner goes on"))

	locksOut(t, s, lost, lostRun)
	next := claim(t, s, lost, retry(lostClaim)) // which the paragraph in docs/guarantees.md is about
	if next.Token == lostRun.Token || next.Fence < lostRun.Fence {
		t.Errorf("fence %d follows %d", next.Fence, lostRun.Fence)
	}
	locksOut(t, s, lost, lostRun)

	if owned, err := s.Extend(t.Context(), taken, takeover.Owner(), driver.Extension{}); err != nil || owned {
		t.Errorf("the lost takeover's owner extends: owned is %t, error %v", owned, err)
	}
	again := claim(t, s, taken, retry(takenClaim))
	locksOut(t, s, taken, takeover)
	locksOut(t, s, taken, takenRun)
	settle(t, s, taken, again.Owner(), done("of the run that counts"))
}
