package semel

import (
	"context"
	"time"

	"github.com/semelhq/semel/driver"
)

// A Report says which run a result of [Do] is of. It is what a server of RPC tells its own caller, as a
// guarded handler does by the headers Idempotent-Replayed and Idempotency-Expires. Its zero value goes with what is of
// no run: a refusal, also [refusal.OutcomePending], and what was run unprotected (Policy.FailOpen).
type Report struct {
	Replayed bool      // it is the stored result of an earlier run
	Attempt  int       // which run of the operation it is of, from 1
	Expires  time.Time // until when repeats are answered by it, on the store's clock; zero if it was released, or if that never ends
}

// reportOf is the report of a run, by the record that it has left.
func reportOf(rec *driver.Record, attempt int) Report {
	r := Report{Attempt: attempt}
	if rec.State == driver.Done && rec.Retention < Forever/2 {
		r.Expires = rec.Kept().Time()
	}
	return r
}

// WithReport returns a context for one call of [Do], of [DoTx], or of what a store's package builds on them: it sets
// *to before it returns. Calls within the function that is run do not. Calls at the same time need a context each.
func WithReport(ctx context.Context, to *Report) context.Context {
	return context.WithValue(ctx, reportKey{}, &reporting{to, FromContext(ctx)})
}

type reportKey struct{}

// A reporting is valid outside of the operations that are begun with it.
type reporting struct {
	to *Report
	op *Operation // that it was asked for in
}

// reportTo returns where a call with that context reports to, or nil.
func reportTo(ctx context.Context) *Report {
	if r, _ := ctx.Value(reportKey{}).(*reporting); r != nil && r.op == FromContext(ctx) {
		return r.to
	}
	return nil
}
