// Package demo plays what happens to shops: double clicks, lost answers, processes that die, messages that come twice. It
// plays on a real shop, two instances on one database, and each scene ends with what the card processor's ledger says.
//
// Where to look: scenes.go is what is played, stage.go what it is played on, act.go and screen.go how it is told;
// compare.go and package naive have the same faults without semel.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Config says how the demo runs.
type Config struct {
	// Once plays the scenes and returns, instead of serving until the context ends.
	Once bool
	// Data is the folder of the shop's data. Defaults to a temporary one, which is removed at the end.
	Data string
	// Listen is the address of the first instance; the second one has the port after it. Defaults to localhost:8080 if
	// both ports are free, else, and with Once, to any.
	Listen string
	// Out is where the scenes are told; Color says that it is a terminal.
	Out   io.Writer
	Color bool
	// Self is this program's executable, for the instance that is killed.
	Self string

	only []int // numbers of the scenes to play; nil means all
}

// ErrFalse means that what a scene claims is not so.
var ErrFalse = errors.New("not every scene came out right")

// Run plays the scenes. Its error wraps [ErrFalse] and names the scenes whose claims are false, if there are any.
func (c Config) Run(ctx context.Context) (err error) {
	s, err := open(ctx, c)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, s.close()) }()
	s.opening()
	var wrong []string
	for i := range scenes {
		if ctx.Err() != nil {
			return fmt.Errorf("demo: interrupted: %w", context.Cause(ctx))
		}
		if c.only != nil && !slices.Contains(c.only, i+1) {
			continue
		}
		if a := s.play(ctx, i+1, &scenes[i]); a.wrong {
			wrong = append(wrong, fmt.Sprintf("%d (%s)", a.number, a.title))
		}
	}
	s.table()
	if wrong != nil {
		err = fmt.Errorf("demo: %w: %s", ErrFalse, strings.Join(wrong, ", "))
	}
	if !c.Once && ctx.Err() == nil {
		s.printf("\nThe shop stays open: %s/ and the lines above. Ctrl-C closes it.\n", s.host.URLs[0])
		<-ctx.Done()
	}
	return err
}
