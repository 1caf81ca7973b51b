package sqlitetest

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/outbox/outboxtest"
	"github.com/semelhq/semel/sqlitestore"
)

// An outboxHandle is an outbox with a DB of its own, as in another process.
type outboxHandle struct {
	*sqlitestore.Outbox
	db *sql.DB
}

// An outboxTx is a transaction of the application's own.
type outboxTx struct {
	*sql.Tx
	to *sqlitestore.Outbox
}

func (tx outboxTx) Add(messages ...outbox.Message) error {
	return tx.to.Add(context.Background(), tx.Tx, messages...)
}

func (tx outboxTx) Commit() error {
	defer tx.to.Wake()
	return tx.Tx.Commit()
}

// The suite proves R-61 of the outbox and R-83, and what case 30, case 31, case 32 and case 40 ask of a store.
func TestR83_R61_Case30_Case31_Case32_Case40_SQLiteKeepsThePromisesOfAnOutbox(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, func(t *testing.T) outboxtest.Storage {
		path := newFile(t)
		var shift atomic.Int64
		clock := func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }
		return outboxtest.Storage{
			Open: func(t *testing.T, o outbox.Options) outbox.Store {
				s, _ := openStore(t, path, sqlitestore.Options{Clock: clock})
				b, err := sqlitestore.OpenOutbox(s, o)
				if err != nil {
					t.Fatal(err)
				}
				return &outboxHandle{b, openDB(t, path, "_txlock=immediate&_pragma=busy_timeout(10000)")}
			},
			Begin: func(t *testing.T, s outbox.Store) outboxtest.Tx {
				h := s.(*outboxHandle)
				tx, err := h.db.BeginTx(context.Background(), nil)
				if err != nil {
					t.Fatal(err)
				}
				return outboxTx{tx, h.Outbox}
			},
			Advance:   func(d time.Duration) { shift.Add(int64(d)) },
			OneWriter: true,
		}
	})
}

func openOutbox(t *testing.T, s *sqlitestore.Store, o outbox.Options) *sqlitestore.Outbox {
	t.Helper()
	b, err := sqlitestore.OpenOutbox(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The relays of the process need not be told of a message that is added in a transaction of the store's.
func TestATransactionThatCommitsWakesTheRelays(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, newFile(t), sqlitestore.Options{})
	b := openOutbox(t, s, outbox.Options{})
	rung := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	for _, c := range []struct {
		why  string
		do   func(ctx context.Context, tx *sql.Tx) error
		want bool
	}{
		{"nothing was added", func(context.Context, *sql.Tx) error { return nil }, false},
		{"rolled back", func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(b.Add(ctx, tx, outbox.Message{Topic: "a"}), errRefused)
		}, false},
		{"committed", func(ctx context.Context, tx *sql.Tx) error { return b.Add(ctx, tx, outbox.Message{Topic: "a"}) }, true},
	} {
		changed := b.Changed()
		if err := s.Tx(t.Context(), c.do); err != nil && !errors.Is(err, errRefused) {
			t.Fatal(err)
		}
		if got := rung(changed); got != c.want {
			t.Errorf("%s: woken is %v, want %v", c.why, got, c.want)
		}
	}
	changed := b.Changed()
	if b.Wake(); !rung(changed) {
		t.Error("Wake wakes nobody")
	}
}

var errRefused = errors.New("refused")

func TestAddOutsideOfATransactionIsAnError(t *testing.T) {
	t.Parallel()
	s, db := openStore(t, newFile(t), sqlitestore.Options{})
	b := openOutbox(t, s, outbox.Options{})
	ended, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := ended.Commit(); err != nil {
		t.Fatal(err)
	}
	var kept *sql.Tx
	if err := s.Tx(t.Context(), func(_ context.Context, tx *sql.Tx) error { kept = tx; return nil }); err != nil {
		t.Fatal(err)
	}
	for why, tx := range map[string]*sql.Tx{"nil": nil, "ended": ended, "kept after Store.Tx has returned": kept} {
		if err := b.Add(t.Context(), tx, outbox.Message{Topic: "a"}); !errors.Is(err, outbox.ErrNoTx) {
			t.Errorf("%s: %v, want ErrNoTx", why, err)
		}
	}
	other, err := openDB(t, newFile(t), "").BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback() //nolint:errcheck // nothing was written
	if err := b.Add(t.Context(), other, outbox.Message{Topic: "a"}); err == nil || !strings.Contains(err.Error(), "no such table") {
		t.Errorf("a transaction of another database: %v", err)
	}
	if stats, err := b.Stats(t.Context()); err != nil || stats.Pending != 0 {
		t.Errorf("%+v, %v; want nothing added", stats, err)
	}
	if _, err := sqlitestore.OpenOutbox(nil, outbox.Options{}); err == nil {
		t.Error("opened without a store")
	}
	if _, err := sqlitestore.OpenOutbox(s, outbox.Options{Keep: -1}); err == nil {
		t.Error("opened with a negative Keep")
	}
}

// A dead message that is requeued is again one that the younger ones of its key wait for.
func TestR83_WhatIsRequeuedComesBeforeTheYoungerOnesOfItsKey(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, newFile(t), sqlitestore.Options{})
	b := openOutbox(t, s, outbox.Options{})
	err := s.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		return b.Add(ctx, tx, outbox.Message{ID: "1", Topic: "a", Key: "k"}, outbox.Message{ID: "2", Topic: "a", Key: "k"}, outbox.Message{ID: "3", Topic: "a", Key: "k"})
	})
	if err != nil {
		t.Fatal(err)
	}
	leases := func(limit int, want ...string) driver.Token {
		t.Helper()
		q := outbox.LeaseRequest{Token: driver.NewToken(), Lease: time.Minute, Lanes: 1, Limit: limit, Max: limit, Bytes: 1}
		if limit > 1 {
			q.Bytes = 1000
		}
		all, err := b.Lease(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range all {
			got = append(got, e.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("leased %q, want %q", got, want)
		}
		return q.Token
	}
	settle := func(token driver.Token, outcome outbox.Outcome, ids ...string) {
		t.Helper()
		for _, id := range ids {
			if err := b.Settle(t.Context(), token, []outbox.Result{{ID: id, Outcome: outcome}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	requeue := func(ids ...string) {
		t.Helper()
		if n, err := b.Requeue(t.Context(), ids...); n != len(ids) || err != nil {
			t.Fatal(n, err)
		}
	}
	token := leases(9, "1", "2", "3")
	settle(token, outbox.GivenUp, "1", "2")
	settle(token, outbox.PutBack, "3")
	requeue("2")
	settle(leases(1, "2"), outbox.PutBack, "2")
	requeue("1")
	token = leases(1, "1")
	leases(9) // the others wait for it
	settle(token, outbox.PutBack, "1")
	token = leases(9, "1", "2", "3")
	settle(token, outbox.GivenUp, "1", "2")
	settle(token, outbox.PutBack, "3")
	requeue("1", "2")
	token = leases(1, "1")
	leases(9)
	settle(token, outbox.Acknowledged, "1")
	leases(9, "2", "3")
}

// What is behind one that can be leased is leased with it only if it can be, too.
func TestR83_WhatIsBehindAMessageHasToBeDueItself(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, newFile(t), sqlitestore.Options{})
	b := openOutbox(t, s, outbox.Options{})
	add := func(messages ...outbox.Message) {
		t.Helper()
		err := s.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return b.Add(ctx, tx, messages...) })
		if err != nil {
			t.Fatal(err)
		}
	}
	add(outbox.Message{ID: "a1", Topic: "a", Key: "k"}, outbox.Message{ID: "a2", Topic: "a", Key: "k", Delay: time.Hour}, outbox.Message{ID: "a3", Topic: "a", Key: "k"},
		outbox.Message{ID: "b1", Topic: "b", Key: "k"}, outbox.Message{ID: "b2", Topic: "b", Key: "k"}, outbox.Message{ID: "b3", Topic: "b", Key: "k"})
	lease := func() (ids []string, token driver.Token) {
		t.Helper()
		q := outbox.LeaseRequest{Token: driver.NewToken(), Lease: time.Minute, Lanes: 9, Limit: 9, Max: 9, Bytes: 1000}
		all, err := b.Lease(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			ids = append(ids, e.ID)
		}
		return ids, q.Token
	}
	got, token := lease()
	if !slices.Equal(got, []string{"a1", "b1", "b2", "b3"}) {
		t.Errorf("leased %q; want none behind a2, which has a delay", got)
	}
	err := b.Settle(t.Context(), token, []outbox.Result{
		{ID: "a1", Outcome: outbox.PutBack}, {ID: "b1", Outcome: outbox.GivenUp}, {ID: "b2", Outcome: outbox.GivenUp, Hold: true}, {ID: "b3", Outcome: outbox.PutBack},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Requeue(t.Context(), "b1"); err != nil {
		t.Fatal(err)
	}
	if got, _ := lease(); !slices.Equal(got, []string{"a1", "b1"}) {
		t.Errorf("leased %q; want none behind b2, which is dead and holds the key", got)
	}
}

// A relay whose clock is behind that of the process that adds does not wait for the difference.
func TestR50_MessagesOfAProcessWhoseClockIsAheadAreSentAtOnce(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	behind, _ := openStore(t, path, sqlitestore.Options{})
	ahead, _ := openStore(t, path, sqlitestore.Options{Clock: func() time.Time { return time.Now().Add(time.Hour) }})
	for n, s := range []*sqlitestore.Store{ahead, behind} {
		b := openOutbox(t, s, outbox.Options{})
		err := s.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return b.Add(ctx, tx, outbox.Message{Topic: "a"}) })
		if err != nil {
			t.Fatal(err)
		}
		q := outbox.LeaseRequest{Token: driver.NewToken(), Lease: time.Minute, Lanes: 1, Limit: 9, Max: 9, Bytes: 1}
		if all, err := openOutbox(t, behind, outbox.Options{}).Lease(t.Context(), q); len(all) != 1 || err != nil {
			t.Errorf("message %d: %d are leased, %v; want it", n+1, len(all), err)
		}
	}
}
