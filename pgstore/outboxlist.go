package pgstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/outbox"
)

// outboxPage is how many messages are read before List gives them out. No statement is open while yield runs.
const outboxPage = 50

// List implements [outbox.Store].
func (b *Outbox) List(ctx context.Context, q outbox.Query, yield func(outbox.Entry) bool) error {
	given := 0
	for {
		page := outboxPage
		if q.Limit > 0 {
			page = min(page, q.Limit-given)
		}
		entries, err := collect(ctx, b.store, b.listing(q, page), b.readEntry)
		if err != nil {
			return fmt.Errorf("pgstore: list messages: %w", err)
		}
		for _, e := range entries {
			if given++; !yield(e) {
				return nil
			}
			q.After = e.ID
		}
		if len(entries) < page || given == q.Limit {
			return nil
		}
	}
}

// listing makes the call for a page. A state stands in its text, so that the index of that state is used.
func (b *Outbox) listing(q outbox.Query, page int) *call {
	c := &call{}
	var where []string
	with := func(condition, value string) {
		c.string(value)
		where = append(where, condition+" $"+strconv.Itoa(len(c.values)))
	}
	with("o.id >", q.After)
	if q.State != 0 {
		where = append(where, "o.state = "+strconv.Itoa(int(q.State)))
	}
	for column, value := range map[string]string{"o.topic =": q.Topic, "o.key =": q.Key, "o.tenant =": q.Tenant} {
		if value != "" {
			with(column, value)
		}
	}
	if q.IDs != nil {
		c.texts(q.IDs)
		where = append(where, "o.id = ANY ($"+strconv.Itoa(len(c.values))+")")
	}
	c.sql = inSchema(selectEntries+"{schema}.outbox o WHERE "+strings.Join(where, " AND ")+" ORDER BY o.id LIMIT "+strconv.Itoa(page), b.store.schema)
	return c
}

// Requeue implements [outbox.Store].
func (b *Outbox) Requeue(ctx context.Context, ids ...string) (int, error) {
	n, err := b.count(ctx, (&call{sql: b.store.sql.outboxRequeue}).texts(ids))
	if err != nil {
		return 0, fmt.Errorf("pgstore: requeue messages: %w", err)
	}
	b.Wake()
	return n, nil
}

// Drop implements [outbox.Store].
func (b *Outbox) Drop(ctx context.Context, ids ...string) (int, error) {
	n, err := b.count(ctx, (&call{sql: b.store.sql.outboxDrop}).texts(ids))
	if err != nil {
		return 0, fmt.Errorf("pgstore: drop messages: %w", err)
	}
	b.Wake()
	return n, nil
}

const countMessages = `SELECT o.topic, count(*) FILTER (WHERE o.state = 1), count(*) FILTER (WHERE o.state = 2),
	coalesce({schema}.clock_1() - min(o.since) FILTER (WHERE o.state = 1), 0)
	FROM {schema}.outbox o WHERE o.state IN (1, 2) GROUP BY o.topic`

// Stats implements [outbox.Store]. It reads all messages that are not sent.
func (b *Outbox) Stats(ctx context.Context) (outbox.Stats, error) {
	type one struct {
		topic string
		outbox.TopicStats
	}
	all, err := collect(ctx, b.store, &call{sql: b.store.sql.outboxStats}, func(row [][]byte) (one, error) {
		lag := time.Duration(int8Of(row[3])) * time.Microsecond
		return one{string(row[0]), outbox.TopicStats{Pending: int8Of(row[1]), Dead: int8Of(row[2]), Lag: max(0, lag)}}, nil
	})
	if err != nil {
		return outbox.Stats{}, fmt.Errorf("pgstore: count messages: %w", err)
	}
	s := outbox.Stats{Topics: make(map[string]outbox.TopicStats, len(all))}
	for _, t := range all {
		s.Pending += t.Pending
		s.Dead += t.Dead
		s.Lag = max(s.Lag, t.Lag)
		s.Topics[t.topic] = t.TopicStats
	}
	return s, nil
}
