// Command noskip reads the output of "go test -json" on standard input, prints
// it as "go test" would have, and fails if a test failed or was skipped. A
// skipped test is a promise that nobody checked.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// What a caller can tell from the exit code.
const (
	exitPassed = 0 // every test ran and passed
	exitFailed = 1 // one failed or was skipped, or the input can't be read
	exitUsage  = 2 // wrong use
)

const usage = `usage: go test -json ... | go run ./internal/noskip

Prints what go test prints without -json. Exits 1 if a test failed or was
skipped, or if no test ran, 2 on wrong use.
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "-h", "-help", "--help":
			fmt.Fprint(stdout, usage)
			return exitPassed
		}
		fmt.Fprintf(stderr, "noskip: unexpected argument %q\n%s", args[0], usage)
		return exitUsage
	}
	r := newReport(stdout)
	if err := errors.Join(readEvents(stdin, r), r.verdict()); err != nil {
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(stderr, "noskip: %s\n", strings.TrimSuffix(line, "\n"))
		}
		return exitFailed
	}
	return exitPassed
}

// readEvents feeds r. Lines that are no events are printed as they are: the go
// command writes some errors before it starts a test.
func readEvents(in io.Reader, r *report) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &e) == nil {
				r.add(e)
			} else {
				r.print(line)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the test events: %w", err)
		}
	}
}
