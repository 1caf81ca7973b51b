package verify

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

func keyChecks() []*check {
	return []*check{
		{
			name: "key-missing", title: "a POST or PATCH without a key is refused", rules: []string{"R-7"},
			run: func(p *probe) error {
				a := p.send(p.scenario.newOperation("").bare())
				if !p.scenario.profile.KeyRequired {
					return errSkip("the profile does not require a key")
				}
				if m := p.scenario.Request.Method; m != http.MethodPost && m != http.MethodPatch {
					return errSkip("a " + m + " is protected if it carries a key, and may pass without one (R-8)")
				}
				if a.err != nil || !slices.Contains(p.scenario.profile.Missing, a.status) {
					p.fail(Protocol, "R-7", "it got "+a.String(), fmt.Sprintf("status %v", p.scenario.profile.Missing))
				}
				return nil
			},
		},
		{
			name: "key-forms", title: "a key is the same with quotation marks and without", rules: []string{"R-5"},
			run: func(p *probe) error {
				o := p.scenario.newOperation("")
				first, err := p.first(o)
				if err != nil {
					return err
				}
				other := strconv.Quote(o.key)
				if p.scenario.profile.Quoted {
					other = o.key
				}
				a := p.send(o.request().with(p.scenario.profile.KeyHeader, other))
				switch {
				case a.err == nil && slices.Contains(p.scenario.profile.Invalid, a.status): // strict
				case a.sameAs(first) != "":
					p.fail(Advice, "R-5", "in the other form it got "+a.sameAs(first), "the first answer again, or a refusal")
				}
				return nil
			},
		},
		{
			name: "key-malformed", safety: true, title: "a malformed key is refused, and never taken for none", rules: []string{"R-2", "R-3"},
			run: func(p *probe) error {
				for _, bad := range []string{p.emptyKey(), `"unclosed-` + newUUID(), `"tail"` + newUUID(), "\"tab\t" + newUUID() + `"`} {
					o := p.scenario.newOperation("")
					if err := p.begin(); err != nil {
						return err
					}
					r := o.bare().with(p.scenario.profile.KeyHeader, bad)
					a, again := p.send(r), p.send(r)
					n, err := p.counted()
					switch {
					case err != nil:
						return err
					case n > 1:
						p.fail(Safety, "R-3", fmt.Sprintf("with the malformed key %q it ran %d times", bad, n),
							fmt.Sprintf("status %v: whoever sends a key wants it honoured", p.scenario.profile.Invalid))
					case a.err != nil || !slices.Contains(p.scenario.profile.Invalid, a.status):
						p.fail(Advice, "R-2", fmt.Sprintf("with the malformed key %q it got %s, and then %s", bad, a, again),
							fmt.Sprintf("status %v", p.scenario.profile.Invalid))
					}
				}
				return nil
			},
		},
		{
			name: "key-two-lines", title: "two keys in one request are refused", rules: []string{"R-4"},
			run: func(p *probe) error {
				o := p.scenario.newOperation("")
				other := p.scenario.newOperation("")
				value := func(key string) string {
					if p.scenario.profile.Quoted {
						return strconv.Quote(key)
					}
					return key
				}
				a := p.send(o.request().adding(p.scenario.profile.KeyHeader, value(other.key)))
				if a.err != nil || !slices.Contains(p.scenario.profile.Invalid, a.status) {
					p.fail(Protocol, "R-4", "it got "+a.String(), fmt.Sprintf("status %v", p.scenario.profile.Invalid))
				}
				return nil
			},
		},
		{
			name: "key-too-long", title: "a key without end is refused", rules: []string{"R-6"},
			run: func(p *probe) error {
				o := p.scenario.newOperation("")
				a := p.send(o.keyed(o.bare(), strings.Repeat("k", 4000)))
				tooLarge := a.status == http.StatusRequestHeaderFieldsTooLarge
				if a.err != nil || !tooLarge && !slices.Contains(p.scenario.profile.Invalid, a.status) {
					p.fail(Advice, "R-6", "a key of 4000 characters got "+a.String(), fmt.Sprintf("status %v", p.scenario.profile.Invalid))
				}
				return nil
			},
		},
		{
			name: "key-case", safety: true, title: "keys that differ in case are two", rules: []string{"R-6"},
			run: func(p *probe) error {
				name := "Case-" + newUUID()
				return p.twoKeys(name, strings.ToLower(name), "keys that differ in case")
			},
		},
		{
			name: "key-prefix", safety: true, title: "keys that differ in their last character are two", rules: []string{"R-6"},
			run: func(p *probe) error {
				name := strings.Repeat(strings.ReplaceAll(newUUID(), "-", ""), 6)[:190]
				return p.twoKeys(name+"-a", name+"-b", "long keys that differ in their last character")
			},
		},
		{
			name: "methods", title: "what only reads is never replayed", rules: []string{"R-8"},
			needs: []need{needsRead, needsCount},
			run: func(p *probe) error {
				o := p.scenario.newOperation("")
				read := o.keyed(o.bare(), newUUID()).without("Content-Type")
				read.method, read.path, read.body = http.MethodGet, p.scenario.Read, nil
				before := p.send(read)
				if _, err := p.first(o); err != nil {
					return err
				}
				after, bare := p.send(read), p.send(read.without(p.scenario.profile.KeyHeader))
				if before.err == nil && after.sameAs(before) == "" && bare.sameAs(before) != "" {
					p.fail(Protocol, "R-8", "GET with a key got an old answer", "what is there now")
				}
				return nil
			},
		},
	}
}

// twoKeys asks for two operations under keys that are easily taken for one.
func (p *probe) twoKeys(one, two, what string) error {
	first, second := p.scenario.newOperation(""), p.scenario.newOperation("")
	first.key, second.key = one, two
	a := p.send(first.request())
	if a.err == nil && slices.Contains(p.scenario.profile.Invalid, a.status) {
		return errSkip("the target refuses such keys: " + a.String())
	}
	if a.err != nil || a.status/100 != 2 {
		return fmt.Errorf("the first request of an operation got %s", a)
	}
	b := p.send(second.request())
	m := p.reads(b)
	switch {
	case m == succeeded && b.sameAs(a) != "":
	case m == reused || slices.Contains(p.scenario.profile.Reused, b.status):
		p.fail(Safety, "R-6", what+" are taken for one: the second got "+b.String(), "an effect of its own")
	case m == succeeded:
		p.fail(Safety, "R-6", what+" are taken for one: the second got the first one's answer", "an effect of its own")
	default:
		return fmt.Errorf("the second operation got %s", b)
	}
	_, err := p.wantEffects(2, "R-6", "an effect for each")
	return err
}

func tenantChecks() []*check {
	return []*check{
		{
			name: "tenants", safety: true, title: "the same key of two tenants is two operations", rules: []string{"R-10"},
			needs: []need{needsTenants},
			run: func(p *probe) error {
				o := p.scenario.newOperation("")
				o.tenant = p.scenario.Tenants[0].Headers
				first, err := p.first(o)
				if err != nil {
					return err
				}
				theirs := *o
				theirs.tenant = p.scenario.Tenants[1].Headers
				a := p.send(theirs.request())
				switch m := p.reads(a); {
				case m == succeeded && a.sameAs(first) == "":
					p.fail(Safety, "R-10", "the second tenant got the first one's answer", "an operation of its own")
					return nil
				case m != succeeded:
					p.fail(Safety, "R-10", "the second tenant got "+a.String()+": it learns that the key is taken", "an operation of its own")
				}
				if differs := p.send(o.request()).sameAs(first); differs != "" {
					p.fail(Safety, "R-10", "after it the first tenant got "+differs, "the first tenant's answer again")
				}
				_, err = p.wantEffects(2, "R-10", "an effect for each")
				return err
			},
		},
	}
}

// isDelay reports whether a value is one of Retry-After (RFC 9110 section 10.2.3) that makes sense.
func isDelay(value string) bool {
	if n, err := strconv.Atoi(value); err == nil {
		return n >= 1 && time.Duration(n)*time.Second < 24*time.Hour
	}
	_, err := http.ParseTime(value)
	return err == nil
}

// emptyKey is a key of no characters.
func (p *probe) emptyKey() string {
	if p.scenario.profile.Quoted {
		return `""`
	}
	return ""
}
