package pgstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/internal/servers"
)

// try repeats a verb until the store acknowledges it, as the guard does. Only a server that is away may get in the way.
func try(t *testing.T, what string, verb func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		err := verb(ctx)
		switch {
		case err == nil:
			return
		case !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrStarting) && !errors.Is(err, ErrShutdown), ctx.Err() != nil:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// The server is killed while each verb is on its way, and comes back. What was acknowledged holds; what was not is sent
// again and succeeds as its own; nothing is done twice.
func TestTheServerIsKilledAtEachVerb(t *testing.T) {
	t.Parallel()
	own := ownServer(t, servers.PostgresOptions{})
	s := openOn(t, newPool(t, own.URL()), Options{})
	for round := range proof.Of(1, 2) {
		id, c := newID(), ask(driver.Hold)
		var rec driver.Record
		var owned, saved bool
		for _, step := range []struct {
			what string
			verb func(ctx context.Context) error
			want driver.State
		}{
			{"claim", func(ctx context.Context) (err error) { rec, owned, err = s.Claim(ctx, id, c); return err }, driver.Running},
			{"extend", func(ctx context.Context) (err error) {
				owned, err = s.Extend(ctx, id, rec.Owner(), driver.Extension{Lease: time.Hour})
				return err
			}, driver.Running},
			{"save step", func(ctx context.Context) (err error) {
				owned, err = s.SaveStep(ctx, id, rec.Owner(), "charge", []byte("paid"))
				return err
			}, driver.Running},
			{"seize", func(ctx context.Context) (err error) { rec, err = s.Seize(ctx, id, driver.Token{1}); return err }, driver.Unknown},
			{"settle", func(ctx context.Context) (err error) {
				_, owned, err = s.Settle(ctx, id, rec.Owner(), done("kept"))
				return err
			}, driver.Done},
			{"sweep", func(ctx context.Context) (err error) { _, err = s.Sweep(ctx, 10); return err }, driver.Done},
			{"forget", func(ctx context.Context) (err error) { _, err = s.Forget(ctx, id, rec.Owner()); return err }, driver.Absent},
		} {
			var kill sync.WaitGroup
			kill.Go(func() {
				time.Sleep(rand.N(time.Duration(round+1) * time.Millisecond))
				if err := own.Kill(); err != nil {
					t.Error(err)
				}
				if err := own.Start(); err != nil {
					t.Error(err)
				}
			})
			try(t, step.what, step.verb)
			kill.Wait()
			reachable(t, s)
			now := load(t, s, id)
			switch {
			case now.State != step.want:
				t.Fatalf("after %s the record is %v, want %v", step.what, now.State, step.want)
			case now.State != driver.Absent && (!owned || now.Attempt != 1 || now.Fence != rec.Fence):
				t.Fatalf("after %s: owned is %t, attempt %d, fence %d, want true, 1 and %d", step.what, owned, now.Attempt, now.Fence, rec.Fence)
			case step.want == driver.Done && string(now.Response.Body) != "kept":
				t.Fatalf("after %s the answer is %q", step.what, now.Response.Body)
			}
			if got := steps(t, s, id); now.Steps != (len(got) > 0) || now.Steps && got["charge"] != "paid" {
				t.Fatalf("after %s the record says that it has steps: %t; they are %v", step.what, now.Steps, got)
			}
			saved = saved || step.what == "save step"
			if now.Steps != (saved && now.State != driver.Absent) || stored(t, s, id) != len(steps(t, s, id)) {
				t.Fatalf("after %s the record says that it has steps: %t; %d are stored", step.what, now.Steps, stored(t, s, id))
			}
		}
	}
}

// A settle waits for a transaction that is in doubt until its context ends. The pool is none the worse for it, and the
// server has nobody left who waits.
func TestAVerbThatIsCancelledLeavesThePoolWhole(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{MaxConns: 1})
	id := newID()
	rec := claim(t, s, id, ask(driver.Hold))
	tx := begin(t, s, pgx.TxOptions{})
	txValue[int](t, s, tx, "SELECT 1 FROM {schema}.records WHERE id = $1 FOR UPDATE", id[:])
	const rounds = 5
	backend, kept, tries := value[int](t, s, "SELECT pg_backend_pid()"), 0, 0
	// A busy machine may lose some: the server has half a second to obey.
	for end := time.Now().Add(time.Minute); tries < rounds || kept == 0 && time.Now().Before(end); tries++ {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		_, owned, err := s.Settle(ctx, id, rec.Owner(), done("late"))
		cancel()
		if owned || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("settle: %t, %v", owned, err)
		}
		isKind(t, "settle", err, nil)
		got := value[int](t, s, "SELECT pg_backend_pid()")
		if got == backend {
			kept++
		}
		backend = got
	}
	if kept == 0 {
		t.Errorf("the connection was given up, %d times of %d", tries, tries)
	}
	waiting := func() int {
		return txValue[int](t, s, tx, "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))")
	}
	for end := time.Now().Add(time.Minute); waiting() != 0; time.Sleep(time.Millisecond) { // one that was given up obeys later
		if time.Now().After(end) {
			t.Errorf("%d backends still wait", waiting())
			break
		}
	}
	if err := tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	settle(t, s, id, rec.Owner(), done("in time"))
}

// A server that does not answer holds nobody up for long after the context's end.
func TestAServerThatIsSilentHoldsNobodyUp(t *testing.T) {
	own := ownServer(t, servers.PostgresOptions{})
	s := openOn(t, newPool(t, own.URL()), Options{})
	id := newID()
	rec := claim(t, s, id, ask(driver.Hold))
	if err := own.Pause(); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 12 { // more than there are connections
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			if _, _, err := s.Settle(ctx, id, rec.Owner(), done("ok")); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("settle: %v", err)
			}
		})
	}
	all.Wait()
	if err := own.Resume(); err != nil {
		t.Fatal(err)
	}
	reachable(t, s)
	settle(t, s, id, rec.Owner(), done("ok"))
}

// Two stores in two processes are two pools: a hundred claims of one operation over both, one run.
func TestCase01_TwoPoolsAreOneStore(t *testing.T) {
	t.Parallel()
	a := openStore(t, Options{})
	stores := []*Store{a, openOn(t, newPool(t, bouncer.URL()), Options{Schema: a.schema})}
	for range 5 {
		id, c := newID(), ask(driver.Hold)
		var mu sync.Mutex
		var owners []driver.Record
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				c := c
				c.Token = driver.NewToken()
				rec, owned, err := stores[i%2].Claim(context.Background(), id, c)
				if err != nil {
					t.Errorf("claim: %v", err)
				}
				if owned {
					mu.Lock()
					defer mu.Unlock()
					owners = append(owners, rec)
				}
			})
		}
		all.Wait()
		if len(owners) != 1 {
			t.Fatalf("%d claims own the operation", len(owners))
		}
		settle(t, stores[1], id, owners[0].Owner(), done("once"))
	}
}
