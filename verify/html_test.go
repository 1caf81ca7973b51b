package verify

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"html"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func pageOf(t *testing.T, r *Report) string {
	t.Helper()
	var out strings.Builder
	if err := r.HTML(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestHTML(t *testing.T) {
	t.Parallel()
	page := pageOf(t, sampleReport(60))
	matchGolden(t, "report.html", page)
	for _, want := range []string{
		"<h1>", "✗", "violated", "https://payments.example.com/v1", `href="#finding-2">mismatch-body</a>`, `id="finding-2"`,
		"2 effects, want at most 1",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%s is not in the page", want)
		}
	}
}

// elements returns the elements of a page, which are all closed and in order.
func elements(t *testing.T, page string) (all []xml.StartElement) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(page, "<!doctype html>")))
	d.Strict, d.AutoClose, d.Entity = false, []string{"meta"}, xml.HTMLEntity
	for {
		token, err := d.Token()
		if err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			all = append(all, e.Copy())
		}
	}
}

// A page loads nothing and runs nothing, and what a target has sent is text in it.
func TestHTMLIsSafeWhateverTheTargetSends(t *testing.T) {
	t.Parallel()
	bad := `<img src=x onerror="alert(1)"><style>*{}</style><!--` + hostile + "{{.}}"
	r := sampleReport(30)
	r.Target, r.Profile = bad, bad
	r.Checks = []Result{
		{Name: bad, Title: bad, Rules: []string{bad}, Status: Failed, Findings: []Finding{
			{Safety, bad, bad, bad, []Exchange{{0, bad, bad}, {0, bad, "201" + bad}}},
		}},
		{Name: bad, Title: bad, Why: bad, Status: Skipped},
	}
	r.Gates = []Gate{{Name: bad, Unit: bad}}
	for i := range r.Loads {
		l := &r.Loads[i]
		l.Kinds, l.Injected = append(l.Kinds, Count{bad, 1}), append(l.Injected, Count{bad, 1})
		l.Samples = append(l.Samples, Sample{0, ms, bad, bad})
		l.Failed = []FailedKey{{bad, bad, []Moment{{0, bad + ": " + bad}, {ms, bad + ": success, " + bad}, {ms, bad}}}}
	}
	page := pageOf(t, r)
	known := []string{
		"html", "head", "meta", "title", "style", "body", "header", "nav", "main", "section", "article", "h1", "h2", "h3", "h4", "p",
		"a", "b", "ul", "ol", "li", "dl", "dt", "dd", "div", "span", "small", "code", "table", "thead", "tbody", "tr", "th", "td",
		"details", "summary", "figure", "figcaption", "svg", "path", "rect", "text",
	}
	attributes := []string{
		"lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "role", "scope", "open", "aria-hidden",
		"aria-label", "aria-labelledby", "viewBox", "d", "x", "y", "width", "height",
	}
	styles := 0
	for _, e := range elements(t, page) {
		if !slices.Contains(known, e.Name.Local) {
			t.Errorf("there is an element %s", e.Name.Local)
		}
		if e.Name.Local == "style" {
			styles++
		}
		for _, a := range e.Attr {
			if !slices.Contains(attributes, a.Name.Local) || a.Name.Local == "href" && !strings.HasPrefix(a.Value, "#") {
				t.Errorf("there is an attribute %s=%q of %s", a.Name.Local, a.Value, e.Name.Local)
			}
		}
	}
	if styles != 1 {
		t.Errorf("%d style sheets, want one", styles)
	}
	if n := strings.Count(page, html.EscapeString(visible(bad))); n < 30 {
		t.Errorf("the text of the target is there %d times, want it wherever it belongs", n)
	}
	if strings.ContainsAny(page, "\x1b\u202e\x00\r") {
		t.Error("there are control characters in the page")
	}
}

func TestHTMLHasAPolicyThatAllowsItsStyleAlone(t *testing.T) {
	t.Parallel()
	page := pageOf(t, sampleReport(30))
	_, after, _ := strings.Cut(page, "<style>")
	style, _, _ := strings.Cut(after, "</style>")
	sum := sha256.Sum256([]byte(style))
	want := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'"
	found := regexp.MustCompile(`<meta http-equiv="Content-Security-Policy" content="([^"]*)">`).FindStringSubmatch(page)
	if found == nil || html.UnescapeString(found[1]) != want {
		t.Errorf("the policy is %q, want %q", found, want)
	}
	if strings.Contains(style, "url(") || strings.Contains(style, "@import") {
		t.Error("the style sheet loads something")
	}
}

func TestHTMLHasHeadingsLinksAndTitlesOfPictures(t *testing.T) {
	t.Parallel()
	page := pageOf(t, sampleReport(30))
	ids, links, level := map[string]int{}, []string{}, 0
	for _, e := range elements(t, page) {
		if n := e.Name.Local; len(n) == 2 && n[0] == 'h' {
			if now := int(n[1] - '0'); now > level+1 {
				t.Errorf("a heading of level %d follows one of level %d", now, level)
			} else {
				level = now
			}
		}
		for _, a := range e.Attr {
			switch a.Name.Local {
			case "id":
				ids[a.Value]++
			case "href":
				links = append(links, strings.TrimPrefix(a.Value, "#"))
			case "aria-labelledby":
				links = append(links, a.Value)
			}
		}
	}
	for id, n := range ids {
		if n != 1 {
			t.Errorf("%d elements have the id %s", n, id)
		}
	}
	for _, link := range links {
		if ids[link] == 0 {
			t.Errorf("a link leads to %s, which is nowhere", link)
		}
	}
	if len(links) < 10 {
		t.Errorf("%d links, want many", len(links))
	}
	pictures := regexp.MustCompile(`<svg [^>]*role="img"><title>[^<]+</title>`).FindAllString(page, -1)
	decoration := regexp.MustCompile(`<svg [^>]*aria-hidden="true">`).FindAllString(page, -1)
	if all := strings.Count(page, "<svg "); len(pictures)+len(decoration) != all || len(pictures) != 14 {
		t.Errorf("of %d pictures %d have a title, and %d are decoration", all, len(pictures), len(decoration))
	}
}

// Colours have the contrast that WCAG 2.2 asks for: 4.5 for text (1.4.3), 3 for what else has to be told apart
// (1.4.11).
func TestHTMLColoursCanBeRead(t *testing.T) {
	t.Parallel()
	themes := regexp.MustCompile(`:root \{([^}]*)\}`).FindAllStringSubmatch(pageStyle, 2)
	if len(themes) != 2 {
		t.Fatalf("%d themes, want a light and a dark one", len(themes))
	}
	for i, theme := range themes {
		colors := map[string]string{}
		for _, c := range regexp.MustCompile(`--([\w-]+): #(\w+);`).FindAllStringSubmatch(theme[1], -1) {
			colors[c[1]] = c[2]
		}
		for _, name := range []string{"ink", "soft", "good", "bad", "protocol", "warn"} {
			for _, ground := range []string{"card", "page"} {
				if got := contrast(colors[name], colors[ground]); !(got >= 4.5) {
					t.Errorf("theme %d: the contrast of %s on %s is %.2f", i, name, ground, got)
				}
			}
		}
		for _, name := range []string{"blue", "orange", "purple", "green", "plain", "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"} {
			if got := contrast(colors[name], colors["card"]); !(got >= 3) {
				t.Errorf("theme %d: the contrast of %s is %.2f", i, name, got)
			}
		}
	}
}

// contrast is the contrast ratio of two colours in hexadecimal, as WCAG 2.2 defines it.
func contrast(a, b string) float64 {
	luminance := func(color string) (sum float64) {
		if len(color) == 3 {
			color = string([]byte{color[0], color[0], color[1], color[1], color[2], color[2]})
		}
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			level, err := strconv.ParseUint(color[2*i:2*i+2], 16, 8)
			if err != nil {
				return math.NaN()
			}
			x := float64(level) / 255
			if x <= 0.04045 {
				x /= 12.92
			} else {
				x = math.Pow((x+0.055)/1.055, 2.4)
			}
			sum += weight * x
		}
		return sum
	}
	la, lb := luminance(a), luminance(b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

func TestHTMLOfLittle(t *testing.T) {
	t.Parallel()
	page := pageOf(t, &Report{})
	if len(elements(t, page)) < 20 || !strings.Contains(page, "nothing was checked") || strings.Contains(page, "<section") ||
		strings.Contains(page, "<a ") {
		t.Errorf("an empty report is\n%s", page)
	}
	nan := math.NaN()
	page = pageOf(t, &Report{
		Checks: []Result{{Name: "repeat", Status: Passed}},
		Loads: []Load{
			{Effects: -1, DuplicateRate: nan, ReplayRate: nan, SuccessRate: nan, ConflictRate: nan},
			{Faults: 1, Attempts: 1, Samples: []Sample{{}}, Failed: []FailedKey{{What: "no key is to blame"}}},
		},
		Gates: []Gate{{Name: "--max-p99", Got: nan, Bound: math.Inf(1)}},
	})
	for _, e := range elements(t, page) {
		for _, a := range e.Attr {
			if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
				t.Errorf("%s %s=%q", e.Name.Local, a.Name.Local, a.Value)
			}
		}
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") || !strings.Contains(page, "no key is to blame") {
		t.Errorf("got\n%s", page)
	}
}
