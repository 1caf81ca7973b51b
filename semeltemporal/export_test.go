package semeltemporal

import (
	"encoding/json"
	"testing"

	"go.temporal.io/sdk/client"

	"github.com/semelhq/semel/saga"
)

// Plan returns what a workflow is started with.
func Plan[S any](t testing.TB, d *saga.Definition[S], id string, input S) any {
	t.Helper()
	var c struct{ client.Client }
	s, err := New(c, "queue", d, Options{})
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	return s.plan(id, body)
}

// EmptyPlan returns what a plan is decoded into.
func EmptyPlan() any { return &plan{} }
