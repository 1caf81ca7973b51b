package redisstore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
)

// A scanned server has keys that end by themselves, and so many pages of records that a round through them takes as
// many steps. Page n has the operation numbered n, which waits. A step takes a millisecond.
type scanned struct {
	mu      sync.Mutex
	run     string // its run id
	pages   int
	values  map[string]string
	until   map[string]time.Time
	waiting map[string]bool
	steps   []string // the cursors of all steps
	down    error
}

func newScanned(pages int) *scanned {
	return &scanned{run: "a", pages: pages, values: map[string]string{}, until: map[string]time.Time{}, waiting: map[string]bool{}}
}

// store opens a store on the server.
func (f *scanned) store(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (f *scanned) Do(ctx context.Context, key string, args ...any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if u, ok := f.until[key]; ok && !time.Now().Before(u) {
		delete(f.values, key)
	}
	value, there := f.values[key]
	switch args[0] {
	case "INFO":
		return "redis_version:7.0.0\r\nrun_id:" + f.run, f.down
	case "GET":
		if !there {
			return nil, f.down
		}
		return value, f.down
	case "SET":
		if args[3] == "NX" && there || args[3] == "XX" && !there || f.down != nil {
			return nil, f.down
		}
		ms, err := strconv.Atoi(args[len(args)-1].(string))
		f.values[key], f.until[key] = args[2].(string), time.Now().Add(time.Duration(ms)*time.Millisecond)
		return "OK", err
	case "TIME":
		return nil, errors.New("ERR unknown command")
	case "DEL":
		delete(f.values, key)
		return int64(1), f.down
	case "SADD":
		for _, m := range args[2:] {
			f.waiting[m.(string)] = true
		}
		return int64(1), f.down
	}
	cursor := args[3].(string)
	f.steps = append(f.steps, cursor)
	at, err := strconv.Atoi(cursor)
	if err != nil || f.down != nil {
		return nil, errors.Join(err, f.down)
	}
	f.mu.Unlock()
	time.Sleep(time.Millisecond)
	f.mu.Lock()
	id := driver.ID{0: byte(at >> 8), 1: byte(at), 40: 1}
	return []any{
		strconv.Itoa((at + 1) % f.pages), int64(64), int64(1), int64(1), int64(1), time.Now().UnixMicro(),
		[]any{keyOf(defaultPrefix, id)},
	}, nil
}

// scan has a store scan until stop is called.
func (f *scanned) scan(t *testing.T) (stop func()) {
	t.Helper()
	s := f.store(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Scan(ctx) }()
	return func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the scan ended with %v", err)
		}
	}
}

func (f *scanned) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	steps := f.steps
	f.steps = nil
	return steps
}

// Work that goes on is not begun anew: neither by the next scanner, nor after a minute.
func TestAScanGoesOnWhereAnotherEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pages = 40_000 // 3 ms a step: two minutes
		f := newScanned(pages)
		next := 0
		for range 6 {
			stop := f.scan(t)
			time.Sleep(13 * time.Second)
			stop()
			steps := f.taken()
			if len(steps) < 4000 || steps[0] != strconv.Itoa(next) {
				t.Fatalf("%d steps from %s on, want some 4000 from %d on", len(steps), steps[0], next)
			}
			for i, cursor := range steps {
				if cursor != strconv.Itoa(next+i) {
					t.Fatalf("step %d is at %s, want %d", i, cursor, next+i)
				}
			}
			if f.values["semel:scanner"] != "" {
				t.Fatal("a scanner that has ended keeps others away")
			}
			at, _, _ := strings.Cut(f.values["semel:scan:a"], " ")
			if next = atoi(t, at); next < atoi(t, steps[len(steps)-1]) {
				t.Fatalf("it ends at %s, and is to go on at %d", steps[len(steps)-1], next)
			}
		}
		if len(f.waiting) < 20_000 {
			t.Errorf("%d are found that wait", len(f.waiting))
		}

		// Another server, as after a failover, does not know that cursor.
		f.run = "b"
		stop := f.scan(t)
		time.Sleep(time.Second)
		stop()
		if steps := f.taken(); steps[0] != "0" {
			t.Errorf("on another server it begins at %s", steps[0])
		}
	})
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A scan leaves the server alone for two thirds of the time at least.
func TestAScanHasAPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct{ pages, least, most int }{
			{1 << 20, 3000, 3400}, // 10 s, 3 ms a step
			{3, 30, 33},           // a round a second
		} {
			f := newScanned(row.pages)
			stop := f.scan(t)
			time.Sleep(10 * time.Second)
			stop()
			if n := len(f.taken()); n < row.least || n > row.most {
				t.Errorf("of %d steps a round %d are taken in ten seconds, want %d to %d", row.pages, n, row.least, row.most)
			}
		}
	})
}

// Of several scanners one works at a time. One that dies is followed within its lease, one that ends at its next
// question.
func TestScannersShareOneScan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newScanned(1 << 20)
		stops := []func(){f.scan(t), f.scan(t), f.scan(t)}
		time.Sleep(time.Minute)
		steps := f.taken()
		if n := len(steps); n < 18_000 || n > 20_100 {
			t.Errorf("three scanners took %d steps in a minute, want those of one", n)
		}
		if slices.Sort(steps); len(slices.Compact(steps)) < 17_990 {
			t.Error("three scanners have looked at the same keys")
		}

		// The one that scans is not heard of any more: its lease goes to nobody.
		dead := "dead"
		f.mu.Lock()
		f.values["semel:scanner"], f.until["semel:scanner"] = dead, time.Now().Add(scanLease)
		f.mu.Unlock()
		time.Sleep(scanTurn) // the living one sees that it is another's
		f.taken()
		time.Sleep(5 * time.Second)
		if n := len(f.taken()); n != 0 {
			t.Errorf("%d steps while another scans", n)
		}
		time.Sleep(scanLease)
		if n := len(f.taken()); n < 1000 {
			t.Errorf("%d steps after the death of the one that scanned", n)
		}
		for left := 2; left >= 0; left-- {
			stops[left]()
			f.taken()
			time.Sleep(scanTurn + time.Second)
			if n := len(f.taken()); (n == 0) != (left == 0) {
				t.Errorf("%d steps once one of %d scanners has ended", n, left+1)
			}
		}
	})
}

// What a scan has counted is told to those who ask, so that nobody counts besides.
func TestAScanCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newScanned(1000)
		stop := f.scan(t)
		defer stop()
		time.Sleep(10 * time.Second)
		f.taken()
		s := f.store(t)
		n, err := s.Count(t.Context())
		if err != nil || n.Records != 64_000 || n.Running != 1000 || n.Unknown != 1000 || n.OldestRunning <= 0 {
			t.Errorf("counted %+v, error %v", n, err)
		}
		if steps := f.taken(); len(steps) != 0 {
			t.Errorf("a count takes %d steps of its own", len(steps))
		}
	})
}

// A failure ends a scan, and nothing is lost of what it has come by.
func TestAScanEndsWithTheServersFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newScanned(1 << 20)
		s := f.store(t)
		go func() {
			time.Sleep(7 * time.Second)
			f.mu.Lock()
			f.down = errors.New("LOADING Redis is loading the dataset in memory")
			f.mu.Unlock()
		}()
		if err := s.Scan(t.Context()); !errors.Is(err, ErrLoading) {
			t.Errorf("the scan ended with %v", err)
		}
		f.down = nil
		f.taken()
		time.Sleep(scanLease)
		stop := f.scan(t)
		time.Sleep(time.Second)
		stop()
		if steps := f.taken(); atoi(t, steps[0]) < 1000 {
			t.Errorf("the next scan begins at %s", steps[0])
		}
	})
}
