package fingerprint

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/requestbody"
)

func TestR61_NamedFieldsAreLeftOut(t *testing.T) {
	t.Parallel()
	const (
		asJSON = "application/json"
		asForm = "application/x-www-form-urlencoded"
	)
	pointers := []string{"/card/code", "/items/*/secret", "/pin", "/list/0"}
	for _, c := range []struct {
		name, kind, body string
		want             string // "" for the body as it is
	}{
		{"a member", asJSON, `{ "amount": 1.50, "card": {"number": "4", "code": "123"} }`, `{"amount":1.50,"card":{"number":"4"}}`},
		{"whatever it is", asJSON, `{"card":{"code":{"a":[1,{"b":2}]}}}`, `{"card":{}}`},
		{"a name that is escaped", asJSON, `{"card":{"c\u006fde":"123"}}`, `{"card":{}}`},
		{"a name in another case", asJSON, `{"Card":{"CODE":"123","k":1}}`, `{"Card":{"k":1}}`},
		{"in each element", asJSON, `{"items":[{"secret":1,"n":2},{"n":3},4]}`, `{"items":[{"n":2},{"n":3},4]}`},
		{"an element", asJSON, `{"list":["a","b"]}`, `{"list":["b"]}`},
		{"of another kind of JSON", "application/vnd.shop+json; charset=utf-8", `{"pin":1}`, `{}`},
		{"null", asJSON, `{"pin":null}`, `{}`},
		{"none, as it was sent", asJSON, `{ "card" : {"number":"4"}, "code":"123" }`, ""},
		{"no object", asJSON, ` [1] `, ""},
		{"an empty body", asJSON, "", ""},
		{"a field", asForm, "amount=1&pin=1234&to=bob", "amount=1&to=bob"},
		{"several of one name", asForm, "pin=1&a=%20+&pin=2&pin", "a=%20+"},
		{"a name that is encoded", asForm, "p%69n=1&b=2", "b=2"},
		{"in another case", asForm, "PIN=1&b=2&Card[Code]=1", "b=2"},
		{"of a record", asForm, "card[code]=123&card[number]=4&card%5Bcode%5D=1", "card[number]=4"},
		{"in each record", asForm, "items[0][secret]=1&items[][secret]=2&items[0][n]=3", "items[0][n]=3"},
		{"part of one", asForm, "pin[a]=1&pin[b][c]=2&pins=3", "pins=3"},
		{"no field", asForm, "code=123&card=4&&x", ""},
		{"all", asForm, "pin=1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, err := NewRedactor(pointers)
			if err != nil {
				t.Fatal(err)
			}
			wantHad := c.want != "" || c.name == "all"
			for _, coding := range []string{"", "gzip"} {
				body := bodyOf(t, c.body, coding)
				got, had, err := r.Body(body, []string{c.kind})
				if err != nil || had != wantHad || had && string(got) != c.want {
					t.Errorf("coding %q: left %q, had some: %v, %v; want %q, %v", coding, got, had, err, c.want, wantHad)
				}
			}
		})
	}
}

func bodyOf(t testing.TB, text, coding string) *requestbody.Body {
	t.Helper()
	var sent bytes.Buffer
	o := requestbody.Options{}
	if coding == "gzip" {
		w := gzip.NewWriter(&sent)
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		o.Coding = []string{coding}
	} else {
		sent.WriteString(text)
	}
	b, err := requestbody.Read(&sent, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestR61_ABodyWhoseFieldsCantBeToldIsRefused(t *testing.T) {
	t.Parallel()
	r, err := NewRedactor([]string{"/pin"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, kind, body, want string }{
		{"not JSON", "application/json", `{"pin":1`, errFieldMalformed.Error()},
		{"a name twice", "application/json", `{"pin":1,"pin":2}`, ErrAmbiguous.Error()},
		{"a name twice, in another case", "application/json", `{"a":[{"pin":1,"PIN":2}]}`, ErrAmbiguous.Error()},
		{"names that differ in case, elsewhere", "application/json", `{"pin":1,"a":1,"A":2}`, ErrAmbiguous.Error()},
		{"another charset", "application/json; charset=utf-16", `{}`, errRedactKind.Error()},
		{"another kind", "text/plain", `pin=1`, errRedactKind.Error()},
		{"no kind", "", `{"pin":1}`, errRedactKind.Error()},
		{"parts", "multipart/form-data; boundary=x", "--x--", errRedactKind.Error()},
		{"a bad escape", "application/x-www-form-urlencoded", "p%in=1", "invalid URL escape"},
		{"semicolons", "application/x-www-form-urlencoded", "a=1;pin=2", errFieldNoForm.Error()},
		{"JSON that is called a form", "application/x-www-form-urlencoded", `{"pin":1}`, errFieldNoForm.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var kind []string
			if c.kind != "" {
				kind = []string{c.kind}
			}
			if rest, had, err := r.Body(bodyOf(t, c.body, ""), kind); err == nil || !strings.Contains(err.Error(), c.want) || rest != nil || had {
				t.Errorf("left %q, %v, %v; want an error with %q", rest, had, err, c.want)
			}
		})
	}
	coded, err := requestbody.Read(strings.NewReader(`{"pin":1}`), requestbody.Options{Coding: []string{"br"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Body(coded, []string{"application/json"}); !errors.Is(err, errFieldUnreadable) {
		t.Errorf("in another coding: %v", err)
	}
	large, err := requestbody.Read(strings.NewReader(`{"pin":1}`), requestbody.Options{Memory: 1, Limit: 100, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close()
	if _, _, err := r.Body(large, []string{"application/json"}); !errors.Is(err, errFieldSpooled) {
		t.Errorf("in a file: %v", err)
	}
}

func TestRedactedFieldsAreNamedByPointers(t *testing.T) {
	t.Parallel()
	if r, err := NewRedactor(nil); r != nil || err != nil {
		t.Errorf("without fields: %v, %v", r, err)
	}
	_, err := NewRedactor([]string{"pin", "", "/a~2", "/ok"})
	for _, want := range []string{`"pin" does not begin with /`, "stands for the whole body", `"/a~2"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q in it", err, want)
		}
	}
}
