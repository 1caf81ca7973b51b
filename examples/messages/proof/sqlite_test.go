package proof

import (
	"context"
	"database/sql"

	_ "modernc.org/sqlite" // the driver

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/sqlitestore"
)

type sqliteStorage struct {
	db    *sql.DB
	store *sqlitestore.Store
	box   *sqlitestore.Outbox
}

func openSQLite(ctx context.Context, path string) (storage, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	s := &sqliteStorage{db: db}
	if s.store, err = sqlitestore.Open(ctx, db, sqlitestore.Options{}); err != nil {
		return nil, err
	}
	s.box, err = sqlitestore.OpenOutbox(s.store, outbox.Options{})
	return s, err
}

func (s *sqliteStorage) setUp(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `CREATE TABLE customers (name text PRIMARY KEY, orders bigint NOT NULL);
		CREATE TABLE effects (consumer text NOT NULL, message text NOT NULL)`)
	return err
}

func (s *sqliteStorage) place(ctx context.Context, customer string) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	var n int64
	err = tx.QueryRowContext(ctx, "INSERT INTO customers VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET orders = customers.orders + 1 RETURNING orders", customer).Scan(&n)
	if err != nil {
		return err
	}
	if err := s.box.Add(ctx, tx, message(customer, n)); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *sqliteStorage) outbox() outbox.Store                       { return s.box }
func (s *sqliteStorage) guard(p semel.Policy) (*semel.Guard, error) { return newGuard(s.store, p) }

func (s *sqliteStorage) handle(ctx context.Context, name string, c *consumer.Consumer, m consumer.Message) consumer.Result {
	return sqlitestore.Inbox(ctx, c, s.store, m, func(ctx context.Context, tx *sql.Tx, m consumer.Message) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?, ?)", name, string(m.Payload))
		return err
	})
}

func (s *sqliteStorage) effects(ctx context.Context, name string) (map[string]int, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT message FROM effects WHERE consumer = ?", name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return counted(all), rows.Err()
}
