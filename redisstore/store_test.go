package redisstore

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
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
	if texts[0] == "INFO" {
		return f.info, nil
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
	now := time.Now().Add(-time.Minute)
	c.set(1_000_000, now)
	c.set(1_000_500, now.Add(time.Millisecond)) // a reply that took longer: the clock is further already
	if got := c.told; got != 1_000_000 {
		t.Errorf("told %d", got)
	}
	c.set(1_002_000, now.Add(time.Millisecond)) // one that took less
	if got := c.told; got != 1_002_000 {
		t.Errorf("told %d", got)
	}
	c.set(1_500_000, now.Add(2*time.Second)) // the server's clock is slower than this process's
	if got := c.told; got != 1_500_000 {
		t.Errorf("told %d", got)
	}
	if got := c.tell(); got < 1_500_000 {
		t.Errorf("it tells %d", got)
	}
}

func TestFinishedOperationsAreRemembered(t *testing.T) {
	t.Parallel()
	var f finished
	ids := make([]driver.ID, 1000)
	for i := range ids {
		a, b := driver.NewToken(), driver.NewToken()
		copy(ids[i][:], a[:])
		copy(ids[i][16:], b[:])
		f.note(&ids[i], true)
	}
	n := 0
	for i := range ids {
		if f.has(&ids[i]) {
			n++
		}
	}
	if n < 900 { // a slot keeps the last one only
		t.Errorf("%d of %d are remembered", n, len(ids))
	}
	f.note(&ids[999], false)
	if f.has(&ids[999]) || f.has(&driver.ID{}) {
		t.Error("one is remembered that is not done")
	}
}
