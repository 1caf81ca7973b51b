// Package command holds what the programs of this repository share.
package command

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
)

// UntilSignal returns a context that the first signal to end cancels, which asks to end in order. By then signals do
// what they do by default again, so that a second one ends the process at once, with status 1 at the latest.
func UntilSignal() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		first := <-signals
		signal.Stop(signals)
		cancel(fmt.Errorf("%v signal received", first))
		select {
		case second := <-signals: // came before signals were given back
			if self, err := os.FindProcess(os.Getpid()); err != nil || self.Signal(second) != nil {
				os.Exit(1)
			}
		default:
		}
	}()
	return ctx
}

// Colored reports whether w is a terminal whose user has not asked for plain text (https://no-color.org).
func Colored(w any) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Version returns a program's name with the version of its module, as the build recorded it.
func Version(program string) string {
	v := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v = info.Main.Version
	}
	return fmt.Sprintf("%s %s %s %s/%s", program, v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
