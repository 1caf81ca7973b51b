package semel

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
)

// fewRecords lists records that have nothing but an id and the time since which they are due.
type fewRecords struct {
	since map[driver.ID]driver.Time
	now   driver.Time
}

func (l *fewRecords) List(_ context.Context, _ driver.Query, yield func(driver.ID, driver.Record) bool) error {
	for id, since := range l.since {
		if !yield(id, driver.Record{Settled: since, Now: l.now}) {
			break
		}
	}
	return nil
}

func numbered(n int) (id driver.ID) {
	binary.BigEndian.PutUint64(id[:], uint64(n)+1)
	return id
}

func newFewRounds(n int) (*rounds, *fewRecords) {
	l := &fewRecords{since: map[driver.ID]driver.Time{}, now: driver.TimeOf(time.Unix(1e9, 0))}
	for i := range n {
		l.since[numbered(i)] = driver.Time(i)
	}
	c := &Completer{lister: l, o: CompleterOptions{Concurrency: 1, Backoff: time.Second, MaxBackoff: time.Hour}}
	due := func(rec *driver.Record) (driver.Time, bool) { return rec.Settled, true }
	return newRounds(c, driver.Query{}, due, nil), l
}

// However much is due and fails, memory is bounded, and everything comes to its turn.
func TestFailuresOfACompleterAreBounded(t *testing.T) {
	t.Parallel()
	const maxDue, maxFailures = 16, 16 * 16
	const due = maxFailures + 8*maxDue
	r, l := newFewRounds(due)
	r.maxDue, r.maxFailures = maxDue, maxFailures
	tried := map[driver.ID]int{}
	rounds := 0
	for ; rounds < 400 && len(tried) < due; rounds++ {
		list, more := r.list(t.Context())
		if len(list) > maxDue || more && len(r.failed) == maxFailures {
			t.Fatalf("%d are due at once, more: %v", len(list), more)
		}
		for _, d := range list {
			tried[d.id]++
			r.mark(d.id)
			r.note(d, true)
		}
		l.now = l.now.Add(time.Millisecond)
	}
	if len(r.failed) != maxFailures || len(r.busy) != 0 || len(tried) != due {
		t.Errorf("%d failures are remembered, %d are busy; %d of %d were tried in %d rounds", len(r.failed), len(r.busy), len(tried), due, rounds)
	}
	clear(l.since)
	r.list(t.Context())
	if len(r.failed) != 0 {
		t.Errorf("%d failures of what is gone are remembered", len(r.failed))
	}
}

func TestAFailureRestsTwiceAsLongEachTime(t *testing.T) {
	t.Parallel()
	r, l := newFewRounds(1)
	start := l.now
	var tried []time.Duration
	for range 4000 {
		list, _ := r.list(t.Context())
		for _, d := range list {
			tried = append(tried, l.now.Sub(start))
			r.mark(d.id)
			if again, _ := r.list(t.Context()); len(again) != 0 {
				t.Error("what is being done is due")
			}
			r.note(d, len(tried) != 6)
		}
		l.now = l.now.Add(time.Second)
	}
	s := time.Second
	// The sixth succeeds; from then on it counts anew.
	if want := []time.Duration{0, s, 3 * s, 7 * s, 15 * s, 31 * s, 32 * s, 33 * s, 35 * s}; !slices.Equal(tried[:len(want)], want) {
		t.Errorf("tried at %v, want %v first", tried, want)
	}
	if last := tried[len(tried)-1] - tried[len(tried)-2]; last > time.Hour {
		t.Errorf("it rests %v, want an hour at most", last)
	}
}
