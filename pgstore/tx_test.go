package pgstore

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/internal/verbs"
)

var serveKey = verbs.Order

// A mode is a way to run transactions.
type mode struct {
	name      string
	level     pgx.TxIsoLevel
	oneCommit bool
	pooled    bool // behind PgBouncer, the store's own pool too
}

var modes = []mode{
	{name: "read committed"},
	{name: "repeatable read", level: pgx.RepeatableRead},
	{name: "serializable", level: pgx.Serializable},
	{name: "one-commit", oneCommit: true},
	{name: "behind a pooler", pooled: true},
	{name: "serializable behind a pooler", level: pgx.Serializable, pooled: true},
	{name: "one-commit behind a pooler", oneCommit: true, pooled: true},
}

// eachModes are the modes that a test of all is run in. In the short form it is one of those of each kind of commit.
var eachModes = append(
	proof.Some(1, modes[0], modes[1], modes[2], modes[4], modes[5]),
	proof.Some(1, modes[3], modes[6])...)

// A shop has orders in the store's database.
type shop struct {
	mode
	t     *testing.T
	app   *pgxpool.Pool
	store *Store
}

func eachMode(t *testing.T, test func(*shop)) {
	t.Helper()
	for _, m := range eachModes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			url := server.URL()
			if m.pooled {
				url = bouncer.URL()
			}
			test(newShop(t, m, url, Options{}))
		})
	}
}

func newShop(t *testing.T, m mode, url string, o Options) *shop {
	t.Helper()
	app := newPool(t, url, func(c *pgxpool.Config) {
		if m.pooled {
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
	})
	s := &shop{mode: m, t: t, app: app, store: openOn(t, app, o)}
	exec(t, s.store, "CREATE TABLE {schema}.orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL)")
	return s
}

// another opens a second store on the shop's schema, as another instance of the application does.
func (s *shop) another() *shop {
	s.t.Helper()
	app := newPool(s.t, s.app.Config().ConnString(), func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = s.app.Config().ConnConfig.DefaultQueryExecMode
	})
	return &shop{mode: s.mode, t: s.t, app: app, store: openOn(s.t, app, Options{Schema: s.store.schema})}
}

func (s *shop) policy() semel.Policy { return semel.Policy{OneCommit: s.oneCommit} }

func (s *shop) guard(onLost driver.LostPolicy) *semel.Guard {
	s.t.Helper()
	return s.guardWith(onLost, semel.Options{Policy: s.policy()})
}

func (s *shop) guardWith(onLost driver.LostPolicy, o semel.Options) *semel.Guard {
	s.t.Helper()
	// What comes late on a busy machine is waited for, and asked for as often as it takes; no test waits it out.
	o.Policy.SettleWait, o.MaxAttempts = time.Minute, -1
	g, err := semel.New(s.store, semel.SingleTenant, onLost, o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := g.Drain(ctx); err != nil {
			s.t.Errorf("drain: %v", err)
		}
	})
	return g
}

// tx runs fn in a transaction of the shop's kind.
func (s *shop) tx(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	return s.store.TxWith(ctx, pgx.TxOptions{IsoLevel: s.level}, fn)
}

func (s *shop) sql(text string) string { return inSchema(text, s.store.schema) }

func (s *shop) order(ctx context.Context, tx pgx.Tx, item string) error {
	_, err := tx.Exec(ctx, s.sql("INSERT INTO {schema}.orders (item) VALUES ($1)"), item)
	return err
}

func (s *shop) orders() int64 {
	s.t.Helper()
	return value[int64](s.t, s.store, "SELECT count(*) FROM {schema}.orders")
}

// idle fails unless every connection of the application's is given back. Those that were closed are, a moment later.
func (s *shop) idle() {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); s.app.Stat().AcquiredConns() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Errorf("%d connections are still in use", s.app.Stat().AcquiredConns())
			return
		}
	}
}

// ordering is a handler that orders a hat in a transaction, and then lets extra go on in it, which may be nil.
func (s *shop) ordering(extra func(context.Context, pgx.Tx) error, after func(error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := s.tx(r.Context(), func(ctx context.Context, tx pgx.Tx) error {
			if err := s.order(ctx, tx, "hat"); err != nil {
				return err
			}
			if extra != nil {
				if err := extra(ctx, tx); err != nil {
					return err
				}
			}
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, `{"order":1}`)
			return nil
		})
		if after != nil {
			after(err)
		}
	})
}

func replayed(w *httptest.ResponseRecorder) bool {
	return w.Header().Get("Idempotent-Replayed") == "true"
}

func TestR31_EffectAndAnswerCommitTogether(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		runs := 0
		h := s.guard(driver.Hold).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			err := s.tx(r.Context(), func(ctx context.Context, tx pgx.Tx) error {
				if err := s.order(ctx, tx, "hat"); err != nil {
					return err
				}
				if n := s.orders(); n != 0 {
					t.Errorf("%d orders show before the commit", n)
				}
				w.WriteHeader(http.StatusCreated)
				io.WriteString(w, `{"order":1}`)
				return nil
			})
			if err != nil {
				s.t.Error(err)
			}
			if n := s.orders(); n != 1 {
				s.t.Errorf("%d orders show after the commit", n)
			}
			if _, err := io.WriteString(w, "late"); !errors.Is(err, semel.ErrSettled) {
				s.t.Errorf("writing after the commit: %v, want ErrSettled", err)
			}
		}))
		for i := range 3 {
			w := serveKey(h, "k")
			if w.Code != 201 || w.Body.String() != `{"order":1}` || replayed(w) != (i > 0) {
				s.t.Errorf("request %d: %d %q %v", i, w.Code, w.Body, w.Header())
			}
		}
		if runs != 1 || s.orders() != 1 {
			s.t.Errorf("%d runs, %d orders", runs, s.orders())
		}
		s.idle()
	})
}

// A function that fails with an answer to keep is undone, and its answer is kept; without one all is, and the key is
// free.
func TestR31_AFunctionThatFailsIsUndone(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		runs := 0
		declined := errors.New("declined")
		h := s.guard(driver.Hold).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			err := s.tx(r.Context(), func(ctx context.Context, tx pgx.Tx) error {
				if err := s.order(ctx, tx, "hat"); err != nil {
					return err
				}
				if runs > 1 {
					w.WriteHeader(http.StatusPaymentRequired)
				}
				if runs == 3 { // the undo takes back a failed statement too
					if _, err := tx.Exec(ctx, "SELECT 1/0"); err == nil {
						s.t.Error("a division by zero has a result")
					}
				}
				return declined
			})
			if !errors.Is(err, declined) {
				s.t.Errorf("Tx: %v", err)
			}
			if runs == 1 {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))
		for i, c := range []struct {
			key  string
			want int
		}{{"k", 500}, {"k", 402}, {"k", 402}, {"k2", 402}, {"k2", 402}} {
			if w := serveKey(h, c.key); w.Code != c.want {
				s.t.Errorf("request %d: %d, want %d", i, w.Code, c.want)
			}
		}
		if runs != 3 || s.orders() != 0 {
			s.t.Errorf("%d runs, %d orders; want 3 and none", runs, s.orders())
		}
		s.idle()
	})
}

// After a transaction that was rolled back the handler may try again in another one.
func TestR31_ASecondTransactionAfterOneThatWasRolledBack(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		failed := errors.New("sold out")
		h := s.guard(driver.Hold).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for i, want := range []error{failed, failed, nil} {
				err := s.tx(r.Context(), func(ctx context.Context, tx pgx.Tx) error {
					if err := s.order(ctx, tx, "hat "+strconv.Itoa(i)); err != nil {
						return err
					}
					w.WriteHeader(http.StatusCreated)
					return want
				})
				if !errors.Is(err, want) {
					s.t.Errorf("transaction %d: %v, want %v", i, err, want)
				}
			}
			if err := s.tx(r.Context(), func(context.Context, pgx.Tx) error { return nil }); !errors.Is(err, semel.ErrSettled) {
				s.t.Errorf("a transaction after the commit: %v, want ErrSettled", err)
			}
		}))
		if w := serveKey(h, "k"); w.Code != 201 || s.orders() != 1 {
			s.t.Errorf("answered %d, with %d orders", w.Code, s.orders())
		}
		s.idle()
	})
}

// Without a key it is a plain transaction.
func TestARequestWithoutAKeyIsAPlainTransaction(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		policy := s.policy()
		policy.KeyOptional = true
		g := s.guardWith(driver.Hold, semel.Options{Policy: policy})
		failed := errors.New("sold out")
		var fails atomic.Bool
		h := g.Wrap(s.ordering(func(context.Context, pgx.Tx) error {
			if fails.Load() {
				return failed
			}
			return nil
		}, func(err error) {
			if fails.Load() != errors.Is(err, failed) {
				s.t.Errorf("Tx: %v", err)
			}
		}))
		for range 2 {
			if w := serveKey(h, ""); w.Code != 201 || replayed(w) {
				s.t.Errorf("answered %d %v", w.Code, w.Header())
			}
		}
		fails.Store(true)
		serveKey(h, "")
		if n := s.orders(); n != 2 {
			s.t.Errorf("%d orders, want 2", n)
		}
		s.idle()
	})
}

func TestTransactionsDoNotNest(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		h := s.guard(driver.Hold).Wrap(s.ordering(func(ctx context.Context, tx pgx.Tx) error {
			err := s.tx(ctx, func(ctx context.Context, tx pgx.Tx) error { return s.order(ctx, tx, "coat") })
			if !errors.Is(err, semel.ErrNested) {
				s.t.Errorf("a transaction in a transaction: %v, want ErrNested", err)
			}
			return nil
		}, nil))
		if w := serveKey(h, "k"); w.Code != 201 || s.orders() != 1 {
			s.t.Errorf("answered %d, with %d orders", w.Code, s.orders())
		}
	})
}

// A function that panics, or whose context ends, leaves nothing, and the key is free.
func TestR32_AFunctionThatDoesNotReturnLeavesNothing(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		var how atomic.Int32
		h := s.guard(driver.Hold).Wrap(s.ordering(func(ctx context.Context, tx pgx.Tx) error {
			switch how.Load() {
			case 0:
				panic("handler")
			case 1:
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				return s.order(ctx, tx, "scarf")
			}
			return nil
		}, func(err error) {
			if how.Load() == 1 && !errors.Is(err, context.Canceled) {
				s.t.Errorf("Tx whose context ended: %v", err)
			}
		}))
		func() {
			defer func() {
				if recover() != "handler" {
					s.t.Error("the panic was swallowed")
				}
			}()
			untilAnswered(s.t, h, "k") // a busy machine may refuse the claim
		}()
		how.Store(1)
		if w := serveKey(h, "k"); w.Code != http.StatusServiceUnavailable {
			s.t.Errorf("after a context that ended: %d", w.Code)
		}
		how.Store(2)
		untilAnswered(s.t, h, "k") // once the server has noticed that the connection is gone
		if s.orders() != 1 {
			s.t.Errorf("the next try: %d orders", s.orders())
		}
		s.idle()
	})
}

func TestField10_DoAnswersWithWhatItCommitted(t *testing.T) {
	t.Parallel()
	eachMode(t, func(s *shop) {
		if s.level != "" {
			return // Do has no level
		}
		g := s.guard(driver.Hold)
		var report semel.Report
		do := func(key string, outcome error) (int64, error) {
			return Do(semel.WithReport(s.t.Context(), &report), g, s.store, semel.Key{Scope: "s", Operation: "pay", Value: key}, semel.Bytes("hat"), func(ctx context.Context, tx pgx.Tx) (id int64, err error) {
				err = tx.QueryRow(ctx, s.sql("INSERT INTO {schema}.orders (item) VALUES ('hat') RETURNING id")).Scan(&id)
				return id, errors.Join(err, outcome)
			})
		}
		for i := range 3 {
			if id, err := do("k", nil); id != 1 || err != nil || s.orders() != 1 || report.Replayed != (i > 0) || report.Expires.IsZero() {
				s.t.Errorf("%d, %v, %d orders, %+v", id, err, s.orders(), report)
			}
		}
		for range 2 {
			if _, err := do("k2", semel.Final(errors.New("sold out"))); err == nil || !strings.Contains(err.Error(), "sold out") || s.orders() != 1 {
				s.t.Errorf("%v, %d orders", err, s.orders())
			}
		}
		s.idle()
	})
}

// What a store's transactions can't be is refused before anything happens.
func TestTransactionsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t, mode{name: "one-commit", oneCommit: true}, server.URL(), Options{})
	never := func(context.Context, pgx.Tx) error {
		t.Error("the function was called")
		return nil
	}
	for _, o := range []pgx.TxOptions{{IsoLevel: "chaos"}, {BeginQuery: "BEGIN"}, {CommitQuery: "COMMIT"}} {
		if err := s.store.TxWith(t.Context(), o, never); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	for i, o := range []pgx.TxOptions{
		{IsoLevel: pgx.RepeatableRead}, {IsoLevel: pgx.Serializable}, {AccessMode: pgx.ReadOnly}, {DeferrableMode: pgx.Deferrable},
	} {
		h := s.guard(driver.Hold).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := s.store.TxWith(r.Context(), o, never); !errors.Is(err, ErrOneCommit) {
				t.Errorf("%+v in one-commit mode: %v, want ErrOneCommit", o, err)
			}
		}))
		if w := serveKey(h, "k"+strconv.Itoa(i)); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%+v: answered %d", o, w.Code)
		}
	}
	s.idle()
}
