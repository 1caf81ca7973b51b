package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
)

var saveStep = verbs.SaveStep

func steps(t testing.TB, s *Store, id driver.ID) map[string]string {
	t.Helper()
	all, err := s.Steps(context.Background(), id)
	if err != nil {
		t.Fatalf("Steps: %v", err)
	}
	texts := map[string]string{}
	for name, result := range all {
		texts[name] = string(result)
	}
	return texts
}

// stored counts the rows of steps of an operation, whatever its record says.
func stored(t testing.TB, s *Store, id driver.ID) int {
	t.Helper()
	return value[int](t, s, "SELECT count(*) FROM {schema}.steps WHERE id = $1", id[:])
}

// Whatever deletes a record, strips it to a tombstone or begins it anew deletes its steps, and no others.
func TestR84_NoStepOutlivesItsOperation(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	free := driver.Outcome{State: driver.Free}
	begin := func(t *testing.T, s *Store, id driver.ID, by driver.Owner) {
		if owned, err := s.Extend(ctx, id, by, driver.Extension{Lease: time.Hour, Begun: true}); !owned || err != nil {
			t.Fatalf("extend: %t, %v", owned, err)
		}
	}
	sweeps := func(t *testing.T, s *Store, _ driver.ID) { sweep(t, s, 10, 1) }
	forgets := func(t *testing.T, s *Store, id driver.ID) {
		rec := load(t, s, id)
		if forgot, err := s.Forget(ctx, id, rec.Owner()); !forgot || err != nil {
			t.Fatalf("forget: %t, %v", forgot, err)
		}
	}
	claims := func(t *testing.T, s *Store, id driver.ID) {
		if rec := claim(t, s, id, ask(driver.Hold)); rec.Steps || rec.Attempt != 1 {
			t.Errorf("a new operation has steps: %t, attempt %d", rec.Steps, rec.Attempt)
		}
	}
	commits := func(t *testing.T, s *Store, id driver.ID) {
		tx, rec, owned, err := s.BeginClaim(ctx, id, ask(driver.Hold))
		if !owned || err != nil || rec.Steps {
			t.Fatalf("BeginClaim: %t, steps %t, %v", owned, rec.Steps, err)
		}
		if _, owned, err := tx.Settle(ctx, id, rec.Owner(), free); !owned || err != nil {
			t.Fatalf("settle: %t, %v", owned, err)
		}
	}
	for _, row := range []struct {
		what    string
		onLost  driver.LostPolicy
		tomb    time.Duration
		ends    func(t *testing.T, s *Store, id driver.ID, by driver.Owner)
		after   time.Duration // of which an hour is the lease, or the retention
		removes func(t *testing.T, s *Store, id driver.ID)
		left    driver.State
	}{
		{"a done record is swept", driver.Hold, 0, func(t *testing.T, s *Store, id driver.ID, by driver.Owner) {
			settle(t, s, id, by, driver.Outcome{State: driver.Done})
		}, time.Hour, sweeps, driver.Absent},
		{"a free record is swept", driver.Hold, 0, func(t *testing.T, s *Store, id driver.ID, by driver.Owner) {
			settle(t, s, id, by, free)
		}, time.Hour, sweeps, driver.Absent},
		{"a lapsed record is swept", driver.Rerun, 0, nil, 8 * time.Hour, sweeps, driver.Absent},
		{"a begun record is swept", driver.Hold, 0, begin, 2 * time.Hour, sweeps, driver.Absent},
		{"a done record becomes a tombstone", driver.Hold, day, func(t *testing.T, s *Store, id driver.ID, by driver.Owner) {
			settle(t, s, id, by, driver.Outcome{State: driver.Done})
		}, time.Hour, sweeps, driver.Done},
		{"a begun record becomes a tombstone", driver.Hold, day, begin, 2 * time.Hour, sweeps, driver.Running},
		{"a done record is forgotten", driver.Hold, 0, func(t *testing.T, s *Store, id driver.ID, by driver.Owner) {
			settle(t, s, id, by, done("answer"))
		}, 0, forgets, driver.Absent},
		{"a seized record is forgotten", driver.Hold, 0, func(t *testing.T, s *Store, id driver.ID, _ driver.Owner) {
			if rec, err := s.Seize(ctx, id, driver.NewToken()); err != nil || !rec.Steps {
				t.Fatalf("seize: steps %t, error %v", rec.Steps, err)
			}
		}, 0, forgets, driver.Absent},
		{"a begun record is forgotten", driver.Hold, 0, begin, time.Hour, forgets, driver.Absent},
		{"a done record is claimed as a new operation", driver.Hold, 0, func(t *testing.T, s *Store, id driver.ID, by driver.Owner) {
			settle(t, s, id, by, done("answer"))
		}, time.Hour, claims, driver.Running},
		{"a begun record is claimed as a new operation", driver.Hold, 0, begin, 2 * time.Hour, claims, driver.Running},
		{"a done record begins anew in one commit", driver.Hold, 0, func(t *testing.T, s *Store, id driver.ID, by driver.Owner) {
			settle(t, s, id, by, done("answer"))
		}, time.Hour, commits, driver.Free},
	} {
		t.Run(row.what, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, Options{})
			clock := mover{pool: s.pool}
			id, other := newID(), newID()
			for _, id := range []driver.ID{id, other} {
				c := ask(row.onLost)
				c.Tombstone = row.tomb
				if id == other {
					c.Lease, c.Retention = driver.Forever, driver.Forever
				}
				rec := claim(t, s, id, c)
				saveStep(t, s, id, rec.Owner(), "reserve", "one")
				saveStep(t, s, id, rec.Owner(), "charge", "two")
				if id != other && row.ends != nil {
					row.ends(t, s, id, rec.Owner())
				}
			}
			if rec := load(t, s, id); !rec.Steps || len(steps(t, s, id)) != 2 {
				t.Fatalf("the record says that it has steps: %t; it has %v", rec.Steps, steps(t, s, id))
			}
			clock.advance(s.schema, row.after)
			row.removes(t, s, id)
			if rec := load(t, s, id); rec.State != row.left || rec.Steps {
				t.Errorf("the record is %v, want %v; it says that it has steps: %t", rec.State, row.left, rec.Steps)
			}
			if n := stored(t, s, id); n != 0 || len(steps(t, s, id)) != 0 {
				t.Errorf("%d steps are left behind", n)
			}
			if len(steps(t, s, other)) != 2 {
				t.Errorf("of another operation's steps %v are left", steps(t, s, other))
			}
		})
	}
}

// The verbs do not so much as open the table of the steps for a record that has none.
func TestARecordWithoutStepsCostsNothing(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	clock := mover{pool: s.pool}
	settleCall := func(id driver.ID, by driver.Owner, o driver.Outcome) *call {
		c, err := s.settleCall(id, by, o, false)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	fresh, running, forgotten := newID(), newID(), newID()
	finished(t, s, fresh)
	finished(t, s, newID())
	clock.advance(s.schema, 2*time.Hour)
	rec := claim(t, s, running, ask(driver.Hold))
	gone := finished(t, s, forgotten)
	for _, row := range []struct {
		what string
		call *call
	}{
		{"a claim", s.claimCall(newID(), ask(driver.Hold))},
		{"a claim as a new operation", s.claimCall(fresh, ask(driver.Hold))},
		{"a settle", settleCall(running, rec.Owner(), done("answer"))},
		{"forgetting", (&call{sql: s.sql.forget}).bytes(forgotten[:]).int8(int64(gone.Fence)).bytes(gone.Token[:])},
		{"a sweep", (&call{sql: s.sql.sweep}).int4(10)},
	} {
		tx := begin(t, s, pgx.TxOptions{})
		if err := row.call.run(context.Background(), tx.Conn().PgConn(), nil); err != nil {
			t.Fatalf("%s: %v", row.what, err)
		}
		if !txValue[bool](t, s, tx, "SELECT pg_current_xact_id_if_assigned() IS NOT NULL") {
			t.Errorf("%s has written nothing", row.what)
		}
		const opened = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation = '{schema}.steps'::regclass"
		if n := txValue[int](t, s, tx, opened); n != 0 {
			t.Errorf("%s opens the table of the steps", row.what)
		}
		if err := tx.Rollback(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// The first step of an operation is a HOT update of its record, and the others are none.
func TestOnlyTheFirstStepUpdatesTheRecord(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	id, c := newID(), ask(driver.Rerun)
	c.Sealed = []byte("sealed")
	rec := claim(t, s, id, c)
	tx := begin(t, s, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	for i := range 4 {
		save := s.saveStepCall(id, rec.Owner(), fmt.Sprint(i%3), nil)
		if err := save.run(context.Background(), tx.Conn().PgConn(), func(row [][]byte) error { return readable(row[0]) }); err != nil {
			t.Fatal(err)
		}
	}
	all := txValue[int](t, s, tx, "SELECT pg_stat_get_xact_tuples_updated('{schema}.records'::regclass)")
	hot := txValue[int](t, s, tx, "SELECT pg_stat_get_xact_tuples_hot_updated('{schema}.records'::regclass)")
	rows := txValue[int](t, s, tx, "SELECT count(*) FROM {schema}.steps")
	if all != 1 || hot != 1 || rows != 3 {
		t.Errorf("%d updates, of which %d are HOT, and %d steps; want 1, 1 and 3", all, hot, rows)
	}
}

// What SaveStep acknowledges is durable, whatever the role's settings say; what it refuses writes and locks nothing.
func TestAStepIsDurableAndARefusedOneLeavesNoTrace(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	id := newID()
	rec := claim(t, s, id, ask(driver.Hold))
	stranger := driver.Owner{Fence: rec.Fence, Token: driver.NewToken()}
	for _, row := range []struct {
		by   driver.Owner
		want string
	}{{rec.Owner(), "on"}, {stranger, "off"}} {
		tx := begin(t, s, pgx.TxOptions{})
		if _, err := tx.Exec(context.Background(), "SET LOCAL synchronous_commit = off"); err != nil {
			t.Fatal(err)
		}
		owned := false
		err := s.saveStepCall(id, row.by, "charge", []byte("paid")).run(context.Background(), tx.Conn().PgConn(), func(row [][]byte) error {
			owned = boolOf(row[0])
			return nil
		})
		if err != nil || owned != (row.by == rec.Owner()) {
			t.Fatalf("owned is %t, error %v", owned, err)
		}
		if got := txValue[string](t, s, tx, "SHOW synchronous_commit"); got != row.want {
			t.Errorf("owned is %t, and synchronous_commit %s, want %s", owned, got, row.want)
		}
		if wrote := txValue[bool](t, s, tx, "SELECT pg_current_xact_id_if_assigned() IS NOT NULL"); wrote != owned {
			t.Errorf("owned is %t, and it has written or locked something: %t", owned, wrote)
		}
		if err := tx.Rollback(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// A step is saved before its run ends, or not at all, and the record is due when the rule says.
func TestAStepRacesASettle(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	won := 0
	for round := range 150 {
		id := newID()
		c := ask(driver.Rerun)
		c.Tombstone = day
		rec := claim(t, s, id, c)
		var saved bool
		var failed error
		var race sync.WaitGroup
		race.Go(func() { saved, failed = s.SaveStep(context.Background(), id, rec.Owner(), "charge", []byte("paid")) })
		outcome := []driver.Outcome{{State: driver.Free}, {State: driver.Done}, {State: driver.Unknown}}[round%3]
		ended := settle(t, s, id, rec.Owner(), outcome)
		race.Wait()
		now := load(t, s, id)
		if failed != nil || now.Steps != saved || ended.Steps != saved || stored(t, s, id) != map[bool]int{true: 1}[saved] {
			t.Fatalf("saved is %t, error %v; the record says %t, said %t as settled, and %d steps are stored",
				saved, failed, now.Steps, ended.Steps, stored(t, s, id))
		}
		due(t, s, id)
		if saved {
			won++
		}
	}
	t.Logf("the step was faster in %d rounds", won)
}

// due checks that a record that does not run is swept when the rule says.
func due(t testing.TB, s *Store, id driver.ID) {
	t.Helper()
	rec := load(t, s, id)
	want := rec.Expires()
	got := value[int64](t, s, "SELECT coalesce(expires, 9223372036854775807) FROM {schema}.records WHERE id = $1", id[:])
	if driver.Time(got) != want {
		t.Errorf("a record that is %v, owed %t, with steps %t is due at %d, want %d", rec.State, rec.Owed, rec.Steps, got, want)
	}
}

// Once a run is taken over or seized, no step of it is saved any more: what the new owner finds is all there will be.
func TestAStepRacesATakeover(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ctx := context.Background()
	takers := []func(t *testing.T, id driver.ID, c driver.Claim) driver.Record{
		func(t *testing.T, id driver.ID, c driver.Claim) driver.Record { return claim(t, s, id, c) },
		func(t *testing.T, id driver.ID, c driver.Claim) driver.Record {
			rec, err := s.Seize(ctx, id, c.Token)
			if err != nil || rec.Token != c.Token {
				t.Fatalf("seize: %v", err)
			}
			return rec
		},
	}
	const perRound = 8
	late, early := 0, 0
	for round := range 120 {
		id, c := newID(), ask(driver.Rerun)
		c.Lease = time.Nanosecond // over at once
		old := claim(t, s, id, c)
		var mu sync.Mutex
		acknowledged := map[string]string{}
		var race sync.WaitGroup
		for i := range perRound {
			race.Go(func() {
				name := fmt.Sprint(i)
				saved, err := s.SaveStep(ctx, id, old.Owner(), name, []byte("old"))
				if err != nil {
					t.Errorf("SaveStep: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if saved {
					acknowledged[name] = "old"
				}
			})
		}
		c.Token, c.Lease = driver.NewToken(), time.Hour
		rec := takers[round%len(takers)](t, id, c)
		found := steps(t, s, id)
		race.Wait()
		if !maps.Equal(found, acknowledged) {
			t.Fatalf("the new owner found %v, and the old one was told %v", found, acknowledged)
		}
		if now := steps(t, s, id); !maps.Equal(found, now) || rec.Steps != (len(found) > 0) {
			t.Fatalf("the new owner found %v, later there are %v; it was told that there are some: %t", found, now, rec.Steps)
		}
		early += len(found)
		late += perRound - len(found)
	}
	t.Logf("%d steps were saved, %d were too late", early, late)
}

// The connection breaks when the server has saved the step. Sent again it succeeds, and nothing is changed, also if the
// result is another one.
func TestAStepWhoseReplyWasLostIsRepeated(t *testing.T) {
	t.Parallel()
	proxy, url := newCutter(t, server.URL())
	s := openOn(t, newPool(t, url), Options{})
	id := newID()
	rec := claim(t, s, id, ask(driver.Hold))
	lost := &cut{statement: s.sql.saveStep, gone: make(chan string)}
	proxy.armed.Store(lost)
	owned, err := s.SaveStep(context.Background(), id, rec.Owner(), "charge", []byte("first"))
	if owned || !errors.Is(err, ErrUnreachable) {
		t.Fatalf("without a reply: %t, %v", owned, err)
	}
	<-lost.gone
	saveStep(t, s, id, rec.Owner(), "charge", "first")
	saveStep(t, s, id, rec.Owner(), "charge", "second")
	if got := steps(t, s, id); !maps.Equal(got, map[string]string{"charge": "first"}) {
		t.Errorf("the steps are %v", got)
	}
}

// A row that was deleted by hand leaves its steps; they are not those of the operation that comes after.
func TestStepsLeftBehindAreNotTheNextOperations(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	id := newID()
	rec := claim(t, s, id, ask(driver.Hold))
	saveStep(t, s, id, rec.Owner(), "charge", "old")
	saveStep(t, s, id, rec.Owner(), "ship", "old")
	exec(t, s, "DELETE FROM {schema}.records WHERE id = $1", id[:])
	if got := steps(t, s, id); len(got) != 0 {
		t.Errorf("an absent record has steps %v", got)
	}
	rec = claim(t, s, id, ask(driver.Hold))
	if got := steps(t, s, id); len(got) != 0 || rec.Steps {
		t.Errorf("a new operation has steps %v", got)
	}
	saveStep(t, s, id, rec.Owner(), "charge", "new")
	if got := steps(t, s, id); !maps.Equal(got, map[string]string{"charge": "new"}) {
		t.Errorf("the steps are %v", got)
	}
}

// When a record is due depends on what is owed and what is saved, in every way in which it can be settled.
func TestWhatIsOwedOrSavedIsKeptLonger(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ctx := context.Background()
	for _, retention := range []time.Duration{time.Minute, 3 * time.Hour, driver.Forever / 5, driver.Forever} {
		for n := range 8 {
			for _, state := range []driver.State{driver.Done, driver.Free, driver.Unknown} {
				o := driver.Outcome{State: state, Owed: n&1 != 0}
				id, c := newID(), ask(driver.Rerun)
				c.Retention, c.Tombstone = retention, time.Hour
				rec := claim(t, s, id, c)
				if n&2 != 0 {
					saveStep(t, s, id, rec.Owner(), "charge", "paid")
				}
				if n&4 != 0 {
					exec(t, s, "UPDATE {schema}.records SET owed = true WHERE id = $1", id[:])
				}
				before := load(t, s, id)
				got := settle(t, s, id, rec.Owner(), o)
				want, _ := before.Settle(got.Now, rec.Owner(), o)
				if got.Owed != want.Owed || got.Steps != want.Steps {
					t.Errorf("%v, %d: owed is %t, steps %t; want %t, %t", state, n, got.Owed, got.Steps, want.Owed, want.Steps)
				}
				due(t, s, id)
				if state != driver.Free {
					continue
				}
				// Again in one commit, which keeps the steps and what is owed.
				c.Token = driver.NewToken()
				tx, rec, owned, err := s.BeginClaim(ctx, id, c)
				if !owned || err != nil || rec.Steps != got.Steps || rec.Owed != got.Owed {
					t.Fatalf("BeginClaim: %t, %v; owed is %t, steps %t", owned, err, rec.Owed, rec.Steps)
				}
				got, owned, err = tx.Settle(ctx, id, rec.Owner(), o)
				if now := load(t, s, id); !owned || err != nil || now.Owed != got.Owed || now.Steps != got.Steps ||
					now.Steps != want.Steps || now.Owed != want.Owed {
					t.Errorf("in one commit, %d: %t, %v; owed is %t, steps %t", n, owned, err, now.Owed, now.Steps)
				}
				due(t, s, id)
				if len(steps(t, s, id)) != n>>1&1 {
					t.Errorf("the steps are %v", steps(t, s, id))
				}
			}
		}
	}
}

// A run in one commit that has taken over is refused if its old owner has saved a first step since.
func TestAStepBetweenBeginningAndEndOfOneCommit(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ctx := context.Background()
	id, c := newID(), ask(driver.Rerun)
	c.Lease = time.Nanosecond
	old := claim(t, s, id, c)
	c.Token = driver.NewToken()
	tx, rec, owned, err := s.BeginClaim(ctx, id, c)
	if !owned || err != nil {
		t.Fatalf("BeginClaim: %t, %v", owned, err)
	}
	saveStep(t, s, id, old.Owner(), "charge", "old")
	if _, owned, err := tx.Settle(ctx, id, rec.Owner(), done("new")); owned {
		t.Errorf("settled over a step that it has not seen, error %v", err)
	}
	if now := load(t, s, id); now.Token != old.Token || !now.Steps || stored(t, s, id) != 1 {
		t.Errorf("the record is %v, it says that it has steps: %t; %d are stored", now.State, now.Steps, stored(t, s, id))
	}
}

// What has steps and lapses is overdue as late as the sweep takes it.
func TestR56_TheLagOfALapsedRecordWithSteps(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	clock := mover{pool: s.pool}
	id := newID()
	rec := claim(t, s, id, ask(driver.Rerun))
	saveStep(t, s, id, rec.Owner(), "charge", "paid")
	clock.advance(s.schema, 7*time.Hour)
	if n, err := s.Count(context.Background()); err != nil || n.SweepLag != 0 {
		t.Errorf("before it is due: %+v, error %v", n, err)
	}
	sweep(t, s, 10, 0)
	clock.advance(s.schema, 2*time.Hour)
	if n, err := s.Count(context.Background()); err != nil || n.SweepLag < 59*time.Minute || n.SweepLag > 2*time.Hour {
		t.Errorf("an hour overdue: %+v, error %v", n, err)
	}
	sweep(t, s, 10, 1)
}

func TestAResultThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	id := newID()
	rec := claim(t, s, id, ask(driver.Hold))
	owned, err := s.SaveStep(context.Background(), id, rec.Owner(), "charge", make([]byte, maxAnswer+1))
	if owned || !errors.Is(err, driver.ErrFull) {
		t.Errorf("owned is %t, error %v", owned, err)
	}
	large := bytes.Repeat([]byte{0, 255}, 1<<20)
	saveStep(t, s, id, rec.Owner(), "charge", string(large))
	if got := steps(t, s, id)["charge"]; got != string(large) {
		t.Errorf("%d bytes were saved as %d", len(large), len(got))
	}
}
