package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"

	"github.com/semelhq/semel/driver"
)

// What a decision means that lets an effect happen again.
const (
	forgetMeans = `Its key is new after that, and what it has done is not undone: the next request
with the key runs, also a late one of its client that is still on its way.`
	releaseMeans = `By that you promise that it had no effect and will have none. If it had one, the
next request with the key repeats it, and so does a late request of the lost run
that still arrives.`
)

var (
	errNoTerminal = errors.New("there is no terminal to ask at")
	errDeclined   = errors.New("nothing was changed")
)

// confirm returns what asks before a decision, nil if nothing is to be asked.
func (k *keysRun) confirm(action string, t *target, yes bool) func(context.Context, driver.Record) error {
	if yes || t.Force {
		return nil
	}
	return func(ctx context.Context, rec driver.Record) error {
		means := risk(action, &rec)
		if means == "" {
			return nil
		}
		v := viewOf(driver.ID{}, &rec, false)
		agreed, err := k.ask(ctx, fmt.Sprintf("%s, started %s, is %s.\n%s\n%s it? [y/N] ",
			named(v.Operation), v.when(v.Started), v.meaning(), means, strings.ToUpper(action[:1])+action[1:]))
		switch {
		case errors.Is(err, errNoTerminal):
			return usageError{fmt.Errorf("it is %s.\n%s\nIf you mean it write --yes, or --force, which decides also if a run owns it: %w", v.meaning(), means, err)}
		case err != nil:
			return fmt.Errorf("ask whether to %s it: %w; %w", action, err, errDeclined)
		case !agreed:
			return errDeclined
		}
		return nil
	}
}

// risk says what a decision means after which an effect may happen again, "" of any other: what is refused anyway, and
// what repeats would do without it too. To complete an operation lets nothing run.
func risk(action string, rec *driver.Record) string {
	reads := rec.Reads(rec.OnLost)
	switch {
	case action == "release" && reads == driver.ReadsUnknown:
		return releaseMeans
	case action != "forget", reads == driver.ReadsAbsent, reads == driver.ReadsRunning:
		return ""
	case rec.State == driver.Free && !rec.Maybe && !rec.Steps && !rec.Owed: // it remembers nothing
		return ""
	}
	return forgetMeans
}

// ask asks whoever runs the program, and takes only a yes for one.
func (m *Main) ask(ctx context.Context, question string) (yes bool, err error) {
	if m.Confirm != nil {
		return m.Confirm(ctx, question)
	}
	in := m.Stdin
	if in == nil {
		in = os.Stdin
	}
	if !isTerminal(in) || !isTerminal(m.Stderr) {
		return false, errNoTerminal
	}
	if _, err := io.WriteString(m.Stderr, question); err != nil {
		return false, err
	}
	type answer struct {
		text string
		err  error
	}
	answered := make(chan answer, 1)
	go func() { // a read from a terminal can't be ended: the program's end ends it
		text, err := bufio.NewReader(in).ReadString('\n')
		answered <- answer{text, err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(m.Stderr)
		return false, context.Cause(ctx)
	case a := <-answered:
		if errors.Is(a.err, io.EOF) { // the end of input is no answer, whatever stands before it
			fmt.Fprintln(m.Stderr)
			return false, nil
		}
		text := strings.TrimSpace(a.text)
		return strings.EqualFold(text, "y") || strings.EqualFold(text, "yes"), a.err
	}
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
