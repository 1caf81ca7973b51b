package sqlitestore

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/semelhq/semel/driver"
)

type codedError int

func (e codedError) Error() string { return fmt.Sprint("code ", int(e)) }
func (e codedError) Code() int     { return int(e) }

// Drivers tell the kind of an error by its code, extended or not, or by SQLite's own text.
func TestErrorsGetTheSentinelOfTheirKind(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err  error
		want error
	}{
		{codedError(5), ErrLocked},
		{codedError(5 | 2<<8), ErrLocked}, // SQLITE_BUSY_SNAPSHOT
		{codedError(6), ErrLocked},
		{codedError(8 | 1<<8), ErrReadOnly},
		{codedError(11), ErrCorrupt},
		{codedError(26), ErrCorrupt},
		{codedError(13), ErrDiskFull},
		{codedError(14), ErrUnopened},
		{errors.New("database is locked"), ErrLocked},
		{errors.New("sqlite3: database is locked"), ErrLocked},
		{errors.New("attempt to write a readonly database"), ErrReadOnly},
		{errors.New("database disk image is malformed"), ErrCorrupt},
		{errors.New("file is not a database"), ErrCorrupt},
		{errors.New("database or disk is full"), ErrDiskFull},
		{errors.New("unable to open database file: no such file or directory"), ErrUnopened},
		{sql.ErrConnDone, ErrClosed},
		{errors.New("sql: database is closed"), ErrClosed},
		{codedError(1), nil},
		{errors.New("near \"SELEKT\": syntax error"), nil},
	} {
		got := interpretError(fmt.Errorf("wrapped: %w", row.err))
		if !errors.Is(got, row.err) {
			t.Errorf("%v: the driver's error is lost in %v", row.err, got)
		}
		for _, kind := range []error{ErrLocked, ErrDiskFull, ErrReadOnly, ErrCorrupt, ErrUnopened, ErrClosed} {
			if is := errors.Is(got, kind); is != (kind == row.want) {
				t.Errorf("%v is %v: %t", row.err, kind, is)
			}
		}
		if again := interpretError(got); again.Error() != got.Error() {
			t.Errorf("interpreted twice it is %v", again)
		}
	}
	if err := interpretError(nil); err != nil {
		t.Errorf("no error became %v", err)
	}
	full := noRoom(noRoom(interpretError(codedError(13))))
	if !errors.Is(full, driver.ErrFull) || !errors.Is(full, ErrDiskFull) {
		t.Errorf("%v; want both sentinels", full)
	}
	if err := noRoom(interpretError(codedError(8))); errors.Is(err, driver.ErrFull) {
		t.Errorf("%v passes for a full disk", err)
	}
}
