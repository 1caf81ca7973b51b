package sqlitetest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/internal/child"
	"github.com/semelhq/semel/sqlitestore"
)

// An inbox orders what messages ask for, and notes each order in a second table.
type inbox struct {
	*consumer.Consumer
	store *sqlitestore.Store
	db    *sql.DB
	dead  []error
	runs  int
	fail  error // of the handler, after its effects
	kills bool  // a poisoned message ends the process
}

func newInbox(db *sql.DB, oneCommit bool, o sqlitestore.Options) (*inbox, error) {
	s, err := sqlitestore.Open(context.Background(), db, o)
	if err != nil {
		return nil, err
	}
	onLost := semel.Rerun
	if oneCommit {
		onLost = semel.Hold // it does not matter
	}
	g, err := semel.New(s, semel.SingleTenant, onLost, semel.Options{Policy: semel.Policy{OneCommit: oneCommit}, MaxAttempts: -1})
	if err != nil {
		return nil, err
	}
	b := &inbox{store: s, db: db}
	b.Consumer, err = consumer.New(g, "orders", consumer.Options{
		MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
		DeadLetter: func(_ context.Context, _ consumer.Message, reason error) error {
			b.dead = append(b.dead, reason)
			return nil
		},
	})
	return b, err
}

func (b *inbox) deliver(id string, deliveries int) consumer.Result {
	m := consumer.Message{ID: id, Payload: []byte(id), Deliveries: deliveries}
	return sqlitestore.Inbox(context.Background(), b.Consumer, b.store, m, func(ctx context.Context, tx *sql.Tx, m consumer.Message) error {
		if b.runs++; b.kills && m.ID == "poison" {
			syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:errcheck // it does not come back
			select {}
		}
		if err := order(ctx, tx, string(m.Payload)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO notes (item) VALUES (?)", m.ID); err != nil {
			return err
		}
		return b.fail
	})
}

const inboxTables = `CREATE TABLE orders (item TEXT NOT NULL); CREATE TABLE notes (item TEXT NOT NULL)`

// effects returns how many rows there are of an item: both tables have the same.
func (b *inbox) effects(t *testing.T, item string) int {
	t.Helper()
	var orders, notes int
	if err := b.db.QueryRow("SELECT (SELECT count(*) FROM orders WHERE item = ?1), (SELECT count(*) FROM notes WHERE item = ?1)", item).Scan(&orders, &notes); err != nil {
		t.Fatal(err)
	}
	if orders != notes {
		t.Errorf("%s: %d orders and %d notes", item, orders, notes)
	}
	return orders
}

func eachInbox(t *testing.T, test func(t *testing.T, b *inbox)) {
	t.Helper()
	for _, oneCommit := range []bool{false, true} {
		t.Run(fmt.Sprintf("one-commit is %t", oneCommit), func(t *testing.T) {
			t.Parallel()
			db := openDB(t, newFile(t), "")
			execSQL(t, db, inboxTables)
			b, err := newInbox(db, oneCommit, sqlitestore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.store.Close() })
			test(t, b)
		})
	}
}

func TestR81_AnInboxCommitsEffectAndMarkTogether(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, b *inbox) {
		b.fail = errors.New("out of hats")
		for i, want := range []consumer.Outcome{consumer.Failed, consumer.Done, consumer.Duplicate} {
			if r := b.deliver("m1", i); r.Outcome != want || b.effects(t, "m1") != min(i, 1) {
				t.Errorf("delivery %d: %+v, %d effects", i+1, r, b.effects(t, "m1"))
			}
			b.fail = nil
		}
		if b.runs != 2 {
			t.Errorf("%d runs, want 2", b.runs)
		}
	})
}

// A handler may begin the transaction itself, after what is not part of it.
func TestR81_AHandlersOwnTransactionMarksItsMessage(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, b *inbox) {
		undone, late := errors.New("out of hats"), errors.New("after the commit")
		for i, c := range []struct {
			inTx, after error
			want        consumer.Outcome
			effects     int
		}{{undone, nil, consumer.Failed, 0}, {nil, late, consumer.Done, 1}, {nil, nil, consumer.Duplicate, 1}} {
			r := b.Handle(t.Context(), consumer.Message{ID: "m1", Deliveries: i + 1}, func(ctx context.Context, _ consumer.Message) error {
				err := b.store.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return errors.Join(order(ctx, tx, "m1"), c.inTx) })
				return errors.Join(err, c.after)
			})
			var orders int
			if err := b.db.QueryRow("SELECT count(*) FROM orders").Scan(&orders); err != nil {
				t.Fatal(err)
			}
			if r.Outcome != c.want || orders != c.effects {
				t.Errorf("delivery %d: %+v, %d orders; want %v and %d", i+1, r, orders, c.want, c.effects)
			}
		}
	})
}

func TestR81_RunsOfAnInboxThatAreRolledBackCount(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, b *inbox) {
		b.fail = errors.New("out of hats")
		for _, want := range []consumer.Outcome{consumer.Failed, consumer.Failed, consumer.Dead, consumer.Dead} {
			if r := b.deliver("m1", 0); r.Outcome != want || b.effects(t, "m1") != 0 {
				t.Errorf("%+v, %d effects", r, b.effects(t, "m1"))
			}
		}
		b.fail = semel.Final(b.fail)
		if r := b.deliver("m2", 0); r.Outcome != consumer.Dead || b.runs != 4 || len(b.dead) != 2 {
			t.Errorf("%+v, %d runs, dead: %v", r, b.runs, b.dead)
		}
	})
}

// A clock that is set back makes no handled message new, and keeps none from being handled.
func TestR81_TheMachinesClockIsSetBack(t *testing.T) {
	t.Parallel()
	for _, oneCommit := range []bool{false, true} {
		db := openDB(t, newFile(t), "")
		execSQL(t, db, inboxTables)
		clock := newClock()
		b, err := newInbox(db, oneCommit, sqlitestore.Options{Clock: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		b.deliver("m1", 1)
		clock.Advance(-time.Hour)
		for i, want := range []consumer.Outcome{consumer.Done, consumer.Duplicate} {
			if r := b.deliver("m1", 2+i); r.Outcome != consumer.Duplicate || b.effects(t, "m1") != 1 {
				t.Errorf("handled before: %+v, %d effects", r, b.effects(t, "m1"))
			}
			if r := b.deliver("m2", 1+i); r.Outcome != want || b.effects(t, "m2") != 1 {
				t.Errorf("new: %+v, %d effects", r, b.effects(t, "m2"))
			}
		}
		if err := b.store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A victim is a process that handles one message and dies at a point.
type victim struct {
	Path, Message string
	OneCommit     bool
	Deliveries    int
	DieAt         int64
}

const victimVariable = "SEMEL_SQLITETEST_VICTIM"

// live is the victim's life. It returns nil if the message came to its end, and the process still lives.
func (v *victim) live() error {
	db, m, err := openMortal(v.Path, v.DieAt)
	if err != nil {
		return err
	}
	b, err := newInbox(db, v.OneCommit, sqlitestore.Options{})
	if err != nil {
		return err
	}
	b.kills = true
	m.armed.Store(true)
	if r := b.deliver(v.Message, v.Deliveries); r.Action == consumer.Nack {
		return fmt.Errorf("%v: %w", r.Outcome, r.Err)
	}
	return nil
}

func liveAsVictim(told string) error {
	var v victim
	if err := json.Unmarshal([]byte(told), &v); err != nil {
		return err
	}
	return v.live()
}

// run has the victim live in a process of its own. It reports whether it died.
func (v *victim) run(t *testing.T) (died bool) {
	t.Helper()
	told, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	program, err := child.Program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), victimVariable+"="+string(told))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
		t.Fatalf("the victim: %v\n%s", err, out)
	}
	return true
}

// The process is killed before and after each statement of a message. The message is delivered again until it is
// handled: all its effects are there once.
func TestR81_Case33_KilledAtAnyStatementAMessageHasItsEffectsOnce(t *testing.T) {
	t.Parallel()
	for _, oneCommit := range []bool{false, true} {
		t.Run(fmt.Sprintf("one-commit is %t", oneCommit), func(t *testing.T) {
			t.Parallel()
			path := newFile(t)
			db := openDB(t, path, "")
			execSQL(t, db, inboxTables)
			clock := newClock()
			b, err := newInbox(db, oneCommit, sqlitestore.Options{Clock: clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			defer b.store.Close()
			deaths := 0
			for at := int64(1); ; at++ {
				id := fmt.Sprint("m", at)
				died := (&victim{Path: path, Message: id, OneCommit: oneCommit, Deliveries: 1, DieAt: at}).run(t)
				clock.Advance(time.Minute) // its lease is over
				if r := b.deliver(id, 2); r.Action != consumer.Ack {
					t.Fatalf("died at point %d: %+v", at, r)
				}
				if n := b.effects(t, id); n != 1 {
					t.Fatalf("died at point %d: %d effects", at, n)
				}
				if !died {
					break
				}
				deaths++
			}
			if deaths < 10 {
				t.Errorf("only %d points to die at", deaths)
			}
		})
	}
}

// A message that kills its process each time is a dead letter in the end, in one-commit mode too if the broker says
// that it delivers the message again.
func TestR82_AMessageThatKillsItsProcessIsADeadLetter(t *testing.T) {
	t.Parallel()
	for oneCommit, want := range map[bool]int{false: 3, true: 4} { // what a first delivery in one-commit mode was leaves no trace
		t.Run(fmt.Sprintf("one-commit is %t", oneCommit), func(t *testing.T) {
			t.Parallel()
			path := newFile(t)
			db := openDB(t, path, "")
			execSQL(t, db, inboxTables)
			clock := newClock()
			b, err := newInbox(db, oneCommit, sqlitestore.Options{Clock: clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			defer b.store.Close()
			deaths := 0
			for (&victim{Path: path, Message: "poison", OneCommit: oneCommit, Deliveries: deaths + 1}).run(t) {
				if deaths++; deaths > want {
					break
				}
				clock.Advance(time.Minute)                  // its lease is over
				b.deliver(fmt.Sprint("another", deaths), 1) // others are handled
			}
			r := b.deliver("poison", deaths+1)
			if deaths != want || r.Outcome != consumer.Dead || b.runs != want || b.effects(t, "poison") != 0 {
				t.Errorf("%d processes have died, want %d; then %+v", deaths, want, r)
			}
		})
	}
}
