package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/semelhq/semel/verify"
)

// The commandLine is what can be asked for.
type commandLine struct {
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
	Duration verify.Duration `default:"30s" placeholder:"TIME" help:"How long each load lasts (default ${default})."`
	Faults   percent         `placeholder:"N%" help:"Put the load on once more, with a fault of the network for so many of its attempts."`
	Seed     uint64          `placeholder:"N" help:"Decides what is repeated and which attempt meets which fault (default: random, and printed)."`

	MinSuccess    percent         `placeholder:"N%" help:"Fail if fewer requests succeed under a load, after retries."`
	MaxP99        verify.Duration `name:"max-p99" placeholder:"TIME" help:"Fail if 1 % of the attempts of the load without faults take longer."`
	MaxDuplicates int             `default:"0" placeholder:"N" help:"Fail if there are more duplicate effects under a load (default ${default})."`

	JSON       string `name:"json" placeholder:"FILE" help:"Write the report as JSON; - is standard output, in place of the table."`
	JUnit      string `name:"junit" placeholder:"FILE" help:"Write the checks as JUnit XML."`
	Report     string `placeholder:"FILE" help:"Write the report as one HTML page."`
	Prometheus string `placeholder:"FILE" help:"Write the figures in the text format of Prometheus."`

	Version kong.VersionFlag `help:"Print the version and exit."`
}

func (*commandLine) Help() string {
	return `Sends requests to an HTTP API, repeats them as clients and networks do, and counts effects. It needs to know nothing of what ` +
		`is behind the address; the more a scenario tells, the more it can check. It has effects at the target: use one that is there for tests.

Exit status: 0 if nothing violates safety or the protocol, and all bounds hold; 1 if something does; 2 for wrong use.

Examples:

  Any API, effects counted by the ids in its answers:

    semel-verify --target http://127.0.0.1:8080/payments \
        --body '{"order":"${uuid}","amount":100,"currency":"EUR"}'

  What a scenario says, with a load under faults, and a page to look at:

    semel-verify --scenario examples/verify/demo.yaml \
        --rate 50 --duration 30s --faults 20% --report report.html

  In a build:

    semel-verify --scenario payments.yaml --junit verify.xml \
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
