package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/driver"
)

// The verbs work in a transaction of a caller's too. One that has lost a race there can't look again at a stricter
// level than READ COMMITTED: the server ends it.
func TestRacesInACallersTransaction(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	for level, want := range map[pgx.TxIsoLevel]error{pgx.ReadCommitted: nil, pgx.RepeatableRead: ErrSerialization, pgx.Serializable: ErrSerialization} {
		id, c := newID(), ask(driver.Hold)
		first, second := begin(t, s, pgx.TxOptions{IsoLevel: level}), begin(t, s, pgx.TxOptions{IsoLevel: level})
		txValue[int](t, s, second, "SELECT count(*) FROM {schema}.records") // takes the snapshot
		if f := inTx(t, first, s.claimCall(id, c)); !f.owned {
			t.Fatalf("%s: the first claim is refused", level)
		}
		c.Token = driver.NewToken()
		type reply struct {
			f   found
			err error
		}
		replies := make(chan reply, 1)
		go func() {
			var r reply
			r.err = interpretError(s.claimCall(id, c).run(context.Background(), second.Conn().PgConn(), func(row [][]byte) (err error) {
				r.f, err = readFound(row[0])
				return err
			}))
			replies <- r
		}()
		waitsForLock(t, s, first)
		if err := first.Commit(context.Background()); err != nil {
			t.Fatal(err)
		}
		r := <-replies
		isKind(t, string(level), r.err, want)
		if want == nil && (r.f.owned || r.f.rec.State != driver.Running) {
			t.Errorf("%s: the second claim: owned is %t, the record %v", level, r.f.owned, r.f.rec.State)
		}
		if err := second.Rollback(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// A strict settle that is refused takes the COMMIT that was sent along with it.
func TestAStrictSettleThatIsRefusedFails(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	id := newID()
	rec := claim(t, s, id, ask(driver.Hold))
	for _, row := range []struct {
		by      driver.Owner
		refused bool
	}{{driver.Owner{Fence: rec.Fence, Token: driver.NewToken()}, true}, {rec.Owner(), false}, {rec.Owner(), false}} {
		c, err := s.settleCall(id, row.by, done("ok"), true)
		if err != nil {
			t.Fatal(err)
		}
		f, err := s.find(context.Background(), c)
		if s.notOwned(err) != row.refused || !row.refused && (err != nil || !f.owned) {
			t.Errorf("refused is %t, want %t; owned is %t, error %v", s.notOwned(err), row.refused, f.owned, err)
		}
	}
}

func TestWhatIsSettledElsewhereWakes(t *testing.T) {
	t.Parallel()
	a := openStore(t, Options{Notify: true})
	b := openOn(t, a.app, Options{Schema: a.schema, Notify: true})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	woken := make(chan driver.ID)
	ended := make(chan error)
	go func() {
		ended <- b.Wake(ctx, func(id driver.ID) {
			select {
			case woken <- id:
			case <-ctx.Done():
			}
		})
	}()
	id := newID()
	for { // until it listens
		other := newID()
		finished(t, a, other)
		select {
		case <-woken:
		case <-time.After(10 * time.Millisecond):
			continue
		case <-ctx.Done():
			t.Fatal("nobody was woken")
		}
		break
	}
	c := ask(driver.Hold)
	rec := claim(t, a, id, c)
	settle(t, a, id, rec.Owner(), driver.Outcome{State: driver.Free})
	for got := range woken {
		if got == id {
			break
		}
	}
	// A refused settle tells nobody: the next to come is the one after.
	if _, owned, err := a.Settle(ctx, id, driver.Owner{}, done("")); owned || err != nil {
		t.Fatal(owned, err)
	}
	last := newID()
	finished(t, a, last)
	if got := <-woken; got != last {
		t.Errorf("%s was woken, want %s", got, last)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}

	quiet := openOn(t, a.app, Options{Schema: a.schema})
	if err := quiet.Wake(context.Background(), nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without the option: %v", err)
	}
}

func TestWakeReportsALostConnection(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{Notify: true})
	ended := make(chan error)
	go func() { ended <- s.Wake(context.Background(), func(driver.ID) {}) }()
	for giveUp := time.Now().Add(time.Minute); ; {
		const listening = "query = 'LISTEN ' || quote_ident($1) OR query = format('LISTEN \"%s\"', $1::text)"
		if value[int](t, s, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE "+listening, s.schema) > 0 {
			break
		}
		if time.Now().After(giveUp) {
			t.Fatal("nobody listens")
		}
	}
	isKind(t, "wake", <-ended, ErrShutdown)
}

// The view is for people: ids as in the problem documents, times and texts that can be read.
func TestPeopleCanReadTheOperations(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	id, c := newID(), ask(driver.Rerun)
	c.Operation, c.Correlation, c.Sealed = "PUT /café", "bad \xff\x00", []byte("1234567")
	rec := claim(t, s, id, c)
	saveStep(t, s, id, rec.Owner(), "charge", "")
	row := s.pool.QueryRow(context.Background(), inSchema("SELECT id, state, on_lost, operation, correlation, created, settled, expires, sealed_bytes, attempt, steps, owed FROM {schema}.operations", s.schema))
	var name, state, policy, operation, correlation string
	var created time.Time
	var settled, expires *time.Time
	var sealed, attempt int
	var steps, owed bool
	if err := row.Scan(&name, &state, &policy, &operation, &correlation, &created, &settled, &expires, &sealed, &attempt, &steps, &owed); err != nil {
		t.Fatal(err)
	}
	if name != id.String() || state != "running" || policy != "rerun" || operation != "PUT /café" || correlation != `bad \377\000` ||
		!created.Equal(rec.Created.Time()) || settled != nil || expires != nil || sealed != 7 || attempt != 1 || !steps || owed {
		t.Error(name, state, policy, operation, correlation, created, settled, expires, sealed, attempt, steps, owed)
	}
	settle(t, s, id, rec.Owner(), done("ok"))
	exec(t, s, "SELECT * FROM {schema}.operations")
}

func TestR87_TheAuditTrailIsKept(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ctx := context.Background()
	id, other := newID(), newID()
	before := load(t, s, id).Now
	const n = pageRows + 10
	for i := range n {
		e := driver.AuditEntry{ID: id, Operation: "POST /payments", Actor: "ann\x00", Action: "release", Reason: string(rune('a' + i%26)), Result: "asked"}
		if i%2 == 1 {
			e.ID = other
		}
		if err := s.Audit(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		id    *driver.ID
		limit int
		want  int
	}{{nil, 0, n}, {nil, 3, 3}, {&id, 0, n / 2}, {&other, 7, 7}} {
		var all []driver.AuditEntry
		if err := s.AuditTrail(ctx, row.id, row.limit, func(e driver.AuditEntry) bool { all = append(all, e); return true }); err != nil {
			t.Fatal(err)
		}
		if len(all) != row.want {
			t.Fatalf("%d entries, want %d", len(all), row.want)
		}
		for i, e := range all {
			if row.id != nil && e.ID != *row.id || e.At < before || i > 0 && e.At > all[i-1].At || e.Actor != "ann\x00" || e.Result != "asked" {
				t.Errorf("entry %d is %+v", i, e)
			}
		}
	}
	calls := 0
	if err := s.AuditTrail(ctx, nil, 0, func(driver.AuditEntry) bool { calls++; return false }); err != nil || calls != 1 {
		t.Errorf("%d calls, error %v", calls, err)
	}
}

func TestR56_CountsAreToldCheaply(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ctx := context.Background()
	clock := mover{pool: s.pool}
	if n, err := s.Count(ctx); err != nil || n.Records != 0 || n.Running != 0 || n.Unknown != 0 || n.OldestRunning != 0 || n.SweepLag != 0 || n.Bytes == 0 {
		t.Fatalf("empty: %+v, error %v", n, err)
	}
	lost := ask(driver.Rerun)
	lost.Lease, lost.Retention = time.Minute, 10*time.Minute
	claim(t, s, newID(), lost)
	clock.advance(s.schema, time.Hour)
	claim(t, s, newID(), ask(driver.Hold))
	unknown := newID()
	rec := claim(t, s, unknown, ask(driver.Hold))
	settle(t, s, unknown, rec.Owner(), driver.Outcome{State: driver.Unknown})
	finished(t, s, newID())
	n, err := s.Count(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if n.Records != 4 || n.Running != 2 || n.Unknown != 1 || n.OldestRunning < time.Hour || n.SweepLag < 49*time.Minute || n.SweepLag > time.Hour {
		t.Errorf("%+v", n)
	}
	sweep(t, s, 10, 1)
	clock.advance(s.schema, 90*time.Minute)
	exec(t, s, "ANALYZE {schema}.records")
	if n, err = s.Count(ctx); err != nil || n.Records != 3 || n.SweepLag < 29*time.Minute || n.SweepLag > time.Hour {
		t.Errorf("%+v, error %v", n, err)
	}
}

// A listing reads page by page, and yield may use the store, even if that has a single connection.
func TestAListingGoesByPages(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{MaxConns: 1})
	ctx := context.Background()
	large := string(make([]byte, pageBytes/3))
	want := map[driver.ID]bool{}
	for i := range 7 {
		id := newID()
		want[id] = true
		rec := claim(t, s, id, ask(driver.Hold))
		if i > 0 {
			settle(t, s, id, rec.Owner(), done(large))
		}
	}
	got := 0
	err := s.List(ctx, driver.Query{}, func(id driver.ID, rec driver.Record) bool {
		got++
		if !want[id] || load(t, s, id).State != rec.State {
			t.Errorf("%s is %v", id, rec.State)
		}
		return true
	})
	if err != nil || got != len(want) {
		t.Errorf("%d records, error %v; want %d", got, err, len(want))
	}
}
