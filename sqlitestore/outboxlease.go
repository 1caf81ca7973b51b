package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/outbox"
)

// Lease implements [outbox.Store]. It looks for lanes that have something to lease before it takes the write lock, and
// takes that only if there are any.
func (b *Outbox) Lease(ctx context.Context, q outbox.LeaseRequest) ([]outbox.Entry, error) {
	all, err := b.lease(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: lease messages: %w", err)
	}
	return all, nil
}

func (b *Outbox) lease(ctx context.Context, q outbox.LeaseRequest) ([]outbox.Entry, error) {
	if q.Max <= 0 || q.Lanes <= 0 {
		return nil, ctx.Err()
	}
	var lanes []outbox.Lane
	err := b.store.read(ctx, func(c *session) (err error) {
		if err = c.tellTime(b.store.clock); err == nil {
			lanes, err = c.dueLanes(ctx, &q, b.store.clock.tell())
		}
		return err
	})
	if err != nil || len(lanes) == 0 {
		return nil, err
	}
	all, _, err := decide(ctx, b.store, &call{size: 1024 * min(q.Max, q.Limit*len(lanes))}, func(u *unit) (all []outbox.Entry, _ bool, err error) {
		for _, lane := range lanes {
			limit := min(laneLimit(&q, lane), q.Max-len(all))
			if limit <= 0 {
				break
			}
			rows, err := u.leasable(lane, limit, q.Bytes)
			if err != nil {
				return nil, false, err
			}
			until := u.now.Add(q.Lease)
			for i := range rows {
				if _, err := u.run(leaseMessage, q.Token[:], int64(until), rows[i].seq); err != nil {
					return nil, false, err
				}
				u.wrote = true
				rows[i].leased, rows[i].due = true, until
				all = append(all, b.entry(&rows[i], u.now))
			}
		}
		return all, false, nil
	})
	return all, err
}

// tellTime moves a clock to the latest time in the database: a process whose clock is ahead may have added messages.
func (s *session) tellTime(c *clock) error {
	st, err := s.stmt(selectMeta)
	if err != nil {
		return err
	}
	var mark driver.Time
	var fence uint64
	if err := st.QueryRowContext(detached).Scan(&mark, &fence); err != nil {
		return interpretError(err)
	}
	c.reach(mark)
	return nil
}

func laneLimit(q *outbox.LeaseRequest, lane outbox.Lane) int {
	if limit, own := q.Limits[lane]; own {
		return limit
	}
	return q.Limit
}

// dueLanes returns lanes that have something to lease, in the order of their turns. It goes from lane to lane, past all
// the messages of each.
func (s *session) dueLanes(ctx context.Context, q *outbox.LeaseRequest, now driver.Time) (lanes []outbox.Lane, err error) {
	for _, second := range []bool{false, true} { // from the lane behind After to the last, and from the first to it
		at := q.After
		if second {
			at = outbox.Lane{}
		}
		skip := false
		for len(lanes) < q.Lanes && ctx.Err() == nil {
			if skip {
				at, err = s.lane(nextTopic, at.Topic)
			} else {
				at, err = s.lane(nextLane, at.Topic, at.Tenant)
			}
			if errors.Is(err, sql.ErrNoRows) || err == nil && second && after(at, q.After) {
				break
			}
			if err != nil {
				return nil, err
			}
			if skip = slices.Contains(q.Skip, at.Topic); skip || laneLimit(q, at) <= 0 {
				continue
			}
			due, err := s.due(at, now)
			if err != nil {
				return nil, err
			}
			if due {
				lanes = append(lanes, at)
			}
		}
	}
	return lanes, ctx.Err()
}

// after reports whether lane a comes behind b.
func after(a, b outbox.Lane) bool {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Tenant, b.Tenant)) > 0
}

func (s *session) lane(which statement, args ...any) (l outbox.Lane, err error) {
	st, err := s.stmt(which)
	if err != nil {
		return l, err
	}
	return l, interpretError(st.QueryRowContext(detached, args...).Scan(&l.Topic, &l.Tenant))
}

func (s *session) due(l outbox.Lane, now driver.Time) (bool, error) {
	st, err := s.stmt(dueInLane)
	if err != nil {
		return false, err
	}
	var one int
	err = st.QueryRowContext(detached, l.Topic, l.Tenant, int64(now)).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, interpretError(err)
}

// leasable returns what of one lane can be leased, in the order in which it was added. First come those that wait for
// no other, those that are due for longest first; then, where there is room, those behind them.
func (u *unit) leasable(lane outbox.Lane, limit, bytes int) ([]messageRow, error) {
	size, full := 0, false
	var chosen []messageRow
	take := func(r messageRow) bool {
		if full = full || len(chosen) == limit || len(chosen) > 0 && size+len(r.Payload) > bytes; full {
			return false
		}
		size += len(r.Payload)
		chosen = append(chosen, r)
		return true
	}
	err := u.messages(headsOfLane, take, lane.Topic, lane.Tenant, int64(u.now), limit)
	for _, head := range slices.Clone(chosen) {
		if err != nil || full || len(chosen) == limit {
			break
		}
		if head.Key == "" {
			continue
		}
		err = u.messages(behindHead, func(r messageRow) bool {
			return r.state == outbox.Pending && r.due <= u.now && take(r)
		}, lane.Topic, lane.Tenant, head.Key, head.seq, limit-len(chosen))
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(chosen, func(a, b messageRow) int { return cmp.Compare(a.seq, b.seq) })
	return chosen, nil
}

// messages calls yield for the messages of a query, until it returns false.
func (s *session) messages(which statement, yield func(messageRow) bool, args ...any) error {
	st, err := s.stmt(which)
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(detached, args...)
	return each(rows, err, func() (more bool, err error) {
		r, err := scanMessage(rows)
		return err == nil && yield(r), err
	})
}
