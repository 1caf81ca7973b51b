package semel_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

const formType = "application/x-www-form-urlencoded"

// typed makes a POST with a body of a type.
func typed(contentType, body string, header ...string) *http.Request {
	r := request("POST", body, header...)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
}

func TestField21_R9_AFieldThatIsNullIsNoKey(t *testing.T) {
	t.Parallel()
	h, l, s, _ := payHandler(t, semel.Policy{KeyField: "/meta/key", KeyOptional: true})
	for _, body := range []string{`{"meta":{"key":null}}`, `{"meta":{"key": null }}`, `{"meta":null}`, `{"meta":{"key":null},"a":1}`} {
		checkRun(t, answer(h, post("", body)))
	}
	checkEffects(t, l, 4)
	checkRecords(t, s, 0)
	checkRun(t, answer(h, post("k", `{"meta":{"key":null}}`)))
	checkReplay(t, answer(h, post("k", `{"meta":{"key":null}}`)))
	checkProblem(t, answer(h, post("", `{"meta":{"key":null,"Key":"k"}}`)), 400, refusal.KeyInvalid)

	required, _, _, _ := payHandler(t, semel.Policy{KeyField: "/meta/key"})
	checkProblem(t, answer(required, post("", `{"meta":{"key":null}}`)), 400, refusal.KeyMissing)
}

// R-3 stays: where a body may hold a key it is read, whatever it is called.
func TestField21_R9_ABodyOfAnotherTypeHasItsKeyInAHeader(t *testing.T) {
	t.Parallel()
	p := semel.Policy{KeyField: "/key", KeyOptional: true, SpoolRequestAbove: 1000}
	h, l, s, _ := payHandler(t, p)
	upload := strings.Repeat("x", 2000)
	for i, c := range [][2]string{
		{"application/xml", "<key>k</key>"},
		{"text/plain", "key=k"},
		{"multipart/form-data; boundary=x", "--x--"},
		{"image/png", upload},
		{"application/octet-stream", "\x00{"},
		{"text/csv", ""},
	} {
		checkRun(t, answer(h, typed(c[0], c[1])))
		key := "header-" + string(rune('a'+i))
		checkRun(t, answer(h, typed(c[0], c[1], "Idempotency-Key", key)))
		checkReplay(t, answer(h, typed(c[0], c[1], "Idempotency-Key", key)))
	}
	checkEffects(t, l, 12)
	checkRecords(t, s, 6)
	checkRun(t, answer(h, typed("text/plain", `{"key":"k"}`))) // JSON all the same
	checkReplay(t, answer(h, typed("text/plain", `{"key":"k"}`)))
	checkProblem(t, answer(h, typed("text/plain", `{"key":"k","Key":"l"}`)), 400, refusal.KeyInvalid)
	for _, c := range [][2]string{
		{"application/json", `key=k`},
		{"application/json; charset=utf-16", "\xff\xfe{\x00"},
		{"application/merge-patch+json", `{"key":"k"`},
		{"application/json", `"` + upload + `"`},
		{formType, strings.Repeat("a=b&", 500)},
		{"", "<key>k</key>"},
		{"no type", "<key>k</key>"},
	} {
		checkProblem(t, answer(h, typed(c[0], c[1])), 400, refusal.KeyInvalid)
	}
}

func TestField21_R9_AFieldOfAFormCarriesTheKey(t *testing.T) {
	t.Parallel()
	p := semel.Policy{KeyField: "/meta/key", KeyOptional: true}
	h, l, s, _ := payHandler(t, p)
	checkRun(t, answer(h, typed(formType, "amount=5&meta[key]=k")))
	for _, same := range []string{"meta[key]=k&amount=5", "amount=5&meta%5Bkey%5D=%6B"} {
		checkReplay(t, answer(h, typed(formType+"; charset=utf-8", same)))
	}
	checkReplay(t, answer(h, typed(formType, "amount=5&meta[key]=k", "Idempotency-Key", "k")))
	checkEffects(t, l, 1)
	checkRecords(t, s, 1)
	checkRun(t, answer(h, typed(formType, `{"meta":{"key":"json"}}`))) // JSON by a client that calls everything a form
	checkReplay(t, answer(h, typed(formType, `{"meta":{"key":"json"}}`)))

	for body, detail := range map[string]string{
		"meta[key]=k&meta[key]=k":            "the same, or differ in case only",
		"meta[key]=k&Meta[KEY]=l":            "the same, or differ in case only",
		"meta[key]=":                         "empty",
		"meta[key]=a+b":                      "is not allowed",
		"meta[key]=%zz":                      "what no form does",
		"%zz=1&meta[key]=k":                  "what no form does",
		"meta[key]=k\nmeta[key]=k":           "not valid JSON",
		"meta[key]=other&meta=1&amount=5&x=": "",
	} {
		w := answer(h, typed(formType, body, "Idempotency-Key", "k"))
		if code := refusal.KeyInvalid; w.Code != 400 || codeOf(w) != code || !strings.Contains(w.Body.String(), detail) {
			t.Errorf("%q: answered %d %s, want 400 %s with %q", body, w.Code, w.Body, code, detail)
		}
	}
	before := l.count()
	for _, none := range []string{"amount=5", "meta=k", "meta[key][x]=k", "metakey=k", ""} {
		checkRun(t, answer(h, typed(formType, none)))
	}
	checkEffects(t, l, before+5)

	flat, l, _, _ := payHandler(t, semel.Policy{KeyField: "/meta[key]"})
	checkRun(t, answer(flat, typed(formType, "meta[key]=k")))
	checkReplay(t, answer(flat, typed(formType, "meta[key]=k")))
	put, _, _, _ := payHandler(t, semel.Policy{KeyField: "/key"}) // a PUT whose form carries a key is protected
	checkRun(t, answer(put, request("PUT", "key=k", "Content-Type", formType)))
	checkReplay(t, answer(put, request("PUT", "key=k", "Content-Type", formType)))
	checkEffects(t, l, 1)
}
