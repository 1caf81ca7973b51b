package shardtest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/pgstore"
	"github.com/semelhq/semel/shardstore"
)

// One of two servers is down when the process starts.
func Example() {
	shards := []shardstore.Shard{{Name: "one", Store: memstore.New()}}
	pool, err := pgxpool.New(context.Background(), "postgres://db-4/payments")
	if err != nil {
		fmt.Println(err)
		return
	}
	open := func(ctx context.Context) (driver.Store, error) { return pgstore.Open(ctx, pool, pgstore.Options{}) }
	shards = append(shards, shardstore.Shard{Name: "four", Open: open})
	store, err := shardstore.New(shards, shardstore.Options{})
	fmt.Println(store != nil, err)
	// Output: true <nil>
}
