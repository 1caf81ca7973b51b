package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/pgstore"
)

// A till is a world in the store's database: each effect is a row that commits with the answer about it. Nothing but
// the store keeps a second row out.
type till struct {
	theatre
	direct *pgxpool.Pool
	level  pgx.TxIsoLevel
	// within is what an operation does in its transaction, besides.
	within func(ctx context.Context, tx pgx.Tx, key string) error
	failed func(error) // is told of transactions that failed
}

func newTill(t *testing.T, p *servers.Postgres, level pgx.TxIsoLevel) *till {
	t.Helper()
	w := &till{direct: pool(t, p.URL()), level: level}
	_, err := w.direct.Exec(t.Context(), "create table if not exists effects (id bigserial, key text not null)")
	must(t, err)
	return w
}

func (w *till) effects(key string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	rows, err := w.direct.Query(ctx, "select id from effects where key = $1", key)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var id int64
		err := row.Scan(&id)
		return told(id, key), err
	})
}

func told(id int64, key string) string { return fmt.Sprintf("row %d of %s", id, key) }

func (w *till) handler(i *instance) http.Handler {
	s := i.store.(*pgstore.Store)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		key := keyOf(r)
		if !w.before(r.Context(), key) {
			stopped(rw)
			return
		}
		err := s.TxWith(r.Context(), pgx.TxOptions{IsoLevel: w.level}, func(ctx context.Context, tx pgx.Tx) error {
			var id int64
			if err := tx.QueryRow(ctx, "insert into effects (key) values ($1) returning id", key).Scan(&id); err != nil {
				return err
			}
			if w.within != nil {
				if err := w.within(ctx, tx, key); err != nil {
					return err
				}
			}
			rw.WriteHeader(http.StatusCreated)
			fmt.Fprint(rw, told(id, key))
			w.after(key)
			return nil
		})
		if err != nil {
			if w.failed != nil {
				w.failed(err)
			}
			http.Error(rw, err.Error(), http.StatusServiceUnavailable) // of no effect if it was answered already
		}
	})
}

// An effect in the store's database is one also where another instance takes over, and where the first one had it
// already.
func TestR31_R48_Case02_Case09_TransactionsSurvive(t *testing.T) {
	t.Parallel()
	lostReplies := only("connections reset between execution and reply")
	faults := only("server killed", "server killed between execution and reply", "connections reset before execution",
		"connections reset between execution and reply", "replies lost for longer than a lease")
	p := postgres(t, nil)
	for _, tc := range []struct {
		name      string
		level     pgx.TxIsoLevel
		oneCommit bool
		strikes   []strike
	}{
		{"leased", pgx.ReadCommitted, false, faults},
		{"one commit", pgx.ReadCommitted, true, faults},
		{"repeatable read", pgx.RepeatableRead, false, lostReplies},
		{"serializable", pgx.Serializable, false, lostReplies},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFleet(t, seat{server: p, addr: p.Addr(), open: openPostgres, oneCommit: tc.oneCommit}, newTill(t, p, tc.level))
			survive(t, f, tc.strikes)
			if !tc.oneCommit {
				t.Run("partition while another takes over", f.takeover)
				t.Run("cut off before the commit while another takes over", func(t *testing.T) {
					f.overtaken(t, func(cutOff func()) script { return script{after: cutOff} })
				})
			}
		})
	}
}

// only returns those strikes.
func only(names ...string) []strike {
	var some []strike
	for _, name := range names {
		for _, s := range strikes {
			if s.name == name {
				some = append(some, s)
			}
		}
	}
	if len(some) != len(names) {
		panic("faults: no such strike")
	}
	return some
}

// A meeting lets operations, in their first transactions, wait for each other, so that they are sure to conflict.
type meeting struct {
	mu    sync.Mutex
	met   map[string]bool
	first sync.WaitGroup
}

func (m *meeting) wait(key string) {
	m.mu.Lock()
	again := m.met[key]
	m.met[key] = true
	m.mu.Unlock()
	if !again {
		m.first.Done()
		m.first.Wait()
	}
}

// What a transaction loses to another one is as if it had never been: its client asks again, and has one effect.
func TestR31_Case09_ConflictsSurvive(t *testing.T) {
	t.Parallel()
	p := postgres(t, map[string]string{"deadlock_timeout": "50ms"})
	w := newTill(t, p, "")
	_, err := w.direct.Exec(t.Context(), "create table accounts (id int primary key, n int); insert into accounts values (1, 0), (2, 0)")
	must(t, err)
	f := newFleet(t, seat{server: p, addr: p.Addr(), open: openPostgres}, w)
	const update = "update accounts set n = n + 1 where id = $1"
	for _, tc := range []struct {
		name  string
		level pgx.TxIsoLevel
		// What two operations do before and after each has done the first, with accounts 1 and 2, or 2 and 1.
		before, after string
	}{
		{"deadlock", pgx.ReadCommitted, update, update},
		{"concurrent update", pgx.RepeatableRead, "select from accounts where $1::int > 0", "update accounts set n = n + 1 where $1::int > 0"},
		{"write skew", pgx.Serializable, "select from accounts where id = $1", update},
	} {
		t.Run(tc.name, func(t *testing.T) {
			keys := []string{f.key("left"), f.key("right")}
			both := meeting{met: map[string]bool{}}
			both.first.Add(2)
			var lost atomic.Int64
			w.level = tc.level
			w.within = func(ctx context.Context, tx pgx.Tx, key string) error {
				one, other := 1, 2
				if key == keys[1] {
					one, other = 2, 1
				}
				if _, err := tx.Exec(ctx, tc.before, one); err != nil {
					return err
				}
				both.wait(key)
				_, err := tx.Exec(ctx, tc.after, other)
				return err
			}
			w.failed = func(err error) {
				var said *pgconn.PgError
				if errors.As(err, &said) && (said.Code == "40P01" || said.Code == "40001") {
					lost.Add(1)
				}
			}
			var clients sync.WaitGroup
			for n, key := range keys {
				clients.Go(func() { pursue(t, key, []*instance{f.a, f.b}[n].hold) })
			}
			clients.Wait()
			for _, key := range keys {
				f.settled(t, key)
			}
			if lost.Load() == 0 {
				t.Error("there was no conflict")
			}
		})
	}
}
