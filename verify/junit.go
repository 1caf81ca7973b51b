package verify

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Elements of JUnit's XML, as CI servers read it.
type (
	junitReport struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string           `xml:"name,attr"`
		Tests      int              `xml:"tests,attr"`
		Failures   int              `xml:"failures,attr"`
		Errors     int              `xml:"errors,attr"`
		Skipped    int              `xml:"skipped,attr"`
		Time       string           `xml:"time,attr"`
		Timestamp  string           `xml:"timestamp,attr,omitempty"`
		Properties *junitProperties `xml:"properties"`
		Cases      []junitCase      `xml:"testcase"`
	}
	junitProperties struct {
		Property []junitProperty `xml:"property"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Time    string        `xml:"time,attr"`
		Skipped *junitSkipped `xml:"skipped"`
		Failure *junitFailure `xml:"failure"`
		Out     *junitText    `xml:"system-out"`
	}
	junitSkipped struct {
		Message string `xml:"message,attr,omitempty"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",cdata"`
	}
	junitText struct {
		Text string `xml:",cdata"`
	}
)

// JUnit writes the report as JUnit XML: a suite of the checks, and one of the gates if there are any. A check has one
// failure at most, since some readers see the first only: its message is the worst finding, its text has all that
// violate safety or the protocol. Advice fails nothing; it is in system-out.
func (r *Report) JUnit(w io.Writer) error {
	checks := junitSuite{Name: "checks", Time: junitTime(r.Took), Properties: &junitProperties{[]junitProperty{
		{"target", visible(r.Target)}, {"profile", visible(r.Profile)}, {"seed", strconv.FormatUint(r.Seed, 10)},
	}}}
	for i := range r.Checks {
		checks.add(r.Checks[i].junit())
	}
	gates := junitSuite{Name: "gates", Time: junitTime(0)}
	for i := range r.Gates {
		gates.add(r.Gates[i].junit())
	}
	if !r.Began.IsZero() {
		checks.Timestamp = r.Began.UTC().Format("2006-01-02T15:04:05")
		gates.Timestamp = checks.Timestamp
	}

	report := junitReport{Name: "semel-verify", Time: junitTime(r.Took), Suites: []junitSuite{checks}}
	if len(gates.Cases) > 0 {
		report.Suites = append(report.Suites, gates)
	}
	for _, s := range report.Suites {
		report.Tests += s.Tests
		report.Failures += s.Failures
		report.Skipped += s.Skipped
	}
	text, err := xml.MarshalIndent(&report, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	}
	if err != nil {
		return fmt.Errorf("write the report as JUnit XML: %w", err)
	}
	return nil
}

func (s *junitSuite) add(c junitCase) {
	s.Tests++
	if c.Failure != nil {
		s.Failures++
	}
	if c.Skipped != nil {
		s.Skipped++
	}
	s.Cases = append(s.Cases, c)
}

func (r *Result) junit() junitCase {
	c := junitCase{Class: "semel.verify.checks", Name: visible(r.Name), Time: junitTime(r.Took)}
	if r.Status == Skipped {
		c.Skipped = &junitSkipped{visible(r.Why)}
		return c
	}
	var failures, advice []string
	var first Finding
	for _, f := range r.Findings {
		if f.Severity == Advice {
			advice = append(advice, f.text())
			continue
		}
		if len(failures) == 0 || f.Severity == Safety && first.Severity != Safety {
			first = f
		}
		failures = append(failures, f.text())
	}
	head := visible(r.Title) + " (" + visible(strings.Join(r.Rules, ", ")) + ")\n\n"
	if len(failures) > 0 {
		message := visible(fmt.Sprintf("%s, %s: %s", first.Severity, first.Rule, first.What))
		c.Failure = &junitFailure{message, string(first.Severity), "\n" + head + strings.Join(failures, "\n")}
	}
	if len(advice) > 0 {
		c.Out = &junitText{"\n" + head + strings.Join(advice, "\n")}
	}
	if r.Status == Failed && len(r.Findings) == 0 {
		c.Failure = &junitFailure{"failed", "failed", head}
	}
	return c
}

// text is the finding on lines of its own.
func (f *Finding) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s: %s\nright: %s\n", f.Severity, visible(f.Rule), visible(f.What), visible(f.Right))
	for _, e := range f.Exchanges {
		fmt.Fprintf(&b, "%s  %s\n", since(e.At), visible(e.Sent))
		if e.Came != "" {
			fmt.Fprintf(&b, "%s  → %s\n", strings.Repeat(" ", len(since(e.At))), visible(e.Came))
		}
	}
	return b.String()
}

func (g *Gate) junit() junitCase {
	c := junitCase{Class: "semel.verify.gates", Name: visible(g.Name), Time: junitTime(0)}
	if !g.Open {
		text := visible(fmt.Sprintf("got: %s; the bound is %s", g.got(), g.limit()))
		c.Failure = &junitFailure{Message: text, Type: "gate", Text: text}
	}
	return c
}

// junitTime is in seconds.
func junitTime(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }
