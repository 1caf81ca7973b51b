package pgstore

import (
	"fmt"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/pgstore/internal/composite"
)

// layoutVersion is the newest layout of a row that this version can read.
const layoutVersion = 1

// A found is what a verb's function returns.
type found struct {
	rec     driver.Record
	owned   bool
	written bool  // by this call; rec is then without its answer
	day     int32 // the partition that has the answer, if it is kept apart and was not read; 0 if not
}

// foundColumns are the columns of the type found_1.
const foundColumns = 28

// readFound decodes a value of the type found_1. An error wraps [driver.ErrUnreadable], and rec is then only what the
// clock says.
func readFound(value []byte) (f found, err error) {
	row, err := composite.Fields(value)
	if err != nil {
		return found{}, err
	}
	if len(row) != foundColumns {
		return found{}, fmt.Errorf("the row has %d columns, want %d", len(row), foundColumns)
	}
	f.owned, f.written = boolOf(row[0]), boolOf(row[1])
	f.rec.Now = driver.Time(int8Of(row[2]))
	if row[3] == nil {
		f.rec.Fence = uint64(int8Of(row[12])) // the one that is remembered, if the function says so
		return f, nil                         // there is no record
	}
	if err := f.decode(row); err != nil {
		return found{rec: driver.Record{Now: f.rec.Now}}, fmt.Errorf("%w: %w", driver.ErrUnreadable, err)
	}
	return f, nil
}

func (f *found) decode(row [][]byte) error {
	if layout := int2Of(row[3]); layout > layoutVersion {
		return fmt.Errorf("layout is readable from version %d on, this is %d", layout, layoutVersion)
	}
	r := &f.rec
	state, wrote, onLost := int2Of(row[4]), int2Of(row[5]), int2Of(row[6])
	attempt := int8Of(row[13])
	token, print := row[21], row[22]
	switch {
	case state < int16(driver.Running) || state > int16(driver.Unknown):
		return fmt.Errorf("state is %d", state)
	case wrote < 0 || wrote > int16(driver.Unknown) || wrote == int16(driver.Running):
		return fmt.Errorf("outcome is %d", wrote)
	case onLost < 0 || onLost > int16(driver.Rerun):
		return fmt.Errorf("policy is %d", onLost)
	case attempt < 0 || attempt > 1<<32-1:
		return fmt.Errorf("attempt is %d", attempt)
	case len(token) != len(r.Token):
		return fmt.Errorf("token has %d bytes", len(token))
	case len(print) != len(r.Fingerprint.Raw)+len(r.Fingerprint.Canonical)+len(r.Fingerprint.Settings):
		return fmt.Errorf("fingerprint has %d bytes", len(print))
	}
	r.State, r.Wrote, r.OnLost = driver.State(state), driver.State(wrote), driver.LostPolicy(onLost)
	r.Begun, r.Maybe, r.Seized = boolOf(row[7]), boolOf(row[8]), boolOf(row[9])
	r.Steps, r.Owed = boolOf(row[10]), boolOf(row[11])
	r.Fence = uint64(int8Of(row[12]))
	r.Attempt = uint32(attempt)
	r.Created, r.Started = driver.Time(int8Of(row[14])), driver.Time(int8Of(row[15]))
	r.LeaseEnd, r.Settled = driver.Time(int8Of(row[16])), driver.Time(int8Of(row[17]))
	r.Retention, r.Tombstone = time.Duration(int8Of(row[18])), time.Duration(int8Of(row[19]))
	f.day = int4Of(row[20])
	r.Token = driver.Token(token)
	r.Fingerprint = fingerprintOf(print)
	r.Operation, r.Correlation, r.Error = string(row[23]), string(row[24]), string(row[25])
	switch {
	case row[26] != nil:
		answer, err := decodeAnswer(row[26])
		if err != nil {
			return err
		}
		r.Response, f.day = answer, 0
	case f.day != 0 && !f.written && r.Reads(r.OnLost) == driver.ReadsDone:
		return fmt.Errorf("the answer is missing in the partition of day %d", f.day)
	}
	if row[27] != nil {
		r.Sealed = append([]byte{}, row[27]...)
	}
	return nil
}

func fingerprintOf(b []byte) (f driver.Fingerprint) {
	n := copy(f.Raw[:], b)
	n += copy(f.Canonical[:], b[n:])
	copy(f.Settings[:], b[n:])
	return f
}

func fingerprintBytes(f driver.Fingerprint) []byte {
	b := append(f.Raw[:], f.Canonical[:]...)
	return append(b, f.Settings[:]...)
}
