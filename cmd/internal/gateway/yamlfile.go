package gateway

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// A yamlFile is a file of settings, as it is read: it knows where each of them stands, and collects all that is wrong.
//
// It reads the syntax tree, since a decoder stops at the first mistake.
type yamlFile struct {
	name    string
	source  []string
	anchors map[string]ast.Node
	places  map[string]ast.Node // values, by the paths of their settings
	failed  map[string]bool     // settings that could not be read, or not all of them
	merging map[ast.Node]bool   // mappings whose entries are being put together
	errs    []placedError
}

// A placedError is one mistake in a file.
type placedError struct {
	file         string
	line, column int
	text         string
	source       string // the line
}

func (e placedError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.file, e.line, e.column, e.text)
}

// fileErrors are all mistakes in a file, in the order of their places.
type fileErrors []placedError

func (e fileErrors) Error() string {
	var b strings.Builder
	for i, p := range e {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%v\n%6d | %s\n       | %*s", p, p.line, p.source, p.column, "^")
	}
	return b.String()
}

// errorLines returns one line for each error.
func errorLines(err error) []string {
	var placed fileErrors
	if !errors.As(err, &placed) {
		return strings.Split(err.Error(), "\n")
	}
	var lines []string
	for _, p := range placed {
		lines = append(lines, p.Error())
	}
	return lines
}

// A setting reads the value at a path of the file.
type setting func(f *yamlFile, path string, value ast.Node)

// parseYAML returns a file and its only document, nil if that can't be read.
func parseYAML(name string, content []byte) (*yamlFile, ast.Node) {
	f := &yamlFile{
		name: name, source: strings.Split(string(content), "\n"),
		anchors: map[string]ast.Node{}, places: map[string]ast.Node{}, failed: map[string]bool{},
		merging: map[ast.Node]bool{},
	}
	file, err := parser.ParseBytes(content, 0)
	var syntax yaml.Error
	switch {
	case errors.As(err, &syntax) && syntax.GetToken() != nil:
		at := syntax.GetToken().Position
		f.add(at.Line, at.Column, syntax.GetMessage())
		return f, nil
	case err != nil:
		f.add(1, 1, err.Error())
		return f, nil
	}
	var documents []ast.Node
	for _, d := range file.Docs {
		if d.Body != nil && d.Body.Type() != ast.CommentType {
			documents = append(documents, d.Body)
		}
	}
	switch len(documents) {
	case 0:
		f.add(1, 1, "the file is empty")
		return f, nil
	case 1:
	default:
		f.fail(documents[1], "the file has a second document")
	}
	ast.Walk(f, documents[0])
	return f, documents[0]
}

// Visit notes the anchors.
func (f *yamlFile) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok {
		f.anchors[a.Name.GetToken().Value] = a.Value
	}
	return f
}

func (f *yamlFile) fail(n ast.Node, format string, a ...any) {
	line, column := 1, 1
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key // the parser puts it at the first colon
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		line, column = t.Position.Line, t.Position.Column
	}
	f.add(line, column, fmt.Sprintf(format, a...))
}

func (f *yamlFile) add(line, column int, text string) {
	source := ""
	if line >= 1 && line <= len(f.source) {
		source = withoutPasswords(strings.TrimRight(f.source[line-1], "\r"))
	}
	f.errs = append(f.errs, placedError{f.name, line, max(column, 1), text, source})
}

var passwords = regexp.MustCompile(`[^\s"'=]*@|(?i:pass\w*=)[^\s"'&]*`)

// withoutPasswords returns a line of a file without what may be the password of an address in it, misspelt or not.
func withoutPasswords(line string) string {
	return passwords.ReplaceAllStringFunc(line, func(s string) string {
		if strings.HasSuffix(s, "@") {
			return "…@"
		}
		name, _, _ := strings.Cut(s, "=")
		return name + "=…"
	})
}

// err returns all that is wrong.
func (f *yamlFile) err() error {
	if len(f.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(f.errs, func(a, b placedError) int {
		if a.line != b.line {
			return a.line - b.line
		}
		return a.column - b.column
	})
	return fileErrors(slices.Compact(f.errs))
}

// place returns where a setting stands; if it is not there, what it would stand in.
func (f *yamlFile) place(path string) ast.Node {
	for path != "" {
		if n, ok := f.places[path]; ok {
			return n
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return f.places[""]
}

// deepest bounds how anchors may lead to others.
const deepest = 16

// resolve returns the value that a node stands for.
func (f *yamlFile) resolve(n ast.Node) ast.Node {
	for range deepest {
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.AliasNode:
			target, ok := f.anchors[v.Value.GetToken().Value]
			if !ok {
				f.fail(v, "there is no anchor &%s", v.Value.GetToken().Value)
				return nil
			}
			n = target
		case *ast.TagNode:
			f.fail(v, "tags are not used here")
			return nil
		case nil:
			return nil
		default:
			return n
		}
	}
	f.fail(n, "the anchor leads to itself")
	return nil
}

// mapping returns a setting that has settings of its own.
func mapping(settings map[string]setting) setting {
	return func(f *yamlFile, path string, value ast.Node) {
		m, ok := value.(*ast.MappingNode)
		if !ok {
			f.fail(value, "%s: want settings, one NAME: VALUE a line", orFile(path))
			return
		}
		for _, e := range f.entries(m) {
			name := e.Key.GetToken().Value
			at := name
			if path != "" {
				at = path + "." + name
			}
			read, known := settings[name]
			if !known {
				f.fail(e.Key, "unknown setting %q%s", name, instead(path, name, slices.Sorted(maps.Keys(settings))))
				continue
			}
			f.read(at, name, e.Value, read)
		}
	}
}

// instead says what could be written for a setting that is not among names.
func instead(path, name string, names []string) string {
	if near := nearest(name, names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	if path == "" {
		if near := nearest(name, slices.Sorted(maps.Keys(routeSettings(&Route{})))); near != "" {
			return fmt.Sprintf("; %s belongs below default, or to a route", near)
		}
	}
	return "; there are " + strings.Join(names, ", ")
}

// read reads one setting, which is called name in errors.
func (f *yamlFile) read(path, name string, value ast.Node, read setting) {
	f.places[path] = value
	before := len(f.errs)
	defer func() { f.failed[path] = len(f.errs) > before }()
	v := f.resolve(value)
	switch v.(type) {
	case nil:
	case *ast.NullNode:
		f.fail(value, "%s has no value", name)
	default:
		f.places[path] = v
		read(f, path, v)
	}
}

// entries returns a mapping's entries, with those that it takes over by << and does not have itself.
func (f *yamlFile) entries(m *ast.MappingNode) (entries []*ast.MappingValueNode) {
	f.merging[m] = true
	defer delete(f.merging, m)
	has := map[string]bool{}
	var merged []ast.Node
	for _, e := range m.Values {
		if e.Key.IsMergeKey() {
			merged = append(merged, e.Value)
			continue
		}
		has[e.Key.GetToken().Value] = true
		entries = append(entries, e)
	}
	if len(merged) == 1 {
		if list, ok := f.resolve(merged[0]).(*ast.SequenceNode); ok {
			merged = list.Values
		}
	}
	for i := range merged {
		switch v := f.resolve(merged[i]).(type) {
		case *ast.MappingNode:
			if f.merging[v] {
				f.fail(merged[i], "the anchor leads to itself")
				continue
			}
			for _, e := range f.entries(v) {
				if name := e.Key.GetToken().Value; !has[name] {
					has[name] = true
					entries = append(entries, e)
				}
			}
		case nil:
		default:
			f.fail(merged[i], "<< takes settings over from an anchor of such")
		}
	}
	return entries
}

func orFile(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}

// listOf returns a setting that is a list of what item reads. An empty one is not the same as none.
func listOf[T any](to *[]T, item func(*T) setting) setting {
	return func(f *yamlFile, path string, value ast.Node) {
		s, ok := value.(*ast.SequenceNode)
		if !ok {
			f.fail(value, "%s: want a list", nameOf(path))
			return
		}
		*to = make([]T, len(s.Values))
		for i, v := range s.Values {
			at := path + "[" + strconv.Itoa(i) + "]"
			f.read(at, at, v, item(&(*to)[i]))
		}
	}
}

// nameOf returns the last part of a setting's path.
func nameOf(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// text returns the text of a scalar, however YAML would type it.
func text(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// parsed returns a setting whose text parse understands. Its error begins with what is wrong; want says what would be
// right if the value has no text at all.
func parsed[T any](to *T, want string, parse func(string) (T, error)) setting {
	return func(f *yamlFile, path string, value ast.Node) {
		s, ok := text(value)
		if !ok {
			f.fail(value, "%s: want %s", nameOf(path), want)
			return
		}
		v, err := parse(s)
		if err != nil {
			f.fail(value, "%s: %v", nameOf(path), err)
			return
		}
		*to = v
	}
}

func stringSetting(to *string) setting {
	return func(f *yamlFile, path string, value ast.Node) {
		switch v := value.(type) {
		case *ast.StringNode:
			*to = v.Value
		case *ast.LiteralNode:
			*to = v.Value.Value
		default:
			f.fail(value, "%s: want a text; put it in quotes if it looks like something else", nameOf(path))
		}
	}
}

func boolSetting(to *bool) setting {
	return func(f *yamlFile, path string, value ast.Node) {
		v, ok := value.(*ast.BoolNode)
		if !ok {
			f.fail(value, "%s: want true or false", nameOf(path))
			return
		}
		*to = v.Value
	}
}

func intSetting(to *int) setting {
	return parsed(to, "a whole number", func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0, fmt.Errorf("%q is not a whole number", s)
		}
		return n, nil
	})
}

func choice[T any](to *T, choices map[string]T) setting {
	names := strings.Join(slices.Sorted(maps.Keys(choices)), ", ")
	return parsed(to, "one of "+names, func(s string) (T, error) {
		v, ok := choices[s]
		if !ok {
			return v, fmt.Errorf("%q is none of %s", s, names)
		}
		return v, nil
	})
}

func durationSetting(to *time.Duration) setting { return parsed(to, wantDuration, ParseDuration) }

// notZero is a setting whose zero value has the library's default, which is not what a 0 in the file says. hint is what
// to write instead.
func notZero[T comparable](to *T, read setting, hint string) setting {
	return func(f *yamlFile, path string, value ast.Node) {
		before := len(f.errs)
		read(f, path, value)
		if zero := *new(T); *to == zero && len(f.errs) == before {
			f.fail(value, "%s: 0 is none; %s", nameOf(path), hint)
		}
	}
}

const leaveOut = "leave it out for the default"

const wantSize = "a size in bytes such as 1024, 64KiB or 1MiB"

var sizeUnits = []struct {
	name string
	size int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}}

func parseSize(s string) (int64, error) {
	digits, unit := s, int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			digits, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || int64(n) > (1<<62)/unit {
		return 0, fmt.Errorf("%q is not "+wantSize, s)
	}
	return int64(n) * unit, nil
}

func sizeSetting(to *int64) setting { return parsed(to, wantSize, parseSize) }

// capSetting is a number from 1 on, or "none" for no limit.
func capSetting(to *int) setting {
	return parsed(to, "a whole number from 1 on, or none", func(s string) (int, error) {
		if s == "none" {
			return -1, nil
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("%q is not a whole number from 1 on, or none", s)
		}
		return n, nil
	})
}

// shareSetting is a part of the whole.
func shareSetting(to *float64) setting {
	return parsed(to, "a part such as 0.1", func(s string) (float64, error) {
		share, err := strconv.ParseFloat(s, 64)
		if err != nil || !(share > 0 && share <= 1) {
			return 0, fmt.Errorf("%q is no part above 0 and at most 1", s)
		}
		return share, nil
	})
}

// namesSetting has texts for names.
func namesSetting(to *map[string]string) setting {
	return func(f *yamlFile, path string, value ast.Node) {
		m, ok := value.(*ast.MappingNode)
		if !ok {
			f.fail(value, "%s: want one NAME: NAME a line", nameOf(path))
			return
		}
		*to = map[string]string{}
		for _, e := range f.entries(m) {
			name, other := e.Key.GetToken().Value, ""
			f.read(path+"."+name, name, e.Value, stringSetting(&other))
			(*to)[name] = other
		}
	}
}
