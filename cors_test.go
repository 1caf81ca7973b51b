package semel_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
)

const page, otherPage = "https://shop.example", "https://other.example"

// ofCORS returns the headers of an answer that say which pages may read it.
func ofCORS(h http.Header) http.Header {
	found := http.Header{}
	for name, values := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			found[name] = values
		}
	}
	return found
}

func TestR35_Field17_AReplayIsReadByThePagesThatTheAnswerWasFor(t *testing.T) {
	t.Parallel()
	own := http.Header{
		"Access-Control-Allow-Origin": {page}, "Access-Control-Allow-Credentials": {"true"}, "Access-Control-Expose-Headers": {"Location", "Etag"},
		"Vary": {"Origin"}, "Content-Type": {"application/json"},
	}
	any := http.Header{"Access-Control-Allow-Origin": {"*"}, "Access-Control-Expose-Headers": {"Location"}}
	for _, c := range []struct {
		name   string
		answer http.Header
		origin string // of the repeat; "" for none
		reads  bool
	}{
		{"the same page", own, page, true},
		{"a page of another origin", own, otherPage, false},
		{"no page", own, "", false},
		{"a page without an origin", own, "null", false},
		{"a page where all may read", any, otherPage, true},
		{"no page where all may read", any, "", true},
		{"a page without an origin that may read", http.Header{"Access-Control-Allow-Origin": {"null"}}, "null", true},
		{"nobody was named", http.Header{"Access-Control-Allow-Credentials": {"true"}}, page, false},
		{"two were named", http.Header{"Access-Control-Allow-Origin": {page, otherPage}}, page, false},
		{"none", http.Header{"Access-Control-Allow-Origin": {}}, page, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := &ledger{}
			g, _ := newGuard(t, memstore.New(), semel.Policy{})
			h := g.Wrap(fields(l, c.answer, "body"))
			if live := answer(h, post("k", "{}", "Origin", page)); !reflect.DeepEqual(ofCORS(live.Header()), ofCORS(c.answer)) {
				t.Errorf("the live answer has %v", live.Header())
			}
			fieldsOf := []string{"Origin", c.origin}
			if c.origin == "" {
				fieldsOf = nil
			}
			again := answer(h, post("k", "{}", fieldsOf...))
			want := http.Header{}
			if c.reads {
				want = ofCORS(c.answer)
			}
			if got := ofCORS(again.Header()); !reflect.DeepEqual(got, want) {
				t.Errorf("the replay has %v, want %v", got, want)
			}
			if again.Header().Get("Idempotent-Replayed") != "true" || again.Body.String() != "body" || l.count() != 1 {
				t.Errorf("%d %v %q, %d executions", again.Code, again.Header(), again.Body, l.count())
			}
			if vary := c.answer["Vary"]; !reflect.DeepEqual(again.Header()["Vary"], vary) {
				t.Errorf("the replay varies by %q, want %q", again.Header()["Vary"], vary)
			}
		})
	}
}

// What a layer above the guard allows is for this request, and stays.
func TestField17_WhatIsAllowedAboveTheGuardStays(t *testing.T) {
	t.Parallel()
	for _, own := range []string{page, "*"} {
		g, _ := newGuard(t, memstore.New(), semel.Policy{})
		guarded := g.Wrap(fields(&ledger{}, http.Header{"Access-Control-Allow-Origin": {own}}, "body"))
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
			guarded.ServeHTTP(w, r)
		})
		answer(h, post("k", "{}", "Origin", page))
		if again := answer(h, post("k", "{}", "Origin", otherPage)); again.Header().Get("Access-Control-Allow-Origin") != otherPage {
			t.Errorf("the replay allows %q", again.Header()["Access-Control-Allow-Origin"])
		}
	}
}

// A record may have been stored before a header was known to be of one exchange, or under another policy.
func TestR35_Field16_WhatIsNeverReplayedIsNotTakenFromARecordEither(t *testing.T) {
	t.Parallel()
	s, l := memstore.New(), &ledger{}
	stored := http.Header{"X-Sum": {"1"}, "X-Late": {"1"}, "Content-Type": {"text/plain"}}
	before, _ := newGuardWith(t, s, semel.Options{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		l.add()
		for name, values := range stored {
			w.Header()[name] = values
		}
		w.Write([]byte("body"))
		w.Header().Set(http.TrailerPrefix+"X-Late", "1")
	})
	answer(before.Wrap(handler), post("k", "{}"))
	for _, after := range []semel.Options{
		{CorrelationHeader: "X-Late"},
		{ReplayMarkers: []string{"X-Late"}},
		{Policy: semel.Policy{StoreHeaders: []string{"X-Sum", "Content-Type"}}},
	} {
		g, _ := newGuardWith(t, s, after)
		again := answer(g.Wrap(handler), post("k", "{}"))
		if late := again.Header().Get("X-Late"); late == "1" || again.Header().Get("X-Sum") != "1" {
			t.Errorf("the replay has %v", again.Header())
		}
		if trailer := again.Result().Trailer; len(trailer) > 0 {
			t.Errorf("the replay has the trailers %v", trailer)
		}
	}
	if l.count() != 1 {
		t.Errorf("%d executions", l.count())
	}
}
