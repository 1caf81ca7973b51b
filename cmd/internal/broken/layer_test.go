package broken

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAKeyIsReadQuotedOrBare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line, key string // no key: it is refused
	}{
		{`"abc-123"`, "abc-123"},
		{`abc-123`, "abc-123"},
		{`  "abc"  `, "abc"},
		{`"abc";a;b=1; c="x\"y";d=:YQ==:;e=?1;*f=tok/en`, "abc"},
		{"!#$%&'()*+-./:<=>?@[]^_`{|}~", "!#$%&'()*+-./:<=>?@[]^_`{|}~"},
		{strings.Repeat("k", 255), strings.Repeat("k", 255)},
		{strings.Repeat("k", 256), ""},
		{"", ""},
		{`""`, ""},
		{`"abc`, ""},
		{`"abc"x`, ""},
		{`"abc" ;a`, ""},
		{`"abc";A`, ""},
		{`"a\bc"`, ""},
		{`"a\"c"`, ""}, // a quotation mark is not for keys
		{"\"a\tc\"", ""},
		{"a\x7fc", ""},
		{"schlüssel", ""},
		{"a c", ""},
		{"a,c", ""},
		{"a;c", ""},
	} {
		key, err := parseKey([]string{c.line})
		if key != c.key || (err == nil) != (c.key != "") {
			t.Errorf("%q is %q, %v; want %q", c.line, key, err, c.key)
		}
	}
}

func TestOnlyJSONThatMeansTheSameIsEqual(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
		why  string
	}{
		{`{"a":1,"b":[2,{"c":null}]}`, " { \"b\":[ 2,{\"c\":null}],\n\"a\":1}", true, "order and white space"},
		{`{"a":"x"}`, `{"a":"\u0078"}`, true, "the same text"},
		{`[1,2]`, `[2,1]`, false, "elements have an order"},
		{`{"a":1.0}`, `{"a":1}`, false, "numbers keep their text"},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, false, "large numbers"},
		{`{"a":1,"a":2}`, `{"a":2}`, false, "a name that comes twice"},
		{`{"a":"\ud800"}`, `{"a":"\udfff"}`, false, "halves of surrogates"},
		{"{\"a\":\"\xff\"}", "{\"a\":\"\xfe\"}", false, "no UTF-8"},
		{`{"a":1}{`, `{"a":1} {`, false, "no JSON"},
		{`{"a":1}{"a":1}`, `{"a":1}`, false, "two values"},
		{`{"a":{}}`, `{"a":[]}`, false, "an object is no array"},
		{strings.Repeat("[", 20_000), strings.Repeat("[", 20_000) + " ", false, "too deep"},
	} {
		a, b := canonical("application/json", []byte(c.a)), canonical("application/json; charset=utf-8", []byte(c.b))
		if (string(a) == string(b)) != c.same {
			t.Errorf("%s: %.80q and %.80q", c.why, a, b)
		}
	}
	if a := canonical("text/plain", []byte(`{ }`)); string(a) != `{ }` {
		t.Errorf("what is not JSON is changed to %q", a)
	}
	if a := canonical("application/problem+json", []byte(`{ }`)); string(a) != `{}` {
		t.Errorf("JSON of another name is %q", a)
	}
}

func TestWhatIsRefusedNeverRuns(t *testing.T) {
	t.Parallel()
	p := start(t, None)
	large := newRequest("/pay")
	large.body = strings.Repeat("x", maxBody+1)
	if a := p.ask(large); a.status != 413 || a.code != "IDEMPOTENCY_BODY_TOO_LARGE" {
		t.Errorf("a large body got %v", a)
	}
	two := newRequest("/pay").http()
	two.Header.Add("X-Account", "globex")
	w := httptest.NewRecorder()
	p.ServeHTTP(w, two)
	if a := read(w); a.status != 400 || a.code != "IDEMPOTENCY_SCOPE_INVALID" {
		t.Errorf("two accounts got %v", a)
	}
	if p.count() != 0 || len(p.records) != 0 {
		t.Errorf("%d effects, %d records", p.count(), len(p.records))
	}
}

func TestWhatReadsPasses(t *testing.T) {
	t.Parallel()
	calls := 0
	l, err := New(None, t.TempDir(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 2 {
		r := newRequest("/pay").http()
		r.Method = http.MethodGet
		l.ServeHTTP(httptest.NewRecorder(), r)
	}
	if calls != 2 || len(l.records) != 0 {
		t.Errorf("%d calls, %d records", calls, len(l.records))
	}
}

func TestARunThatGivesNoAnswerIsHeld(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"panic":  func(http.ResponseWriter, *http.Request) { panic("no") },
		"Goexit": func(http.ResponseWriter, *http.Request) { runtime.Goexit() },
		"half an answer": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := start(t, None)
				calls := 0
				p.next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					calls++
					handler(w, r)
				})
				r := newRequest("/pay")
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					p.ask(r)
				}()
				<-ended
				time.Sleep(2 * lease)
				if a := p.ask(r); a.code != "IDEMPOTENCY_OUTCOME_UNKNOWN" || calls != 1 {
					t.Errorf("a repeat got %v, %d calls", a, calls)
				}
				if a := p.crash(t).ask(r); a.status != 409 {
					t.Errorf("after a restart it got %v", a)
				}
			})
		})
	}
}

func TestAnAnswerWithoutAWriteIs200(t *testing.T) {
	t.Parallel()
	p := start(t, None)
	r := newRequest("/none")
	if first, again := p.ask(r), p.ask(r); first.status != 200 || !again.same(first) || again.header.Get("Idempotent-Replayed") == "" {
		t.Errorf("first %v, again %v", first, again)
	}
}

func TestARecordIsHeldOverRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := start(t, None)
		paid, binary, declined, limited := newRequest("/pay"), newRequest("/binary"), newRequest("/declined"), newRequest("/limited")
		running := newRequest("/slow")
		first := map[string]reply{}
		for _, r := range []request{paid, binary, declined, limited} {
			first[r.path] = p.ask(r)
		}
		p.begin(running)
		time.Sleep(time.Second)
		for range 2 { // what was read is as good as what was written
			p = p.crash(t)
		}
		for _, r := range []request{paid, binary, declined} {
			if a := p.ask(r); !a.same(first[r.path]) {
				t.Errorf("%s: %v, and was %v", r.path, a, first[r.path])
			}
			r.body = "{}"
			if a := p.ask(r); a.status != 422 {
				t.Errorf("%s: another body got %v", r.path, a)
			}
		}
		if a := p.ask(limited); a.status != 201 {
			t.Errorf("a key that was freed got %v", a)
		}
		if a := p.ask(running); a.code != "IDEMPOTENCY_IN_PROGRESS" || a.header.Get("Retry-After") == "" {
			t.Errorf("what ran got %v at first", a)
		}
		time.Sleep(lease)
		if a := p.ask(running); a.code != "IDEMPOTENCY_OUTCOME_UNKNOWN" {
			t.Errorf("what ran got %v after the lease", a)
		}
		time.Sleep(time.Minute)
	})
}

func TestALateOwnerOfAHeldRunMaySettleIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := start(t, None)
		r := newRequest("/slow")
		first := p.begin(r)
		time.Sleep(time.Second)
		p.sleep(lease)
		if a := p.ask(r); a.code != "IDEMPOTENCY_OUTCOME_UNKNOWN" {
			t.Errorf("after its lease a run is %v", a)
		}
		time.Sleep(lease / 2)
		if a := p.ask(r); a.code != "IDEMPOTENCY_IN_PROGRESS" {
			t.Errorf("once it is renewed it is %v", a)
		}
		if a := <-first; a.status != 201 || !p.ask(r).same(a) {
			t.Errorf("its client got %v", a)
		}
	})
}

// An owner that was taken over settles nothing, and its client gets what the next one answers.
func TestAnOwnerThatWasTakenOverIsFenced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := start(t, None)
		r := newRequest("/slow")
		first := p.begin(r)
		time.Sleep(slow / 4)
		id := p.identity(r.account, r.key, "")
		p.Layer.mu.Lock()
		p.records[id].State = free // as somebody would do who thinks that it is dead
		p.Layer.mu.Unlock()
		second := p.begin(r)
		if a := <-first; a.code != "IDEMPOTENCY_IN_PROGRESS" {
			t.Errorf("the client of the late owner got %v while the next one ran", a)
		}
		if a := <-second; a.status != 201 || !p.ask(r).same(a) {
			t.Errorf("the next one got %v", a)
		}
	})
}

func TestWhatCantBeMadeDurableIsNotPromised(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := start(t, None)
		r := newRequest("/slow")
		first := p.begin(r)
		time.Sleep(time.Second)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		a := p.ask(newRequest("/pay"))
		if a.code != "IDEMPOTENCY_STORE_UNAVAILABLE" || a.header.Get("Retry-After") != "5" || p.count() != 0 {
			t.Errorf("without a claim it got %v, %d effects", a, p.count())
		}
		if a := <-first; a.code != "IDEMPOTENCY_OUTCOME_PENDING" {
			t.Errorf("without its answer it got %v", a)
		}
		time.Sleep(lease)
		if a := p.ask(r); a.code != "IDEMPOTENCY_OUTCOME_UNKNOWN" || p.count() != 1 {
			t.Errorf("a repeat got %v, %d effects", a, p.count())
		}
	})
}

func TestTheHandlerSeesTheRequestAndNotItsEnd(t *testing.T) {
	t.Parallel()
	ctx, hangUp := context.WithCancel(t.Context())
	var err error
	var body string
	p := start(t, None)
	p.next = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		hangUp()
		err = r.Context().Err()
		text := make([]byte, r.ContentLength)
		r.Body.Read(text) //nolint:errcheck // what was read is looked at
		body = string(text)
	})
	r := newRequest("/pay")
	r.ctx = ctx
	p.ask(r)
	if err != nil || body != r.body {
		t.Errorf("context %v, body %q", err, body)
	}
}
