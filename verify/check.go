package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// A check sends requests and reports what is not right. Checks run one after the other, so that the effects that one
// counts are its own.
type check struct {
	name  string
	title string
	rules []string
	needs []need
	// safety says that it is there to find violations of safety. Others may see one in passing.
	safety bool
	run    func(*probe) error // an error means that nothing can be said
}

// A need is something that a scenario may leave out.
type need struct {
	what string // for the list of checks
	met  func(*Scenario) bool
	why  string // a check can't run without it
}

func needsVariant(name string) need {
	return need{
		what: "variant " + name,
		met:  func(s *Scenario) bool { _, ok := s.Variants[name]; return ok },
		why:  "the scenario has no variant \"" + name + "\", a request that " + variants[name],
	}
}

var (
	needsCrash = need{
		"process: crash", func(s *Scenario) bool { return s.Process.Crash != "" },
		"the scenario does not say how to crash and restart the target",
	}
	needsPause = need{
		"process: pause", func(s *Scenario) bool { return s.Process.Pause != "" },
		"the scenario does not say how to pause and resume the target",
	}
	needsTenants = need{"tenants", func(s *Scenario) bool { return len(s.Tenants) > 1 }, "the scenario has no two tenants"}
	needsRead    = need{"read", func(s *Scenario) bool { return s.Read != "" }, "the scenario has nothing to read"}
	needsCount   = need{
		"effects: url or command", func(s *Scenario) bool { return !s.Effects.byAnswers() },
		"effects are counted by answers, which don't tell of them here; effects by url or command would",
	}
	needsBody = need{"a body", func(s *Scenario) bool { return s.Request.body() != "" }, "the request has no body"}
)

// A probe is what a check works with.
type probe struct {
	*target

	ctx    context.Context
	result *Result
	began  time.Time

	mu      sync.Mutex
	log     []Exchange
	effects map[string]bool // that answers told of
	before  int             // effects when the counting began
}

// errSkip ends a check whose precondition the target does not give.
type errSkip string

func (e errSkip) Error() string { return string(e) }

// run runs one check.
func (t *target) run(ctx context.Context, c *check) Result {
	r := Result{Name: c.name, Title: c.title, Rules: c.rules, Status: Passed}
	for _, n := range c.needs {
		if !n.met(t.scenario) {
			r.Status, r.Why = Skipped, n.why
			return r
		}
	}
	p := &probe{target: t, ctx: ctx, result: &r, began: time.Now(), effects: map[string]bool{}}
	err := p.begin()
	if err == nil {
		err = c.run(p)
	}
	r.Took = time.Since(p.began)
	var skip errSkip
	switch {
	case errors.As(err, &skip):
		if len(r.Findings) == 0 {
			r.Status, r.Why = Skipped, string(skip)
		}
	case err != nil && ctx.Err() != nil:
		r.Status, r.Why = Skipped, "the run was ended"
	case err != nil:
		p.fail(Protocol, c.rules[0], err.Error(), "an answer that lets the check go on")
	}
	if len(r.Findings) > 0 {
		r.Status = Failed
	}
	return r
}

// begin begins to count effects.
func (p *probe) begin() (err error) {
	p.mu.Lock()
	clear(p.effects)
	p.mu.Unlock()
	if !p.scenario.Effects.byAnswers() {
		p.before, err = p.count(p.ctx)
	}
	return err
}

// counted returns how many effects there were since begin.
func (p *probe) counted() (int, error) {
	if p.scenario.Effects.byAnswers() {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.effects), nil
	}
	n, err := p.count(p.ctx)
	return n - p.before, err
}

// fail reports a finding, with the exchanges so far.
func (p *probe) fail(s Severity, rule, what, right string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Findings = append(p.result.Findings, Finding{s, rule, what, right, folded(p.log)})
}

// shown is how many exchanges a finding shows at most.
const shown = 12

// folded leaves out the middle of a long list.
func folded(log []Exchange) []Exchange {
	if len(log) <= shown {
		return append([]Exchange(nil), log...)
	}
	out := append([]Exchange(nil), log[:shown/2]...)
	out = append(out, Exchange{At: log[shown/2].At, Sent: fmt.Sprintf("… %d more …", len(log)-shown)})
	return append(out, log[len(log)-shown/2:]...)
}

// wantEffects reports a finding if there were not so many effects since begin. It returns the number.
func (p *probe) wantEffects(want int, rule, right string) (int, error) {
	n, err := p.counted()
	switch {
	case err != nil:
		return n, err
	case n > want:
		p.fail(Safety, rule, fmt.Sprintf("%d effects, want %d", n, want), right)
	case n < want && !p.scenario.Effects.byAnswers():
		p.fail(Safety, rule, fmt.Sprintf("%d effects, want %d: one is missing", n, want), right)
	}
	return n, nil
}

// send sends a request as it is.
func (p *probe) send(r request) *answer { return p.sendAs(r, manner{}) }

// sendAs sends a request in a manner.
func (p *probe) sendAs(r request, m manner) *answer {
	p.mu.Lock()
	at, line := time.Since(p.began), len(p.log)
	p.log = append(p.log, Exchange{At: at, Sent: p.describe(r, m), Came: "no answer yet"})
	p.mu.Unlock()
	a := p.wire.exchange(p.ctx, r, m)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log[line].Came = a.String()
	if a.err == nil && a.status/100 == 2 && p.scenario.Effects.byAnswers() {
		if id, err := p.scenario.Effects.effectOf(a); err == nil {
			p.effects[id] = true
		}
	}
	return a
}

// note adds something that was done to the exchanges.
func (p *probe) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, Exchange{At: time.Since(p.began), Sent: what})
}

func (p *probe) reads(a *answer) meaning { return p.scenario.profile.read(a) }

// first sends an operation's first request, which has to succeed.
func (p *probe) first(o *operation) (*answer, error) {
	a := p.send(o.request())
	if a.err != nil || a.status/100 != 2 {
		return a, fmt.Errorf("the first request of an operation got %s", a)
	}
	if p.scenario.Effects.byAnswers() {
		if _, err := p.scenario.Effects.effectOf(a); err != nil {
			return a, fmt.Errorf("effects can't be counted: %w", err)
		}
	}
	return a, nil
}

// repeated sends an operation's first request, which has to succeed, and sends it once more.
func (p *probe) repeated() (o *operation, first, again *answer, err error) {
	o = p.scenario.newOperation("")
	if first, err = p.first(o); err != nil {
		return nil, nil, nil, err
	}
	return o, first, p.send(o.request()), nil
}

// settled repeats a request until its answer is a final one, or nothing final has come for so long. What it returns
// then is the last answer.
func (p *probe) settled(r request, limit time.Duration) *answer {
	end := time.Now().Add(limit)
	for {
		a := p.send(r)
		if m := p.reads(a); m != noAnswer && m != busy && m != later || time.Now().After(end) || p.ctx.Err() != nil {
			return a
		}
		p.wait(min(settlePoll, time.Until(end)))
	}
}

const settlePoll = 250 * time.Millisecond

// wait waits, unless the run ends.
func (p *probe) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.ctx.Done():
	}
}

// sameAs says in what a repeat's answer differs from the first one, or "". That two successes have one status is for
// the check "fidelity".
func (a *answer) sameAs(first *answer) string {
	switch {
	case a.err != nil:
		return "no whole answer: " + a.err.Error()
	case a.status != first.status && (a.status/100 != 2 || first.status/100 != 2):
		return fmt.Sprintf("status %d, and the first answer had %d", a.status, first.status)
	case !bytes.Equal(a.body, first.body):
		return fmt.Sprintf("%s, and the first answer had %s", excerpt(a.body), excerpt(first.body))
	}
	return ""
}

// String describes the answer in a line.
func (a *answer) String() string {
	if a.err != nil {
		s := fmt.Sprintf("no whole answer in %v: %v", a.took.Round(time.Millisecond), a.err)
		if a.status != 0 {
			s += fmt.Sprintf(" (status %d)", a.status)
		}
		return s
	}
	s := fmt.Sprintf("%d in %v", a.status, a.took.Round(time.Millisecond))
	if at := a.header.Get("Retry-After"); at != "" {
		s += ", Retry-After " + at
	}
	return s + ", " + excerpt(a.body)
}

// excerpt describes a body.
func excerpt(body []byte) string {
	if len(body) == 0 {
		return "an empty body"
	}
	text := bytes.TrimSpace(body[:min(len(body), 120)])
	if !utf8.Valid(text) && utf8.Valid(body) || bytes.IndexFunc(text, unicode.IsControl) < 0 && utf8.Valid(text) {
		dots := ""
		if len(body) > 120 {
			dots = "…"
		}
		return fmt.Sprintf("%d bytes %s%s", len(body), bytes.ToValidUTF8(text, nil), dots)
	}
	return fmt.Sprintf("%d bytes %x…", len(body), body[:min(len(body), 16)])
}

// describe says what is sent, without the values of fields that may hold secrets.
func (p *probe) describe(r request, m manner) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.method, r.path)
	keys := 0
	for _, f := range r.headers {
		if strings.EqualFold(f.name, p.scenario.profile.KeyHeader) {
			keys++
			fmt.Fprintf(&b, ", key %s", short(f.value))
		}
	}
	if keys == 0 && r.method != http.MethodGet {
		b.WriteString(", no key")
	}
	if len(r.body) > 0 {
		b.WriteString(", " + excerpt(r.body))
	}
	switch {
	case m.leave > 0:
		fmt.Fprintf(&b, "; hangs up after %v", m.leave)
	case m.cut:
		b.WriteString("; cut after the status line")
	case m.twice:
		b.WriteString("; delivered twice")
	}
	return b.String()
}

// short is a key for people to read.
func short(key string) string {
	if len(key) > 60 {
		return strconv.Quote(key[:20]) + "… of " + strconv.Itoa(len(key)) + " bytes"
	}
	return strconv.Quote(key)
}
