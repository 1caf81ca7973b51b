package verify

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progressWidth is how wide a line of progress is at most: a terminal can't take back a line that it has wrapped.
const (
	progressWidth = 79
	barWidth      = 20
)

// A Progress shows how far a run has come. On a terminal that is one line, which is written anew; elsewhere it is a
// line for each check that has ended, and for each load that begins. Methods may be called concurrently. A failure to
// write is not reported.
type Progress struct {
	terminal bool

	mu      sync.Mutex
	out     io.Writer
	total   int
	done    int
	failed  int
	doing   string
	line    string // that the terminal shows
	loading string // the load that was told of last
}

// NewProgress returns a progress that is shown on w, which may be a terminal.
func NewProgress(w io.Writer, terminal bool) *Progress { return &Progress{terminal: terminal, out: w} }

// Start begins a run of so many checks.
func (p *Progress) Start(total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total, p.done, p.failed, p.doing = total, 0, 0, ""
	p.show()
}

// Check says that a check begins.
func (p *Progress) Check(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doing = name
	p.show()
}

// Done says that a check has ended.
func (p *Progress) Done(r Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if r.mark() == "✗" {
		p.failed++
	}
	p.doing = ""
	if p.terminal {
		p.show()
		return
	}
	text := r.mark() + " " + r.Name
	switch {
	case r.Status == Skipped && r.Why != "":
		text += ": " + r.Why
	case len(r.Findings) > 0:
		f := r.Findings[0]
		for _, other := range r.Findings {
			if f.Severity != r.worst() {
				f = other
			}
		}
		text += fmt.Sprintf(": %s: %s", f.Severity, f.What)
		if n := len(r.Findings) - 1; n > 0 {
			text += fmt.Sprintf(", and %d more", n)
		}
	}
	if r.Status != Skipped {
		text += " (" + span(r.Took) + ")"
	}
	fmt.Fprintln(p.out, visible(text))
}

// Load says how far a load has come: for how long it has run, of how long, and how many operations are done.
func (p *Progress) Load(title string, done, total time.Duration, operations int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.terminal {
		if p.loading != title {
			p.loading = title
			fmt.Fprintf(p.out, "load %s: %s\n", visible(title), span(total))
		}
		return
	}
	left := "last answers"
	if done < total {
		left = fmt.Sprintf("%d s left", (total-done+time.Second-1)/time.Second)
	}
	p.write(bar(float64(done), float64(total)) + fmt.Sprintf("  load %s: %s, %s", title, plural(operations, "operation"), left))
}

// End takes the line of a terminal away.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loading = ""
	if p.terminal && p.line != "" {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.line = ""
	}
}

// show writes the line of checks. The caller holds p.mu.
func (p *Progress) show() {
	text := bar(float64(p.done), float64(p.total)) + fmt.Sprintf("  %d of %d", p.done, p.total)
	if p.failed > 0 {
		text += fmt.Sprintf(", %d failed", p.failed)
	}
	if p.doing != "" {
		text += "  " + p.doing
	}
	p.write(text)
}

// write puts a text in the place of the line that the terminal shows. The caller holds p.mu.
func (p *Progress) write(text string) {
	text = cutTo(visible(text), progressWidth)
	if !p.terminal || text == p.line {
		return
	}
	p.line = text
	fmt.Fprint(p.out, "\r"+text+"\x1b[K")
}

// bar is a part of a whole as a bar; none of nothing is an empty one.
func bar(part, whole float64) string {
	n := 0
	if whole > 0 {
		n = int(barWidth * min(max(part/whole, 0), 1))
	}
	return strings.Repeat("█", n) + strings.Repeat("░", barWidth-n)
}
