// Package docs checks that the documentation tells the truth where a program can tell.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// pages returns the documentation by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			text, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			found[strings.TrimPrefix(filepath.ToSlash(p), root+"/")] = string(text)
		}
	}
	if len(found) == 0 {
		t.Fatal("no documentation found")
	}
	return found
}

// compiled returns the text of every Go file that is compiled into a package or a test, white space normalised.
func compiled(t *testing.T) []string {
	t.Helper()
	var sources []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		sources = append(sources, normal(string(text)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// normal drops indentation and blank lines, which differ between a page and a function's body.
func normal(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// blocks returns the fenced code blocks of a language.
func blocks(page, language string) []string {
	var found []string
	for _, part := range strings.Split(page, "```"+language+"\n")[1:] {
		code, _, _ := strings.Cut(part, "```")
		found = append(found, code)
	}
	return found
}

func TestEverySnippetIsCompiled(t *testing.T) {
	t.Parallel()
	sources := compiled(t)
	snippets := 0
	for path, page := range pages(t) {
		for _, code := range blocks(page, "go") {
			snippets++
			found := false
			for _, s := range sources {
				found = found || strings.Contains(s, normal(code))
			}
			if !found {
				t.Errorf("%s: this snippet stands in no Go file, so nothing compiles it:\n%s", path, code)
			}
		}
	}
	if snippets == 0 {
		t.Error("no snippets found: is the search wrong?")
	}
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	t.Parallel()
	links := 0
	for path, page := range pages(t) {
		for _, part := range strings.Split(page, "](")[1:] {
			target, _, _ := strings.Cut(part, ")")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "#") {
				continue
			}
			links++
			target, _, _ = strings.Cut(target, "#")
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(path), target)); err != nil {
				t.Errorf("%s: link to %s: %v", path, target, err)
			}
		}
	}
	if links == 0 {
		t.Error("no links found: is the search wrong?")
	}
}
