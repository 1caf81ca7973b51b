package pgstore

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/driver"
)

// list returns the ids of the records that match.
func list(t testing.TB, s *Store, q driver.Query) map[driver.ID]bool {
	t.Helper()
	all := map[driver.ID]bool{}
	err := s.List(context.Background(), q, func(id driver.ID, _ driver.Record) bool {
		if all[id] {
			t.Errorf("%s is listed twice", id)
		}
		all[id] = true
		return true
	})
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	return all
}

func TestR52_SealedRequestsAreListed(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	clock := mover{pool: s.pool}
	sealed := ask(driver.Rerun)
	sealed.Sealed, sealed.Lease, sealed.Retention = []byte("request"), time.Hour, driver.Forever
	held, plain := sealed, sealed
	held.OnLost, plain.Sealed = driver.Hold, nil
	begun := driver.Extension{Lease: time.Hour, Begun: true}
	scope := newID().Scope()
	want := map[driver.Reading]map[driver.ID]bool{}
	for reading := range driver.ReadsExpired {
		want[reading] = map[driver.ID]bool{}
	}
	add := func(c driver.Claim, as driver.Reading, then func(id driver.ID, by driver.Owner)) {
		for inScope := range 2 {
			id := newID()
			if inScope == 1 {
				copy(id[:], scope[:])
			}
			rec := claim(t, s, id, c)
			if then != nil {
				then(id, rec.Owner())
			}
			if len(c.Sealed) > 0 {
				want[as][id], want[driver.ReadsAbsent][id] = true, true
			}
		}
	}
	ends := func(o driver.Outcome) func(driver.ID, driver.Owner) {
		return func(id driver.ID, by driver.Owner) { settle(t, s, id, by, o) }
	}
	for _, c := range []driver.Claim{sealed, plain} {
		add(c, driver.ReadsFree, nil) // it lapses
		add(c, driver.ReadsFree, ends(driver.Outcome{State: driver.Free, Owed: true}))
		add(c, driver.ReadsUnknown, ends(driver.Outcome{State: driver.Unknown}))
		if len(c.Sealed) == 0 { // nothing is sealed in a done record
			add(c, driver.ReadsDone, ends(done("answer")))
		}
		add(c, driver.ReadsDone, func(id driver.ID, by driver.Owner) {
			if owned, err := s.Extend(context.Background(), id, by, begun); !owned || err != nil {
				t.Fatalf("extend: %t, %v", owned, err)
			}
		})
	}
	add(held, driver.ReadsUnknown, nil)
	clock.advance(s.schema, 2*time.Hour)
	add(sealed, driver.ReadsRunning, nil)
	add(plain, driver.ReadsRunning, nil)

	for reading, ids := range want {
		if got := list(t, s, driver.Query{Sealed: true, Reading: reading}); !maps.Equal(got, ids) {
			t.Errorf("%d sealed records that read as %v, want %d", len(got), reading, len(ids))
		}
		maps.DeleteFunc(ids, func(id driver.ID, _ bool) bool { return id.Scope() != scope })
		if got := list(t, s, driver.Query{Sealed: true, Reading: reading, Scope: &scope}); !maps.Equal(got, ids) || len(got) == 0 {
			t.Errorf("%d sealed records of a scope that read as %v, want %d", len(got), reading, len(ids))
		}
	}
	if got := list(t, s, driver.Query{Sealed: true, Reading: driver.ReadsFree, Limit: 1}); len(got) != 1 {
		t.Errorf("%d records, want the one that was asked for", len(got))
	}
	if got := list(t, s, driver.Query{Sealed: true, Reading: driver.ReadsFree, Operation: "another"}); len(got) != 0 {
		t.Errorf("%d records of an operation that there is not", len(got))
	}
}

// Of many that began at the same time all are listed, over the pages. The others are not in the index by which they are
// found.
func TestR52_SealedRequestsAreFoundByTheirIndex(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	const n = 2*pageRows + 10
	exec(t, s, `INSERT INTO {schema}.records (fence, created, started, lease_end, settled, expires, retention, tombstone, attempt, layout, state,
		wrote, on_lost, begun, maybe, seized, steps, owed, id, token, fingerprint, operation, correlation, error, sealed)
		SELECT 1, 1, i % 3, 1, 1, 9000000000000000, 1000, 0, 1, 1, CASE WHEN i <= $1 THEN 3 ELSE 2 END,
		2, 1, false, false, false, false, false, sha256(i::text::bytea) || substr(sha256(i::text::bytea), 1, 16),
		substr(sha256(''), 1, 16), sha256('') || substr(sha256(''), 1, 8), '', '', '', 'sealed' FROM generate_series(1, 20000) i`, n)
	exec(t, s, "ANALYZE {schema}.records")
	if got := list(t, s, driver.Query{Sealed: true, Reading: driver.ReadsFree}); len(got) != n {
		t.Errorf("%d records are listed, want %d", len(got), n)
	}
	tx := begin(t, s, pgx.TxOptions{})
	var id driver.ID
	rows, err := tx.Query(context.Background(), "EXPLAIN "+s.sql.listSealed, pgx.QueryExecModeExec, int64(-1), id[:], int64(pageRows))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	plan := strings.Join(lines, "\n")
	if !strings.Contains(plan, "records_sealed") || strings.Contains(plan, "Seq Scan") {
		t.Errorf("the plan is\n%s", plan)
	}
}
