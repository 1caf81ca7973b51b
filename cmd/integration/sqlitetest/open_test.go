package sqlitetest

import (
	"bytes"
	"context"
	"database/sql"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/sqlitestore"
)

var again = verbs.Retry

// One connection can't be the store's and the application's; two can, and reading then takes turns with writing.
func TestR47_AConnectionIsLeftToTheApplication(t *testing.T) {
	t.Parallel()
	db := openDB(t, newFile(t), "")
	db.SetMaxOpenConns(1)
	if s, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{}); err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns") || s != nil {
		t.Errorf("Open with one connection: %v; want an error that names SetMaxOpenConns", err)
	}
	for allowed := 2; allowed < 8; allowed++ {
		db := openDB(t, newFile(t), "")
		db.SetMaxOpenConns(allowed)
		s, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{})
		if err != nil {
			t.Fatalf("%d connections: %v", allowed, err)
		}
		if left := allowed - db.Stats().InUse; left < 1 {
			t.Errorf("of %d connections %d are left", allowed, left)
		}
		execSQL(t, db, "SELECT 1")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Pages of a new file are small. Those of a file that the application has made stay as they are, and so do its rows.
func TestAFileKeepsThePageSizeThatItHas(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		made []string
		want int
	}{
		{"a new file", nil, 2048},
		{"an empty file in WAL mode", []string{"PRAGMA journal_mode = WAL"}, 4096},
		{"a file of the application's", []string{"CREATE TABLE goods (name TEXT)", "INSERT INTO goods VALUES ('tea')"}, 4096},
		{"one with large pages", []string{"PRAGMA page_size = 16384", "PRAGMA journal_mode = WAL", "CREATE TABLE goods (name TEXT)", "INSERT INTO goods VALUES ('tea')"}, 16384},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t)
			maker := openDB(t, path, "")
			maker.SetMaxOpenConns(1) // the page size is set on a connection
			for _, query := range row.made {
				execSQL(t, maker, query)
			}
			s, db := openStore(t, path, sqlitestore.Options{})
			verbs.Finish(t, s, newID(), ask(semel.Hold))
			var size int
			if err := db.QueryRow("PRAGMA page_size").Scan(&size); err != nil || size != row.want {
				t.Errorf("pages of %d bytes, error %v; want %d", size, err, row.want)
			}
			if len(row.made) > 1 {
				var name string
				if err := db.QueryRow("SELECT name FROM goods").Scan(&name); err != nil || name != "tea" {
					t.Errorf("the application's row is %q, error %v", name, err)
				}
			}
		})
	}
}

// In memory each connection would be a database of its own, or one without a log that others can read beside.
func TestADatabaseInMemoryIsRefused(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{":memory:", "file::memory:?cache=shared", "file:semel-memory?mode=memory&cache=shared"} {
		db, err := sql.Open("sqlite", dsn)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{}); err == nil || !strings.Contains(err.Error(), "must be a file") {
			t.Errorf("%s: %v; want an error that asks for a file", dsn, err)
		}
		db.Close()
	}
}

// The store does not trust the data source name: its own connections sync each commit.
func TestTheStoreSetsUpItsConnections(t *testing.T) {
	t.Parallel()
	db := openDB(t, newFile(t), "_pragma=synchronous(0)")
	s, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var mode string
	if err := db.QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
		t.Errorf("the journal is in mode %q (%v), want wal", mode, err)
	}
	var level int
	if err := db.QueryRow("PRAGMA synchronous").Scan(&level); err != nil || level != 0 {
		t.Errorf("synchronous is %d on the application's connections (%v), want what it asked for", level, err)
	}
	// A transaction is the store's while it lasts.
	err = s.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		if err := tx.QueryRow("PRAGMA synchronous").Scan(&level); err != nil || level != 2 {
			t.Errorf("synchronous is %d in a transaction (%v), want 2, which is FULL", level, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxIdleConns(1)
	if err := db.QueryRow("PRAGMA synchronous").Scan(&level); err != nil || level != 0 {
		t.Errorf("synchronous is %d after a transaction (%v), want what it was", level, err)
	}
}

func schema(t *testing.T, db *sql.DB) (all []string) {
	t.Helper()
	rows, err := db.Query("SELECT type || ' ' || name || ': ' || coalesce(sql, '') FROM sqlite_master ORDER BY 1")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// The files make what Open makes.
func TestMigrationsCanBeRunByHand(t *testing.T) {
	t.Parallel()
	byHand := newFile(t)
	db := openDB(t, byHand, "")
	_, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{NoMigration: true})
	wants(t, "Open of an empty database without migration", err, sqlitestore.ErrVersion)
	if got := schema(t, db); len(got) != 0 {
		t.Fatalf("it has made %q", got)
	}
	files := sqlitestore.Migrations(0)
	names, err := fs.Glob(files, "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		sql, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		execSQL(t, db, string(sql))
	}
	s, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{NoMigration: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	claim(t, s, newID(), ask(semel.Hold))

	_, other := openStore(t, newFile(t), sqlitestore.Options{})
	if got, want := schema(t, db), schema(t, other); !slices.Equal(got, want) || len(got) < 5 {
		t.Errorf("by hand: %q\nby Open: %q", got, want)
	}
	// Opened again, it is as it was.
	before := schema(t, other)
	s2, err := sqlitestore.Open(t.Context(), other, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s2.Close()
	if got := schema(t, other); !slices.Equal(got, before) {
		t.Errorf("opened again: %q\nbefore: %q", got, before)
	}
}

// Processes that open a new file at once wait for each other.
func TestManyMigrateAtOnce(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			if i%2 == 0 {
				r := openRemote(t, path, nil)
				claim(t, r, newID(), ask(semel.Hold))
				return
			}
			db := openDB(t, path, "")
			s, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			claim(t, s, newID(), ask(semel.Hold))
			s.Close()
		})
	}
	wg.Wait()
	s, _ := openStore(t, path, sqlitestore.Options{})
	if n, err := s.Count(t.Context()); err != nil || n.Records != 6 || n.Running != 6 {
		t.Errorf("%+v, %v; want 6 records", n, err)
	}
}

// The machine's clock is set back by an hour while no process runs. Nothing is lost, leases go on ending as time
// passes, and who looks after the machine is told.
func TestR50_AClockSetBackByAnHourHoldsNothingUp(t *testing.T) {
	t.Parallel()
	path, c := newFile(t), newClock()
	s, _ := openStore(t, path, sqlitestore.Options{Clock: c.Now})
	lapsing, kept := newID(), newID()
	ran := ask(semel.Rerun)
	ran.Lease = 30 * time.Second
	before := claim(t, s, lapsing, ran)
	rec := claim(t, s, kept, ask(semel.Hold))
	settled := settle(t, s, kept, rec.Owner(), done("answer"))

	c.Advance(-time.Hour)
	var logged bytes.Buffer
	s2, _ := openStore(t, path, sqlitestore.Options{Clock: c.Now, Log: slog.New(slog.NewTextHandler(&logged, nil))})
	if text := logged.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "2030-02-03T04:05:06.789") || !strings.Contains(text, "2030-02-03T03:05:06.789") {
		t.Errorf("logged %q; want a warning with both times", text)
	}
	for _, s := range []*sqlitestore.Store{s, s2} { // the one that was open goes on as well
		if now := load(t, s, kept).Now; now < settled.Settled {
			t.Errorf("the clock shows %s, before %s, which was written", now.Time(), settled.Settled.Time())
		}
	}
	if _, owned, err := s2.Claim(t.Context(), lapsing, again(ran)); owned || err != nil {
		t.Errorf("a run whose lease goes on was taken over (%v)", err)
	}
	c.Advance(31 * time.Second)
	after := claim(t, s2, lapsing, again(ran))
	if after.Fence != before.Fence+1 || after.Started < before.LeaseEnd {
		t.Errorf("taken over with fence %d after %d, at %s, the lease was over at %s", after.Fence, before.Fence, after.Started.Time(), before.LeaseEnd.Time())
	}
	c.Advance(time.Hour)
	if n, err := s2.Sweep(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("after its retention %d records were swept (%v), want 1", n, err)
	}
}

// A clock set forward by an hour, in a process that runs, ends no lease: by default time is what passes.
func TestR50_ElapsedTimeCountsNotTheMachinesClock(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s, db := openStore(t, path, sqlitestore.Options{})
	id, c := newID(), ask(semel.Rerun)
	c.Lease = 10 * time.Minute
	rec := claim(t, s, id, c)
	// Another process, started after the clock was set forward by five minutes, has written.
	ahead := int64(rec.Now.Add(5 * time.Minute))
	execSQL(t, db, "UPDATE semel_meta SET clock = ?", ahead)
	next := claim(t, s, newID(), ask(semel.Hold))
	if next.Started < driver.Time(ahead) {
		t.Errorf("the clock shows %s behind %s, which was written", next.Started.Time(), driver.Time(ahead).Time())
	}
	if got := load(t, s, id); got.Reads(semel.Rerun) != driver.ReadsRunning {
		t.Errorf("the run reads as %s", got.Reads(semel.Rerun))
	}
}
