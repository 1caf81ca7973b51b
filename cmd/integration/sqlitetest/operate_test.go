package sqlitetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/sqlitestore"
)

func TestR87_TheAuditTrailIsKept(t *testing.T) {
	t.Parallel()
	path, c := newFile(t), newClock()
	s, _ := openStore(t, path, sqlitestore.Options{Clock: c.Now})
	mine, other := newID(), newID()
	var want []driver.AuditEntry
	for i := range 600 { // more than are read at once
		c.Advance(time.Second)
		e := driver.AuditEntry{
			ID: mine, Operation: "POST /payments", Actor: "ana", Action: "complete", Reason: "seen at the bank '; DROP TABLE\x00\xff", Result: "asked",
			At: 17, // the store's clock counts
		}
		if i%3 == 0 {
			e.ID, e.Result = other, "done"
		}
		if err := s.Audit(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		e.At = driver.TimeOf(c.Now())
		want = append(want, e)
	}
	slices.Reverse(want)
	again, _ := openStore(t, path, sqlitestore.Options{Clock: c.Now})
	trail := func(id *driver.ID, limit, stop int) (got []driver.AuditEntry) {
		t.Helper()
		err := again.AuditTrail(t.Context(), id, limit, func(e driver.AuditEntry) bool {
			got = append(got, e)
			return len(got) != stop
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := trail(nil, 0, -1); !slices.Equal(got, want) {
		t.Errorf("%d entries, want %d; the first is %+v, want %+v", len(got), len(want), got[0], want[0])
	}
	ofMine := slices.DeleteFunc(slices.Clone(want), func(e driver.AuditEntry) bool { return e.ID != mine })
	for _, row := range []struct{ limit, stop, want int }{{0, -1, 400}, {300, -1, 300}, {1, -1, 1}, {0, 7, 7}} {
		if got := trail(&mine, row.limit, row.stop); !slices.Equal(got, ofMine[:row.want]) {
			t.Errorf("limit %d, stopped at %d: %d entries, want %d", row.limit, row.stop, len(got), row.want)
		}
	}
	// It outlives what it is about.
	rec := claim(t, s, mine, ask(semel.Hold))
	settle(t, s, mine, rec.Owner(), done("x"))
	if forgot, err := s.Forget(t.Context(), mine, rec.Owner()); !forgot || err != nil {
		t.Fatal(forgot, err)
	}
	if got := trail(&mine, 0, -1); len(got) != 400 {
		t.Errorf("%d entries about a forgotten record, want 400", len(got))
	}
	nobody := newID()
	if got := trail(&nobody, 0, -1); len(got) != 0 {
		t.Errorf("%d entries about nothing", len(got))
	}
}

func TestR56_CountsTellWhatTheStoreHolds(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, _ := openStore(t, newFile(t), sqlitestore.Options{Clock: c.Now})
	count := func() driver.Counts {
		t.Helper()
		n, err := s.Count(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n.Bytes < 4096 {
			t.Errorf("the storage takes %d bytes", n.Bytes)
		}
		n.Bytes = 0
		return n
	}
	if got := count(); got != (driver.Counts{}) {
		t.Errorf("empty: %+v", got)
	}
	var ids []driver.ID
	var recs []driver.Record
	for range 6 {
		id := newID()
		ids, recs = append(ids, id), append(recs, claim(t, s, id, ask(semel.Hold)))
		c.Advance(time.Minute)
	}
	settle(t, s, ids[0], recs[0].Owner(), done("x"))
	settle(t, s, ids[1], recs[1].Owner(), driver.Outcome{State: driver.Unknown})
	settle(t, s, ids[2], recs[2].Owner(), driver.Outcome{State: driver.Free})
	if got, want := count(), (driver.Counts{Records: 6, Running: 3, Unknown: 1, OldestRunning: 3 * time.Minute}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	c.Advance(90 * time.Minute) // retention, and that of a free record, are an hour
	if got, want := count(), (driver.Counts{Records: 6, Running: 3, Unknown: 4, OldestRunning: 93 * time.Minute, SweepLag: 30 * time.Minute}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if n, err := s.Sweep(t.Context(), 100); n != 2 || err != nil {
		t.Errorf("swept %d, %v; want 2", n, err)
	}
	if got, want := count(), (driver.Counts{Records: 4, Running: 3, Unknown: 4, OldestRunning: 93 * time.Minute}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A listing holds nothing while it gives records out: whoever is given one may use the store.
func TestAListingHoldsNothing(t *testing.T) {
	t.Parallel()
	s, db := openStore(t, newFile(t), sqlitestore.Options{})
	const n = 600 // more than are read at once
	scope := newID()
	for i := range n {
		id := newID()
		if i%2 == 0 {
			copy(id[:16], scope[:16])
		}
		claim(t, s, id, ask(semel.Hold))
	}
	of := scope.Scope()
	for _, row := range []struct {
		q    driver.Query
		want int
	}{
		{driver.Query{Reading: driver.ReadsRunning}, n},
		{driver.Query{Scope: &of}, n / 2},
		{driver.Query{}, n}, // last: it settles
	} {
		given := map[driver.ID]bool{}
		err := s.List(t.Context(), row.q, func(id driver.ID, rec driver.Record) bool {
			if given[id] {
				t.Errorf("%+v: given twice", row.q)
			}
			given[id] = true
			if row.q == (driver.Query{}) {
				settle(t, s, id, rec.Owner(), done("by the operator"))
			}
			return true
		})
		if err != nil || len(given) != row.want {
			t.Errorf("%+v: %d records, want %d, %v", row.q, len(given), row.want, err)
		}
	}
	var running int
	if err := db.QueryRow("SELECT count(*) FROM semel_records WHERE state = 1").Scan(&running); err != nil || running != 0 {
		t.Errorf("%d are still running, %v", running, err)
	}
}

// Deleted and claimed again within a millisecond, even by a process whose clock stands still, fences grow.
func TestR46_FencesGrowOverDeletion(t *testing.T) {
	t.Parallel()
	path, c := newFile(t), newClock() // it stands still
	s, _ := openStore(t, path, sqlitestore.Options{Clock: c.Now})
	id, asked := newID(), ask(semel.Rerun)
	var last uint64
	for i := range 20 {
		rec := claim(t, s, id, again(asked))
		if rec.Fence <= last {
			t.Fatalf("round %d: fence %d follows %d", i, rec.Fence, last)
		}
		for range 3 {
			settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Free})
			rec = claim(t, s, id, again(asked))
		}
		last = rec.Fence
		settle(t, s, id, rec.Owner(), done("x"))
		if i == 10 { // over a restart too
			s, _ = openStore(t, path, sqlitestore.Options{Clock: c.Now})
		}
		if forgot, err := s.Forget(t.Context(), id, rec.Owner()); !forgot || err != nil {
			t.Fatal(forgot, err)
		}
	}
	// By sweeping as well.
	asked.Retention = time.Microsecond
	rec := claim(t, s, id, again(asked))
	for range 3 {
		settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Free})
		rec = claim(t, s, id, again(asked))
	}
	settle(t, s, id, rec.Owner(), done("x"))
	c.Advance(time.Microsecond)
	if n, err := s.Sweep(t.Context(), 10); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if next := claim(t, s, id, asked); next.Fence <= rec.Fence {
		t.Errorf("swept: fence %d follows %d", next.Fence, rec.Fence)
	}
}

// The columns by which records are found say what the records do, whatever verbs led to them.
func TestTheColumnsAgreeWithTheRecords(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, db := openStore(t, newFile(t), sqlitestore.Options{Clock: c.Now})
	for i := range 120 {
		id, asked := newID(), ask(semel.LostPolicy(i%2))
		if i%5 == 0 {
			asked.Retention = semel.Forever
		}
		if i%7 == 0 {
			asked.Sealed = []byte("sealed")
		}
		rec := claim(t, s, id, asked)
		c.Advance(time.Second)
		if i%4 == 1 {
			saveStep(t, s, id, rec.Owner(), "charge", "7")
		}
		if i%3 == 0 {
			if owned, err := s.Extend(t.Context(), id, rec.Owner(), driver.Extension{Lease: 3 * time.Hour, Begun: i%2 == 0}); !owned || err != nil {
				t.Fatal(owned, err)
			}
		}
		switch i % 6 {
		case 1:
			settle(t, s, id, rec.Owner(), done("x"))
		case 2:
			settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Free})
		case 3:
			settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Unknown})
		case 4:
			if _, err := s.Seize(t.Context(), id, driver.NewToken()); err != nil {
				t.Fatal(err)
			}
		case 5:
			settle(t, s, id, rec.Owner(), driver.Outcome{State: driver.Free})
			s.Claim(t.Context(), id, again(asked)) //nolint:errcheck // refused for those with Maybe
		}
	}
	rows, err := db.Query("SELECT id, state, started, coalesce(expires, 9223372036854775807), sealed, record FROM semel_records")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var id, data []byte
		var state driver.State
		var started, expires driver.Time
		var sealed bool
		var rec driver.Record
		if err := errors.Join(rows.Scan(&id, &state, &started, &expires, &sealed, &data), rec.UnmarshalBinary(data)); err != nil {
			t.Fatal(err)
		}
		if rec.State != state || rec.Started != started || rec.Expires() != expires {
			t.Errorf("a record that is %s, started %d and expires %d has the columns %s, %d, %d", rec.State, rec.Started, rec.Expires(), state, started, expires)
		}
		if open := rec.State == driver.Running || rec.State == driver.Free; sealed != (open && len(rec.Sealed) > 0) {
			t.Errorf("a record that is %s, with a sealed request of %d bytes, has the column %t", rec.State, len(rec.Sealed), sealed)
		}
	}
	if n != 120 {
		t.Errorf("%d records", n)
	}
}
