package semel_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
)

func TestField21_TheGuardsOwnHeadersCanHaveOtherNames(t *testing.T) {
	t.Parallel()
	down := false
	own := memstore.New()
	store := &faulty{Store: own, claim: func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
		if down {
			return driver.Record{}, false, errors.New("down")
		}
		return own.Claim(ctx, id, c)
	}}
	g, _ := newGuardWith(t, store, semel.Options{
		Policy:        semel.Policy{FailOpen: true},
		ReplayMarkers: []string{"X-Replayed", "Idempotent-Replayed"},
		HeaderNames:   map[string]string{"idempotency-status": "X-Protection", "Idempotency-Expires": "x-kept-until", "Idempotency-Retryable": "-"},
	})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"X-Protection", "X-Kept-Until", "X-Replayed", "X-Own"} {
			w.Header().Set(name, "the handler's")
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	if w := answer(h, post("k", `{}`)); w.Header().Get("X-Kept-Until") == "the handler's" || w.Header()["Idempotency-Expires"] != nil || w.Header()["Idempotency-Retryable"] != nil {
		t.Errorf("the first answer has %v", w.Header())
	}
	w := answer(h, post("k", `{}`)).Header()
	if w.Get("X-Replayed") != "true" || w.Get("Idempotent-Replayed") != "true" || w.Get("X-Own") == "" {
		t.Errorf("the replay is marked %v", w)
	}
	if w["X-Protection"] != nil || w.Get("X-Kept-Until") == "the handler's" || w.Get("X-Kept-Until") == "" {
		t.Errorf("what the handler said in the guard's name is replayed: %v", w)
	}
	down = true
	if w := answer(h, post("other", `{}`)).Header(); w["Idempotency-Status"] != nil || !slices.Contains(w["X-Protection"], "the handler's") {
		t.Errorf("unprotected: %v", w) // unguarded, a handler has the last word
	}
	if _, expose := g.CORSHeaders(); !slices.Contains(expose, "X-Protection") || !slices.Contains(expose, "X-Kept-Until") || slices.Contains(expose, "Idempotency-Retryable") {
		t.Errorf("a page may read %q", expose)
	}

	for _, c := range []struct {
		names map[string]string
		want  string
	}{
		{map[string]string{"Idempotency-Code": "X-Code"}, `HeaderNames: "Idempotency-Code" is none of Idempotency-Expires, Idempotency-Retryable, Idempotency-Status`},
		{map[string]string{"Idempotency-Status": "a b"}, `HeaderNames: "a b" is not a header name`},
		{map[string]string{"Idempotency-Status": ""}, `HeaderNames: "" is not a header name`},
		{map[string]string{"Idempotency-Status": "X-A", "Idempotency-Expires": "x-a"}, "HeaderNames: two headers have one name"},
		{map[string]string{"Idempotency-Status": "Idempotent-Replayed"}, "HeaderNames: two headers have one name"},
	} {
		_, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{HeaderNames: c.names})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.names, err, c.want)
		}
	}
}
