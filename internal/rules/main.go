// Command rules shows which tests prove which rule. It prints every rule and
// every case of docs/rules.txt with the tests that name it, and fails where one
// has none, unless docs/rules-open.txt says that it isn't built.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// What a caller can tell from the exit code.
const (
	exitProven = 0 // every rule that is not open has a test
	exitFailed = 1 // a rule has none, a list or a test file is wrong
	exitUsage  = 2 // wrong use
)

const usage = `usage: go run ./internal/rules [-all] [-root folder]

Prints every rule and case with the tests that name it. A test names a rule in
its function's name (TestR26_…, TestR6_R7_…, TestR41a_…, TestCase07_…) or in
its doc comment (R-26, case 7). Examples count if their output is checked.

  docs/rules.txt       every rule and case, with a title
  docs/rules-open.txt  those that are not built, with a reason

Exits 0 if every other rule has a test, 1 if one has none or something is wrong
with a list or a test file, 2 on wrong use.

`

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("rules", flag.ContinueOnError)
	flags.SetOutput(stderr)
	all := flags.Bool("all", false, "name every test, not only the first of each rule")
	root := flags.String("root", ".", "the repository's root `folder`")
	flags.Usage = func() {} // run decides which stream the usage belongs to
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		printUsage(stdout, flags)
		return exitProven
	case err != nil: // Parse has said what is wrong
		printUsage(stderr, flags)
		return exitUsage
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "rules: unexpected argument %q\n", flags.Arg(0))
		printUsage(stderr, flags)
		return exitUsage
	}
	if err := report(*root, *all, stdout); err != nil {
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(stderr, "rules: %s\n", strings.TrimSuffix(line, "\n"))
		}
		return exitFailed
	}
	return exitProven
}

func printUsage(w io.Writer, flags *flag.FlagSet) {
	fmt.Fprint(w, usage)
	flags.SetOutput(w)
	flags.PrintDefaults()
}

// report prints the table whenever the lists could be read, and returns all
// that is wrong at once.
func report(root string, all bool, w io.Writer) error {
	openFile := filepath.Join(root, "docs", "rules-open.txt")
	rules, errRules := readList(filepath.Join(root, "docs", "rules.txt"), true)
	open, errOpen := readList(openFile, false)
	if err := errors.Join(errRules, errOpen); err != nil {
		return err
	}
	if len(rules) == 0 {
		return errors.New("docs/rules.txt has no rules")
	}
	tests, errScan := scanTests(root)
	cov, errUnknown := newCoverage(rules, open, tests)
	if err := cov.print(w, all); err != nil {
		return err
	}
	return errors.Join(checkKnown(open, rules, openFile), errScan, errUnknown, missingError(cov.missing()))
}

func missingError(ids []id) error {
	if len(ids) == 0 {
		return nil
	}
	names := make([]string, 0, len(ids))
	for _, i := range ids {
		names = append(names, i.String())
	}
	return fmt.Errorf("no test names what docs/rules-open.txt doesn't list: %s", strings.Join(names, ", "))
}
