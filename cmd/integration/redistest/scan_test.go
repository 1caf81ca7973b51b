package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/pause"
	"github.com/semelhq/semel/redisstore"
)

// scanFor scans until ctx ends.
func scanFor(t *testing.T, s *redisstore.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Scan(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the scan ended with %v", err)
		}
	})
}

// waiting returns what a scan has come by.
func waiting(t *testing.T, s *redisstore.Store, q driver.Query) map[driver.ID]bool {
	t.Helper()
	q.Scanned = true
	all := map[driver.ID]bool{}
	if err := s.List(t.Context(), q, func(id driver.ID, _ driver.Record) bool { all[id] = true; return true }); err != nil {
		t.Fatal(err)
	}
	return all
}

// foundBy waits until a scan has come by exactly what is wanted.
func foundBy(t *testing.T, s *redisstore.Store, q driver.Query, want ...driver.ID) {
	t.Helper()
	all := map[driver.ID]bool{}
	for _, id := range want {
		all[id] = true
	}
	var got map[driver.ID]bool
	for until := time.Now().Add(time.Minute); time.Now().Before(until); pause.For(t.Context(), 10*time.Millisecond) {
		if got = waiting(t, s, q); maps.Equal(got, all) {
			return
		}
	}
	t.Fatalf("%+v: %d records are found, want %d", q, len(got), len(all))
}

var (
	unknowns = driver.Query{Reading: driver.ReadsUnknown}
	unended  = driver.Query{Reading: driver.ReadsFree, Sealed: true}
)

// What waits is found by a scan, in a Cluster too, and told to all stores of its prefix: so long as it waits.
func TestR52_AScanFindsWhatWaits(t *testing.T) {
	t.Parallel()
	for where, addrs := range map[string][]string{"server": {single.Get(t).Addr()}, "Cluster": cluster.Get(t).Addrs()} {
		for _, lib := range clientLibraries {
			t.Run(where+"/"+lib.name, func(t *testing.T) {
				t.Parallel()
				name := prefix()
				s := open(t, lib.connect(t, addrs...), redisstore.Options{Prefix: name})
				other := open(t, lib.connect(t, addrs...), redisstore.Options{Prefix: name})
				begin := func(p semel.LostPolicy, change func(c *driver.Claim)) (driver.ID, driver.Record) {
					id, c := newID(), ask(p)
					change(&c)
					return id, claim(t, s, id, c)
				}
				sealed := func(c *driver.Claim) { c.Sealed = []byte("sealed") }
				briefly := func(c *driver.Claim) { c.Lease = time.Microsecond }
				plain := func(*driver.Claim) {}
				finished, rec := begin(semel.Hold, plain)
				settle(t, s, finished, rec.Owner(), done("answer"))
				doubted, rec := begin(semel.Hold, plain)
				settle(t, s, doubted, rec.Owner(), driver.Outcome{State: driver.Unknown})
				lapsed, _ := begin(semel.Hold, briefly)
				freed, rec := begin(semel.Rerun, sealed)
				settle(t, s, freed, rec.Owner(), driver.Outcome{State: driver.Free, Owed: true})
				abandoned, _ := begin(semel.Rerun, func(c *driver.Claim) { sealed(c); briefly(c) })
				begin(semel.Rerun, sealed) // runs
				released, rec := begin(semel.Rerun, plain)
				settle(t, s, released, rec.Owner(), driver.Outcome{State: driver.Free})

				scanFor(t, s)
				foundBy(t, other, unknowns, doubted, lapsed)
				foundBy(t, other, unended, freed, abandoned)

				seized, err := s.Seize(t.Context(), lapsed, driver.NewToken())
				if err != nil {
					t.Fatal(err)
				}
				settle(t, s, lapsed, seized.Owner(), done("answer"))
				if got := waiting(t, other, unknowns); len(got) != 1 || !got[doubted] {
					t.Errorf("%d are unknown once one of two is decided", len(got))
				}
			})
		}
	}
}

// A look reads what waits, however many records are done; and of other programs' keys, which may be many, a scan reads
// none.
func TestALookForWhatWaitsReadsNoDoneRecords(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	lib := clientLibraries[0]
	client := &counted{Client: lib.connect(t, server.Addr())}
	s := open(t, client, redisstore.Options{Prefix: "semel:"})
	finished := newID()
	rec := claim(t, s, finished, ask(semel.Hold))
	settle(t, s, finished, rec.Owner(), done("answer"))
	key := "semel:{" + finished.String() + "}"
	// An id's last characters may be any digits that leave no bit over.
	do(t, client, key, "EVAL", `local v = redis.call('GET', KEYS[1])
		for i = 1, 100000 do redis.call('SET', string.sub(KEYS[1], 1, 50) .. string.format('%08d', i) .. string.sub(KEYS[1], 59), v) end
		for i = 1, 1000 do redis.call('SET', 'theirs:' .. i, 'x') redis.call('RPUSH', 'semel:list:' .. i, 'x') end`, "1", key)
	var want []driver.ID
	for range 3 {
		id := newID()
		rec := claim(t, s, id, ask(semel.Hold))
		settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Unknown})
		want = append(want, id)
	}
	if n, err := s.Count(t.Context()); err != nil || n.Records != 100_004 || n.Unknown != 3 {
		t.Fatalf("there are %+v, %v", n, err)
	}

	do(t, client, "semel:counts", "DEL", "semel:counts") // that of the count, which takes its time too
	do(t, client, "semel:counting", "DEL", "semel:counting")
	monitor, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	fmt.Fprint(monitor, "MONITOR\r\n") //nolint:errcheck // without it the marker does not come
	lines := bufio.NewScanner(monitor)
	if !lines.Scan() {
		t.Fatal("no monitor")
	}
	theirs := make(chan int)
	go func() {
		n, own := 0, 0
		for lines.Scan() && !strings.Contains(lines.Text(), "marker") {
			if line := lines.Text(); strings.Contains(line, "theirs:") || strings.Contains(line, "semel:list:") {
				n++
			} else if strings.Contains(line, `"GETRANGE"`) {
				own++
			}
		}
		if own < 100_000 {
			t.Errorf("%d records were looked at", own)
		}
		theirs <- n
	}()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Scan(ctx) }()
	foundBy(t, s, unknowns, want...)
	for until := time.Now().Add(time.Minute); do(t, client, "semel:counts", "GET", "semel:counts") == nil; pause.For(t.Context(), 10*time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the scan does not come to its end")
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the scan ended with %v", err)
	}
	do(t, client, "marker", "GET", "marker")
	if n := <-theirs; n != 0 {
		t.Errorf("%d commands name keys of others", n)
	}

	client.reset()
	if got := waiting(t, s, unknowns); len(got) != len(want) {
		t.Errorf("%d are unknown, want %d", len(got), len(want))
	}
	if want := map[string]int{"SSCAN": 1, "TIME": 1, "GETRANGE": 3, "EVALSHA": 3}; !maps.Equal(client.sent, want) {
		t.Errorf("a look sends %v, want %v", client.sent, want)
	}
	client.reset()
	if n, err := s.Count(t.Context()); err != nil || n.Records != 100_004 || n.Unknown != 3 {
		t.Errorf("counted %+v, error %v", n, err)
	}
	if client.sent["EVALSHA"] != 0 {
		t.Errorf("a count beside a scan sends %v", client.sent)
	}
}
