package sqlitestore

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/semelhq/semel/driver"
)

// What a database can refuse. Errors of the store wrap one of them where the cause is known, and the driver's error.
var (
	// ErrLocked means that another connection, mostly of another process, kept its lock on the database for too long.
	ErrLocked = errors.New("database is locked")
	// ErrDiskFull means that the disk, or the size that the database is limited to, is used up.
	ErrDiskFull = errors.New("disk is full")
	// ErrReadOnly means that the database can't be written.
	ErrReadOnly = errors.New("database is read-only")
	// ErrCorrupt means that the file is damaged, or no SQLite database.
	ErrCorrupt = errors.New("database is damaged, or not a SQLite database")
	// ErrUnopened means that the file can't be opened: its folder does not exist, or access to it is denied.
	ErrUnopened = errors.New("database can't be opened")
	// ErrVersion means that the schema in the database is not the one that this version of the package knows.
	ErrVersion = errors.New("database has another schema version")
	// ErrClosed means that the store, or its DB, has been closed.
	ErrClosed = errors.New("store is closed")
	// ErrEnded means that a function called Commit or Rollback of the transaction that it was given. Nothing of the
	// transaction was committed.
	ErrEnded = errors.New("the function has ended the transaction by itself")
)

// Primary result codes of SQLite, https://www.sqlite.org/rescode.html.
const (
	codeBusy     = 5
	codeLocked   = 6
	codeReadOnly = 8
	codeCorrupt  = 11
	codeFull     = 13
	codeCantOpen = 14
	codeNotADB   = 26
)

var kinds = []struct {
	is    error
	codes []int
	texts []string // of drivers whose errors have no Code() int
}{
	{ErrLocked, []int{codeBusy, codeLocked}, []string{"database is locked", "database table is locked"}},
	{ErrDiskFull, []int{codeFull}, []string{"disk is full"}},
	{ErrReadOnly, []int{codeReadOnly}, []string{"readonly database"}},
	{ErrCorrupt, []int{codeCorrupt, codeNotADB}, []string{"is malformed", "is not a database"}},
	{ErrUnopened, []int{codeCantOpen}, []string{"unable to open database"}},
	{ErrClosed, nil, []string{sql.ErrConnDone.Error(), "sql: database is closed"}},
}

// interpretError gives an error of database/sql or a driver the sentinel of its kind. Others stay as they are.
func interpretError(err error) error {
	if err == nil {
		return nil
	}
	var coded interface{ Code() int }
	hasCode := errors.As(err, &coded)
	text := err.Error()
	for _, k := range kinds {
		switch {
		case errors.Is(err, k.is):
			return err
		case hasCode && slices.Contains(k.codes, coded.Code()&0xff),
			!hasCode && slices.ContainsFunc(k.texts, func(part string) bool { return strings.Contains(text, part) }):
			return &failure{k.is, err}
		}
	}
	return err
}

// A failure is a driver's error with its kind.
type failure struct {
	kind, cause error
}

func (f *failure) Error() string   { return f.kind.Error() + ": " + f.cause.Error() }
func (f *failure) Unwrap() []error { return []error{f.kind, f.cause} }

// noRoom makes an error that says that the disk is full one that says so in the words of the contract.
func noRoom(err error) error {
	if errors.Is(err, ErrDiskFull) && !errors.Is(err, driver.ErrFull) {
		return fmt.Errorf("%w: %w", driver.ErrFull, err)
	}
	return err
}
