package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// A screen is where the demo is told: plain text of at most 100 columns, in colour on a terminal.
type screen struct {
	out   io.Writer
	color bool
}

func (s *screen) printf(format string, a ...any) { fmt.Fprintf(s.out, format, a...) }

func (s *screen) paint(code, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *screen) bold(text string) string { return s.paint("1", text) }
func (s *screen) dim(text string) string  { return s.paint("2", text) }

func (s *screen) mark(ok bool) string {
	if ok {
		return s.paint("32", "✓")
	}
	return s.paint("31", "✗")
}

// columns writes cells under each other: each as wide as its column's widest, the last as it is. Columns in right are
// aligned to the right.
func (s *screen) columns(indent string, rows [][]string, right ...int) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		line := indent
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if slices.Contains(right, i) {
				cell, pad = pad+cell, ""
			}
			line += cell + pad + "  "
		}
		s.printf("%s\n", strings.TrimRight(line, " "))
	}
}

// money writes an amount of minor units.
func money(amount int64, currency string) string {
	return fmt.Sprintf("%d.%02d %s", amount/100, amount%100, currency)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
