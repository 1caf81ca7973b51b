package semel

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
)

// verbs is the user's store as the guard calls it: what a verb throws is an error, which says nothing about whether the
// verb was executed. So it is sent again, given up or released like any verb without a reply, and a goroutine of the
// guard's does not end the process. Who calls a verb that not every store has makes sure before that own has it.
type verbs struct{ own Store }

// noReply is deferred around a verb. What was thrown is not wrapped: were it [ErrFull], it would still be no answer.
func noReply(err *error) {
	if thrown := recover(); thrown != nil {
		*err = thrownError(thrown)
	}
}

// thrownError describes what was recovered from.
func thrownError(thrown any) error { return fmt.Errorf("panic: %v\n%s", thrown, debug.Stack()) }

func (v verbs) Claim(ctx context.Context, id ID, c Claim) (rec Record, owned bool, err error) {
	defer noReply(&err)
	return v.own.Claim(ctx, id, c)
}

func (v verbs) ClaimAll(ctx context.Context, claims []ClaimOf) (all []Claimed) {
	var err error
	defer func() {
		if err != nil {
			all = slices.Repeat([]Claimed{{Err: err}}, len(claims))
		}
	}()
	defer noReply(&err)
	return v.own.(BatchClaimer).ClaimAll(ctx, claims)
}

func (v verbs) Extend(ctx context.Context, id ID, by Owner, x Extension) (owned bool, err error) {
	defer noReply(&err)
	return v.own.Extend(ctx, id, by, x)
}

func (v verbs) Settle(ctx context.Context, id ID, by Owner, o Outcome) (rec Record, owned bool, err error) {
	defer noReply(&err)
	return v.own.Settle(ctx, id, by, o)
}

func (v verbs) Load(ctx context.Context, id ID) (rec Record, err error) {
	defer noReply(&err)
	return v.own.Load(ctx, id)
}

func (v verbs) Sweep(ctx context.Context, limit int) (changed int, err error) {
	defer noReply(&err)
	return v.own.Sweep(ctx, limit)
}

func (v verbs) Seize(ctx context.Context, id ID, t Token) (rec Record, err error) {
	defer noReply(&err)
	return v.own.(Seizer).Seize(ctx, id, t)
}

func (v verbs) List(ctx context.Context, q Query, yield func(ID, Record) bool) (err error) {
	defer noReply(&err)
	return v.own.(Lister).List(ctx, q, yield)
}

func (v verbs) Wake(ctx context.Context, settled func(ID)) (err error) {
	defer noReply(&err)
	return v.own.(Waker).Wake(ctx, settled)
}

func (v verbs) SaveStep(ctx context.Context, id ID, by Owner, name string, result []byte) (owned bool, err error) {
	defer noReply(&err)
	return v.own.(StepStore).SaveStep(ctx, id, by, name, result)
}

func (v verbs) Steps(ctx context.Context, id ID) (saved map[string][]byte, err error) {
	defer noReply(&err)
	return v.own.(StepStore).Steps(ctx, id)
}

func (v verbs) Audit(ctx context.Context, e AuditEntry) (err error) {
	defer noReply(&err)
	return v.own.(Auditor).Audit(ctx, e)
}

func (v verbs) AuditTrail(ctx context.Context, id *ID, limit int, yield func(AuditEntry) bool) (err error) {
	defer noReply(&err)
	return v.own.(Auditor).AuditTrail(ctx, id, limit, yield)
}

func (v verbs) BeginClaim(ctx context.Context, id ID, c Claim) (tx Tx, rec Record, owned bool, err error) {
	defer noReply(&err)
	return v.own.(Transactor).BeginClaim(ctx, id, c)
}

// begin starts a transaction of s, which need not be the guard's store.
func begin(ctx context.Context, s Transactor) (tx Tx, err error) {
	defer noReply(&err)
	return s.Begin(ctx)
}

// txVerbs are the verbs of a transaction. The function that works in it gets the Tx itself: the store's package knows it
// by its type.
type txVerbs struct{ own Tx }

func (v txVerbs) Mark(ctx context.Context) (err error) {
	defer noReply(&err)
	return v.own.Mark(ctx)
}

func (v txVerbs) Undo(ctx context.Context) (err error) {
	defer noReply(&err)
	return v.own.Undo(ctx)
}

func (v txVerbs) Settle(ctx context.Context, id ID, by Owner, o Outcome) (rec Record, owned bool, err error) {
	defer noReply(&err)
	return v.own.Settle(ctx, id, by, o)
}

func (v txVerbs) Rollback() (err error) {
	defer noReply(&err)
	v.own.Rollback()
	return nil
}

// rollback ends a transaction without a trace.
func (r *run) rollback(tx Tx) {
	if err := (txVerbs{tx}).Rollback(); err != nil {
		r.core.storeFailed(r.base, "rollback", r.ask.id, err)
	}
}
