package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/outbox"
)

// selectEntries begins a query for messages, as readEntry reads them.
const selectEntries = `SELECT {schema}.clock_1(), o.state::bigint, o.attempts::bigint, o.since, o.not_before, o.lease_end, o.ended, o.holds, o.sealed, o.id, o.topic, o.key, o.tenant, o.error, o.headers, o.payload FROM `

func (b *Outbox) readEntry(row [][]byte) (outbox.Entry, error) {
	now, notBefore, leaseEnd := int8Of(row[0]), int8Of(row[4]), int8Of(row[5])
	e := outbox.Entry{
		State: outbox.State(int8Of(row[1])), Attempts: int(int8Of(row[2])), Since: microseconds(int8Of(row[3])), Ended: microseconds(int8Of(row[6])),
		Holds: boolOf(row[7]), Error: string(row[13]),
	}
	if e.State == outbox.Pending {
		e.Leased = leaseEnd > now
		if !e.Leased && notBefore > now {
			e.Due = microseconds(notBefore)
		}
	}
	r := outbox.Row{
		ID: string(row[9]), Topic: string(row[10]), Key: string(row[11]), Tenant: string(row[12]), Sealed: boolOf(row[8]),
		Payload: append([]byte{}, row[15]...),
	}
	if row[14] != nil {
		r.Headers = append([]byte{}, row[14]...)
	}
	e.Message, e.Err = b.o.Message(r)
	return e, nil
}

// microseconds returns a time of the database's; that of 0 is not set.
func microseconds(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMicro(at)
}

// Lease implements [outbox.Store]. It returns [outbox.ErrBusy] if another call looks at the only lanes that have
// something.
func (b *Outbox) Lease(ctx context.Context, q outbox.LeaseRequest) ([]outbox.Entry, error) {
	var topics, tenants []string
	var limits []int64
	for lane, n := range q.Limits {
		topics, tenants, limits = append(topics, lane.Topic), append(tenants, lane.Tenant), append(limits, int64(n))
	}
	c := newCall(b.store.sql.outboxLease, 12).
		bytes(q.Token[:]).int8(int64(q.Lease)).string(q.After.Topic).string(q.After.Tenant).
		int4(int32(q.Lanes)).int4(int32(q.Limit)).int4(int32(q.Max)).int8(int64(q.Bytes)).
		texts(q.Skip).texts(topics).texts(tenants).int8s(limits)
	all, err := collect(ctx, b.store, c, func(row [][]byte) (outbox.Entry, error) {
		if row[9] == nil { // outbox_lease_1 met another look
			return outbox.Entry{}, outbox.ErrBusy
		}
		return b.readEntry(row)
	})
	if err != nil {
		return nil, fmt.Errorf("pgstore: lease: %w", err)
	}
	return all, nil
}

// givenUpHolding is GivenUp with Result.Hold.
const givenUpHolding = 5

// Settle implements [outbox.Store].
func (b *Outbox) Settle(ctx context.Context, t driver.Token, results []outbox.Result) error {
	var sent, ids, errs []string
	var outcomes, delays []int64
	for _, r := range results {
		if r.Outcome == outbox.Acknowledged {
			sent = append(sent, r.ID)
			continue
		}
		outcome := int64(r.Outcome)
		if r.Outcome == outbox.GivenUp && r.Hold {
			outcome = givenUpHolding
		}
		ids, errs = append(ids, r.ID), append(errs, r.Error)
		outcomes, delays = append(outcomes, outcome), append(delays, int64(r.Delay))
	}
	c := newCall(b.store.sql.outboxSettle, 7).
		bytes(t[:]).int8(int64(b.o.Keep)).texts(sent).texts(ids).int8s(outcomes).int8s(delays).texts(errs)
	if err := b.store.do(ctx, c, nil); err != nil {
		return fmt.Errorf("pgstore: settle messages: %w", err)
	}
	return nil
}

// Clean implements [outbox.Store]. It passes over messages that somebody else is deleting.
func (b *Outbox) Clean(ctx context.Context, limit int) (int, error) {
	n, err := b.count(ctx, (&call{sql: b.store.sql.outboxClean}).int4(int32(limit)))
	if err != nil {
		return 0, fmt.Errorf("pgstore: clean the outbox: %w", err)
	}
	return n, nil
}

// count executes a call that returns a number.
func (b *Outbox) count(ctx context.Context, c *call) (n int, err error) {
	err = b.store.do(ctx, c, func(row [][]byte) error {
		n = int(int4Of(row[0]))
		return nil
	})
	return n, err
}
