package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// headersOfHTTP are read or sent as any server or proxy does; what semel has to say of them is said elsewhere.
var headersOfHTTP = map[string]bool{
	"Accept-Encoding": true, "Allow": true, "Connection": true, "Content-Encoding": true, "Content-Length": true, "Content-Type": true,
	"Date": true, "Etag": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "User-Agent": true, "X-Forwarded-For": true,
}

var headerName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*(-[A-Za-z0-9]+)*$`)

// headersUsed returns the headers that the sources of a folder read or write, and all texts in them.
func headersUsed(t *testing.T, folder string) (used, texts map[string]bool) {
	t.Helper()
	used, texts = map[string]bool{}, map[string]bool{}
	text := func(e ast.Expr) string {
		lit, ok := e.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return ""
		}
		s, err := strconv.Unquote(lit.Value)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("sources in %s: %d, %v", folder, len(paths), err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			name := ""
			switch n := n.(type) {
			case *ast.BasicLit:
				s := text(n)
				texts[s] = true
				if strings.HasPrefix(s, "Idempot") && headerName.MatchString(s) {
					name = s
				}
			case *ast.IndexExpr:
				name = text(n.Index)
			case *ast.CallExpr:
				if of, ok := n.Fun.(*ast.SelectorExpr); ok && len(n.Args) > 0 {
					switch of.Sel.Name {
					case "Get", "Set", "Add", "Del", "Values":
						name = text(n.Args[0])
					}
				}
			}
			if headerName.MatchString(name) && !headersOfHTTP[name] {
				used[name] = true
			}
			return true
		})
	}
	return used, texts
}

func TestField23_EveryHeaderIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs/codes.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Headers\n")
	documented := map[string]bool{}
	for row := range strings.Lines(section) {
		if name, ok := strings.CutPrefix(row, "| `"); ok {
			cell, _, _ := strings.Cut(name, " | ")
			for name := range strings.SplitSeq(cell, ", `") {
				name, _, _ = strings.Cut(name, "`")
				documented[name] = true
			}
		}
	}
	found := map[string]bool{}
	for _, folder := range []string{".", "client", "cmd/internal/gateway"} {
		used, texts := headersUsed(t, folder)
		for name := range used {
			if !documented[name] {
				t.Errorf("%s is read or sent by the sources in %s, and not documented", name, folder)
			}
		}
		for s := range texts {
			found[s] = true
		}
	}
	for name := range documented {
		if !found[name] {
			t.Errorf("%s is documented, and stands in no source", name)
		}
	}
	if len(documented) < 10 {
		t.Errorf("%d headers are documented: is the search wrong?", len(documented))
	}
}
