package redisstore

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
)

// A fake replies what its function says; INFO it answers by itself.
type fake struct {
	info string
	do   func(key string, args []string) (any, error)
}

func (f *fake) Do(_ context.Context, key string, args ...any) (any, error) {
	var texts []string
	for _, arg := range args {
		texts = append(texts, arg.(string))
	}
	switch {
	case texts[0] == "INFO":
		return f.info, nil
	case f.do == nil:
		return nil, errors.New("ERR no such command")
	}
	return f.do(key, texts)
}

func openFake(t *testing.T, do func(key string, args []string) (any, error)) *Store {
	t.Helper()
	s, err := Open(t.Context(), &fake{do: do}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAScriptIsSentOnceWhereItIsNotKnown(t *testing.T) {
	t.Parallel()
	var sent []string
	s := openFake(t, func(key string, args []string) (any, error) {
		sent = append(sent, args[0])
		if args[2] != "1" || args[3] != key || !strings.HasPrefix(key, "semel:{") {
			t.Errorf("the command is %q for %q", args, key)
		}
		if args[0] == "EVALSHA" {
			return nil, errors.New("NOSCRIPT No matching script. Please use EVAL.")
		}
		return []byte("01700000000 5 "), nil
	})
	rec, err := s.Load(t.Context(), driver.ID{})
	if err != nil || rec.State != driver.Absent || rec.Now != 1_700_000_000_000_005 {
		t.Errorf("%s at %d, error %v", rec.State, rec.Now, err)
	}
	if got := strings.Join(sent, " "); got != "EVALSHA EVAL" {
		t.Errorf("sent %s", got)
	}
}

// What a server says that can't be provoked at will comes through every verb.
func TestRefusalsComeThroughEveryVerb(t *testing.T) {
	t.Parallel()
	for text, kind := range map[string]error{
		"LOADING Redis is loading the dataset in memory":                         ErrLoading,
		"BUSY Redis is busy running a script.":                                   ErrBusy,
		"MISCONF Redis is configured to save RDB snapshots":                      ErrNotPersisting,
		"TRYAGAIN Multiple keys request during rehashing of slot":                ErrTryAgain,
		"ASK 3999 127.0.0.1:6381":                                                ErrRedirected,
		"OOM command not allowed when used memory > 'maxmemory'. script: 0a1b2c": driver.ErrFull,
	} {
		cause := errors.New(text)
		s := openFake(t, func(string, []string) (any, error) { return nil, cause })
		c := NewCache(s.client, CacheOptions{})
		id, by := driver.ID{}, driver.Owner{}
		done := driver.Record{State: driver.Done, Retention: time.Hour, Settled: 1, Now: 2}
		for verb, call := range map[string]func(ctx context.Context) error{
			"Claim":  func(ctx context.Context) error { _, _, err := s.Claim(ctx, id, driver.Claim{}); return err },
			"Extend": func(ctx context.Context) error { _, err := s.Extend(ctx, id, by, driver.Extension{}); return err },
			"Settle": func(ctx context.Context) error {
				_, _, err := s.Settle(ctx, id, by, driver.Outcome{State: driver.Done})
				return err
			},
			"Load":       func(ctx context.Context) error { _, err := s.Load(ctx, id); return err },
			"SaveStep":   func(ctx context.Context) error { _, err := s.SaveStep(ctx, id, by, "charge", nil); return err },
			"Steps":      func(ctx context.Context) error { _, err := s.Steps(ctx, id); return err },
			"Seize":      func(ctx context.Context) error { _, err := s.Seize(ctx, id, driver.Token{}); return err },
			"Forget":     func(ctx context.Context) error { _, err := s.Forget(ctx, id, by); return err },
			"Audit":      func(ctx context.Context) error { return s.Audit(ctx, driver.AuditEntry{}) },
			"AuditTrail": func(ctx context.Context) error { return s.AuditTrail(ctx, nil, 0, nil) },
			"List":       func(ctx context.Context) error { return s.List(ctx, driver.Query{}, nil) },
			"List some":  func(ctx context.Context) error { return s.List(ctx, driver.Query{Sealed: true}, nil) },
			"Get":        func(ctx context.Context) error { _, _, err := c.Get(ctx, id); return err },
			"Fill":       func(ctx context.Context) error { return c.Fill(ctx, id, done, 1) },
			"Drop":       func(ctx context.Context) error { return c.Forget(ctx, id) },
		} {
			err := call(t.Context())
			if !errors.Is(err, kind) || !errors.Is(err, cause) || !strings.HasPrefix(err.Error(), "redisstore: ") {
				t.Errorf("%s: error %v, want that %q", verb, err, kind)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := call(ended); !errors.Is(err, context.Canceled) {
				t.Errorf("%s with an ended context: error %v", verb, err)
			}
		}
	}
}

// A reply that no script gives is an error, never a record.
func TestAGarbledReplyIsAnError(t *testing.T) {
	t.Parallel()
	for _, reply := range []any{
		nil, "", "1", "OK", int64(1), []any{"1"}, "0 ", "0 5 ", "2170 5 ", "0x 5 ", "0170 y ", " 5 ", "0170", "0170 5", true,
	} {
		s := openFake(t, func(string, []string) (any, error) { return reply, nil })
		if rec, err := s.Load(t.Context(), driver.ID{}); err == nil {
			t.Errorf("%v reads as %s", reply, rec.State)
		}
		if _, owned, err := s.Claim(t.Context(), driver.ID{}, driver.Claim{}); err == nil || owned {
			t.Errorf("%v: owned is %t, error %v", reply, owned, err)
		}
		if saved, err := s.Steps(t.Context(), driver.ID{}); err == nil {
			t.Errorf("%v reads as the steps %v", reply, saved)
		}
	}
	frame := frameOf(t)
	stepped := frame[:4] + "\x08\x00\x00" + frame[7:frameHead] // running under Hold, with steps
	for _, reply := range []any{
		[]any{},
		[]any{"01700000000 5 "},
		[]any{"0", []any{}},
		[]any{nil, []any{}},
		[]any{"01700000000 5 " + stepped, nil},
		[]any{"01700000000 5 " + stepped, "charge"},
		[]any{"01700000000 5 " + stepped, []any{"charge"}},
		[]any{"01700000000 5 " + stepped, []any{"charge", "7"}},
		[]any{"01700000000 5 " + stepped, []any{nil, nil}},
	} {
		s := openFake(t, func(string, []string) (any, error) { return reply, nil })
		if saved, err := s.Steps(t.Context(), driver.ID{}); err == nil {
			t.Errorf("%.80q reads as the steps %q", reply, saved)
		}
	}
}

// What a script has not written is not acknowledged.
func TestAScriptThatDisagreesIsAnError(t *testing.T) {
	t.Parallel()
	s := openFake(t, func(string, []string) (any, error) { return "01700000000 5 ", nil }) // absent, but not claimed
	if _, owned, err := s.Claim(t.Context(), driver.ID{}, driver.Claim{}); !errors.Is(err, errDisagree) || owned {
		t.Errorf("Claim: owned is %t, error %v", owned, err)
	}
	frame := frameOf(t)
	by := driver.Owner{Token: claimOf(t).Token}
	s = openFake(t, func(string, []string) (any, error) { return "01700000000 5 " + frame, nil }) // running, but not settled
	if _, owned, err := s.Settle(t.Context(), driver.ID{}, by, driver.Outcome{State: driver.Done}); !errors.Is(err, errDisagree) || owned {
		t.Errorf("Settle: owned is %t, error %v", owned, err)
	}
	s = openFake(t, func(string, []string) (any, error) { return "11700000000 5 " + frame, nil }) // another's, but settled
	if _, owned, err := s.Settle(t.Context(), driver.ID{}, driver.Owner{}, driver.Outcome{State: driver.Done}); !errors.Is(err, errDisagree) || owned {
		t.Errorf("Settle: owned is %t, error %v", owned, err)
	}
	s = openFake(t, func(string, []string) (any, error) { return "01700000000 5 " + frame, nil }) // the owner's, but not saved
	if owned, err := s.SaveStep(t.Context(), driver.ID{}, by, "charge", nil); !errors.Is(err, errDisagree) || owned {
		t.Errorf("SaveStep: owned is %t, error %v", owned, err)
	}
	s = openFake(t, func(string, []string) (any, error) { return "11700000000 5 " + frame, nil }) // another's, but saved
	if owned, err := s.SaveStep(t.Context(), driver.ID{}, driver.Owner{}, "charge", nil); !errors.Is(err, errDisagree) || owned {
		t.Errorf("SaveStep: owned is %t, error %v", owned, err)
	}
	s = openFake(t, func(string, []string) (any, error) { return "01700000000 5 " + frame, nil }) // running, but not seized
	if _, err := s.Seize(t.Context(), driver.ID{}, driver.Token{1}); !errors.Is(err, errDisagree) {
		t.Errorf("Seize: error %v", err)
	}
}

func TestOpenLooksAtTheServer(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		info string
		want error
		logs string
	}{
		{"redis_version:7.0.15\r\naof_enabled:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n", nil, ""},
		{"redis_version:6.2.0\r\n", nil, ""},
		{"redis_version:6.0.16\r\n", ErrVersion, ""},
		{"redis_version:5.0.3\r\n", ErrVersion, ""},
		{"redis_version:10.1\r\nserver_name:valkey\r\n", nil, ""},
		{"", nil, ""},
		{"redis_version:7.2.4\r\naof_enabled:0\r\n", nil, "append-only"},
		{"maxmemory:100\r\nmaxmemory_policy:volatile-lru\r\n", ErrEvicts, ""},
		{"maxmemory:0\r\nmaxmemory_policy:volatile-lru\r\n", nil, "would evict"},
	} {
		var log bytes.Buffer
		_, err := Open(t.Context(), &fake{info: row.info}, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		if !errors.Is(err, row.want) {
			t.Errorf("%q: error %v, want %v", row.info, err, row.want)
		}
		if got := log.String(); row.logs == "" != (got == "") || !strings.Contains(got, row.logs) {
			t.Errorf("%q: logs %q, want %q", row.info, got, row.logs)
		}
	}
	_, err := Open(t.Context(), &fake{}, Options{Notify: true})
	if err == nil {
		t.Error("opened to notify with a client that can't listen")
	}
}

// The clock that repeats are timed by goes on from what the server told, and is never far ahead.
func TestR50_TheClockFollowsTheServers(t *testing.T) {
	t.Parallel()
	var c clock
	if c.tell() != 0 {
		t.Errorf("a clock that was told nothing tells %d", c.tell())
	}
	now := time.Now()
	at := func(ms float64) time.Time { return now.Add(time.Duration(ms * float64(time.Millisecond))) }
	// The server's clock is 5 s ahead of what now is taken for here, and then an hour behind that.
	for _, row := range []struct {
		what      string
		told      driver.Time
		sent, got float64     // in milliseconds
		low, high driver.Time // at got
	}{
		{"the first", 5_000_500, 0, 1, 5_000_500, 5_001_502},
		{"one that took longer", 5_001_700, 1, 3, 5_002_499, 5_003_502},
		{"one that says how far it was at least", 5_003_900, 3, 4, 5_003_900, 5_004_502},
		{"one that says how far it was at most", 5_004_100, 4, 5, 5_004_899, 5_005_102},
		{"one that tells both", 5_005_500, 5.5, 5.52, 5_005_500, 5_005_522},
		{"one that came late", 5_004_000, 3, 6, 5_005_979, 5_006_002},
		{"one of a clock that was set back", 1_007_000, 7, 7.5, 1_007_000, 1_007_502},
		{"one of a clock that was set right again", 5_008_200, 8, 8.5, 5_008_200, 5_008_702},
		{"one so much later that the others do not count", 7_009_500, 2009, 2010, 7_009_500, 7_010_502},
	} {
		c.set(row.told, at(row.sent), at(row.got))
		s := c.last.Load()
		if low, high := s.low(at(row.got)), s.high(at(row.got)); low != row.low || high != row.high {
			t.Errorf("%s: the server's clock is between %d and %d, want %d and %d", row.what, low, high, row.low, row.high)
		}
	}
}

// A process that has not asked the server for a while, or has stood still since, does not tell the time by itself.
func TestR50_AnOldClockIsNotReliedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c clock
		now := func() driver.Time { return driver.TimeOf(time.Now().Add(-time.Hour)) } // the server's
		ask := func(there, back time.Duration) {
			sent := time.Now()
			time.Sleep(there)
			told := now()
			time.Sleep(back)
			c.set(told, sent, time.Now())
		}
		asked := 0
		read := func() (reading, bool) { return c.read(func() { asked++ }) }
		relied := func(what string, want bool) (r reading) {
			t.Helper()
			r, ok := read()
			if ok != want {
				t.Errorf("%s it is relied on: %t", what, ok)
			}
			if ok && (now() < r.low || now() > r.high) {
				t.Errorf("%s it is %d, read as between %d and %d", what, now(), r.low, r.high)
			}
			return r
		}
		relied("never asked", false)
		ask(time.Millisecond, 10*time.Millisecond)
		r := relied("just asked", true)
		if r.settled(time.Second); now() < r.high {
			t.Error("it told a time that had not come")
		}
		relied("told too late", false)
		ask(5*time.Microsecond, 5*time.Microsecond)
		r = relied("asked again", true)
		time.Sleep(60 * time.Millisecond)
		relied("getting old", true)
		relied("getting old", true)
		if asked != 1 {
			t.Errorf("it is asked %d times before it is too old, want once", asked)
		}
		if r.settled(50*time.Millisecond) || !r.settled(100*time.Millisecond) {
			t.Error("the time since a reading is not counted")
		}
		time.Sleep(60 * time.Millisecond)
		relied("old", false)
		ask(time.Microsecond, 200*time.Millisecond)
		relied("asked, with a reply that took long", false)
	})
}

// A machine that was suspended shows it on one of two clocks.
func TestR50_ASuspendedProcessNotices(t *testing.T) {
	t.Parallel()
	from := time.Now()
	wall := from.Round(0)
	for what, row := range map[string]struct {
		to   time.Time
		want time.Duration
	}{
		"as long as it says":                             {from.Add(time.Second), time.Second},
		"the wall clock has gone on":                     {wall.Add(time.Hour), time.Hour},
		"the wall clock was set back":                    {wall.Add(-time.Hour), time.Hour},
		"only the monotonic clock counts, if it is more": {from.Add(time.Minute), time.Minute},
	} {
		if got := elapsed(from, row.to); got != row.want {
			t.Errorf("%s: %s, want %s", what, got, row.want)
		}
	}
}
