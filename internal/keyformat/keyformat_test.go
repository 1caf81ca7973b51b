package keyformat

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/structuredfield"
	"github.com/semelhq/semel/refusal"
)

const (
	uuid1 = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
	uuid4 = "919108f7-52d1-4320-9bac-f847db4148a8"
	uuid7 = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
)

// refusedKey checks that the error is the client's and names the rule.
func refusedKey(t *testing.T, key string, err error, rule, reason string) {
	t.Helper()
	if key != "" || !errors.Is(err, refusal.KeyInvalid) || !strings.Contains(err.Error(), rule) {
		t.Errorf("%s: got %q, %v; want an invalid key for %q", reason, key, err, rule)
	}
}

func TestR1_R5_ParseKey(t *testing.T) {
	t.Parallel()
	full := strings.Repeat("k", 255)
	for _, tt := range []struct {
		line, want, reason string
	}{
		{`"abc-123"`, "abc-123", "the quoted form"},
		{`abc-123`, "abc-123", "bare, as most clients send it, and the same key"},
		{uuid4, uuid4, "a bare UUID"},
		{`"` + uuid4 + `"`, uuid4, "a quoted UUID"},
		{"1234", "1234", "bare, and a number in structured fields"},
		{"?1", "?1", "bare, and a boolean in structured fields"},
		{":YWJj:", ":YWJj:", "bare, and a byte sequence in structured fields"},
		{"a=b&c/d", "a=b&c/d", "bare, and no token in structured fields"},
		{"!#$%&'()*+-./:<=>?@[]^_`{|}~", "!#$%&'()*+-./:<=>?@[]^_`{|}~", "all visible characters that are no letters or digits"},
		{" \t abc \t", "abc", "white space around a field's value is not part of it"},
		{"\t \"abc\" ", "abc", "nor around a quoted one"},
		{"AbC", "AbC", "keys are case-sensitive"},
		{full, full, "255 characters, bare"},
		{`"` + full + `"`, full, "255 characters, quoted"},
		{"k", "k", "one character"},
		{`"abc";a`, "abc", "a parameter without a value"},
		{`"abc"; a=1;  b=?0;*c="x\"\\y;z" `, "abc", "parameters"},
		{`"abc";a=-12.345;b=tok/en:*;c=*t;d=:YWJj:;e=::;f=@1659578233;g=%"f%c3%bcr"`, "abc", "parameters of every type"},
		{`"abc";a=1;a=2`, "abc", "a parameter twice: the last counts, and none means anything"},
		{`"abc";a=123456789012345;b=123456789012.123;c=-0`, "abc", "the largest numbers"},
		{`"abc";a=:YQ:;b=:YQ==:`, "abc", "byte sequences with and without padding"},
	} {
		got, err := Parse([]string{tt.line}, &Format{})
		if got != tt.want || err != nil {
			t.Errorf("%s: got %q, %v; want %q", tt.reason, got, err, tt.want)
		}
	}
}

func TestR3_NoFieldLineIsNoKey(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		for _, lines := range [][]string{nil, {}} {
			if key, err := Parse(lines, &Format{Strict: strict, UUID: UUIDv4}); key != "" || err != nil {
				t.Errorf("got %q, %v; want no key and no error", key, err)
			}
		}
	}
}

func TestR1_R2_R3_R62_MalformedKeys(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ line, rule, reason string }{
		{"", "empty", "an empty value is malformed, not absent"},
		{" \t ", "empty", "nothing but white space"},
		{`""`, "empty", "an empty string"},
		{`"`, "not closed", "a lone quote"},
		{`"abc`, "not closed", "an unclosed quote"},
		{`"abc\`, "not closed", "ends within an escape"},
		{`"abc\"`, "not closed", "the last quote is escaped"},
		{`"a\bc"`, "backslash", "no such escape"},
		{`"a\ "`, "backslash", "an escaped space"},
		{"\"a\\\x00\"", "backslash", "an escaped NUL"},
		{`"a\"b"`, `'"' is not allowed`, "well quoted, but the key holds a quote"},
		{`"\\"`, `'\\' is not allowed`, "well quoted, but the key holds a backslash"},
		{`"a b"`, "' ' is not allowed", "well quoted, but the key holds a space"},
		{`"a,b"`, "',' is not allowed", "well quoted, but the key holds a comma"},
		{`"a;b"`, "';' is not allowed", "well quoted, but the key holds a semicolon"},
		{"a b", "' ' is not allowed", "a space within a bare key"},
		{"a,b", "',' is not allowed", "two lines that a proxy has joined"},
		{"abc;a=1", "';' is not allowed", "a bare key is no token and has no parameters"},
		{`a"b`, `'"' is not allowed`, "a quote within a bare key"},
		{`a\b`, `'\\' is not allowed`, "a backslash within a bare key"},
		{`'; DROP TABLE records--`, "';' is not allowed", "SQL"},
		{"a\r\nSet-Cookie: b", "byte 0x0d", "CR LF, bare"},
		{"\"a\r\n\"", "byte 0x0d", "CR LF, quoted"},
		{"a\tb", "byte 0x09", "a tabulator within a bare key"},
		{"\"a\tb\"", "byte 0x09", "a tabulator within a quoted key"},
		{"\x00", "byte 0x00", "NUL, bare"},
		{"\"\x00\"", "byte 0x00", "NUL, quoted"},
		{"\x1f", "byte 0x1f", "the last control character"},
		{"\x7f", "byte 0x7f", "DEL"},
		{"\"\x7f\"", "byte 0x7f", "DEL, quoted"},
		{"\x80", "byte 0x80", "the first byte above ASCII"},
		{"é", "byte 0xc3", "UTF-8, bare"},
		{`"é"`, "byte 0xc3", "UTF-8, quoted"},
		{"\xff", "byte 0xff", "the last byte"},
		{strings.Repeat("k", 256), "longer than 255", "256 characters, bare"},
		{`"` + strings.Repeat("k", 256) + `"`, "longer than 255", "256 characters, quoted"},
		{strings.Repeat("k", 1<<20), "longer than 255", "a mebibyte"},

		{`"abc"x`, "only parameters", "text after the quote"},
		{`"abc""def"`, "only parameters", "a second string"},
		{`"abc", "abc"`, "only parameters", "two lines that a proxy has joined"},
		{`"abc" ;a`, "only parameters", "a space before the semicolon"},
		{`"abc";a ;b`, "only parameters", "the same before a second parameter"},
		{"\"abc\"\x00", "only parameters", "NUL after the quote"},
		{`"abc";a=1x`, "only parameters", "text after a number"},
		{`"abc";a="x"y`, "only parameters", "text after a string"},
		{`"abc";`, "parameter name", "no parameter after the semicolon"},
		{`"abc";;a`, "parameter name", "none between two"},
		{`"abc";A=1`, "parameter name", "upper case"},
		{`"abc";1=1`, "parameter name", "a digit first"},
		{`"abc";-a`, "parameter name", "a hyphen first"},
		{`"abc";=1`, "parameter name", "no name"},
		{"\"abc\";\ta", "parameter name", "a tabulator"},
		{"\"abc\";\x80", "parameter name", "a byte above ASCII"},
		{`"abc";a=`, "parameter value", "no value"},
		{`"abc";a= 1`, "parameter value", "a space before the value"},
		{`"abc";a=,`, "parameter value", "no bare item"},
		{"\"abc\";a=\x00", "parameter value", "NUL"},
		{`"abc";a=(1 2)`, "parameter value", "an inner list"},
		{`"abc";a="x`, "parameter value", "an unclosed string"},
		{`"abc";a="\x"`, "parameter value", "no such escape"},
		{"\"abc\";a=\"\x7f\"", "parameter value", "DEL in a string"},
		{`"abc";a=-`, "parameter value", "a sign without digits"},
		{`"abc";a=--1`, "parameter value", "two signs"},
		{`"abc";a=1234567890123456`, "parameter value", "sixteen digits"},
		{`"abc";a=1234567890123.1`, "parameter value", "thirteen digits before the point"},
		{`"abc";a=1.1234`, "parameter value", "four digits after it"},
		{`"abc";a=1.`, "parameter value", "none after it"},
		{`"abc";a=.1`, "parameter value", "none before it"},
		{`"abc";a=?2`, "parameter value", "no such boolean"},
		{`"abc";a=?`, "parameter value", "an empty boolean"},
		{`"abc";a=@`, "parameter value", "an empty date"},
		{`"abc";a=@1.5`, "parameter value", "a date with a fraction"},
		{`"abc";a=@x`, "parameter value", "a date that is no number"},
		{`"abc";a=:YWJj`, "parameter value", "an unclosed byte sequence"},
		{`"abc";a=:Y W:`, "parameter value", "a space in a byte sequence"},
		{`"abc";a=:Y_-W:`, "parameter value", "the other base64 alphabet"},
		{`"abc";a=:YWJjZ:`, "parameter value", "a base64 digit that stands for no byte"},
		{`"abc";a=:YW=Jj:`, "parameter value", "padding in the middle"},
		{`"abc";a=:YWJj=:`, "parameter value", "too much padding"},
		{`"abc";a=:YQ=:`, "parameter value", "too little padding"},
		{`"abc";a=%`, "parameter value", "a display string without quotes"},
		{`"abc";a=%"f`, "parameter value", "an unclosed display string"},
		{`"abc";a=%"%C3%BC"`, "parameter value", "upper-case hexadecimal"},
		{`"abc";a=%"%c3"`, "parameter value", "a display string that is not UTF-8"},
		{`"abc";a=%"%c"`, "parameter value", "half an octet"},
		{`"abc";a=%"%`, "parameter value", "no octet"},
		{"\"abc\";a=%\"\xc3\xbc\"", "parameter value", "an octet that is not escaped"},
	} {
		key, err := Parse([]string{tt.line}, &Format{})
		refusedKey(t, key, err, tt.rule, tt.reason)
		for i := 0; err != nil && i < len(err.Error()); i++ {
			if c := err.Error()[i]; c < ' ' || c > '~' || len(err.Error()) > 120 {
				t.Errorf("%s: the error repeats what the client sent: %q", tt.reason, err)
				break
			}
		}
	}
}

// What a string says is found out before the key format refuses its quotes and backslashes.
func TestR1_TheOnlyEscapes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want, rest, reason string }{
		{`"a\"b\\c";d`, `a"b\c`, ";d", "both escapes"},
		{`"\""`, `"`, "", "an escape first"},
		{`"\\\\"x`, `\\`, "x", "nothing but escapes"},
		{`"a\\"`, `a\`, "", "an escape last"},
		{`"a b,c;"`, `a b,c;`, "", "no escape"},
	} {
		if got, rest, err := structuredfield.ReadString(tt.text); got != tt.want || rest != tt.rest || err != nil {
			t.Errorf("%s: %s says %q, then %q, %v; want %q, %q", tt.reason, tt.text, got, rest, err, tt.want, tt.rest)
		}
	}
}

func TestR4_TwoFieldLines(t *testing.T) {
	t.Parallel()
	for _, lines := range [][]string{{"abc", "abc"}, {`"abc"`, "abc"}, {"abc", ""}, {"", ""}, {"a", "b", "c"}} {
		key, err := Parse(lines, &Format{})
		refusedKey(t, key, err, fmt.Sprintf("%d field lines", len(lines)), fmt.Sprintf("%q", lines))
	}
}

func TestR5_StrictAcceptsOnlyTheQuotedForm(t *testing.T) {
	t.Parallel()
	f := &Format{Strict: true}
	if key, err := Parse([]string{` "abc";v=1`}, f); key != "abc" || err != nil {
		t.Errorf("got %q, %v", key, err)
	}
	for _, line := range []string{"abc", uuid4, "?1", `abc"`, "*"} {
		key, err := Parse([]string{line}, f)
		refusedKey(t, key, err, "not in quotes", line)
	}
	key, err := Parse([]string{" "}, f)
	refusedKey(t, key, err, "empty", "an empty value is not a bare one")
	if _, err := Check("abc", f); err != nil {
		t.Errorf("a key that does not come in a header: %v", err)
	}
}

func TestR6_UUIDs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key         string
		any, random bool
		reason      string
	}{
		{uuid4, true, true, "version 4"},
		{strings.ToUpper(uuid4), true, true, "version 4 in upper case"},
		{uuid1, true, false, "version 1"},
		{uuid7, true, false, "version 7"},
		{"89ebe57e-24d1-8141-88fb-3942b3c6e734", true, false, "version 8, as our own derived keys are"},
		{"00000000-0000-0000-0000-000000000000", false, false, "the nil UUID: somebody forgot to make one"},
		{"ffffffff-ffff-ffff-ffff-ffffffffffff", false, false, "the max UUID"},
		{uuid4[:35], false, false, "a digit short"},
		{uuid4 + "0", false, false, "a digit long"},
		{"{" + uuid4 + "}", false, false, "in braces"},
		{"urn:uuid:" + uuid4, false, false, "as a URN"},
		{strings.ReplaceAll(uuid4, "-", ""), false, false, "without hyphens"},
		{strings.Replace(uuid4, "-", "0", 1), false, false, "a digit for a hyphen"},
		{strings.Replace(uuid4, "9", "-", 1), false, false, "a hyphen for a digit"},
		{strings.Replace(uuid4, "9", "g", 1), false, false, "no hexadecimal digit"},
		{strings.Replace(uuid4, "9", "\x10", 1), false, false, "a control character that is a digit but for one bit"},
		{"919108f7-52d1-4320-cbac-f847db4148a8", false, false, "another variant"},
		{"abc", false, false, "no UUID"},
	} {
		for _, line := range []string{tt.key, `"` + tt.key + `"`} {
			for rule, want := range map[UUIDRule]bool{UUIDAny: tt.any, UUIDv4: tt.random} {
				key, err := Parse([]string{line}, &Format{UUID: rule})
				if want && (key != strings.ToLower(tt.key) || err != nil) {
					t.Errorf("%s, rule %d: got %q, %v", tt.reason, rule, key, err)
				}
				if !want && (key != "" || !errors.Is(err, refusal.KeyInvalid)) {
					t.Errorf("%s, rule %d: got %q, %v; want it refused", tt.reason, rule, key, err)
				}
			}
		}
	}
	_, err := Parse([]string{uuid7}, &Format{UUID: UUIDv4})
	refusedKey(t, "", err, "not a UUID of version 4", "the version is named")
	_, err = Parse([]string{"abc"}, &Format{UUID: UUIDAny})
	refusedKey(t, "", err, "not a UUID (RFC 9562)", "the form is named")
}

func TestR6_MaxLengthAndCheck(t *testing.T) {
	t.Parallel()
	errCheck := errors.New("must begin with ord_")
	f := &Format{MaxLength: 8, Check: func(key string) error {
		if key == "" || len(key) > 8 || strings.Contains(key, " ") {
			t.Errorf("the check was asked about %q, which breaks the other rules", key)
		}
		if !strings.HasPrefix(key, "ord_") {
			return errCheck
		}
		return nil
	}}
	for _, line := range []string{"ord_1234", `"ord_1234"`} {
		if key, err := Parse([]string{line}, f); key != "ord_1234" || err != nil {
			t.Errorf("%s: got %q, %v", line, key, err)
		}
	}
	key, err := Parse([]string{"abc"}, f)
	refusedKey(t, key, err, "must begin with ord_", "the check's own words")
	if !errors.Is(err, errCheck) {
		t.Errorf("the check's error is lost: %v", err)
	}
	key, err = Parse([]string{"ord_12345"}, f)
	refusedKey(t, key, err, "longer than 8", "too long")
	key, err = Parse([]string{`"ord_ 1"`}, f)
	refusedKey(t, key, err, "' ' is not allowed", "a character that is not allowed")
}

// R-6 holds for keys that come in a body or from a program too.
func TestR6_R62_CheckKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ key, rule, reason string }{
		{"", "empty", "no key"},
		{" abc", "' '", "nothing is trimmed"},
		{`"abc"`, `'"'`, "nothing is unquoted"},
		{"a\x00", "0x00", "NUL"},
		{"../../etc/passwd,", "','", "a path with a comma"},
		{strings.Repeat("k", 256), "longer", "too long"},
	} {
		key, err := Check(tt.key, &Format{})
		refusedKey(t, key, err, tt.rule, tt.reason)
	}
	for _, key := range []string{"abc", "../../etc/passwd", "'OR'1'='1", "%0d%0a", "{{key}}", "$(id)"} {
		if got, err := Check(key, &Format{}); err != nil || got != key {
			t.Errorf("%q: %v; it is inert, as only its digest is used", key, err)
		}
	}
}

func TestR6_DefaultFormatByByte(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		want := c > ' ' && c < 0x7f && !strings.ContainsRune(`"\,;`, rune(c))
		if _, err := Check("k"+string([]byte{byte(c)})+"k", &Format{}); (err == nil) != want {
			t.Errorf("byte %#02x: %v, want accepted: %v", c, err, want)
		}
	}
}

func TestKeyFormat_Validate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		format Format
		want   string
		reason string
	}{
		{Format{}, "", "the zero value"},
		{Format{MaxLength: 1}, "", "the shortest"},
		{Format{MaxLength: 255, Strict: true, UUID: UUIDAny}, "", "the longest"},
		{Format{MaxLength: 36, UUID: UUIDv4}, "", "just a UUID"},
		{Format{MaxLength: -1}, "MaxLength is -1", "negative"},
		{Format{MaxLength: 256}, "MaxLength is 256", "too long"},
		{Format{MaxLength: 35, UUID: UUIDAny}, "36 characters", "no UUID fits"},
		{Format{UUID: UUIDv4 + 1}, "UUID rule 3", "no such rule"},
	} {
		err := tt.format.Validate()
		if got := fmt.Sprint(err); (err == nil) != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %v, want %q", tt.reason, err, tt.want)
		}
	}
}

// A valid key is cut out of its header and takes no memory. Not parallel, as AllocsPerRun demands.
func TestParseKey_TakesNoMemory(t *testing.T) {
	for _, line := range []string{uuid4, `"` + uuid4 + `"`, ` "` + uuid4 + `";v=1;w="x" `} {
		lines, f := []string{line}, &Format{UUID: UUIDv4}
		if n := testing.AllocsPerRun(100, func() {
			if _, err := Parse(lines, f); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations, want none", line, n)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, line := range []string{
		"abc", `"abc"`, ` "abc";a=1;b="x\"y";c=:YWJj:;d=?1;e=@1;f=%"%c3%bc";g=*t `, `"a\"b\\c"`, `"abc\`, "", "\"\x00\"", uuid4, strings.ToUpper(uuid7),
	} {
		f.Add(line)
	}
	formats := []*Format{{}, {Strict: true}, {UUID: UUIDAny}, {UUID: UUIDv4, MaxLength: 36}, {MaxLength: 3}}
	f.Fuzz(func(t *testing.T, line string) {
		for _, format := range formats {
			key, err := Parse([]string{line}, format)
			if err != nil {
				if key != "" || !errors.Is(err, refusal.KeyInvalid) {
					t.Fatalf("%q: %q, %v", line, key, err)
				}
				continue
			}
			if again, err := Check(key, format); again != key || err != nil {
				t.Fatalf("%q parses as %q, which is no key: %q, %v", line, key, again, err)
			}
			if !strings.Contains(line, key) && (format.UUID == AnyKey || !strings.Contains(strings.ToLower(line), key)) {
				t.Fatalf("%q parses as %q, which it does not hold", line, key)
			}
			for _, form := range []string{`"` + key + `"`, `"` + key + `";a="b"`, key, "\t" + key + " "} {
				bare := !strings.HasPrefix(form, `"`)
				switch again, err := Parse([]string{form}, format); {
				case format.Strict && bare:
					if err == nil {
						t.Fatalf("%q was accepted in strict mode", form)
					}
				case again != key || err != nil:
					t.Fatalf("%q parses as %q, but %q as %q, %v", line, key, form, again, err)
				}
			}
			if key, err := Parse([]string{line, line}, format); key != "" || err == nil {
				t.Fatalf("%q twice was accepted as %q", line, key)
			}
		}
	})
}

func BenchmarkParseKey(b *testing.B) {
	for name, line := range map[string]string{"bare": uuid4, "quoted": `"` + uuid4 + `"`} {
		b.Run(name, func(b *testing.B) {
			lines, f := []string{line}, &Format{}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(lines, f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
