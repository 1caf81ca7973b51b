package semel

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/semelhq/semel/driver"
)

// verbs is the user's store as the guard calls it: what a verb throws is an error, which says nothing about whether the
// verb was executed. So it is sent again, given up or released like any verb without a reply, and a goroutine of the
// guard's does not end the process. Who calls a verb that not every store has makes sure before that own has it.
type verbs struct{ own driver.Store }

// noReply is deferred around a verb. What was thrown is not wrapped: were it [driver.ErrFull], it would still be no
// answer.
func noReply(err *error) {
	if thrown := recover(); thrown != nil {
		*err = thrownError(thrown)
	}
}

// thrownError describes what was recovered from.
func thrownError(thrown any) error { return fmt.Errorf("panic: %v\n%s", thrown, debug.Stack()) }

func (v verbs) Claim(ctx context.Context, id driver.ID, c driver.Claim) (rec driver.Record, owned bool, err error) {
	defer noReply(&err)
	return v.own.Claim(ctx, id, c)
}

func (v verbs) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (owned bool, err error) {
	defer noReply(&err)
	return v.own.Extend(ctx, id, by, x)
}

func (v verbs) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (rec driver.Record, owned bool, err error) {
	defer noReply(&err)
	return v.own.Settle(ctx, id, by, o)
}

func (v verbs) Load(ctx context.Context, id driver.ID) (rec driver.Record, err error) {
	defer noReply(&err)
	return v.own.Load(ctx, id)
}

func (v verbs) Sweep(ctx context.Context, limit int) (changed int, err error) {
	defer noReply(&err)
	return v.own.Sweep(ctx, limit)
}

func (v verbs) Seize(ctx context.Context, id driver.ID, t driver.Token) (rec driver.Record, err error) {
	defer noReply(&err)
	return v.own.(driver.Seizer).Seize(ctx, id, t)
}

func (v verbs) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) (err error) {
	defer noReply(&err)
	return v.own.(driver.Lister).List(ctx, q, yield)
}

func (v verbs) Wake(ctx context.Context, settled func(driver.ID)) (err error) {
	defer noReply(&err)
	return v.own.(driver.Waker).Wake(ctx, settled)
}

func (v verbs) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (owned bool, err error) {
	defer noReply(&err)
	return v.own.(driver.StepStore).SaveStep(ctx, id, by, name, result)
}

func (v verbs) Steps(ctx context.Context, id driver.ID) (saved map[string][]byte, err error) {
	defer noReply(&err)
	return v.own.(driver.StepStore).Steps(ctx, id)
}

func (v verbs) Audit(ctx context.Context, e driver.AuditEntry) (err error) {
	defer noReply(&err)
	return v.own.(driver.Auditor).Audit(ctx, e)
}

func (v verbs) AuditTrail(ctx context.Context, id *driver.ID, limit int, yield func(driver.AuditEntry) bool) (err error) {
	defer noReply(&err)
	return v.own.(driver.Auditor).AuditTrail(ctx, id, limit, yield)
}

func (v verbs) BeginClaim(ctx context.Context, id driver.ID, c driver.Claim) (tx driver.Tx, rec driver.Record, owned bool, err error) {
	defer noReply(&err)
	return v.own.(driver.Transactor).BeginClaim(ctx, id, c)
}

// begin starts a transaction of s, which need not be the guard's store.
func begin(ctx context.Context, s driver.Transactor) (tx driver.Tx, err error) {
	defer noReply(&err)
	return s.Begin(ctx)
}

// txVerbs are the verbs of a transaction. The function that works in it gets the Tx itself: the store's package knows
// it by its type.
type txVerbs struct{ own driver.Tx }

func (v txVerbs) Mark(ctx context.Context) (err error) {
	defer noReply(&err)
	return v.own.Mark(ctx)
}

func (v txVerbs) Undo(ctx context.Context) (err error) {
	defer noReply(&err)
	return v.own.Undo(ctx)
}

func (v txVerbs) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (rec driver.Record, owned bool, err error) {
	defer noReply(&err)
	return v.own.Settle(ctx, id, by, o)
}

func (v txVerbs) Rollback() (err error) {
	defer noReply(&err)
	v.own.Rollback()
	return nil
}

// rollback ends a transaction without a trace.
func (r *run) rollback(tx driver.Tx) {
	if err := (txVerbs{tx}).Rollback(); err != nil {
		r.core.storeFailed(r.base, "rollback", r.ask.id, err)
	}
}
