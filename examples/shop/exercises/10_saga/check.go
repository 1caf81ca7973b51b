package saga

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Check says what is wrong with Run, or nil.
func Check(ctx context.Context, solution bool) error {
	run := Run
	if solution {
		run = solved
	}
	lost := errors.New("the answer was lost")
	for _, c := range []struct {
		fails error // of the third step
		stuck int   // how often taking back the second step fails
		want  string
		why   string
	}{
		{nil, 0, "pay reserve ship", "all went well"},
		{ErrRefused, 0, "pay reserve ship, undo reserve, undo pay", "the third step was refused"},
		{ErrRefused, 2, "pay reserve ship, undo reserve, undo reserve, undo reserve, undo pay", "the third step was refused, and taking back the second one failed twice"},
		{lost, 0, "pay reserve ship, undo ship, undo reserve, undo pay", "the answer of the third step was lost, so it may have happened"},
	} {
		var did, undid []string
		stuck := c.stuck
		step := func(name string, fails error) Step {
			return Step{
				Name: name, Do: func(context.Context) error { did = append(did, name); return fails },
				Undo: func(context.Context) error {
					undid = append(undid, "undo "+name)
					if name == "reserve" && stuck > 0 {
						stuck--
						return errors.New("not now")
					}
					return nil
				},
			}
		}
		err := run(ctx, []Step{step("pay", nil), step("reserve", nil), step("ship", c.fails)})
		got := strings.Join(append([]string{strings.Join(did, " ")}, undid...), ", ")
		if got != c.want || !errors.Is(err, c.fails) {
			return fmt.Errorf("%s. What happened: %s. What should have: %s. The error was: %v", c.why, got, c.want, err)
		}
	}
	return nil
}
