package docs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The tests of the shop's demo hold these files against what it says and draws. They can't read the documentation: go
// test does not see changes of files outside of a test's module.
func TestTheShopsDemoIsShownAsItIs(t *testing.T) {
	t.Parallel()
	read := func(path string) []byte {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if scene := string(read("examples/shop/demo/testdata/scene.txt")); !strings.Contains(string(read("README.md")), "```\n"+scene+"```\n") {
		t.Errorf("README.md has not the scene of the demo:\n%s", scene)
	}
	if !bytes.Equal(read("docs/pictures/compare.svg"), read("examples/shop/demo/testdata/compare.svg")) {
		t.Error("docs/pictures/compare.svg is not the one of examples/shop/demo/testdata")
	}
}
