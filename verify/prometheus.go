package verify

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Prometheus writes the figures of the report in the text format of Prometheus, as its text-file collector and its push
// gateway read them. Figures of loads have the label faults, the part of the requests that a fault was meant for. A
// rate of nothing, such as that of replays where nothing was repeated, and effects that can't be counted are left out.
func (r *Report) Prometheus(w io.Writer) error {
	m := &exposition{}
	s := r.summary()
	m.gauge("semel_verify_info", "What was verified: always 1.", point(1, "target", r.Target, "profile", r.Profile))
	if !r.Began.IsZero() {
		began := float64(r.Began.UnixMilli()) / 1e3
		m.gauge("semel_verify_began_timestamp_seconds", "When the run began, in Unix time.", point(began))
	}
	m.gauge("semel_verify_duration_seconds", "How long the run took.", point(r.Took.Seconds()))
	m.gauge("semel_verify_violated", "1 if safety or the protocol is violated or a gate is closed, else 0.", point(truth(r.Violated())))

	statuses := map[Status]int{}
	for _, c := range r.Checks {
		statuses[c.Status]++
	}
	var checks, findings []series
	for _, status := range []Status{Passed, Failed, Skipped} {
		checks = append(checks, point(float64(statuses[status]), "status", string(status)))
	}
	for _, severity := range severities {
		findings = append(findings, point(float64(s.findings[severity]), "severity", string(severity)))
	}
	m.gauge("semel_verify_checks", "Checks by how they ended.", checks...)
	m.gauge("semel_verify_findings", "Findings by severity.", findings...)
	var gates []series
	for _, g := range r.Gates {
		gates = append(gates, point(truth(g.Open), "gate", g.Name))
	}
	m.gauge("semel_verify_gate_open", "1 if the gate's bound holds, else 0.", gates...)

	for _, f := range exported {
		var loads []series
		for i := range r.Loads {
			if x, known := f.of(&r.Loads[i]); known && !math.IsNaN(x) && !math.IsInf(x, 0) {
				loads = append(loads, point(x, "faults", faultsLabel(&r.Loads[i])))
			}
		}
		m.gauge("semel_verify_"+f.name, f.help, loads...)
	}
	var latencies, answers, injected []series
	for i := range r.Loads {
		l := &r.Loads[i]
		if l.P99 > 0 {
			latencies = append(latencies,
				point(l.P50.Seconds(), "faults", faultsLabel(l), "quantile", "0.5"),
				point(l.P95.Seconds(), "faults", faultsLabel(l), "quantile", "0.95"),
				point(l.P99.Seconds(), "faults", faultsLabel(l), "quantile", "0.99"))
		}
		for _, c := range l.Kinds {
			answers = append(answers, point(float64(c.N), "faults", faultsLabel(l), "kind", c.Name))
		}
		for _, c := range l.Injected {
			injected = append(injected, point(float64(c.N), "faults", faultsLabel(l), "fault", c.Name))
		}
	}
	m.metric("summary", "semel_verify_latency_seconds", "How long answers took, by quantile.", latencies)
	m.gauge("semel_verify_answers", "Attempts of the load by how they ended.", answers...)
	m.gauge("semel_verify_injected_faults", "Attempts of the load by the fault that they met.", injected...)
	if _, err := m.WriteTo(w); err != nil {
		return fmt.Errorf("write the report for Prometheus: %w", err)
	}
	return nil
}

// exported are the figures of a load, and whether it has them.
var exported = []struct {
	name, help string
	of         func(*Load) (float64, bool)
}{
	{"operations", "Operations of the load.", func(l *Load) (float64, bool) { return float64(l.Operations), true }},
	{"requests", "First requests, and repeats of an operation.", func(l *Load) (float64, bool) { return float64(l.Requests), true }},
	{"attempts", "Attempts of the load, with retries.", func(l *Load) (float64, bool) { return float64(l.Attempts), true }},
	{"effects", "Effects of the load.", func(l *Load) (float64, bool) { return float64(l.Effects), l.Effects >= 0 }},
	{
		"duplicates", "Effects beyond the first of their operation.",
		func(l *Load) (float64, bool) { return float64(l.Duplicates), l.Effects >= 0 },
	},
	{
		"duplicate_side_effect_rate", "Duplicates as a part of the operations.",
		func(l *Load) (float64, bool) { return l.DuplicateRate, l.Effects >= 0 && l.Operations > 0 },
	},
	{
		"idempotent_replay_rate", "Repeats that got the first answer, as a part of the repeats.",
		func(l *Load) (float64, bool) { return l.ReplayRate, l.Repeats > 0 },
	},
	{
		"success_rate", "Requests that succeeded, as a part of the requests.",
		func(l *Load) (float64, bool) { return l.SuccessRate, l.Requests > 0 },
	},
	{
		"conflict_rate", "Attempts that were told that the operation is in progress, as a part of the attempts.",
		func(l *Load) (float64, bool) { return l.ConflictRate, l.Attempts > 0 },
	},
}

func faultsLabel(l *Load) string { return strconv.FormatFloat(l.Faults, 'g', -1, 64) }

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// A series is a value with its labels, as name and text in turn.
type series struct {
	value  float64
	labels []string
}

func point(x float64, labels ...string) series { return series{x, labels} }

// An exposition is what a server is read by, in the text format, version 0.0.4.
type exposition struct{ bytes.Buffer }

func (m *exposition) gauge(name, help string, samples ...series) {
	m.metric("gauge", name, help, samples)
}

// metric writes a metric, unless it has no sample.
func (m *exposition) metric(kind, name, help string, samples []series) {
	if len(samples) == 0 {
		return
	}
	fmt.Fprintf(m, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	for _, s := range samples {
		m.WriteString(name)
		for i := 0; i < len(s.labels); i += 2 {
			open := ","
			if i == 0 {
				open = "{"
			}
			fmt.Fprintf(m, `%s%s="%s"`, open, s.labels[i], labelEscapes.Replace(visible(s.labels[i+1])))
		}
		if len(s.labels) > 0 {
			m.WriteByte('}')
		}
		fmt.Fprintf(m, " %s\n", strconv.FormatFloat(s.value, 'g', -1, 64))
	}
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
