package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/pgstore"
)

// postgresInbox measures P-16: the floor is the effect's transaction alone.
func postgresInbox(ctx context.Context, m *meter) ([]row, error) {
	p, store, err := newPostgresStore(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close()
	defer store.Close() //nolint:errcheck // a temporary server
	g, err := semel.New(store, semel.SingleTenant, semel.Hold, semel.Options{Policy: semel.Policy{OneCommit: true}, IdentitySecret: secret, MaxAttempts: -1})
	if err != nil {
		return nil, err
	}
	inbox, err := consumer.New(g, "payments", consumer.Options{})
	if err != nil {
		return nil, err
	}
	var ids [postgresCallers]func(int) string
	var taken [postgresCallers]int
	for i := range ids {
		ids[i] = fresh("m" + strconv.Itoa(i) + "-")
	}
	ours := func(n int) {
		callers(postgresCallers, n, func(i int) {
			taken[i]++
			message := consumer.Message{ID: ids[i](taken[i]), Payload: body200, Deliveries: 1}
			r := pgstore.Inbox(ctx, inbox, store, message, func(ctx context.Context, tx pgx.Tx, _ consumer.Message) error { return insert(ctx, tx) })
			if r.Outcome != consumer.Done {
				panic(fmt.Sprint("inbox: ", r.Outcome, r.Err))
			}
		})
	}
	floor := func(n int) {
		callers(postgresCallers, n, func(int) {
			if err := p.payAlone(ctx); err != nil {
				panic(fmt.Sprint("pay alone: ", err))
			}
		})
	}
	if _, err := p.pool.Exec(ctx, "CREATE TABLE marks (id bytea PRIMARY KEY)"); err != nil {
		return nil, err
	}
	var serial atomic.Uint64
	least := func(begin ...string) work {
		return func(n int) {
			callers(postgresCallers, n, func(int) {
				if err := p.payMarked(ctx, serial.Add(1), begin...); err != nil {
					panic(fmt.Sprint("pay and mark: ", err))
				}
			})
		}
	}
	// The floor first: the goal is a share of its throughput.
	each := m.each(postgresCallers)
	c := each.compare(floor, ours)
	mark := each.compare(floor, least("BEGIN"))
	look := each.compare(floor, least("BEGIN", "SELECT pg_try_advisory_xact_lock($1)", "SELECT id FROM marks WHERE id = $1"))
	what := fmt.Sprintf("beside begin, insert, commit, %d callers", postgresCallers)
	return []row{
		{"P-16", "PostgreSQL, inbox in one commit " + what, perOp(c.b), perOp(c.a), times(c.ratio), "≥ 0.7×"},
		{"P-16", "PostgreSQL, a bare mark with the commit " + what, perOp(mark.b), perOp(mark.a), times(mark.ratio), "shown"},
		{"P-16", "PostgreSQL, the same with a lock of the message and a look before " + what, perOp(look.b), perOp(look.a), times(look.ratio), "shown"},
	}, nil
}

// payMarked is the effect's transaction, with a mark that says no more than that it was there. It takes the same round
// trips, and its statements are prepared.
func (p *postgresServer) payMarked(ctx context.Context, n uint64, begin ...string) error {
	id := idOf(n)
	return p.pool.AcquireFunc(ctx, func(pooled *pgxpool.Conn) error {
		conn := pooled.Conn()
		trip := func(statements ...string) error {
			var b pgconn.Batch
			for _, sql := range statements {
				d, err := conn.Prepare(ctx, sql, sql)
				if err != nil {
					return err
				}
				var values [][]byte
				for _, oid := range d.ParamOIDs {
					if oid == pgtype.Int8OID {
						values = append(values, id[:8])
					} else {
						values = append(values, id[:])
					}
				}
				b.ExecStatement(d, values, []int16{1}, []int16{1})
			}
			return conn.PgConn().ExecBatch(ctx, &b).Close()
		}
		if err := trip(begin...); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, insertPayment, int64(17), body200); err != nil {
			return err
		}
		return trip("INSERT INTO marks (id) VALUES ($1)", "COMMIT")
	})
}
