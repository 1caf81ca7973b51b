package batch

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/semelhq/semel/examples/shop/exercises/drill"
)

// Check says what is wrong with Import, or nil.
func Check(ctx context.Context, solution bool) (err error) {
	load := Import
	if solution {
		load = solved
	}
	db, err := drill.Open(ctx, schema)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	want := func(items []Item, want, why string) error {
		got, err := load(ctx, db, items)
		if err != nil {
			return fmt.Errorf("%s, and all of the batch failed: %w", why, err)
		}
		if said := strings.Join(got, " "); said != want {
			return fmt.Errorf("%s. What was said of the items: %s. What should be: %s", why, said, want)
		}
		return nil
	}
	if err := want([]Item{{"a", 1}, {"b", 2}}, "created created", "two new items came"); err != nil {
		return err
	}
	if err := want([]Item{{"a", 1}, {"b", 3}, {"c", 4}}, "unchanged updated created", "the client sent one item again, one with another price, and a new one"); err != nil {
		return err
	}
	if err := want([]Item{{"d", 5}, {"e", -1}, {"f", 6}}, "created invalid created", "one of three items was invalid"); err != nil {
		return err
	}
	many := make([]Item, 10)
	for i := range many {
		many[i] = Item{fmt.Sprintf("many-%d", i), 1}
	}
	db.Die(5)
	load(ctx, db, many) //nolint:errcheck // nobody is there to be told
	db.Restart()
	if _, err := load(ctx, db, many); err != nil {
		return fmt.Errorf("the process died in the middle of a batch, and the batch that came again failed: %w", err)
	}
	there, err := db.Number(ctx, "SELECT count(*) FROM items WHERE id LIKE 'many-%'")
	if err == nil && there != int64(len(many)) {
		err = fmt.Errorf("the process died in the middle of a batch of %d, it came again, and %d are there", len(many), there)
	}
	return err
}
