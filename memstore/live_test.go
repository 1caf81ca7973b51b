package memstore

import (
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
)

// A look for what runs or waits reads those records and no others, however many are done.
func TestALookForWhatWaitsReadsNoDoneRecords(t *testing.T) {
	t.Parallel()
	s := New()
	run := func(sealed string, o driver.Outcome) (id driver.ID) {
		id = verbs.NewID()
		c := verbs.Ask(driver.Rerun)
		c.Sealed = []byte(sealed)
		rec := verbs.Claim(t, s, id, c)
		if o.State != driver.Absent {
			verbs.Settle(t, s, id, rec.Owner(), o)
		}
		return id
	}
	for range 100_000 {
		run("", driver.Outcome{State: driver.Done})
	}
	run("sealed", driver.Outcome{State: driver.Done})
	run("", driver.Outcome{State: driver.Free})
	unknown := run("", driver.Outcome{State: driver.Unknown})
	free := run("sealed", driver.Outcome{State: driver.Free})
	running := run("", driver.Outcome{})

	first, last, _ := (&driver.Query{}).Range()
	read := 0
	for i := range s.shards {
		read += len(s.shards[i].ids(first, last, true))
	}
	if read != 3 {
		t.Errorf("a look reads %d records, want the 3 that run or wait", read)
	}
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
		if err != nil || n != 1 {
			t.Errorf("%+v: %d records, error %v", q, n, err)
		}
	}
}
