package sqlitestore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/semelhq/semel/driver"
)

// lend calls fn with the transaction as a *sql.Tx. What fn gets is not the transaction itself: it belongs to a DB of
// one connection, whose statements go to the transaction's connection, while its Commit and Rollback go nowhere. A
// handler that ended the transaction would commit effects without the operation's record.
func lend(ctx context.Context, tx driver.Tx, fn func(context.Context, *sql.Tx) error) error {
	t, ok := tx.(*transaction)
	if !ok {
		return fmt.Errorf("sqlitestore: the operation works in a transaction of another store, a %T", tx)
	}
	c := &lentConn{t: t}
	db := sql.OpenDB(c)
	defer db.Close() //nolint:errcheck // its connection's Close does nothing
	lent, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return fmt.Errorf("sqlitestore: %w", err)
	}
	err = func() error {
		defer func() {
			c.over.Store(true)
			lent.Rollback() //nolint:errcheck // it only closes what fn has left open
		}()
		return fn(ctx, lent)
	}()
	switch {
	case c.ended.Load():
		return errors.Join(err, fmt.Errorf("sqlitestore: %w", ErrEnded))
	case err == nil && t.state != txOpen:
		return fmt.Errorf("sqlitestore: %w", errOver)
	}
	return err
}

// A lentConn is the connection of such a DB. Each call of the driver is made with the lock of the transaction's
// connection held.
type lentConn struct {
	t     *transaction
	ended atomic.Bool // fn has called Commit or Rollback
	over  atomic.Bool // fn has returned
}

func (c *lentConn) Connect(context.Context) (sqldriver.Conn, error) { return c, nil }
func (c *lentConn) Driver() sqldriver.Driver                        { return c }
func (c *lentConn) Open(string) (sqldriver.Conn, error)             { return c, nil }
func (c *lentConn) Close() error                                    { return nil }
func (c *lentConn) Begin() (sqldriver.Tx, error)                    { return c, nil }
func (c *lentConn) Commit() error                                   { return c.end() }
func (c *lentConn) Rollback() error                                 { return c.end() }

func (c *lentConn) end() error {
	if c.over.Load() {
		return nil
	}
	c.ended.Store(true)
	return fmt.Errorf("sqlitestore: %w", ErrEnded)
}

func (c *lentConn) BeginTx(_ context.Context, o sqldriver.TxOptions) (sqldriver.Tx, error) {
	return c, nil
}

// with makes a call of the sqldriver. If the driver's error has ended the transaction, that is noticed before the next
// statement, which would commit by itself.
func (c *lentConn) with(call func(sqldriver.Conn) error) error {
	if c.t.state != txOpen {
		return errOver
	}
	err := c.t.unit.conn.Raw(func(conn any) error { return call(conn.(sqldriver.Conn)) })
	if err != nil && !errors.Is(err, sqldriver.ErrSkip) && !errors.Is(err, io.EOF) && !c.over.Load() {
		c.t.ready() //nolint:errcheck // the driver's error says more
	}
	return err
}

func (c *lentConn) Prepare(query string) (sqldriver.Stmt, error) {
	return c.PrepareContext(detached, query)
}

func (c *lentConn) PrepareContext(ctx context.Context, query string) (sqldriver.Stmt, error) {
	if err := c.check(query); err != nil {
		return nil, err
	}
	var st sqldriver.Stmt
	err := c.with(func(conn sqldriver.Conn) (err error) {
		if p, ok := conn.(sqldriver.ConnPrepareContext); ok {
			st, err = p.PrepareContext(ctx, query)
		} else {
			st, err = conn.Prepare(query)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &lentStmt{c, st}, nil
}

func (c *lentConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (r sqldriver.Result, err error) {
	if err := c.check(query); err != nil {
		return nil, err
	}
	err = c.with(func(conn sqldriver.Conn) (err error) {
		e, ok := conn.(sqldriver.ExecerContext)
		if !ok {
			return sqldriver.ErrSkip
		}
		r, err = e.ExecContext(ctx, query, args)
		return err
	})
	return r, err
}

func (c *lentConn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if err := c.check(query); err != nil {
		return nil, err
	}
	return c.rows(func(conn sqldriver.Conn) (sqldriver.Rows, error) {
		q, ok := conn.(sqldriver.QueryerContext)
		if !ok {
			return nil, sqldriver.ErrSkip
		}
		return q.QueryContext(ctx, query, args)
	})
}

func (c *lentConn) rows(query func(sqldriver.Conn) (sqldriver.Rows, error)) (sqldriver.Rows, error) {
	var rows sqldriver.Rows
	err := c.with(func(conn sqldriver.Conn) (err error) {
		rows, err = query(conn)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &lentRows{c, rows}, nil
}

func (c *lentConn) CheckNamedValue(v *sqldriver.NamedValue) error {
	return c.with(func(conn sqldriver.Conn) error {
		if n, ok := conn.(sqldriver.NamedValueChecker); ok {
			return n.CheckNamedValue(v)
		}
		return sqldriver.ErrSkip
	})
}

// check refuses a statement that would begin or end a transaction. It looks at the first word only: it is there to
// catch a mistake. It notes that a message is added to the outbox.
func (c *lentConn) check(query string) error {
	if query == insertMessage {
		c.t.adds.Store(true)
	}
	word := firstWord(query)
	for _, ends := range []string{"BEGIN", "COMMIT", "END"} {
		if strings.EqualFold(word, ends) {
			return c.end()
		}
	}
	if strings.EqualFold(word, "ROLLBACK") && !strings.Contains(strings.ToUpper(query), " TO ") {
		return c.end()
	}
	return nil
}

// firstWord returns the word with which a statement begins, behind white space and comments.
func firstWord(query string) string {
	for {
		query = strings.TrimLeft(query, " \t\n\f\r;")
		end := ""
		switch {
		case strings.HasPrefix(query, "--"):
			end = "\n"
		case strings.HasPrefix(query, "/*"):
			end = "*/"
		default:
			for i, c := range query {
				if (c|0x20 < 'a' || c|0x20 > 'z') && c != '_' {
					return query[:i]
				}
			}
			return query
		}
		_, query, _ = strings.Cut(query, end)
	}
}

// A lentStmt is a prepared statement.
type lentStmt struct {
	c  *lentConn
	st sqldriver.Stmt
}

var errOldDriver = errors.New("the driver's statements take no context")

func (s *lentStmt) Close() error {
	return s.c.t.unit.conn.Raw(func(any) error { return s.st.Close() })
}

func (s *lentStmt) NumInput() int                                    { return s.st.NumInput() }
func (s *lentStmt) Exec([]sqldriver.Value) (sqldriver.Result, error) { return nil, errOldDriver }
func (s *lentStmt) Query([]sqldriver.Value) (sqldriver.Rows, error)  { return nil, errOldDriver }

func (s *lentStmt) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (r sqldriver.Result, err error) {
	err = s.c.with(func(sqldriver.Conn) (err error) {
		e, ok := s.st.(sqldriver.StmtExecContext)
		if !ok {
			return errOldDriver
		}
		r, err = e.ExecContext(ctx, args)
		return err
	})
	return r, err
}

func (s *lentStmt) QueryContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	return s.c.rows(func(sqldriver.Conn) (sqldriver.Rows, error) {
		q, ok := s.st.(sqldriver.StmtQueryContext)
		if !ok {
			return nil, errOldDriver
		}
		return q.QueryContext(ctx, args)
	})
}

// lentRows are the rows of a query. What the driver does not say of a column is said as database/sql would.
type lentRows struct {
	c    *lentConn
	rows sqldriver.Rows
}

func (r *lentRows) Columns() []string { return r.rows.Columns() }

func (r *lentRows) Close() error {
	return r.c.t.unit.conn.Raw(func(any) error { return r.rows.Close() })
}

func (r *lentRows) Next(dest []sqldriver.Value) error {
	return r.c.with(func(sqldriver.Conn) error { return r.rows.Next(dest) })
}

func (r *lentRows) HasNextResultSet() bool {
	n, ok := r.rows.(sqldriver.RowsNextResultSet)
	return ok && n.HasNextResultSet()
}

func (r *lentRows) NextResultSet() error {
	n, ok := r.rows.(sqldriver.RowsNextResultSet)
	if !ok {
		return io.EOF
	}
	return r.c.with(func(sqldriver.Conn) error { return n.NextResultSet() })
}

func (r *lentRows) ColumnTypeScanType(i int) reflect.Type {
	if t, ok := r.rows.(sqldriver.RowsColumnTypeScanType); ok {
		return t.ColumnTypeScanType(i)
	}
	return reflect.TypeFor[any]()
}

func (r *lentRows) ColumnTypeDatabaseTypeName(i int) string {
	if t, ok := r.rows.(sqldriver.RowsColumnTypeDatabaseTypeName); ok {
		return t.ColumnTypeDatabaseTypeName(i)
	}
	return ""
}

func (r *lentRows) ColumnTypeLength(i int) (int64, bool) {
	if t, ok := r.rows.(sqldriver.RowsColumnTypeLength); ok {
		return t.ColumnTypeLength(i)
	}
	return 0, false
}

func (r *lentRows) ColumnTypeNullable(i int) (nullable, ok bool) {
	if t, ok := r.rows.(sqldriver.RowsColumnTypeNullable); ok {
		return t.ColumnTypeNullable(i)
	}
	return false, false
}

func (r *lentRows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	if t, ok := r.rows.(sqldriver.RowsColumnTypePrecisionScale); ok {
		return t.ColumnTypePrecisionScale(i)
	}
	return 0, 0, false
}
