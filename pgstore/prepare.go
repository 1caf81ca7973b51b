package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// prepare returns the statement of a call as it is prepared on a connection, and prepares it there if it is not. It
// returns nil for one that is sent unnamed. To parse a statement costs the server about as much as to execute it.
func (s *Store) prepare(ctx context.Context, conn *pgconn.PgConn, c *call) (*pgconn.StatementDescription, error) {
	if !c.often || !s.prepares.Load() {
		return nil, nil
	}
	name, known := statementName(c.sql), conn.CustomData()
	if d, ok := known[name].(*pgconn.StatementDescription); ok {
		return d, nil
	}
	d, err := conn.Prepare(ctx, name, c.sql, c.oids)
	if err != nil {
		return nil, fmt.Errorf("prepare a statement: %w", err)
	}
	known[name] = d
	return d, nil
}

// queue adds a call to a batch on a connection.
func (s *Store) queue(ctx context.Context, conn *pgconn.PgConn, b *pgconn.Batch, c *call) error {
	d, err := s.prepare(ctx, conn, c)
	switch {
	case err != nil:
		return err
	case d == nil:
		c.queue(b)
	default:
		b.ExecStatement(d, c.values, binaryFormat, binaryFormat)
	}
	return nil
}

// errLost means that a statement is not prepared on a connection that should have it, as after DEALLOCATE ALL, or is not
// what it was. Nothing was executed.
var errLost = errors.New("a prepared statement is lost")

// lost gives an error that says so that meaning. The connections, which are likely to be all like that, are replaced. A
// pooler that loses statements, though it had seemed to keep them, gets unnamed ones from then on.
func (s *Store) lost(err error) error {
	var pg *pgconn.PgError
	if !s.prepares.Load() || !errors.As(err, &pg) || !stale(err) && pg.Code != stateAlreadyPrepared {
		return err
	}
	if s.pooled.Load() {
		s.prepares.Store(false)
	}
	s.pool.Reset()
	return fmt.Errorf("%w: %w", errLost, err)
}

// stateAlreadyPrepared is the SQLSTATE of a name that another client has given to a statement, through a pooler.
const stateAlreadyPrepared = "42P05"

// keepsPrepared reports whether a pooler keeps the prepared statements of its clients, and each client's from the
// others', as PgBouncer does from 1.21 on where max_prepared_statements is above 0. Such a pooler gives statements names
// of its own: within a transaction, which stays on one connection, the server does not know the name that the client has
// given.
func keepsPrepared(ctx context.Context, conn *pgconn.PgConn) (keeps bool, err error) {
	const name = "semel_whose_name"
	exec := func(sql string) error { return conn.Exec(ctx, sql).Close() }
	if err := exec("BEGIN"); err != nil {
		return false, err
	}
	defer func() {
		if conn.TxStatus() != statusIdle {
			err = errors.Join(err, exec("ROLLBACK"))
		}
	}()
	if _, err := conn.Prepare(ctx, name, "SELECT 1", nil); err != nil {
		var refused *pgconn.PgError
		if errors.As(err, &refused) {
			return false, nil
		}
		return false, err
	}
	c := call{sql: "SELECT count(*) = 0 FROM pg_prepared_statements WHERE name = '" + name + "'"}
	if err := c.run(ctx, conn, func(row [][]byte) error { keeps = boolOf(row[0]); return nil }); err != nil {
		return false, err
	}
	return keeps, conn.Deallocate(ctx, name)
}
