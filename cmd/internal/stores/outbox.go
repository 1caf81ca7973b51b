package stores

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/pgstore"
	"github.com/semelhq/semel/sqlitestore"
)

// errNoOutbox means that a store is of a kind that has no outbox.
var errNoOutbox = errors.New("this kind of store has no outbox: one is kept in the database of the data that its messages are about, SQLite or PostgreSQL")

// Outbox returns the outbox in the store's database.
func (o *Opened) Outbox(ctx context.Context, options outbox.Options) (outbox.Store, error) {
	switch s := o.Store.(type) {
	case *sqlitestore.Store:
		return sqlitestore.OpenOutbox(s, options)
	case *pgstore.Store:
		return pgstore.OpenOutbox(ctx, s, pgstore.OutboxOptions{Options: options})
	}
	return nil, errNoOutbox
}

// ErrQuery means that a query can't be checked by.
var ErrQuery = errors.New("the query is of no use")

// A Row is one of a query, as texts; nil is NULL.
type Row []*string

// WithoutMessage runs a query on the store's database, and calls missing for each of its rows that has no message in the
// outbox, in any state. The query has a column id, of a message's id, or the columns topic and key, and tenant if it
// likes. It returns how many rows the query has. All that is read is of one moment.
func (o *Opened) WithoutMessage(ctx context.Context, query string, missing func(columns []string, row Row) error) (rows int64, err error) {
	query = strings.TrimRight(query, "; \t\r\n")
	if query == "" {
		return 0, fmt.Errorf("%w: it is empty", ErrQuery)
	}
	switch {
	case o.sqlite != nil:
		rows, err = o.sqliteWithout(ctx, query, missing)
	case o.postgres != nil:
		rows, err = o.postgresWithout(ctx, query, missing)
	default:
		err = errNoOutbox
	}
	return rows, err
}

func (o *Opened) sqliteWithout(ctx context.Context, query string, missing func([]string, Row) error) (n int64, err error) {
	tx, err := o.sqlite.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	rows, err := tx.QueryContext(ctx, shape(query))
	if err != nil {
		return 0, queryError(err)
	}
	columns, err := rows.Columns()
	if err = errors.Join(err, rows.Close()); err != nil {
		return 0, err
	}
	join, err := joined(query, "semel_outbox", columns)
	if err != nil {
		return 0, err
	}
	if err := tx.QueryRowContext(ctx, count(query)).Scan(&n); err != nil {
		return 0, queryError(err)
	}
	rows, err = tx.QueryContext(ctx, join)
	if err != nil {
		return 0, err
	}
	defer rows.Close() //nolint:errcheck // what was wrong, give has said
	return n, give(rows, columns, missing)
}

func (o *Opened) postgresWithout(ctx context.Context, query string, missing func([]string, Row) error) (n int64, err error) {
	tx, err := o.postgres.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was written
	rows, err := tx.Query(ctx, shape(query), pgx.QueryExecModeExec)
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	if err != nil {
		return 0, queryError(err)
	}
	var columns []string
	for _, f := range rows.FieldDescriptions() {
		columns = append(columns, f.Name)
	}
	join, err := joined(query, pgx.Identifier{o.schema, "outbox"}.Sanitize(), columns)
	if err != nil {
		return 0, err
	}
	if err := tx.QueryRow(ctx, count(query), pgx.QueryExecModeExec).Scan(&n); err != nil {
		return 0, queryError(err)
	}
	rows, err = tx.Query(ctx, join, pgx.QueryExecModeExec)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	return n, give(rows, columns, missing)
}

// queryError tells the errors of a query from those of its database.
func queryError(err error) error {
	const generic = 1 // SQLITE_ERROR
	var postgres *pgconn.PgError
	var coded interface{ Code() int }
	if errors.As(err, &postgres) || errors.As(err, &coded) && coded.Code()&0xff == generic {
		return fmt.Errorf("%w: %w", ErrQuery, err)
	}
	return err
}

// give calls missing for each row of a result, of either database.
func give(rows interface {
	Next() bool
	Scan(to ...any) error
	Err() error
}, columns []string, missing func([]string, Row) error,
) error {
	for rows.Next() {
		row := make(Row, len(columns))
		to := make([]any, len(columns))
		for i := range row {
			to[i] = &row[i]
		}
		err := rows.Scan(to...)
		if err == nil {
			err = missing(columns, row)
		}
		if err != nil {
			return err
		}
	}
	return rows.Err()
}

// from is the query as a table, whatever comment it ends with.
func from(query string) string { return " FROM (\n" + query + "\n) AS q " }

func shape(query string) string { return "SELECT *" + from(query) + "LIMIT 0" }

func count(query string) string { return "SELECT count(*)" + from(query) }

// joined is the query that gives the rows without a message.
func joined(query, table string, columns []string) (string, error) {
	has := func(name string) bool { return slices.Contains(columns, name) }
	var on []string
	switch {
	case has("id"):
		on = []string{"id"}
	case has("topic") && has("key"):
		on = []string{"topic", "key"}
		if has("tenant") {
			on = append(on, "tenant")
		}
	default:
		return "", fmt.Errorf("%w: its columns are %s; want id, or topic and key", ErrQuery, strings.Join(columns, ", "))
	}
	for i, name := range on {
		on[i] = "o." + name + " = CAST(q." + name + " AS text)"
	}
	shown := make([]string, len(columns))
	for i, name := range columns {
		shown[i] = `CAST(q."` + strings.ReplaceAll(name, `"`, `""`) + `" AS text)`
	}
	return "SELECT " + strings.Join(shown, ", ") + from(query) + "LEFT JOIN " + table + " AS o ON " + strings.Join(on, " AND ") + " WHERE o.id IS NULL", nil
}
