package redistest

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/redisstore"
)

// saving is a store on a server, whose keys are looked at.
type saving struct {
	*testing.T
	*redisstore.Store
	client redisstore.Client
	prefix string
}

func newSaving(t *testing.T, client redisstore.Client) saving {
	t.Helper()
	name := prefix()
	return saving{t, open(t, client, redisstore.Options{Prefix: name}), client, name}
}

func (s saving) key(id driver.ID) string { return s.prefix + "{" + id.String() + "}" }

// stepsKey is what package redisstore says that it is.
func (s saving) stepsKey(id driver.ID, rec driver.Record) string {
	return s.key(id) + ":" + strconv.FormatInt(int64(rec.Created), 10)
}

func (s saving) exists(key string) bool {
	s.Helper()
	n, _ := do(s, s.client, key, "EXISTS", key).(int64)
	return n == 1
}

func (s saving) save(id driver.ID, by driver.Owner, name, result string) {
	s.Helper()
	if owned, err := s.SaveStep(s.Context(), id, by, name, []byte(result)); err != nil || !owned {
		s.Fatalf("SaveStep: owned is %t, error %v", owned, err)
	}
}

func (s saving) saved(id driver.ID, want map[string]string) {
	s.Helper()
	saved, err := s.Steps(s.Context(), id)
	got := map[string]string{}
	for name, result := range saved {
		got[name] = string(result)
	}
	if err != nil || !maps.Equal(got, want) {
		s.Errorf("the steps are %q, want %q; error %v", got, want, err)
	}
}

var charged = map[string]string{"charge": "7"}

// stepped begins an operation and saves a step.
func (s saving) stepped(p semel.LostPolicy, change func(c *driver.Claim)) (driver.ID, driver.Claim, driver.Record) {
	s.Helper()
	id, c := newID(), ask(p)
	if change != nil {
		change(&c)
	}
	rec := claim(s, s.Store, id, c)
	s.save(id, rec.Owner(), "charge", "7")
	return id, c, rec
}

// the steps' key ends with the record's, and before its tombstone, whatever becomes of it; one that waits for a
// decision never does.
func TestR84_StepsEndWithTheirRecord(t *testing.T) {
	t.Parallel()
	s := newSaving(t, rueidisTo(t, single.Get(t).Addr()))
	const hour, never = time.Hour, -time.Millisecond // as PTTL says
	short := func(c *driver.Claim) { c.Retention = 10 * time.Minute }
	tombstone := func(c *driver.Claim) { c.Tombstone = 9 * hour }
	end := func(o driver.Outcome) func(id driver.ID, rec driver.Record) {
		return func(id driver.ID, rec driver.Record) { settle(t, s, id, rec.Owner(), o) }
	}
	extend := func(x driver.Extension) func(id driver.ID, rec driver.Record) {
		return func(id driver.ID, rec driver.Record) {
			if owned, err := s.Extend(t.Context(), id, rec.Owner(), x); err != nil || !owned {
				t.Errorf("extend: owned is %t, error %v", owned, err)
			}
		}
	}
	for _, row := range []struct {
		what   string
		onLost semel.LostPolicy
		change func(c *driver.Claim)
		then   func(id driver.ID, rec driver.Record)
		record time.Duration
		steps  time.Duration
	}{
		{what: "running under Hold", record: never, steps: never},
		{what: "running under Rerun", onLost: semel.Rerun, record: 8 * hour, steps: 8 * hour},
		{
			what: "kept for ever", onLost: semel.Rerun, change: func(c *driver.Claim) { c.Retention = semel.Forever },
			record: never, steps: never,
		},
		{what: "extended", onLost: semel.Rerun, then: extend(driver.Extension{Lease: 2 * hour}), record: 9 * hour, steps: 9 * hour},
		{
			what: "begun", onLost: semel.Rerun, change: tombstone,
			then: extend(driver.Extension{Lease: hour, Begun: true}), record: 11 * hour, steps: 11 * hour,
		},
		{
			what: "claimed once more", onLost: semel.Rerun, change: func(c *driver.Claim) { c.Token = driver.Token{1} },
			then: func(id driver.ID, rec driver.Record) {
				again := ask(semel.Rerun)
				again.Fingerprint, again.Token, again.Lease = rec.Fingerprint, rec.Token, 3*hour
				claim(t, s, id, again)
			}, record: 10 * hour, steps: 10 * hour,
		},
		{
			what: "released, and run under the other policy", onLost: semel.Rerun,
			then: func(id driver.ID, rec driver.Record) {
				settle(t, s, id, driver.Owner{Token: rec.Token, Above: true}, driver.Outcome{State: driver.Free})
				next := ask(semel.Hold)
				next.Fingerprint = rec.Fingerprint
				claim(t, s, id, next)
			}, record: never, steps: never,
		},
		{what: "free", onLost: semel.Rerun, then: end(driver.Outcome{State: driver.Free}), record: hour, steps: hour},
		{
			what: "free, with a short retention", onLost: semel.Rerun, change: short, then: end(driver.Outcome{State: driver.Free}),
			record: hour, steps: hour,
		},
		{
			what: "free, with a long retention", onLost: semel.Rerun, change: func(c *driver.Claim) { c.Retention = 5 * hour },
			then: end(driver.Outcome{State: driver.Free}), record: 5 * hour, steps: 5 * hour,
		},
		{
			what: "free and owed", onLost: semel.Rerun, then: end(driver.Outcome{State: driver.Free, Owed: true}),
			record: 7 * hour, steps: 7 * hour,
		},
		{what: "unknown", onLost: semel.Rerun, then: end(driver.Outcome{State: driver.Unknown}), record: never, steps: never},
		{what: "seized", onLost: semel.Rerun, then: func(id driver.ID, _ driver.Record) {
			if _, err := s.Seize(t.Context(), id, driver.NewToken()); err != nil {
				t.Error(err)
			}
		}, record: never, steps: never},
		{what: "done", onLost: semel.Rerun, then: end(done("x")), record: hour, steps: hour},
		{what: "done under Hold, without an answer", then: end(driver.Outcome{State: driver.Done}), record: hour, steps: hour},
		{what: "done, with a tombstone", onLost: semel.Rerun, change: tombstone, then: end(done("x")), record: 10 * hour, steps: hour},
		{
			what: "done without an answer, with a tombstone", change: tombstone, then: end(driver.Outcome{State: driver.Done}),
			record: 10 * hour, steps: hour,
		},
	} {
		id, _, rec := s.stepped(row.onLost, row.change)
		if row.then != nil {
			row.then(id, rec)
		}
		s.saved(id, charged)
		if got := load(t, s, id); !got.Steps {
			t.Errorf("%s: the record says that there are no steps", row.what)
		}
		record, steps := ttl(t, s.client, s.key(id)), ttl(t, s.client, s.stepsKey(id, rec))
		for what, got := range map[string]struct{ is, want time.Duration }{"record": {record, row.record}, "steps": {steps, row.steps}} {
			if got.want < 0 && got.is != got.want || got.want > 0 && (got.is > got.want+10*time.Millisecond || got.is < got.want-time.Minute) {
				t.Errorf("%s: the key of the %s ends in %s, want %s", row.what, what, got.is, got.want)
			}
		}
	}
}

// an end that is owed is kept for seven retentions, also if another run follows; without steps too.
func TestAnOwedEndIsKeptSevenRetentions(t *testing.T) {
	t.Parallel()
	s := newSaving(t, goRedisTo(t, single.Get(t).Addr()))
	id, c := newID(), ask(semel.Rerun)
	rec := claim(t, s, id, c)
	settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Free, Owed: true})
	next := claim(t, s, id, retry(c))
	if !next.Owed {
		t.Error("in the next run it is not owed any more")
	}
	free := settle(t, s, id, next.Owner(), driver.Outcome{State: driver.Free})
	if got := ttl(t, s.client, s.key(id)); !free.Owed || got < 7*c.Retention-time.Minute || got > 7*c.Retention+10*time.Millisecond {
		t.Errorf("free again it is owed %t and ends in %s, want %s", free.Owed, got, 7*c.Retention)
	}
	next = claim(t, s, id, retry(c))
	if ended := settle(t, s, id, next.Owner(), done("x")); ended.Owed {
		t.Error("done it is still owed")
	}
}

// Nothing is left on the server of the steps of an operation that is gone, however it went.
func TestNoStepsAreLeftOfAnOperationThatIsGone(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		s := newSaving(t, lib.connect(t, single.Get(t).Addr()))
		gone := func(what string, id driver.ID, rec driver.Record) {
			t.Helper()
			for until := time.Now().Add(30 * time.Second); s.exists(s.stepsKey(id, rec)); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(until) {
					t.Errorf("%s: the steps are left", what)
					return
				}
			}
		}

		id, _, rec := s.stepped(semel.Rerun, nil)
		settled := settle(t, s, id, rec.Owner(), done("x"))
		if forgot, err := s.Forget(t.Context(), id, settled.Owner()); err != nil || !forgot {
			t.Fatalf("forget: %t, error %v", forgot, err)
		}
		if s.exists(s.stepsKey(id, rec)) {
			t.Error("forgotten: the steps are left")
		}
		s.saved(id, nil)

		soon := func(c *driver.Claim) { c.Retention = 50 * time.Millisecond }
		id, _, rec = s.stepped(semel.Rerun, soon)
		if owned, err := s.Extend(t.Context(), id, rec.Owner(), driver.Extension{Lease: 50 * time.Millisecond}); err != nil || !owned {
			t.Fatalf("extend: owned is %t, error %v", owned, err)
		}
		// After 7 retentions, and a minute after its claim at the earliest.
		record, steps := ttl(t, s.client, s.key(id)), ttl(t, s.client, s.stepsKey(id, rec))
		if record > time.Minute+10*time.Millisecond || steps > record || steps < record-time.Minute/2 {
			t.Errorf("the record of a lost run ends in %s, its steps in %s", record, steps)
		}

		id, _, rec = s.stepped(semel.Rerun, func(c *driver.Claim) { soon(c); c.Tombstone = time.Hour })
		settle(t, s, id, rec.Owner(), done("x"))
		gone("a tombstone", id, rec)
		s.saved(id, nil)
		if got := load(t, s, id); got.State != driver.Done || got.Steps || got.Response != nil {
			t.Errorf("the tombstone is %s, steps %t, answer %t", got.State, got.Steps, got.Response != nil)
		}

		for what, row := range map[string]struct {
			late  bool
			fence int64 // of the record; the key of one that is ahead of the clock is kept until the clock is there
		}{"a new operation": {}, "a new operation over a record that is still there": {fence: time.Now().Add(time.Hour).UnixMilli()}} {
			id, c, rec := s.stepped(semel.Rerun, func(c *driver.Claim) { c.Retention = 50 * time.Millisecond })
			by := rec.Owner()
			if row.fence > 0 {
				by.Fence = uint64(row.fence)
				do(t, s.client, s.key(id), "SETRANGE", s.key(id), "7", string(ownerFence(by.Fence)))
			}
			settled := settle(t, s, id, by, done("x"))
			for until := time.Now().Add(30 * time.Second); load(t, s, id).State != driver.Absent; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(until) {
					t.Fatalf("%s: the record does not end", what)
				}
			}
			if row.fence > 0 && (!s.exists(s.key(id)) || !s.exists(s.stepsKey(id, rec))) {
				t.Errorf("%s: the keys are gone: nothing is tried", what)
			}
			s.saved(id, nil)
			next := claim(t, s, id, retry(c))
			if s.exists(s.stepsKey(id, rec)) || next.Steps || next.Fence <= settled.Fence {
				t.Errorf("%s: the old steps are left, or it says that it has some: %+v", what, next)
			}
			s.saved(id, nil)
			s.save(id, next.Owner(), "ship", "8")
			s.saved(id, map[string]string{"ship": "8"})
		}
	})
}

func ownerFence(fence uint64) []byte {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(fence >> (56 - 8*i))
	}
	return b
}

// A record whose end has come, and whose key has not gone yet, is absent to a claim as it is to a reader.
func TestAClaimFindsNothingWhereAReaderFindsNothing(t *testing.T) {
	t.Parallel()
	s := newSaving(t, goRedisTo(t, single.Get(t).Addr()))
	for _, row := range []struct {
		what string
		then func(id driver.ID, by driver.Owner)
	}{
		{"lost", func(id driver.ID, by driver.Owner) {
			if owned, err := s.Extend(t.Context(), id, by, driver.Extension{Lease: 10 * time.Millisecond}); err != nil || !owned {
				t.Fatalf("extend: owned is %t, error %v", owned, err)
			}
		}},
		{"free and owed", func(id driver.ID, by driver.Owner) {
			settle(t, s, id, by, driver.Outcome{State: driver.Free, Owed: true})
		}},
	} {
		id, _, rec := s.stepped(semel.Rerun, func(c *driver.Claim) { c.Retention = 10 * time.Millisecond })
		by := rec.Owner()
		by.Fence = uint64(time.Now().Add(time.Hour).UnixMilli()) // keeps the keys
		do(t, s.client, s.key(id), "SETRANGE", s.key(id), "7", string(ownerFence(by.Fence)))
		row.then(id, by)
		for until := time.Now().Add(30 * time.Second); load(t, s, id).State != driver.Absent; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%s: the record does not end", row.what)
			}
		}
		if !s.exists(s.key(id)) {
			t.Fatalf("%s: the key is gone: nothing is tried", row.what)
		}
		next := claim(t, s, id, ask(semel.Hold)) // another request
		if next.Attempt != 1 || next.Steps || next.Owed || next.Fence <= by.Fence || s.exists(s.stepsKey(id, rec)) {
			t.Errorf("%s: the new operation is %+v after fence %d", row.what, next, by.Fence)
		}
		if got := load(t, s, id); got.State != driver.Running || got.Owner() != next.Owner() || got.Created != next.Created {
			t.Errorf("%s: it is stored as %+v, and was given out as %+v", row.what, got, next)
		}
	}
}

// R-41a: steps that are lost are no steps that were never saved, and a result that is damaged is none.
func TestR41a_LostStepsAreUnreadable(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		s := newSaving(t, lib.connect(t, single.Get(t).Addr()))
		id, _, rec := s.stepped(semel.Rerun, nil)
		s.save(id, rec.Owner(), "empty", "")
		key := s.stepsKey(id, rec)
		for what, value := range map[string]string{
			"damaged": "8" + do(t, s.client, key, "HGET", key, "charge").(string)[1:],
			"swapped": do(t, s.client, key, "HGET", key, "empty").(string),
			"cut":     "7",
		} {
			before := do(t, s.client, key, "HGET", key, "charge")
			do(t, s.client, key, "HSET", key, "charge", value)
			if saved, err := s.Steps(t.Context(), id); !errors.Is(err, driver.ErrUnreadable) || !strings.Contains(err.Error(), `"charge"`) {
				t.Errorf("%s: the steps are %q, error %v", what, saved, err)
			}
			do(t, s.client, key, "HSET", key, "charge", before)
		}
		s.saved(id, map[string]string{"charge": "7", "empty": ""})

		do(t, s.client, key, "DEL", key)
		if saved, err := s.Steps(t.Context(), id); !errors.Is(err, driver.ErrUnreadable) {
			t.Errorf("lost: the steps are %q, error %v", saved, err)
		}
		if owned, err := s.SaveStep(t.Context(), id, rec.Owner(), "ship", nil); !errors.Is(err, driver.ErrUnreadable) || owned {
			t.Errorf("lost: saving another one: owned is %t, error %v", owned, err)
		}
		if s.exists(key) {
			t.Error("a step was saved where others are lost")
		}
		settle(t, s, id, rec.Owner(), done("x"))
	})
}

// of many savers only those are acknowledged whose results the next owner finds.
func TestR48_AFencedSaverSavesNothing(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		s := newSaving(t, lib.connect(t, cluster.Get(t).Addrs()...))
		id, c, rec := s.stepped(semel.Rerun, func(c *driver.Claim) { c.Lease = time.Millisecond })
		key := s.key(id)
		slot := func(key string) any { return do(t, s.client, key, "CLUSTER", "KEYSLOT", key) }
		if slot(key) != slot(s.stepsKey(id, rec)) {
			t.Errorf("the keys are in the slots %v and %v", slot(key), slot(s.stepsKey(id, rec)))
		}
		time.Sleep(2 * time.Millisecond)
		next := claim(t, s, id, retry(c))
		if !next.Steps {
			t.Error("the next owner is not told that there are steps")
		}
		s.saved(id, charged)
		for _, name := range []string{"charge", "ship"} {
			if owned, err := s.SaveStep(t.Context(), id, rec.Owner(), name, []byte("late")); err != nil || owned {
				t.Errorf("the late owner saves %q: owned is %t, error %v", name, owned, err)
			}
		}
		s.saved(id, charged)
		s.save(id, next.Owner(), "charge", "another")
		s.saved(id, charged)
	})
}

// A server that has forgotten its scripts is sent them; one whose memory is full takes no step, and all else of the
// record.
func TestStepsOnAServerInTrouble(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		r := startRedis(t, "--maxmemory-policy", "noeviction", "--appendonly", "yes", "--appendfsync", "always")
		s := newSaving(t, lib.connect(t, r.Addr()))
		id, c, rec := s.stepped(semel.Rerun, nil)
		none := newID()
		noneRec := claim(t, s, none, ask(semel.Rerun))
		do(t, s.client, "", "SCRIPT", "FLUSH")
		s.save(id, rec.Owner(), "ship", "8")
		do(t, s.client, "", "SCRIPT", "FLUSH")
		want := map[string]string{"charge": "7", "ship": "8"}
		s.saved(id, want)

		do(t, s.client, "", "CONFIG", "SET", "maxmemory", "1mb")
		for id, by := range map[driver.ID]driver.Owner{id: rec.Owner(), none: noneRec.Owner()} {
			_, err := s.SaveStep(t.Context(), id, by, "mail", []byte("9"))
			refused(t, "a step", err, driver.ErrFull)
			refused(t, "a step", err, redisstore.ErrMemory)
		}
		s.saved(none, nil)
		if got := load(t, s, none); got.Steps {
			t.Error("the record says that there are steps, and none was saved")
		}
		s.save(id, rec.Owner(), "ship", "again") // changes nothing
		if owned, err := s.Extend(t.Context(), id, rec.Owner(), driver.Extension{}); err != nil || !owned {
			t.Errorf("a renewal: owned is %t, error %v", owned, err)
		}
		claim(t, s, id, c) // sent again
		free := settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Free, Owed: true})
		s.saved(id, want)
		do(t, s.client, "", "CONFIG", "SET", "maxmemory", "0")

		if err := r.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
		for until := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if _, err := s.Load(t.Context(), id); err == nil {
				break
			} else if time.Now().After(until) {
				t.Fatal(err)
			}
		}
		s.saved(id, want)
		next := claim(t, s, id, retry(c))
		if !next.Steps || !next.Owed || next.Attempt != free.Attempt+1 {
			t.Errorf("after a restart the next run is %+v", next)
		}
		s.save(id, next.Owner(), "mail", "9")
		s.saved(id, map[string]string{"charge": "7", "ship": "8", "mail": "9"})
	})
}

// While a slot is moved to another node a record may be there and its steps not yet: that is an error, and never a
// record without steps. Nothing is lost once it has been moved.
func TestNoStepsAreMissedWhileTheirSlotIsMoved(t *testing.T) {
	t.Parallel()
	for i, first := range []string{"record", "steps"} {
		lib := clientLibraries[i]
		t.Run(first+" first, "+lib.name, func(t *testing.T) {
			t.Parallel()
			testMove(t, lib, first)
		})
	}
}

func testMove(t *testing.T, lib clientLibrary, first string) {
	c := startCluster(t)
	s := newSaving(t, lib.connect(t, c.Addrs()...))
	id, ask, rec := s.stepped(semel.Rerun, nil)
	slot := fmt.Sprint(do(t, s.client, s.key(id), "CLUSTER", "KEYSLOT", s.key(id)))
	from, to := ownerOf(t, c, s.key(id))
	name := func(addr string) string { return do(t, direct(t, addr), "", "CLUSTER", "MYID").(string) }
	source, target := direct(t, from), direct(t, to)
	do(t, target, "", "CLUSTER", "SETSLOT", slot, "IMPORTING", name(from))
	do(t, source, "", "CLUSTER", "SETSLOT", slot, "MIGRATING", name(to))
	host, port, _ := strings.Cut(to, ":")
	move := func(key string) {
		t.Helper()
		if got := do(t, source, "", "MIGRATE", host, port, key, "0", "5000"); got != "OK" {
			t.Fatalf("MIGRATE replied %v", got)
		}
	}
	errs := func(when string, kind error) {
		t.Helper()
		_, err := s.Steps(t.Context(), id)
		refused(t, when+": the steps", err, kind)
		_, err = s.SaveStep(t.Context(), id, rec.Owner(), "ship", []byte("8"))
		refused(t, when+": one more", err, kind)
	}
	if first == "record" {
		move(s.key(id))
		errs("the record is moved", driver.ErrUnreadable)
		move(s.stepsKey(id, rec))
	} else {
		move(s.stepsKey(id, rec))
		errs("the steps are moved", redisstore.ErrTryAgain)
		before := load(t, s, id)
		_, _, err := s.Claim(t.Context(), id, ask)
		refused(t, "the claim again", err, redisstore.ErrTryAgain)
		_, err = s.Extend(t.Context(), id, rec.Owner(), driver.Extension{Begun: true})
		refused(t, "a renewal", err, redisstore.ErrTryAgain)
		_, _, err = s.Settle(t.Context(), id, rec.Owner(), done("x"))
		refused(t, "a settle", err, redisstore.ErrTryAgain)
		_, err = s.Seize(t.Context(), id, driver.NewToken())
		refused(t, "seizing", err, redisstore.ErrTryAgain)
		if after := load(t, s, id); after.State != before.State || after.LeaseEnd != before.LeaseEnd || after.Begun || after.Fence != rec.Fence {
			t.Errorf("what was refused has made %+v of %+v", after, before)
		}
		move(s.key(id))
	}
	for _, node := range []redisstore.Client{target, source} {
		do(t, node, "", "CLUSTER", "SETSLOT", slot, "NODE", name(to))
	}
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if owned, err := s.SaveStep(t.Context(), id, rec.Owner(), "ship", []byte("8")); err == nil && owned {
			break
		} else if time.Now().After(until) {
			t.Fatalf("after the move: owned is %t, error %v", owned, err)
		}
	}
	s.saved(id, map[string]string{"charge": "7", "ship": "8"})
	settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Free})
	if next := claim(t, s, id, retry(ask)); !next.Steps {
		t.Error("the next owner is not told that there are steps")
	}
}

// direct returns a client of one node of a Cluster.
func direct(t *testing.T, addr string) redisstore.Client {
	t.Helper()
	return rueidisTo(t, addr)
}

// ownerOf returns the address of the node that has a key, and that of another one.
func ownerOf(t *testing.T, c *servers.RedisCluster, key string) (owner, other string) {
	t.Helper()
	for _, addr := range c.Addrs() {
		if _, err := direct(t, addr).Do(t.Context(), key, "EXISTS", key); err == nil {
			owner = addr
		} else {
			other = addr
		}
	}
	if owner == "" || other == "" {
		t.Fatalf("%q has the key, %q has not", owner, other)
	}
	return owner, other
}
