package sqlitetest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/sqlitestore"
)

// execSQL runs SQL behind the store's back.
func execSQL(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// lock takes the write lock on the file with a connection of its own, until the function that it returns is called.
func lock(t testing.TB, path string) (release func()) {
	t.Helper()
	conn, err := openDB(t, path, "").Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(context.Background(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		if _, err := conn.ExecContext(context.Background(), "ROLLBACK"); err != nil {
			t.Error(err)
		}
		conn.Close()
	})
}

// wants fails unless err wraps all of the kinds.
func wants(t testing.TB, what string, err error, kinds ...error) {
	t.Helper()
	for _, kind := range kinds {
		if !errors.Is(err, kind) {
			t.Errorf("%s: error %v, want one that wraps %v", what, err, kind)
		}
	}
}

func TestALockedDatabaseIsSaidToBeLocked(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s, _ := openStore(t, path, sqlitestore.Options{})
	id := newID()
	rec := claim(t, s, id, ask(semel.Hold))
	release := lock(t, path)
	defer release()
	// The second wait is for the lock, after a try to get it.
	_, owned, err := s.Settle(endAt(t.Context(), 2), id, rec.Owner(), done("late"))
	wants(t, "Settle", err, sqlitestore.ErrLocked, context.DeadlineExceeded)
	if owned {
		t.Error("a settle that was not executed owns the record")
	}
	// What needs no lock is served meanwhile: looking, and refusing.
	if got := load(t, s, id); got.State != driver.Running {
		t.Errorf("the record is %s, want running", got.State)
	}
	if _, owned, err := s.Claim(t.Context(), id, ask(semel.Hold)); owned || err != nil {
		t.Errorf("a claim that is refused: owned is %t, error %v", owned, err)
	}
	release()
	settle(t, s, id, rec.Owner(), done("in time"))
}

// A caller that leaves while the database is locked leaves nothing behind that is executed later, and hands the lead
// on.
func TestCase08_ACallerThatLeavesTheLineHurtsNobody(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s, _ := openStore(t, path, sqlitestore.Options{})
	release := lock(t, path)
	defer release()
	var left, wg sync.WaitGroup
	var gone, stay [8]driver.ID
	var leave [8]context.CancelFunc
	for i := range gone {
		gone[i], stay[i] = newID(), newID()
		load(t, s, gone[i])
		load(t, s, stay[i])
		leaving := watch(t, 2) // once it has looked, and waits to write
		leaving.Context, leave[i] = context.WithCancel(leaving.Context)
		left.Go(func() {
			if _, owned, err := s.Claim(leaving, gone[i], ask(semel.Hold)); !errors.Is(err, context.Canceled) || owned {
				t.Errorf("a claim whose caller left: owned is %t, error %v", owned, err)
			}
		})
		<-leaving.waits // the first of all leads
		staying := watch(t, 2)
		wg.Go(func() {
			if _, owned, err := s.Claim(staying, stay[i], ask(semel.Hold)); err != nil || !owned {
				t.Errorf("a claim whose caller stayed: owned is %t, error %v", owned, err)
			}
		})
		<-staying.waits
	}
	for _, leave := range leave {
		leave()
	}
	left.Wait() // though the database is still locked
	release()
	wg.Wait()
	for i := range gone {
		if got := load(t, s, gone[i]); got.State != driver.Absent {
			t.Errorf("a claim that had not begun when its caller left was executed: the record is %s", got.State)
		}
		if got := load(t, s, stay[i]); got.State != driver.Running {
			t.Errorf("the record is %s, want running", got.State)
		}
	}
}

func TestR60_AFullDatabaseRefusesNewKeysAndKeepsLiveOnes(t *testing.T) {
	t.Parallel()
	s, err := sqlitestore.Open(t.Context(), openDB(t, newFile(t), "_pragma=max_page_count(80)"), sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var ended [4]driver.ID
	var owners [4]driver.Owner
	for i := range ended {
		ended[i] = newID()
		rec := claim(t, s, ended[i], ask(semel.Hold))
		owners[i] = rec.Owner()
		settle(t, s, ended[i], owners[i], done(strings.Repeat("x", 20_000)))
	}
	var ids []driver.ID
	var recs []driver.Record
	for {
		id := newID()
		rec, owned, err := s.Claim(t.Context(), id, ask(semel.Hold))
		if err != nil {
			wants(t, "Claim", err, driver.ErrFull, sqlitestore.ErrDiskFull)
			if got := load(t, s, id); owned || got.State != driver.Absent {
				t.Errorf("a claim that did not fit: owned is %t, the record is %s", owned, got.State)
			}
			break
		}
		if ids, recs = append(ids, id), append(recs, rec); len(ids) > 10_000 {
			t.Fatal("the database is not full after 10000 claims")
		}
	}
	if len(ids) < 10 {
		t.Fatalf("%d records fit", len(ids))
	}
	_, _, err = s.Settle(t.Context(), ids[0], recs[0].Owner(), done(strings.Repeat("x", 1<<20)))
	wants(t, "Settle with an answer", err, driver.ErrFull)
	for i, id := range ids {
		if got := load(t, s, id); got.State != driver.Running || got.Token != recs[i].Token {
			t.Fatalf("record %d of %d is lost", i, len(ids))
		}
	}
	// Room that is given free is used again.
	for i, id := range ended {
		if forgot, err := s.Forget(t.Context(), id, owners[i]); err != nil || !forgot {
			t.Fatalf("Forget: %t, %v", forgot, err)
		}
	}
	settle(t, s, ids[0], recs[0].Owner(), driver.Outcome{State: driver.Done})
	settle(t, s, ids[1], recs[1].Owner(), done("small"))
	claim(t, s, newID(), ask(semel.Hold))
}

// Verbs that share a commit do not share their failures: one that does not fit, or whose record is damaged, fails
// alone.
func TestOneThatFailsDoesNotFailItsGroup(t *testing.T) {
	t.Parallel()
	db := openDB(t, newFile(t), "_pragma=max_page_count(300)")
	s, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const n, tooLarge, damaged = 24, 12, 16
	var ids [n]driver.ID
	var recs [n]driver.Record
	for i := range ids {
		ids[i] = newID()
		recs[i] = claim(t, s, ids[i], ask(semel.Hold))
	}
	execSQL(t, db, "UPDATE semel_records SET record = x'00' WHERE id = ?", ids[damaged][:])
	// All wait in the line behind a transaction, and are executed together when that ends.
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var errs [n]error
	for i := range ids {
		ctx := watch(t, 1)
		wg.Go(func() {
			o := done("small")
			if i == tooLarge {
				o = done(strings.Repeat("x", 4<<20))
			}
			_, _, errs[i] = s.Settle(ctx, ids[i], recs[i].Owner(), o)
		})
		<-ctx.waits
	}
	tx.Rollback()
	wg.Wait()
	for i, err := range errs {
		switch i {
		case tooLarge:
			wants(t, "the settle that does not fit", err, driver.ErrFull)
			if got := load(t, s, ids[i]); got.State != driver.Running {
				t.Errorf("the record is %s", got.State)
			}
		case damaged:
			wants(t, "the settle of a damaged record", err, driver.ErrUnreadable)
		default:
			if got := load(t, s, ids[i]); err != nil || got.State != driver.Done {
				t.Errorf("a settle in the same group: %v, the record is %s", err, got.State)
			}
		}
	}
}

func TestAReadOnlyDatabaseIsSaidToBeReadOnly(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	execSQL(t, openDB(t, path, ""), "CREATE TABLE orders (id)")
	_, err := sqlitestore.Open(t.Context(), openDB(t, path, "mode=ro"), sqlitestore.Options{})
	wants(t, "Open", err, sqlitestore.ErrReadOnly)

	ro := openDB(t, path, "_pragma=query_only(1)")
	_, err = sqlitestore.Open(t.Context(), ro, sqlitestore.Options{})
	wants(t, "Open of a database that may only be queried", err, sqlitestore.ErrReadOnly)
}

func TestAFileThatIsNoDatabaseIsSaidToBeNone(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	content := []byte(strings.Repeat("This is a letter to my aunt. ", 500))
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := sqlitestore.Open(t.Context(), openDB(t, path, ""), sqlitestore.Options{})
	wants(t, "Open", err, sqlitestore.ErrCorrupt)
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the file was changed (%v)", err)
	}
}

// What is damaged is never taken for absent: not a record, nor the pages that it is in (R-41a).
func TestR41a_DamageIsNeverAbsence(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s, db := openStore(t, path, sqlitestore.Options{})
	id, c := newID(), ask(semel.Hold)
	rec := claim(t, s, id, c)
	settle(t, s, id, rec.Owner(), done("first"))
	fine := newID()
	claim(t, s, fine, ask(semel.Hold))
	execSQL(t, db, "UPDATE semel_records SET record = substr(record, 1, 200) || x'00' || substr(record, 202) WHERE id = ?", id[:])

	_, err := s.Load(t.Context(), id)
	wants(t, "Load", err, driver.ErrUnreadable)
	_, owned, err := s.Claim(t.Context(), id, ask(semel.Rerun))
	wants(t, "Claim", err, driver.ErrUnreadable)
	if owned {
		t.Error("a damaged record was claimed")
	}
	_, _, err = s.Settle(t.Context(), id, rec.Owner(), done("second"))
	wants(t, "Settle", err, driver.ErrUnreadable)
	_, err = s.Extend(t.Context(), id, rec.Owner(), driver.Extension{})
	wants(t, "Extend", err, driver.ErrUnreadable)
	_, err = s.Seize(t.Context(), id, driver.NewToken())
	wants(t, "Seize", err, driver.ErrUnreadable)
	_, err = s.Forget(t.Context(), id, rec.Owner())
	wants(t, "Forget", err, driver.ErrUnreadable)
	listed := 0
	err = s.List(t.Context(), driver.Query{}, func(got driver.ID, _ driver.Record) bool {
		listed++
		return got == fine
	})
	wants(t, "List", err, driver.ErrUnreadable)
	if listed != 1 || !strings.Contains(err.Error(), id.String()) {
		t.Errorf("List gave %d records and says %v; want the readable one, and the id of the other", listed, err)
	}
}

func TestR41a_ADamagedFileIsSaidToBeDamaged(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s, db := openStore(t, path, sqlitestore.Options{})
	var ids []driver.ID
	for range 400 {
		id := newID()
		claim(t, s, id, ask(semel.Hold))
		ids = append(ids, id)
	}
	execSQL(t, db, "PRAGMA wal_checkpoint(TRUNCATE)")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	// All pages but the first, with the schema, are overwritten as a failing disk would.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, int(info.Size())-4096), 4096); err != nil {
		t.Fatal(err)
	}
	f.Close()
	other := openDB(t, path, "") // caches nothing yet
	_, err = sqlitestore.Open(t.Context(), other, sqlitestore.Options{})
	wants(t, "Open", err, sqlitestore.ErrCorrupt)
	execSQL(t, db, "PRAGMA wal_checkpoint") // the log has nothing that would help
	_, owned, err := s.Claim(t.Context(), ids[7], ask(semel.Rerun))
	if owned {
		t.Errorf("a record in a damaged file was claimed (%v)", err)
	}
}

func TestANewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s, db := openStore(t, path, sqlitestore.Options{})
	claim(t, s, newID(), ask(semel.Hold))
	execSQL(t, db, "UPDATE semel_meta SET version = 4711")
	_, err := sqlitestore.Open(t.Context(), openDB(t, path, ""), sqlitestore.Options{})
	wants(t, "Open", err, sqlitestore.ErrVersion)
	if !strings.Contains(err.Error(), "4711") || !strings.Contains(err.Error(), " 1") {
		t.Errorf("%v; want both versions", err)
	}
	claim(t, s, newID(), ask(semel.Hold)) // a process of the version before goes on
}

func TestAMissingFolderIsSaidToBeTheFault(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "missing", "semel.db")
	_, err := sqlitestore.Open(t.Context(), openDB(t, path, ""), sqlitestore.Options{})
	wants(t, "Open", err, sqlitestore.ErrUnopened)
}

func TestAClosedStoreSaysSo(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	db := openDB(t, path, "")
	s, err := sqlitestore.Open(t.Context(), db, sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if db.Stats().InUse < 2 {
		t.Errorf("%d connections are in use, want those of the store", db.Stats().InUse)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Errorf("Close, twice: %v", err)
	}
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections are still in use", n)
	}
	ctx := t.Context()
	_, _, err = s.Claim(ctx, newID(), ask(semel.Hold))
	wants(t, "Claim", err, sqlitestore.ErrClosed)
	_, err = s.Extend(ctx, newID(), driver.Owner{}, driver.Extension{})
	wants(t, "Extend", err, sqlitestore.ErrClosed)
	_, err = s.Load(ctx, newID())
	wants(t, "Load", err, sqlitestore.ErrClosed)
	_, err = s.Sweep(ctx, 1)
	wants(t, "Sweep", err, sqlitestore.ErrClosed)
	_, err = s.Begin(ctx)
	wants(t, "Begin", err, sqlitestore.ErrClosed)
	_, err = s.Count(ctx)
	wants(t, "Count", err, sqlitestore.ErrClosed)
	execSQL(t, db, "SELECT 1") // the DB is the caller's

	db.Close()
	_, err = sqlitestore.Open(ctx, db, sqlitestore.Options{})
	wants(t, "Open of a closed DB", err, sqlitestore.ErrClosed)
}
