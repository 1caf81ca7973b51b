package redistest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/redisstore"
)

func ttl(t *testing.T, c redisstore.Client, key string) time.Duration {
	t.Helper()
	ms, _ := do(t, c, key, "PTTL", key).(int64)
	return time.Duration(ms) * time.Millisecond
}

// nothing has to sweep. A key ends when its record is no longer needed, and not before; one that waits for
// a decision never does.
func TestR55_KeysEndByThemselves(t *testing.T) {
	t.Parallel()
	client := rueidisTo(t, single.Get(t).Addr())
	name := prefix()
	s := open(t, client, redisstore.Options{Prefix: name})
	const hour, never = time.Hour, -time.Millisecond // as PTTL says
	for _, row := range []struct {
		what   string
		onLost semel.LostPolicy
		change func(c *driver.Claim)
		then   func(id driver.ID, by driver.Owner)
		key    time.Duration
		apart  time.Duration // of the answer's own key; 0 if there is none
	}{
		{what: "running under Hold", key: never},
		{what: "running under Rerun", onLost: semel.Rerun, key: 2 * hour},
		{what: "with a sealed request", onLost: semel.Rerun, change: func(c *driver.Claim) { c.Sealed = []byte("x") }, key: 8 * hour},
		{what: "begun", then: func(id driver.ID, by driver.Owner) {
			if owned, err := s.Extend(t.Context(), id, by, driver.Extension{Lease: hour, Begun: true}); err != nil || !owned {
				t.Errorf("extend: owned is %t, error %v", owned, err)
			}
		}, key: 2 * hour},
		{what: "kept for ever", onLost: semel.Rerun, change: func(c *driver.Claim) { c.Retention = semel.Forever }, key: never},
		{what: "done", then: func(id driver.ID, by driver.Owner) { settle(t, s, id, by, done("x")) }, key: hour},
		{what: "done without an answer", then: func(id driver.ID, by driver.Owner) { settle(t, s, id, by, driver.Outcome{State: driver.Done}) }, key: hour},
		{what: "free", then: func(id driver.ID, by driver.Owner) { settle(t, s, id, by, driver.Outcome{State: driver.Free}) }, key: driver.FreeRetention},
		{what: "unknown", onLost: semel.Rerun, then: func(id driver.ID, by driver.Owner) { settle(t, s, id, by, driver.Outcome{State: driver.Unknown}) }, key: never},
		{what: "seized", onLost: semel.Rerun, then: func(id driver.ID, _ driver.Owner) {
			if _, err := s.Seize(t.Context(), id, driver.NewToken()); err != nil {
				t.Error(err)
			}
		}, key: never},
		{
			what: "done, with a tombstone", change: func(c *driver.Claim) { c.Tombstone = 9 * hour },
			then: func(id driver.ID, by driver.Owner) { settle(t, s, id, by, done("x")) }, key: 10 * hour, apart: hour,
		},
		{
			what: "done without an answer, with a tombstone", change: func(c *driver.Claim) { c.Tombstone = 9 * hour },
			then: func(id driver.ID, by driver.Owner) { settle(t, s, id, by, driver.Outcome{State: driver.Done}) }, key: 10 * hour,
		},
		{what: "forgotten", then: func(id driver.ID, by driver.Owner) {
			rec := settle(t, s, id, by, done("x"))
			if forgot, err := s.Forget(t.Context(), id, rec.Owner()); err != nil || !forgot {
				t.Errorf("forget: %t, error %v", forgot, err)
			}
		}, key: time.Minute}, // which a claim that was under way then finds taken
	} {
		id, c := newID(), ask(row.onLost)
		if row.change != nil {
			row.change(&c)
		}
		rec := claim(t, s, id, c)
		if row.then != nil {
			row.then(id, rec.Owner())
		}
		key := name + "{" + id.String() + "}"
		for key, want := range map[string]time.Duration{key: row.key, key + "~": row.apart} {
			if want == 0 {
				want = -2 * time.Millisecond // there is no such key
			}
			got := ttl(t, client, key)
			if want < 0 && got != want || want > 0 && (got > want+10*time.Millisecond || got < want-min(want/2, time.Minute)) {
				t.Errorf("%s: the key %q ends in %s, want %s", row.what, strings.TrimPrefix(key, name), got, want)
			}
		}
	}
	if n, err := s.Sweep(t.Context(), 100); n != 0 || err != nil {
		t.Errorf("Sweep changed %d records, error %v", n, err)
	}
}

// the answer ends with its retention, and the tombstone stays; in a Cluster both keys are in one slot.
func TestR54_TheAnswerEndsBeforeItsTombstone(t *testing.T) {
	t.Parallel()
	client := goRedisTo(t, cluster.Get(t).Addrs()...)
	name := prefix()
	s := open(t, client, redisstore.Options{Prefix: name})
	id, c := newID(), ask(semel.Hold)
	c.Retention, c.Tombstone, c.Sealed = 200*time.Millisecond, time.Hour, []byte("sealed")
	rec := claim(t, s, id, c)
	settle(t, s, id, rec.Owner(), done("answer"))
	key := name + "{" + id.String() + "}"
	slot := func(key string) any { return do(t, client, key, "CLUSTER", "KEYSLOT", key) }
	if slot(key) != slot(key+"~") {
		t.Errorf("the keys are in the slots %v and %v", slot(key), slot(key+"~"))
	}
	if got, owned, err := s.Claim(t.Context(), id, retry(c)); err != nil || owned {
		t.Errorf("a repeat: owned is %t, error %v", owned, err)
	} else if got.Reads(semel.Hold) == driver.ReadsDone && (got.Response == nil || len(got.Sealed) > 0) {
		t.Errorf("a repeat within the retention has no answer, or a request: %t, %d bytes", got.Response != nil, len(got.Sealed))
	}
	for until := time.Now().Add(30 * time.Second); ttl(t, client, key+"~") >= 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the answer does not end")
		}
	}
	got, owned, err := s.Claim(t.Context(), id, retry(c))
	if err != nil || owned || got.Reads(semel.Hold) != driver.ReadsExpired || got.Response != nil || got.Sealed != nil {
		t.Errorf("after the retention: owned is %t, reads as %s, error %v", owned, got.Reads(semel.Hold), err)
	}
	if forgot, err := s.Forget(t.Context(), id, got.Owner()); err != nil || !forgot {
		t.Errorf("forget: %t, error %v", forgot, err)
	}
	claim(t, s, id, c)
}

// R-41a: a key that holds anything else is unreadable to every verb, and none of them changes it.
func TestR41a_WhatCantBeReadIsLeftAlone(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		client := lib.connect(t, single.Get(t).Addr())
		name := prefix()
		s := open(t, client, redisstore.Options{Prefix: name})
		frame := func(p semel.LostPolicy, then func(id driver.ID, by driver.Owner)) (driver.Owner, string) {
			id := newID()
			rec := claim(t, s, id, ask(p))
			if then != nil {
				then(id, rec.Owner())
			}
			key := name + "{" + id.String() + "}"
			v, _ := do(t, client, key, "GET", key).(string)
			return rec.Owner(), v
		}
		change := func(frame string, at int, to byte) string { return frame[:at] + string(rune(to)) + frame[at+1:] }
		running, run := frame(semel.Rerun, nil)
		finished, answer := frame(semel.Hold, func(id driver.ID, by driver.Owner) { settle(t, s, id, by, done("answer")) })
		freed, free := frame(semel.Hold, func(id driver.ID, by driver.Owner) {
			settle(t, s, id, by, driver.Outcome{State: driver.Free})
		})
		for what, row := range map[string]struct {
			by    driver.Owner
			value string
		}{
			"another program's":         {running, "OK"},
			"cut short":                 {running, run[:len(run)-1]},
			"cut in the head":           {running, run[:20]},
			"of a later frame version":  {running, change(run, 0, 2)},
			"of a later layout version": {running, change(change(run, 1, 9), 2, 9)},
			"in no known state":         {running, change(run, 3, 7)},
			"in state 0":                {running, change(run, 3, 0)},
			"with an unknown flag":      {running, change(run, 4, 32)},
			"free, cut short":           {freed, free[:len(free)-1]},
			"free, a later version":     {freed, change(free, 0, 2)},
			"done, and cut short":       {finished, answer[:len(answer)-3]},
			"done, and damaged":         {finished, change(answer, len(answer)-2, answer[len(answer)-2]^1)},
		} {
			id := newID()
			key := name + "{" + id.String() + "}"
			do(t, client, key, "SET", key, row.value)
			verbs := map[string]func() error{
				"Claim": func() error {
					_, _, err := s.Claim(t.Context(), id, ask(semel.Rerun))
					return err
				},
				"Extend": func() error {
					_, err := s.Extend(t.Context(), id, row.by, driver.Extension{Begun: true})
					return err
				},
				"Settle": func() error {
					_, _, err := s.Settle(t.Context(), id, row.by, done("x"))
					return err
				},
				"SaveStep": func() error {
					_, err := s.SaveStep(t.Context(), id, row.by, "charge", nil)
					return err
				},
				"Load":  func() error { _, err := s.Load(t.Context(), id); return err },
				"Steps": func() error { _, err := s.Steps(t.Context(), id); return err },
				"Seize": func() error { _, err := s.Seize(t.Context(), id, driver.NewToken()); return err },
			}
			for verb, call := range verbs {
				err := call()
				// Some read the head only, as far as which nothing is wrong with some of these.
				head := verb == "Extend" || verb == "SaveStep" || verb == "Steps"
				if !errors.Is(err, driver.ErrUnreadable) && (!head || err != nil) {
					t.Errorf("%s of a record %s: error %v", verb, what, err)
				}
				if head {
					continue
				}
				if v := do(t, client, key, "GET", key); v != row.value && !strings.Contains(what, "cut short") {
					t.Errorf("%s has changed a record %s", verb, what)
				}
			}
			err := s.List(t.Context(), driver.Query{}, func(driver.ID, driver.Record) bool { return true })
			if !errors.Is(err, driver.ErrUnreadable) || !strings.Contains(err.Error(), id.String()) {
				t.Errorf("List with a record %s: error %v", what, err)
			}
			do(t, client, key, "DEL", key)
		}
	})
}

// ids and prefixes are bytes, whatever they spell.
func TestR62_KeysAreInert(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		client := lib.connect(t, single.Get(t).Addr())
		for i, odd := range []string{"*", "[a-z]", "a?b\\", "{", "}", "{x}", "\r\nDEL *\r\n", "\x00\xff", "EVAL", " ", "ümlaut"} {
			name := prefix() + odd
			other := open(t, client, redisstore.Options{Prefix: prefix() + strings.Repeat("a", i)})
			claim(t, other, newID(), ask(semel.Hold))
			s := open(t, client, redisstore.Options{Prefix: name})
			id, c := newID(), ask(semel.Hold)
			copy(id[:], "}{*?\r\n\x00")
			c.Tombstone = time.Hour
			rec := claim(t, s, id, c)
			settle(t, s, id, rec.Owner(), done("answer"))
			if got := load(t, s, id); got.Response == nil || string(got.Response.Body) != "answer" {
				t.Errorf("prefix %q: %s", name, got.State)
			}
			scope := id.Scope()
			for _, q := range []driver.Query{{}, {Scope: &scope}} {
				var got []driver.ID
				err := s.List(t.Context(), q, func(id driver.ID, _ driver.Record) bool {
					got = append(got, id)
					return true
				})
				if err != nil || !slices.Equal(got, []driver.ID{id}) {
					t.Errorf("prefix %q: it lists %v, error %v", name, got, err)
				}
			}
		}
	})
}

// a fence is remembered over forget.
func TestR46_FencesGrowOverForget(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		s := open(t, lib.connect(t, single.Get(t).Addr()), redisstore.Options{})
		id := newID()
		var last uint64
		for range 200 {
			rec := claim(t, s, id, ask(semel.Hold))
			if rec.Fence <= last || rec.Attempt != 1 {
				t.Fatalf("fence %d, attempt %d follows fence %d", rec.Fence, rec.Attempt, last)
			}
			last = rec.Fence
			settle(t, s, id, rec.Owner(), done("x"))
			if forgot, err := s.Forget(t.Context(), id, rec.Owner()); err != nil || !forgot {
				t.Fatalf("forget: %t, error %v", forgot, err)
			}
			if got := load(t, s, id); got.State != driver.Absent || got.Fence != 0 {
				t.Fatalf("forgotten it is %s with fence %d", got.State, got.Fence)
			}
		}
	})
}

func TestTwoStoresWithOnePrefixShareRecords(t *testing.T) {
	t.Parallel()
	name := prefix()
	a := open(t, rueidisTo(t, single.Get(t).Addr()), redisstore.Options{Prefix: name})
	b := open(t, goRedisTo(t, single.Get(t).Addr()), redisstore.Options{Prefix: name})
	stranger := open(t, goRedisTo(t, single.Get(t).Addr()), redisstore.Options{})
	id, c := newID(), ask(semel.Hold)
	rec := claim(t, a, id, c)
	settle(t, b, id, rec.Owner(), done("answer"))
	for i := range 3 { // from the second time on it is known to be done
		got, owned, err := a.Claim(t.Context(), id, retry(c))
		if err != nil || owned || got.Response == nil || got.Now < got.Settled || got.Reads(semel.Hold) != driver.ReadsDone {
			t.Errorf("repeat %d: owned is %t, %+v, error %v", i, owned, got, err)
		}
		other := retry(c)
		other.Fingerprint = driver.Fingerprint{Raw: driver.NewToken()}
		if got, owned, err = b.Claim(t.Context(), id, other); err != nil || owned || got.Fingerprint != c.Fingerprint {
			t.Errorf("another request %d: owned is %t, error %v", i, owned, err)
		}
	}
	// What one process knows to be done another may forget.
	if forgot, err := b.Forget(t.Context(), id, rec.Owner()); err != nil || !forgot {
		t.Fatalf("forget: %t, error %v", forgot, err)
	}
	next := claim(t, a, id, retry(c))
	if got, owned, err := b.Claim(t.Context(), id, retry(c)); err != nil || owned || got.State != driver.Running || got.Fence != next.Fence {
		t.Errorf("a claim of what was forgotten and runs again: owned is %t, %s, error %v", owned, got.State, err)
	}
	if got := load(t, stranger, id); got.State != driver.Absent {
		t.Errorf("with another prefix it is %s", got.State)
	}
}

func TestListingAClusterNeedsAllItsNodes(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		s := open(t, lib.connect(t, cluster.Get(t).Addrs()...), redisstore.Options{})
		want := map[driver.ID]bool{}
		for range 2000 {
			id := newID()
			want[id] = true
			claim(t, s, id, ask(semel.Hold))
		}
		err := s.List(t.Context(), driver.Query{Reading: driver.ReadsRunning}, func(id driver.ID, _ driver.Record) bool {
			if !want[id] {
				t.Errorf("%s is listed twice, or is no record", id)
			}
			delete(want, id)
			return true
		})
		if err != nil || len(want) > 0 {
			t.Errorf("%d are missing, error %v", len(want), err)
		}
	})
	blind := open(t, onlyDo{rueidisTo(t, cluster.Get(t).Addrs()...)}, redisstore.Options{})
	claim(t, blind, newID(), ask(semel.Hold))
	err := blind.List(t.Context(), driver.Query{}, func(driver.ID, driver.Record) bool { return true })
	if err == nil || !strings.Contains(err.Error(), "NodeVisitor") {
		t.Errorf("with a client that does not know the nodes: error %v", err)
	}
	single := open(t, onlyDo{rueidisTo(t, single.Get(t).Addr())}, redisstore.Options{})
	claim(t, single, newID(), ask(semel.Hold))
	n := 0
	if err := single.List(t.Context(), driver.Query{}, func(driver.ID, driver.Record) bool { n++; return true }); err != nil || n != 1 {
		t.Errorf("of one server: %d records, error %v", n, err)
	}
}

// onlyDo is a client without anything optional.
type onlyDo struct{ redisstore.Client }

// the trail is complete, in order, and outlives the records.
func TestR87_TheTrailIsCompleteAndOutlivesTheRecords(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		s := open(t, lib.connect(t, cluster.Get(t).Addrs()...), redisstore.Options{})
		ids := []driver.ID{newID(), newID()}
		const n = 600
		var want []driver.AuditEntry
		for i := range n {
			e := driver.AuditEntry{
				ID: ids[i%2], Operation: "POST /payments", Actor: "ümlaut\r\n", Action: "release", Reason: fmt.Sprint(i), Result: "",
			}
			if err := s.Audit(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			want = append(want, e)
		}
		slices.Reverse(want)
		read := func(id *driver.ID, limit int) (got []driver.AuditEntry) {
			var last driver.Time
			err := s.AuditTrail(t.Context(), id, limit, func(e driver.AuditEntry) bool {
				if e.At == 0 || last != 0 && e.At > last {
					t.Errorf("%s is before %s", e.At.Time(), last.Time())
				}
				last, e.At = e.At, 0
				got = append(got, e)
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		if got := read(nil, 0); !slices.Equal(got, want) {
			t.Errorf("%d entries, want %d as they were", len(got), n)
		}
		if got := read(nil, 300); !slices.Equal(got, want[:300]) {
			t.Errorf("%d entries, want the last 300", len(got))
		}
		of := slices.DeleteFunc(slices.Clone(want), func(e driver.AuditEntry) bool { return e.ID != ids[0] })
		if got := read(&ids[0], 0); !slices.Equal(got, of) {
			t.Errorf("%d entries about one operation, want %d", len(got), len(of))
		}
	})
}
