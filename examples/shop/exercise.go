package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/semelhq/semel/examples/shop/exercises"
)

type exerciseCommand struct {
	Number   int  `arg:"" optional:"" help:"Which exercise to mark. Without it all are listed."`
	Solution bool `help:"Mark the solution that stands beside it."`
}

func (c *exerciseCommand) Run(ctx context.Context, out io.Writer) error {
	if c.Number == 0 {
		for n, e := range exercises.All {
			fmt.Fprintf(out, "%2d  %-24s %s\n", n+1, e.Pattern, e.Task)
		}
		fmt.Fprintln(out, "\nChange examples/shop/exercises/NN_name/exercise.go, then: go run ./examples/shop exercise NUMBER")
		return nil
	}
	if c.Number < 1 || c.Number > len(exercises.All) {
		return fmt.Errorf("there is no exercise %d: they have the numbers 1 to %d", c.Number, len(exercises.All))
	}
	e := &exercises.All[c.Number-1]
	fmt.Fprintf(out, "%d. %s: %s\n   examples/shop/exercises/%s/exercise.go\n\n", c.Number, e.Pattern, e.Task, e.Folder)
	if err := e.Check(ctx, c.Solution); err != nil {
		fmt.Fprintf(out, "Not yet. %v\n", err)
		return errors.New("the exercise has not passed")
	}
	fmt.Fprintln(out, "Passed.")
	return nil
}
