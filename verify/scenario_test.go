package verify

import (
	"strings"
	"testing"
	"time"
)

func read(t *testing.T, text string) *Scenario {
	t.Helper()
	s, err := ReadScenario([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAScenarioIsCompletedWithDefaults(t *testing.T) {
	t.Parallel()
	s := read(t, "target: http://127.0.0.1:1/api/\nvariants: {slow: {takes: 8s, body: '{\"takes\":\"8s\"}'}}\nrequest: {path: /payments, body: '{}'}\n")
	if err := s.Complete(); err != nil {
		t.Fatal(err)
	}
	slow := s.variant("slow")
	if short := read(t, "target: http://x\nretention: 20s\n"); short.Complete() != nil || time.Duration(short.Later) != 10*time.Second {
		t.Errorf("later %v, want half of a short retention", time.Duration(short.Later))
	}
	switch {
	case s.base.Path != "/api":
		t.Errorf("base path %q", s.base.Path)
	case s.Request.Method != "POST" || slow.Method != "POST" || slow.Path != "/payments" || slow.body() != `{"takes":"8s"}`:
		t.Errorf("request %+v, slow %+v", s.Request, slow)
	case time.Duration(s.Timeout) != 16*time.Second:
		t.Errorf("timeout %v, want twice what the slow one takes", time.Duration(s.Timeout))
	case time.Duration(s.Lease) != 30*time.Second || s.Concurrent != 20 || s.Effects.Answers != "/id" || s.profile.KeyHeader != "Idempotency-Key":
		t.Errorf("lease %v, concurrent %d, answers %q", time.Duration(s.Lease), s.Concurrent, s.Effects.Answers)
	}
}

func TestTheMistakesOfAScenarioAreNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"profile: draft07":                                 "target: the URL of the API is needed",
		"target: ftp://x":                                  `"ftp://x" is not an http:// or https:// URL`,
		"target: http://user:secret@x":                     "credentials belong to the headers",
		"target: http://x?a=1":                             "has a query or a fragment",
		"target: http://x\nprofile: soap":                  `profile: "soap" is none of draft07, stripe, custom`,
		"target: http://x\nprofile: custom":                `custom: key_header: "" is not a field name`,
		"target: http://x\nfields: {a: b}":                 `fields: a: "b" is none of amount, sequence, uuid, word`,
		"target: http://x\nrequest: {path: a}":             `request: path: "a" does not begin with a slash`,
		"target: http://x\nrequest: {body: '${b}'}":        "request: body: ${b} is not a generated field; there are amount, sequence, uuid, word",
		"target: http://x\nrequest: {method: 'A B'}":       `request: method: "A B" is not a method`,
		"target: http://x\nvariants: {fast: {}}":           `variants: "fast" is none of binary, declined`,
		"target: http://x\nvariants: {slow: {}}":           "variants: slow: takes is needed",
		"target: http://x\ntenants: [{name: a}]":           "tenants: there are 1, and two are needed",
		"target: http://x\nprocess: {crash: a}":            "process: crash and restart need each other",
		"target: http://x\nprocess: {pause: a}":            "process: pause and resume need each other",
		"target: http://x\nretention: 10s\nlater: 10s":     "later: 10s is not within the retention, 10s",
		"target: http://x\nconcurrent: 5000":               "concurrent: 5000 is not between 1 and 1000",
		"target: http://x\neffects: {url: /a, command: b}": "three ways to count",
		"target: http://x\neffects: {url: /a, pointer: b}": `pointer: "b" is not a JSON Pointer`,
		"target: http://x\nheaders: {idempotency-key: a}":  "the checks set it",
		"target: http://x\nheaders: {a: \"b\\r\\nc: d\"}":  "the value has a line break",
	} {
		s := read(t, text)
		if err := s.Complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"target: http://x\nvariant: {}": "[2:1] unknown field",
		"target: http://x\nlease: soon": `"soon" is not a time such as 30s`,
		"target: [":                     "[1:",
	} {
		if _, err := ReadScenario([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}

func TestGeneratedFieldsAreOfOneOperation(t *testing.T) {
	t.Parallel()
	s := read(t, "target: http://x\nfields: {order: uuid}\nrequest: {path: '/a/${order}', body: '{\"order\":\"${order}\",\"n\":${sequence}}'}\n")
	if err := s.Complete(); err != nil {
		t.Fatal(err)
	}
	o, other := s.newOperation(""), s.newOperation("")
	first, again, mismatch := o.request(), o.request(), o.keyed(o.other(), o.key)
	switch {
	case string(first.body) != string(again.body) || first.path != again.path:
		t.Errorf("two requests of one operation: %s and %s", first.body, again.body)
	case !strings.Contains(string(first.body), strings.TrimPrefix(first.path, "/a/")):
		t.Errorf("the field differs in path and body: %s, %s", first.path, first.body)
	case string(other.request().body) == string(first.body):
		t.Errorf("two operations have one body: %s", first.body)
	case string(mismatch.body) == string(first.body) || mismatch.path != first.path:
		t.Errorf("another request is %s %s, the first one was %s %s", mismatch.path, mismatch.body, first.path, first.body)
	}
}

func TestAnotherRequestOfAFixedBody(t *testing.T) {
	t.Parallel()
	s := read(t, "target: http://x\nrequest: {body: '{\"a\":1}'}\n")
	if err := s.Complete(); err != nil {
		t.Fatal(err)
	}
	if got := string(s.newOperation("").other().body); !strings.HasPrefix(got, `{"a":1,"semel_verify":"`) {
		t.Errorf("other body %s", got)
	}
}

func TestReorderedJSONIsTheSame(t *testing.T) {
	t.Parallel()
	got, ok := reordered([]byte(`{"a":1.0,"b":{"x":"<&>"},"c":[1,2]}`))
	if want := "{\n  \"c\" : [1,2] ,\n  \"b\" : {\"x\":\"<&>\"} ,\n  \"a\" : 1.0\n}"; !ok || string(got) != want {
		t.Errorf("reordered %s, want %s", got, want)
	}
	for _, body := range []string{`[1]`, `{"a":1}`, `{`, ``, `1`} {
		if got, ok := reordered([]byte(body)); ok {
			t.Errorf("%q reordered to %q", body, got)
		}
	}
}

func TestANumberAsItsText(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"a":"1","b": 12.50 ,"c":3}`: `{"a":"1","b": "12.50" ,"c":3}`,
		`{"a":{"b":[true,-1e3]}}`:     `{"a":{"b":[true,"-1e3"]}}`,
		`{"a":"1"}`:                   "",
		`[1]`:                         "",
		`1`:                           "",
		``:                            "",
	} {
		if got, ok := quoted([]byte(body)); string(got) != want || ok != (want != "") {
			t.Errorf("%s: %s, %t, want %s", body, got, ok, want)
		}
	}
}

func TestValueAtAPointer(t *testing.T) {
	t.Parallel()
	body := []byte(`{"payments":[{"id":"a"},{"id":"b"}],"a/b":{"~":3}}`)
	for pointer, want := range map[string]int{"/payments": 2, "/a~1b/~0": 3, "": 2, "/payments/0": 1} {
		if n, err := countAt(body, pointer); n != want || err != nil {
			t.Errorf("at %q: %d, %v, want %d", pointer, n, err, want)
		}
	}
	for _, pointer := range []string{"/payments/2", "/payments/-", "/none", "/payments/0/id"} {
		if n, err := countAt(body, pointer); err == nil {
			t.Errorf("at %q: %d, want an error", pointer, n)
		}
	}
}
