package sqlitetest

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
