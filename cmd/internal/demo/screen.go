package demo

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"
)

// A screen prints for a person: at most 100 columns, in colour on a terminal.
type screen struct {
	out   io.Writer
	color bool
}

const columns = 100

func (s *screen) printf(format string, a ...any) { fmt.Fprintf(s.out, format, a...) }

func (s *screen) paint(code, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *screen) bold(text string) string  { return s.paint("1", text) }
func (s *screen) dim(text string) string   { return s.paint("2", text) }
func (s *screen) green(text string) string { return s.paint("32", text) }
func (s *screen) red(text string) string   { return s.paint("31", text) }

func (s *screen) mark(ok bool) string {
	if ok {
		return s.green("✓")
	}
	return s.red("✗")
}

func (s *screen) status(status int) string {
	text := fmt.Sprintf("%d %s", status, http.StatusText(status))
	switch {
	case status < 300:
		return s.paint("32", text)
	case status < 500:
		return s.paint("33", text)
	}
	return s.paint("31", text)
}

func (s *screen) heading(n int, sc *scene) {
	s.printf("\n%s\n   %s\n\n", s.bold(fmt.Sprintf("%d  %s", n, sc.title)), s.dim(sc.why))
}

func (s *screen) request(r request, prefix string) {
	s.printf("   → %sPOST %s\n", prefix, r.path)
	s.printf("     X-Account: %s\n", r.account)
	if r.key != "" {
		s.printf("     Idempotency-Key: %s\n", r.key)
	}
	if r.prefer != "" {
		s.printf("     Prefer: %s\n", r.prefer)
	}
	s.body(r.body)
}

func (s *screen) reply(r reply) {
	if r.err != nil {
		s.printf("   ← %s\n", s.red("the connection broke, no answer"))
		return
	}
	s.printf("   ← %s\n", s.status(r.status))
	for _, name := range shownHeaders {
		if v := r.header.Get(name); v != "" {
			s.printf("     %s: %s\n", name, v)
		}
	}
	s.body(r.body)
}

func (s *screen) note(format string, a ...any) { s.printf("     "+format+"\n", a...) }

// typed prints a command line, over as many lines as it needs.
func (s *screen) typed(command string) {
	const indent, width = "     ", columns - 5 - 2
	text := "$ " + command
	for len(text) > width {
		at := strings.LastIndex(text[:width], " ")
		if at <= 0 {
			break
		}
		s.printf("%s%s \\\n", indent, s.bold(text[:at]))
		text = "      " + text[at+1:]
	}
	s.printf("%s%s\n", indent, s.bold(text))
}

// printed shows what a command has printed.
func (s *screen) printed(text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		if runes := []rune(line); len(runes) > columns-5 {
			line = string(runes[:columns-6]) + "…"
		}
		s.printf("%s\n", strings.TrimRight("     "+s.dim(line), " "))
	}
}

// body prints JSON over as many lines as it needs, broken behind commas.
func (s *screen) body(text string) {
	const indent, width = "     ", columns - 5
	text = strings.TrimSpace(text)
	for len(text) > width {
		at := strings.LastIndex(text[:width], ",") + 1
		if at == 0 {
			at = width
		}
		s.printf("%s%s\n", indent, s.dim(text[:at]))
		text = text[at:]
	}
	if text != "" {
		s.printf("%s%s\n", indent, s.dim(text))
	}
}

// A row is a scene's line in the table at the end.
type row struct {
	number                        int
	title, expected, got, charges string
	checks                        []bool
	ok                            bool
}

func (s *screen) table(rows []row) {
	widths := [...]int{2, 30, 23, 23, 7}
	line := func(mark string, cells ...string) {
		text := " "
		for i, cell := range cells {
			text += "  " + cell + strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell)))
		}
		s.printf("%s\n", strings.TrimRight(text+"  "+mark, " "))
	}
	s.printf("\n")
	line("", "", "scene", "expected", "got", "charges")
	var rules []string
	for _, w := range widths {
		rules = append(rules, strings.Repeat("─", w))
	}
	line("", rules...)
	good := 0
	for _, r := range rows {
		if r.ok {
			good++
		}
		line(s.mark(r.ok), fmt.Sprintf("%2d", r.number), r.title, r.expected, r.got, r.charges)
	}
	s.printf("\n   %s\n", s.bold(fmt.Sprintf("%d of %d scenes came out right", good, len(rows))))
}
