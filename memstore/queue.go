package memstore

import (
	"math"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/slab"
)

// A queue orders the entries of a shard by the time from which they may be removed: a binary heap in which each entry
// knows its place. Entries that never expire are not in it.
type queue []appointment

type appointment struct {
	when  driver.Time
	entry slab.Ref
}

const never = driver.Time(math.MaxInt64)

// schedule moves an entry to the given time. It puts it into the queue or takes it out if needed.
func (sh *shard) schedule(at slab.Ref, e *entry, when driver.Time) {
	switch {
	case when == never && e.pos == 0:
	case when == never:
		sh.unschedule(e)
	case e.pos == 0:
		sh.queue = append(sh.queue, appointment{when, at})
		sh.up(len(sh.queue) - 1)
	default:
		i := int(e.pos) - 1
		sh.queue[i].when = when
		sh.down(sh.up(i))
	}
}

func (sh *shard) unschedule(e *entry) {
	i, last := int(e.pos)-1, len(sh.queue)-1
	e.pos = 0
	moved := sh.queue[last]
	sh.queue = sh.queue[:last]
	if i != last {
		sh.queue[i] = moved
		sh.down(sh.up(i))
	}
}

// up moves the element at i as far to the front as it belongs, and returns its new place.
func (sh *shard) up(i int) int {
	q := sh.queue
	a := q[i]
	for i > 0 {
		parent := (i - 1) / 2
		if q[parent].when <= a.when {
			break
		}
		sh.place(i, q[parent])
		i = parent
	}
	sh.place(i, a)
	return i
}

// down moves the element at i as far to the end as it belongs.
func (sh *shard) down(i int) {
	q := sh.queue
	a := q[i]
	for {
		child := 2*i + 1
		if child >= len(q) {
			break
		}
		if right := child + 1; right < len(q) && q[right].when < q[child].when {
			child = right
		}
		if a.when <= q[child].when {
			break
		}
		sh.place(i, q[child])
		i = child
	}
	sh.place(i, a)
}

func (sh *shard) place(i int, a appointment) {
	sh.queue[i] = a
	sh.entries.At(a.entry).pos = uint32(i + 1)
}
