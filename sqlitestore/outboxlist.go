package sqlitestore

import (
	"context"
	"fmt"
	"slices"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/outbox"
)

// List implements [outbox.Store].
func (b *Outbox) List(ctx context.Context, q outbox.Query, yield func(outbox.Entry) bool) error {
	if err := b.list(ctx, q, yield); err != nil {
		return fmt.Errorf("sqlitestore: list messages: %w", err)
	}
	return nil
}

func (b *Outbox) list(ctx context.Context, q outbox.Query, yield func(outbox.Entry) bool) error {
	where, args := "id > ?", []any{q.After}
	if q.State != 0 {
		where += fmt.Sprintf(" AND state = %d", q.State) // in the words of the indexes
	}
	for _, f := range []struct{ column, value string }{{"topic", q.Topic}, {"tenant", q.Tenant}, {"key", q.Key}} {
		if f.value != "" {
			where += " AND " + f.column + " = ?"
			args = append(args, f.value)
		}
	}
	given := 0
	give := func(e outbox.Entry) bool {
		given++
		return yield(e) && given != q.Limit
	}
	if q.IDs != nil {
		ids := slices.Clone(q.IDs)
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			found, err := b.page(ctx, where+" AND id = ?", append(slices.Clone(args), id))
			if err != nil {
				return err
			}
			for _, e := range found {
				if !give(e) {
					return nil
				}
			}
		}
		return nil
	}
	for {
		found, err := b.page(ctx, where, args)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, e := range found {
			if args[0] = e.ID; !give(e) {
				return nil
			}
		}
	}
}

// page reads the messages that a condition selects, up to a number of bytes. Only an empty page is the last one.
func (b *Outbox) page(ctx context.Context, where string, args []any) (found []outbox.Entry, err error) {
	query := "SELECT " + messageColumns + " FROM semel_outbox WHERE " + where + " ORDER BY id LIMIT ?"
	args = append(slices.Clone(args), pageRows)
	err = b.store.read(ctx, func(c *session) error {
		found = nil
		size, now := 0, b.store.clock.tell()
		rows, err := c.conn.QueryContext(ctx, query, args...)
		return each(rows, err, func() (more bool, err error) {
			r, err := scanMessage(rows)
			if err != nil {
				return false, err
			}
			found = append(found, b.entry(&r, now))
			size += len(r.Payload) + len(r.Headers)
			return size < pageBytes, nil
		})
	})
	return found, err
}

const countMessages = `SELECT topic, state, count(*), min(since) FROM semel_outbox WHERE state = 1 GROUP BY topic
UNION ALL SELECT topic, state, count(*), min(since) FROM semel_outbox WHERE state = 2 GROUP BY topic`

// Stats implements [outbox.Store].
func (b *Outbox) Stats(ctx context.Context) (outbox.Stats, error) {
	var s outbox.Stats
	err := b.store.read(ctx, func(c *session) error {
		s = outbox.Stats{Topics: map[string]outbox.TopicStats{}}
		now := b.store.clock.tell()
		rows, err := c.conn.QueryContext(ctx, countMessages)
		return each(rows, err, func() (more bool, err error) {
			var topic string
			var state outbox.State
			var n int64
			var since driver.Time
			if err := rows.Scan(&topic, &state, &n, &since); err != nil {
				return false, err
			}
			t := s.Topics[topic]
			if state == outbox.Dead {
				t.Dead = n
				s.Dead += n
			} else {
				t.Pending, t.Lag = n, max(now.Sub(since), 0)
				s.Pending += n
				s.Lag = max(s.Lag, t.Lag)
			}
			s.Topics[topic] = t
			return true, nil
		})
	})
	if err != nil {
		return outbox.Stats{}, fmt.Errorf("sqlitestore: count messages: %w", err)
	}
	return s, nil
}
