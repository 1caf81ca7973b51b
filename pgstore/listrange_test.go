package pgstore

import (
	"context"
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/driver"
)

// Of a principal's many operations, or of all whose ids begin alike, each is listed once, over the pages; the others
// are not looked at.
func TestField14_APrefixIsARangeOfThePrimaryKey(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	const n = 2*pageRows + 10
	sum := sha256.Sum256([]byte("acme"))
	exec(t, s, `INSERT INTO {schema}.records (fence, created, started, lease_end, settled, expires, retention, tombstone, attempt, layout, state,
		wrote, on_lost, begun, maybe, seized, steps, owed, id, token, fingerprint, operation, correlation, error)
		SELECT 1, 1, 1, 1, 1, 9000000000000000, 1000, 0, 1, 1, 2,
		2, 1, false, false, false, false, false,
		CASE WHEN i <= $1 THEN substr(sha256('acme'), 1, 16) ELSE substr(sha256(i::text::bytea), 1, 16) END || sha256(i::text::bytea),
		substr(sha256(''), 1, 16), sha256('') || substr(sha256(''), 1, 8), CASE WHEN i % 3 = 0 THEN 'POST /third' ELSE '' END::bytea, CASE WHEN i % 2 = 0 THEN 'even' ELSE 'odd' END::bytea, ''
		FROM generate_series(1, 20000) i`, n)
	exec(t, s, "ANALYZE {schema}.records")
	id := driver.ID(append(sum[:16:16], sum[:]...))
	scope, prefix := id.Scope(), id.String()[:21]
	for name, c := range map[string]struct {
		q    driver.Query
		want int
	}{
		"of a scope":            {driver.Query{Scope: &scope}, n},
		"with a prefix":         {driver.Query{Prefix: prefix}, n},
		"and a correlation id":  {driver.Query{Prefix: prefix, Correlation: "even"}, n / 2},
		"that have another one": {driver.Query{Prefix: prefix, Correlation: "none"}, 0},
		"of an operation":       {driver.Query{Prefix: prefix, Operation: "POST /third"}, n / 3},
		"that are done":         {driver.Query{Prefix: prefix, Reading: driver.ReadsDone}, 0},
		"that have expired":     {driver.Query{Prefix: prefix, Reading: driver.ReadsExpired}, 0},
	} {
		if got := list(t, s, c.q); len(got) != c.want {
			t.Errorf("those %s: %d are listed, want %d", name, len(got), c.want)
		}
	}

	first, last, _ := (&driver.Query{Prefix: prefix}).Range()
	tx := begin(t, s, pgx.TxOptions{})
	rows, err := tx.Query(context.Background(), "EXPLAIN "+s.sql.listRange, pgx.QueryExecModeExec, false, []byte("even"), []byte{}, stateBits(driver.ReadsAbsent), first[:], last[:], int64(pageLooks))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if plan := strings.Join(lines, "\n"); !strings.Contains(plan, "records_pkey") || strings.Contains(plan, "Seq Scan") {
		t.Errorf("the plan is\n%s", plan)
	}
}
