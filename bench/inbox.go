package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/consumer"
	"github.com/semelhq/semel/pgstore"
)

// postgresInbox measures P-16: the floor is the effect's transaction alone.
func postgresInbox(ctx context.Context, m *meter) ([]row, error) {
	p, err := newPostgresServer(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close()
	store, err := pgstore.Open(ctx, p.pool, pgstore.Options{})
	if err != nil {
		return nil, err
	}
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
	c := m.each(postgresCallers).compare(floor, ours) // the floor first: the goal is a share of its throughput
	what := fmt.Sprintf("PostgreSQL, inbox in one commit beside begin, insert, commit, %d callers", postgresCallers)
	return []row{{"P-16", what, perOp(c.b), perOp(c.a), times(c.ratio), "≥ 0.7×"}}, nil
}
