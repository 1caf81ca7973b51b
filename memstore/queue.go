package memstore

import (
	"math"

	"github.com/semelhq/semel/driver"
)

// A queue orders the entries of a shard by the time from which they may be removed: a binary heap in which each entry
// knows its place. Entries that never expire are not in it.
type queue []appointment

type appointment struct {
	at driver.Time
	e  *entry
}

const never = driver.Time(math.MaxInt64)

// set moves e to the given time. It puts e into the queue or takes it out if needed.
func (q *queue) set(e *entry, at driver.Time) {
	switch {
	case at == never && e.pos == 0:
	case at == never:
		q.remove(e)
	case e.pos == 0:
		*q = append(*q, appointment{at, e})
		q.up(len(*q) - 1)
	default:
		i := int(e.pos) - 1
		(*q)[i].at = at
		q.down(q.up(i))
	}
}

func (q *queue) remove(e *entry) {
	i, last := int(e.pos)-1, len(*q)-1
	e.pos = 0
	moved := (*q)[last]
	(*q)[last] = appointment{} // lets the entry be collected
	*q = (*q)[:last]
	if i != last {
		(*q)[i] = moved
		q.down(q.up(i))
	}
}

// up moves the element at i as far to the front as it belongs, and returns its new place.
func (q queue) up(i int) int {
	a := q[i]
	for i > 0 {
		parent := (i - 1) / 2
		if q[parent].at <= a.at {
			break
		}
		q.place(i, q[parent])
		i = parent
	}
	q.place(i, a)
	return i
}

// down moves the element at i as far to the end as it belongs.
func (q queue) down(i int) {
	a := q[i]
	for {
		child := 2*i + 1
		if child >= len(q) {
			break
		}
		if right := child + 1; right < len(q) && q[right].at < q[child].at {
			child = right
		}
		if a.at <= q[child].at {
			break
		}
		q.place(i, q[child])
		i = child
	}
	q.place(i, a)
}

func (q queue) place(i int, a appointment) {
	q[i] = a
	a.e.pos = uint32(i + 1)
}
