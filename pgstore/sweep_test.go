package pgstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/driver"
)

const day = 24 * time.Hour

// finished makes a done record with an answer.
func finished(t testing.TB, s *Store, id driver.ID, set ...func(*driver.Claim)) driver.Record {
	t.Helper()
	c := ask(driver.Hold)
	for _, f := range set {
		f(&c)
	}
	rec := claim(t, s, id, c)
	return settle(t, s, id, rec.Owner(), done("answer"))
}

func sweep(t testing.TB, s *Store, limit, want int) {
	t.Helper()
	if n, err := s.Sweep(context.Background(), limit); n != want || err != nil {
		t.Fatalf("sweep changed %d records, error %v; want %d", n, err, want)
	}
}

// Sweepers share the work, and pass over what somebody has locked: it is being claimed (R-55, case 24).
func TestR55_SweepPassesOverWhatIsTaken(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	clock := mover{pool: s.pool}
	var ids []driver.ID
	for range 20 {
		ids = append(ids, newID())
		finished(t, s, ids[len(ids)-1])
	}
	clock.advance(s.schema, 2*time.Hour)
	tx := begin(t, s, pgx.TxOptions{})
	f := inTx(t, tx, s.claimCall(ids[0], ask(driver.Hold)))
	if !f.owned {
		t.Fatal("a record past its retention can't be claimed")
	}
	sweep(t, s, 5, 5)
	sweep(t, s, 100, 14)
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	sweep(t, s, 100, 0)
	if rec := load(t, s, ids[0]); rec.State != driver.Running || rec.Fence != f.rec.Fence {
		t.Errorf("the run that began meanwhile is %v with fence %d", rec.State, rec.Fence)
	}
}

func TestR55_SweepBeginsWithWhatIsOverdueLongest(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	clock := mover{pool: s.pool}
	var ids []driver.ID
	for i := range 10 {
		ids = append(ids, newID())
		finished(t, s, ids[i], func(c *driver.Claim) { c.Retention = time.Duration(10-i) * time.Minute })
	}
	clock.advance(s.schema, time.Hour)
	sweep(t, s, 4, 4)
	for i, id := range ids {
		if rec := load(t, s, id); (rec.State == driver.Absent) != (i >= 6) {
			t.Errorf("of the records from 10 to 1 minutes, number %d is %v", i, rec.State)
		}
	}
}

// A statement that took long is followed by a smaller one, however little one record more costs.
func TestR55_SweepDeletesLessWhereItTakesLong(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		chunk int
		took  time.Duration
		want  int
		why   string
	}{
		{100, sweepTime, 100, "as long as it shall take"},
		{100, 0, 200, "never more than twice as many"},
		{400, sweepTime / 2, sweepMost, "never more than the most"},
		{400, 2 * sweepTime, 200, "half as many where it took twice as long"},
		{200, time.Hour, sweepLeast, "never less than the least, so that it keeps up"},
	} {
		if got := nextChunk(row.chunk, row.took); got != row.want {
			t.Errorf("%s: %d records after %d in %v, want %d", row.why, got, row.chunk, row.took, row.want)
		}
	}
}

// A sweep of many records is a number of small transactions.
func TestR55_SweepWorksInSmallParts(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	const n = 2*sweepMost + 1
	exec(t, s, `INSERT INTO {schema}.records (fence, created, started, lease_end, settled, expires, retention, tombstone, attempt, layout, state,
		wrote, on_lost, begun, maybe, seized, steps, owed, id, token, fingerprint, operation, correlation, error)
		SELECT 1, 1, 1, 1, 1, 2, 1000, 0, 1, 1, 2, 2, 0, false, false, false, false, false, sha256(i::text::bytea) || substr(sha256(i::text::bytea), 1, 16),
		substr(sha256(''), 1, 16), sha256('') || substr(sha256(''), 1, 8), '', '', '' FROM generate_series(1, $1::int) i`, n)
	var all sync.WaitGroup
	counts := make([]int, 3)
	for i := range counts {
		all.Go(func() {
			for {
				got, err := s.Sweep(context.Background(), 400)
				if err != nil {
					t.Errorf("sweep: %v", err)
				}
				if counts[i] += got; got == 0 {
					return
				}
			}
		})
	}
	all.Wait()
	if sum := counts[0] + counts[1] + counts[2]; sum != n {
		t.Errorf("three sweepers say that they deleted %d records, and there were %d", sum, n)
	}
	if left := value[int](t, s, "SELECT count(*) FROM {schema}.records"); left != 0 {
		t.Errorf("%d records are left", left)
	}
}

func TestR54_SweepStripsToTombstones(t *testing.T) {
	t.Parallel()
	for _, apart := range []bool{false, true} {
		s := openStore(t, Options{PartitionAnswers: apart})
		clock := mover{pool: s.pool}
		ended, begun := newID(), newID()
		long := func(c *driver.Claim) { c.Tombstone, c.Sealed = day, []byte("sealed") }
		finished(t, s, ended, long)
		c := ask(driver.Hold)
		long(&c)
		rec := claim(t, s, begun, c)
		if owned, err := s.Extend(context.Background(), begun, rec.Owner(), driver.Extension{Lease: time.Second, Begun: true}); !owned || err != nil {
			t.Fatal(owned, err)
		}
		clock.advance(s.schema, 2*time.Hour)
		sweep(t, s, 10, 2)
		sweep(t, s, 10, 0)
		for _, id := range []driver.ID{ended, begun} {
			if rec := load(t, s, id); rec.Response != nil || rec.Sealed != nil || rec.Reads(driver.Hold) != driver.ReadsExpired {
				t.Errorf("apart %t: the tombstone has an answer (%t), %d sealed bytes, and reads as %v", apart, rec.Response != nil, len(rec.Sealed), rec.Reads(driver.Hold))
			}
		}
		clock.advance(s.schema, day)
		sweep(t, s, 10, 2)
		if n := value[int](t, s, "SELECT count(*) FROM {schema}.records"); n != 0 {
			t.Errorf("apart %t: %d records are left", apart, n)
		}
	}
}

// partitions returns the names of the partitions of answers, and how many answers are in each.
func partitions(t testing.TB, s *Store) map[string]int {
	t.Helper()
	rows, err := s.pool.Query(context.Background(), inSchema("SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = '{schema}.answers'::regclass", s.schema))
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	for _, name := range names {
		all[name] = value[int](t, s, "SELECT count(*) FROM {schema}."+name)
	}
	return all
}

// Answers are dropped by the day, once all in a partition have expired; what is kept for longer is deleted one by one.
func TestR55_AnswersAreDroppedByTheDay(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{PartitionAnswers: true})
	clock := mover{pool: s.pool}
	now := load(t, s, newID()).Now.Time()
	clock.advance(s.schema, now.Truncate(day).Add(day+12*time.Hour).Sub(now)) // noon: what follows is all of one day
	s.parted.Store(0)
	sweep(t, s, 100, 0)
	now = load(t, s, newID()).Now.Time()
	name := func(d int) string { return now.AddDate(0, 0, d).Format("answers_20060102") }
	if parts := partitions(t, s); len(parts) != daysAhead+2 || parts[name(0)] != 0 {
		t.Fatalf("the partitions are %v", parts)
	}
	retentions := map[driver.ID]time.Duration{newID(): day, newID(): 2 * day, newID(): 30 * day, newID(): driver.Forever}
	for id, retention := range retentions {
		finished(t, s, id, func(c *driver.Claim) { c.Retention = retention })
		if rec := load(t, s, id); rec.Response == nil || string(rec.Response.Body) != "answer" {
			t.Fatalf("kept for %v: the answer is %+v", retention, rec.Response)
		}
	}
	if parts := partitions(t, s); parts[name(1)] != 1 || parts[name(2)] != 1 || parts["answers_default"] != 2 {
		t.Fatalf("the partitions have %v", parts)
	}
	if n := value[int](t, s, "SELECT count(*) FROM {schema}.records WHERE answer IS NOT NULL"); n != 0 {
		t.Errorf("%d records have their answers", n)
	}

	clock.advance(s.schema, 2*day+2*time.Hour)
	s.parted.Store(0)
	sweep(t, s, 100, 2)
	parts := partitions(t, s)
	if _, there := parts[name(1)]; there || parts["answers_default"] != 2 {
		t.Errorf("two days later the partitions have %v", parts)
	}
	if _, there := parts[name(2+daysAhead)]; !there {
		t.Errorf("two days later there are the partitions %v", parts)
	}
	clock.advance(s.schema, 30*day)
	s.parted.Store(0)
	sweep(t, s, 100, 1)
	if parts := partitions(t, s); parts["answers_default"] != 1 {
		t.Errorf("a month later the partitions have %v", parts)
	}
	for id, retention := range retentions {
		if rec := load(t, s, id); (rec.State == driver.Absent) == (retention == driver.Forever) {
			t.Errorf("kept for %v: the record is %v", retention, rec.State)
		}
	}
}

// Where there is no partition for an answer, the default one has it, and the next day's can still be made.
func TestAnswersWithoutAPartitionAreKept(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{PartitionAnswers: true})
	clock := mover{pool: s.pool}
	clock.advance(s.schema, 40*day) // nobody has swept for long
	id := newID()
	finished(t, s, id)
	if parts := partitions(t, s); parts["answers_default"] != 1 {
		t.Fatalf("the partitions have %v", parts)
	}
	s.parted.Store(0)
	sweep(t, s, 10, 0)
	if rec := load(t, s, id); rec.Response == nil {
		t.Fatal("the answer is gone")
	}
	if parts := partitions(t, s); len(parts) != daysAhead+1 && len(parts) != daysAhead+2 {
		t.Errorf("the partitions are %v", parts)
	}
	clock.advance(s.schema, 2*time.Hour)
	sweep(t, s, 10, 1)
	if parts := partitions(t, s); parts["answers_default"] != 0 {
		t.Errorf("the partitions have %v", parts)
	}
	// The same operation on the same day again.
	for _, body := range []string{"first", "second"} {
		rec := claim(t, s, id, ask(driver.Hold))
		settle(t, s, id, rec.Owner(), done(body))
		if rec := load(t, s, id); string(rec.Response.Body) != body {
			t.Errorf("the answer is %q, want %q", rec.Response.Body, body)
		}
		clock.advance(s.schema, time.Hour+time.Second)
	}
}

// A store that keeps answers with the records reads those that another one keeps apart, and the other way round.
func TestStoresMayDifferInWhereAnswersAre(t *testing.T) {
	t.Parallel()
	a := openStore(t, Options{PartitionAnswers: true})
	b := openOn(t, a.app, Options{Schema: a.schema})
	for i, s := range []*Store{a, b} {
		id, c := newID(), ask(driver.Hold)
		rec := claim(t, s, id, c)
		settle(t, s, id, rec.Owner(), done(fmt.Sprint(i)))
		for _, other := range []*Store{a, b} {
			c.Token = driver.NewToken()
			rec, owned, err := other.Claim(context.Background(), id, c)
			if owned || err != nil || string(rec.Response.Body) != fmt.Sprint(i) {
				t.Errorf("claim: %t, %v", owned, err)
			}
		}
	}
}

// A claim that finds a record expired, and is overtaken by one that begins afresh and ends on the same day, leaves the
// new answer alone: it deletes the old one only once it has the record.
func TestAClaimThatWasOvertakenLeavesTheNewAnswerApart(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{PartitionAnswers: true})
	clock := mover{pool: s.pool}
	now := load(t, s, newID()).Now.Time()
	clock.advance(s.schema, now.Truncate(day).Add(day+12*time.Hour).Sub(now)) // noon: what follows is all of one day
	id := newID()
	finished(t, s, id)
	clock.advance(s.schema, 2*time.Hour)
	// A claim whose transaction says so waits between its look at the record and what it does about it.
	exec(t, s, `CREATE OR REPLACE FUNCTION {schema}.expires_1(ended bigint, retention bigint, tombstone bigint, payload boolean) RETURNS bigint
		LANGUAGE plpgsql VOLATILE AS $$
		BEGIN
			IF current_setting('semel_test.waits', true) = 'yes' THEN
				PERFORM pg_advisory_xact_lock(hashtext('{schema}'));
			END IF;
			RETURN {schema}.after_1({schema}.after_1(ended, retention), tombstone);
		END $$`)
	gate, late := begin(t, s, pgx.TxOptions{}), begin(t, s, pgx.TxOptions{})
	txValue[string](t, s, gate, "SELECT pg_advisory_xact_lock(hashtext('{schema}'))::text")
	txValue[string](t, s, late, "SELECT set_config('semel_test.waits', 'yes', true)")
	overtaken := make(chan found)
	go func() {
		defer close(overtaken)
		overtaken <- inTx(t, late, s.claimCall(id, ask(driver.Hold)))
	}()
	waitsForLock(t, s, gate)
	rec := claim(t, s, id, ask(driver.Hold))
	settle(t, s, id, rec.Owner(), done("second"))
	if err := gate.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	f := <-overtaken
	if err := late.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	for what, rec := range map[string]driver.Record{"the claim that was overtaken": f.rec, "a load": load(t, s, id)} {
		if rec.State != driver.Done || rec.Response == nil || string(rec.Response.Body) != "second" {
			t.Errorf("%s found %s, answer %+v", what, rec.State, rec.Response)
		}
	}
	if f.owned {
		t.Error("the claim that was overtaken owns the record")
	}
	clock.advance(s.schema, 2*time.Hour)
	claim(t, s, id, ask(driver.Hold))
	if n := value[int](t, s, "SELECT count(*) FROM {schema}.answers"); n != 0 {
		t.Errorf("%d answers are left of a record that was begun afresh", n)
	}
}

// Sweep and Count read what they look for, and not all records.
func TestR55_WhatIsDueIsFoundByItsIndex(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	exec(t, s, `INSERT INTO {schema}.records (fence, created, started, lease_end, settled, expires, retention, tombstone, attempt, layout, state,
		wrote, on_lost, begun, maybe, seized, steps, owed, id, token, fingerprint, operation, correlation, error)
		SELECT 1, 1, 1, 1, 1, CASE WHEN i > 5 THEN 9000000000000000 END, 1000, 0, 1, 1, CASE WHEN i > 5 THEN 2 ELSE 1 END, 2, 1, false, false, false, false, false,
		sha256(i::text::bytea) || substr(sha256(i::text::bytea), 1, 16), substr(sha256(''), 1, 16), sha256('') || substr(sha256(''), 1, 8), '', '', ''
		FROM generate_series(1, 20000) i`)
	exec(t, s, "ANALYZE {schema}.records")
	tx := begin(t, s, pgx.TxOptions{})
	for _, c := range []*call{(&call{sql: s.sql.sweep}).int4(500), {sql: s.sql.count}} {
		if err := c.run(t.Context(), tx.Conn().PgConn(), nil); err != nil {
			t.Fatal(err)
		}
		if n := txValue[int64](t, s, tx, "SELECT pg_stat_get_xact_numscans('{schema}.records'::regclass)"); n != 0 {
			t.Fatalf("%s: all records were read, %d times", c.sql, n)
		}
	}
	if n := txValue[int64](t, s, tx, "SELECT pg_stat_get_xact_tuples_deleted('{schema}.records'::regclass)"); n != 5 {
		t.Errorf("%d records are swept, want 5", n)
	}
}
