package verify

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"time"
)

var (
	//go:embed report.html
	pageText string
	//go:embed report.css
	pageStyle string

	pageTemplate = template.Must(template.New("report").Parse(pageText))
)

// HTML writes the report as one page that stands for itself: it loads nothing, runs nothing, and its policy forbids
// both. All that comes from the target is escaped.
func (r *Report) HTML(w io.Writer) error {
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, newPage(r))
	if err == nil {
		_, err = b.WriteTo(w)
	}
	if err != nil {
		return fmt.Errorf("write the report as HTML: %w", err)
	}
	return nil
}

// Parts of the page. Their texts are visible ones.
type (
	page struct {
		Policy, Target, Verdict, Mark string
		Wrong                         []string
		Style                         template.CSS
		Facts, Tiles                  []pageFact
		Checks                        []pageCheck
		Findings                      []pageFinding
		Gates                         []pageGate
		Loads                         []pageLoad
		Groups                        []pageGroup
	}
	pageFact  struct{ Name, Value, Class string }
	pageCheck struct {
		Mark, Is, Name, Title, Why, Rules, Took string
		Finding                                 int // the first one, from 1 on; 0 for none
	}
	pageFinding struct {
		Number                             int
		Severity, Check, Rule, What, Right string
		Exchanges                          []pageExchange
	}
	pageExchange struct {
		At, Sent, Status, Class, Came string
	}
	pageGate struct{ Mark, Is, Name, Limit, Got string }
	// A pageGroup is some rows of the table of figures.
	pageGroup struct {
		Title string
		Rows  []pageRow
	}
	pageRow struct {
		Name   string
		Swatch template.HTML
		Cells  []pageCell
	}
	pageCell struct {
		Value string
		Bad   bool
	}
	pageLoad struct {
		Title            string
		Note             string
		Faults, Kinds    []pageSwatch
		Latency, Answers []template.HTML // in each format
		Failures         []pageFailure
	}
	pageSwatch struct {
		Swatch template.HTML
		Name   string
	}
	pageFailure struct {
		Key, What string
		Timeline  []template.HTML // in each format
		Moments   []pageExchange
	}
)

func newPage(r *Report) *page {
	s := r.summary()
	sum := sha256.Sum256([]byte(pageStyle))
	p := &page{
		Policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'; base-uri 'none'; form-action 'none'",
		Style:  template.CSS(pageStyle), //nolint:gosec // it is this package's own
		Target: visible(r.Target), Verdict: s.verdict(), Mark: s.mark(),
	}
	p.Wrong, _ = s.parts() // the tiles say the rest
	p.Facts = []pageFact{{Name: "profile", Value: visible(r.Profile)}, {Name: "seed", Value: strconv.FormatUint(r.Seed, 10)}}
	if !r.Began.IsZero() {
		p.Facts = append(p.Facts, pageFact{Name: "began", Value: r.Began.UTC().Format(time.DateTime) + " UTC"})
	}
	p.Facts = append(p.Facts, pageFact{Name: "took", Value: span(r.Took)})
	tile := func(n int, name, class string) {
		if n == 0 {
			class = "none"
		}
		p.Tiles = append(p.Tiles, pageFact{name, strconv.Itoa(n), class})
	}
	tile(s.passed, "passed", "passed")
	tile(s.findings[Safety], "safety findings", "safety")
	tile(s.findings[Protocol], "protocol findings", "protocol")
	tile(s.findings[Advice], "advice", "advice")
	tile(s.skipped, "skipped", "skipped")
	if len(r.Gates) > 0 {
		tile(len(s.closed), "gates closed", "safety")
	}
	p.addChecks(r)
	for i := range r.Gates {
		g := &r.Gates[i]
		row := pageGate{"✓", "open", visible(g.Name), g.limit(), g.got()}
		if !g.Open {
			row.Mark, row.Is = "✗", "closed"
		}
		p.Gates = append(p.Gates, row)
	}
	p.addFigures(r.Loads)
	for i := range r.Loads {
		p.Loads = append(p.Loads, newPageLoad(&r.Loads[i]))
	}
	return p
}

func (p *page) addChecks(r *Report) {
	for i := range r.Checks {
		c := &r.Checks[i]
		row := pageCheck{
			Mark: c.mark(), Is: string(c.Status), Name: visible(c.Name), Title: visible(c.Title), Why: visible(c.Why),
			Rules: visible(strings.Join(c.Rules, ", ")), Took: span(c.Took),
		}
		if c.Status == Skipped {
			row.Took = ""
		}
		if worst := c.worst(); worst != "" {
			row.Is, row.Finding = string(worst), len(p.Findings)+1
		}
		p.Checks = append(p.Checks, row)
		for _, f := range c.Findings {
			found := pageFinding{
				Number: len(p.Findings) + 1, Severity: string(f.Severity), Check: row.Name,
				Rule: visible(f.Rule), What: visible(f.What), Right: visible(f.Right),
			}
			for _, e := range f.Exchanges {
				found.Exchanges = append(found.Exchanges, newPageExchange(e))
			}
			p.Findings = append(p.Findings, found)
		}
	}
}

func newPageExchange(e Exchange) pageExchange {
	x := pageExchange{At: since(e.At), Sent: visible(e.Sent), Came: visible(e.Came)}
	if n, err := strconv.Atoi(x.Came[:min(len(x.Came), 3)]); err == nil && n >= 100 && n < 600 {
		x.Status, x.Came, x.Class = x.Came[:3], x.Came[3:], fmt.Sprintf("s%d", n/100)
	} else if x.Came != "" {
		x.Class = "lost"
	}
	return x
}

// addFigures adds the figures of all loads, side by side.
func (p *page) addFigures(loads []Load) {
	if len(loads) == 0 {
		return
	}
	row := func(name string, swatch template.HTML, of func(*Load) string, bad func(*Load) bool) pageRow {
		r := pageRow{Name: visible(name), Swatch: swatch}
		for i := range loads {
			l := &loads[i]
			r.Cells = append(r.Cells, pageCell{of(l), bad != nil && bad(l)})
		}
		return r
	}
	figureRows := pageGroup{}
	for _, f := range figures {
		figureRows.Rows = append(figureRows.Rows, row(f.name, "", f.of, f.bad))
	}
	p.Groups = append(p.Groups, figureRows)
	for _, group := range []struct {
		title  string
		of     func(*Load) []Count
		swatch func(string) template.HTML
	}{
		{"answers", (*Load).answers, kindSwatch},
		{"injected faults", (*Load).injected, func(name string) template.HTML { return faultLook(name).swatch() }},
	} {
		rows := pageGroup{Title: group.title}
		for _, name := range countNames(loads, group.of) {
			count := func(l *Load) string { return countOf(l, group.of, name) }
			rows.Rows = append(rows.Rows, row(name, group.swatch(name), count, nil))
		}
		if len(rows.Rows) > 0 {
			p.Groups = append(p.Groups, rows)
		}
	}
}

func newPageLoad(l *Load) pageLoad {
	p := pageLoad{Title: l.title()}
	if n := len(l.Samples); n > 0 {
		for _, size := range []format{wide, narrow} {
			p.Latency = append(p.Latency, latencyPlot(l, size))
			p.Answers = append(p.Answers, answersPlot(l, size))
		}
		p.Note = "Of marks that would cover each other one is drawn."
		if n < l.Attempts {
			p.Note = fmt.Sprintf("%d of %d attempts, evenly chosen. ", n, l.Attempts) + p.Note
		}
		met, ended := map[string]int{}, map[string]int{}
		for _, s := range l.Samples {
			met[s.Fault]++
			ended[s.Kind]++
		}
		if met[""] > 0 {
			p.Faults = append(p.Faults, pageSwatch{Swatch: faultLook("").swatch(), Name: "no fault"})
		}
		for _, name := range countNames([]Load{*l}, (*Load).injected) {
			if met[name] > 0 {
				p.Faults = append(p.Faults, pageSwatch{Swatch: faultLook(name).swatch(), Name: visible(name)})
			}
		}
		for _, name := range countNames([]Load{*l}, (*Load).answers) {
			if ended[name] > 0 {
				p.Kinds = append(p.Kinds, pageSwatch{Swatch: kindSwatch(name), Name: visible(name)})
			}
		}
	}
	for i := range l.Failed {
		k := &l.Failed[i]
		f := pageFailure{Key: visible(k.Key), What: visible(k.What)}
		for _, m := range k.Events {
			f.Moments = append(f.Moments, pageExchange{At: since(m.At), Sent: visible(m.What)})
		}
		if len(k.Events) > 0 {
			f.Timeline = []template.HTML{timeline(k, wide), timeline(k, narrow)}
		}
		p.Failures = append(p.Failures, f)
	}
	return p
}

func kindSwatch(kind string) template.HTML {
	return template.HTML(fmt.Sprintf( //nolint:gosec // nothing in it comes from elsewhere
		`<svg class="swatch" viewBox="0 0 14 14" aria-hidden="true"><rect class="%s" x="1" y="1" width="12" height="12"/></svg>`,
		kindColor(kind)))
}
