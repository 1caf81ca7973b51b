package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Whoever imports a package has no list of the rules: what its documentation says must be whole without their numbers.
func TestPublicDocumentationNamesNoRuleByNumber(t *testing.T) {
	t.Parallel()
	number := regexp.MustCompile(`\bR-[1-9][0-9]*[a-z]?\b`)
	read := 0
	for _, rooms := range floors {
		for _, room := range rooms {
			if strings.HasPrefix(room, "internal/") {
				continue
			}
			entries, err := os.ReadDir(filepath.Join("../..", room))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
					continue
				}
				fset := token.NewFileSet()
				f, err := parser.ParseFile(fset, filepath.Join("../..", room, e.Name()), nil, parser.ParseComments)
				if err != nil {
					t.Fatal(err)
				}
				ast.FileExports(f)
				ast.Inspect(f, func(n ast.Node) bool {
					if group, ok := n.(*ast.CommentGroup); ok {
						read++
						if found := number.FindString(group.Text()); found != "" {
							t.Errorf("%s names %s", fset.Position(group.Pos()), found)
						}
					}
					return true
				})
			}
		}
	}
	if read < 500 {
		t.Errorf("only %d comments were read", read)
	}
}
