package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

// stream is the input that go test would have written for these events, each
// "action test output" with - for no test.
func stream(t *testing.T, events ...string) string {
	t.Helper()
	var b strings.Builder
	for _, e := range events {
		action, rest, _ := strings.Cut(e, " ")
		test, output, _ := strings.Cut(rest, " ")
		line, err := json.Marshal(event{
			Action: action, Package: "example.org/p", Test: strings.TrimPrefix(test, "-"), Output: output,
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}

func TestASkippedOrFailedTestFailsTheRun(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in       string
		code     int
		out, err string
	}{
		"a passing package is one line": {
			in: stream(t,
				"start -", "run TestA", "output TestA === RUN   TestA\n", "output TestA     a_test.go:3: noise\n",
				"output TestA --- PASS: TestA (0.00s)\n", "pass TestA",
				"output - PASS\n", "output - ok  \texample.org/p\t0.1s\n", "pass -"),
			code: exitPassed,
			out:  "ok  \texample.org/p\t0.1s\n",
		},
		"a failing one tells only of what failed": {
			in: stream(t,
				"output TestA --- PASS: TestA (0.00s)\n", "pass TestA",
				"output TestB === RUN   TestB\n", "output TestB     b_test.go:5: no\n",
				"output TestB --- FAIL: TestB (0.00s)\n", "fail TestB",
				"output - FAIL\n", "output - FAIL\texample.org/p\t0.1s\n", "fail -"),
			code: exitFailed,
			out:  "    b_test.go:5: no\n--- FAIL: TestB (0.00s)\nFAIL\nFAIL\texample.org/p\t0.1s\n",
			err:  "noskip: tests failed\n",
		},
		"a race is told, whatever test spoke last": {
			in: stream(t,
				"output TestA noise\n", "output TestA ==================\n", "output TestA WARNING: DATA RACE\n",
				"output TestA Write at 0x1 by goroutine 1:\n", "output TestA ==================\n",
				"output TestA more noise\n", "output TestA --- PASS: TestA (0.00s)\n", "pass TestA",
				"output TestB     testing.go:1: race detected\n", "output TestB --- FAIL: TestB (0.00s)\n", "fail TestB",
				"output - FAIL\n", "output - FAIL\texample.org/p\t0.1s\n", "fail -"),
			code: exitFailed,
			out: "WARNING: DATA RACE\nWrite at 0x1 by goroutine 1:\n" +
				"    testing.go:1: race detected\n--- FAIL: TestB (0.00s)\nFAIL\nFAIL\texample.org/p\t0.1s\n",
			err: "noskip: tests failed\n",
		},
		"a test that never ended is printed": {
			in: stream(t,
				"output TestA === RUN   TestA\n", "output TestA panic: boom\n",
				"output - FAIL\texample.org/p\t0.1s\n", "fail -"),
			code: exitFailed,
			out:  "panic: boom\nFAIL\texample.org/p\t0.1s\n",
			err:  "noskip: tests failed\n",
		},
		"a skipped test fails the run and says why": {
			in: stream(t,
				"pass TestA",
				"output TestB/deep === RUN   TestB/deep\n", "output TestB/deep     b_test.go:5: no server\n",
				"output TestB/deep     --- SKIP: TestB/deep (0.00s)\n", "skip TestB/deep", "pass TestB",
				"output - ok  \texample.org/p\t0.1s\n", "pass -"),
			code: exitFailed,
			out:  "ok  \texample.org/p\t0.1s\n",
			err:  "noskip: skipped: example.org/p TestB/deep: b_test.go:5: no server\n",
		},
		"a package without tests is no skip": {
			in:   stream(t, "pass TestA", "pass -", "output - ?   \texample.org/p\t[no test files]\n", "skip -"),
			code: exitPassed,
			out:  "?   \texample.org/p\t[no test files]\n",
		},
		"a broken build": {
			in: stream(t,
				"build-output - p.go:1:1: syntax error\n", "build-fail -",
				"output - FAIL\texample.org/p [build failed]\n", "fail -"),
			code: exitFailed,
			out:  "p.go:1:1: syntax error\nFAIL\texample.org/p [build failed]\n",
			err:  "noskip: tests failed\n",
		},
		"lines that are no events": {
			in:   "go: downloading nothing\n{not json\n" + stream(t, "pass TestA", "pass -") + "no line end",
			code: exitPassed,
			out:  "go: downloading nothing\n{not json\nno line end",
		},
		"nothing ran": {
			in:   stream(t, "output - ok  \texample.org/p\t0.1s [no tests to run]\n", "pass -"),
			code: exitFailed,
			out:  "ok  \texample.org/p\t0.1s [no tests to run]\n",
			err:  "noskip: no test ran\n",
		},
		"the input breaks off": {
			in:   stream(t, "pass TestA", "output TestB     half a test\n"),
			code: exitFailed,
			out:  "    half a test\n",
			err:  "noskip: the input ends within the tests of example.org/p\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			if got := run(nil, strings.NewReader(tc.in), &stdout, &stderr); got != tc.code {
				t.Errorf("exit code %d, want %d", got, tc.code)
			}
			if got := stdout.String(); got != tc.out {
				t.Errorf("standard output:\n%s\nwant:\n%s", got, tc.out)
			}
			if got := stderr.String(); got != tc.err {
				t.Errorf("standard error:\n%s\nwant:\n%s", got, tc.err)
			}
		})
	}
}

func TestEventsThatCanNotBeReadFailTheRun(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	if got := run(nil, iotest.ErrReader(errors.New("gone")), &stdout, &stderr); got != exitFailed {
		t.Errorf("exit code %d, want %d", got, exitFailed)
	}
	if want := "noskip: reading the test events: gone\n"; !strings.HasPrefix(stderr.String(), want) {
		t.Errorf("standard error %q, want it to start with %q", &stderr, want)
	}
}

func TestHelpIsToldFromWrongUse(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		arg  string
		code int
	}{{"--help", exitPassed}, {"./...", exitUsage}} {
		var stdout, stderr bytes.Buffer
		if got := run([]string{tc.arg}, strings.NewReader(""), &stdout, &stderr); got != tc.code {
			t.Errorf("noskip %s: exit code %d, want %d", tc.arg, got, tc.code)
		}
		if out := stdout.String() + stderr.String(); !strings.Contains(out, "usage: ") {
			t.Errorf("noskip %s: no usage in %q", tc.arg, out)
		}
	}
}
