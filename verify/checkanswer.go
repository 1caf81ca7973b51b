package verify

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

func answerChecks() []*check {
	return []*check{
		{
			name: "fidelity", safety: true, title: "a repeat has the first answer's status and the fields that describe it", rules: []string{"R-34", "R-37"},
			run: func(p *probe) error {
				_, first, again, err := p.repeated()
				if err != nil {
					return err
				}
				if again.err == nil && again.status/100 == 2 && again.status != first.status {
					p.fail(Safety, "R-34", fmt.Sprintf("status %d, and the first answer had %d", again.status, first.status), "the first status")
				}
				for _, name := range []string{"Content-Type", "Location", "ETag", "Content-Language", "Content-Encoding"} {
					if a, b := first.header.Values(name), again.header.Values(name); !slices.Equal(a, b) {
						p.fail(Protocol, "R-34", fmt.Sprintf("%s is %q, and was %q", name, b, a), "the first answer's fields")
					}
				}
				return nil
			},
		},
		{
			name: "replay-headers", title: "fields that belong to one exchange are not replayed", rules: []string{"R-35"},
			run: func(p *probe) error {
				o, first, again, err := p.repeated()
				if err != nil {
					return err
				}
				for _, name := range []string{"Set-Cookie", "WWW-Authenticate"} {
					if v := again.header.Values(name); len(v) > 0 && slices.Equal(v, first.header.Values(name)) {
						p.fail(Protocol, "R-35", "the repeat has the first answer's "+name, "no "+name+": it belongs to one exchange")
					}
				}
				p.wait(1100 * time.Millisecond) // a date has whole seconds
				last := p.send(o.request())
				if d := last.header.Get("Date"); d != "" && d == first.header.Get("Date") {
					p.fail(Advice, "R-35", "the repeat has the first answer's Date", "the time of the repeat (RFC 9110 section 6.6.1)")
				}
				return nil
			},
		},
		{
			name: "marker", title: "a replay can be told from a first answer", rules: []string{"R-34"},
			run: func(p *probe) error {
				_, first, again, err := p.repeated()
				if err != nil {
					return err
				}
				marker := p.scenario.profile.Marker
				severity := Protocol
				if marker == "" {
					marker, severity = "Idempotent-Replayed", Advice
				}
				switch {
				case first.header.Get(marker) != "":
					p.fail(Protocol, "R-34", "the first answer has "+marker, "only replays have it")
				case again.header.Get(marker) == "":
					p.fail(severity, "R-34", "the repeat has no "+marker, "a field that tells a client that nothing was done this time")
				}
				return nil
			},
		},
		{
			name: "problem-body", safety: true, title: "a refusal says in a problem document what is wrong, and nothing else", rules: []string{"R-57"},
			needs: []need{needsBody},
			run: func(p *probe) error {
				if !p.scenario.profile.Problems {
					return errSkip("the profile has no problem documents")
				}
				o := p.scenario.newOperation("")
				first, err := p.first(o)
				if err != nil {
					return err
				}
				a := p.send(o.keyed(o.other(), o.key))
				if a.err != nil || a.status/100 != 4 {
					return errSkip("another request under the same key is not refused")
				}
				if !a.problem {
					p.fail(Protocol, "R-57", "Content-Type "+a.header.Get("Content-Type")+", "+excerpt(a.body), "application/problem+json (RFC 9457)")
				}
				for _, leak := range []string{string(first.body), "goroutine ", "SELECT ", "INSERT ", "    at "} {
					if len(leak) > 4 && strings.Contains(string(a.body), leak) {
						p.fail(Safety, "R-57", "the refusal tells what is inside: "+excerpt(a.body), "no stored body, no stack, no SQL")
					}
				}
				return nil
			},
		},
		sameAnswer("large", "a large answer is replayed whole", "R-34"),
		sameAnswer("empty", "an answer without a body is replayed without one", "R-37"),
		sameAnswer("binary", "an answer that is no text is replayed byte for byte", "R-37"),
		{
			name: "stream", safety: true, title: "a stream is replayed whole, or refused; it never runs again", rules: []string{"R-38"},
			needs: []need{needsVariant("stream")},
			run: func(p *probe) error {
				o := p.scenario.newOperation("stream")
				first := p.send(o.request())
				if first.err != nil || first.status/100 != 2 {
					return fmt.Errorf("the stream got %s", first)
				}
				again := p.settled(o.request(), p.patience())
				differs := again.sameAs(first)
				switch m := p.reads(again); {
				case m == succeeded && differs != "":
					p.fail(Safety, "R-38", "the repeat of a stream got "+differs, "the whole stream, or a refusal")
				case m == busy:
					p.stuck(again)
				}
				return p.wantStreamEffect()
			},
		},
	}
}

// wantStreamEffect wants one effect, if effects can be counted without reading streams.
func (p *probe) wantStreamEffect() error {
	if p.scenario.Effects.byAnswers() {
		return nil
	}
	_, err := p.wantEffects(1, "R-38", "one effect")
	return err
}

// sameAnswer is the check that a variant's answer is replayed as it was.
func sameAnswer(variant, title, rule string) *check {
	return &check{
		name: variant, safety: true, title: title, rules: []string{rule}, needs: []need{needsVariant(variant)},
		run: func(p *probe) error {
			o := p.scenario.newOperation(variant)
			first := p.send(o.request())
			if first.err != nil || first.status/100 != 2 {
				return fmt.Errorf("the first request of an operation got %s", first)
			}
			again := p.send(o.request())
			if differs := again.sameAs(first); differs != "" {
				p.fail(p.severityOf(again), rule, "the repeat got "+differs, "the first answer, byte for byte")
			}
			if p.scenario.Effects.byAnswers() {
				return nil
			}
			_, err := p.wantEffects(1, rule, "one effect")
			return err
		},
	}
}

func policyChecks() []*check {
	return []*check{
		{
			name: "declined", title: "a refusal of the business is an answer like another", rules: []string{"R-42"},
			needs: []need{needsVariant("declined")},
			run: func(p *probe) error {
				o := p.scenario.newOperation("declined")
				first := p.send(o.request())
				if first.err != nil || first.status/100 != 4 {
					return fmt.Errorf("the declined request got %s", first)
				}
				again := p.send(o.request())
				if differs := again.sameAs(first); differs != "" {
					p.fail(Protocol, "R-42", "the repeat got "+differs, "the first answer again")
				}
				_, err := p.wantEffects(0, "R-42", "no effect")
				return err
			},
		},
		{
			name: "failing", safety: true, title: "a failure after the effect is not run again", rules: []string{"R-43"},
			needs: []need{needsVariant("failing"), needsCount},
			run: func(p *probe) error {
				o := p.scenario.newOperation("failing")
				first := p.send(o.request())
				if first.err == nil && first.status < 500 {
					return fmt.Errorf("the failing request got %s", first)
				}
				p.send(o.request())
				p.send(o.request())
				n, err := p.counted()
				if err == nil && n > 1 {
					p.fail(Safety, "R-43", fmt.Sprintf("%d effects: a repeat ran although the effect was there", n),
						"the stored failure, or an honest \"unknown\"; only a failure that leaves nothing behind may run again")
				}
				return err
			},
		},
		{
			name: "limited", title: "a request that was turned away for now may come again", rules: []string{"R-42"},
			needs: []need{needsVariant("limited")},
			run: func(p *probe) error {
				o := p.scenario.newOperation("limited")
				first := p.send(o.request())
				if first.err != nil || first.status != http.StatusTooManyRequests {
					return fmt.Errorf("the limited request got %s", first)
				}
				if first.header.Get("Retry-After") == "" {
					p.fail(Advice, "R-27", "a 429 without Retry-After", "Retry-After with the seconds to wait")
				}
				for range 10 {
					if a := p.send(o.request()); p.reads(a) == succeeded {
						_, err := p.wantEffects(1, "R-42", "one effect")
						return err
					}
					p.wait(time.Second)
				}
				p.fail(Protocol, "R-42", "the 429 is given again and again", "a run: nothing had happened")
				return nil
			},
		},
		{
			name: "dropped", safety: true, title: "a request whose service broke off is not sent again", rules: []string{"R-74"},
			needs: []need{needsVariant("dropped"), needsCount},
			run: func(p *probe) error {
				o := p.scenario.newOperation("dropped")
				p.send(o.request())
				n, err := p.counted()
				if err != nil {
					return err
				}
				if n > 1 {
					p.fail(Safety, "R-74", fmt.Sprintf("%d effects of one request", n), "what was sent once reaches the service once")
					return nil
				}
				last := p.settled(o.request(), p.patience())
				if p.reads(last) == busy {
					p.stuck(last)
				}
				if n, err = p.counted(); err == nil && n > 1 {
					p.fail(Safety, "R-75", fmt.Sprintf("%d effects: a repeat ran although nobody knows what became of the first", n),
						"an honest \"unknown\", or \"in progress\"")
				}
				return err
			},
		},
	}
}
