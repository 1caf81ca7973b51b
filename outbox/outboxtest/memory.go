package outboxtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/bell"
	"github.com/semelhq/semel/outbox"
)

// Memory is an outbox in memory, with the promises of a real one except that it ends with the process. It is for tests,
// also in a bubble of testing/synctest.
type Memory struct {
	o outbox.Options
	*messages
}

// messages are what handles share.
type messages struct {
	bell bell.Bell

	mu    sync.Mutex
	last  int64
	rows  map[string]*memoryRow // those committed, by id
	ids   map[string]bool       // those that a transaction has added, too
	shift time.Duration         // of the clock
}

type memoryRow struct {
	outbox.Row
	seq       int64
	state     outbox.State
	attempts  int
	error     string
	since     time.Time
	notBefore time.Time
	leasedBy  driver.Token
	leaseEnd  time.Time // zero if it is not leased
	ended     time.Time
	expires   time.Time // of one that is sent
	holds     bool
}

func (r *memoryRow) lane() outbox.Lane { return outbox.Lane{Topic: r.Topic, Tenant: r.Tenant} }

// NewMemory returns an empty outbox.
func NewMemory(o outbox.Options) (*Memory, error) {
	if err := o.Check(); err != nil {
		return nil, fmt.Errorf("new outbox in memory: %w", err)
	}
	return &Memory{o, &messages{rows: map[string]*memoryRow{}, ids: map[string]bool{}}}, nil
}

// Add adds messages in a transaction of their own.
func (m *Memory) Add(messages ...outbox.Message) error {
	tx := m.Begin()
	if err := tx.Add(messages...); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Advance moves the outbox's clock. It moves by itself as well.
func (m *Memory) Advance(d time.Duration) {
	m.mu.Lock()
	m.shift += d
	m.mu.Unlock()
	m.bell.Ring()
}

func (m *Memory) now() time.Time { return time.Now().Add(m.shift).Round(0) }

// Begin starts a transaction. What it adds gets its place in the order at once, and is seen from the commit on.
func (m *Memory) Begin() *MemoryTx { return &MemoryTx{m: m} }

// A MemoryTx is a transaction on a [Memory].
type MemoryTx struct {
	m    *Memory
	rows []*memoryRow
}

// Add adds messages.
func (tx *MemoryTx) Add(messages ...outbox.Message) error {
	m := tx.m
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, message := range messages {
		row, err := m.o.Row(message)
		if err != nil {
			return fmt.Errorf("add: %w", err)
		}
		if m.ids[row.ID] {
			return fmt.Errorf("add: %w: %s", outbox.ErrDuplicate, row.ID)
		}
		row.Payload, row.Headers = slices.Clone(row.Payload), slices.Clone(row.Headers)
		m.ids[row.ID] = true
		m.last++
		r := &memoryRow{Row: row, seq: m.last, state: outbox.Pending, since: m.now().Add(row.Delay)}
		if row.Delay > 0 {
			r.notBefore = r.since
		}
		tx.rows = append(tx.rows, r)
	}
	return nil
}

// Commit makes the messages seen. It does not fail.
func (tx *MemoryTx) Commit() error {
	tx.m.mu.Lock()
	for _, r := range tx.rows {
		tx.m.rows[r.ID] = r
	}
	tx.m.mu.Unlock()
	tx.rows = nil
	tx.m.bell.Ring()
	return nil
}

// Rollback forgets the messages. It does not fail.
func (tx *MemoryTx) Rollback() error {
	tx.m.mu.Lock()
	defer tx.m.mu.Unlock()
	for _, r := range tx.rows {
		delete(tx.m.ids, r.ID)
	}
	tx.rows = nil
	return nil
}

// Changed implements [outbox.Store].
func (m *Memory) Changed() <-chan struct{} { return m.bell.Next() }

// Lease implements [outbox.Store].
func (m *Memory) Lease(ctx context.Context, q outbox.LeaseRequest) ([]outbox.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	lanes := map[outbox.Lane][]*memoryRow{}
	for _, r := range m.rows {
		lanes[r.lane()] = append(lanes[r.lane()], r)
	}
	var all []outbox.Entry
	from := 0
	for _, lane := range inTurn(slices.Collect(maps.Keys(lanes)), q.After) {
		limit, limited := q.Limits[lane]
		if !limited {
			limit = q.Limit
		}
		limit = min(limit, q.Max-len(all))
		if slices.Contains(q.Skip, lane.Topic) || limit <= 0 || from == q.Lanes {
			continue
		}
		rows := m.leasable(lanes[lane], limit, q.Bytes)
		for _, r := range rows {
			r.leasedBy, r.leaseEnd = q.Token, m.now().Add(q.Lease)
			all = append(all, m.entry(r))
		}
		if len(rows) > 0 {
			from++
		}
	}
	return all, nil
}

// inTurn sorts lanes, those behind one first.
func inTurn(lanes []outbox.Lane, after outbox.Lane) []outbox.Lane {
	order := func(a, b outbox.Lane) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Tenant, b.Tenant))
	}
	slices.SortFunc(lanes, order)
	first := 0
	for first < len(lanes) && order(lanes[first], after) <= 0 {
		first++
	}
	return slices.Concat(lanes[first:], lanes[:first])
}

// leasable returns what of one lane can be leased.
func (m *Memory) leasable(rows []*memoryRow, limit, bytes int) (chosen []*memoryRow) {
	slices.SortFunc(rows, func(a, b *memoryRow) int { return cmp.Compare(a.seq, b.seq) })
	blocked := map[string]bool{}
	size := 0
	for _, r := range rows {
		open := r.state == outbox.Pending && !r.notBefore.After(m.now()) && !r.leaseEnd.After(m.now())
		switch {
		case r.Key != "" && blocked[r.Key]:
			continue
		case open && len(chosen) < limit && (len(chosen) == 0 || size+len(r.Payload) <= bytes):
			chosen = append(chosen, r)
			size += len(r.Payload)
		case r.state == outbox.Pending || r.holds:
			blocked[r.Key] = true
			if open { // there is no more room
				return chosen
			}
		}
	}
	return chosen
}

func (m *Memory) entry(r *memoryRow) outbox.Entry {
	now := m.now()
	e := outbox.Entry{
		State: r.state, Attempts: r.attempts, Error: r.error, Since: r.since, Ended: r.ended, Leased: r.leaseEnd.After(now), Holds: r.holds,
	}
	if r.state == outbox.Pending && !e.Leased && r.notBefore.After(now) {
		e.Due = r.notBefore
	}
	e.Message, e.Err = m.o.Message(r.Row)
	e.Payload = slices.Clone(e.Payload)
	return e
}

// Settle implements [outbox.Store].
func (m *Memory) Settle(ctx context.Context, t driver.Token, results []outbox.Result) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for _, res := range results {
		r := m.rows[res.ID]
		if r == nil || r.state != outbox.Pending || r.leaseEnd.IsZero() || r.leasedBy != t {
			continue
		}
		r.leaseEnd = time.Time{}
		switch res.Outcome {
		case outbox.Acknowledged:
			r.state, r.ended, r.expires, r.error = outbox.Sent, now, now.Add(m.o.Keep), ""
			if m.o.Keep == 0 {
				m.remove(r.ID)
			}
		case outbox.Failed:
			r.attempts, r.error, r.notBefore = r.attempts+1, res.Error, now.Add(res.Delay)
		case outbox.GivenUp:
			r.attempts, r.error = r.attempts+1, res.Error
			r.state, r.ended, r.holds = outbox.Dead, now, res.Hold && r.Key != ""
		}
	}
	return nil
}

func (m *Memory) remove(id string) {
	delete(m.rows, id)
	delete(m.ids, id)
}

// Clean implements [outbox.Store].
func (m *Memory) Clean(ctx context.Context, limit int) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, r := range m.rows {
		if n < limit && r.state == outbox.Sent && !r.expires.After(m.now()) {
			m.remove(id)
			n++
		}
	}
	return n, nil
}

// List implements [outbox.Store].
func (m *Memory) List(ctx context.Context, q outbox.Query, yield func(outbox.Entry) bool) error {
	m.mu.Lock()
	var found []outbox.Entry
	for _, id := range slices.Sorted(maps.Keys(m.rows)) {
		r := m.rows[id]
		if (q.State == 0 || r.state == q.State) && (q.Topic == "" || r.Topic == q.Topic) && (q.Key == "" || r.Key == q.Key) &&
			(q.Tenant == "" || r.Tenant == q.Tenant) && (q.IDs == nil || slices.Contains(q.IDs, id)) && id > q.After &&
			(q.Limit == 0 || len(found) < q.Limit) {
			found = append(found, m.entry(r))
		}
	}
	m.mu.Unlock()
	for _, e := range found {
		if !yield(e) {
			break
		}
	}
	return ctx.Err()
}

// Requeue implements [outbox.Store].
func (m *Memory) Requeue(ctx context.Context, ids ...string) (n int, err error) {
	return m.each(ctx, ids, func(r *memoryRow) bool {
		if r.state == outbox.Sent {
			return false
		}
		if r.state == outbox.Dead {
			r.attempts = 0
		}
		r.state, r.notBefore, r.ended, r.holds = outbox.Pending, time.Time{}, time.Time{}, false
		return true
	})
}

// Drop implements [outbox.Store].
func (m *Memory) Drop(ctx context.Context, ids ...string) (n int, err error) {
	return m.each(ctx, ids, func(r *memoryRow) bool {
		m.remove(r.ID)
		return true
	})
}

// each calls do for the messages that are not leased, and counts those it has changed.
func (m *Memory) each(ctx context.Context, ids []string, do func(*memoryRow) bool) (n int, err error) {
	defer m.bell.Ring()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		if r := m.rows[id]; r != nil && !r.leaseEnd.After(m.now()) && do(r) {
			n++
		}
	}
	return n, ctx.Err()
}

// Stats implements [outbox.Store].
func (m *Memory) Stats(ctx context.Context) (outbox.Stats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := outbox.Stats{Topics: map[string]outbox.TopicStats{}}
	for _, r := range m.rows {
		t := s.Topics[r.Topic]
		switch r.state {
		case outbox.Pending:
			s.Pending++
			t.Pending++
			t.Lag = max(t.Lag, m.now().Sub(r.since))
			s.Lag = max(s.Lag, t.Lag)
		case outbox.Dead:
			s.Dead++
			t.Dead++
		default:
			continue
		}
		s.Topics[r.Topic] = t
	}
	return s, ctx.Err()
}

var _ outbox.Store = (*Memory)(nil)
