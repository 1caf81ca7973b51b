package fingerprint

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/semelhq/semel/internal/requestbody"
)

func TestR22_JSONPointersFollowRFC6901(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pointer string
		want    []string
	}{
		{"", nil},
		{"/", []string{""}},
		{"/a/b", []string{"a", "b"}},
		{"//", []string{"", ""}},
		{"/a~1b/m~0n", []string{"a/b", "m~n"}},
		{"/~01", []string{"~1"}},
		{"/ /é/\"", []string{" ", "é", `"`}},
	} {
		if got, err := ParseJSONPointer(c.pointer); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: tokens %q, error %v, want %q", c.pointer, got, err, c.want)
		}
	}
}

func TestR9_R3_TheKeyInABodyField(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body, pointer, want string
		found               bool
		err                 error
	}{
		{`{"key":"abc"}`, "/key", "abc", true, nil},
		{` { "a" : 1 , "key" : "a\u0062c\n\ud83d\ude00" } `, "/key", "abc\n😀", true, nil},
		{`{"k\u0065y":"abc"}`, "/key", "abc", true, nil},
		{`{"a":{"b":[0,{"key":"x"}]}}`, "/a/b/1/key", "x", true, nil},
		{`{"a/b":"x"}`, "/a~1b", "x", true, nil},
		{`{"a\"":"x"}`, `/a"`, "x", true, nil},
		{`{"key":""}`, "/key", "", true, nil},
		{`"abc"`, "", "abc", true, nil},
		{`{"*":"x"}`, "/*", "x", true, nil},
		{`["x"]`, "/*", "", false, nil},
		{`["x"]`, "/1", "", false, nil},
		{`["x"]`, "/00", "", false, nil},
		{`{"a":1}`, "/key", "", false, nil},
		{`{"KEY":"x"}`, "/key", "", false, nil},
		{`{"a":"x"}`, "/a/key", "", false, nil},
		{`[]`, "/key", "", false, nil},
		{``, "/key", "", false, nil},
		{`{"z":1,"z":2,"key":"abc"}`, "/key", "abc", true, nil},
		{`{"key":1}`, "/key", "", false, errFieldNoString},
		{`{"key":null}`, "/key", "", false, nil},
		{`{"key":{"key":"x"}}`, "/key", "", false, errFieldNoString},
		{`{"key":"a","key":"a"}`, "/key", "", false, ErrAmbiguous},
		{`{"key":"a","k\u0065y":1}`, "/key", "", false, ErrAmbiguous},
		{`{"a":{"key":"x"},"a":{}}`, "/a/key", "", false, ErrAmbiguous},
		{`{"key":"a"`, "/key", "", false, errFieldMalformed},
		{`{"key":"a"} x`, "/key", "", false, errFieldMalformed},
		{"{\"key\":\"\xff\"}", "/key", "", false, errFieldMalformed},
		{`{"key":"\ud800"}`, "/key", "", false, errFieldMalformed},
		{` `, "/key", "", false, errFieldMalformed},
		{`key=abc`, "/key", "", false, errFieldMalformed},
	} {
		_, b := jsonBody(c.body).request(t)
		got, found, err := KeyField(b, []string{"application/json"}, c.pointer)
		if got != c.want || found != c.found || !errors.Is(err, c.err) {
			t.Errorf("%s in %s: %q, %v, %v; want %q, %v, %v", c.pointer, c.body, got, found, err, c.want, c.found, c.err)
		}
	}
	if _, _, err := KeyField(&requestbody.Body{}, []string{"application/json"}, "key"); err == nil {
		t.Error("a pointer without a slash is accepted")
	}
}

func TestR9_R19_TheKeyIsReadFromTheDecodedBody(t *testing.T) {
	t.Parallel()
	s := jsonBody(gzippedBody(t, 9, `{"key":"abc"}`))
	s.header = http.Header{"Content-Encoding": {"gzip"}}
	if _, b := s.request(t); b != nil {
		if got, found, err := KeyField(b, []string{"application/json"}, "/key"); got != "abc" || !found || err != nil {
			t.Errorf("gzip: %q, %v, %v", got, found, err)
		}
	}
	s.header = http.Header{"Content-Encoding": {"br"}}
	_, b := s.request(t)
	if _, found, err := KeyField(b, []string{"application/json"}, "/key"); found || !errors.Is(err, errFieldUnreadable) {
		t.Errorf("unknown coding: found %v, error %v", found, err)
	}
	s = jsonBody(`{"key":"abc","a":"` + strings.Repeat("x", 100) + `"}`)
	s.memory = 50
	_, b = s.request(t)
	if _, found, err := KeyField(b, []string{"application/json"}, "/key"); found || !errors.Is(err, errFieldSpooled) {
		t.Errorf("spooled: found %v, error %v", found, err)
	}
}

// FuzzJSONRules compares with taking the excluded members and elements out of the decoded document.
func FuzzJSONRules(f *testing.F) {
	f.Add([]byte(`{"ts":1,"items":[{"TS":2,"id":null},{"id":3}],"a":{"b":[1,2]}}`), "/items/*/id\n/a/b/0", "ts", true)
	f.Add([]byte(`{"b":{"d":1,"c":{}},"a":[[{"b":1,"a":2}],3]}`), "/a/0/*/b\n/a/*/0/a\n/b/d", "", false)
	f.Add([]byte(`[{"*":1,"b":2},[1],null]`), "/*/*\n/1/0", "k", true)
	f.Fuzz(func(t *testing.T, src []byte, pointers, name string, nullIsAbsent bool) {
		p := Policy{NullIsAbsent: nullIsAbsent}
		var tokens [][]string
		for _, pointer := range strings.Split(pointers, "\n") {
			if list, err := ParseJSONPointer(pointer); err == nil && len(list) > 0 {
				p.Exclude = append(p.Exclude, pointer)
				tokens = append(tokens, list)
			}
		}
		if name != "" && utf8.ValidString(name) {
			p.ExcludeNames = []string{name}
		}
		fingerprinter, err := New(p)
		if err != nil {
			t.Fatalf("%+v: %v", p, err)
		}
		c := &canonicalizer{}
		ok := c.json(src, &fingerprinter.json)
		if whole := canonicalJSON(t, string(src)); ok != (whole != nil) {
			t.Fatalf("%q: canonical %v with %+v, %v without", src, ok, p, !ok)
		}
		if !ok {
			return
		}
		rest := rewriteJSON(nil, pruned(decodeJSON(t, src), tokens, &p), rand.New(rand.NewPCG(1, 2)))
		if want := canonicalJSON(t, string(rest)); !bytes.Equal(c.out, want) {
			t.Fatalf("%q with %+v: canonical form %q, want %q", src, p, c.out, want)
		}
	})
}

// pruned returns what of a value counts.
func pruned(value any, pointers [][]string, p *Policy) any {
	// below returns what is left of the pointers that lead to one of the names, and whether one ends there.
	below := func(names ...string) (rest [][]string, end bool) {
		for _, tokens := range pointers {
			if len(tokens) > 0 && slices.Contains(names, tokens[0]) {
				rest, end = append(rest, tokens[1:]), end || len(tokens) == 1
			}
		}
		return rest, end
	}
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, member := range v {
			rest, end := below(name)
			named := slices.ContainsFunc(p.ExcludeNames, func(n string) bool { return strings.EqualFold(n, name) })
			if !end && !named && (member != nil || !p.NullIsAbsent) {
				out[name] = pruned(member, rest, p)
			}
		}
		return out
	case []any:
		out := []any{}
		for i, element := range v {
			if rest, end := below("*", strconv.Itoa(i)); !end {
				out = append(out, pruned(element, rest, p))
			}
		}
		return out
	}
	return value
}
