package fingerprint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// canonicalJSON returns the canonical form, nil if there is none.
func canonicalJSON(t testing.TB, src string) []byte {
	t.Helper()
	c := &canonicalizer{}
	if !c.json([]byte(src), &jsonRules{}) {
		return nil
	}
	if len(c.out) > len(src) {
		t.Errorf("%.80q: the canonical form is longer: %.80q", src, c.out)
	}
	return bytes.Clone(c.out)
}

func TestR20_TheCanonicalFormOfJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ src, want string }{
		{` { } `, `{}`},
		{"[ ]", `[]`},
		{"\t[1 , 2\r\n]", `[1,2]`},
		{`{"b":1,"a":2}`, `{"a":2,"b":1}`},
		{`{"b":{"d":[{"f":1,"e":2}],"c":3},"a":{"z":1,"y":2}}`, `{"a":{"y":2,"z":1},"b":{"c":3,"d":[{"e":2,"f":1}]}}`},
		{`{"a":{"d":1,"c":2},"b":{"f":1,"e":2}}`, `{"a":{"c":2,"d":1},"b":{"e":2,"f":1}}`},
		{`{"b":1,"":2,"ab":3,"a":4}`, `{"":2,"a":4,"ab":3,"b":1}`},
		{`{"orderId":1,"Amount":2,"é":3,"名":4,"BA":5,"䅂":6}`, `{"Amount":2,"BA":5,"orderId":1,"é":3,"䅂":6,"名":4}`},
		{`[{"a":1},{"A":{"b":1}},{"B":1}]`, `[{"a":1},{"A":{"b":1}},{"B":1}]`},
		{`"\u0041\/\u00e9\ud83d\ude00"`, `"A/é😀"`},
		{`"\b\f\n\r\t\"\\"`, `"\b\f\n\r\t\"\\"`},
		{`"\u0008\u000c\u000a\u000d\u0009\u0022\u005C"`, `"\b\f\n\r\t\"\\"`},
		{`"\u0000\u001F\u007f"`, "\"\\u0000\\u001f\x7f\""},
		{`"\ufffd\uFFFF"`, "\"\ufffd\uffff\""},
		{`-0.10E+5`, `-0.10E+5`},
		{`[true,false,null,0,10,-1]`, `[true,false,null,0,10,-1]`},
		{strings.Repeat("[", 256) + strings.Repeat("]", 256), strings.Repeat("[", 256) + strings.Repeat("]", 256)},
	} {
		if got := canonicalJSON(t, c.src); string(got) != c.want {
			t.Errorf("%.80s: canonical form %.80s, want %.80s", c.src, got, c.want)
		}
	}
}

func TestR20_JSONWithoutACanonicalForm(t *testing.T) {
	t.Parallel()
	for _, src := range []string{
		"", " ", "{", "[", "}", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{"a":1 "b":2}`, `{a:1}`, `{1:1}`, `[1,]`, `[,1]`,
		"[1 2]", "[1}", "{]", "1 2", "nul", "nulll", "True", "+1", "01", "-", "1.", ".1", "1e", "1e+", "1ee1", "0x1", "NaN", "Infinity",
		`"`, `"\`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"\n\"", "\"\x00\"", "'a'", `"\ud800"`, `"\udc00"`, `"\ud800\u0041"`, `"\ud800\ud800"`,
		`"\ud800x"`, `"\ud800\n"`, `"\ud800\udc0"`, "\"\xff\"", "\"\xed\xa0\x80\"", "\ufeff1", "1\x00", "1\v", "/**/1", "1//",
		`{"a":1,"a":1}`, `{"a":1,"b":2,"a":3}`, `{"a":{"b":1,"b":2}}`, `[{"a":1,"\u0061":2}]`, `{"":1,"":2}`,
		`{"amount":1,"Amount":2}`, `{"Amount":2,"amount":1}`, `{"a":1,"b":2,"A":3}`, `{"a":{"b":1,"\u0042":2}}`, `{"é":1,"É":2}`, `{"k":1,"K":2}`, `{"s":1,"ſ":2}`,
		`{"straße":1,"STRAẞE":2}`, `{"σ":1,"ς":2}`, `{"id":1,"ıd":2}`, `{"id":1,"İD":2}`,
		strings.Repeat("[", 257) + strings.Repeat("]", 257),
		strings.Repeat(`{"a":`, 257) + "1" + strings.Repeat("}", 257),
	} {
		if got := canonicalJSON(t, src); got != nil {
			t.Errorf("%.60q: canonical form %.60q, want none", src, got)
		}
	}
}

// Depth, number and length together must cost time and memory in proportion to the size: for a reader that copies or
// compares what is inside again at each level, each of these is quadratic.
func TestR20_R24_HostileJSONIsCheap(t *testing.T) {
	t.Parallel()
	const size = 1 << 19
	var members, reversed, duplicate, deep strings.Builder
	for i := range size / 10 {
		fmt.Fprintf(&members, `"%05x":0,`, i)
		fmt.Fprintf(&reversed, `"%05x":0,`, size-i)
	}
	duplicate.WriteString(reversed.String() + reversed.String()[:9])
	// Every level is out of order, so that moving its members would copy all that is inside.
	for range maxJSONDepth - 1 {
		deep.WriteString(`{"b":`)
	}
	deep.WriteString(`"` + strings.Repeat("x", size) + `"`)
	for range maxJSONDepth - 1 {
		deep.WriteString(`,"a":0}`)
	}
	for _, c := range []struct {
		name, src string
		ok        bool
	}{
		{"members", "{" + members.String() + `"~":0}`, true},
		{"members in reverse", "{" + reversed.String() + `"":0}`, true},
		{"duplicates far apart", "{" + strings.TrimSuffix(duplicate.String(), ",") + "}", false},
		{"out of order at every depth", deep.String(), true},
		{"many objects out of order", "[" + strings.Repeat(`{"b":0,"a":0},`, size/14) + "{}]", true},
		{"opened and never closed", strings.Repeat("[", size), false},
		{"opened and never closed, objects", strings.Repeat(`{"a":`, size/5), false},
		{"deep in many places", "[" + strings.Repeat(strings.Repeat("[", 255)+strings.Repeat("]", 255)+",", size/512) + "0]", true},
		{"escapes", `"` + strings.Repeat(`\u0001`, size/6) + `"`, true},
		{"long names of one beginning", "{" + strings.Repeat(`"`+strings.Repeat("a", 900)+`":0,`, 1000) + `"":0}`, false},
		{"members in capitals", "{" + strings.ToUpper(members.String()) + `"~":0}`, true},
		{"a long name in either case", `{"` + strings.Repeat("é", size/4) + `":0,"` + strings.Repeat("É", size/4) + `":0}`, false},
		{"long names without case", "{" + strings.Repeat(`"`+strings.Repeat("名", 300)+`":0,`, 500) + `"":0}`, false},
		{"one digit after another", strings.Repeat("1", size), true},
	} {
		c2 := &canonicalizer{}
		if ok := c2.json([]byte(c.src), &jsonRules{}); ok != c.ok {
			t.Errorf("%s: canonical form %v, want %v", c.name, ok, c.ok)
		}
		memory := cap(c2.buf) + cap(c2.moved) + 16*(cap(c2.members)+cap(c2.ordered)+cap(c2.objects)) + 8*cap(c2.active)
		if memory > 12*len(c.src) {
			t.Errorf("%s: %d bytes of memory for %d of JSON", c.name, memory, len(c.src))
		}
	}
}

func TestR24_ALargeBodyLeavesNothingInThePool(t *testing.T) {
	t.Parallel()
	c := &canonicalizer{}
	if !c.json([]byte(`"`+strings.Repeat("x", 1<<20)+`"`), &jsonRules{}) {
		t.Fatal("no canonical form")
	}
	if c.forget() {
		t.Error("a canonicalizer of a megabyte goes back to the pool")
	}
	c = &canonicalizer{}
	c.json([]byte(`{"a":1}`), &jsonRules{})
	if !c.forget() || c.src != nil || c.out != nil || c.rules != nil {
		t.Error("a canonicalizer that goes back to the pool holds on to a request")
	}
}

// FuzzCanonicalJSON compares with encoding/json: the canonical form means the same, with numbers as written, so that
// equal forms are of equal documents; every other way to write the document has the same form; and what is refused is
// what the documentation lists.
func FuzzCanonicalJSON(f *testing.F) {
	for _, src := range []string{
		`{"b":[1,2.50,{"d":null,"c":"\u00e9"}],"a":"\ud83d\ude00"}`, `{"a":1,"a":2}`, `{"a":1,"B":{"K":1,"k":2}}`, `{"É":1,"E":{"é":2}}`, `"\ud800"`, "[1e5,-0,1E+5]", "\"\xff\"", " [ ] x", `{"":{"":""}}`,
	} {
		f.Add([]byte(src), uint64(1))
	}
	f.Fuzz(func(t *testing.T, src []byte, seed uint64) {
		canonical := canonicalJSON(t, string(src))
		if canonical == nil {
			if whyNot(src) == "" {
				t.Fatalf("%q has no canonical form and no reason for that", src)
			}
			return
		}
		if why := whyNot(src); why != "" {
			t.Fatalf("%q has canonical form %q in spite of %s", src, canonical, why)
		}
		value := decodeJSON(t, src)
		if again := decodeJSON(t, canonical); !reflect.DeepEqual(value, again) {
			t.Fatalf("%q means %v, its canonical form %q means %v", src, value, canonical, again)
		}
		if again := canonicalJSON(t, string(canonical)); !bytes.Equal(canonical, again) {
			t.Fatalf("%q: canonical form %q has canonical form %q", src, canonical, again)
		}
		other := rewriteJSON(nil, value, rand.New(rand.NewPCG(seed, 0)))
		if again := canonicalJSON(t, string(other)); !bytes.Equal(canonical, again) {
			t.Fatalf("%q and %q have different canonical forms: %q and %q", src, other, canonical, again)
		}
	})
}

func decodeJSON(t *testing.T, src []byte) (value any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(src))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		t.Fatalf("decode %q: %v", src, err)
	}
	return value
}

var surrogates = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.`)

// refusal says why a document has no canonical form, going by encoding/json.
func whyNot(src []byte) string {
	if !utf8.Valid(src) {
		return "invalid UTF-8"
	}
	if !json.Valid(src) {
		return "malformed JSON"
	}
	for _, escape := range surrogates.FindAll(src, -1) {
		if len(escape) == 6 {
			return "a lone surrogate"
		}
	}
	d := json.NewDecoder(bytes.NewReader(src))
	d.UseNumber()
	type level struct {
		names map[string]bool // nil in an array
		value bool            // a member's value is next
	}
	levels := []level{{}}
	for {
		token, err := d.Token()
		if err != nil {
			return ""
		}
		top := &levels[len(levels)-1]
		if name, ok := token.(string); ok && top.names != nil && !top.value {
			alike := strings.Map(foldRune, name)
			if top.names[alike] {
				return "names that are the same, or differ in case only"
			}
			top.names[alike], top.value = true, true
			continue
		}
		top.value = false
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{names: map[string]bool{}})
		case json.Delim('['):
			levels = append(levels, level{})
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
		}
		if len(levels) > maxJSONDepth+1 {
			return "depth"
		}
	}
}

// rewriteJSON writes a value in some way that means the same.
func rewriteJSON(dst []byte, value any, rng *rand.Rand) []byte {
	space := func() { dst = append(dst, []string{"", "", " ", "\n", "\t \r"}[rng.IntN(5)]...) }
	text := func(s string) {
		dst = append(dst, '"')
		for _, r := range s {
			switch {
			case rng.IntN(4) == 0 && r <= 0xffff:
				dst = fmt.Appendf(dst, `\u%04x`, r)
			case r == '"' || r == '\\' || r < ' ':
				dst = fmt.Appendf(dst, `\u%04X`, r)
			default:
				dst = utf8.AppendRune(dst, r)
			}
		}
		dst = append(dst, '"')
	}
	space()
	switch v := value.(type) {
	case map[string]any:
		dst = append(dst, '{')
		names := slices.Sorted(maps.Keys(v))
		rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for i, name := range names {
			if i > 0 {
				dst = append(dst, ',')
			}
			space()
			text(name)
			space()
			dst = rewriteJSON(append(dst, ':'), v[name], rng)
		}
		dst = append(dst, '}')
	case []any:
		dst = append(dst, '[')
		for i, element := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = rewriteJSON(dst, element, rng)
		}
		space()
		dst = append(dst, ']')
	case string:
		text(v)
	case json.Number:
		dst = append(dst, v...)
	default:
		dst = fmt.Append(dst, map[any]string{nil: "null", true: "true", false: "false"}[v])
	}
	space()
	return dst
}

// No byte that means something within a string is passed over, wherever it stands.
func TestPlainStopsAtWhatIsNot(t *testing.T) {
	t.Parallel()
	for size := 1; size <= 20; size++ {
		for at := 1; at <= size; at++ {
			for b := range 256 {
				s := []byte(strings.Repeat("\u00e9 x", 5))[:size]
				if at < size {
					s[at] = byte(b)
				}
				n := plain(s)
				special := bytes.IndexFunc(s, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' })
				if n < 1 || n > size || special >= 0 && n > special || special < 0 && n < size/8*8 {
					t.Fatalf("%d bytes of %q are plain", n, s)
				}
			}
		}
	}
}
