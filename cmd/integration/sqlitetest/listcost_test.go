package sqlitetest

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/sqlitestore"
)

// A overheard database notes the queries that it is asked.
type overheard struct {
	driver sqldriver.Driver
	dsn    string

	mu    sync.Mutex
	asked map[string][]any
}

func (w *overheard) Connect(context.Context) (sqldriver.Conn, error) {
	c, err := w.driver.Open(w.dsn)
	if err != nil {
		return nil, err
	}
	return &overheardConn{c.(fullConn), w}, nil
}

func (w *overheard) Driver() sqldriver.Driver { return w.driver }

type fullConn interface {
	sqldriver.Conn
	sqldriver.QueryerContext
	sqldriver.ExecerContext
	sqldriver.ConnPrepareContext
	sqldriver.ConnBeginTx
}

type overheardConn struct {
	fullConn
	by *overheard
}

func (c *overheardConn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	c.by.mu.Lock()
	c.by.asked[query] = values
	c.by.mu.Unlock()
	return c.fullConn.QueryContext(ctx, query, args)
}

// What is looked for again and again costs what there is of it: no query goes through the table, or through an index
// that has the records that are done.
func TestALookForWhatWaitsReadsNoDoneRecords(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	plain := openDB(t, path, "")
	w := &overheard{driver: plain.Driver(), dsn: dataSource(path, ""), asked: map[string][]any{}}
	s, err := sqlitestore.Open(t.Context(), sql.OpenDB(w), sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // the test is over
	run := func(sealed string, o driver.Outcome) (id driver.ID) {
		id = newID()
		c := ask(semel.Rerun)
		c.Sealed = []byte(sealed)
		rec := claim(t, s, id, c)
		if o.State != driver.Absent {
			settle(t, s, id, rec.Owner(), o)
		}
		return id
	}
	run("sealed", driver.Outcome{State: driver.Done})
	unknown := run("", driver.Outcome{State: driver.Unknown})
	free := run("sealed", driver.Outcome{State: driver.Free, Owed: true})
	running := run("", driver.Outcome{})
	execSQL(t, plain, `INSERT INTO semel_records (id, state, started, expires, sealed, record)
		SELECT randomblob(48), 2, started, 9000000000000000, 0, x'00' FROM semel_records, (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT i FROM n)
		WHERE state = 2`)
	execSQL(t, plain, "ANALYZE")
	clear(w.asked)
	for want, q := range map[driver.ID]driver.Query{
		unknown: {Reading: driver.ReadsUnknown},
		free:    {Reading: driver.ReadsFree, Sealed: true},
		running: {Reading: driver.ReadsRunning},
	} {
		n := 0
		err := s.List(t.Context(), q, func(id driver.ID, _ driver.Record) bool {
			if n++; id != want {
				t.Errorf("%+v: listed is %s, want %s", q, id, want)
			}
			return true
		})
		if err != nil || n != 1 { // the records that are done can't be read
			t.Errorf("%+v: %d records, error %v", q, n, err)
		}
	}
	if _, err := s.Count(t.Context()); err != nil {
		t.Error(err)
	}
	if len(w.asked) < 4 {
		t.Fatalf("%d queries were asked", len(w.asked))
	}
	for query, args := range w.asked {
		rows, err := plain.Query("EXPLAIN QUERY PLAN "+query, args...)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var a, b, c int
			var step string
			if err := rows.Scan(&a, &b, &c, &step); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(step, "SCAN semel_records") && !strings.HasSuffix(step, "_live") && !strings.HasSuffix(step, "_sealed") {
				t.Errorf("%s: %s", query, step)
			}
		}
		rows.Close()
	}
}

// A listing by operation, correlation id or state decodes only what may match, over pages of which nothing matches.
func TestAListingReadsOnlyWhatMayMatch(t *testing.T) {
	t.Parallel()
	s, db := openStore(t, newFile(t), sqlitestore.Options{})
	wanted := ask(semel.Hold)
	wanted.Operation, wanted.Correlation = "PUT /quotes", "trace-9"
	id := newID()
	claim(t, s, id, wanted)
	rec := claim(t, s, newID(), ask(semel.Hold))
	execSQL(t, db, `INSERT INTO semel_records (id, state, started, expires, sealed, record)
		SELECT id || zeroblob(8) || cast(i AS BLOB), 1, started, NULL, 0, x'00' FROM semel_records, (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) SELECT i FROM n)
		WHERE started = ?`, int64(rec.Started))
	last := newID()
	claim(t, s, last, again(wanted))
	scope := last.Scope()
	for _, row := range []struct {
		q    driver.Query
		want int
	}{
		{driver.Query{Operation: "PUT /quotes"}, 2},
		{driver.Query{Correlation: "trace-9"}, 2},
		{driver.Query{Reading: driver.ReadsDone}, 0},
		{driver.Query{Scope: &scope, Operation: "PUT /quotes"}, 1},
	} {
		n := 0
		if row.q.Reading == driver.ReadsDone {
			execSQL(t, db, "UPDATE semel_records SET state = 3 WHERE record = x'00'")
		}
		err := s.List(t.Context(), row.q, func(driver.ID, driver.Record) bool { n++; return true })
		if err != nil || n != row.want {
			t.Errorf("%+v: %d records, want %d; error %v", row.q, n, row.want, err)
		}
	}
}
