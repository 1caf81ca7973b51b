package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
)

// A fakeServer is one with a clock of its own, on which a claim's key is new and its settle is accepted.
type fakeServer struct {
	ahead time.Duration // of its clock, before that of the process
	trip  time.Duration // of a native claim, before it is executed
	set   func(frame string) (any, error)
	sent  []string // names of commands
	frame string   // of the last SET
	px    string
}

func (f *fakeServer) now() driver.Time { return driver.TimeOf(time.Now().Add(f.ahead)) }

func (f *fakeServer) do(_ string, args []string) (any, error) {
	f.sent = append(f.sent, args[0])
	now := f.now()
	switch args[0] {
	case "TIME":
		return []any{fmt.Sprint(now / 1e6), fmt.Sprint(now % 1e6)}, nil
	case "SET":
		time.Sleep(f.trip)
		f.frame, f.px = args[2], strings.Join(args[3:], " ")
		if f.set != nil {
			return f.set(f.frame)
		}
		return nil, nil
	case "EVALSHA":
		if args[1] == writeScript.digest {
			return "1", nil
		}
		return fmt.Sprintf("1%d %d ", now/1e6, now%1e6), nil // of a claim
	}
	return nil, errors.New("ERR no such command")
}

func (f *fakeServer) open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), &fake{info: "redis_version:7.0.15\r\n", do: f.do}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	f.sent = nil
	return s
}

// the times of a native claim are the server's, however far off the process's clock is, and its lease is whole.
func TestR50_ANativeClaimHasTheServersTimes(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeServer{ahead: ahead}
			s := f.open(t)
			c := claimOf(t)
			c.OnLost, c.Lease = driver.Rerun, 30*time.Second
			before := f.now()
			rec, owned, err := s.Claim(t.Context(), driver.ID{}, c)
			if err != nil || !owned || strings.Join(f.sent, " ") != "SET" {
				t.Fatalf("owned is %t, sent %q, error %v", owned, f.sent, err)
			}
			stored, err := readFrame(f.frame)
			if err != nil || stored.Owner() != rec.Owner() || stored.LeaseEnd != rec.LeaseEnd {
				t.Errorf("it sent %+v, error %v", stored, err)
			}
			if rec.Created < before || rec.Created > f.now() || rec.Now > f.now() {
				t.Errorf("created %s after the claim was sent, told %s after it came back", rec.Created.Sub(before), rec.Now.Sub(f.now()))
			}
			if rec.LeaseEnd < before.Add(c.Lease) || rec.LeaseEnd != rec.Started.Add(c.Lease) || rec.Fence != uint64(rec.Created)/1000 {
				t.Errorf("the lease ends %s after the claim was sent, want %s; the fence is %d", rec.LeaseEnd.Sub(before), c.Lease, rec.Fence)
			}
		})
	}
}

// a process that was suspended on the way, or whose claim was, does not rely on the reply.
func TestR48_ANativeClaimThatTookLongIsSentAgainToTheScript(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			lease, trip time.Duration
			again       bool
		}{
			{30 * time.Second, 2 * time.Second, false},
			{30 * time.Second, 4 * time.Second, true},
			{time.Hour, 11 * time.Second, true},
			{2 * time.Second, 300 * time.Millisecond, true},
		} {
			f := &fakeServer{trip: row.trip}
			s := f.open(t)
			c := claimOf(t)
			c.Lease = row.lease
			rec, owned, err := s.Claim(t.Context(), driver.ID{}, c)
			again := strings.Join(f.sent, " ") == "SET EVALSHA"
			if err != nil || !owned || again != row.again {
				t.Errorf("a lease of %s after %s: owned is %t, sent %q, error %v", row.lease, row.trip, owned, f.sent, err)
			}
			if again && rec.LeaseEnd != f.now().Add(row.lease) {
				t.Errorf("after %s the lease lasts %s more, want %s", row.trip, rec.LeaseEnd.Sub(f.now()), row.lease)
			}
		}
	})
}

// What a script may do better is left to it; other failures are the caller's.
func TestTheScriptDecidesWhereANativeClaimCant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, scriptDecidesWhereANativeClaimCant)
}

func scriptDecidesWhereANativeClaimCant(t *testing.T) {
	frame := frameOf(t)
	late := []byte(frame) // running, and its lease is over
	binary.BigEndian.PutUint64(late[47:], 1)
	unreadable := "OK"
	for what, row := range map[string]struct {
		reply any
		err   error
		sent  string
	}{
		"memory is used up":      {nil, errors.New("OOM command not allowed when used memory > 'maxmemory'."), "SET EVALSHA"},
		"no NX with GET":         {nil, errors.New("ERR syntax error"), "SET EVALSHA"},
		"a replica":              {nil, errors.New("READONLY You can't write against a read only replica."), "SET"},
		"the connection is lost": {nil, errors.New("EOF"), "SET"},
		"a lease that is over":   {string(late), nil, "SET EVALSHA"},
		"nothing that it knows":  {unreadable, nil, "SET EVALSHA"},
		"an integer":             {int64(1), nil, "SET"},
	} {
		f := &fakeServer{set: func(string) (any, error) { return row.reply, row.err }}
		s := f.open(t)
		c := claimOf(t)
		c.Lease = time.Hour // longer than any trip here
		_, owned, err := s.Claim(t.Context(), driver.ID{}, c)
		if got := strings.Join(f.sent, " "); got != row.sent || owned == (row.sent == "SET") || (err != nil) == owned {
			t.Errorf("%s: sent %s, want %s; owned is %t, error %v", what, got, row.sent, owned, err)
		}
		if row.err != nil && err != nil && !errors.Is(err, row.err) {
			t.Errorf("%s: error %v", what, err)
		}
	}
	for what, change := range map[string]func(f *fakeServer, s *Store, c *driver.Claim){
		"a short lease":       func(_ *fakeServer, _ *Store, c *driver.Claim) { c.Lease = time.Millisecond },
		"a lease without end": func(_ *fakeServer, _ *Store, c *driver.Claim) { c.Lease = driver.Forever },
		"an old server":       func(_ *fakeServer, s *Store, _ *driver.Claim) { s.native = false },
		"an unknown time":     func(_ *fakeServer, s *Store, _ *driver.Claim) { s.clock.last.Store(nil) },
	} {
		f := &fakeServer{}
		s, c := f.open(t), claimOf(t)
		c.Lease = time.Hour
		change(f, s, &c)
		if _, owned, err := s.Claim(t.Context(), driver.ID{}, c); err != nil || !owned || strings.Join(f.sent, " ") != "EVALSHA" {
			t.Errorf("%s: sent %s, owned is %t, error %v", what, f.sent, owned, err)
		}
	}
}

// A claim's time is not asked from the server's past: another process's run is taken for over by a script alone, and a
// done record for an answer only within its retention.
func TestANativeClaimIsRefusedOnlyByWhatSaysEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, refusedOnlyByWhatSaysEnough)
}

func refusedOnlyByWhatSaysEnough(t *testing.T) {
	f := &fakeServer{}
	s := f.open(t)
	c := claimOf(t)
	c.Lease = time.Hour
	now, _ := driver.Record{}.Claim(f.now(), c)
	other := c
	other.Token = driver.NewToken()
	answer := driver.Outcome{State: driver.Done, Response: &driver.Response{Status: 200, Header: http.Header{}}}
	done := func(settled driver.Time, retention time.Duration) driver.Record {
		rec := now
		rec.Retention, rec.Tombstone = retention, 0
		rec, _ = rec.Settle(settled, now.Owner(), answer)
		return rec
	}
	for _, row := range []struct {
		what    string
		rec     driver.Record
		c       driver.Claim
		refused bool
	}{
		{"running", now, other, true},
		{"running, its own", now, c, false},
		{"running, its lease nearly over", func() driver.Record { r := now; r.LeaseEnd = f.now(); return r }(), other, false},
		{"done", done(f.now(), time.Hour), other, true},
		{"done, kept for its fence only", done(f.now(), time.Second), other, false},
		{"done, and a tombstone follows", func() driver.Record { r := done(f.now(), time.Hour); r.Tombstone = 1; return r }(), other, false},
		{"free", func() driver.Record {
			r, _ := now.Settle(f.now(), now.Owner(), driver.Outcome{State: driver.Free})
			return r
		}(), other, false},
	} {
		frame, err := encodeFrame(&row.rec)
		if err != nil {
			t.Fatal(err)
		}
		f.set = func(string) (any, error) { return frame, nil }
		id := driver.ID{byte(len(row.what))}
		got, _, decided, err := s.claimNatively(t.Context(), &id, "k", &row.c)
		if err != nil || decided != row.refused || decided && got.State != row.rec.State {
			t.Errorf("%s: decided is %t, want %t; %s, error %v", row.what, decided, row.refused, got.State, err)
		}
	}
}
