package proof

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/outbox"
	"github.com/semelhq/semel/pgstore"
)

type postgresStorage struct {
	pool  *pgxpool.Pool
	store *pgstore.Store
	box   *pgstore.Outbox
}

func openPostgres(ctx context.Context, address string) (storage, error) {
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return nil, err
	}
	s := &postgresStorage{pool: pool}
	if s.store, err = pgstore.Open(ctx, pool, pgstore.Options{}); err != nil {
		return nil, err
	}
	s.box, err = pgstore.OpenOutbox(ctx, s.store, pgstore.OutboxOptions{})
	return s, err
}

func (s *postgresStorage) setUp(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `CREATE TABLE customers (name text PRIMARY KEY, orders bigint NOT NULL);
		CREATE TABLE effects (consumer text NOT NULL, message text NOT NULL)`)
	return err
}

func (s *postgresStorage) place(ctx context.Context, customer string) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var n int64
		err := tx.QueryRow(ctx, "INSERT INTO customers VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET orders = customers.orders + 1 RETURNING orders", customer).Scan(&n)
		if err != nil {
			return err
		}
		return s.box.Add(ctx, tx, message(customer, n))
	})
}

func (s *postgresStorage) outbox() outbox.Store                       { return s.box }
func (s *postgresStorage) guard(p semel.Policy) (*semel.Guard, error) { return newGuard(s.store, p) }

func (s *postgresStorage) handle(ctx context.Context, name string, c *consumer.Consumer, m consumer.Message) consumer.Result {
	return pgstore.Inbox(ctx, c, s.store, m, func(ctx context.Context, tx pgx.Tx, m consumer.Message) error {
		_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1, $2)", name, string(m.Payload))
		return err
	})
}

func (s *postgresStorage) effects(ctx context.Context, name string) (map[string]int, error) {
	rows, err := s.pool.Query(ctx, "SELECT message FROM effects WHERE consumer = $1", name)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return counted(all), err
}
