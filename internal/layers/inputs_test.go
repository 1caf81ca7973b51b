package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/proof"
)

// notLookedInto are folders without tests of "make test"; "make temporal" runs those of servertest.
var notLookedInto = []string{"node_modules", "testdata", "servertest"}

func hidden(name string) bool { return name[0] == '.' && strings.Trim(name, ".") != "" }

// A test says by proof.Reads what it reads beyond its module, and that it builds a program. Else "make test" would give
// its result from the cache, although that has changed.
func TestTestsSayWhatGoTestDoesNotSee(t *testing.T) {
	t.Parallel()
	needed, said := map[string]map[string]token.Position{}, map[string][]string{}
	files := token.NewFileSet()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(notLookedInto, d.Name()) || hidden(d.Name())):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder := filepath.Dir(path)
		ast.Inspect(f, func(n ast.Node) bool {
			in, reads := input(folder, n)
			if reads != nil {
				said[folder] = append(said[folder], reads...)
			}
			if in != "" {
				if needed[folder] == nil {
					needed[folder] = map[string]token.Position{}
				}
				needed[folder][in] = files.Position(n.Pos())
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder, inputs := range needed {
		for in, at := range inputs {
			if !slices.Contains(said[folder], in) {
				t.Errorf("%v: it reads %q, which no proof.Reads of its package says", at, in)
			}
		}
	}
	script, err := os.ReadFile("../../scripts/test")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(script), "\nfor folder in ")
	list, _, _ = strings.Cut(list, ";")
	known := append(strings.Fields(list), proof.Code)
	for _, folder := range slices.Sorted(maps.Keys(said)) {
		for _, in := range said[folder] {
			if !slices.Contains(known, in) {
				t.Errorf("%s reads %q, of which scripts/test makes no digest", folder, in)
			}
		}
	}
	if len(needed) < 8 {
		t.Errorf("%d packages read beyond their modules, want the gateway's, both demos' and others", len(needed))
	}
}

// input returns what a part of a test in a folder reads that has to be said, "" for nothing, or what it says.
func input(folder string, n ast.Node) (in string, said []string) {
	switch n := n.(type) {
	case *ast.BasicLit:
		return beyond(folder, text(n)), nil
	case *ast.CallExpr:
		var args []string
		for _, a := range n.Args {
			args = append(args, text(a))
		}
		switch called(n) {
		case "proof.Reads":
			for i, a := range n.Args {
				if _, literal := a.(*ast.BasicLit); !literal {
					args[i] = proof.Code
				}
			}
			return "", args
		case "filepath.Join":
			return beyond(folder, filepath.Join(args...)), nil
		case "exec.Command", "exec.CommandContext":
			tool := strings.Join(args, " ")
			if i := strings.Index(tool, "go "); i >= 0 && builds(tool[i:]) {
				return proof.Code, nil
			}
		}
	}
	return "", nil
}

// builds reports whether a command builds another program than the one that is tested.
func builds(command string) bool {
	other := strings.HasPrefix(command, "go build ") || strings.HasPrefix(command, "go run ")
	return other && !strings.HasSuffix(command, " .")
}

func text(n ast.Expr) string {
	if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
		if s, err := strconv.Unquote(l.Value); err == nil {
			return s
		}
	}
	return ""
}

func called(c *ast.CallExpr) string {
	if s, ok := c.Fun.(*ast.SelectorExpr); ok {
		if p, ok := s.X.(*ast.Ident); ok {
			return p.Name + "." + s.Sel.Name
		}
	}
	return ""
}

// beyond returns the folder of the repository to which a path leads that leaves the module of a test's folder; "" if it
// does not, or leads to the repository itself or to nothing.
func beyond(folder, path string) string {
	if !strings.HasPrefix(path, "../") {
		return ""
	}
	module := folder
	for _, err := os.Stat(filepath.Join(module, "go.mod")); err != nil; _, err = os.Stat(filepath.Join(module, "go.mod")) {
		module = filepath.Dir(module)
	}
	whole := filepath.Join(folder, path)
	if module == "../.." || whole == "../.." || strings.HasPrefix(whole+"/", module+"/") {
		return ""
	}
	if _, err := os.Stat(whole); err != nil {
		return ""
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(whole, "../../"), "/")
	return first
}
