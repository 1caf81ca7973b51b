package sqlitetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/sqlitestore"
)

// However a transaction ends, renewals that waited for it are durable before anybody else can write, and are not lost
// though their callers have left.
func TestR47_ARenewalThatWaitsForOurOwnLockIsNotLost(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*testing.T, driver.Tx){
		"commit": func(t *testing.T, tx driver.Tx) {
			if err := tx.Commit(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"rollback": func(_ *testing.T, tx driver.Tx) { tx.Rollback() },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c, path := newClock(), newFile(t)
			s, _ := openStore(t, path, sqlitestore.Options{Clock: c.Now})
			other, _ := openStore(t, path, sqlitestore.Options{Clock: c.Now})
			id, asked := newID(), ask(semel.Rerun)
			asked.Lease = time.Minute
			rec := claim(t, s, id, asked)
			inside := newID()
			tx, _, owned, err := s.BeginClaim(t.Context(), inside, ask(semel.Hold))
			if err != nil || !owned {
				t.Fatal(owned, err)
			}
			ctx := endAt(t.Context(), 1)
			_, err = s.Extend(ctx, id, rec.Owner(), driver.Extension{Lease: time.Minute})
			wants(t, "Extend while a transaction has the lock", err, driver.ErrHeld)
			_, _, err = s.Settle(ctx, id, rec.Owner(), done("x"))
			if err == nil || errors.Is(err, driver.ErrHeld) {
				t.Errorf("Settle whose context has ended: %v", err)
			}
			// The lease runs out meanwhile. Another process waits to take the run over.
			c.Advance(2 * time.Minute)
			load(t, other, id)
			taking := watch(t, 2)
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, owned, err := other.Claim(taking, id, again(asked)); err != nil || owned {
					t.Errorf("a run that its process has renewed was taken over: owned is %t, error %v", owned, err)
				}
			})
			<-taking.waits
			end(t, tx)
			wg.Wait()
			got := load(t, s, id)
			if got.State != driver.Running || got.Token != rec.Token || got.LeaseEnd != got.Now.Add(time.Minute) {
				t.Errorf("the record is %s, with a lease to %s, want a minute from %s", got.State, got.LeaseEnd.Time(), got.Now.Time())
			}
			if got, want := load(t, other, inside).State, map[string]driver.State{"commit": driver.Running, "rollback": driver.Absent}[what]; got != want {
				t.Errorf("what the transaction claimed is %s, want %s", got, want)
			}
		})
	}
}

// The same when the commit fails, or when the database ends the transaction by itself.
func TestR47_ARenewalIsExecutedThoughTheTransactionFails(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"commit fails", "rolled back by the database"} {
		s := newShop(t, "leased", "_pragma=foreign_keys(1)")
		execSQL(t, s.db, "CREATE TABLE lines (item TEXT REFERENCES orders (item) DEFERRABLE INITIALLY DEFERRED)")
		execSQL(t, s.db, "INSERT INTO orders (item) VALUES ('coat')")
		id := newID()
		rec := claim(t, s.store, id, ask(semel.Rerun))
		err := s.store.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := s.store.Extend(endAt(ctx, 1), id, rec.Owner(), driver.Extension{Lease: 2 * time.Hour})
			wants(t, what, err, driver.ErrHeld)
			if what == "commit fails" {
				_, err = tx.ExecContext(ctx, "INSERT INTO lines VALUES ('scarf')")
				return err
			}
			if _, err := tx.ExecContext(ctx, "INSERT OR ROLLBACK INTO orders (item) VALUES ('coat')"); err == nil {
				t.Error("two coats were ordered")
			}
			if got := load(t, s.store, id); got.LeaseEnd <= rec.LeaseEnd {
				t.Errorf("%s: the renewal is not executed when the lock is let go", what)
			}
			return nil
		})
		if err == nil {
			t.Errorf("%s: no error", what)
		}
		if got := load(t, s.store, id); got.LeaseEnd <= rec.LeaseEnd {
			t.Errorf("%s: the renewal is lost", what)
		}
		if n := s.orders(); n != 1 {
			t.Errorf("%s: %d orders", what, n)
		}
		claim(t, s.store, newID(), ask(semel.Hold))
	}
}

// An observer is told the guard's events.
type observer func(context.Context, event.Event)

func (o observer) Observe(ctx context.Context, e event.Event) { o(ctx, e) }

// Handlers that hold every connection of the application, and the database's only write lock, for three leases lose
// none.
func TestR47_HandlersThatHoldEveryConnectionLoseNoLease(t *testing.T) {
	t.Parallel()
	// A machine that is busy enough may hold up a renewal for a short lease, but not for each of these.
	for _, lease := range []time.Duration{1200 * time.Millisecond, 5 * time.Second, 20 * time.Second} {
		wrong := holdEveryConnection(t, lease)
		if len(wrong) == 0 {
			return
		}
		t.Logf("with a lease of %v:\n%s", lease, strings.Join(wrong, "\n"))
	}
	t.Error("leases are lost")
}

// holdEveryConnection has handlers hold all connections for three leases, and returns what went wrong.
func holdEveryConnection(t *testing.T, lease time.Duration) (wrong []string) {
	t.Helper()
	var mu sync.Mutex
	complain := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		wrong = append(wrong, fmt.Sprintf(format, args...))
	}
	db := openDB(t, newFile(t), "")
	db.SetMaxOpenConns(8)
	s, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	g, err := semel.New(s, semel.SingleTenant, semel.Rerun, semel.Options{
		Policy: semel.Policy{Lease: lease},
		Observer: observer(func(_ context.Context, e event.Event) {
			switch e.Kind {
			case event.LeaseLost, event.Fenced, event.Takeover, event.StoreError:
				complain("event %s: %v", e.Kind, e.Err)
			}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	left := 8 - db.Stats().InUse
	held := make(chan struct{}, left)
	over := make(chan struct{})
	hold := func(ctx context.Context, arrive func()) {
		arrive()
		select {
		case <-over:
		case <-ctx.Done():
			complain("a handler was cancelled: %v", context.Cause(ctx))
		}
	}
	var wg, others sync.WaitGroup
	others.Add(left - 1)
	for i := range left {
		wg.Go(func() {
			key := semel.Key{Scope: "s", Operation: "pay", Value: fmt.Sprint("k", i)}
			runs := func() {}
			if i > 0 {
				runs = sync.OnceFunc(others.Done)
			}
			defer runs()
			arrive := sync.OnceFunc(func() { held <- struct{}{} })
			defer arrive() // also if it fails before
			_, err := semel.Do(t.Context(), g, key, semel.Bytes("x"), func(ctx context.Context) (int, error) {
				if i == 0 { // one has the write lock too, once the others have claimed
					others.Wait()
					return 1, s.Tx(context.Background(), func(context.Context, *sql.Tx) error {
						hold(ctx, arrive)
						return nil
					})
				}
				conn, err := db.Conn(ctx)
				if err != nil {
					return 0, err
				}
				defer conn.Close()
				runs()
				hold(ctx, arrive)
				return 1, nil
			})
			if err != nil {
				complain("%v", err)
			}
		})
	}
	for range left {
		select {
		case <-held:
		case <-time.After(time.Minute):
			t.Fatal("not all handlers run")
		}
	}
	timer := time.NewTimer(3 * lease)
	<-timer.C
	close(over)
	wg.Wait()
	if err := g.Drain(t.Context()); err != nil {
		complain("drain: %v", err)
	}
	err = s.List(t.Context(), driver.Query{}, func(id driver.ID, rec driver.Record) bool {
		if rec.State != driver.Done || rec.Attempt != 1 {
			complain("a record is %s after %d attempts", rec.State, rec.Attempt)
		}
		return true
	})
	if err != nil {
		complain("list: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	return wrong
}
