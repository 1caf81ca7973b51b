package semel_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
)

// checkOutside checks that there is no operation in ctx, and that nobody has to ask whether there is.
func checkOutside(t *testing.T, ctx context.Context) {
	t.Helper()
	op := semel.FromContext(ctx)
	if op != nil {
		t.Fatalf("there is an operation: %s", op.ID())
	}
	op.Keep()
	op.Release()
	op.Lost(errors.New("broke"))
	op.Refuse("SHOP_CLOSED")
	if op.Attempt() != 0 || op.Fence() != 0 || op.Correlation() != "" {
		t.Errorf("outside of an operation: attempt %d, fence %d, correlation %q", op.Attempt(), op.Fence(), op.Correlation())
	}
	if id := op.ID(); id == op.ID() {
		t.Errorf("the id %s comes twice", id)
	} else if parsed, err := driver.ParseID(id); err != nil || parsed.Reserved() {
		t.Errorf("%q is no operation's id: %v", id, err)
	}
	if key := op.Key("charge"); key == op.Key("charge") {
		t.Errorf("the key %s comes twice", key)
	} else if !uuid8.MatchString(key) {
		t.Errorf("%q is no UUIDv8", key)
	}
	if value, err := semel.Step(ctx, "charge", func(ctx context.Context) (int, error) {
		if key, ok := semel.StepKey(ctx); ok {
			t.Errorf("a step outside of an operation has the key %s", key)
		}
		return 7, nil
	}); value != 7 || err != nil {
		t.Errorf("a step outside of an operation: %d, %v", value, err)
	}
}

var uuid8 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestField11_OutsideOfAnOperationAHandlerRunsAsItIs(t *testing.T) {
	t.Parallel()
	checkOutside(t, t.Context())
	down := func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
		return driver.Record{}, false, errDown
	}
	key := semel.Key{Scope: "alice", Operation: "pay", Value: "k"}
	get := func() *http.Request { return httptest.NewRequest(http.MethodGet, "/payments", nil) }
	for name, c := range map[string]struct {
		policy semel.Policy
		do     func(*semel.Guard, func(context.Context))
	}{
		"without a key": {semel.Policy{KeyOptional: true}, func(g *semel.Guard, f func(context.Context)) {
			answer(g.Wrap(handling(f)), post("", "{}"))
		}},
		"a safe method": {semel.Policy{}, func(g *semel.Guard, f func(context.Context)) {
			answer(g.Wrap(handling(f)), get())
		}},
		"bypassed": {semel.Policy{FailOpen: true}, func(g *semel.Guard, f func(context.Context)) {
			answer(g.Wrap(handling(f)), post("k", "{}"))
		}},
		"bypassed in Do": {semel.Policy{FailOpen: true}, func(g *semel.Guard, f func(context.Context)) {
			semel.Do(t.Context(), g, key, semel.Bytes("r"), func(ctx context.Context) (int, error) { f(ctx); return 1, nil }) //nolint:errcheck // seen in what runs
		}},
		"bypassed in DoTx": {semel.Policy{FailOpen: true}, func(g *semel.Guard, f func(context.Context)) {
			semel.DoTx(t.Context(), g, newTransactor(t), key, semel.Bytes("r"), func(ctx context.Context, _ driver.Tx) (int, error) { f(ctx); return 1, nil }) //nolint:errcheck // seen in what runs
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _ := newGuard(t, &faulty{Store: memstore.New(), claim: down}, c.policy)
			runs := 0
			c.do(g, func(ctx context.Context) {
				runs++
				checkOutside(t, ctx)
			})
			if runs != 1 {
				t.Errorf("%d runs, want 1", runs)
			}
		})
	}
}

// handling is a handler that calls f, and answers 200.
func handling(f func(context.Context)) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { f(r.Context()) })
}
