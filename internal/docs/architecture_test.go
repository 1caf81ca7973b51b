package docs

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var step = regexp.MustCompile("(?m)^\\| \\d+ \\|.*\\| `(\\w+)` \\| \\[.*\\]\\(\\.\\./(.*)\\) \\|$")

func TestTheStepsOfARequestAreFunctionsOfTheirFiles(t *testing.T) {
	t.Parallel()
	steps := step.FindAllStringSubmatch(pages(t)["docs/architecture.md"], -1)
	if len(steps) == 0 || len(steps) > 12 {
		t.Errorf("%d steps", len(steps))
	}
	for _, s := range steps {
		code, err := os.ReadFile(filepath.Join(root, s[2]))
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + s[1] + `\(`).Match(code) {
			t.Errorf("%s has no function %s", s[2], s[1])
		}
	}
}

// scripts/pictures writes the checksum of a picture's text behind it.
func TestPicturesAreThoseOfTheirTexts(t *testing.T) {
	t.Parallel()
	texts, err := filepath.Glob(filepath.Join(root, "docs/pictures/*.dot"))
	if err != nil || len(texts) == 0 {
		t.Fatalf("no texts of pictures: %v", err)
	}
	for _, name := range texts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		picture, err := os.ReadFile(strings.TrimSuffix(name, ".dot") + ".svg")
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(text)
		if !strings.HasSuffix(string(picture), "<!-- "+hex.EncodeToString(sum[:])+" -->\n") {
			t.Errorf("%s was changed since it was drawn: run scripts/pictures", filepath.Base(name))
		}
	}
}
