package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// event is one line of "go test -json" (see "go doc test2json").
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// report prints a package when it ends. Until then its output is held back,
// since only the end tells whether it is worth reading.
type report struct {
	w        io.Writer
	writeErr error
	packages map[string]*pkg
	passed   int
	failed   bool
	skipped  []string
}

// pkg is a package whose tests are under way.
type pkg struct {
	output []event           // in the order it was written
	ended  map[string]string // how each test ended: pass, fail or skip
}

func newReport(w io.Writer) *report {
	return &report{w: w, packages: map[string]*pkg{}}
}

func (r *report) add(e event) {
	switch e.Action {
	case "build-output":
		r.print(e.Output)
	case "build-fail":
		r.failed = true
	case "output":
		p := r.pkg(e.Package)
		p.output = append(p.output, e)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(e)
		}
	}
}

func (r *report) pkg(name string) *pkg {
	p := r.packages[name]
	if p == nil {
		p = &pkg{ended: map[string]string{}}
		r.packages[name] = p
	}
	return p
}

func (r *report) endTest(e event) {
	p := r.pkg(e.Package)
	p.ended[e.Test] = e.Action
	switch e.Action {
	case "pass":
		r.passed++
	case "fail":
		r.failed = true
	case "skip":
		r.skipped = append(r.skipped, e.Package+" "+e.Test+p.reason(e.Test))
	}
}

// endPackage prints what is worth reading: one line of a package that passed;
// of one that failed all but the output of the tests that passed. A test that
// never ended (a panic, a time-out) is printed too, and so is what the race
// detector found, which stands in the output of whatever test spoke last. "skip"
// is what a package without tests ends with.
func (r *report) endPackage(e event) {
	p := r.pkg(e.Package)
	delete(r.packages, e.Package)
	if e.Action == "fail" {
		r.failed = true
	}
	race := false
	for _, o := range p.output {
		race = race && o.Output != endOfRace || o.Output == startOfRace
		if e.Action == "fail" && (race || p.ended[o.Test] != "pass") && !isProgress(o.Output) || isResult(o) {
			r.print(o.Output)
		}
	}
}

// The lines that a report of the race detector begins and ends with.
const (
	startOfRace = "WARNING: DATA RACE\n"
	endOfRace   = "==================\n"
)

// reason is what t.Skip was given.
func (p *pkg) reason(test string) string {
	var b strings.Builder
	for _, o := range p.output {
		line := strings.TrimSpace(o.Output)
		if o.Test == test && !isProgress(o.Output) && !strings.HasPrefix(line, "--- SKIP") {
			b.WriteString(" " + line)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return ":" + b.String()
}

// isProgress knows the lines that "go test" prints with -v only.
func isProgress(line string) bool {
	return strings.HasPrefix(line, "=== ")
}

// isResult knows a package's own last line.
func isResult(o event) bool {
	return o.Test == "" && (strings.HasPrefix(o.Output, "ok  \t") || strings.HasPrefix(o.Output, "?   \t"))
}

func (r *report) print(s string) {
	if r.writeErr == nil {
		_, r.writeErr = io.WriteString(r.w, s)
	}
}

// verdict is nil if all that was read passed. No tests at all is a fault of the
// call, and so is a package that never ended.
func (r *report) verdict() error {
	var bad []error
	if r.writeErr != nil {
		bad = append(bad, fmt.Errorf("printing the results: %w", r.writeErr))
	}
	for name, p := range r.packages {
		for _, o := range p.output {
			r.print(o.Output)
		}
		bad = append(bad, fmt.Errorf("the input ends within the tests of %s", name))
	}
	if r.failed {
		bad = append(bad, errors.New("tests failed"))
	} else if r.passed == 0 {
		bad = append(bad, errors.New("no test ran"))
	}
	for _, s := range r.skipped {
		bad = append(bad, fmt.Errorf("skipped: %s", s))
	}
	return errors.Join(bad...)
}
