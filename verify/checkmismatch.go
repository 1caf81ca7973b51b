package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

func mismatchChecks() []*check {
	return []*check{
		{
			name: "mismatch-body", safety: true, title: "another request under a used key is refused", rules: []string{"R-16"},
			needs: []need{needsBody},
			run: func(p *probe) error {
				return p.mismatch(Safety, func(o *operation) request { return o.keyed(o.other(), o.key) })
			},
		},
		{
			name: "mismatch-type", safety: true, title: "a number and its text are two requests", rules: []string{"R-20"},
			needs: []need{needsBody},
			run: func(p *probe) error {
				r := p.scenario.newOperation("").request()
				if _, ok := quoted(r.body); !ok {
					return errSkip("the body is not a JSON object with a number")
				}
				return p.mismatch(Safety, func(o *operation) request {
					r := o.request()
					r.body, _ = quoted(r.body)
					return r
				})
			},
		},
		{
			name: "mismatch-query", title: "another query under a used key is refused", rules: []string{"R-17"},
			run: func(p *probe) error {
				return p.mismatch(Protocol, func(o *operation) request {
					r := o.request()
					mark := "?"
					if strings.Contains(r.path, "?") {
						mark = "&"
					}
					r.path += mark + "semel_verify=1"
					return r
				})
			},
		},
		{
			name: "mismatch-path", safety: true, title: "a used key on another path is refused", rules: []string{"R-13"},
			run: func(p *probe) error {
				return p.mismatch(Safety, func(o *operation) request {
					r := o.request()
					path, query, asks := strings.Cut(r.path, "?")
					r.path = strings.TrimRight(path, "/") + "/semel-verify"
					if asks {
						r.path += "?" + query
					}
					return r
				})
			},
		},
		{
			name: "mismatch-running", safety: true, title: "another request under the key of one in progress is refused", rules: []string{"R-16"},
			needs: []need{needsVariant("slow"), needsBody},
			run: func(p *probe) error {
				o := p.scenario.newOperation("slow")
				done := p.start(o.request())
				if !p.waitFor(o, done) {
					return errSkip("the slow request ended before another could be sent")
				}
				a := p.send(o.keyed(o.other(), o.key))
				first := <-done
				switch m := p.reads(a); {
				case m == succeeded && first.err == nil && bytes.Equal(a.body, first.body):
					p.fail(Safety, "R-16", "another request got the answer of the one in progress", p.wantReused())
				case m == succeeded:
					p.fail(Safety, "R-16", "another request ran under the same key", p.wantReused())
				case m != reused && m != busy && !slices.Contains(p.scenario.profile.Reused, a.status):
					p.fail(Protocol, "R-16", "another request got "+a.String(), p.wantReused())
				}
				_, err := p.wantEffects(1, "R-16", "the effect of the first request alone")
				return err
			},
		},
		{
			name: "json-reordered", title: "a request whose JSON is written differently is the same", rules: []string{"R-20"},
			needs: []need{needsBody},
			run: func(p *probe) error {
				o := p.scenario.newOperation("")
				r := o.request()
				other, ok := reordered(r.body)
				if !ok {
					return errSkip("the body is not a JSON object of two members or more")
				}
				first, err := p.first(o)
				if err != nil {
					return err
				}
				r.body = other
				if differs := p.send(r).sameAs(first); differs != "" {
					p.fail(Advice, "R-20", "with its members in another order, and white space, it got "+differs,
						"the first answer again: a client that writes its JSON anew may order it anew")
				}
				_, err = p.wantEffects(1, "R-20", "one effect")
				return err
			},
		},
	}
}

func (p *probe) wantReused() string {
	return fmt.Sprintf("a refusal with status %v, and no effect", p.scenario.profile.Reused)
}

// mismatch sends another request under the key of one that has ended.
func (p *probe) mismatch(worst Severity, other func(*operation) request) error {
	o, rule := p.scenario.newOperation(""), p.result.Rules[0]
	first, err := p.first(o)
	if err != nil {
		return err
	}
	a := p.send(other(o))
	switch {
	case a.err == nil && a.status/100 == 2 && bytes.Equal(a.body, first.body):
		p.fail(worst, rule, "another request got the first one's answer", p.wantReused())
	case a.err == nil && a.status/100 == 2:
		p.fail(worst, rule, "another request ran under the same key", p.wantReused())
	case a.status == 404 || a.status == 405: // nobody is there, or not for this
	case a.err != nil || !slices.Contains(p.scenario.profile.Reused, a.status):
		p.fail(Protocol, rule, "another request got "+a.String(), p.wantReused())
	}
	again := p.send(o.request())
	if differs := again.sameAs(first); differs != "" {
		p.fail(p.severityOf(again), rule, "after it the first request got "+differs, "the first answer again")
	}
	if len(p.result.Findings) == 0 {
		_, err = p.wantEffects(1, rule, "the effect of the first request alone")
	}
	return err
}

// quoted returns a JSON object with its first number as a text.
func quoted(body []byte) ([]byte, bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	for depth := 0; ; {
		t, err := d.Token()
		if err != nil || depth == 0 && t != json.Delim('{') {
			return nil, false
		}
		switch t := t.(type) {
		case json.Delim:
			depth++ // it only has to be above zero
		case json.Number:
			end := int(d.InputOffset())
			start := end - len(t)
			return slices.Concat(body[:start], []byte(`"`), body[start:end], []byte(`"`), body[end:]), true
		}
	}
}

// reordered returns a JSON object with its members in reverse, and white space.
func reordered(body []byte) ([]byte, bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	var members []string
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil, false
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, false
		}
		members = append(members, fmt.Sprintf("  %s : %s", quoted, value))
	}
	slices.Reverse(members)
	return []byte("{\n" + strings.Join(members, " ,\n") + "\n}"), len(members) > 1
}
