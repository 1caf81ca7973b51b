package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/pgstore"
)

// A postgresSchema is a store in a schema of its own.
type postgresSchema struct {
	*pgstore.Store
	pool   *pgxpool.Pool
	schema string
	model  uint64 // the number of the operation that fill has copied last
}

func (p *postgresServer) open(ctx context.Context, schema string) (*postgresSchema, error) {
	s, err := pgstore.Open(ctx, p.pool, pgstore.Options{Schema: schema, MaxConns: postgresCallers})
	if err != nil {
		return nil, err
	}
	return &postgresSchema{Store: s, pool: p.pool, schema: schema, model: 1 << 63}, nil
}

func (s *postgresSchema) close() { s.Close() } //nolint:errcheck // a temporary server

// fill copies the row of an operation that the store has just claimed and settled, under other ids and at other times.
func (s *postgresSchema) fill(ctx context.Context, n int, retention time.Duration) error {
	s.model++
	claimAndSettle(s, s.model)
	table := pgx.Identifier{s.schema, "records"}
	model := idOf(s.model)
	rows, err := s.pool.Query(ctx, "SELECT * FROM "+table.Sanitize()+" WHERE id = $1", model[:])
	if err != nil {
		return err
	}
	var columns []string
	at := map[string]int{}
	row, err := pgx.CollectExactlyOneRow(rows, func(r pgx.CollectableRow) ([]any, error) {
		for i, f := range r.FieldDescriptions() {
			columns, at[f.Name] = append(columns, f.Name), i
		}
		return r.Values()
	})
	if err != nil {
		return fmt.Errorf("read the model: %w", err)
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	// A claim's row is smaller than one that comes whole with its answer. Pages with room for another version would each
	// have a hole of just its size, and the claims to be measured would go there, each into a page of its own.
	fillfactor := func(percent string) error {
		_, err := conn.Exec(ctx, "ALTER TABLE "+table.Sanitize()+" SET (fillfactor = "+percent+")")
		return err
	}
	if err := fillfactor("100"); err != nil {
		return err
	}
	i, step := 0, ^uint64(0)/uint64(n)
	_, err = conn.CopyFrom(ctx, table, columns, pgx.CopyFromFunc(func() ([]any, error) {
		if i == n {
			return nil, nil
		}
		id, rec := runningRecord(uint64(i))
		binary.BigEndian.PutUint64(id[:], uint64(i)*step)
		rec.Retention = retention
		rec, _ = rec.Settle(rec.Now, rec.Owner(), driver.Outcome{State: driver.Done, Response: stored})
		row[at["id"]], row[at["token"]] = id[:], rec.Token[:]
		row[at["fingerprint"]] = append(rec.Fingerprint.Raw[:], make([]byte, 24)...)
		for name, t := range map[string]driver.Time{
			"created": rec.Created, "started": rec.Started, "lease_end": rec.LeaseEnd, "settled": rec.Settled, "expires": rec.Expires(),
		} {
			row[at[name]] = int64(t)
		}
		row[at["retention"]] = int64(retention)
		i++
		return row, nil
	}))
	if err != nil {
		return fmt.Errorf("copy %d records: %w", n, err)
	}
	if err := fillfactor("85"); err != nil { // as the schema says
		return err
	}
	for _, after := range []string{"VACUUM ANALYZE " + table.Sanitize(), "CHECKPOINT"} {
		if _, err := conn.Exec(ctx, after); err != nil {
			return err
		}
	}
	return nil
}

// postgresGrowth measures P-13 with two stores on one server. They are fresh from a checkpoint.
func (l large) postgresGrowth(ctx context.Context, m *meter) ([]row, error) {
	p, err := newPostgresServer(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close()
	few, err := p.open(ctx, "few")
	if err != nil {
		return nil, err
	}
	defer few.close()
	many, err := p.open(ctx, "many")
	if err != nil {
		return nil, err
	}
	defer many.close()
	return l.growth(ctx, m, "PostgreSQL", postgresCallers, "≤ 1.3×", few, many)
}

// postgresSweeping measures P-14.
func (l large) postgresSweeping(ctx context.Context, _ *meter) ([]row, error) {
	p, err := newPostgresServer(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close()
	s, err := p.open(ctx, "semel")
	if err != nil {
		return nil, err
	}
	defer s.close()
	return l.sweeping(ctx, "PostgreSQL", 500, s)
}
