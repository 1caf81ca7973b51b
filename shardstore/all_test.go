package shardstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/shardstore"
)

// A sweep takes no more than its limit, and less only if nothing is left, however the shards' backlogs differ.
func TestR55_ASweepTakesItsLimitFromAllShards(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 3, 4, 7, 1000} {
		s := newSite(t, 4)
		over := open(t, s.shards(4), shardstore.None)
		expired := 0
		for range 200 {
			id := verbs.NewID()
			if s.shardOf(t, over, id) == "s3" || expired == 50 {
				verbs.Finish(t, over, id, verbs.Ask(driver.Hold))
				expired++
			}
		}
		s.Advance(2 * time.Hour)
		for left := expired; ; {
			n, err := over.Sweep(t.Context(), limit)
			if err != nil || n != min(limit, left) {
				t.Fatalf("limit %d, %d left: swept %d, error %v", limit, left, n, err)
			}
			if left -= n; n < limit {
				break
			}
		}
	}
}

// A listing gives the records of all shards, as many as are asked for, and ends when its reader does.
func TestAListingReadsAllShards(t *testing.T) {
	t.Parallel()
	s := newSite(t, 4)
	over := open(t, s.shards(4), shardstore.None)
	want := map[driver.ID]bool{}
	for range 100 {
		id := verbs.NewID()
		verbs.Claim(t, over, id, verbs.Ask(driver.Hold))
		want[id] = true
	}
	for _, c := range []struct {
		limit, stop, want int
	}{{0, 0, 100}, {1, 0, 1}, {99, 0, 99}, {1000, 0, 100}, {0, 1, 1}, {0, 50, 50}, {10, 5, 5}} {
		got := map[driver.ID]bool{}
		if err := over.List(t.Context(), driver.Query{Limit: c.limit}, func(id driver.ID, rec driver.Record) bool {
			if got[id] || !want[id] || verbs.Load(t, over, id).Token != rec.Token {
				t.Errorf("%s is given twice, or is none", id)
			}
			got[id] = true
			return len(got) != c.stop
		}); err != nil || len(got) != c.want {
			t.Errorf("limit %d, stopped at %d: %d operations, error %v; want %d", c.limit, c.stop, len(got), err, c.want)
		}
	}
	n, err := over.Count(t.Context())
	if err != nil || n.Records != 100 || n.Running != 100 {
		t.Errorf("counted %+v, error %v", n, err)
	}
}

// The trail is one, in the order of time, and has the entries that a shard got before the operation had another one.
func TestTheTrailIsThatOfAllShards(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newSite(t, 4)
	before, after := open(t, s.shards(4)[:2], shardstore.None), open(t, s.shards(4), shardstore.None)
	var ids []driver.ID
	for range 4 {
		ids = append(ids, verbs.NewID())
	}
	var want []string
	for i := range 40 {
		over := before
		if i >= 20 {
			over = after
		}
		s.Advance(time.Second)
		if err := over.Audit(ctx, driver.AuditEntry{ID: ids[i%4], Reason: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
		want = append([]string{fmt.Sprint(i)}, want...)
	}
	read := func(id *driver.ID, limit, stop int) (got []string) {
		if err := after.AuditTrail(ctx, id, limit, func(e driver.AuditEntry) bool {
			got = append(got, e.Reason)
			return len(got) != stop
		}); err != nil {
			t.Error(err)
		}
		return got
	}
	if got := read(nil, 0, 0); !slices.Equal(got, want) {
		t.Errorf("all: %q, want %q", got, want)
	}
	if got := read(nil, 7, 0); !slices.Equal(got, want[:7]) {
		t.Errorf("7 entries: %q", got)
	}
	if got := read(nil, 0, 3); !slices.Equal(got, want[:3]) {
		t.Errorf("until the reader stops: %q", got)
	}
	if got := read(&ids[3], 3, 0); !slices.Equal(got, []string{"39", "35", "31"}) {
		t.Errorf("of one operation: %q", got)
	}
}

type waker struct {
	*server
	wake func(ctx context.Context, settled func(driver.ID)) error
}

func (w waker) Wake(ctx context.Context, settled func(driver.ID)) error { return w.wake(ctx, settled) }

// A shard that fails, or throws, is listened to again, while the others go on.
func TestAShardThatFailsIsListenedToAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 3)
		var fails, throws, heard atomic.Int64
		shards := s.shards(3)
		shards[0].Store = waker{s.servers[0], func(ctx context.Context, settled func(driver.ID)) error {
			for ctx.Err() == nil {
				time.Sleep(time.Second)
				settled(driver.ID{1})
			}
			return ctx.Err()
		}}
		shards[1].Store = waker{s.servers[1], func(context.Context, func(driver.ID)) error {
			if fails.Add(1)%2 == 0 {
				throws.Add(1)
				panic("thrown")
			}
			return errDown
		}}
		over := open(t, shards, shardstore.None).(driver.Waker)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := over.Wake(ctx, func(driver.ID) { heard.Add(1) })
		if !errors.Is(err, context.DeadlineExceeded) || heard.Load() < 59 || throws.Load() < 10 {
			t.Errorf("error %v, heard %d, failed %d times", err, heard.Load(), fails.Load())
		}
		none := open(t, s.shards(3), shardstore.None).(driver.Waker)
		if err := none.Wake(t.Context(), nil); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("shards that wake nobody: %v", err)
		}
	})
}
