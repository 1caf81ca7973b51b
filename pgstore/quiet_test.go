package pgstore

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/servers"
)

// begin begins a transaction on a connection of the application's.
func begin(t testing.TB, s *Store, o pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := s.app.BeginTx(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) }) //nolint:errcheck // it may be over
	return tx
}

// inTx executes a call in a transaction.
func inTx(t testing.TB, tx pgx.Tx, c *call) (f found) {
	t.Helper()
	err := c.run(context.Background(), tx.Conn().PgConn(), func(row [][]byte) (err error) {
		f, err = readFound(row[0])
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", c.sql, err)
	}
	return f
}

// txValue returns the single value that a query gives in a transaction.
func txValue[T any](t testing.TB, s *Store, tx pgx.Tx, sql string, args ...any) (v T) {
	t.Helper()
	if err := tx.QueryRow(context.Background(), inSchema(sql, s.schema), args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// A refusal is a claim, a settle or the like that changes nothing.
type refusal struct {
	what string
	call *call
}

// refusals makes records, and returns what is refused on them.
func refusals(t *testing.T, s *Store) (all []refusal, ids []driver.ID) {
	t.Helper()
	running, replays, lost := newID(), newID(), newID()
	c := ask(driver.Hold)
	rec := claim(t, s, running, c)
	kept := ask(driver.Hold)
	first := claim(t, s, replays, kept)
	settle(t, s, replays, first.Owner(), done("answer"))
	unknown := ask(driver.Hold)
	first = claim(t, s, lost, unknown)
	settle(t, s, lost, first.Owner(), driver.Outcome{State: driver.Unknown})

	again := func(c driver.Claim) driver.Claim { c.Token = driver.NewToken(); return c }
	strange := driver.Owner{Fence: rec.Fence, Token: driver.NewToken()}
	late, err := s.settleCall(running, strange, done("late"), false)
	if err != nil {
		t.Fatal(err)
	}
	return []refusal{
		{"a claim while it runs", s.claimCall(running, again(c))},
		{"a claim of another request", s.claimCall(running, ask(driver.Hold))},
		{"a replay", s.claimCall(replays, again(kept))},
		{"a claim of what is unknown", s.claimCall(lost, again(unknown))},
		{"a stranger's settle", late},
		{"seizing what is done", (&call{sql: s.sql.seize}).bytes(replays[:]).bytes(kept.Token[:])},
		{"loading", (&call{sql: s.sql.load}).bytes(running[:])},
	}, []driver.ID{running, replays, lost}
}

// A rejected request never writes, and locks no row.
func TestARefusalWritesAndLocksNothing(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	all, ids := refusals(t, s)
	for _, r := range all {
		tx := begin(t, s, pgx.TxOptions{})
		if f := inTx(t, tx, r.call); f.owned || f.rec.State == driver.Absent {
			t.Errorf("%s: owned is %t, the record %v", r.what, f.owned, f.rec.State)
		}
		if txValue[bool](t, s, tx, "SELECT pg_current_xact_id_if_assigned() IS NOT NULL") {
			t.Errorf("%s: the transaction has an id, so it has written or locked something", r.what)
		}
		if n := txValue[int](t, s, tx, "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype IN ('tuple', 'advisory')"); n != 0 {
			t.Errorf("%s: it holds %d locks", r.what, n)
		}
		// Another transaction can have the rows at once.
		for _, id := range ids {
			exec(t, s, "SELECT 1 FROM {schema}.records WHERE id = $1 FOR UPDATE NOWAIT", id[:])
		}
		if err := tx.Rollback(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if n := value[int](t, s, "SELECT count(*) FROM {schema}.records WHERE xmax <> 0 AND pg_xact_status(xmax::text::xid8) <> 'committed'"); n != 0 {
		t.Errorf("%d rows are marked by a transaction", n)
	}
}

// A refusal does not wait for one who has the row either, such as a transaction about whose commit nothing is known
// yet.
func TestARefusalWaitsForNobody(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	all, ids := refusals(t, s)
	tx := begin(t, s, pgx.TxOptions{})
	for _, id := range ids {
		txValue[int](t, s, tx, "SELECT 1 FROM {schema}.records WHERE id = $1 FOR UPDATE", id[:])
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, r := range all {
		if _, err := s.find(ctx, r.call); err != nil {
			t.Errorf("%s: %v", r.what, err)
		}
	}
}

// On a server on which nothing else happens, the log of what is written stands still.
func TestARefusalLeavesNoTraceInTheLog(t *testing.T) {
	own := ownServer(t, servers.PostgresOptions{Settings: map[string]string{
		"wal_level": "minimal", "max_wal_senders": "0", "autovacuum": "off", "checkpoint_timeout": "1h",
	}})
	s := openOn(t, newPool(t, own.URL()), Options{})
	all, _ := refusals(t, s)
	position := func() string { return value[string](t, s, "SELECT pg_current_wal_insert_lsn()::text") }
	for round := range 3 { // the first reader of a page may tidy it up
		before := position()
		for range 50 {
			for _, r := range all {
				if _, err := s.find(context.Background(), r.call); err != nil {
					t.Fatal(err)
				}
			}
		}
		if after := position(); after != before && round > 0 {
			t.Errorf("%d refusals have moved the log from %s to %s", 50*len(all), before, after)
		}
	}
}

// A heartbeat changes no index.
func TestAHeartbeatIsAHotUpdate(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	id := newID()
	rec := claim(t, s, id, ask(driver.Rerun))
	tx := begin(t, s, pgx.TxOptions{})
	for range 5 {
		x := s.extendCall(id, rec.Owner(), driver.Extension{Lease: time.Hour})
		if err := x.run(context.Background(), tx.Conn().PgConn(), func(row [][]byte) error { return readable(row[0]) }); err != nil {
			t.Fatal(err)
		}
	}
	all := txValue[int](t, s, tx, "SELECT pg_stat_get_xact_tuples_updated('{schema}.records'::regclass)")
	hot := txValue[int](t, s, tx, "SELECT pg_stat_get_xact_tuples_hot_updated('{schema}.records'::regclass)")
	if all != 5 || hot != 5 {
		t.Errorf("%d updates, of which %d are HOT; want 5 and 5", all, hot)
	}
}

// What is acknowledged is durable, whatever the role's settings say; what is refused has nothing to wait for.
func TestVerbsThatWriteCommitSynchronously(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	id, c := newID(), ask(driver.Hold)
	rec := claim(t, s, id, c)
	settled, err := s.settleCall(id, rec.Owner(), done("ok"), false)
	if err != nil {
		t.Fatal(err)
	}
	refused := c
	refused.Token = driver.NewToken()
	for _, row := range []struct {
		what string
		call *call
		want string
	}{
		{"claim", s.claimCall(newID(), ask(driver.Hold)), "on"},
		{"a claim repeated", s.claimCall(id, c), "on"},
		{"a claim refused", s.claimCall(id, refused), "off"},
		{"settle", settled, "on"},
		{"seize", (&call{sql: s.sql.seize}).bytes(id[:]).bytes(c.Token[:]), "on"},
		{"load", (&call{sql: s.sql.load}).bytes(id[:]), "off"},
	} {
		tx := begin(t, s, pgx.TxOptions{})
		if _, err := tx.Exec(context.Background(), "SET LOCAL synchronous_commit = off"); err != nil {
			t.Fatal(err)
		}
		inTx(t, tx, row.call)
		if got := txValue[string](t, s, tx, "SHOW synchronous_commit"); got != row.want {
			t.Errorf("after %s synchronous_commit is %s, want %s", row.what, got, row.want)
		}
		if err := tx.Rollback(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}
