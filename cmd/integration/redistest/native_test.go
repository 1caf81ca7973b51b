package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/redisstore"
)

// A tapped client lets a test see, change and lose what goes by. It is called with each command.
type tapped struct {
	redisstore.Client
	tap func(args []any, send func(args ...any) (any, error)) (any, error)
}

func (c tapped) Do(ctx context.Context, key string, args ...any) (any, error) {
	return c.tap(args, func(args ...any) (any, error) { return c.Client.Do(ctx, key, args...) })
}

// older makes of a server one that is too old for native claims, so that scripts do all.
func older(c redisstore.Client) redisstore.Client {
	return tapped{c, func(args []any, send func(...any) (any, error)) (any, error) {
		if args[0] == "INFO" {
			return "redis_version:6.2.0\r\naof_enabled:1\r\n", nil
		}
		return send(args...)
	}}
}

// counting counts commands by their names.
func counting(c redisstore.Client, native *atomic.Int64) redisstore.Client {
	return tapped{c, func(args []any, send func(...any) (any, error)) (any, error) {
		if args[0] == "SET" {
			native.Add(1)
		}
		return send(args...)
	}}
}

// natively claims until a native command did it: after a pause a script tells the time first.
func natively(t *testing.T, s *redisstore.Store, native *atomic.Int64, c driver.Claim) (driver.ID, driver.Record) {
	t.Helper()
	for range 1000 {
		id, before := newID(), native.Load()
		if rec := claim(t, s, id, c); native.Load() > before {
			return id, rec
		}
	}
	t.Fatal("no claim is a native one")
	return driver.ID{}, driver.Record{}
}

// What native commands write is what scripts write, but for the times.
func TestNativeCommandsAndScriptsWriteTheSame(t *testing.T) {
	t.Parallel()
	client := rueidisTo(t, single.Get(t).Addr())
	name := prefix()
	var native atomic.Int64
	fast := open(t, counting(client, &native), redisstore.Options{Prefix: name})
	slow := open(t, older(client), redisstore.Options{Prefix: name})
	frame := func(id driver.ID) string {
		key := name + "{" + id.String() + "}"
		v, _ := do(t, client, key, "GET", key).(string)
		if len(v) < 152 {
			t.Fatalf("the record is %q", v)
		}
		return v[:7] + v[15:31] + v[63:] // without fence and times
	}
	end := func(id driver.ID) time.Duration { return ttl(t, client, name+"{"+id.String()+"}") }
	same := func(what string, a, b driver.ID) {
		t.Helper()
		if frame(a) != frame(b) {
			t.Errorf("%s: native\n%q\nby the script\n%q", what, frame(a), frame(b))
		}
		if x, y := end(a), end(b); (x - y).Abs() > 20*time.Second {
			t.Errorf("%s: the keys end in %s and %s", what, x, y)
		}
	}
	for what, change := range map[string]func(c *driver.Claim){
		"Hold":                 func(*driver.Claim) {},
		"Rerun":                func(c *driver.Claim) { c.OnLost = semel.Rerun },
		"without names":        func(c *driver.Claim) { c.Operation, c.Correlation = "", "" },
		"a sealed request":     func(c *driver.Claim) { c.OnLost, c.Sealed = semel.Rerun, []byte("sealed") },
		"a large one":          func(c *driver.Claim) { c.Sealed = bytes.Repeat([]byte("x"), 5000) },
		"a tombstone":          func(c *driver.Claim) { c.Tombstone = time.Hour },
		"a retention of a day": func(c *driver.Claim) { c.Retention = 24*time.Hour + 1 },
		"kept for ever":        func(c *driver.Claim) { c.OnLost, c.Retention = semel.Rerun, semel.Forever },
		"kept for a moment":    func(c *driver.Claim) { c.OnLost, c.Retention = semel.Rerun, time.Second },
	} {
		c := ask(semel.Hold)
		change(&c)
		for then, o := range map[string]driver.Outcome{
			"done": done("answer"), "done, and kept longer": {State: driver.Done, Response: done("x").Response, Retention: 7 * time.Hour},
			"done without an answer": {State: driver.Done}, "free": {State: driver.Free, Error: "refused"}, "unknown": {State: driver.Unknown},
		} {
			a, rec := natively(t, fast, &native, c)
			b := newID()
			byScript := claim(t, slow, b, c)
			same(what, a, b)
			if rec.LeaseEnd.Sub(rec.Started) != byScript.LeaseEnd.Sub(byScript.Started) || rec.Created != rec.Started || rec.Fence != uint64(rec.Created)/1000 {
				t.Errorf("%s: native %+v, by the script %+v", what, rec, byScript)
			}
			got, want := settle(t, fast, a, rec.Owner(), o), settle(t, slow, b, byScript.Owner(), o)
			same(what+", "+then, a, b)
			if got.State != want.State || got.Response == nil != (want.Response == nil) || got.Retention != want.Retention {
				t.Errorf("%s, %s: native %+v, by the script %+v", what, then, got, want)
			}
			if stored := load(t, slow, a); stored.Settled != got.Settled || stored.Fence != got.Fence || stored.LeaseEnd != got.LeaseEnd {
				t.Errorf("%s, %s: stored %+v, told %+v", what, then, stored, got)
			}
		}
	}
}

// A settle does not undo what another has written since the claim: here a longer lease, and a step.
func TestANativeSettleKeepsWhatWasWrittenSince(t *testing.T) {
	t.Parallel()
	client := rueidisTo(t, single.Get(t).Addr())
	name := prefix()
	var native atomic.Int64
	s := open(t, counting(client, &native), redisstore.Options{Prefix: name})
	other := open(t, older(client), redisstore.Options{Prefix: name})
	c := ask(semel.Hold)
	id, rec := natively(t, s, &native, c)
	longer := c
	longer.Lease = 2 * c.Lease
	renewed := claim(t, other, id, longer)
	if got := settle(t, s, id, rec.Owner(), done("answer")); got.LeaseEnd != renewed.LeaseEnd || got.LeaseEnd == rec.LeaseEnd {
		t.Errorf("the lease ended at %s, want %s", got.LeaseEnd.Time(), renewed.LeaseEnd.Time())
	}
	id, rec = natively(t, s, &native, c)
	if owned, err := other.SaveStep(t.Context(), id, rec.Owner(), "charge", nil); err != nil || !owned {
		t.Fatalf("save step: owned is %t, error %v", owned, err)
	}
	if got := settle(t, s, id, rec.Owner(), done("answer")); !got.Steps {
		t.Error("the step is gone")
	}
	// What another has decided stands.
	id, rec = natively(t, s, &native, c)
	if _, err := other.Seize(t.Context(), id, driver.NewToken()); err != nil {
		t.Fatal(err)
	}
	if got, owned, err := s.Settle(t.Context(), id, rec.Owner(), done("answer")); err != nil || owned || got.State != driver.Unknown {
		t.Errorf("a settle of what was seized: owned is %t, %s, error %v", owned, got.State, err)
	}
}

// of native claims and scripts that race for one key one owns, and all see its answer.
func TestR26_NativeClaimsAndScriptsRace(t *testing.T) {
	t.Parallel()
	client := rueidisTo(t, single.Get(t).Addr())
	name := prefix()
	var native atomic.Int64
	var stores []*redisstore.Store
	for range 4 {
		stores = append(stores, open(t, counting(client, &native), redisstore.Options{Prefix: name}), open(t, older(client), redisstore.Options{Prefix: name}))
	}
	for range 100 {
		id, c := newID(), ask(semel.Rerun)
		var owners atomic.Int64
		var wg sync.WaitGroup
		for i, s := range stores {
			wg.Go(func() {
				rec, owned, err := s.Claim(t.Context(), id, retry(c))
				if err != nil {
					t.Error(err)
				}
				if !owned {
					return
				}
				owners.Add(1)
				if _, owned, err = s.Settle(t.Context(), id, rec.Owner(), done(fmt.Sprint(i))); err != nil || !owned {
					t.Errorf("settle: owned is %t, error %v", owned, err)
				}
			})
		}
		wg.Wait()
		var answers []string
		for _, s := range stores {
			rec, owned, err := s.Claim(t.Context(), id, retry(c))
			if err != nil || owned || rec.Response == nil {
				t.Fatalf("a repeat: owned is %t, %s, error %v", owned, rec.State, err)
			}
			answers = append(answers, string(rec.Response.Body))
		}
		if n := len(slices.Compact(answers)); owners.Load() != 1 || n != 1 {
			t.Fatalf("%d claims owned, and there are the answers %q", owners.Load(), answers)
		}
	}
	if native.Load() == 0 {
		t.Error("no claim was a native one")
	}
}

// Case 7: replies of native commands are lost, and commands are sent twice.
func TestNativeCommandsWhoseRepliesAreLost(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection reset by peer")
	client := rueidisTo(t, single.Get(t).Addr())
	var loses, twice, native atomic.Int64
	s := open(t, tapped{client, func(args []any, send func(...any) (any, error)) (any, error) {
		v, err := send(args...)
		writes := args[0] == "SET" || args[0] == "EVALSHA"
		if args[0] == "SET" {
			native.Add(1)
		}
		if writes && twice.Load() > 0 {
			v, err = send(args...)
		}
		if writes && err == nil && loses.Add(-1) >= 0 { // not the reply that the script is not known
			return nil, lost
		}
		return v, err
	}}, redisstore.Options{Prefix: prefix()})

	for range 20 {
		id, c := newID(), ask(semel.Hold)
		loses.Store(1)
		if _, _, err := s.Claim(t.Context(), id, c); !errors.Is(err, lost) {
			t.Fatalf("a claim without a reply: error %v", err)
		}
		if rec, owned, err := s.Claim(t.Context(), id, retry(c)); err != nil || owned {
			t.Fatalf("another's claim: owned is %t, %s, error %v", owned, rec.State, err)
		}
		rec := claim(t, s, id, c)
		if rec.Attempt != 1 {
			t.Errorf("claimed again it is attempt %d", rec.Attempt)
		}
		settle(t, s, id, rec.Owner(), done("answer"))

		id, c = newID(), ask(semel.Hold)
		rec = claim(t, s, id, c)
		loses.Store(1)
		if _, _, err := s.Settle(t.Context(), id, rec.Owner(), done("answer")); !errors.Is(err, lost) {
			t.Fatalf("a settle without a reply: error %v", err)
		}
		if got := settle(t, s, id, rec.Owner(), done("another")); string(got.Response.Body) != "answer" {
			t.Errorf("settled again the answer is %q", got.Response.Body)
		}

		twice.Store(1)
		id, c = newID(), ask(semel.Hold)
		rec = claim(t, s, id, c)
		if got := settle(t, s, id, rec.Owner(), done("answer")); got.State != driver.Done {
			t.Errorf("settled twice it is %s", got.State)
		}
		twice.Store(0)
	}
	if native.Load() == 0 {
		t.Error("no claim was a native one")
	}
}

// a claim that comes late, when its operation was forgotten, starts no run under its old fence.
func TestR48_ALateNativeClaimFindsTheForgottenFence(t *testing.T) {
	t.Parallel()
	client := rueidisTo(t, single.Get(t).Addr())
	var copied []any
	var native atomic.Int64
	name := prefix()
	s := open(t, tapped{client, func(args []any, send func(...any) (any, error)) (any, error) {
		if args[0] == "SET" {
			native.Add(1)
			copied = slices.Clone(args)
		}
		return send(args...)
	}}, redisstore.Options{Prefix: name})
	c := ask(semel.Hold)
	id, rec := natively(t, s, &native, c)
	settle(t, s, id, rec.Owner(), done("answer"))
	if forgot, err := s.Forget(t.Context(), id, rec.Owner()); err != nil || !forgot {
		t.Fatalf("forget: %t, error %v", forgot, err)
	}
	do(t, client, name+"{"+id.String()+"}", copied...)
	if got := load(t, s, id); got.State != driver.Absent {
		t.Errorf("a late copy of the claim has started a run: %s with fence %d", got.State, got.Fence)
	}
	locksOut(t, s, id, rec)
	if next := claim(t, s, id, retry(c)); next.Fence <= rec.Fence {
		t.Errorf("fence %d follows %d", next.Fence, rec.Fence)
	}
}

// ahead gives the server another clock, for scripts and for TIME. Scripts are sent whole, so that it can.
func ahead(c redisstore.Client, by *atomic.Int64) redisstore.Client { // by in seconds
	return tapped{c, func(args []any, send func(...any) (any, error)) (any, error) {
		s := by.Load()
		switch args[0] {
		case "TIME":
			v, err := send(args...)
			if pair, ok := v.([]any); ok {
				var sec int64
				fmt.Sscan(pair[0].(string), &sec) //nolint:errcheck // a number
				return []any{fmt.Sprint(sec + s), pair[1]}, err
			}
			return v, err
		case "EVALSHA":
			return nil, errors.New("NOSCRIPT No matching script. Please use EVAL.")
		case "EVAL":
			text := args[1].(string)
			shifted := fmt.Sprintf("(function() local t = redis.call('TIME') t[1] = string.format('%%.0f', t[1] + %d) return t end)()", s)
			text = strings.ReplaceAll(text, "= redis.call('TIME')", "= "+shifted)
			text = strings.ReplaceAll(text, "= call('TIME')", "= "+shifted)
			return send(append([]any{"EVAL", text}, args[2:]...)...)
		}
		return send(args...)
	}}
}

// a server's clock that is an hour off is the clock nevertheless. Set back, or found so after a failover, it is
// followed from the first reply of a script on, and a moment after at the latest.
func TestR50_TheServersClockIsAnHourOff(t *testing.T) {
	t.Parallel()
	client := rueidisTo(t, single.Get(t).Addr())
	for _, hours := range []int64{1, -1} {
		var by, native atomic.Int64
		by.Store(3600 * hours)
		s := open(t, counting(ahead(client, &by), &native), redisstore.Options{Prefix: prefix()})
		c := ask(semel.Rerun)
		c.Retention = 24 * time.Hour
		check := func(what string, id driver.ID, rec driver.Record) {
			t.Helper()
			now := load(t, s, id).Now
			if rec.Now > now || now.Sub(rec.Now) > time.Minute || rec.LeaseEnd != rec.Started.Add(c.Lease) || rec.LeaseEnd < now.Add(c.Lease-time.Minute) {
				t.Errorf("%s: it is %s on the server; the claim was at %s, its lease ends %s", what, now.Time(), rec.Now.Time(), rec.LeaseEnd.Time())
			}
			if got, owned, err := s.Claim(t.Context(), id, retry(c)); err != nil || owned || got.Reads(semel.Rerun) != driver.ReadsRunning {
				t.Errorf("%s: another's claim: owned is %t, reads as %s, error %v", what, owned, got.Reads(semel.Rerun), err)
			}
			settled := settle(t, s, id, rec.Owner(), done("answer"))
			if settled.Settled.Sub(rec.Started) < 0 || settled.Settled.Sub(rec.Started) > time.Minute {
				t.Errorf("%s: settled %s after it was claimed", what, settled.Settled.Sub(rec.Started))
			}
		}
		id, rec := natively(t, s, &native, c)
		check("an hour off", id, rec)
		by.Store(0)
		load(t, s, id) // the first script's reply
		id, rec = natively(t, s, &native, c)
		check("set right", id, rec)
	}
}
