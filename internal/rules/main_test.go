package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree writes files below a new folder and returns the folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// tests is the source of a test file with one function a name.
func tests(names ...string) string {
	var b strings.Builder
	b.WriteString("package p\n")
	for _, name := range names {
		b.WriteString("func " + name + "(t *testing.T) {}\n")
	}
	return b.String()
}

func TestR91_EachRuleIsListedWithItsTests(t *testing.T) {
	t.Parallel()
	const (
		twoRules = "R-1  the first\nR-2  the second\n"
		oneEach  = "R-1  the first\ncase 1  a failure\n"
	)
	for name, tc := range map[string]struct {
		files map[string]string
		code  int
		out   []string // parts of standard output
		errs  []string // parts of standard error
	}{
		"every rule has a test": {
			files: map[string]string{
				"docs/rules.txt":      oneEach,
				"docs/rules-open.txt": "",
				"a_test.go":           tests("TestR1_One"),
				"cmd/x/b_test.go":     tests("TestCase01_Two", "TestR1_Three"),
			},
			code: exitProven,
			out: []string{
				"R-1     the first  2  TestR1_One, cmd/x.TestR1_Three\n",
				"case 1  a failure  1  cmd/x.TestCase01_Two\n",
				"1 rules and 1 cases: 2 named by tests, 0 open, 0 missing\n",
			},
		},
		"a rule has none": {
			files: map[string]string{
				"docs/rules.txt":      twoRules,
				"docs/rules-open.txt": "",
				"a_test.go":           tests("TestR1_One"),
			},
			code: exitFailed,
			out:  []string{"R-2   the second  MISSING\n", "1 named by tests, 0 open, 1 missing\n"},
			errs: []string{"rules: no test names what docs/rules-open.txt doesn't list: R-2\n"},
		},
		"a rule without a test is open": {
			files: map[string]string{
				"docs/rules.txt":      twoRules,
				"docs/rules-open.txt": "# later\n\nR-2  needs a store\n",
				"a_test.go":           tests("TestR1_One"),
			},
			code: exitProven,
			out:  []string{"R-2   the second  open\n"},
		},
		"an open rule has a test already": {
			files: map[string]string{
				"docs/rules.txt":      twoRules,
				"docs/rules-open.txt": "R-2\n",
				"a_test.go":           tests("TestR1_One", "TestR2_Part"),
			},
			code: exitProven,
			out:  []string{"R-2   the second  open, built in part: 1  TestR2_Part\n"},
		},
		"a test names what no list has": {
			files: map[string]string{
				"docs/rules.txt":      "R-1  the first\n",
				"docs/rules-open.txt": "",
				"sub/a_test.go":       tests("TestR1_One", "TestR9_Typo"),
			},
			code: exitFailed,
			errs: []string{
				filepath.Join("sub", "a_test.go") + ":3: sub.TestR9_Typo names R-9, which is not in the list of rules\n",
			},
		},
		"every bad line is named": {
			files: map[string]string{
				"docs/rules.txt":      "R-1  the first\nR1 no dash\nR-3\nR-1  again\n",
				"docs/rules-open.txt": "case seven\n",
			},
			code: exitFailed,
			errs: []string{
				"rules.txt:2: line \"R1 no dash\" starts with neither a rule (R-26) nor a case (case 7)\n",
				"rules.txt:3: R-3 has no title\n",
				"rules.txt:4: R-1 stands in line 1 already\n",
				"rules-open.txt:1: line \"case seven\"",
			},
		},
		"an open rule is in no list": {
			files: map[string]string{
				"docs/rules.txt":      "R-1  the first\n",
				"docs/rules-open.txt": "\nR-5  a mistake\n",
				"a_test.go":           tests("TestR1_One"),
			},
			code: exitFailed,
			errs: []string{"rules-open.txt:2: R-5 is not in the list of rules\n"},
		},
		"a test file doesn't parse": {
			files: map[string]string{
				"docs/rules.txt":      "R-1  the first\n",
				"docs/rules-open.txt": "R-1",
				"a_test.go":           "package p\nfunc {\n",
			},
			code: exitFailed,
			errs: []string{"a_test.go:2:6"},
		},
		"a list is empty": {
			files: map[string]string{"docs/rules.txt": "# nothing\n", "docs/rules-open.txt": ""},
			code:  exitFailed,
			errs:  []string{"docs/rules.txt has no rules\n"},
		},
		"a list is not there": {
			files: map[string]string{"docs/rules.txt": "R-1  the first\n"},
			code:  exitFailed,
			errs:  []string{"reading the list: open ", "rules-open.txt"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			if got := run([]string{"-root", tree(t, tc.files)}, &stdout, &stderr); got != tc.code {
				t.Errorf("exit code %d, want %d", got, tc.code)
			}
			wantParts(t, "standard output", stdout.String(), tc.out)
			wantParts(t, "standard error", stderr.String(), tc.errs)
			if len(tc.errs) == 0 && stderr.Len() > 0 {
				t.Errorf("unexpected error output:\n%s", &stderr)
			}
		})
	}
}

func TestR91_LongListsAreCutUnlessAskedFor(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"docs/rules.txt":      "R-1  the first\n",
		"docs/rules-open.txt": "",
		"a_test.go":           tests("TestR1_A", "TestR1_B", "TestR1_C"),
	})
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "3  TestR1_A, TestR1_B, …\n"},
		{[]string{"-all"}, "3  TestR1_A, TestR1_B, TestR1_C\n"},
	} {
		var stdout, stderr bytes.Buffer
		run(append([]string{"-root", root}, tc.args...), &stdout, &stderr)
		wantParts(t, "standard output", stdout.String(), []string{tc.want})
	}
}

func TestR91_WrongUseIsToldByTheExitCode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args        []string
		code        int
		out, errOut string
	}{
		{[]string{"--help"}, exitProven, "usage: ", ""},
		{[]string{"-nosuch"}, exitUsage, "", "flag provided but not defined: -nosuch\nusage: "},
		{[]string{"docs"}, exitUsage, "", "rules: unexpected argument \"docs\"\nusage: "},
	} {
		var stdout, stderr bytes.Buffer
		if got := run(tc.args, &stdout, &stderr); got != tc.code {
			t.Errorf("rules %v: exit code %d, want %d", tc.args, got, tc.code)
		}
		if !strings.HasPrefix(stdout.String(), tc.out) || (tc.out == "") != (stdout.Len() == 0) {
			t.Errorf("rules %v: standard output %q, want it to start with %q", tc.args, &stdout, tc.out)
		}
		if !strings.HasPrefix(stderr.String(), tc.errOut) || (tc.errOut == "") != (stderr.Len() == 0) {
			t.Errorf("rules %v: standard error %q, want it to start with %q", tc.args, &stderr, tc.errOut)
		}
	}
}

func wantParts(t *testing.T, stream, got string, parts []string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(got, part) {
			t.Errorf("%s lacks %q:\n%s", stream, part, got)
		}
	}
}
