package redistest

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/redisstore"
)

// A server whose memory is used up takes no new key. Whatever ends, renews or decides about a record it has still
// works, but for a new answer, which may go without.
func TestAServerWithoutMemoryLosesNothing(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		r := startRedis(t, "--maxmemory-policy", "noeviction")
		client := lib.connect(t, r.Addr())
		o := redisstore.Options{Prefix: prefix()}
		s := open(t, client, o)
		begin := func(p semel.LostPolicy, change func(c *driver.Claim)) (driver.ID, driver.Claim, driver.Record) {
			id, c := newID(), ask(p)
			if change != nil {
				change(&c)
			}
			return id, c, claim(t, s, id, c)
		}
		finished, finishedClaim, rec := begin(semel.Hold, nil)
		finishedRec := settle(t, s, finished, rec.Owner(), done("answer"))
		running, runningClaim, run := begin(semel.Hold, nil)
		rerun, rerunClaim, again := begin(semel.Rerun, nil)
		freed, _, toFree := begin(semel.Rerun, nil)
		marked, _, toMark := begin(semel.Hold, func(c *driver.Claim) { c.Tombstone, c.Sealed = c.Retention, []byte("sealed") })
		seized, _, _ := begin(semel.Hold, nil)
		do(t, client, "", "CONFIG", "SET", "maxmemory", "1mb")

		ctx := t.Context()
		_, _, err := s.Claim(ctx, newID(), ask(semel.Hold))
		refused(t, "a new key", err, driver.ErrFull)
		refused(t, "a new key", err, redisstore.ErrMemory)
		_, _, err = s.Claim(ctx, newID(), ask(semel.Rerun))
		refused(t, "a new key under Rerun", err, driver.ErrFull)
		refused(t, "an audit entry", s.Audit(ctx, driver.AuditEntry{}), driver.ErrFull)

		var all sync.WaitGroup
		for range 100 { // also those who ask at the same time, in one command
			all.Go(func() {
				_, _, err := s.Claim(ctx, newID(), ask(semel.Hold))
				refused(t, "one of many new keys", err, driver.ErrFull)
			})
		}
		all.Wait()

		got, owned, err := s.Claim(ctx, finished, retry(finishedClaim))
		if err != nil || owned || got.Response == nil {
			t.Errorf("a repeat: owned is %t, answer %t, error %v", owned, got.Response != nil, err)
		}
		stranger := open(t, client, o) // which has not seen it done
		if got, owned, err = stranger.Claim(ctx, finished, retry(finishedClaim)); err != nil || owned || got.Response == nil {
			t.Errorf("a repeat in another process: owned is %t, answer %t, error %v", owned, got.Response != nil, err)
		}
		for _, run := range []struct {
			id driver.ID
			c  driver.Claim
			by driver.Owner
		}{{running, runningClaim, run.Owner()}, {rerun, rerunClaim, again.Owner()}} {
			if owned, err := s.Extend(ctx, run.id, run.by, driver.Extension{Begun: true}); err != nil || !owned {
				t.Errorf("a renewal: owned is %t, error %v", owned, err)
			}
			claim(t, s, run.id, run.c) // sent again, since its reply was lost
		}
		for _, run := range []struct {
			id driver.ID
			by driver.Owner
		}{{running, run.Owner()}, {marked, toMark.Owner()}} {
			_, _, err = s.Settle(ctx, run.id, run.by, driver.Outcome{
				State: driver.Done, Response: &driver.Response{Status: 200, Body: bytes.Repeat([]byte("x"), 1000)},
			})
			refused(t, "an answer", err, driver.ErrFull)
			settle(t, s, run.id, run.by, driver.Outcome{State: driver.Done})
		}
		settle(t, s, freed, toFree.Owner(), driver.Outcome{State: driver.Free, Error: "no route to host"})
		token := driver.NewToken()
		if rec, err := s.Seize(ctx, seized, token); err != nil || rec.Token != token {
			t.Errorf("seized is %t, error %v", rec.Token == token, err)
		}
		if forgot, err := s.Forget(ctx, finished, finishedRec.Owner()); err != nil || !forgot {
			t.Errorf("forgotten is %t, error %v", forgot, err)
		}

		do(t, client, "", "CONFIG", "SET", "maxmemory", "0")
		next := claim(t, s, finished, finishedClaim)
		if next.Fence <= finishedRec.Fence {
			t.Errorf("after forget fence %d follows %d", next.Fence, finishedRec.Fence)
		}
	})
}

func TestAServerThatEvictsIsRefused(t *testing.T) {
	t.Parallel()
	r := startRedis(t, "--maxmemory", "100mb")
	client := rueidisTo(t, r.Addr())
	for _, row := range []struct {
		policy, memory string
		allowed        bool
		refused        bool
		warns          bool
	}{
		{"noeviction", "100mb", false, false, false},
		{"volatile-ttl", "100mb", false, true, false},
		{"allkeys-lru", "100mb", false, true, false},
		{"volatile-lru", "100mb", true, false, true},
		{"volatile-lru", "0", false, false, true},
	} {
		do(t, client, "", "CONFIG", "SET", "maxmemory-policy", row.policy, "maxmemory", row.memory)
		var log bytes.Buffer
		_, err := redisstore.Open(t.Context(), client, redisstore.Options{
			AllowEviction: row.allowed, Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if errors.Is(err, redisstore.ErrEvicts) != row.refused || err != nil && !row.refused {
			t.Errorf("%s at %s, allowed %t: error %v", row.policy, row.memory, row.allowed, err)
		}
		if warned := strings.Contains(log.String(), row.policy); warned != row.warns {
			t.Errorf("%s at %s, allowed %t: log %q", row.policy, row.memory, row.allowed, log.String())
		}
	}
}

func TestANodeThatEvictsIsFoundInACluster(t *testing.T) {
	t.Parallel()
	for _, lib := range clientLibraries {
		c := startCluster(t)
		node := rueidisTo(t, c.Addrs()[1])
		do(t, node, "", "CONFIG", "SET", "maxmemory-policy", "allkeys-random", "maxmemory", "100mb")
		_, err := redisstore.Open(t.Context(), lib.connect(t, c.Addrs()...), redisstore.Options{})
		refused(t, lib.name, err, redisstore.ErrEvicts)
	}
}
