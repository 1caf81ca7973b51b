package verify

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/proof"
)

// The table of checks in the documentation is that of the program.
func TestDocumentationListsTheChecks(t *testing.T) {
	t.Parallel()
	proof.Reads("docs")
	text, err := os.ReadFile(filepath.Join("..", "docs", "verify.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, c := range checks() {
		name, needs := "`"+c.name+"`", c.needed()
		if c.safety {
			name = "**" + name + "**"
		}
		if needs == "" {
			needs = "–"
		}
		fmt.Fprintf(&want, "| %s | %s | %s | %s |\n", name, c.title, strings.Join(c.rules, ", "), needs)
	}
	if !strings.Contains(string(text), want.String()) {
		t.Errorf("docs/verify.md does not have this table:\n%s", want.String())
	}
}

// Every name of a variant is documented.
func TestDocumentationListsTheVariants(t *testing.T) {
	t.Parallel()
	proof.Reads("docs")
	text, err := os.ReadFile(filepath.Join("..", "docs", "verify.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range variants {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/verify.md does not tell of the variant %s", name)
		}
	}
}
