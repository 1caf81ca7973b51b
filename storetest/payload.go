package storetest

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/semelhq/semel/driver"
)

// keeps settles a run with the answer and checks that both handles, and a repeat, get it back exactly.
func (e *env) keeps(what string, a *driver.Response) {
	e.Helper()
	id, c := newID(), ask(driver.Hold)
	rec := e.a.begin(id, c)
	got := e.a.end(id, rec.Owner(), done(a))
	for by, r := range map[string]driver.Record{
		"as settled":            got,
		"as loaded":             e.a.load(id),
		"by the other handle":   e.b.load(id),
		"by a repeat's refusal": e.b.refuse(what, id, retry(c)),
	} {
		for _, d := range diffAnswers(r.Response, a) {
			e.Errorf("%s, %s: %s", what, by, d)
		}
	}
}

// noise returns n bytes that don't compress, the same each time.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

// everyByte returns all 256 bytes.
func everyByte() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// hostile returns texts that break out of quoting, protocols and encodings.
func hostile() map[string]string {
	return map[string]string{
		"empty":         "",
		"space":         " \t ",
		"quotes":        `'; DROP TABLE records; --"` + "`" + `\`,
		"path":          "../../etc/passwd",
		"CR LF":         "a\r\nSet-Cookie: b=c\r\n\r\n",
		"NUL":           "a\x00b\x00",
		"invalid UTF-8": "\xff\xfe\xc0\xaf\xed\xa0\x80",
		"every byte":    string(everyByte()),
		"placeholders":  "$1 ? :a @a %s {} ${x} {{x}}",
		"controls":      "\x1b[31m\u202e\u2028\ufeff",
		"other case":    "ÄÖÜäöüİıſ",
		"long":          strings.Repeat("long ", 2000),
		"number":        "00123e4",
		"null":          "null",
	}
}

var payloadChecks = []check{
	{
		name:    "bodies are exact",
		promise: "A body comes back byte for byte: binary, empty, 0, null, one mebibyte (R-37, case 21).",
		run: func(e *env) {
			for what, body := range map[string][]byte{
				"no body":           nil,
				"empty body":        {},
				"0":                 []byte("0"),
				"null":              []byte("null"),
				"false":             []byte("false"),
				"empty string":      []byte(`""`),
				"a NUL":             {0},
				"every byte":        everyByte(),
				"invalid UTF-8":     []byte("\xff\xfe\xc0\xaf"),
				"trailing NULs":     []byte("a\x00\x00"),
				"white space":       []byte(" \r\n\t "),
				"a little over 64K": noise(1<<16 + 1),
				"one mebibyte":      noise(1 << 20),
			} {
				e.keeps(what, &driver.Response{Status: 200, Header: http.Header{"X": {"y"}}, Body: body})
			}
		},
	},
	{
		name: "no answer is not an empty one",
		promise: "Done without an answer comes back without one, an answer that is all empty comes back as an answer " +
			"(case 21).",
		run: func(e *env) {
			e.keeps("no answer", nil)
			e.keeps("an answer without anything", &driver.Response{})
			e.keeps("an empty 204", &driver.Response{Status: 204})
		},
	},
	{
		name:    "status and codec are exact",
		promise: "Status, 0 for a result of Do included, and codec come back as they were.",
		run: func(e *env) {
			for _, status := range []int{0, 100, 200, 201, 204, 304, 404, 500, 599, 999} {
				e.keeps("status", &driver.Response{Status: status, Body: []byte("x")})
			}
			for _, codec := range []string{"gzip", "aes256gcm:key-2", "zstd"} {
				e.keeps("codec", &driver.Response{Status: 200, Body: noise(100), Codec: codec})
			}
		},
	},
	{
		name: "headers are exact",
		promise: "Header fields come back with their names as they are, their values in order and unsplit: many stay many, " +
			"one with commas stays one (R-35, case 19).",
		run: func(e *env) {
			e.keeps("headers", &driver.Response{Status: 200, Header: http.Header{
				"Link":            {`</a>; rel="next"`, `</b>; rel="prev"`},
				"Vary":            {"Accept, Accept-Language"},
				"X-Empty":         {""},
				"X-Many":          {"c", "a", "b", "a", ""},
				"X-Space":         {" padded\t"},
				"x-not-canonical": {"1"},
				"X-Not-Canonical": {"2"},
				"X-Bytes":         {"\xff\xfe", "ü", `"quoted, with \"`},
				"":                {"no name"},
			}})
		},
	},
	{
		name:    "trailers are exact",
		promise: "Trailer fields come back like header fields, and apart from them.",
		run: func(e *env) {
			e.keeps("trailers", &driver.Response{
				Status:  200,
				Header:  http.Header{"X-Sum": {"in the header"}},
				Trailer: http.Header{"X-Sum": {"in", "the, trailer"}, "x-low": {""}},
				Body:    []byte("body"),
			})
			e.keeps("trailers only", &driver.Response{Status: 200, Trailer: http.Header{"X-Sum": {"1"}}})
		},
	},
	{
		name:    "texts are inert",
		promise: "Operation, correlation and error come back byte for byte, whatever they hold (R-62).",
		run: func(e *env) {
			for what, text := range hostile() {
				id, c := newID(), ask(driver.Hold)
				c.Operation, c.Correlation = "op "+text, text
				rec := e.a.begin(id, c)
				want := e.a.end(id, rec.Owner(), free(text))
				for by, got := range map[string]driver.Record{"settled": want, "loaded": e.b.load(id)} {
					if got.Operation != c.Operation || got.Correlation != text || got.Error != text {
						e.Errorf("%s, %s: operation %q, correlation %q, error %q; want %q", what, by, got.Operation, got.Correlation, got.Error, text)
					}
				}
				e.b.begin(id, retry(c))
			}
		},
	},
	{
		name: "a sealed request is exact, and stays until the operation is done",
		promise: "The sealed request comes back byte for byte, from the first claim on, over release, takeover and unknown. A done " +
			"record has none.",
		run: func(e *env) {
			for what, sealed := range map[string][]byte{
				"every byte":   everyByte(),
				"a NUL":        {0},
				"one mebibyte": noise(1 << 20),
			} {
				id, c := newID(), ask(driver.Rerun)
				c.Lease, c.Sealed = e.short, sealed
				rec := e.a.begin(id, c)
				check := func(when string) {
					if got := e.b.load(id); !bytes.Equal(got.Sealed, sealed) {
						e.Errorf("%s, %s: %s, want %s", what, when, brief(got.Sealed), brief(sealed))
					}
				}
				check("claimed")
				e.until(rec.LeaseEnd)
				r := retry(c)
				r.Sealed, r.Lease = []byte("another"), long
				rec = e.b.begin(id, r)
				check("taken over")
				e.a.end(id, rec.Owner(), free(""))
				check("free")
				rec = e.a.begin(id, retry(r))
				check("claimed again")
				e.a.end(id, rec.Owner(), unknown(""))
				check("unknown")
			}
			for what, end := range map[string]struct {
				begun bool
				o     driver.Outcome
			}{
				"done":                   {false, done(answer())},
				"done without an answer": {false, done(nil)},
				"begun and released":     {true, free("")},
				"begun and unknown":      {true, unknown("")},
			} {
				id, c := newID(), ask(driver.Rerun)
				c.Sealed, c.Tombstone = everyByte(), long
				rec := e.a.begin(id, c)
				if end.begun {
					rec = e.b.renew(id, rec.Owner(), driver.Extension{Lease: long, Begun: true})
				}
				rec = e.a.end(id, rec.Owner(), end.o)
				if rec.State != driver.Done || len(rec.Sealed) > 0 {
					e.Errorf("%s: %s with %s of a request; want done, and nothing", what, rec.State, brief(rec.Sealed))
				}
				e.unchanged(what, id, rec)
			}
		},
	},
	{
		name: "every id is its own",
		promise: "Any 48 bytes are an id, and records whose ids differ in one bit are different records: nothing about one " +
			"is changed by a verb on another (R-62).",
		run: func(e *env) {
			var zero, ones, quotes, lines driver.ID
			for i := range zero {
				ones[i], quotes[i], lines[i] = 0xff, '\'', "\r\n"[i%2]
			}
			ids := []driver.ID{zero, ones, quotes, lines, newID()}
			for bit := range 8 * len(zero) {
				if bit >= 8 && bit < 8*len(zero)-8 && bit%37 != 0 {
					continue
				}
				id := ids[4]
				id[bit/8] ^= 1 << (bit % 8)
				ids = append(ids, id)
			}
			var upper, lower driver.ID
			for i := range upper {
				upper[i], lower[i] = 'A', 'a'
			}
			ids = append(ids, upper, lower)

			recs := make([]driver.Record, len(ids))
			for i, id := range ids {
				rec := e.a.load(id)
				if rec.State != driver.Absent {
					e.Fatalf("the record of id %x is there before it was claimed", id)
				}
				recs[i] = e.both(i).begin(id, ask(driver.Hold))
			}
			for i, id := range ids {
				if i%2 == 0 {
					recs[i] = e.both(i).end(id, recs[i].Owner(), done(answer()))
				}
			}
			for i, id := range ids {
				e.same("the record of an id", e.both(i+1).load(id), recs[i])
			}
		},
	},
}
