package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// namedTest is a test function that names at least one rule or case.
type namedTest struct {
	name string // with its folder, unless it is the root: memstore.TestR26_Once
	pos  string // file:line
	ids  []id   // sorted, each once
}

// scanTests reads every *_test.go file below root, whatever module it is in.
// The walk leaves out what the go command leaves out of "./...".
func scanTests(root string) ([]namedTest, error) {
	var (
		tests []namedTest
		bad   []error
	)
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != root && ignoredDir(d.Name()):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, "_test.go"):
			return nil
		}
		found, err := scanFile(root, file)
		if err != nil {
			bad = append(bad, err)
		}
		tests = append(tests, found...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for tests below %s: %w", root, err)
	}
	return tests, errors.Join(bad...)
}

func ignoredDir(name string) bool {
	return name == "testdata" || name == "vendor" || name == "node_modules" ||
		strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

func scanFile(root, file string) ([]namedTest, error) {
	built, err := isBuilt(file)
	if err != nil || !built {
		return nil, err
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("parsing a test file: %w", err)
	}
	prefix, err := packagePrefix(root, file)
	if err != nil {
		return nil, err
	}
	checked := checkedExamples(parsed)
	var tests []namedTest
	for _, decl := range parsed.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || !runs(fn, checked) {
			continue
		}
		ids := slices.Concat(idsInName(bareName(fn.Name.Name)), idsInProse(fn.Doc.Text()))
		if len(ids) == 0 {
			continue
		}
		slices.SortFunc(ids, compareIDs)
		at := fset.Position(fn.Pos())
		tests = append(tests, namedTest{
			name: prefix + fn.Name.Name,
			pos:  fmt.Sprintf("%s:%d", at.Filename, at.Line),
			ids:  slices.Compact(ids),
		})
	}
	return tests, nil
}

// isBuilt tells whether the file's build constraints let it into a test binary
// here. A test that is never compiled proves no rule. Tests run with the race
// detector, hence its tag.
func isBuilt(file string) (bool, error) {
	ctx := build.Default
	ctx.BuildTags = append(slices.Clone(ctx.BuildTags), "race")
	ok, err := ctx.MatchFile(filepath.Dir(file), filepath.Base(file))
	if err != nil {
		return false, fmt.Errorf("reading the build constraints of %s: %w", file, err)
	}
	return ok, nil
}

func packagePrefix(root, file string) (string, error) {
	rel, err := filepath.Rel(root, filepath.Dir(file))
	if err != nil {
		return "", fmt.Errorf("placing %s below %s: %w", file, root, err)
	}
	if rel == "." {
		return "", nil
	}
	return path.Clean(filepath.ToSlash(rel)) + ".", nil
}

// checkedExamples has the examples whose output is compared. The go command
// compiles the others but doesn't run them.
func checkedExamples(file *ast.File) map[string]bool {
	checked := map[string]bool{}
	for _, ex := range doc.Examples(file) {
		checked["Example"+ex.Name] = ex.Output != "" || ex.EmptyOutput
	}
	return checked
}

// runs tells whether the go command would run fn as a test. It knows the
// signature by its parameter count only: vet finds the wrong ones.
func runs(fn *ast.FuncDecl, checkedExamples map[string]bool) bool {
	name := fn.Name.Name
	switch {
	case fn.Recv != nil:
		return false
	case hasPrefix(name, "Example"):
		return checkedExamples[name]
	case hasPrefix(name, "Test"), hasPrefix(name, "Fuzz"):
		return name != "TestMain" && fn.Type.Params.NumFields() == 1
	}
	return false
}

// hasPrefix follows the go command's law: no lower-case letter after the
// prefix, so that Testify is not a test.
func hasPrefix(name, prefix string) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok || rest == "" {
		return ok
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return !unicode.IsLower(r)
}

func bareName(name string) string {
	for _, prefix := range []string{"Test", "Fuzz", "Example"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return rest
		}
	}
	return name
}
