package pgstore

import (
	"context"
	"errors"
	"net"
	"net/http"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/lazyctx"
)

// Of 100 identical requests at once to two instances one has an effect; the others get its answer. A busy machine may
// answer 503, as a claim has two seconds: then the client asks again.
func TestR26_ManyAtOnceToTwoInstancesHaveOneEffect(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		shops := []*shop{s, s.another()}
		var handlers []http.Handler
		for _, s := range shops {
			policy := s.policy()
			policy.Wait = time.Minute
			handlers = append(handlers, s.guardWith(driver.Rerun, semel.Options{Policy: policy}).Wrap(s.ordering(nil, nil)))
		}
		var requests sync.WaitGroup
		start := make(chan struct{})
		ran := make(chan bool, 100)
		for i := range 100 {
			requests.Go(func() {
				<-start
				w := serveKey(handlers[i%2], "k")
				for until := time.Now().Add(2 * time.Minute); w.Code == http.StatusServiceUnavailable && time.Now().Before(until); {
					w = serveKey(handlers[i%2], "k")
				}
				if w.Code != 201 || w.Body.String() != `{"order":1}` {
					s.t.Errorf("answered %d %s", w.Code, w.Body)
				}
				ran <- !replayed(w)
			})
		}
		close(start)
		requests.Wait()
		runs := 0
		for range 100 {
			if <-ran {
				runs++
			}
		}
		if runs != 1 || s.orders() != 1 {
			s.t.Errorf("%d runs, %d orders", runs, s.orders())
		}
		for _, s := range shops {
			s.idle()
		}
	})
}

// eachOneCommit runs a test in one-commit mode, with and without a pooler.
func eachOneCommit(t *testing.T, test func(*shop)) {
	t.Helper()
	eachMode(t, func(s *shop) {
		if s.oneCommit {
			test(s)
		}
	})
}

// While one transaction has the operation, it reads as running to another, which waits for nothing and holds nothing.
// What the first one was is told only once it has committed.
func TestOneCommitTellsThatTheOperationRuns(t *testing.T) {
	t.Parallel()
	eachOneCommit(t, func(s *shop) {
		id, c := newID(), ask(driver.Hold)
		tx, rec, owned, err := s.store.BeginClaim(s.t.Context(), id, c)
		if err != nil || !owned || rec.State != driver.Running || rec.Attempt != 1 || rec.Token != c.Token {
			s.t.Fatalf("BeginClaim: %+v, %t, %v", rec, owned, err)
		}
		second := anew(c)
		second.Fingerprint.Raw = driver.NewToken() // it is not known what the first one asked for
		second.Fingerprint.Canonical = second.Fingerprint.Raw
		for _, c := range []driver.Claim{anew(c), second, c} {
			open, rec, owned, err := s.store.BeginClaim(s.t.Context(), id, c)
			if err != nil || owned || open != nil || rec.Reads(driver.Rerun) != driver.ReadsRunning || !rec.Fingerprint.Equal(c.Fingerprint) ||
				rec.Token != (driver.Token{}) || rec.Now == 0 || rec.Started != rec.Now || rec.LeaseEnd != rec.Now.Add(c.Lease) {
				s.t.Errorf("while another has it: %+v, %t, %v", rec, owned, err)
			}
		}
		if n := s.app.Stat().AcquiredConns(); n != 1 {
			s.t.Errorf("%d connections are in use, want that of the first", n)
		}
		if rec := load(s.t, s.store, id); rec.State != driver.Absent {
			s.t.Errorf("before the commit a reader sees %v", rec.State)
		}
		settled, owned, err := tx.Settle(s.t.Context(), id, rec.Owner(), done("x"))
		if err != nil || !owned || settled.State != driver.Done || settled.Settled == 0 {
			s.t.Fatalf("Settle: %+v, %t, %v", settled, owned, err)
		}
		tx.Rollback() // does nothing
		_, rec, owned, err = s.store.BeginClaim(s.t.Context(), id, second)
		if err != nil || owned || rec.State != driver.Done || !rec.Fingerprint.Equal(c.Fingerprint) || string(rec.Response.Body) != "x" {
			s.t.Errorf("after the commit: %+v, %t, %v", rec, owned, err)
		}
		s.idle()
	})
}

// What a transaction leaves is what Claim and Settle of the same record leave, in each state in which it may be
// claimed.
func TestOneCommitLeavesTheSameRecord(t *testing.T) {
	t.Parallel()
	for _, apart := range []bool{false, true} {
		s := newShop(t, modes[3], server.URL(), Options{PartitionAnswers: apart})
		var clock mover
		clock.pool = s.app
		for what, prepare := range map[string]func(ids []driver.ID, c driver.Claim){
			"absent": func([]driver.ID, driver.Claim) {},
			"free": func(ids []driver.ID, c driver.Claim) {
				for _, id := range ids {
					rec := claim(t, s.store, id, anew(c))
					settle(t, s.store, id, rec.Owner(), driver.Outcome{State: driver.Free, Error: "no"})
				}
			},
			"free of another request": func(ids []driver.ID, c driver.Claim) {
				for _, id := range ids {
					other := ask(driver.Hold)
					other.Fingerprint.Canonical[0] = 1
					other.Sealed = []byte("another")
					rec := claim(t, s.store, id, other)
					settle(t, s.store, id, rec.Owner(), driver.Outcome{State: driver.Free, Error: "no"})
				}
			},
			"lapsed": func(ids []driver.ID, c driver.Claim) {
				for _, id := range ids {
					claim(t, s.store, id, anew(c))
				}
				clock.advance(s.store.schema, 2*c.Lease)
			},
			"expired": func(ids []driver.ID, c driver.Claim) {
				for _, id := range ids {
					rec := claim(t, s.store, id, anew(c))
					settle(t, s.store, id, rec.Owner(), done("old"))
				}
				clock.advance(s.store.schema, 2*c.Retention)
			},
		} {
			c := ask(driver.Rerun)
			c.Sealed = []byte("sealed")
			one, two := newID(), newID()
			prepare([]driver.ID{one, two}, c)
			tx, rec, owned, err := s.store.BeginClaim(t.Context(), one, c)
			if err != nil || !owned {
				t.Fatalf("%s: BeginClaim: %t, %v", what, owned, err)
			}
			wantRec := claim(t, s.store, two, c)
			sameButTime(t, what+", claimed", rec, wantRec)
			if rec, owned, err = tx.Settle(t.Context(), one, rec.Owner(), done("new")); err != nil || !owned {
				t.Fatalf("%s: Settle: %t, %v", what, owned, err)
			}
			if got := load(t, s.store, one); got.Fence != rec.Fence || got.Settled != rec.Settled {
				t.Errorf("%s: settled with fence %d at %d, but loaded with %d and %d", what, rec.Fence, rec.Settled, got.Fence, got.Settled)
			}
			wantRec = settle(t, s.store, two, wantRec.Owner(), done("new"))
			sameButTime(t, what+", settled", rec, wantRec)
			sameButTime(t, what+", loaded", load(t, s.store, one), load(t, s.store, two))
			if a, b := s.expires(one), s.expires(two); (a == nil) != (b == nil) || a != nil && *a-*b > time.Hour.Microseconds()/2 {
				t.Errorf("%s: it expires at %v, want about %v", what, a, b)
			}
		}
		s.idle()
	}
}

func (s *shop) expires(id driver.ID) *int64 {
	s.t.Helper()
	return value[*int64](s.t, s.store, "SELECT expires FROM {schema}.records WHERE id = $1", id[:])
}

// sameButTime compares records of two operations that went the same way at almost the same time.
func sameButTime(t *testing.T, what string, got, want driver.Record) {
	t.Helper()
	for _, at := range [][2]*driver.Time{{&got.Now, &want.Now}, {&got.Created, &want.Created}, {&got.Started, &want.Started}, {&got.LeaseEnd, &want.LeaseEnd}, {&got.Settled, &want.Settled}} {
		if d := at[0].Sub(*at[1]); (*at[0] == 0) != (*at[1] == 0) || d.Abs() > 30*time.Minute {
			t.Errorf("%s: time %v, want about %v", what, at[0].Time(), at[1].Time())
		}
		*at[0], *at[1] = 0, 0
	}
	if d := int64(got.Fence - want.Fence); max(d, -d) > time.Minute.Milliseconds() {
		t.Errorf("%s: fence %d, want about %d", what, got.Fence, want.Fence)
	}
	got.Fence, want.Fence = 0, 0
	sameRecord(t, what, got, want)
}

// The record may be taken in leased mode while the transaction is under way: by its key in another mode, or through the
// store itself. Whoever writes first wins, and the other leaves nothing.
func TestOneCommitLosesToWhoeverWroteFirst(t *testing.T) {
	t.Parallel()
	eachOneCommit(t, func(s *shop) {
		for what, c := range map[string]struct {
			before, meanwhile func(id driver.ID, c driver.Claim)
		}{
			"claimed meanwhile": {nil, func(id driver.ID, c driver.Claim) { claim(s.t, s.store, id, anew(c)) }},
			"done meanwhile": {nil, func(id driver.ID, c driver.Claim) {
				rec := claim(s.t, s.store, id, anew(c))
				settle(s.t, s.store, id, rec.Owner(), done("other"))
			}},
			"free, claimed meanwhile": {func(id driver.ID, c driver.Claim) {
				rec := claim(s.t, s.store, id, anew(c))
				settle(s.t, s.store, id, rec.Owner(), driver.Outcome{State: driver.Free})
			}, func(id driver.ID, c driver.Claim) { claim(s.t, s.store, id, anew(c)) }},
			"lapsed, renewed meanwhile": {func(id driver.ID, c driver.Claim) {
				claim(s.t, s.store, id, anew(c))
				exec(s.t, s.store, "UPDATE {schema}.records SET lease_end = started")
			}, func(id driver.ID, c driver.Claim) {
				exec(s.t, s.store, "UPDATE {schema}.records SET lease_end = lease_end + 3600000000")
			}},
		} {
			id, ask := newID(), ask(driver.Rerun)
			if c.before != nil {
				c.before(id, ask)
			}
			tx, rec, owned, err := s.store.BeginClaim(s.t.Context(), id, ask)
			if err != nil || !owned {
				s.t.Fatalf("%s: BeginClaim: %t, %v", what, owned, err)
			}
			err = lend(s.t.Context(), tx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(ctx context.Context, tx pgx.Tx) error {
				return s.order(ctx, tx, "hat")
			})
			if err != nil {
				s.t.Error(err)
			}
			c.meanwhile(id, ask)
			before := load(s.t, s.store, id)
			got, owned, err := tx.Settle(s.t.Context(), id, rec.Owner(), done("x"))
			if err != nil || owned || got.Token != before.Token {
				s.t.Errorf("%s: Settle: %+v, %t, %v", what, got, owned, err)
			}
			before.Now, got.Now = 0, 0
			sameRecord(s.t, what, got, before)
			if n := s.orders(); n != 0 {
				s.t.Errorf("%s: %d orders", what, n)
			}
		}
		s.idle()
	})
}

// What is undone is begun anew, with the same claim, unless somebody else has the record now.
func TestOneCommitBeginsAnew(t *testing.T) {
	t.Parallel()
	eachOneCommit(t, func(s *shop) {
		for _, meanwhile := range []bool{false, true} {
			for _, fails := range []bool{false, true} {
				id, c := newID(), ask(driver.Rerun)
				tx, rec, owned, err := s.store.BeginClaim(s.t.Context(), id, c)
				if err != nil || !owned {
					s.t.Fatal(owned, err)
				}
				err = lend(s.t.Context(), tx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(ctx context.Context, tx pgx.Tx) error {
					if fails {
						tx.Exec(ctx, "SELECT 1/0") //nolint:errcheck // it fails
						return nil
					}
					return s.order(ctx, tx, "hat")
				})
				if err != nil {
					s.t.Error(err)
				}
				if err := tx.Mark(s.t.Context()); err == nil {
					s.t.Error("a mark was set behind what was done")
				}
				if meanwhile {
					claim(s.t, s.store, id, anew(c))
				}
				if err := tx.Undo(s.t.Context()); meanwhile != (err != nil) {
					s.t.Errorf("Undo, claimed meanwhile is %t: %v", meanwhile, err)
				}
				if meanwhile {
					tx.Rollback()
					continue
				}
				if err := tx.Mark(s.t.Context()); err != nil {
					s.t.Error(err)
				}
				if _, rec, owned, _ := s.store.BeginClaim(s.t.Context(), id, anew(c)); owned || rec.State != driver.Running {
					s.t.Errorf("the operation is %v to others", rec.State)
				}
				if _, owned, err := tx.Settle(s.t.Context(), id, rec.Owner(), done("x")); err != nil || !owned {
					s.t.Errorf("Settle: %t, %v", owned, err)
				}
			}
		}
		if n := s.orders(); n != 0 {
			s.t.Errorf("%d orders", n)
		}
		s.idle()
	})
}

// A record that was swept meanwhile is no reason to refuse the settle of what has taken its place.
func TestOneCommitOverASweptRecord(t *testing.T) {
	t.Parallel()
	s := newShop(t, modes[3], server.URL(), Options{})
	id, c := newID(), ask(driver.Rerun)
	rec := claim(t, s.store, id, anew(c))
	settle(t, s.store, id, rec.Owner(), driver.Outcome{State: driver.Free})
	tx, rec, owned, err := s.store.BeginClaim(t.Context(), id, c)
	if err != nil || !owned {
		t.Fatal(owned, err)
	}
	exec(t, s.store, "DELETE FROM {schema}.records")
	if _, owned, err := tx.Settle(t.Context(), id, rec.Owner(), done("x")); err != nil || !owned {
		t.Errorf("Settle: %t, %v", owned, err)
	}
	if got := load(t, s.store, id); got.State != driver.Done || got.Fence < rec.Fence {
		t.Errorf("the record is %+v", got)
	}
}

// The fence is above those of records that were deleted before the transaction or while it was under way.
func TestOneCommitsFenceIsAboveThoseOfDeletedRecords(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Notify: true}} { // each way to write the record
		s := newShop(t, modes[3], server.URL(), o)
		ahead := time.Now().Add(time.Hour).UnixMilli()
		exec(t, s.store, "SELECT setval('{schema}.fences', $1)", ahead)
		id := newID()
		tx, rec, owned, err := s.store.BeginClaim(t.Context(), id, ask(driver.Hold))
		if err != nil || !owned || rec.Fence <= uint64(ahead) {
			t.Fatalf("claimed with fence %d, after one of %d was deleted; owned is %t, error %v", rec.Fence, ahead, owned, err)
		}
		ahead += 1000
		exec(t, s.store, "SELECT setval('{schema}.fences', $1)", ahead)
		rec, owned, err = tx.Settle(t.Context(), id, rec.Owner(), done("x"))
		if err != nil || !owned || rec.Fence <= uint64(ahead) {
			t.Errorf("settled with fence %d, while one of %d was deleted; owned is %t, error %v", rec.Fence, ahead, owned, err)
		}
		if got := load(t, s.store, id); got.Fence != rec.Fence {
			t.Errorf("fence %d is stored, %d was told", got.Fence, rec.Fence)
		}
	}
}

// What a connection's defaults are changes nothing about a transaction in one-commit mode.
func TestOneCommitIsOfItsKindWhateverTheDefaultsAre(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"default_transaction_isolation": "serializable", "default_transaction_read_only": "on", "default_transaction_deferrable": "on",
	} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
			s := &shop{mode: modes[3], t: t, app: newPool(t, server.URL(), func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams[name] = value
				c.ConnConfig.DefaultQueryExecMode = mode
				c.MaxConns = 1
			})}
			s.store = openOn(t, s.app, Options{})
			exec(t, s.store, "CREATE TABLE {schema}.orders (item text NOT NULL)")
			for range 2 { // the second one knows what the first has found
				id := newID()
				tx, rec, owned, err := s.store.BeginClaim(t.Context(), id, ask(driver.Hold))
				if err != nil || !owned {
					t.Fatalf("%s: BeginClaim: %t, %v", name, owned, err)
				}
				var kind string
				err = lend(t.Context(), tx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(ctx context.Context, tx pgx.Tx) error {
					if err := s.order(ctx, tx, "hat"); err != nil {
						return err
					}
					return tx.QueryRow(ctx, "SELECT current_setting('transaction_isolation') || ', ' || current_setting('idle_in_transaction_session_timeout')").Scan(&kind)
				})
				if err != nil || kind != "read committed, 1min" {
					t.Errorf("%s: the transaction is %q, error %v", name, kind, err)
				}
				if _, owned, err := tx.Settle(t.Context(), id, rec.Owner(), done("x")); err != nil || !owned {
					t.Errorf("%s: Settle: %t, %v", name, owned, err)
				}
				if _, rec, owned, err := s.store.BeginClaim(t.Context(), id, ask(driver.Hold)); err != nil || owned || rec.State != driver.Done {
					t.Errorf("%s: again: %v, %t, %v", name, rec.State, owned, err)
				}
			}
			s.idle()
		}
	}
}

// What the handler or its role has set does not make the commit of an answer one that a crash can lose. A constraint
// that is checked at the commit sees what the commit will do.
func TestOneCommitIsDurable(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Notify: true}} {
		s := newShop(t, modes[3], server.URL(), o)
		exec(t, s.store, "CREATE TABLE {schema}.seen (how text)")
		exec(t, s.store, `CREATE FUNCTION {schema}.see() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN INSERT INTO {schema}.seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$`)
		exec(t, s.store, `CREATE CONSTRAINT TRIGGER see AFTER INSERT ON {schema}.orders DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION {schema}.see()`)
		settleWith(s, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = off"); err != nil {
				return err
			}
			return s.order(ctx, tx, "hat")
		}, func(_ driver.Record, owned bool, err error) {
			if got := value[string](t, s.store, "SELECT max(how) FROM {schema}.seen"); err != nil || !owned || got != "on" {
				t.Errorf("synchronous_commit was %q; owned is %t, error %v", got, owned, err)
			}
		})
	}
}

// A constraint of the business that fails at the commit is an error, and not somebody else's record.
func TestOneCommitTellsAConstraintFromARace(t *testing.T) {
	t.Parallel()
	s := newShop(t, modes[3], server.URL(), Options{})
	exec(t, s.store, "ALTER TABLE {schema}.orders ADD UNIQUE (item) DEFERRABLE INITIALLY DEFERRED")
	settleWith(s, func(ctx context.Context, tx pgx.Tx) error {
		return errors.Join(s.order(ctx, tx, "hat"), s.order(ctx, tx, "hat"))
	}, func(_ driver.Record, owned bool, err error) {
		if owned || !errors.Is(err, driver.ErrRolledBack) {
			t.Errorf("Settle: %t, %v", owned, err)
		}
	})
	if n := s.orders(); n != 0 {
		t.Errorf("%d orders", n)
	}
}

// A settle that waits for somebody else's transaction ends with its context, whatever kind that is of, and leaves open
// whether it has happened.
func TestOneCommitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := newShop(t, modes[3], server.URL(), Options{})
	for name, until := range map[string]func() (context.Context, func()){
		"a deadline": func() (context.Context, func()) {
			ctx := lazyctx.For(context.Background(), 50*time.Millisecond)
			return ctx, func() { ctx.End(nil) }
		},
		"a context": func() (context.Context, func()) {
			return context.WithTimeout(t.Context(), 50*time.Millisecond)
		},
	} {
		id, c := newID(), ask(driver.Hold)
		tx, rec, owned, err := s.store.BeginClaim(t.Context(), id, c)
		if err != nil || !owned {
			t.Fatal(owned, err)
		}
		other := begin(t, s.store, pgx.TxOptions{})
		inTx(t, other, s.store.claimCall(id, anew(c)))
		ctx, end := until()
		_, owned, err = tx.Settle(ctx, id, rec.Owner(), done("x"))
		end()
		if owned || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrRolledBack) {
			t.Errorf("%s: Settle: %t, %v", name, owned, err)
		}
		if err := other.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.idle()
	}
}

// A deadliner is a connection that notes its deadlines.
type deadliner struct {
	net.Conn
	all chan time.Time
}

func (d deadliner) SetDeadline(at time.Time) error {
	d.all <- at
	return d.Conn.SetDeadline(at)
}

// The deadline of one batch is not that of the next.
func TestOneCommitLeavesNoDeadline(t *testing.T) {
	t.Parallel()
	all := make(chan time.Time, 1000)
	s := openOn(t, newPool(t, server.URL(), func(c *pgxpool.Config) {
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return deadliner{conn, all}, err
		}
	}), Options{})
	for len(all) > 0 {
		<-all
	}
	ctx := lazyctx.For(context.Background(), time.Hour)
	defer ctx.End(nil)
	id := newID()
	tx, rec, owned, err := s.BeginClaim(ctx, id, ask(driver.Hold))
	if err != nil || !owned {
		t.Fatal(owned, err)
	}
	if _, owned, err := tx.Settle(ctx, id, rec.Owner(), done("x")); err != nil || !owned {
		t.Fatal(owned, err)
	}
	if len(all) != 4 {
		t.Fatalf("the deadline was set %d times, want 4", len(all))
	}
	for range 2 {
		if set, reset := <-all, <-all; !set.Equal(ctx.At) || !reset.IsZero() {
			t.Errorf("deadlines are %v and %v, want %v and none", set, reset, ctx.At)
		}
	}
}

// settleWith claims an operation, executes fn in its transaction, settles it, and hands over what became of that.
func settleWith(s *shop, fn func(context.Context, pgx.Tx) error, check func(driver.Record, bool, error)) {
	s.t.Helper()
	id := newID()
	tx, rec, owned, err := s.store.BeginClaim(s.t.Context(), id, ask(driver.Hold))
	if err != nil || !owned {
		s.t.Fatal(owned, err)
	}
	if err := lend(s.t.Context(), tx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, fn); err != nil {
		s.t.Fatal(err)
	}
	check(tx.Settle(s.t.Context(), id, rec.Owner(), done("x")))
	s.idle()
}

// anew returns the same claim by somebody else.
func anew(c driver.Claim) driver.Claim {
	c.Token = driver.NewToken()
	return c
}

func sameRecord(t *testing.T, what string, got, want driver.Record) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: the record is\n%+v, want\n%+v", what, got, want)
	}
}

// What is settled in a transaction is told to those who listen, once it has committed.
func TestWhatIsSettledInATransactionIsTold(t *testing.T) {
	t.Parallel()
	for _, m := range []mode{modes[0], modes[3]} {
		s := newShop(t, m, server.URL(), Options{Notify: true})
		ctx, cancel := context.WithCancel(t.Context())
		told := make(chan driver.ID, 2)
		ended := make(chan error, 1)
		go func() {
			ended <- s.store.Wake(ctx, func(id driver.ID) {
				if !id.Reserved() {
					told <- id
				}
			})
		}()
		for value[int64](t, s.store, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%{schema}%' AND state = 'idle'") == 0 {
			time.Sleep(time.Millisecond)
		}
		var id string
		h := s.guard(driver.Hold).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id = semel.FromContext(r.Context()).ID()
			s.tx(r.Context(), func(ctx context.Context, tx pgx.Tx) error { //nolint:errcheck // the guard answers
				if len(told) > 0 {
					t.Error("told before the commit")
				}
				w.WriteHeader(http.StatusCreated)
				return nil
			})
		}))
		if w := serveKey(h, "k"); w.Code != 201 {
			t.Fatalf("%s: answered %d", m.name, w.Code)
		}
		if got := <-told; got.String() != id {
			t.Errorf("%s: told %s, want %s", m.name, got, id)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: Wake: %v", m.name, err)
		}
	}
}
