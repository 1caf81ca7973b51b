package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A storm brings faults over the servers of a site, and over the ways to them, or over its disk, one after the other.
type storm struct {
	site   *site
	fronts []string // their names
	faults []Fault  // that there are
	shards int      // servers that decide
	lease  time.Duration
	rng    *rand.Rand
	// Each fault comes once before chance decides: those still to come, in this order.
	due     []Fault
	visited chan struct{} // closed when each has come

	mu       sync.Mutex
	counts   map[Fault]int
	troubles []trouble
}

// A trouble is what can explain that a run was lost, or an answer. It was not before from, and over at to.
type trouble struct {
	what     string
	front    string // whom it has hit; "" for all
	from, to time.Time
	harmless bool // it explains nothing
	full     bool // the store's disk was full, so that it may not have taken an answer
}

// A blow is a fault as it is dealt.
type blow struct {
	fault Fault
	after time.Duration // since the last one
	front int           // whose way it hits, if it hits one
	shard int           // which server it hits, or the way to which
	hold  time.Duration // how long it lasts, at least
	delay time.Duration // of Slow
	room  int64         // how many blocks DiskFull leaves
	loud  bool          // a partition whose connections break, instead of falling silent
}

func newStorm(c *Config, s *site, fronts []string) *storm {
	o := &storm{
		site: s, fronts: fronts, faults: c.faults, shards: c.Storage.shards(), lease: c.Lease, rng: rand.New(rand.NewPCG(c.Seed, 1<<33)),
		visited: make(chan struct{}), counts: map[Fault]int{},
	}
	o.due = slices.Clone(o.faults)
	o.rng.Shuffle(len(o.due), func(i, k int) { o.due[i], o.due[k] = o.due[k], o.due[i] })
	if c.hasty {
		o.due = nil
	}
	if len(o.due) == 0 {
		close(o.visited)
	}
	return o
}

const (
	calmest   = 1.5                    // leases, between two faults
	downTime  = 400 * time.Millisecond // of a server that was killed
	slowest   = time.Second
	leastHold = 1.2 // leases: beyond what a lease can bridge
	mostHold  = 1.7
	mostRoom  = 64 // blocks: some commits
	sparse    = 5  // times as long before a full disk, which all kills would meet otherwise: it is the only fault of a file
)

// next draws the next blow. It depends on nothing but the seed and what was drawn before.
func (o *storm) next() blow {
	within := func(most time.Duration) time.Duration { return time.Duration(o.rng.Int64N(int64(most))) }
	b := blow{
		after: within(time.Duration(calmest * float64(o.lease))), front: o.rng.IntN(len(o.fronts)), delay: slowest/10 + within(slowest-slowest/10),
		hold: time.Duration((leastHold + (mostHold-leastHold)*o.rng.Float64()) * float64(o.lease)), loud: o.rng.IntN(2) == 0,
		fault: o.faults[o.rng.IntN(len(o.faults))],
	}
	short := within(downTime)
	if o.shards > 1 {
		b.shard = o.rng.IntN(o.shards)
	}
	if len(o.due) > 0 {
		b.fault, o.due = o.due[0], o.due[1:]
	}
	switch b.fault {
	case ServerKilled, CacheKilled, CacheEmptied:
		b.hold = short
	case DiskFull:
		b.room = o.rng.Int64N(mostRoom)
		b.after *= sparse
		fallthrough
	case ServerReadOnly, RepliesLost:
		if b.loud { // within a lease, or beyond it
			b.hold = short
		}
	}
	return b
}

// rage deals blows until ctx ends, and heals the last one.
func (o *storm) rage(ctx context.Context) error {
	if len(o.faults) == 0 {
		<-ctx.Done()
		return nil
	}
	for {
		last := len(o.due) == 1
		b := o.next()
		if !sleep(ctx, b.after) {
			return nil
		}
		if err := o.deal(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", b.fault, err)
		}
		if last {
			close(o.visited)
		}
	}
}

// deal deals one blow, and heals it.
func (o *storm) deal(ctx context.Context, b blow) error {
	t := trouble{what: string(b.fault), from: time.Now()}
	var err error
	at := o.site.shard(b.shard)
	hold := func() { sleep(ctx, b.hold) }
	switch b.fault {
	case DiskFull:
		t.full = true
		err = o.site.disk.fill(b.room, hold)
	case Partitioned, RepliesLost, Slow:
		t.front = o.fronts[b.front]
		t.what += " " + t.front
		err = at.block(b, hold)
	case CachePartitioned:
		err = b.partition(o.site.ways[b.front].redis, hold)
	case ConnectionsTaken:
		err = at.takeConnections(ctx, b.front, hold)
	case ServerReadOnly:
		err = at.forbidWrites(hold)
	case CacheEmptied:
		err = inline(o.site.redis.Addr(), "FLUSHALL")
	case ServerPaused:
		err = pause(at.server(), hold)
	case CachePaused:
		err = pause(o.site.redis, hold)
	case ServerKilled:
		err = kill(at.server(), hold)
	case CacheKilled:
		err = kill(o.site.redis, hold)
	}
	switch b.fault {
	case CacheKilled, CachePaused, CacheEmptied, CachePartitioned:
		t.harmless, t.what = true, t.what+" (explains nothing)"
	}
	// A pool may hold more broken connections than one, and each is found out by a verb that fails.
	t.to = time.Now().Add(o.lease)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts[b.fault]++
	o.troubles = append(o.troubles, t)
	return err
}

// sleep waits, and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// missed returns the faults that have not come.
func (o *storm) missed() (missed []Fault) {
	for _, f := range o.faults {
		if o.counts[f] == 0 {
			missed = append(missed, f)
		}
	}
	return missed
}
