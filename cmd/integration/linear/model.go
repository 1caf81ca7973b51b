package linear

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/semelhq/semel/driver"
)

// A state is what a record is between two verbs.
type state struct {
	known

	// Layers may answer with a copy of a done record until the Forget that deletes it has ended. Of the Forgets that have
	// come to the record, the bits are set.
	copied known
	forgot uint64
}

// mostForgets is how many Forgets of one record have a bit.
const mostForgets = 64

// What is known of a record. The clock at which a verb was executed is known only from a reply that shows the record.
// What another one wrote is open until the next such reply: the field holds the least that it can be. Of an absent
// record only the state is known, and in Fence the highest fence that there was.
type known struct {
	rec  driver.Record
	open fields
}

func (k known) equals(l known) bool {
	return k.open == l.open && k.rec.Fence == l.rec.Fence && equal(k.rec, l.rec)
}

// fields is a set of fields of a record.
type fields uint8

const (
	fence fields = 1 << iota
	created
	started
	leaseEnd
	settled
)

func (f fields) has(g fields) bool { return f&g != 0 }

// specification returns the rules of package semel, for one record.
func specification() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(s, in, out any) (next []any) {
			for _, n := range step(s.(state), in.(call), out.(reply)) {
				next = append(next, n)
			}
			return next
		},
		Equal: func(a, b any) bool {
			s, t := a.(state), b.(state)
			return s.forgot == t.forgot && s.known.equals(t.known) && s.copied.equals(t.copied)
		},
		DescribeOperation: func(in, out any) string { return exchange(in.(call), out.(reply)) },
		DescribeState:     func(s any) string { return s.(state).String() },
	}
	return m.ToModel()
}

func (s state) String() string {
	text := describe(&s.rec)
	if s.copied.rec.State != driver.Absent {
		text += "; perhaps a copy that is " + describe(&s.copied.rec)
	}
	return text
}

// step returns what a record may be after a verb; nothing, if this reply can't be.
func step(s state, c call, r reply) []state {
	switch {
	case r.lost:
		return append(unseen(s, c, true), s) // without effect, or never executed
	case c.verb == drop:
		return dropped(s, c)
	case c.verb.shows():
		return seen(s, c, r)
	}
	return unseen(s, c, r.owned)
}

// seen is step for a reply that shows the record.
func seen(s state, c call, r reply) (next []state) {
	if after, ok := shown(s.known, c, r); ok {
		next = append(next, state{after, s.copied, s.forgot})
	}
	if s.copied.rec.State != driver.Absent && (c.verb == load || c.verb == claim) {
		if _, ok := shown(s.copied, c, r); ok {
			next = append(next, s)
		}
	}
	return next
}

// unseen is step for a verb that was owned or not, and showed nothing.
func unseen(s state, c call, owned bool) (next []state) {
	for _, g := range untold(s.known, c) {
		switch after := (state{g.after, s.copied, s.forgot}); {
		case g.owned != owned:
		case c.verb == forget && c.layers:
			next = append(next, forgotten(after, c, g)...)
		default:
			next = append(next, after)
		}
	}
	return next
}

// forgotten returns what comes of a Forget in a store with layers, which did g to the record itself.
func forgotten(s state, c call, g guess) []state {
	s.forgot |= 1 << c.n
	if !g.owned || g.before.rec.State != driver.Done {
		return []state{s}
	}
	had := s
	s.copied = g.before
	if had.copied.rec.State == driver.Absent {
		return []state{s}
	}
	return []state{s, had} // the copies may be those of a record that was deleted before
}

// dropped is the second half of a Forget in a store with layers.
func dropped(s state, c call) []state {
	if s.forgot&(1<<c.n) == 0 {
		return nil
	}
	s.copied = known{}
	return []state{s}
}

// apply is the rule of the verb.
func (c call) apply(r driver.Record, now driver.Time) (driver.Record, bool) {
	switch c.verb {
	case claim:
		return r.Claim(now, c.claim)
	case extend:
		return r.Extend(now, c.by, c.extend)
	case settle:
		return r.Settle(now, c.by, c.outcome)
	case seize:
		return r.Seize(now, c.token)
	case forget:
		if r.Forgettable(now, c.by) {
			return driver.Record{Fence: r.Fence}, true
		}
	}
	return r, false
}

// shown returns what is known after a reply that shows the record, and whether that can be.
func shown(k known, c call, r reply) (known, bool) {
	for _, before := range filled(k, c, &r.rec) {
		after, owned := c.apply(before, r.rec.Now)
		if equal(after, r.rec) && (owned == r.owned || !c.verb.says()) {
			if after.State == driver.Absent {
				return k, true
			}
			return known{rec: r.rec}, true
		}
	}
	return known{}, false
}

// filled returns, with nothing open, what the record may have been before a verb that showed it like that.
func filled(k known, c call, rec *driver.Record) []driver.Record {
	before := k.rec
	if before.State == driver.Absent {
		if c.verb == claim {
			// Above what was there before. It may be above other records that were deleted too.
			before.Fence = max(before.Fence, rec.Fence-1)
		}
		return []driver.Record{before}
	}
	// What was not kept makes no difference.
	if k.open.has(created) {
		before.Created = rec.Created
	}
	if k.open.has(started) {
		before.Started = rec.Started
	}
	if k.open.has(settled) {
		before.Settled = rec.Settled
	}
	fences, ends := []uint64{before.Fence}, []driver.Time{before.LeaseEnd}
	if k.open.has(fence) {
		fences = []uint64{rec.Fence, rec.Fence - 1} // kept, or raised
	}
	if k.open.has(leaseEnd) && before.Started.Add(k.rec.LeaseEnd.Sub(k.rec.Started)) <= rec.LeaseEnd {
		ends = append(ends, rec.LeaseEnd) // kept; else it is over, and may have been since it could be
	}
	var all []driver.Record
	for _, before.Fence = range fences {
		if before.Fence < k.rec.Fence {
			continue
		}
		for _, before.LeaseEnd = range ends {
			all = append(all, before)
		}
	}
	return all
}

// A guess is what may have come of a verb that does not show it.
type guess struct {
	before, after known
	owned         bool
}

// untold returns what may have come of a verb that does not show it.
func untold(k known, c call) (all []guess) {
	for _, before := range decided(k, c.by) {
		for _, now := range clocks(&before.rec, c.verb) {
			rec, owned := c.apply(before.rec, now)
			g := guess{before, before, owned}
			if owned {
				g.after = known{rec, before.open | written(&before.rec, &rec, c.verb)}
			}
			if g.after.rec.State == driver.Absent {
				g.after.open = 0
			}
			g.after.rec.Now = 0
			all = append(all, g)
		}
	}
	return all
}

// decided returns what an open fence may stand for, so that a comparison with the owner's is decided in each case.
func decided(k known, by driver.Owner) []known {
	if !k.open.has(fence) || k.rec.Token != by.Token {
		return []known{k}
	}
	above := k
	above.rec.Fence = max(k.rec.Fence, by.Fence+1)
	all := []known{above}
	if by.Fence >= k.rec.Fence {
		same := k
		same.rec.Fence, same.open = by.Fence, k.open&^fence
		all = append(all, same)
	}
	if by.Fence > k.rec.Fence {
		all = append(all, k) // below
	}
	return all
}

// long is a lease that does not end while the clients run.
const long = time.Minute

// clocks returns what the clock may have been as far as it makes a difference, the least of each.
func clocks(r *driver.Record, v verb) []driver.Time {
	valid := max(r.Started, r.Settled)
	if r.State == driver.Running && r.LeaseEnd.Sub(r.Started) < long && (v == claim || v == seize || v == forget) {
		return []driver.Time{valid, r.LeaseEnd}
	}
	return []driver.Time{valid}
}

// written returns the fields that an owned verb wrote by the clock.
func written(before, after *driver.Record, v verb) fields {
	switch {
	case v == claim && before.State == driver.Absent:
		return fence | created | started | leaseEnd
	case v == claim && after.Fingerprint != before.Fingerprint: // a new operation
		return created | started | leaseEnd
	case v == claim && after.Fence != before.Fence:
		return started | leaseEnd
	case v == claim, v == extend:
		return leaseEnd
	case v == settle && after.Wrote != before.Wrote, v == seize && after.Fence != before.Fence:
		return settled
	}
	return 0
}

// equal reports whether a reader sees the same record, whenever it looks.
func equal(a, b driver.Record) bool {
	if a.State == driver.Absent || b.State == driver.Absent {
		return a.State == b.State
	}
	if !sameAnswer(a.Response, b.Response) || !bytes.Equal(a.Sealed, b.Sealed) {
		return false
	}
	a.Response, a.Sealed, a.Now = nil, nil, 0
	b.Response, b.Sealed, b.Now = nil, nil, 0
	return reflect.DeepEqual(a, b)
}

func sameAnswer(a, b *driver.Response) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Status == b.Status && a.Codec == b.Codec && bytes.Equal(a.Body, b.Body) &&
		maps.EqualFunc(a.Header, b.Header, slices.Equal) && maps.EqualFunc(a.Trailer, b.Trailer, slices.Equal)
}
