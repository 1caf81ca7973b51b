// Command lint holds the checks of "make lint" that neither go vet nor staticcheck has, as a tool for go vet -vettool:
// go vet keeps what it found until a package changes.
//
// A comment "//nolint:NAME // reason" at the end of a line, or on a line of its own above, excepts it from the check of
// that name. The reason is required.
package main

import (
	"go/ast"
	"go/token"
	"iter"
	"regexp"
	"slices"
	"strings"

	"codeberg.org/polyfloyd/go-errorlint/errorlint"
	"github.com/charithe/durationcheck"
	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"github.com/gostaticanalysis/nilerr"
	"github.com/kisielk/errcheck/errcheck"
	"github.com/timakin/bodyclose/passes/bodyclose"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/nilness"
	"golang.org/x/tools/go/analysis/passes/unusedwrite"
	"golang.org/x/tools/go/analysis/unitchecker"
)

// excluded are the functions whose errors may be dropped.
var excluded = []string{
	// A failure to print has nowhere to be told.
	"fmt.Fprint", "fmt.Fprintf", "fmt.Fprintln",
	// Closing what was only read, or a connection that is given up, loses nothing. Files that were written are *os.File,
	// and checked.
	"(io.Closer).Close", "(io.ReadCloser).Close", "(net.Conn).Close", "(net.Listener).Close", "(*net/http.Server).Close",
	// A digest takes all, as hash.Hash does.
	"(*github.com/semelhq/semel/internal/digest.Digest).Write",
}

func main() {
	errcheck.DefaultExcludedSymbols = append(errcheck.DefaultExcludedSymbols, excluded...)
	unitchecker.Main(
		// What a test writes, flushes and closes shows in what it then reads.
		excepting(errcheck.Analyzer, func(f finding) bool { return f.inTest && writes.MatchString(f.line) }),
		// A test may mean the very error, not one that wraps it.
		excepting(errorlint.NewAnalyzer(), func(f finding) bool { return f.inTest && strings.HasPrefix(f.message, "comparing with") }),
		// Tests hand responses to helpers, which the check can't follow.
		excepting(bodyclose.Analyzer, func(f finding) bool { return f.inTest }),
		excepting(nilerr.Analyzer, nil),
		excepting(durationcheck.Analyzer, nil),
		excepting(ineffassign.Analyzer, nil),
		excepting(nilness.Analyzer, nil),
		excepting(unusedwrite.Analyzer, nil),
		documented,
		reasoned,
	)
}

var writes = regexp.MustCompile(`io\.WriteString\(|\.Write\(|\.WriteString\(|\.Flush\(\)|\.[cC]lose\(\)`)

// A finding is what a check reports.
type finding struct {
	message string
	line    string // of the source
	inTest  bool
}

// exception matches a comment that excepts something from checks.
var exception = regexp.MustCompile(`^//nolint:([a-z,]+)(?: // (.+))?$`)

// excepting returns the check without what comments, or besides them the function, except from it.
func excepting(a *analysis.Analyzer, except func(finding) bool) *analysis.Analyzer {
	run := a.Run
	a.Run = func(p *analysis.Pass) (any, error) {
		report, lines := p.Report, sources(p)
		excepted := exceptions(p, a.Name)
		p.Report = func(d analysis.Diagnostic) {
			at := p.Fset.Position(d.Pos)
			f := finding{d.Message, "", strings.HasSuffix(at.Filename, "_test.go")}
			if text := lines[at.Filename]; at.Line <= len(text) && at.Line > 0 {
				f.line = text[at.Line-1]
			}
			if !excepted[place{at.Filename, at.Line}] && (except == nil || !except(f)) {
				report(d)
			}
		}
		return run(p)
	}
	return a
}

// sources returns the lines of the package's files.
func sources(p *analysis.Pass) map[string][]string {
	all := map[string][]string{}
	for _, f := range p.Files {
		name := p.Fset.Position(f.Package).Filename
		if text, err := p.ReadFile(name); err == nil {
			all[name] = strings.Split(string(text), "\n")
		}
	}
	return all
}

type place struct {
	file string
	line int
}

// exceptions returns the lines that comments except from a check: their own, and the next if they stand alone.
func exceptions(p *analysis.Pass, name string) map[place]bool {
	found := map[place]bool{}
	lines := sources(p)
	for c, at := range comments(p) {
		m := exception.FindStringSubmatch(c.Text)
		if m == nil || !slices.Contains(strings.Split(m[1], ","), name) {
			continue
		}
		found[place{at.Filename, at.Line}] = true
		if strings.HasPrefix(strings.TrimSpace(lines[at.Filename][at.Line-1]), "//nolint") {
			found[place{at.Filename, at.Line + 1}] = true
		}
	}
	return found
}

func comments(p *analysis.Pass) iter.Seq2[*ast.Comment, token.Position] {
	return func(yield func(*ast.Comment, token.Position) bool) {
		for _, f := range p.Files {
			for _, group := range f.Comments {
				for _, c := range group.List {
					if !yield(c, p.Fset.Position(c.Pos())) {
						return
					}
				}
			}
		}
	}
}

// reasoned finds exceptions without a check's name, or without a reason.
var reasoned = &analysis.Analyzer{
	Name: "reasoned",
	Doc:  "an exception from a check names the check and its reason",
	Run: func(p *analysis.Pass) (any, error) {
		for c := range comments(p) {
			if !strings.HasPrefix(c.Text, "//nolint") {
				continue
			}
			if m := exception.FindStringSubmatch(c.Text); m == nil || m[2] == "" {
				p.Reportf(c.Pos(), "write //nolint:NAME // and the reason")
			}
		}
		return nil, nil
	},
}

// documented finds exported names without a comment, of packages that others import.
var documented = &analysis.Analyzer{
	Name: "documented",
	Doc:  "an exported name has a comment",
	Run: func(p *analysis.Pass) (any, error) {
		for _, f := range p.Files {
			if strings.HasSuffix(p.Fset.Position(f.Package).Filename, "_test.go") || ast.IsGenerated(f) {
				continue
			}
			for _, d := range f.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) && !standard[d.Name.Name] {
						p.Reportf(d.Pos(), "exported %s has no comment", d.Name.Name)
					}
				case *ast.GenDecl:
					undocumented(p, d)
				}
			}
		}
		return nil, nil
	},
}

// standard are methods whose meaning an interface of the standard library gives.
var standard = map[string]bool{
	"Error": true, "String": true, "Unwrap": true, "Read": true, "Write": true, "Close": true, "Len": true, "Less": true, "Swap": true,
	"ServeHTTP": true, "Header": true, "WriteHeader": true,
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

// undocumented reports the names of a declaration that neither it nor they themselves explain.
func undocumented(p *analysis.Pass, d *ast.GenDecl) {
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
				p.Reportf(s.Pos(), "exported %s has no comment", s.Name.Name)
			}
		case *ast.ValueSpec:
			if s.Names[0].IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
				p.Reportf(s.Pos(), "exported %s has no comment", s.Names[0].Name)
			}
		}
	}
}
