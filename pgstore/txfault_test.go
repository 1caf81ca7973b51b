package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/internal/servers"
)

// untilAnswered repeats a request until it is answered with success, as a client does that is told to try again.
func untilAnswered(t *testing.T, h http.Handler, key string) (body string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		w := serveKey(h, key)
		switch {
		case w.Code == http.StatusCreated:
			return w.Body.String()
		case w.Code != http.StatusConflict && w.Code < 500, time.Now().After(end):
			t.Errorf("%s: answered %d %s", key, w.Code, w.Body)
			return ""
		}
	}
}

// Whenever the server is killed, all of a transaction is there afterwards, or nothing.
func TestR31_TheServerIsKilledBetweenAnyTwoStatements(t *testing.T) {
	t.Parallel()
	for _, m := range append(proof.Some(1, modes[0], modes[2]), modes[3]) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			own := ownServer(t, servers.PostgresOptions{})
			s := newShop(t, m, own.URL(), Options{})
			g := s.guard(driver.Hold)
			for step := range 4 {
				var killed sync.Once
				at := func(now int) {
					if now == step {
						killed.Do(func() { restart(t, own) })
					}
				}
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					at(0)
					s.tx(r.Context(), func(ctx context.Context, tx pgx.Tx) error { //nolint:errcheck // the guard answers
						at(1)
						if err := s.order(ctx, tx, "hat"); err != nil {
							return err
						}
						at(2)
						if err := s.order(ctx, tx, "scarf"); err != nil {
							return err
						}
						w.WriteHeader(http.StatusCreated)
						at(3)
						return nil
					})
				}))
				before := s.ordersAfter()
				w := serveKey(h, "k"+strconv.Itoa(step))
				if n := s.ordersAfter() - before; n != 0 || w.Code < 500 {
					if step != 0 || m.oneCommit || n != 2 || w.Code != 201 { // before its beginning nothing is lost
						t.Errorf("killed at step %d: answered %d, with %d orders", step, w.Code, n)
					}
				}
				untilAnswered(t, h, "k"+strconv.Itoa(step))
				if n := s.ordersAfter() - before; n != 2 {
					t.Errorf("killed at step %d: %d orders after the repeat, want 2", step, n)
				}
			}
			s.idle()
		})
	}
}

func restart(t *testing.T, own *servers.Postgres) {
	t.Helper()
	if err := errors.Join(own.Kill(), own.Start()); err != nil {
		t.Error(err)
	}
}

// ordersAfter is orders on a server that was restarted, to which some connections are broken.
func (s *shop) ordersAfter() (n int64) {
	s.t.Helper()
	try(s.t, "count", func(ctx context.Context) error {
		return interpretError(s.store.pool.QueryRow(ctx, s.sql("SELECT count(*) FROM {schema}.orders")).Scan(&n))
	})
	return n
}

// The server is killed at any moment, again and again, while clients order, each until it is answered. In the end each
// has its one order, and was told the number that it has.
func TestR31_TheServerIsKilledUnderLoad(t *testing.T) {
	t.Parallel()
	for _, m := range []mode{modes[0], modes[3]} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			own := ownServer(t, servers.PostgresOptions{})
			s := newShop(t, m, own.URL(), Options{})
			exec(t, s.store, "ALTER TABLE {schema}.orders ADD UNIQUE (id, item)")
			policy := s.policy()
			policy.Lease = 2 * time.Second
			g := s.guardWith(driver.Rerun, semel.Options{Policy: policy, RequestLife: 2 * time.Second})
			h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s.tx(r.Context(), func(ctx context.Context, tx pgx.Tx) error { //nolint:errcheck // the guard answers
					var id int64
					err := tx.QueryRow(ctx, s.sql("INSERT INTO {schema}.orders (item) VALUES ($1) RETURNING id"), r.Header.Get("Idempotency-Key")).Scan(&id)
					if err == nil {
						w.WriteHeader(http.StatusCreated)
						fmt.Fprint(w, id)
					}
					return err
				})
			}))
			var clients sync.WaitGroup
			ended := make(chan struct{})
			answers := map[string]string{}
			var mu sync.Mutex
			for c := range 8 {
				clients.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-ended:
							return
						default:
						}
						key := fmt.Sprintf("k%d-%d", c, i)
						answer := untilAnswered(t, h, key)
						mu.Lock()
						answers[key] = answer
						mu.Unlock()
					}
				})
			}
			for range 3 {
				time.Sleep(100*time.Millisecond + rand.N(200*time.Millisecond))
				restart(t, own)
			}
			close(ended)
			clients.Wait()
			var rows map[string]string
			n := 0
			try(t, "the orders", func(ctx context.Context) error { // a connection may still be one to a server that was killed
				rows, n = map[string]string{}, 0
				r, err := s.store.pool.Query(ctx, s.sql("SELECT item, id::text FROM {schema}.orders"))
				if err != nil {
					return interpretError(err)
				}
				var item, id string
				_, err = pgx.ForEachRow(r, []any{&item, &id}, func() error { rows[item] = id; n++; return nil })
				return interpretError(err)
			})
			if n != len(answers) || n != len(rows) || n == 0 {
				t.Errorf("%d orders of %d clients for %d keys", n, len(rows), len(answers))
			}
			for key, answer := range answers {
				if rows[key] != answer {
					t.Errorf("%s was told %q, and has order %q", key, answer, rows[key])
				}
			}
		})
	}
}

// A handler that does nothing, or waits for a statement, can't keep a transaction for ever: the server ends it, nothing
// is kept, and the key is free.
func TestTimeoutsEndAStuckTransaction(t *testing.T) {
	t.Parallel()
	for _, m := range append(proof.Some(1, modes[0], modes[4]), proof.Some(1, modes[3], modes[6])...) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			url := server.URL()
			if m.pooled {
				url = bouncer.URL()
			}
			gone := func(s *shop) bool {
				return value[int64](t, s.store, "SELECT count(*) FROM pg_locks WHERE relation = '{schema}.orders'::regclass") == 0
			}
			for what, c := range map[string]struct {
				limits Options
				sticks func(ctx context.Context, s *shop, tx pgx.Tx) error
			}{
				"idle": {Options{IdleTimeout: 2 * time.Second}, func(_ context.Context, s *shop, _ pgx.Tx) error {
					for end := time.Now().Add(time.Minute); !gone(s); time.Sleep(10 * time.Millisecond) {
						if time.Now().After(end) {
							return errors.New("the transaction has not ended")
						}
					}
					return nil // it has noticed nothing
				}},
				"in a statement": {Options{StatementTimeout: time.Second}, func(ctx context.Context, _ *shop, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
					if !errors.Is(interpretError(err), ErrTimeout) {
						t.Errorf("a statement that takes long: %v, want ErrTimeout", err)
					}
					return err
				}},
			} {
				if what == "in a statement" && !m.oneCommit {
					continue
				}
				s := newShop(t, m, url, c.limits)
				sticks, stuck := true, false
				h := s.guard(driver.Hold).Wrap(s.ordering(func(ctx context.Context, tx pgx.Tx) error {
					if sticks {
						stuck = true
						return c.sticks(ctx, s, tx)
					}
					return nil
				}, func(err error) {
					if stuck && sticks && (err == nil || what == "idle" && !m.pooled && !errors.Is(err, driver.ErrRolledBack)) {
						t.Errorf("%s: Tx: %v", what, err)
					}
				}))
				// On a busy machine the limit may come before the handler does, or meet one that does not stick.
				for !stuck && !t.Failed() {
					if w := serveKey(h, "k"); w.Code != http.StatusServiceUnavailable || s.orders() != 0 {
						t.Errorf("%s: answered %d, with %d orders", what, w.Code, s.orders())
					}
				}
				sticks = false
				untilAnswered(t, h, "k")
				if s.orders() != 1 {
					t.Errorf("%s, the next try: %d orders", what, s.orders())
				}
				s.idle()
			}
		})
	}
}

// A run whose record was taken from it commits nothing, and its client gets the other run's answer.
func TestR48_ARunThatWasTakenOverCommitsNothing(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		if s.oneCommit {
			return // nobody can take it
		}
		late, other := s, s.another()
		o := semel.Options{Policy: s.policy()}
		o.Policy.Lease = 10 * time.Minute // it is ended by hand, and not to be renewed in between
		holds, over := make(chan struct{}), make(chan struct{})
		slow := late.guardWith(driver.Rerun, o).Wrap(late.ordering(func(ctx context.Context, tx pgx.Tx) error {
			close(holds)
			<-over
			return nil
		}, func(err error) {
			if !errors.Is(err, semel.ErrFenced) && (s.level == "" || !errors.Is(err, driver.ErrRolledBack)) {
				s.t.Errorf("Tx of the late owner: %v", err)
			}
		}))
		answer := make(chan string)
		go func() { answer <- serveKey(slow, "k").Body.String() }()
		<-holds
		exec(s.t, s.store, "UPDATE {schema}.records SET lease_end = started")
		quick := other.guardWith(driver.Rerun, o).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := other.tx(r.Context(), func(ctx context.Context, tx pgx.Tx) error {
				w.WriteHeader(http.StatusCreated)
				io.WriteString(w, `{"order":2}`)
				return other.order(ctx, tx, "coat")
			})
			if err != nil {
				s.t.Errorf("Tx of the new owner: %v", err)
			}
		}))
		w := serveKey(quick, "k")
		close(over)
		if got := <-answer; w.Code != 201 || got != `{"order":2}` || s.orders() != 1 {
			s.t.Errorf("the new owner: %d; the late one: %s; %d orders", w.Code, got, s.orders())
		}
		s.idle()
	})
}

// An observer is told the guard's events.
type observer func(event.Event)

func (o observer) Observe(_ context.Context, e event.Event) { o(e) }

// Handlers that hold every connection of the application for three leases lose none. A busy machine may hold up a short
// one's heartbeats for as long; where leases depend on the application's connections, a longer one ends as well.
func TestR47_HandlersThatHoldEveryConnectionLoseNoLease(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{8 * time.Second, 16 * time.Second} { // a transaction may be idle for a minute
		faults := holdEveryConnection(t, lease)
		if len(faults) == 0 {
			return
		}
		t.Logf("with a lease of %s: %q", lease, faults)
	}
	t.Error("something went wrong with both leases")
}

// holdEveryConnection returns what goes wrong.
func holdEveryConnection(t *testing.T, lease time.Duration) []string {
	t.Helper()
	var mu sync.Mutex
	var faults []string
	fault := func(format string, a ...any) {
		mu.Lock()
		defer mu.Unlock()
		faults = append(faults, fmt.Sprintf(format, a...))
	}
	s := newShop(t, modes[0], server.URL(), Options{})
	g := s.guardWith(driver.Rerun, semel.Options{
		Policy: semel.Policy{Lease: lease},
		Observer: observer(func(e event.Event) {
			switch e.Kind {
			case event.LeaseLost, event.Fenced, event.Takeover, event.StoreError:
				fault("event %s: %v", e.Kind, e.Err)
			}
		}),
	})
	all := int(s.app.Config().MaxConns)
	held := make(chan struct{}, 2*all) // or ended before that
	over := make(chan struct{})
	var handlers sync.WaitGroup
	for i := range all {
		h := g.Wrap(s.ordering(func(ctx context.Context, tx pgx.Tx) error {
			held <- struct{}{}
			select {
			case <-over:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}, nil))
		handlers.Go(func() {
			if w := serveKey(h, "k"+strconv.Itoa(i)); w.Code != 201 {
				fault("answered %d %s", w.Code, w.Body)
			}
			held <- struct{}{}
		})
	}
	for range all {
		<-held
	}
	time.Sleep(3 * lease)
	close(over)
	handlers.Wait()
	n := value[int64](t, s.store, "SELECT count(*) FROM {schema}.records WHERE state = 2 AND attempt = 1 AND operation <> 'identity check'")
	if orders := s.orders(); n != int64(all) || orders != n {
		fault("%d records are done after one attempt, with %d orders, want %d", n, orders, all)
	}
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(faults)
}
