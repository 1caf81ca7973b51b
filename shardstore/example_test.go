package shardstore_test

import (
	"context"
	"fmt"

	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/shardstore"
)

// A third shard joins two. Each store is a step of the change, and all processes take one step before the next.
func Example() {
	ctx := context.Background()
	one, two, three := memstore.New(), memstore.New(), memstore.New() // or three PostgreSQL servers
	shards := []shardstore.Shard{{Name: "one", Store: one}, {Name: "two", Store: two}}
	store, err := shardstore.New(shards, shardstore.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := store.Load(ctx, verbs.NewID()); err != nil {
		fmt.Println(err)
	}

	joining := append(shards, shardstore.Shard{Name: "three", Store: three, Joins: true})
	for _, step := range []shardstore.Change{shardstore.Prepare, shardstore.Move} {
		store, err = shardstore.New(joining, shardstore.Options{Change: step})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	left, err := store.(shardstore.Changer).Remaining(ctx, 1)
	fmt.Println(left, err)

	store, err = shardstore.New([]shardstore.Shard{
		{Name: "one", Store: one}, {Name: "two", Store: two}, {Name: "three", Store: three},
	}, shardstore.Options{})
	fmt.Println(store != nil, err)
	// Output:
	// 0 <nil>
	// true <nil>
}
