package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	patternTests    = regexp.MustCompile(`(?m)^\* \*\*Test:\*\* (.+)$`)
	patternTest     = regexp.MustCompile("`(Test\\w+)` in \\[`[\\w.]+`\\]\\(([^)]+)\\)")
	patternExercise = regexp.MustCompile("(?m)^\\* \\*\\*Exercise:\\*\\* (\\d+), \\[`(\\w+)`\\]\\(\\.\\./examples/shop/exercises/(\\w+)/exercise\\.go\\)$")
)

// docs/patterns.md names for each pattern its file, a test that exists, when not to use it, and its exercise.
func TestEachPatternHasAFileATestAndAnExercise(t *testing.T) {
	t.Parallel()
	page := pages(t)["docs/patterns.md"]
	sections := strings.Split(page, "\n### ")[1:]
	if len(sections) != 17 {
		t.Errorf("%d patterns, want 17", len(sections))
	}
	for i, section := range sections {
		title, body, _ := strings.Cut(section, "\n")
		if !strings.HasPrefix(title, fmt.Sprintf("%d. ", i+1)) {
			t.Errorf("the pattern %q does not have the number %d", title, i+1)
		}
		for _, want := range []string{"* **In the shop:** [`", "* **Not for:** "} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: it has no line %q", title, want)
			}
		}
		tests := patternTest.FindAllStringSubmatch(strings.Join(patternTests.FindStringSubmatch(body), ""), -1)
		if len(tests) == 0 {
			t.Errorf("%s: it names no test", title)
		}
		for _, test := range tests {
			text, err := os.ReadFile(filepath.Join(root, "docs", test[2]))
			if err != nil || !strings.Contains(string(text), "func "+test[1]+"(t *testing.T)") {
				t.Errorf("%s: %s has no %s: %v", title, test[2], test[1], err)
			}
		}
		exercise := patternExercise.FindStringSubmatch(body)
		if exercise == nil || exercise[1] != fmt.Sprint(i+1) || exercise[2] != exercise[3] || !strings.HasPrefix(exercise[2], fmt.Sprintf("%02d_", i+1)) {
			t.Errorf("%s: its exercise is %q", title, exercise)
		}
	}
}
