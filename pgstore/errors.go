package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/semelhq/semel/driver"
)

// What a database can refuse. Errors of the store wrap one of them where the cause is known, and the driver's error.
// None of them holds a password.
var (
	// ErrUnreachable means that there is no connection to the server, or that it broke. What was sent on it may have been
	// executed.
	ErrUnreachable = errors.New("server can't be reached")
	// ErrStarting means that the server is starting up or recovering from a crash.
	ErrStarting = errors.New("server is starting up")
	// ErrShutdown means that the server, or an administrator, has ended the connection.
	ErrShutdown = errors.New("server has ended the connection")
	// ErrTooMany means that the server, or the pooler in front of it, takes no more connections.
	ErrTooMany = errors.New("server takes no more connections")
	// ErrStandby means that the server is a standby, or recovering from an archive. It can decide nothing.
	ErrStandby = errors.New("server is a standby")
	// ErrReadOnly means that the server, or the session, may not write.
	ErrReadOnly = errors.New("database is read-only")
	// ErrDiskFull means that the server's disk is full.
	ErrDiskFull = errors.New("disk is full")
	// ErrSerialization means that concurrent transactions could not be put in an order. Nothing was changed.
	ErrSerialization = errors.New("transaction could not be serialized")
	// ErrDeadlock means that transactions waited for each other. Nothing was changed by this one.
	ErrDeadlock = errors.New("deadlock")
	// ErrTimeout means that a timeout of the server's has ended the statement or its wait for a lock, or that it was
	// cancelled there.
	ErrTimeout = errors.New("server has cancelled the statement")
	// ErrDenied means that the role, its password or its privileges are not accepted.
	ErrDenied = errors.New("access is denied")
	// ErrSchema means that the schema, or something in it, does not exist.
	ErrSchema = errors.New("schema is missing or incomplete")
	// ErrVersion means that the schema has a version that this version of the package can't work with.
	ErrVersion = errors.New("database has another schema version")
	// ErrCorrupt means that the database is damaged.
	ErrCorrupt = errors.New("database is damaged")
	// ErrEnded means that a function called Commit or Rollback of the transaction that it was given, so that nothing of
	// the operation was settled in it.
	ErrEnded = errors.New("the function has ended the transaction by itself")
	// ErrClosed means that the store, or the application's pool, has been closed.
	ErrClosed = errors.New("store is closed")
)

// kinds are told by SQLSTATE, https://www.postgresql.org/docs/current/errcodes-appendix.html; one of two characters
// stands for its class.
var kinds = []struct {
	is    error
	codes []string
}{
	{ErrStarting, []string{"57P03"}},
	{ErrShutdown, []string{"57P01", "57P02", "57P05", "25P03"}},
	{ErrTooMany, []string{"53300"}},
	{ErrReadOnly, []string{"25006"}},
	{ErrDiskFull, []string{"53100"}},
	{ErrSerialization, []string{"40001"}},
	{ErrDeadlock, []string{"40P01"}},
	{ErrTimeout, []string{"57014", "55P03"}},
	{ErrDenied, []string{"42501", "28"}},
	{ErrSchema, []string{"42P01", "3F000", "42883", "42703", "42704", "3D000"}},
	{ErrCorrupt, []string{"XX001", "XX002"}},
	{ErrUnreachable, []string{"08"}},
}

// tooMany is how PgBouncer begins to say so, with the SQLSTATE of a violated protocol.
const tooMany = "no more connections allowed"

// interpretError gives an error of pgx the sentinel of its kind. Others stay as they are, such as those of a context
// that has ended.
func interpretError(err error) error {
	if kind := kindOf(err); kind != nil && !errors.Is(err, kind) {
		return &failure{kind, err}
	}
	return err
}

func kindOf(err error) error {
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pg):
		if strings.HasPrefix(pg.Message, tooMany) {
			return ErrTooMany
		}
		for _, k := range kinds {
			if slices.Contains(k.codes, pg.Code) || len(pg.Code) == 5 && slices.Contains(k.codes, pg.Code[:2]) {
				return k.is
			}
		}
		return nil
	case errors.Is(err, puddle.ErrClosedPool):
		return ErrClosed
	case errors.As(err, &connect):
		return ErrUnreachable
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, pgconn.ErrConnClosed), pgconn.SafeToRetry(err):
		return ErrUnreachable
	}
	return nil
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
