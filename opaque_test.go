package semel_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/semelhq/semel"
)

// A target may be none that has a path ("x:payments/1"); it is compared all the same.
func TestR13_ATargetWithoutAPathIsCompared(t *testing.T) {
	t.Parallel()
	for _, p := range []semel.Policy{{}, {PerOperation: true}} {
		var l ledger
		g, _ := newGuard(t, nil, p)
		h := g.Wrap(http.HandlerFunc(l.pay))
		ask := func(target string) int {
			r := post("k", `{}`)
			u, err := url.Parse(target)
			if err != nil {
				t.Fatal(err)
			}
			r.URL = u
			return answer(h, r).Code
		}
		other, runs := http.StatusUnprocessableEntity, 1
		if p.PerOperation {
			other, runs = http.StatusCreated, 4
		}
		for _, c := range []struct {
			target string
			status int
		}{{"x:payments/1", 201}, {"x:payments/1", 201}, {"x:refunds/2", other}, {"y:payments/1", other}, {"/payments/1", other}} {
			if got := ask(c.target); got != c.status {
				t.Errorf("per operation %t: %s got %d, want %d", p.PerOperation, c.target, got, c.status)
			}
		}
		if l.count() != runs {
			t.Errorf("per operation %t: %d executions, want %d", p.PerOperation, l.count(), runs)
		}
	}
}
