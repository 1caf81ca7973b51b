package semel

import (
	"context"
	"time"

	"github.com/semelhq/semel/driver"
)

// A Report says which run a result of [Do] comes from. A server of RPC tells its own caller this, as a guarded handler
// does by the headers Idempotent-Replayed and Idempotency-Expires. The zero Report means that the result comes from no
// run: it is a refusal, also [refusal.OutcomePending], or it was run unprotected (Policy.FailOpen).
type Report struct {
	Replayed bool      // it is the stored result of an earlier run
	Attempt  int       // number of the run within the operation, from 1
	Expires  time.Time // end of replays, on the store's clock; zero if the result was released, or if replays never end
}

// reportOf makes the report of a run from the record that the run has left.
func reportOf(rec *driver.Record, attempt int) Report {
	r := Report{Attempt: attempt}
	if rec.State == driver.Done && rec.Retention < Forever/2 {
		r.Expires = rec.Kept().Time()
	}
	return r
}

// WithReport returns a context for one call of [Do], of [DoTx], or of a function in a store's package that builds on
// them. The call sets *to before it returns. Calls within the function that is run do not set it. Concurrent calls need
// a context each.
func WithReport(ctx context.Context, to *Report) context.Context {
	return context.WithValue(ctx, reportKey{}, &reporting{to, FromContext(ctx)})
}

type reportKey struct{}

// A reporting does not apply within the operations that are begun with it.
type reporting struct {
	to *Report
	op *Operation // the operation in which the report was asked for
}

// reportTo returns where a call with that context writes its report, or nil.
func reportTo(ctx context.Context) *Report {
	if r, _ := ctx.Value(reportKey{}).(*reporting); r != nil && r.op == FromContext(ctx) {
		return r.to
	}
	return nil
}
