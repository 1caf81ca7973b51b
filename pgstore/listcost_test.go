package pgstore

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/driver"
)

// What is looked for again and again costs what there is of it: beside 100 000 records that are done, each look reads a
// few pages of the thousands that they take.
func TestALookForWhatWaitsReadsNoDoneRecords(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	exec(t, s, `INSERT INTO {schema}.records (fence, created, started, lease_end, settled, expires, retention, tombstone, attempt, layout, state,
		wrote, on_lost, begun, maybe, seized, steps, owed, id, token, fingerprint, operation, correlation, error)
		SELECT 1, 1, i, 1, 1, 9000000000000000, 1000, 0, 1, 1, 2,
		2, 1, false, false, false, false, false, sha256(i::text::bytea) || substr(sha256(i::text::bytea), 1, 16),
		substr(sha256(''), 1, 16), sha256('') || substr(sha256(''), 1, 8), 'POST /payments', '', '' FROM generate_series(1, 100000) i`)
	run := func(sealed string, o driver.Outcome) (id driver.ID) {
		id = newID()
		c := ask(driver.Rerun)
		c.Sealed = []byte(sealed)
		rec := claim(t, s, id, c)
		if o.State != driver.Absent {
			settle(t, s, id, rec.Owner(), o)
		}
		return id
	}
	unknown := run("", driver.Outcome{State: driver.Unknown})
	free := run("sealed", driver.Outcome{State: driver.Free, Owed: true})
	running := run("", driver.Outcome{})
	exec(t, s, "VACUUM ANALYZE {schema}.records")
	for want, q := range map[driver.ID]driver.Query{
		unknown: {Reading: driver.ReadsUnknown},
		free:    {Reading: driver.ReadsFree, Sealed: true},
		running: {Reading: driver.ReadsRunning},
	} {
		if got := list(t, s, q); len(got) != 1 || !got[want] {
			t.Errorf("%+v: %d records are listed, want one", q, len(got))
		}
	}

	var none driver.ID
	anything := []any{false, []byte{}, []byte{}, stateBits(driver.ReadsAbsent)}
	for name, c := range map[string]struct {
		sql  string
		args []any
	}{
		"what runs":                 {s.sql.listLive, anything},
		"what is unknown":           {s.sql.listLost, anything},
		"what a completer finishes": {s.sql.listSealed, []any{int64(-1), none[:], int64(pageRows)}},
		"what metrics tell":         {s.sql.count, nil},
	} {
		tx := begin(t, s, pgx.TxOptions{})
		var plan []byte
		args := append([]any{pgx.QueryExecModeExec}, c.args...)
		if err := tx.QueryRow(context.Background(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+c.sql, args...).Scan(&plan); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var read []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		if err := json.Unmarshal(plan, &read); err != nil || len(read) != 1 {
			t.Fatalf("%s: %v", name, err)
		}
		if pages := read[0].Plan.Hit + read[0].Plan.Read; pages == 0 || pages > 500 {
			t.Errorf("%s: %d pages are read\n%s", name, pages, plan)
		}
		if err := tx.Rollback(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
