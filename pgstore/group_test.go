package pgstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
)

// crowd takes all places under way, so that verbs wait for each other. The function that it returns lets them go, in as
// few groups as may be.
func crowd(s *Store) (release func()) {
	l := &s.line
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*trip
	for l.trips < l.most {
		t := l.begin()
		t.slow.Stop()
		all = append(all, t)
	}
	return func() {
		for _, t := range all {
			t.end()
		}
	}
}

// waitsInLine returns when so many verbs wait.
func waitsInLine(s *Store, n int) {
	for {
		s.line.mu.Lock()
		now := len(s.line.waiting)
		s.line.mu.Unlock()
		if now == n {
			return
		}
		runtime.Gosched()
	}
}

// enlist starts verbs that wait in the line in this order, and returns what waits for their ends.
func enlist(s *Store, verbs ...func()) (ended func()) {
	var all sync.WaitGroup
	s.line.mu.Lock()
	before := len(s.line.waiting)
	s.line.mu.Unlock()
	for i, verb := range verbs {
		all.Go(verb)
		waitsInLine(s, before+i+1)
	}
	return all.Wait
}

// inOneGroup executes verbs in one group.
func inOneGroup(s *Store, verbs ...func()) {
	release := crowd(s)
	ended := enlist(s, verbs...)
	release()
	ended()
}

// A reply is a claim and what was replied.
type reply struct {
	id    driver.ID
	ask   driver.Claim
	rec   driver.Record
	owned bool
	err   error
}

func (r *reply) claim(ctx context.Context, s *Store) {
	r.rec, r.owned, r.err = s.Claim(ctx, r.id, r.ask)
}

// claims returns verbs that claim new operations, and where their replies go.
func claims(s *Store, n int) (verbs []func(), all []*reply) {
	for range n {
		r := &reply{id: newID(), ask: ask(driver.Hold)}
		all = append(all, r)
		verbs = append(verbs, func() { r.claim(context.Background(), s) })
	}
	return verbs, all
}

// A gate holds what is inserted into the records, until it is opened. What has come to it is counted, also if it is
// rolled back later.
func gate(t *testing.T, s *Store) (reached, open func()) {
	t.Helper()
	exec(t, s, "CREATE SEQUENCE {schema}.gate MINVALUE 0 START 0")
	exec(t, s, "CREATE SEQUENCE {schema}.reached MINVALUE 0")
	exec(t, s, "SELECT setval('{schema}.reached', 0)")
	exec(t, s, `CREATE FUNCTION {schema}.gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM nextval('{schema}.reached');
		WHILE (SELECT last_value FROM {schema}.gate) = 0 LOOP PERFORM pg_sleep(0.001); END LOOP;
		RETURN NEW;
	END $$`)
	exec(t, s, "CREATE TRIGGER gate BEFORE INSERT ON {schema}.records FOR EACH ROW EXECUTE FUNCTION {schema}.gate()")
	reached = func() {
		for end := time.Now().Add(time.Minute); value[int](t, s, "SELECT last_value::int FROM {schema}.reached") == 0; {
			if time.Now().After(end) {
				t.Fatal("nobody is at the gate")
			}
		}
	}
	return reached, func() { exec(t, s, "SELECT setval('{schema}.gate', 1)") }
}

// A group answers each of its callers as the verb alone would have, in every state that a record may have.
func TestAGroupAnswersAsEachVerbAloneWould(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"in one table": {}, "answers apart, with notifications": {PartitionAnswers: true, Notify: true, ahead: 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alone := answersOf(t, openStore(t, o), func(_ *Store, verbs ...func()) {
				for _, verb := range verbs {
					verb()
				}
			})
			together := answersOf(t, openStore(t, o), inOneGroup)
			for i := range alone {
				if alone[i] != together[i] {
					t.Errorf("alone:    %s\ntogether: %s", alone[i], together[i])
				}
			}
		})
	}
}

// A tried is a verb on a record of its own, and its answer.
type tried struct {
	what  string
	id    driver.ID
	send  func() (driver.Record, bool, error)
	rec   driver.Record
	owned bool
	err   error
}

// answersOf makes records in all states, and returns what verbs on each of them are answered, and leave.
func answersOf(t *testing.T, s *Store, run func(*Store, ...func())) (lines []string) {
	t.Helper()
	all := allVerbs(t, s)
	var verbs []func()
	for _, v := range all {
		verbs = append(verbs, func() { v.rec, v.owned, v.err = v.send() })
	}
	for rest := verbs; len(rest) > 0; {
		n := min(len(rest), groupVerbs)
		run(s, rest[:n]...)
		rest = rest[n:]
	}
	show := func(rec driver.Record) string {
		var body []byte
		if rec.Response != nil {
			body = rec.Response.Body
		}
		return fmt.Sprintf("%v wrote %v attempt %d begun %t maybe %t steps %t owed %t kept %v valid %t of %q error %q answer %q sealed %q", rec.State, rec.Wrote,
			rec.Attempt, rec.Begun, rec.Maybe, rec.Steps, rec.Owed, rec.Retention, rec.LeaseEnd > rec.Now, rec.Operation, rec.Error, body, rec.Sealed)
	}
	for _, v := range all {
		f, err := s.find(context.Background(), newCall(s.sql.load, 1).bytes(v.id[:]))
		if v.rec.Fence > f.rec.Fence || v.owned && v.rec.State != driver.Absent && v.rec.Fence != f.rec.Fence {
			t.Errorf("%s: fence %d, and in the record %d", v.what, v.rec.Fence, f.rec.Fence)
		}
		lines = append(lines, fmt.Sprintf("%s: owned %t, %s, error %v; then %s, error %v", v.what, v.owned, show(v.rec), v.err, show(f.rec), err))
	}
	return lines
}

// allVerbs makes records in all states, and verbs on them.
func allVerbs(t *testing.T, s *Store) (all []*tried) {
	t.Helper()
	ctx := context.Background()
	type asked struct {
		id driver.ID
		c  driver.Claim
		by driver.Owner
	}
	for _, state := range []struct {
		what string
		make func(*asked)
	}{
		{"absent", func(a *asked) { a.by = driver.Owner{Fence: 1, Token: a.c.Token} }},
		{"running", func(*asked) {}},
		{"begun", func(a *asked) {
			if _, err := s.Extend(ctx, a.id, a.by, driver.Extension{Lease: time.Minute, Begun: true}); err != nil {
				t.Fatal(err)
			}
		}},
		{"with a step", func(a *asked) {
			if _, err := s.SaveStep(ctx, a.id, a.by, "charge", []byte("paid")); err != nil {
				t.Fatal(err)
			}
		}},
		{"done", func(a *asked) { settle(t, s, a.id, a.by, done("first")) }},
		{"free", func(a *asked) { settle(t, s, a.id, a.by, driver.Outcome{State: driver.Free}) }},
		{"seized", func(a *asked) {
			rec, err := s.Seize(ctx, a.id, driver.NewToken())
			if err != nil {
				t.Fatal(err)
			}
			a.by = rec.Owner()
		}},
	} {
		for _, as := range []struct {
			policy driver.LostPolicy
			lease  time.Duration
		}{{driver.Hold, time.Minute}, {driver.Rerun, time.Minute}, {driver.Rerun, time.Microsecond}} {
			for _, verb := range []struct {
				what string
				send func(asked) (driver.Record, bool, error)
			}{
				{"the same claim", func(a asked) (driver.Record, bool, error) { return s.Claim(ctx, a.id, a.c) }},
				{"a claim", func(a asked) (driver.Record, bool, error) { return s.Claim(ctx, a.id, retry(a.c)) }},
				{"another request", func(a asked) (driver.Record, bool, error) {
					c := retry(a.c)
					c.Fingerprint = driver.Fingerprint{Raw: driver.NewToken(), Canonical: driver.NewToken()}
					return s.Claim(ctx, a.id, c)
				}},
				{"a settle", func(a asked) (driver.Record, bool, error) {
					o := done("settled")
					o.Error, o.Retention = "none", 2*time.Hour
					return s.Settle(ctx, a.id, a.by, o)
				}},
				{"a settle without an answer", func(a asked) (driver.Record, bool, error) {
					return s.Settle(ctx, a.id, a.by, driver.Outcome{State: driver.Done})
				}},
				{"a stranger's settle", func(a asked) (driver.Record, bool, error) {
					return s.Settle(ctx, a.id, driver.Owner{Fence: a.by.Fence + 1, Token: a.by.Token}, done("late"))
				}},
				{"a heartbeat", func(a asked) (driver.Record, bool, error) {
					owned, err := s.Extend(ctx, a.id, a.by, driver.Extension{Lease: time.Hour})
					return driver.Record{}, owned, err
				}},
				{"a load", func(a asked) (driver.Record, bool, error) {
					rec, err := s.Load(ctx, a.id)
					return rec, false, err
				}},
			} {
				a := asked{id: newID(), c: ask(as.policy)}
				a.c.Sealed, a.c.Lease = []byte("sealed"), as.lease
				if state.what != "absent" {
					rec := claim(t, s, a.id, a.c)
					a.by = rec.Owner()
				}
				state.make(&a)
				a.c.Lease = time.Minute
				what := fmt.Sprintf("%s, %v, leased for %v: %s", state.what, as.policy, as.lease, verb.what)
				all = append(all, &tried{what: what, id: a.id, send: func() (driver.Record, bool, error) { return verb.send(a) }})
			}
		}
	}
	return all
}

// Several verbs on one operation in a group come out as if they had come one after the other.
func TestOneOperationSeveralTimesInAGroup(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ctx := context.Background()
	id := newID()
	first := ask(driver.Hold)
	var all []*reply
	var verbs []func()
	for i := range 9 {
		r := &reply{id: id, ask: first}
		if i > 0 {
			r.ask = retry(first)
		}
		all = append(all, r)
		verbs = append(verbs, func() { r.claim(ctx, s) })
	}
	inOneGroup(s, verbs...)
	var owner driver.Record
	owners := 0
	for _, r := range all {
		if r.err != nil || r.rec.State != driver.Running {
			t.Fatalf("the record is %v, error %v", r.rec.State, r.err)
		}
		if r.owned {
			owner = r.rec
			owners++
		}
	}
	if owners != 1 {
		t.Fatalf("%d claims own the operation", owners)
	}
	verbs = nil
	for i := range 4 {
		verbs = append(verbs, func() {
			rec, owned, err := s.Settle(ctx, id, owner.Owner(), done("paid"))
			if err != nil || !owned || rec.State != driver.Done {
				t.Errorf("settle: owned is %t, the record %v, error %v", owned, rec.State, err)
			}
		})
		if i%2 == 0 {
			verbs = append(verbs, func() {
				if _, err := s.Extend(ctx, id, owner.Owner(), driver.Extension{Lease: time.Hour}); err != nil {
					t.Errorf("extend: %v", err)
				}
			})
		}
	}
	inOneGroup(s, verbs...)
	if rec := load(t, s, id); rec.State != driver.Done || string(rec.Response.Body) != "paid" || rec.Fence != owner.Fence {
		t.Errorf("the record is %v with fence %d, want done with %d", rec.State, rec.Fence, owner.Fence)
	}
}

// The heartbeats of many runs are few statements.
func TestHeartbeatsOfManyRunsAreFewStatements(t *testing.T) {
	t.Parallel()
	proxy, url := newCutter(t, server.URL())
	s := openOn(t, newPool(t, url), Options{})
	ctx := context.Background()
	const n = 2 * groupVerbs
	verbs, all := claims(s, n)
	inOneGroup(s, verbs...)
	var beats []func()
	for _, r := range all {
		beats = append(beats, func() {
			if owned, err := s.Extend(ctx, r.id, r.rec.Owner(), driver.Extension{Lease: 2 * time.Hour}); !owned || err != nil {
				t.Errorf("extend: %t, %v", owned, err)
			}
		})
	}
	inOneGroup(s, beats[:2]...) // its statement is prepared on this connection
	before := proxy.trips.Load()
	inOneGroup(s, beats...)
	if trips := proxy.trips.Load() - before; trips > 4 { // two groups, and perhaps a connection that has not prepared it
		t.Errorf("%d heartbeats took %d round trips", n, trips)
	}
}

// Who comes alone is sent at once, in one round trip.
func TestALoneCallerWaitsForNobody(t *testing.T) {
	t.Parallel()
	proxy, url := newCutter(t, server.URL())
	s := openOn(t, newPool(t, url), Options{MaxConns: 1})
	rec := claim(t, s, newID(), ask(driver.Hold)) // its statement is prepared
	before := proxy.trips.Load()
	claim(t, s, newID(), ask(driver.Hold))
	if trips := proxy.trips.Load() - before; trips != 1 {
		t.Errorf("a claim took %d round trips", trips)
	}
	if s.line.trips != 0 || rec.State != driver.Running {
		t.Errorf("%d are under way, the record is %v", s.line.trips, rec.State)
	}
}

// One of a group that the server refuses fails alone.
func TestAPoisonedRowFailsAlone(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	verbs, all := claims(s, 8)
	all[3].ask.Operation = "poison"
	exec(t, s, `CREATE FUNCTION {schema}.poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.operation = 'poison' THEN RAISE EXCEPTION 'poisoned' USING ERRCODE = '22012'; END IF;
		RETURN NEW;
	END $$`)
	exec(t, s, "CREATE TRIGGER poison BEFORE INSERT ON {schema}.records FOR EACH ROW EXECUTE FUNCTION {schema}.poison()")
	inOneGroup(s, verbs...)
	for i, r := range all {
		var refused *pgconn.PgError
		if poisoned := errors.As(r.err, &refused) && refused.Code == "22012"; poisoned != (i == 3) || r.owned == poisoned {
			t.Errorf("claim %d: owned is %t, error %v", i, r.owned, r.err)
		}
		if r.owned != (load(t, s, r.id).State == driver.Running) || r.owned && r.rec.Attempt != 1 {
			t.Errorf("claim %d: owned is %t, attempt %d, the record %v", i, r.owned, r.rec.Attempt, load(t, s, r.id).State)
		}
	}
}

// What waits for somebody's lock waits alone: a settle of a record that a transaction has locked, and a claim of one that
// a transaction has made.
func TestWhoWaitsForALockWaitsAlone(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ctx := context.Background()
	verbs, all := claims(s, 4)
	inOneGroup(s, verbs...)
	made := &reply{id: newID(), ask: ask(driver.Hold)}
	tx := begin(t, s, pgx.TxOptions{})
	txValue[int](t, s, tx, "SELECT 1 FROM {schema}.records WHERE id = $1 FOR UPDATE", all[0].id[:])
	if f := inTx(t, tx, s.claimCall(made.id, ask(driver.Hold))); !f.owned {
		t.Fatal("the claim in the transaction is refused")
	}
	var waits, others sync.WaitGroup
	waits.Add(2)
	others.Add(len(all) - 1)
	verbs = []func(){func() { defer waits.Done(); made.claim(ctx, s) }}
	for i, r := range all {
		verbs = append(verbs, func() {
			if i == 0 {
				defer waits.Done()
			} else {
				defer others.Done()
			}
			if _, owned, err := s.Settle(ctx, r.id, r.rec.Owner(), done("paid")); err != nil || !owned {
				t.Errorf("settle %d: %t, %v", i, owned, err)
			}
		})
	}
	release := crowd(s)
	ended := enlist(s, verbs...)
	release()
	others.Wait() // while the locks are held
	claim(t, s, newID(), ask(driver.Hold))
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	waits.Wait()
	ended()
	if made.owned || made.err != nil || made.rec.State != driver.Running {
		t.Errorf("the claim of what another has claimed: owned is %t, the record %v, error %v", made.owned, made.rec.State, made.err)
	}
}

// Verbs that wait for locks take nobody's place, as long as there are connections.
func TestASlowVerbGivesItsPlaceUp(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{MaxConns: maxTrips + 1})
	ctx := context.Background()
	verbs, all := claims(s, maxTrips)
	inOneGroup(s, verbs...)
	tx := begin(t, s, pgx.TxOptions{})
	var waits sync.WaitGroup
	for _, r := range all {
		txValue[int](t, s, tx, "SELECT 1 FROM {schema}.records WHERE id = $1 FOR UPDATE", r.id[:])
		waits.Go(func() { settle(t, s, r.id, r.rec.Owner(), done("paid")) })
	}
	for txValue[int](t, s, tx, "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))") < len(all) {
		runtime.Gosched()
	}
	claim(t, s, newID(), ask(driver.Hold))
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	waits.Wait()
}

// A caller that leaves takes nobody along, whether its verb waits in the line or is under way. The group is given up when
// all have left.
func TestACallerThatLeavesStopsNobody(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	reached, open := gate(t, s)
	leaving, leave := context.WithCancel(context.Background())
	unsent, underWay := &reply{id: newID(), ask: ask(driver.Hold)}, &reply{id: newID(), ask: ask(driver.Hold)}
	verbs, all := claims(s, 3)

	release := crowd(s)
	gone, cancel := context.WithCancel(context.Background())
	first := enlist(s, func() { unsent.claim(gone, s) })
	cancel()
	first()
	if !errors.Is(unsent.err, context.Canceled) {
		t.Errorf("left while waiting in the line: %v", unsent.err)
	}

	var left sync.WaitGroup
	left.Add(1)
	ended := enlist(s, append([]func(){func() { defer left.Done(); underWay.claim(leaving, s) }}, verbs...)...)
	release()
	reached()
	leave()
	left.Wait()
	if !errors.Is(underWay.err, context.Canceled) {
		t.Errorf("left while the group is under way: %v", underWay.err)
	}
	open()
	ended()
	for _, r := range all {
		if r.err != nil || !r.owned {
			t.Errorf("one who has stayed: %t, %v", r.owned, r.err)
		}
	}
	if n := value[int](t, s, "SELECT last_value::int FROM {schema}.reached"); n != len(all)+1 {
		t.Errorf("%d records were inserted, want %d: the group has gone on", n, len(all)+1)
	}
	if rec := load(t, s, unsent.id); rec.State != driver.Absent {
		t.Errorf("what was not sent is %v", rec.State)
	}
	underWay.claim(context.Background(), s) // the guard asks again
	if !underWay.owned || underWay.rec.Attempt != 1 {
		t.Errorf("asked again: owned is %t, attempt %d, error %v", underWay.owned, underWay.rec.Attempt, underWay.err)
	}
}

func TestAGroupGoesOnUntilTheLastHasLeft(t *testing.T) {
	t.Parallel()
	g := newGroup([]*waiter{{}, {}})
	if g.leave(); g.ctx.Err() != nil {
		t.Error("it has ended with the first")
	}
	if g.leave(); g.ctx.Err() == nil {
		t.Error("it goes on without anybody")
	}
}

func TestAGroupEndsWhenAllHaveLeft(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	reached, open := gate(t, s)
	defer open()
	leaving, leave := context.WithCancel(context.Background())
	var verbs []func()
	var all []*reply
	for range 3 {
		r := &reply{id: newID(), ask: ask(driver.Hold)}
		all, verbs = append(all, r), append(verbs, func() { r.claim(leaving, s) })
	}
	release := crowd(s)
	ended := enlist(s, verbs...)
	release()
	reached()
	leave()
	ended()
	for end := time.Now().Add(time.Minute); value[int](t, s, `SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%"' || $1 || '".claims_1%' AND state = 'active' AND pid <> pg_backend_pid()`, s.schema) > 0; {
		if time.Now().After(end) {
			t.Fatal("the server still executes what nobody waits for")
		}
	}
	for _, r := range all {
		if !errors.Is(r.err, context.Canceled) {
			t.Errorf("left: %v", r.err)
		}
		if rec := load(t, s, r.id); rec.State != driver.Absent {
			t.Errorf("what was cancelled is %v", rec.State)
		}
	}
}

// The reply of a group is lost. Each caller is told that nobody knows, and what it asks again succeeds as its own.
func TestTheReplyOfAGroupIsLost(t *testing.T) {
	t.Parallel()
	for name, executed := range map[string]bool{"executed": true, "never came": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, url := newCutter(t, server.URL())
			s := openOn(t, newPool(t, url), Options{})
			ctx := context.Background()
			lose := func(sql string) *cut {
				c := &cut{statement: sql, gone: make(chan string)}
				if !executed {
					c.ready = func() {}
				}
				proxy.armed.Store(c)
				return c
			}
			verbs, all := claims(s, 5)
			c := lose(s.kinds.claim.sql)
			inOneGroup(s, verbs...)
			<-c.gone
			for _, r := range all {
				isKind(t, "claim", r.err, ErrUnreachable)
				if state := load(t, s, r.id).State; (state == driver.Running) != executed {
					t.Errorf("the record is %v", state)
				}
			}
			inOneGroup(s, verbs...)
			for _, r := range all {
				if r.err != nil || !r.owned || r.rec.Attempt != 1 {
					t.Fatalf("claimed again: owned is %t, attempt %d, error %v", r.owned, r.rec.Attempt, r.err)
				}
			}
			settles := func(want error) (verbs []func()) {
				for _, r := range all {
					verbs = append(verbs, func() {
						_, owned, err := s.Settle(ctx, r.id, r.rec.Owner(), done("paid"))
						isKind(t, "settle", err, want)
						if owned != (want == nil) {
							t.Errorf("settle: owned is %t, error %v", owned, err)
						}
					})
				}
				return verbs
			}
			c = lose(s.kinds.settle.sql)
			inOneGroup(s, settles(ErrUnreachable)...)
			<-c.gone
			inOneGroup(s, settles(nil)...)
			for _, r := range all {
				if rec := load(t, s, r.id); rec.State != driver.Done || rec.Fence != r.rec.Fence || rec.Attempt != 1 {
					t.Errorf("the record is %v, attempt %d", rec.State, rec.Attempt)
				}
			}
		})
	}
}

// The server is killed while it executes a group. Nothing of it is left, nothing comes later, and what is asked again
// succeeds.
func TestTheServerIsKilledInAGroup(t *testing.T) {
	own := ownServer(t, servers.PostgresOptions{})
	s := openOn(t, newPool(t, own.URL()), Options{})
	reached, open := gate(t, s)
	verbs, all := claims(s, 4)
	release := crowd(s)
	ended := enlist(s, verbs...)
	release()
	reached()
	if err := own.Kill(); err != nil {
		t.Fatal(err)
	}
	ended()
	for _, r := range all {
		if r.owned || !errors.Is(r.err, ErrUnreachable) && !errors.Is(r.err, ErrShutdown) {
			t.Errorf("claim: %t, %v", r.owned, r.err)
		}
	}
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	reachable(t, s)
	for _, r := range all {
		if rec := load(t, s, r.id); rec.State != driver.Absent {
			t.Errorf("the record is %v", rec.State)
		}
	}
	open()
	inOneGroup(s, verbs...)
	for _, r := range all {
		if r.err != nil || !r.owned || r.rec.Attempt != 1 {
			t.Errorf("claimed again: owned is %t, attempt %d, error %v", r.owned, r.rec.Attempt, r.err)
		}
	}
}

// A hook of the application's that panics, or ends the goroutine, in a group leaves no caller waiting.
func TestAPanicInAGroupIsAnErrorOfItsVerbs(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]func(){"panics": func() { panic("the hook") }, "ends the goroutine": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openOn(t, newPool(t, server.URL(), func(c *pgxpool.Config) {
				c.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
					if n.Message == "noticed" {
						hook()
					}
				}
			}), Options{})
			exec(t, s, `CREATE FUNCTION {schema}.notice() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'noticed'; RETURN NULL; END $$`)
			exec(t, s, "CREATE TRIGGER notice AFTER INSERT ON {schema}.records FOR EACH STATEMENT EXECUTE FUNCTION {schema}.notice()")
			verbs, all := claims(s, 3)
			inOneGroup(s, verbs...)
			for _, r := range all {
				if r.err == nil || r.owned {
					t.Errorf("claim: %t, %v", r.owned, r.err)
				}
			}
			exec(t, s, "DROP TRIGGER notice ON {schema}.records")
			inOneGroup(s, verbs...)
			for _, r := range all {
				if r.err != nil || !r.owned || r.rec.Attempt != 1 {
					t.Errorf("claimed again: owned is %t, attempt %d, error %v", r.owned, r.rec.Attempt, r.err)
				}
			}
		})
	}
}

func TestAStoreIsClosedWhileVerbsWait(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	verbs, all := claims(s, 2*groupVerbs)
	release := crowd(s)
	ended := enlist(s, verbs...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	release()
	ended()
	for _, r := range all {
		if isKind(t, "claim", r.err, ErrClosed); r.owned {
			t.Error("it is owned")
		}
	}
}

// A clock that is set back, and a record with a fence ahead of it that is deleted: the fences of new ones are above.
func TestR46_FencesOfAGroupAreAboveDeletedOnes(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	clock := mover{pool: s.pool}
	gone := claim(t, s, newID(), ask(driver.Hold))
	verbs, all := claims(s, 3)
	old := finished(t, s, all[1].id)
	if ok, err := s.Forget(context.Background(), all[1].id, old.Owner()); !ok || err != nil {
		t.Fatalf("forget: %t, %v", ok, err)
	}
	clock.advance(s.schema, -time.Hour)
	inOneGroup(s, verbs...)
	for _, r := range all {
		if r.err != nil || !r.owned || r.rec.Fence <= old.Fence || r.rec.Fence != load(t, s, r.id).Fence {
			t.Errorf("owned is %t, fence %d, in the record %d, want above %d, error %v", r.owned, r.rec.Fence, load(t, s, r.id).Fence, old.Fence, r.err)
		}
	}
	if rec := load(t, s, newID()); rec.State != driver.Absent || gone.State != driver.Running {
		t.Errorf("the record is %v", rec.State)
	}
}

// What a group acknowledges is durable, whatever the role's settings say; what it only reads has nothing to wait for.
func TestGroupsThatWriteCommitSynchronously(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	id, c := newID(), ask(driver.Hold)
	rec := claim(t, s, id, c)
	settled, err := s.settleCall(id, rec.Owner(), done("ok"), false)
	if err != nil {
		t.Fatal(err)
	}
	runs := newID() // a change that was rolled back leaves its mark in a row, so each row has one
	running := claim(t, s, runs, ask(driver.Hold))
	for _, row := range []struct {
		what string
		kind *kindOfVerb
		one  *call
		want string
	}{
		{"new claims", &s.kinds.claim, s.claimCall(newID(), ask(driver.Hold)), "on"},
		{"claims refused", &s.kinds.claim, s.claimCall(id, retry(c)), "off"},
		{"settles", &s.kinds.settle, settled, "on"},
		{"heartbeats", &s.kinds.extend, s.extendCall(runs, running.Owner(), driver.Extension{Lease: time.Hour}), "on"},
		{"loads", &s.kinds.load, newCall(s.sql.load, 1).bytes(id[:]), "off"},
	} {
		tx := begin(t, s, pgx.TxOptions{})
		if _, err := tx.Exec(context.Background(), "SET LOCAL synchronous_commit = off"); err != nil {
			t.Fatal(err)
		}
		rows := 0
		err := row.kind.together([]*waiter{{one: row.one}}).run(context.Background(), tx.Conn().PgConn(), func([][]byte) error { rows++; return nil })
		if err != nil || rows == 0 {
			t.Errorf("%s: %d rows, %v", row.what, rows, err)
		}
		if got := txValue[string](t, s, tx, "SHOW synchronous_commit"); got != row.want {
			t.Errorf("after %s synchronous_commit is %s, want %s", row.what, got, row.want)
		}
		if err := tx.Rollback(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}
