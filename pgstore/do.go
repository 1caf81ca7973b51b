package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
)

// Do is [semel.Do] with fn in a transaction of s, by the rules of [Store.Tx].
func Do[T any](ctx context.Context, g *semel.Guard, s *Store, key semel.Key, request semel.Fingerprinter, fn func(context.Context, pgx.Tx) (T, error)) (T, error) {
	v := &kind{Store: s, options: pgx.TxOptions{IsoLevel: pgx.ReadCommitted}}
	return semel.DoTx(ctx, g, v, key, request, func(ctx context.Context, tx driver.Tx) (value T, err error) {
		err = lend(ctx, tx, v.options, func(ctx context.Context, tx pgx.Tx) (err error) {
			value, err = fn(ctx, tx)
			return err
		})
		return value, err
	})
}
