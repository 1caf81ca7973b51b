package verify

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// columns is how wide a printed report is at most.
const columns = 100

const (
	shownFailures = 3 // of a load, in print
	shownMoments  = 12
)

// Print writes the report for people, at most 100 columns wide, in colour if it goes to a terminal. It says the same
// without colour. A failure to write is not reported.
func (r *Report) Print(w io.Writer, color bool) {
	p := &printout{color: color}
	s := r.summary()
	p.head(r)
	p.checks(r)
	p.findings(r)
	p.loads(r)
	for i := range r.Loads {
		p.failures(&r.Loads[i])
	}
	p.gates(r)
	for i, line := range wrap(s.String(), columns) {
		if i == 0 {
			verdict := s.verdict()
			line = p.paint(bold+";"+markColor[s.mark()], verdict) + line[len(verdict):]
		}
		p.line(line)
	}
	p.WriteTo(w) //nolint:errcheck // a failure to print has nowhere to be told
}

// Codes of colours (ECMA-48, SGR).
const (
	bold    = "1"
	faint   = "2"
	red     = "31"
	green   = "32"
	yellow  = "33"
	magenta = "35"
)

// A printout is text that grows.
type printout struct {
	bytes.Buffer
	color bool
}

func (p *printout) paint(code, text string) string {
	if !p.color || text == "" || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// line writes a line, without spaces at its end.
func (p *printout) line(parts ...string) {
	p.WriteString(strings.TrimRight(strings.Join(parts, ""), " "))
	p.WriteByte('\n')
}

func (p *printout) heading(text string) { p.line(p.paint(bold, text)) }

// severityColor has a colour for each severity, and for none.
var severityColor = map[Severity]string{Safety: bold + ";" + red, Protocol: magenta, Advice: yellow}

var markColor = map[string]string{"✓": green, "✗": red, "!": yellow, "–": faint}

func (p *printout) head(r *Report) {
	p.line(p.paint(bold, "semel-verify"), "  ", visible(r.Target))
	facts := []string{"profile " + visible(r.Profile), "seed " + strconv.FormatUint(r.Seed, 10)}
	if !r.Began.IsZero() {
		facts = append(facts, "began "+r.Began.UTC().Format(time.DateTime)+" UTC")
	}
	p.line(p.paint(faint, strings.Join(append(facts, "took "+span(r.Took)), ", ")))
	p.line()
}

// checks prints a table of the checks that ran, and then why others did not.
func (p *printout) checks(r *Report) {
	if len(r.Checks) == 0 {
		return
	}
	p.heading("Checks")
	const rulesWidth = 12
	name, severity := 0, 0
	for i := range r.Checks {
		if c := &r.Checks[i]; c.Status != Skipped {
			name = max(name, min(utf8.RuneCountInString(c.Name), 28))
			severity = max(severity, len(c.worst()))
		}
	}
	indent := 2 + 1 + 2
	if severity > 0 {
		indent += severity + 2
	}
	title := columns - indent - name - 2 - 2 - rulesWidth
	var whys []string // in the order in which they come first
	skipped := map[string][]string{}
	for i := range r.Checks {
		c := &r.Checks[i]
		if c.Status == Skipped {
			if skipped[c.Why] == nil {
				whys = append(whys, c.Why)
			}
			skipped[c.Why] = append(skipped[c.Why], c.Name)
			continue
		}
		names, titles := wrap(visible(c.Name), name), wrap(visible(c.Title), title)
		rules := wrap(visible(strings.Join(c.Rules, ", ")), rulesWidth)
		for n := range max(len(names), len(titles), len(rules)) {
			lead := strings.Repeat(" ", indent)
			if n == 0 {
				worst := c.worst()
				lead = "  " + p.paint(markColor[c.mark()], c.mark()) + "  "
				if severity > 0 {
					lead += p.paint(severityColor[worst], string(worst)) + strings.Repeat(" ", severity-len(worst)+2)
				}
			}
			p.line(lead, pad(nth(names, n), name+2), pad(nth(titles, n), title+2), p.paint(faint, nth(rules, n)))
		}
	}
	for _, why := range whys {
		text := strings.Join(skipped[why], ", ")
		if why != "" {
			text += ": " + why
		}
		p.paragraph("  "+p.paint(markColor["–"], "–")+"  ", 5, visible(text))
	}
	p.line()
}

func (p *printout) findings(r *Report) {
	n := 0
	for i := range r.Checks {
		for _, f := range r.Checks[i].Findings {
			if n++; n == 1 {
				p.heading("Findings")
			}
			number := fmt.Sprintf("%3d  ", n)
			rule := ""
			if f.Rule != "" {
				rule = "  " + p.paint(faint, cutTo(visible(f.Rule), 16))
			}
			name := p.paint(bold, cutTo(visible(r.Checks[i].Name), 60))
			p.line(number, p.paint(severityColor[f.Severity], string(f.Severity)), "  ", name, rule)
			p.paragraph("     is     ", 12, visible(f.What))
			p.paragraph("     right  ", 12, visible(f.Right))
			p.exchanges(f.Exchanges)
			p.line()
		}
	}
}

// paragraph prints a text behind a lead, which takes up so many columns. A text without a word is left out with its
// lead.
func (p *printout) paragraph(lead string, indent int, text string) {
	if text == "" {
		return
	}
	for i, line := range wrap(text, columns-indent) {
		if i == 0 {
			p.line(lead, line)
		} else {
			p.line(strings.Repeat(" ", indent), line)
		}
	}
}

// exchanges prints each exchange on one line if all fit, and else what came below what was sent.
func (p *printout) exchanges(list []Exchange) {
	at, sent, came := 0, 0, 0
	for _, e := range list {
		at = max(at, len(since(e.At)))
		if e.Came != "" {
			sent = max(sent, utf8.RuneCountInString(visible(e.Sent)))
		}
		came = max(came, utf8.RuneCountInString(visible(e.Came)))
	}
	indent := 5 + at + 2
	oneLine := indent+sent+2+2+came <= columns
	for _, e := range list {
		lead := fmt.Sprintf("     %s  ", p.paint(faint, fmt.Sprintf("%*s", at, since(e.At))))
		if oneLine && e.Came != "" {
			p.line(lead, pad(visible(e.Sent), sent+2), p.paint(faint, "→ "), visible(e.Came))
			continue
		}
		p.paragraph(lead, indent, visible(e.Sent))
		p.paragraph(strings.Repeat(" ", indent)+p.paint(faint, "→ "), indent+2, visible(e.Came))
	}
}

// loads prints the figures of all loads side by side.
func (p *printout) loads(r *Report) {
	if len(r.Loads) == 0 {
		return
	}
	const label, value = 32, 32
	row := func(name string, of func(*Load) string, bad func(*Load) bool) {
		cells := []string{pad(name, label)}
		for i := range r.Loads {
			text, code := of(&r.Loads[i]), ""
			padding := pad("", value-utf8.RuneCountInString(text))
			if bad != nil && bad(&r.Loads[i]) {
				code = severityColor[Safety]
			}
			cells = append(cells, p.paint(code, text), padding)
		}
		p.line(cells...)
	}
	head := pad("Loads", label)
	for i := range r.Loads {
		head += pad(r.Loads[i].title(), value)
	}
	p.heading(strings.TrimRight(head, " "))
	for _, f := range figures {
		row("  "+f.name, f.of, f.bad)
	}
	for _, group := range []struct {
		title string
		of    func(*Load) []Count
	}{{"answers", (*Load).answers}, {"injected faults", (*Load).injected}} {
		names := countNames(r.Loads, group.of)
		if len(names) == 0 {
			continue
		}
		p.line("  ", p.paint(faint, group.title))
		for _, name := range names {
			lines := wrap(visible(name), label-6)
			for i, line := range lines {
				row("    "+line, func(l *Load) string {
					if i > 0 {
						return ""
					}
					return countOf(l, group.of, name)
				}, nil)
			}
		}
	}
	p.line()
}

func (p *printout) failures(l *Load) {
	if len(l.Failed) == 0 {
		return
	}
	title := "Failures, " + l.title()
	if n := len(l.Failed) - shownFailures; n > 0 {
		title += fmt.Sprintf(": %d of %d", shownFailures, len(l.Failed))
	}
	p.heading(title)
	for _, k := range l.Failed[:min(len(l.Failed), shownFailures)] {
		p.paragraph("  "+p.paint(markColor["✗"], "✗")+"  ", 5, visible(k.title()))
		moments := make([]Exchange, 0, shownMoments)
		for i, m := range k.Events {
			if i == shownMoments-1 && len(k.Events) > shownMoments {
				moments = append(moments, Exchange{At: m.At, Sent: fmt.Sprintf("… %d more …", len(k.Events)-i)})
				break
			}
			moments = append(moments, Exchange{At: m.At, Sent: m.What})
		}
		p.exchanges(moments)
	}
	p.line()
}

func (p *printout) gates(r *Report) {
	if len(r.Gates) == 0 {
		return
	}
	p.heading("Gates")
	name, limit := 0, 0
	for i := range r.Gates {
		name = max(name, utf8.RuneCountInString(visible(r.Gates[i].Name)))
		limit = max(limit, utf8.RuneCountInString(r.Gates[i].limit()))
	}
	for i := range r.Gates {
		g := &r.Gates[i]
		mark, is := "✓", "open"
		if !g.Open {
			mark, is = "✗", "closed"
		}
		p.line("  ", p.paint(markColor[mark], mark), "  ",
			pad(visible(g.Name), name+2), pad(is, 8), pad(g.limit(), limit+2), "got: ", g.got())
	}
	p.line()
}

// pad fills up a text to a width.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

func nth(lines []string, n int) string {
	if n < len(lines) {
		return lines[n]
	}
	return ""
}

// wrap breaks a text into lines of at most so many characters: at spaces, and where there is none, within a word.
func wrap(text string, width int) (lines []string) {
	rest, width := []rune(text), max(width, 1)
	for len(rest) > width {
		at := width
		for at > 0 && rest[at] != ' ' {
			at--
		}
		if at == 0 {
			at = width
		}
		lines = append(lines, strings.TrimRight(string(rest[:at]), " "))
		rest = rest[at:]
		for len(rest) > 0 && rest[0] == ' ' {
			rest = rest[1:]
		}
	}
	if len(rest) > 0 || len(lines) == 0 {
		lines = append(lines, string(rest))
	}
	return lines
}
