package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/cmd/internal/verify"
)

type verifyCommand struct {
	Scenario string `placeholder:"FILE" help:"What to ask and what to know of the target, in YAML. The flags below go before it."`

	Target   string          `placeholder:"URL" help:"Where to send the request; with --scenario only the API's address, before all its paths."`
	Method   string          `default:"" placeholder:"NAME" help:"Method of the request (default POST)."`
	Body     string          `placeholder:"TEXT" help:"Body of the request; @FILE reads it from a file. $${uuid}, $${sequence}, $${word} and $${amount} are new for each operation."`
	Header   []string        `placeholder:"NAME: VALUE" sep:"none" help:"A field of every request; may be given several times."`
	Answers  string          `placeholder:"POINTER|NAME" help:"What in an answer is different for each effect: a JSON Pointer, or the name of a header field (default /id)."`
	Profile  string          `placeholder:"NAME" help:"Dialect of the target: draft07 (422 for a key of another request) or stripe (400) (default draft07)."`
	Lease    verify.Duration `placeholder:"TIME" help:"How long the target keeps a request for in progress after a crash (default 30s)."`
	Later    verify.Duration `placeholder:"TIME" help:"How long the check repeat-later waits (default 1m)."`
	Timeout  verify.Duration `placeholder:"TIME" help:"How long an answer may take (default 10s)."`
	Only     []string        `placeholder:"CHECK" help:"Run these checks alone, with commas between them."`
	Skip     []string        `placeholder:"CHECK" help:"Leave these checks out."`
	List     bool            `help:"Only print the checks, and what each needs."`
	Rate     float64         `placeholder:"N" help:"Put a load of so many requests a second on the target after the checks (default: none)."`
	Duration time.Duration   `default:"30s" placeholder:"TIME" help:"How long each load lasts (default ${default})."`
	Faults   percent         `placeholder:"N%" help:"Put the load on once more, with a fault of the network for so many of its attempts."`
	Seed     uint64          `placeholder:"N" help:"Decides what is repeated and which attempt meets which fault (default: random, and printed)."`

	MinSuccess    percent       `placeholder:"N%" help:"Fail if fewer requests succeed under a load, after retries."`
	MaxP99        time.Duration `name:"max-p99" placeholder:"TIME" help:"Fail if 1 % of the attempts of the load without faults take longer."`
	MaxDuplicates int           `default:"0" placeholder:"N" help:"Fail if there are more duplicate effects under a load (default ${default})."`

	JSON       string `name:"json" placeholder:"FILE" help:"Write the report as JSON; - is standard output, in place of the table."`
	JUnit      string `name:"junit" placeholder:"FILE" help:"Write the checks as JUnit XML."`
	Report     string `placeholder:"FILE" help:"Write the report as one HTML page."`
	Prometheus string `placeholder:"FILE" help:"Write the figures in the text format of Prometheus."`
}

func (*verifyCommand) Help() string {
	return `Sends requests to an HTTP API, repeats them as clients and networks do, and counts effects. It needs to know nothing of what ` +
		`is behind the address; the more a scenario tells, the more it can check. It has effects at the target: use one that is there for tests.

Exit status: 0 if nothing violates safety or the protocol, and all bounds hold; 1 if something does; 2 for wrong use.

Examples:

  Any API, effects counted by the ids in its answers:

    semel verify --target http://127.0.0.1:8080/payments \
        --body '{"order":"${uuid}","amount":100,"currency":"EUR"}'

  What a scenario says, with a load under faults, and a page to look at:

    semel verify --scenario examples/verify/demo.yaml \
        --rate 50 --duration 30s --faults 20% --report report.html

  In a build:

    semel verify --scenario payments.yaml --junit verify.xml \
        --rate 20 --min-success 99.9% --max-p99 500ms`
}

// A percent is a part of 1, written as in 20% or 0.2.
type percent float64

// UnmarshalText reads it.
func (p *percent) UnmarshalText(text []byte) error {
	number, isPercent := strings.CutSuffix(string(text), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if isPercent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return fmt.Errorf("%q is not a part such as 20%% or 0.2", text)
	}
	*p = percent(v)
	return nil
}

// errViolated is what a run ends with that found something.
var errViolated = errors.New("the target does not keep its promises")

func (m *Main) verify(ctx context.Context, c *verifyCommand) error {
	if c.List {
		return verify.List(m.Stdout)
	}
	s, err := m.scenario(c)
	if err != nil {
		return usageError{err}
	}
	out := m.Stdout
	if c.JSON == "-" {
		out = io.Discard
	}
	watch := verify.NewProgress(m.Stderr, colored(m.Stderr))
	report, err := verify.Run(ctx, s, verify.Options{
		Only: c.Only, Skip: c.Skip, Watch: watch,
		Load: verify.LoadOptions{
			Rate: c.Rate, Duration: c.Duration, Faults: float64(c.Faults), Seed: c.Seed,
		},
		Gates: verify.Gates{MinSuccess: float64(c.MinSuccess), MaxP99: c.MaxP99, MaxDuplicates: c.MaxDuplicates},
	})
	if errors.As(err, new(verify.UsageError)) {
		return usageError{err}
	}
	if report == nil {
		return err
	}
	report.Print(out, colored(m.Stdout))
	for _, output := range []struct {
		file  string
		write func(io.Writer) error
	}{{c.JSON, report.JSON}, {c.JUnit, report.JUnit}, {c.Report, report.HTML}, {c.Prometheus, report.Prometheus}} {
		if output.file != "" {
			err = errors.Join(err, m.write(output.file, output.write))
		}
	}
	if err == nil && report.Violated() {
		err = errViolated
	}
	return err
}

// write writes an output to a file, or to standard output for "-".
func (m *Main) write(name string, to func(io.Writer) error) error {
	if name == "-" {
		return to(m.Stdout)
	}
	f, err := os.Create(name) //nolint:gosec // the user has named it
	if err != nil {
		return err
	}
	if err := errors.Join(to(f), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// scenario returns the scenario of a file, with what the flags say.
func (m *Main) scenario(c *verifyCommand) (*verify.Scenario, error) {
	s := new(verify.Scenario)
	switch {
	case c.Scenario != "":
		text, err := m.read(c.Scenario)
		if err != nil {
			return nil, err
		}
		if s, err = verify.ReadScenario(text); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Scenario, err)
		}
		if c.Target != "" {
			s.Target = c.Target
		}
	case c.Target == "":
		return nil, errors.New("--target or --scenario is needed")
	default:
		at, err := url.Parse(c.Target)
		if err != nil {
			return nil, fmt.Errorf("--target: %w", err)
		}
		s.Request.Path = at.RequestURI()
		s.Target = (&url.URL{Scheme: at.Scheme, Host: at.Host}).String()
		if at.Host == "" {
			s.Target = c.Target // for its error
		}
	}
	if c.Method != "" {
		s.Request.Method = c.Method
	}
	if c.Body != "" {
		body := c.Body
		if name, isFile := strings.CutPrefix(body, "@"); isFile {
			text, err := m.read(name)
			if err != nil {
				return nil, fmt.Errorf("--body: %w", err)
			}
			body = string(text)
		}
		s.Request.Body = &body
	}
	for _, line := range c.Header {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("--header: %q has no colon", line)
		}
		if s.Headers == nil {
			s.Headers = map[string]string{}
		}
		s.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	if c.Answers != "" {
		s.Effects = verify.Effects{Answers: c.Answers}
	}
	if c.Profile != "" {
		s.Profile = c.Profile
	}
	for _, d := range []struct {
		flag verify.Duration
		to   *verify.Duration
	}{{c.Lease, &s.Lease}, {c.Later, &s.Later}, {c.Timeout, &s.Timeout}} {
		if d.flag != 0 {
			*d.to = d.flag
		}
	}
	if err := s.Complete(); err != nil {
		return nil, err
	}
	if c.Rate < 0 || c.Duration <= 0 {
		return nil, errors.New("--rate and --duration must be above zero")
	}
	if c.Rate == 0 && c.Faults > 0 {
		return nil, errors.New("--faults needs a load: --rate says how large")
	}
	if c.Rate == 0 && (c.MinSuccess > 0 || c.MaxP99 > 0 || c.MaxDuplicates > 0) {
		return nil, errors.New("--min-success, --max-p99 and --max-duplicates bound a load: --rate says how large")
	}
	return s, nil
}

// read reads a file, or standard input for "-".
func (m *Main) read(name string) ([]byte, error) {
	if name != "-" {
		return os.ReadFile(name) //nolint:gosec // the user has named it
	}
	if m.Stdin == nil {
		return io.ReadAll(os.Stdin)
	}
	return io.ReadAll(m.Stdin)
}
