package sqlitetest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"os"
	"sync/atomic"
	"syscall"
)

// A mortal is a driver of databases in whose calls the process can die: before and after each statement, and each begin,
// commit and rollback.
type mortal struct {
	inner  driver.Driver
	passed atomic.Int64
	dieAt  int64 // number of the call, from 1; 0 for none
	armed  atomic.Bool
}

// openMortal opens a database on which the process dies at a point. The points are counted once the mortal is armed.
func openMortal(path string, dieAt int64) (*sql.DB, *mortal, error) {
	db, err := openFile(path, "")
	if err != nil {
		return nil, nil, err
	}
	m := &mortal{inner: db.Driver(), dieAt: dieAt}
	if err := db.Close(); err != nil {
		return nil, nil, err
	}
	return sql.OpenDB(mortalConnector{m, dataSource(path, "")}), m, nil
}

func (m *mortal) pass() {
	if m.armed.Load() && m.passed.Add(1) == m.dieAt {
		syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:errcheck // it does not come back
		select {}
	}
}

// around passes a point before and after a call.
func around[T any](m *mortal, call func() (T, error)) (T, error) {
	m.pass()
	v, err := call()
	m.pass()
	return v, err
}

type mortalConnector struct {
	m    *mortal
	name string
}

func (c mortalConnector) Driver() driver.Driver { return c.m.inner }

func (c mortalConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.m.inner.Open(c.name)
	if err != nil {
		return nil, err
	}
	return &mortalConn{conn, c.m}, nil
}

type mortalConn struct {
	driver.Conn
	m *mortal
}

func (c *mortalConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := around(c.m, func() (driver.Tx, error) { return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o) })
	return &mortalTx{tx, c.m}, err
}

func (c *mortalConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &mortalStmt{s, c.m}, nil
}

func (c *mortalConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return around(c.m, func() (driver.Result, error) { return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args) })
}

func (c *mortalConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return around(c.m, func() (driver.Rows, error) { return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args) })
}

type mortalTx struct {
	driver.Tx
	m *mortal
}

func (t *mortalTx) Commit() error {
	_, err := around(t.m, func() (any, error) { return nil, t.Tx.Commit() })
	return err
}

type mortalStmt struct {
	driver.Stmt
	m *mortal
}

func (s *mortalStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return around(s.m, func() (driver.Result, error) { return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args) })
}

func (s *mortalStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return around(s.m, func() (driver.Rows, error) { return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args) })
}
