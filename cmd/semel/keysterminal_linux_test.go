package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/semelhq/semel"
)

// newTerminal returns the two ends of a terminal: the person's, and the program's.
func newTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	control := func(request uintptr, value *int32) {
		t.Helper()
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, person.Fd(), request, uintptr(unsafe.Pointer(value))); errno != 0 {
			t.Fatal(errno)
		}
	}
	var unlock, number int32
	control(syscall.TIOCSPTLCK, &unlock)
	control(syscall.TIOCGPTN, &number)
	program, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

func TestField22_ThePersonAtTheTerminalIsAsked(t *testing.T) {
	t.Parallel()
	for typed, forgotten := range map[string]bool{
		"y\n": true, "Yes\n": true, " y \n": true,
		"\n": false, "n\n": false, "yes please\n": false, "\x04": false, // the end of input
	} {
		t.Run(fmt.Sprintf("%q", typed), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, semel.Policy{})
			s.runs = 1
			s.pay("acme", "k")
			person, program := newTerminal(t)
			var stdout output
			ended := make(chan int, 1)
			go func() {
				m := Main{Stdin: program, Stdout: &stdout, Stderr: program}
				ended <- m.Run(t.Context(), []string{"keys", "--store", s.address, "forget", "--reason", "test data", "--", s.id("k")})
				program.Close()
			}()
			screen := bufio.NewReader(person)
			question, err := screen.ReadString('?')
			if err != nil {
				t.Fatal(err)
			}
			contains(t, question, "done: repeats get its answer", "Its key is new after that", "not undone", "late one", "Forget it?")
			if _, err := person.WriteString(typed); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(screen) // until the program closes its end, which is told as EIO
			if err != nil && !errors.Is(err, syscall.EIO) {
				t.Fatal(err)
			}
			status := <-ended
			if (status == 0) != forgotten || strings.Contains(stdout.String(), "absent: the key is new") != forgotten {
				t.Errorf("exit status %d, %q, on the screen %q", status, stdout.String(), rest)
			}
			if !forgotten {
				contains(t, string(rest), "nothing was changed")
			}
		})
	}
}

func TestField22_ASignalEndsTheQuestionAtTheTerminal(t *testing.T) {
	t.Parallel()
	person, program := newTerminal(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("interrupt signal received")
	go func() {
		if _, err := bufio.NewReader(person).ReadString('?'); err == nil {
			cancel(stopped)
		}
	}()
	m := Main{Stdin: program, Stderr: program}
	if yes, err := m.ask(ctx, "Forget it? "); yes || !errors.Is(err, stopped) {
		t.Errorf("answered %v, %v", yes, err)
	}
	if _, err := person.WriteString("\n"); err != nil { // ends the read
		t.Fatal(err)
	}
}
