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
	namedTest = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	namedFile = regexp.MustCompile("`(js/[a-z./]+\\.js)`")
)

// A table of attacks is worth as much as its tests.
func TestEveryAttackThatIsListedHasItsTest(t *testing.T) {
	t.Parallel()
	page := pages(t)["docs/security.md"]
	sources := strings.Join(compiled(t), "\n")
	for _, m := range namedTest.FindAllStringSubmatch(page, -1) {
		if !strings.Contains(sources, "func "+m[1]+"(") {
			t.Errorf("there is no %s", m[1])
		}
	}
	for _, m := range namedFile.FindAllStringSubmatch(page, -1) {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Error(err)
		}
	}
	for line := range strings.Lines(page) {
		if cells := strings.Split(line, "|"); len(cells) == 5 && strings.Contains(cells[3], "Test") && strings.TrimSpace(cells[2]) == "" {
			t.Errorf("nothing is said to stop this: %s", line)
		}
	}
	for n := range 9 {
		if kind := fmt.Sprintf("`TestAttack%02d_", n+1); !strings.Contains(page, kind) {
			t.Errorf("no attack has a test %s...", kind)
		}
	}
}
