package broken

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A behaviour is one thing that a layer has to do. It returns what is wrong, or nil.
type behaviour func(*testing.T, *process) error

func wrong(format string, a ...any) error { return fmt.Errorf(format, a...) }

// behaviours by the name of the check that looks at them from outside; what stands behind a slash tells apart those
// that one check looks at.
var behaviours = map[string]behaviour{
	"repeat": func(_ *testing.T, p *process) error {
		r := newRequest("/pay")
		first := p.ask(r)
		return p.repeated(r, first, 1)
	},
	"repeat-later": func(_ *testing.T, p *process) error {
		r := newRequest("/pay")
		first := p.ask(r)
		time.Sleep(5 * time.Second)
		return p.repeated(r, first, 1)
	},
	"concurrent": func(_ *testing.T, p *process) error {
		r := newRequest("/slow")
		var all [20]<-chan reply
		for i := range all {
			all[i] = p.begin(r)
		}
		ran := 0
		for i := range all {
			switch a := <-all[i]; {
			case a.status == 201:
				ran++
			case a.code != "IDEMPOTENCY_IN_PROGRESS":
				return wrong("one got %v", a)
			}
		}
		if ran != 1 || p.count() != 1 {
			return wrong("%d ran, %d effects", ran, p.count())
		}
		return nil
	},
	"twice": func(_ *testing.T, p *process) error {
		r := newRequest("/pay")
		a, b := p.begin(r), p.begin(r)
		<-a
		<-b
		return p.effects1()
	},
	"mismatch-body": func(_ *testing.T, p *process) error {
		return p.mismatch(func(r *request) { r.body = strings.Replace(r.body, "order", "other", 1) })
	},
	"mismatch-type": func(_ *testing.T, p *process) error {
		return p.mismatch(func(r *request) { r.body = strings.Replace(r.body, ":1}", `:"1"}`, 1) })
	},
	"mismatch-query": func(_ *testing.T, p *process) error {
		return p.mismatch(func(r *request) { r.path += "?now=1" })
	},
	"mismatch-path": func(_ *testing.T, p *process) error {
		return p.mismatch(func(r *request) { r.path = "/elsewhere" })
	},
	"mismatch-running": func(_ *testing.T, p *process) error {
		r := newRequest("/slow")
		first := p.begin(r)
		time.Sleep(slow / 10)
		r.body = `{}`
		a := p.ask(r)
		<-first
		if a.code != "IDEMPOTENCY_KEY_REUSED" && a.code != "IDEMPOTENCY_IN_PROGRESS" {
			return wrong("another body got %v", a)
		}
		return p.effects1()
	},
	"key-malformed": func(_ *testing.T, p *process) error {
		for _, bad := range []string{"", `"open`, `"closed"tail`, "\"tab\t\"", "a,b"} {
			r := newRequest("/pay")
			r.lines = []string{bad}
			if a := p.ask(r); a.code != "IDEMPOTENCY_KEY_INVALID" || p.count() != 0 {
				return wrong("%q got %v, %d effects", bad, a, p.count())
			}
		}
		return nil
	},
	"key-two-lines": func(_ *testing.T, p *process) error {
		r := newRequest("/pay")
		r.lines = []string{`"a"`, `"a"`}
		return p.refused(r, 400, "IDEMPOTENCY_KEY_INVALID")
	},
	"key-too-long": func(_ *testing.T, p *process) error {
		r := newRequest("/pay")
		r.key = strings.Repeat("k", 256)
		return p.refused(r, 400, "IDEMPOTENCY_KEY_INVALID")
	},
	"key-missing": func(_ *testing.T, p *process) error {
		r := newRequest("/pay")
		r.lines = []string{}
		return p.refused(r, 400, "IDEMPOTENCY_KEY_REQUIRED")
	},
	"key-case": func(_ *testing.T, p *process) error {
		return p.two(func(a, b *request) { a.key, b.key = "Key", "key" })
	},
	"key-prefix": func(_ *testing.T, p *process) error {
		return p.two(func(a, b *request) { a.key, b.key = strings.Repeat("k", 190)+"a", strings.Repeat("k", 190)+"b" })
	},
	"two-keys": func(_ *testing.T, p *process) error {
		return p.two(func(a, b *request) { b.body = a.body })
	},
	"tenants": func(_ *testing.T, p *process) error {
		return p.two(func(a, b *request) { *b = *a; b.account = "globex" })
	},
	"fidelity/status": func(_ *testing.T, p *process) error {
		r := newRequest("/pay")
		first := p.ask(r)
		if again := p.ask(r); first.status != 201 || again.status != 201 {
			return wrong("first %v, again %v", first, again)
		}
		return nil
	},
	"fidelity/location": func(_ *testing.T, p *process) error {
		r := newRequest("/pay")
		first := p.ask(r)
		again := p.ask(r)
		for _, name := range []string{"Location", "Content-Type", "Content-Length", "Link", "Cache-Control", "Idempotency-Key"} {
			if a, b := first.header.Values(name), again.header.Values(name); len(a) == 0 || !slices.Equal(a, b) {
				return wrong("%s is %q, and was %q", name, b, a)
			}
		}
		return nil
	},
	"replay-headers": func(_ *testing.T, p *process) error {
		r := newRequest("/pay")
		first := p.ask(r)
		if again := p.ask(r); first.header.Get("Set-Cookie") == "" || again.header.Get("Set-Cookie") != "" {
			return wrong("cookies %q and %q", first.header.Get("Set-Cookie"), again.header.Get("Set-Cookie"))
		}
		return nil
	},
	"marker": func(_ *testing.T, p *process) error {
		r := newRequest("/pay")
		first := p.ask(r)
		if again := p.ask(r); first.header.Get("Idempotent-Replayed") != "" || again.header.Get("Idempotent-Replayed") != "true" {
			return wrong("markers %q and %q", first.header.Get("Idempotent-Replayed"), again.header.Get("Idempotent-Replayed"))
		}
		return nil
	},
	"large":    answered("/large"),
	"empty":    answered("/empty"),
	"binary":   answered("/binary"),
	"stream":   answered("/stream"),
	"declined": answered("/declined"),
	"failing":  answered("/failing"),
	"limited": func(_ *testing.T, p *process) error {
		r := newRequest("/limited")
		if a := p.ask(r); a.status != 429 {
			return wrong("first %v", a)
		}
		if a := p.ask(r); a.status != 201 || a.header.Get("Idempotent-Replayed") != "" {
			return wrong("again %v", a)
		}
		return p.effects1()
	},
	"dropped": func(_ *testing.T, p *process) error {
		r := newRequest("/dropped")
		first := p.ask(r)
		if a := p.ask(r); first.code != "IDEMPOTENCY_OUTCOME_UNKNOWN" || a.code != first.code {
			return wrong("first %v, again %v", first, a)
		}
		return p.effects1()
	},
	"disconnect": func(_ *testing.T, p *process) error {
		r := newRequest("/slow")
		ctx, hangUp := context.WithCancel(context.Background())
		r.ctx = ctx
		left := p.begin(r)
		time.Sleep(slow / 5)
		hangUp()
		r.ctx = nil
		again := p.settleAs(r)
		first := <-left
		if again.status != 201 {
			return wrong("first %v, again %v", first, again)
		}
		time.Sleep(slow)
		return p.effects1()
	},
	"answer-lost": func(_ *testing.T, p *process) error {
		r := newRequest("/large")
		ctx, hangUp := context.WithCancel(context.Background())
		r.ctx = ctx
		p.ServeHTTP(&cutWriter{httptest.NewRecorder(), hangUp}, r.http())
		r.ctx = nil
		if a := p.ask(r); a.status != 201 {
			return wrong("again %v", a)
		}
		return p.effects1()
	},
	"slow": func(_ *testing.T, p *process) error {
		r := newRequest("/slow")
		first := p.begin(r)
		var late []<-chan reply
		for range 7 {
			time.Sleep(slow / 8)
			late = append(late, p.begin(r))
		}
		ran := 0
		for _, c := range append(late, first) {
			if a := <-c; a.status == 201 {
				ran++
			}
		}
		if ran != 1 {
			return wrong("%d ran", ran)
		}
		return p.effects1()
	},
	"crash-after-answer": func(t *testing.T, p *process) error {
		r := newRequest("/pay")
		first := make(chan reply, 1)
		go p.ServeHTTP(&sentWriter{httptest.NewRecorder(), first}, r.http())
		a := <-first
		return p.crash(t).repeated(r, a, 1)
	},
	"crash-before-effect": func(t *testing.T, p *process) error {
		r := newRequest("/slow")
		p.begin(r)
		time.Sleep(slow / 10)
		q := p.crash(t)
		if a := q.settleAs(r); a.status/100 == 2 && q.count() != 1 {
			return wrong("%v, and %d effects", a, q.count())
		}
		return nil
	},
	"crash-before-effect/stuck": func(t *testing.T, p *process) error {
		r := newRequest("/slow")
		p.begin(r)
		time.Sleep(slow / 10)
		q := p.crash(t)
		if a := q.ask(r); a.code != "IDEMPOTENCY_IN_PROGRESS" && a.status != 409 && a.status != 201 {
			return wrong("at first %v", a)
		}
		if a := q.settleAs(r); a.code == "stuck" {
			return wrong("in the end %v", a)
		}
		return nil
	},
	"crash-after-effect": func(t *testing.T, p *process) error {
		r := newRequest("/slow-answer")
		p.begin(r)
		time.Sleep(slow / 10)
		q := p.crash(t)
		q.settleAs(r)
		return q.effects1()
	},
	"pause": func(_ *testing.T, p *process) error {
		r := newRequest("/slow")
		first := p.begin(r)
		time.Sleep(slow / 10)
		p.sleep(lease + time.Second)
		early, late := p.ask(r), <-first
		last := p.settleAs(r)
		if !late.same(last) || early.status == 201 && !early.same(last) {
			return wrong("early %v, late %v, last %v", early, late, last)
		}
		return p.effects1()
	},
	"load": func(_ *testing.T, p *process) error {
		first := newRequest("/pay")
		a := p.ask(first)
		for range 50 {
			p.ask(newRequest("/pay"))
		}
		return p.repeated(first, a, 51)
	},
	"retry-after": func(_ *testing.T, p *process) error {
		r := newRequest("/slow")
		first := p.begin(r)
		time.Sleep(slow / 10)
		a := p.ask(r)
		<-first
		if n, err := strconv.Atoi(a.header.Get("Retry-After")); a.status == 409 && (err != nil || n < 1 || n > 30) {
			return wrong("Retry-After %q", a.header.Get("Retry-After"))
		}
		return nil
	},
	"problem-body": func(_ *testing.T, p *process) error {
		r := newRequest("/pay")
		p.ask(r)
		r.body = "{}"
		if a := p.ask(r); a.status == 422 && a.code != "IDEMPOTENCY_KEY_REUSED" {
			return wrong("%v", a)
		}
		return nil
	},
	"problem-body/leak": func(_ *testing.T, p *process) error {
		r := newRequest("/pay")
		first := p.ask(r)
		r.body = "{}"
		if a := p.ask(r); a.status == 422 && strings.Contains(a.body, first.body) {
			return wrong("%s", a.body)
		}
		return nil
	},
	"json-reordered": func(_ *testing.T, p *process) error {
		r := newRequest("/pay")
		r.body = `{"order":"a","amount":1}`
		first := p.ask(r)
		r.body = "{ \"amount\" : 1,\n\"order\":\"\\u0061\"}"
		return p.repeated(r, first, 1)
	},
}

// effects1 wants one effect.
func (p *process) effects1() error {
	if n := p.count(); n != 1 {
		return wrong("%d effects", n)
	}
	return nil
}

// repeated asks again, and wants the first reply and no other effect.
func (p *process) repeated(r request, first reply, effects int) error {
	if again := p.settleAs(r); first.status/100 != 2 || !again.same(first) {
		return wrong("first %v, again %v", first, again)
	}
	if n := p.count(); n != effects {
		return wrong("%d effects", n)
	}
	return nil
}

// answered is the behaviour that an answer is given again as it was.
func answered(path string) behaviour {
	return func(_ *testing.T, p *process) error {
		r := newRequest(path)
		first, again, effects := p.ask(r), p.ask(r), p.count()
		if !again.same(first) || effects > 1 {
			return wrong("first %v, again %v, %d effects", first, again, effects)
		}
		return nil
	}
}

// mismatch sends another request under a used key.
func (p *process) mismatch(change func(*request)) error {
	r := newRequest("/pay")
	first := p.ask(r)
	other := r
	change(&other)
	if a := p.ask(other); a.status != 422 {
		return wrong("another request got %v", a)
	}
	return p.repeated(r, first, 1)
}

// two asks for two operations, and wants two.
func (p *process) two(change func(a, b *request)) error {
	a, b := newRequest("/pay"), newRequest("/pay")
	change(&a, &b)
	first, second := p.ask(a), p.ask(b)
	if first.status != 201 || second.status != 201 || first.body == second.body || p.count() != 2 {
		return wrong("first %v, second %v, %d effects", first, second, p.count())
	}
	return nil
}

// refused wants a refusal without an effect.
func (p *process) refused(r request, status int, code string) error {
	if a := p.ask(r); a.status != status || a.code != code && a.code != "" || p.count() != 0 {
		return wrong("%v, %d effects", a, p.count())
	}
	return nil
}

// A cutWriter hangs up once it has the status line.
type cutWriter struct {
	*httptest.ResponseRecorder
	hangUp func()
}

func (w *cutWriter) WriteHeader(int) { w.hangUp() }

func (w *cutWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A sentWriter tells of the answer as soon as it is whole, before the handler returns: whoever is told comes first.
type sentWriter struct {
	*httptest.ResponseRecorder
	whole chan<- reply
}

func (w *sentWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseRecorder.Write(p)
	w.whole <- read(w.ResponseRecorder)
	time.Sleep(time.Second) // of the bubble: until nobody else has anything to do
	return n, err
}

// run looks at a behaviour of a layer with a bug.
func (b behaviour) run(t *testing.T, bug string) (err error) {
	synctest.Test(t, func(t *testing.T) {
		err = b(t, start(t, bug))
		time.Sleep(time.Minute) // for what still runs
	})
	return err
}

func TestWithoutABugTheLayerIsRight(t *testing.T) {
	t.Parallel()
	for name, b := range behaviours {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := b.run(t, None); err != nil {
				t.Error(err)
			}
		})
	}
}

// ownBehaviour is the behaviour that a bug breaks, where its check looks at several.
var ownBehaviour = map[string]string{
	"lost-location": "fidelity/location", "status-200": "fidelity/status",
	"stuck": "crash-before-effect/stuck", "leaky-errors": "problem-body/leak",
}

// alsoBroken are the behaviours that a bug is bound to break besides its own: without answers there is nothing to give
// again, and without claims nothing to hold others off.
var alsoBroken = map[string][]string{
	"forget": {
		"answer-lost", "binary", "crash-after-answer", "declined", "disconnect", "empty", "failing", "fidelity/location",
		"json-reordered", "large", "load", "marker", "mismatch-body", "mismatch-path", "mismatch-query", "mismatch-type", "pause", "repeat-later",
		"replay-headers", "stream",
	},
	"no-claim": {"crash-after-effect", "disconnect", "pause", "slow", "twice"},
	"status-200": {
		"answer-lost", "binary", "crash-after-answer", "disconnect", "json-reordered", "large", "mismatch-body", "mismatch-path",
		"mismatch-query", "mismatch-type", "pause", "repeat", "repeat-later",
	},
	// Refusals are told apart by their codes here.
	"plain-errors": {"concurrent", "disconnect", "dropped", "key-malformed", "mismatch-running"},
}

func TestEachBugBreaksItsOwnBehaviourAlone(t *testing.T) {
	t.Parallel()
	for _, bug := range Bugs() {
		t.Run(bug.Name, func(t *testing.T) {
			t.Parallel()
			own := ownBehaviour[bug.Name]
			if own == "" {
				own = bug.Caught
			}
			want := append([]string{own}, alsoBroken[bug.Name]...)
			slices.Sort(want)
			var got []string
			for _, name := range slices.Sorted(maps.Keys(behaviours)) {
				if name == "load" && own != name && bug.Name != "forget" {
					continue // it takes its time, and is about many keys
				}
				if err := behaviours[name].run(t, bug.Name); err != nil {
					got = append(got, name)
					t.Logf("%s: %v", name, err)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("broken are %q, want %q", got, want)
			}
		})
	}
}

func TestEachBugIsNamedAndFoundOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{None: true, "list": true} // what the command line means by them
	for _, b := range Bugs() {
		if seen[b.Name] || b.What == "" || b.Caught == "" {
			t.Errorf("%+v", b)
		}
		seen[b.Name] = true
		if found, err := Find(b.Name); err != nil || found != b {
			t.Errorf("%s is found as %+v, %v", b.Name, found, err)
		}
	}
	if b, err := Find(None); err != nil || b.Caught != "" {
		t.Errorf("none is %+v, %v", b, err)
	}
	if _, err := Find("all"); err == nil || !strings.Contains(err.Error(), "none, forget, short-memory") {
		t.Errorf("an unknown bug: %v", err)
	}
	if _, err := New("all", t.TempDir(), nil); err == nil {
		t.Error("there is a layer with an unknown bug")
	}
}
