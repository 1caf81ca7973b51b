package fingerprint

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/digest"
)

func gzippedBody(t testing.TB, level int, members ...string) string {
	t.Helper()
	var out bytes.Buffer
	for _, m := range members {
		w, err := gzip.NewWriterLevel(&out, level)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, m)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func deflatedBody(t testing.TB, body string) string {
	t.Helper()
	var out bytes.Buffer
	w := zlib.NewWriter(&out)
	io.WriteString(w, body)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestR19_GzipLevelsAreOneRequest(t *testing.T) {
	t.Parallel()
	one := json200()
	one.body = `{"items":[` + strings.Repeat(`{"b":1,"a":[1,2,3]},`, 300) + `{}]}`
	for _, memory := range []int64{0, 64, 4 << 10} { // none, both and only the decoded body spooled
		one.memory = memory
		want := one.fingerprint(t, Policy{})
		for _, c := range []struct {
			coding, body string
			same         bool
		}{
			{"identity", one.body, true},
			{"gzip", gzippedBody(t, 1, one.body), true},
			{"gzip", gzippedBody(t, 9, one.body), true},
			{"X-GZIP", gzippedBody(t, 9, one.body), true},
			{"identity, gzip", gzippedBody(t, 9, one.body), true},
			{"deflate", deflatedBody(t, one.body), true},
			{"gzip", gzippedBody(t, 9, one.body+" "), memory == 0}, // white space, where JSON is canonicalised
			{"gzip", gzippedBody(t, 9, one.body, ""), false},       // two members: readers differ
			{"gzip", gzippedBody(t, 9, one.body) + "x", false},
			{"gzip", gzippedBody(t, 9, one.body)[:40], false},
			{"gzip", one.body, false},
			{"deflate", deflatedBody(t, one.body) + "x", false},
			{"br", one.body, false},
			{"gzip, gzip", gzippedBody(t, 9, gzippedBody(t, 9, one.body)), false},
		} {
			other := one
			other.body, other.header = c.body, http.Header{"Content-Encoding": {c.coding}}
			got := other.fingerprint(t, Policy{})
			if got.Equal(want) != c.same {
				t.Errorf("memory %d, %s, %d bytes: equal %v, want %v", memory, c.coding, len(c.body), got.Equal(want), c.same)
			}
			if again := other.fingerprint(t, Policy{}); again != got {
				t.Errorf("memory %d, %s: not equal to itself", memory, c.coding)
			}
		}
	}
}

func TestR19_AnOpaqueBodyIsToldApartByItsCoding(t *testing.T) {
	t.Parallel()
	seen := map[[16]byte]string{}
	for _, coding := range []string{"", "gzip", "deflate", "br", "zstd", "br,zstd"} {
		s := sketch{body: "not compressed", header: http.Header{"Content-Encoding": {coding}}}
		fp := s.fingerprint(t, Policy{})
		for _, sum := range [][16]byte{fp.Raw, fp.Canonical} {
			if other, ok := seen[sum]; ok && other != coding {
				t.Errorf("%q and %q: the same fingerprint", coding, other)
			}
			seen[sum] = coding
		}
	}
}

func TestR20_Case22_JSONOrderAndSpaceDoNotCount(t *testing.T) {
	t.Parallel()
	a := jsonBody(`{"amount":100,"to":{"iban":"DE1","name":"Ada"}}`)
	b := jsonBody("\n{ \"to\" : {\"name\":\"\\u0041da\", \"iban\":\"DE1\"},\t\"amount\": 100 }\r\n")
	x, y := a.fingerprint(t, Policy{}), b.fingerprint(t, Policy{})
	if x.Raw == y.Raw || !x.Equal(y) {
		t.Errorf("raw equal %v, equal %v; want only the canonical digests equal", x.Raw == y.Raw, x.Equal(y))
	}
	if p := (Policy{Exact: true}); a.fingerprint(t, p).Equal(b.fingerprint(t, p)) {
		t.Error("byte-exact mode equates them")
	}
	for _, kind := range []string{"application/vnd.api+json", "application/merge-patch+json; v=1"} {
		a.contentType, b.contentType = kind, kind
		if !a.fingerprint(t, Policy{}).Equal(b.fingerprint(t, Policy{})) {
			t.Errorf("%s is not canonicalised", kind)
		}
	}
	for _, kind := range []string{"text/plain", "application/json; charset=utf-16", "application/jsonish", ""} {
		a.contentType, b.contentType = kind, kind
		if a.fingerprint(t, Policy{}).Equal(b.fingerprint(t, Policy{})) {
			t.Errorf("%q is canonicalised", kind)
		}
	}
}

func TestR20_DifferentJSONIsNeverEquated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b, why string }{
		{`{"n":9007199254740993}`, `{"n":9007199254740992}`, "numbers keep their text"},
		{`{"n":1.0}`, `{"n":1}`, "numbers keep their text"},
		{`{"n":1e2}`, `{"n":100}`, "numbers keep their text"},
		{`{"n":-0}`, `{"n":0}`, "numbers keep their text"},
		{`{"n":1E2}`, `{"n":1e2}`, "numbers keep their text"},
		{`{"n":"1"}`, `{"n":1}`, "a string is no number"},
		{`{"n":null}`, `{"n":"null"}`, "a string is no null"},
		{`{"n":null}`, `{}`, "null is not absent"},
		{`{"a":1,"a":2}`, `{"a":2}`, "duplicate names"},
		{`{"a":1,"a":2}`, `{"a":2,"a":1}`, "duplicate names"},
		{`{"a":1,"\u0061":2,"b":3}`, `{"b":3,"a":1,"\u0061":2}`, "duplicate names in another spelling"},
		{`[1,2]`, `[2,1]`, "arrays keep their order"},
		{`[[1],2]`, `[[1,2]]`, "structure"},
		{`{"a":{"b":1},"c":2}`, `{"a":{"b":1,"c":2}}`, "structure"},
		{`{"a":"b\",\"c\":\"d"}`, `{"a":"b","c":"d"}`, "quotes inside a string"},
		{"{\"a\":\"\xff\",\"b\":1}", "{\"b\":1,\"a\":\"\xff\"}", "invalid UTF-8"},
		{"{\"a\":\"\xff\"}", "{\"a\":\"\ufffd\"}", "invalid UTF-8"},
		{`{"a":"\ud800","b":1}`, `{"b":1,"a":"\ud800"}`, "lone surrogate"},
		{`{"a":"\ud800"}`, `{"a":"\ufffd"}`, "lone surrogate"},
		{`{"a":1,}`, `{"a":1}`, "malformed"},
		{`{"a":1}{}`, `{"a":1}`, "trailing data"},
		{"\ufeff{\"a\":1}", `{"a":1}`, "byte order mark"},
		{`{"a":1 }x`, `{"a":1}x`, "malformed is raw"},
		{``, `{}`, "an empty body"},
		{``, ` `, "an empty body"},
		{`{"a":01}`, `{"a": 01}`, "malformed number is raw"},
		{strings.Repeat("[", 257) + strings.Repeat("]", 257), " " + strings.Repeat("[", 257) + strings.Repeat("]", 257), "too deep is raw"},
	} {
		a, b := jsonBody(c.a).fingerprint(t, Policy{}), jsonBody(c.b).fingerprint(t, Policy{})
		if a.Raw == b.Raw || a.Canonical == b.Canonical {
			t.Errorf("%.60q and %.60q are equated: %s", c.a, c.b, c.why)
		}
		if !a.Equal(jsonBody(c.a).fingerprint(t, Policy{})) {
			t.Errorf("%.60q does not equal itself", c.a)
		}
	}
}

// A body that is what another one's canonical form looks like must not pass for it.
func TestR20_R21_ARawBodyNeverEqualsACanonicalOne(t *testing.T) {
	t.Parallel()
	canonical := jsonBody(`{"a":1,"b":2}`)
	raw := jsonBody(`{"a":1,"b":2}`)
	raw.header = http.Header{"Content-Encoding": {"br"}}
	exact := canonical.fingerprint(t, Policy{Exact: true})
	for name, other := range map[string]driver.Fingerprint{
		"opaque": raw.fingerprint(t, Policy{}), "exact": exact,
	} {
		if fp := canonical.fingerprint(t, Policy{}); fp.Canonical == other.Canonical {
			t.Errorf("%s: canonical digests are equal", name)
		}
	}
}

func TestR21_FormsAreNormalisedByName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
		why  string
	}{
		{"a=1&b=2", "b=2&a=1", true, "names may change places"},
		{"a=1&a=2", "a=2&a=1", false, "values of a name keep their order"},
		{"a=b+c", "a=b%20c", true, "both are a space"},
		{"a=b%2Bc", "a=b+c", false, "an escaped plus is a plus"},
		{"a=%e4", "a=%E4", true, "hexadecimal digits have no case"},
		{"a=1&b=2", "a=1%26b=2", false, "an escaped separator separates nothing"},
		{"a=1", "a%3D1", false, "an escaped equals sign separates nothing"},
		{"items[][id]=1&items[][n]=5&items[][id]=2&items[][n]=6", "items[][id]=1&items[][id]=2&items[][n]=5&items[][n]=6", false, "records are built in order"},
		{"a=%zz&b=1", "b=1&a=%zz", false, "malformed is raw"},
		{"a=1;b=2&c=3", "c=3&a=1;b=2", false, "malformed is raw"},
		{"ab=c", "a=bc", false, "names and values are apart"},
		{"", "a=", false, "an empty form"},
	} {
		got := formBody(c.a).fingerprint(t, Policy{}).Equal(formBody(c.b).fingerprint(t, Policy{}))
		if got != c.same {
			t.Errorf("%s and %s: equal %v, want %v: %s", c.a, c.b, got, c.same, c.why)
		}
	}
}

func TestR22_ExcludedFieldsDoNotCount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p    Policy
		a, b string
		same bool
		why  string
	}{
		{Policy{Exclude: []string{"/ts"}}, `{"ts":1,"a":2}`, `{"a":2,"ts":[3]}`, true, "the field is excluded"},
		{Policy{Exclude: []string{"/ts"}}, `{"ts":1,"a":2}`, `{"a":2}`, true, "absent too"},
		{Policy{Exclude: []string{"/ts"}}, `{"ts":1,"a":2}`, `{"ts":1,"a":3}`, false, "others count"},
		{Policy{Exclude: []string{"/ts"}}, `{"m":{"ts":1}}`, `{"m":{"ts":2}}`, false, "elsewhere it counts"},
		{Policy{Exclude: []string{"/m/ts"}}, `{"m":{"ts":1,"k":1}}`, `{"m":{"ts":2,"k":1}}`, true, "nested"},
		{Policy{Exclude: []string{"/m/ts"}}, `{"m":{}}`, `{}`, false, "its parent counts"},
		{Policy{Exclude: []string{"/items/*/ts"}}, `{"items":[{"id":1,"ts":1},{"id":2}]}`, `{"items":[{"id":1},{"ts":9,"id":2}]}`, true, "every element"},
		{Policy{Exclude: []string{"/items/*/ts"}}, `{"items":{"x":{"ts":1}}}`, `{"items":{"x":{"ts":2}}}`, false, "* is no member"},
		{Policy{Exclude: []string{"/items/*"}}, `{"items":{"*":1}}`, `{"items":{"*":2}}`, true, "but the member of that name"},
		{Policy{Exclude: []string{"/items/1"}}, `{"items":[1,2,3]}`, `{"items":[1,9,3]}`, true, "one element"},
		{Policy{Exclude: []string{"/items/1"}}, `{"items":[1,2,3]}`, `{"items":[9,2,3]}`, false, "not the others"},
		{Policy{Exclude: []string{"/items/01"}}, `{"items":[1,2]}`, `{"items":[1,9]}`, false, "an index has no leading zero"},
		{Policy{Exclude: []string{"/items/*/a", "/items/0/b"}}, `{"items":[{"a":1,"b":2,"c":3}]}`, `{"items":[{"c":3}]}`, true, "both lead there"},
		{Policy{Exclude: []string{"/items/*/a", "/items/0/b"}}, `{"items":[0,{"a":1,"b":2}]}`, `{"items":[0,{"b":3}]}`, false, "only one does"},
		{Policy{Exclude: []string{"/a~1b", "/c~0d"}}, `{"a/b":1,"c~d":2}`, `{}`, true, "escapes of RFC 6901"},
		{Policy{Exclude: []string{"/a\"b"}}, `{"a\"b":1}`, `{}`, true, "names are compared decoded"},
		{Policy{Exclude: []string{"/"}}, `{"":1}`, `{}`, true, "the empty name"},
		{Policy{Exclude: []string{"/ts"}}, `{"ts":{"b":1,"a":2},"z":1,"a":0}`, `{"a":0,"z":1}`, true, "with all that is inside"},
		{Policy{Exclude: []string{"/l/*"}}, `{"l":[{"b":1,"a":2},{"d":1,"c":2}],"k":{"b":1,"a":2}}`, `{"k":{"a":2,"b":1},"l":[]}`, true, "with all that is inside"},
		{Policy{Exclude: []string{"/ts"}}, `{"ts":tru,"a":1}`, `{"ts":fals,"a":1}`, false, "malformed is raw"},
		{Policy{ExcludeNames: []string{"Nonce"}}, `{"a":{"NONCE":1},"nonce":2}`, `{"a":{}}`, true, "any depth, any case"},
		{Policy{ExcludeNames: []string{"straße"}}, `{"STRAßE":1}`, `{}`, true, "simple folding"},
		{Policy{ExcludeNames: []string{"nonce"}}, `["nonce"]`, `[]`, false, "a string is no name"},
		{Policy{NullIsAbsent: true}, `{"a":null,"b":{"c":null}}`, `{"b":{}}`, true, "null is absent"},
		{Policy{NullIsAbsent: true}, `[null]`, `[]`, false, "an element is not a member"},
		{Policy{NullIsAbsent: true}, `{"a":"null"}`, `{}`, false, "a string is no null"},
		{Policy{NullIsAbsent: true}, `{"a":null,"a":1}`, `{"a":1}`, false, "duplicates still are"},
	} {
		if got := jsonBody(c.a).fingerprint(t, c.p).Equal(jsonBody(c.b).fingerprint(t, c.p)); got != c.same {
			t.Errorf("%+v: %s and %s: equal %v, want %v: %s", c.p, c.a, c.b, got, c.same, c.why)
		}
	}
}

func TestR22_BadSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p    Policy
		want string
	}{
		{Policy{Exclude: []string{"ts"}}, `JSON Pointer "ts" does not begin with /`},
		{Policy{Exclude: []string{""}}, "whole body"},
		{Policy{Exclude: []string{"/a~2"}}, "~ must be followed by 0 or 1"},
		{Policy{Exclude: []string{"/a~"}}, "~ must be followed by 0 or 1"},
		{Policy{Exclude: []string{"/\xff"}}, "not UTF-8"},
		{Policy{ExcludeNames: []string{""}}, "empty or not UTF-8"},
		{Policy{ExcludeNames: []string{"\xff"}}, "empty or not UTF-8"},
		{Policy{Headers: []string{"a b"}}, "not a header name"},
		{Policy{Headers: []string{"host"}}, "field Host"},
		{Policy{Headers: []string{"Content-length"}}, "frames the message"},
		{Policy{Exact: true, NullIsAbsent: true}, "Exact"},
		{Policy{Exact: true, Exclude: []string{"/a"}}, "Exact"},
	} {
		if _, err := New(c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want one with %q", c.p, err, c.want)
		}
	}
}

func TestR23_SettingsAreToldApartAndRawIsNot(t *testing.T) {
	t.Parallel()
	s := json200()
	base := s.fingerprint(t, Policy{})
	seen := map[[8]byte]string{base.Settings: "defaults"}
	for _, p := range []Policy{
		{Exact: true},
		{Exclude: []string{"/a"}},
		{Exclude: []string{"/a", "/b"}},
		{ExcludeNames: []string{"a"}},
		{ExcludeNames: []string{"/a"}},
		{NullIsAbsent: true},
	} {
		fp := s.fingerprint(t, p)
		if other, ok := seen[fp.Settings]; ok {
			t.Errorf("%+v: the same settings as %s", p, other)
		}
		seen[fp.Settings] = fmt.Sprintf("%+v", p)
		if fp.Raw != base.Raw {
			t.Errorf("%+v: changes the raw digest", p)
		}
	}
	for _, p := range []Policy{{Host: true}, {Headers: []string{"X-A"}}} {
		if fp := s.fingerprint(t, p); fp.Settings == base.Settings || fp.Raw == base.Raw {
			t.Errorf("%+v: settings equal %v, raw equal %v; want neither", p, fp.Settings == base.Settings, fp.Raw == base.Raw)
		}
	}
	for _, same := range [][2]Policy{
		{{Exclude: []string{"/a", "/b"}}, {Exclude: []string{"/b", "/a", "/b"}}},
		{{ExcludeNames: []string{"Ts", "k"}}, {ExcludeNames: []string{"\u212a", "tS", "K"}}},
		{{Headers: []string{"x-a"}}, {Headers: []string{"X-A", "X-a"}}},
	} {
		if s.fingerprint(t, same[0]) != s.fingerprint(t, same[1]) {
			t.Errorf("%+v and %+v: different settings", same[0], same[1])
		}
	}
}

// Equal settings must mean that the same bodies are canonicalised, or a change of the size would give a false 422.
func TestR23_R24_TheSpoolingSizeIsASetting(t *testing.T) {
	t.Parallel()
	s := json200()
	none := s.fingerprint(t, Policy{})
	s.memory = 1 << 10
	in1K := s.fingerprint(t, Policy{})
	s.memory = 64
	in64 := s.fingerprint(t, Policy{})
	s.memory = 1 << 20
	unreached := s.fingerprint(t, Policy{})
	if none.Raw != in1K.Raw || none.Raw != in64.Raw {
		t.Error("spooling changes the raw digest")
	}
	if none.Settings == in1K.Settings || in1K.Settings == in64.Settings || none.Settings == in64.Settings {
		t.Error("spooling is not among the settings")
	}
	if none.Canonical == in64.Canonical {
		t.Error("a spooled body is canonicalised")
	}
	if none != unreached {
		t.Error("a size that no body exceeds changes the fingerprint")
	}
}

func TestR24_ASpooledMultipartBodyIsComparedByParts(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("0123456789abcdef", 4<<10)
	body := func(boundary string) sketch {
		return sketch{
			contentType: "multipart/form-data; boundary=" + boundary, memory: 1 << 10,
			body: "--" + boundary + "\r\nContent-Disposition: form-data; name=f; filename=a\r\n\r\n" + content + "\r\n--" + boundary + "--\r\n",
		}
	}
	a, b := body("one").fingerprint(t, Policy{}), body("another").fingerprint(t, Policy{})
	if a.Raw == b.Raw || !a.Equal(b) {
		t.Errorf("raw equal %v, equal %v; want only the canonical digests equal", a.Raw == b.Raw, a.Equal(b))
	}
	inMemory := body("one")
	inMemory.memory = 0
	if fp := inMemory.fingerprint(t, Policy{}); fp.Raw != a.Raw || fp.Canonical != a.Canonical {
		t.Error("spooling changes the digests")
	}
}

func TestR24_AnUnreadableSpooledBodyIsAnError(t *testing.T) {
	t.Parallel()
	f, err := New(Policy{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"application/json", "multipart/form-data; boundary=b"} {
		r, b := sketch{contentType: kind, memory: 8, body: strings.Repeat("x", 100)}.request(t)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if fp, err := f.Of(digest.New(nil), &Recent{}, driver.ID{}, r, b); err == nil || fp != (driver.Fingerprint{}) {
			t.Errorf("%s: fingerprint %v, error %v; want only an error", kind, fp, err)
		}
	}
}
