package answer

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// What belongs to one exchange is never replayed: by name, by what a name begins with, and by its words.
func TestR35_WhatBelongsToOneExchange(t *testing.T) {
	t.Parallel()
	for name, never := range map[string]bool{
		"Set-Cookie": true, "Date": true, "Connection": true, "Transfer-Encoding": true, "Content-Length": true,
		"Www-Authenticate": true, "Proxy-Authenticate": true, "X-B3-Traceid": true, "Trailer:X-Sum": true,
		"Strict-Transport-Security": true, "Alt-Svc": true, "Idempotency-Key": true, "Idempotent-Replayed": true,
		CodeHeader: true, CredentialsField: true,
		"Authorization": true, "X-Auth-Token": true, "X-Access-Token": true, "X-Csrf-Token": true, "X-Api-Key": true,
		"X-Vendor-Access-Key": true, "X-Session": true, "X-Request-Id": true, "X-Correlation-Id": true, "Acme-Trace-Id": true,
		"X-Ratelimit-Remaining": true, "X-Rate-Limit-Reset": true, "X-Shopify-Call-Limit": true,
		"X-Next-Page-Token": false, "Continuation-Token": false, "Sync-Token": false, "X-Token-Next": true,
		"Content-Type": false, "Location": false, "Etag": false, "Link": false, "Vary": false, "X-Key": false, "X-Id": false,
		"X-Limit": false, "X-Rate": false, "Tokens": false, "X-Api": false,
		"Access-Control-Allow-Origin": false, "Access-Control-Expose-Headers": false,
	} {
		if got := NeverReplayed(name); got != never {
			t.Errorf("%s: never replayed %t, want %t", name, got, never)
		}
	}
}

// The names that are known without a look at their parts are those that such a look would find too.
func TestR35_WhatIsOrdinaryBelongsToNoExchange(t *testing.T) {
	t.Parallel()
	for name := range ordinary {
		if ofExchange(name) || http.CanonicalHeaderKey(name) != name {
			t.Errorf("%s is not in canonical form, or belongs to one exchange", name)
		}
	}
}

// What is kept of fields shares nothing with them, and keeps a name without values.
func TestR35_KeptFieldsAreCopies(t *testing.T) {
	t.Parallel()
	from := http.Header{"A": {"1", "2"}, "B": {"3"}, "Content-Type": nil}
	kept := Some(from, func(name string) bool { return name != "B" })
	if want := (http.Header{"A": {"1", "2"}, "Content-Type": {}}); !reflect.DeepEqual(kept, want) {
		t.Errorf("kept %v, want %v", kept, want)
	}
	kept["A"][0] = "changed"
	_ = append(kept["A"], "more")
	if want := (http.Header{"A": {"1", "2"}, "B": {"3"}, "Content-Type": nil}); !reflect.DeepEqual(from, want) {
		t.Errorf("what was copied is %v now", from)
	}
	if got := Some(from, func(string) bool { return false }); got != nil {
		t.Errorf("kept %v of nothing", got)
	}
}

// A handler's fields replace those of the layers above, but for those to which every layer adds.
func TestR36_FieldsOfSeveralLayers(t *testing.T) {
	t.Parallel()
	dst := http.Header{"Vary": {"Origin"}, "X-Layer": {"above"}, "Link": {"<a>"}}
	above := dst["Vary"]
	AddFields(dst, http.Header{"Vary": {"Accept", "Origin"}, "X-Layer": {"below"}, "Link": {}, "Trailer:X-Sum": {"1"}, "Etag": {`"1"`}})
	want := http.Header{"Vary": {"Origin", "Accept"}, "X-Layer": {"below"}, "Link": {}, "Etag": {`"1"`}}
	if !reflect.DeepEqual(dst, want) || len(above) != 1 {
		t.Errorf("the fields are %v, want %v; those above %v", dst, want, above)
	}
}

// Trailers are those that were announced, and those with net/http's prefix, under their own names.
func TestR35_TrailersUnderTheirOwnNames(t *testing.T) {
	t.Parallel()
	header := http.Header{"X-Sum": {"1"}, "X-Other": {"2"}, http.TrailerPrefix + "x-late": {"3"}, "X-Empty": {}}
	got := Trailers(header, []string{"x-sum, X-Empty", "X-Missing"})
	if want := (http.Header{"X-Sum": {"1"}, "X-Late": {"3"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("the trailers are %v, want %v", got, want)
	}
	got["X-Sum"][0] = "changed"
	if header["X-Sum"][0] != "1" || Trailers(http.Header{"X-Sum": {"1"}}, nil) != nil {
		t.Error("trailers are shared, or made of what is none")
	}
	if names := FieldNames([]string{"a, b-c ,,", "D"}); !slices.Equal(names, []string{"A", "B-C", "D"}) {
		t.Errorf("the names are %v", names)
	}
}

// A status that has no body has none, and a body that is decoded is not described as encoded.
func TestR37_R35_WhatDescribesABody(t *testing.T) {
	t.Parallel()
	for status, has := range map[int]bool{101: false, 200: true, 204: false, 205: true, 304: false, 404: true, 599: true} {
		if BodyAllowed(status) != has {
			t.Errorf("%d: has a body %t, want %t", status, !has, has)
		}
	}
	for line, accepts := range map[string]bool{
		"": false, "gzip": true, "GZIP;q=0.5": true, "gzip;q=0": false, "*": true, "*;q=0": false, "br": false,
		"gzip;q=0, *": false, "br, x-gzip": true, "gzip;q=nonsense": false,
	} {
		if got := AcceptsGzip([]string{line}); got != accepts {
			t.Errorf("%q: accepts gzip %t, want %t", line, got, accepts)
		}
	}
	h := http.Header{"Content-Encoding": {"gzip"}, "Content-Digest": {"d"}, "Digest": {"d"}, "Etag": {`"1"`}, "X-A": {"1"}}
	Decoded(h)
	if want := (http.Header{"Etag": {`W/"1"`}, "X-A": {"1"}}); !reflect.DeepEqual(h, want) {
		t.Errorf("left %v, want %v", h, want)
	}
	if _, ok := Gunzip([]byte(strings.Repeat("x", 20)), 100); ok || len(slices.Collect(maps.Keys(h))) != 2 {
		t.Error("what is no gzip was decoded")
	}
}
