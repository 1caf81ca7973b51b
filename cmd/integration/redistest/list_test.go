package redistest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/redisstore"
)

// counted notes which commands are sent.
type counted struct {
	redisstore.Client

	mu    sync.Mutex
	sent  map[string]int
	loads int // of those the scripts that work on one key
}

func (c *counted) Do(ctx context.Context, key string, args ...any) (any, error) {
	command := args[0].(string)
	c.mu.Lock()
	if c.sent == nil {
		c.sent = map[string]int{}
	}
	c.sent[command]++
	if command == "EVALSHA" && args[2] == "1" {
		c.loads++
	}
	c.mu.Unlock()
	return c.Client.Do(ctx, key, args...)
}

func (c *counted) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent, c.loads = nil, 0
}

// Of records that a query is not about only the head is read: neither their answers nor their sealed requests.
func TestAQueryReadsOnlyWhatMatches(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, lib clientLibrary) {
		client := &counted{Client: lib.connect(t, single.Get(t).Addr())}
		s := open(t, client, redisstore.Options{})
		sealed := func(c *driver.Claim) { c.Sealed = []byte("sealed") }
		run := func(p semel.LostPolicy, change func(c *driver.Claim), o driver.Outcome) driver.ID {
			id, c := newID(), ask(p)
			if change != nil {
				change(&c)
			}
			rec := claim(t, s, id, c)
			if o.State != driver.Absent {
				settle(t, s, id, rec.Owner(), o)
			}
			return id
		}
		free := driver.Outcome{State: driver.Free}
		for range 20 {
			run(semel.Hold, nil, done("answer"))
			run(semel.Rerun, nil, free)
		}
		run(semel.Rerun, sealed, done("answer"))
		run(semel.Hold, func(c *driver.Claim) { c.Sealed, c.Tombstone = []byte("sealed"), time.Hour }, done("answer"))
		quoted := run(semel.Hold, func(c *driver.Claim) { c.Operation, c.Correlation = "PUT /quotes", "trace-9" }, done("answer"))
		doubted := run(semel.Rerun, sealed, driver.Outcome{State: driver.Unknown})
		running := run(semel.Rerun, sealed, driver.Outcome{})
		freed := run(semel.Rerun, sealed, free)
		lapsed := run(semel.Rerun, func(c *driver.Claim) { sealed(c); c.Lease = time.Microsecond }, driver.Outcome{})
		for _, row := range []struct {
			q    driver.Query
			want []driver.ID
		}{
			{driver.Query{Sealed: true}, []driver.ID{doubted, running, freed, lapsed}},
			{driver.Query{Sealed: true, Reading: driver.ReadsFree}, []driver.ID{freed, lapsed}},
			{driver.Query{Reading: driver.ReadsRunning}, []driver.ID{running}},
			{driver.Query{Sealed: true, Reading: driver.ReadsDone}, nil},
			{driver.Query{Reading: driver.ReadsUnknown}, []driver.ID{doubted}},
			{driver.Query{Operation: "PUT /quotes"}, []driver.ID{quoted}},
			{driver.Query{Correlation: "trace-9"}, []driver.ID{quoted}},
			{driver.Query{Operation: "PUT /quotes", Correlation: "trace-9", Reading: driver.ReadsDone}, []driver.ID{quoted}},
			{driver.Query{Operation: "PUT /quotes", Correlation: "trace-8"}, nil},
		} {
			client.reset()
			var got []driver.ID
			err := s.List(t.Context(), row.q, func(id driver.ID, rec driver.Record) bool {
				got = append(got, id)
				if row.q.Sealed && string(rec.Sealed) != "sealed" {
					t.Errorf("%+v: %s is sealed as %q", row.q, id, rec.Sealed)
				}
				return true
			})
			slices.SortFunc(got, compareIDs)
			slices.SortFunc(row.want, compareIDs)
			if err != nil || !slices.Equal(got, row.want) {
				t.Errorf("%+v: %v, want %v; error %v", row.q, got, row.want, err)
			}
			if n := client.loads; n != len(row.want) {
				t.Errorf("%+v: %d records were read, want the %d that match", row.q, n, len(row.want))
			}
		}

		expired, c := newID(), ask(semel.Hold)
		c.Sealed, c.Retention, c.Tombstone = []byte("sealed"), time.Millisecond, time.Hour
		begun := claim(t, s, expired, c)
		if owned, err := s.Extend(t.Context(), expired, begun.Owner(), driver.Extension{Begun: true, Lease: time.Millisecond}); err != nil || !owned {
			t.Fatalf("begin: %t, %v", owned, err)
		}
		for until := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
			if rec := load(t, s, expired); rec.Reads(semel.Hold) == driver.ReadsExpired {
				break
			} else if time.Now().After(until) {
				t.Fatalf("it is %s", rec.State)
			}
		}
		err := s.List(t.Context(), driver.Query{Sealed: true, Reading: driver.ReadsExpired}, func(id driver.ID, rec driver.Record) bool {
			t.Errorf("%s is listed, sealed as %q: a tombstone has no request", id, rec.Sealed)
			return true
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func compareIDs(a, b driver.ID) int { return slices.Compare(a[:], b[:]) }
