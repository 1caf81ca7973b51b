package storetest

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel"
)

// A model is the plainest store there is: a map under a lock. Every rule that it follows can be replaced by a wrong one.
type model struct {
	mu      sync.Mutex
	records map[semel.ID]semel.Record
	steps   map[semel.ID]map[string]string
	clock   semel.Time
	entered int // how many verbs have read a record

	claim       func(semel.Record, semel.Time, semel.Claim) (semel.Record, bool)
	extend      func(semel.Record, semel.Time, semel.Owner, semel.Extension) (semel.Record, bool)
	settle      func(semel.Record, semel.Time, semel.Owner, semel.Outcome) (semel.Record, bool)
	saveStep    func(semel.Record, semel.Time, semel.Owner) (semel.Record, bool)
	seize       func(semel.Record, semel.Time, semel.Token) (semel.Record, bool)
	forgettable func(semel.Record, semel.Time, semel.Owner) bool
	expires     func(semel.Record) semel.Time
	swept       func(semel.Record, semel.Time) (semel.Record, bool)
	matches     func(semel.ID, semel.Record, semel.Query) bool
	reads       func(semel.Record) semel.Reading // as Count sees it

	stored    func(semel.Record) semel.Record           // what storing makes of a record
	told      func(v verb, owned bool, now *semel.Time) // what Now is told to be
	filed     func(semel.ID) semel.ID                   // under which id a record is filed
	open      func(m *model) semel.Store                // what a handle is
	lost      func(semel.Record) bool                   // what a restart loses
	batch     func(limit int) (most, says int)          // how many Sweep deletes, and says; -1 is the truth
	endless   bool                                      // List heeds neither Limit nor yield
	deaf      verbs                                     // verbs that don't look at their context
	torn      verbs                                     // verbs that let others in between reading and writing
	hasty     verbs                                     // verbs that acknowledge before they write, and don't if their context ends
	forgetful bool                                      // a restart loses steps
	wordy     bool                                      // refused claims write

	keeps   func(v verb, old, rec semel.Record) bool                          // whether the steps stay as a record is written or deleted
	shelf   func(semel.ID) semel.ID                                           // where the steps of a record are kept
	named   func(string) string                                               // under which name a step is kept
	kept    func(had bool, old, result string) string                         // what is kept of a result
	shown   func(map[string][]byte) map[string][]byte                         // what Steps makes of them
	batched func(claims []semel.ClaimOf, all []semel.Claimed) []semel.Claimed // what ClaimAll makes of its results
}

type verb uint8

const (
	claiming verb = iota
	extending
	settling
	stepping
	showing
	loading
	sweeping
	seizing
	forgetting
	listing
)

// verbs is a set of them.
type verbs uint16

func of(all ...verb) (set verbs) {
	for _, v := range all {
		set |= 1 << v
	}
	return set
}

func (set verbs) has(v verb) bool { return set&(1<<v) != 0 }

func newModel() *model {
	return &model{
		records:     map[semel.ID]semel.Record{},
		steps:       map[semel.ID]map[string]string{},
		clock:       semel.TimeOf(time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)),
		claim:       semel.Record.Claim,
		extend:      semel.Record.Extend,
		settle:      semel.Record.Settle,
		saveStep:    semel.Record.SaveStep,
		seize:       semel.Record.Seize,
		forgettable: func(r semel.Record, now semel.Time, by semel.Owner) bool { return r.Forgettable(now, by) },
		expires:     func(r semel.Record) semel.Time { return r.Expires() },
		swept:       semel.Record.Swept,
		matches:     matches,
		reads:       func(r semel.Record) semel.Reading { return r.Reads(r.OnLost) },
		stored:      func(r semel.Record) semel.Record { return r },
		told:        func(verb, bool, *semel.Time) {},
		filed:       func(id semel.ID) semel.ID { return id },
		open:        func(m *model) semel.Store { return m },
		lost:        func(semel.Record) bool { return false },
		batch:       func(limit int) (int, int) { return limit, -1 },
		keeps:       func(_ verb, _, rec semel.Record) bool { return rec.Steps },
		named:       func(name string) string { return name },
		shelf:       func(id semel.ID) semel.ID { return id },
		kept:        firstStays,
		shown:       func(saved map[string][]byte) map[string][]byte { return saved },
		batched:     func(_ []semel.ClaimOf, all []semel.Claimed) []semel.Claimed { return all },
	}
}

func firstStays(had bool, old, result string) string {
	if had {
		return old
	}
	return result
}

func matches(id semel.ID, r semel.Record, q semel.Query) bool {
	return (q.Scope == nil || *q.Scope == id.Scope()) &&
		strings.HasPrefix(id.String(), q.Prefix) &&
		(q.Operation == "" || q.Operation == r.Operation) &&
		(q.Correlation == "" || q.Correlation == r.Correlation) &&
		(!q.Sealed || len(r.Sealed) > 0) &&
		(q.Reading == semel.ReadsAbsent || q.Reading == r.Reads(r.OnLost))
}

func (m *model) means() means {
	return means{
		open: func() semel.Store { return m.open(m) },
		advance: func(d time.Duration) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.clock = m.clock.Add(d)
		},
		restart: func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			maps.DeleteFunc(m.records, func(_ semel.ID, r semel.Record) bool { return m.lost(r) })
			maps.DeleteFunc(m.steps, func(id semel.ID, _ map[string]string) bool { return m.forgetful || m.records[id].State == semel.Absent })
		},
	}
}

// linger gives others time to come in between.
func linger() { <-time.After(2 * time.Millisecond) }

// letIn gives others time to come in between, until one has, however busy the machine is. It is called with m.mu held.
func (m *model) letIn() {
	before := m.entered
	for range 25 {
		m.mu.Unlock()
		linger()
		m.mu.Lock()
		if m.entered != before {
			return
		}
	}
}

// do reads a record, applies a rule and writes the result.
func (m *model) do(ctx context.Context, v verb, id semel.ID, rule func(semel.Record, semel.Time) (semel.Record, bool)) (semel.Record, bool, error) {
	if err := ctx.Err(); err != nil && !m.deaf.has(v) {
		return semel.Record{}, false, err
	}
	id = m.filed(id)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock
	old := m.records[id]
	m.entered++
	if m.torn.has(v) {
		m.letIn()
	}
	rec, owned := rule(old, now)
	if _, limited := ctx.Deadline(); m.hasty.has(v) && limited && time.Until(deadline(ctx)) < time.Second {
		linger()
		if ctx.Err() != nil {
			return rec, owned, nil
		}
	}
	if owned && !m.keeps(v, old, rec) {
		delete(m.steps, m.shelf(id))
	}
	switch {
	case owned && rec.State == semel.Absent:
		delete(m.records, id)
	case owned, m.wordy && v == claiming:
		rec = m.stored(rec)
		m.records[id] = rec
	}
	rec.Now = now
	m.told(v, owned, &rec.Now)
	return rec, owned, nil
}

func deadline(ctx context.Context) time.Time {
	t, _ := ctx.Deadline()
	return t
}

func (m *model) Claim(ctx context.Context, id semel.ID, c semel.Claim) (semel.Record, bool, error) {
	return m.do(ctx, claiming, id, func(r semel.Record, now semel.Time) (semel.Record, bool) { return m.claim(r, now, c) })
}

func (m *model) Extend(ctx context.Context, id semel.ID, by semel.Owner, x semel.Extension) (bool, error) {
	_, owned, err := m.do(ctx, extending, id, func(r semel.Record, now semel.Time) (semel.Record, bool) {
		return m.extend(r, now, by, x)
	})
	return owned, err
}

func (m *model) Settle(ctx context.Context, id semel.ID, by semel.Owner, o semel.Outcome) (semel.Record, bool, error) {
	return m.do(ctx, settling, id, func(r semel.Record, now semel.Time) (semel.Record, bool) { return m.settle(r, now, by, o) })
}

func (m *model) SaveStep(ctx context.Context, id semel.ID, by semel.Owner, name string, result []byte) (bool, error) {
	text := string(result)
	_, owned, err := m.do(ctx, stepping, id, func(r semel.Record, now semel.Time) (semel.Record, bool) {
		rec, owned := m.saveStep(r, now, by)
		if owned {
			id, name := m.shelf(m.filed(id)), m.named(name)
			if m.steps[id] == nil {
				m.steps[id] = map[string]string{}
			}
			old, had := m.steps[id][name]
			m.steps[id][name] = m.kept(had, old, text)
		}
		return rec, owned
	})
	return owned, err
}

func (m *model) Steps(ctx context.Context, id semel.ID) (map[string][]byte, error) {
	if err := ctx.Err(); err != nil && !m.deaf.has(showing) {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	saved := map[string][]byte{}
	for name, result := range m.steps[m.shelf(m.filed(id))] {
		saved[name] = []byte(result)
	}
	return m.shown(saved), nil
}

func (m *model) ClaimAll(ctx context.Context, claims []semel.ClaimOf) []semel.Claimed {
	all := make([]semel.Claimed, len(claims))
	for i, c := range claims {
		all[i].Record, all[i].Owned, all[i].Err = m.Claim(ctx, c.ID, c.Claim)
	}
	return m.batched(claims, all)
}

func (m *model) Load(ctx context.Context, id semel.ID) (semel.Record, error) {
	rec, _, err := m.do(ctx, loading, id, func(r semel.Record, _ semel.Time) (semel.Record, bool) { return r, false })
	return rec, err
}

func (m *model) Sweep(ctx context.Context, limit int) (int, error) {
	if err := ctx.Err(); err != nil && !m.deaf.has(sweeping) {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	most, says := m.batch(limit)
	var ids []semel.ID
	for id, r := range m.records {
		if len(ids) < most && m.clock >= m.expires(r) {
			ids = append(ids, id)
		}
	}
	if m.torn.has(sweeping) && len(ids) > 0 {
		m.letIn()
	}
	for _, id := range ids {
		rec, changed := m.swept(m.records[id], m.clock)
		if !m.keeps(sweeping, m.records[id], rec) {
			delete(m.steps, m.shelf(id))
		}
		if changed && rec.State != semel.Absent {
			m.records[id] = rec
			continue
		}
		delete(m.records, id)
	}
	if says >= 0 {
		return says, nil
	}
	return len(ids), nil
}

func (m *model) Seize(ctx context.Context, id semel.ID, t semel.Token) (semel.Record, error) {
	rec, _, err := m.do(ctx, seizing, id, func(r semel.Record, now semel.Time) (semel.Record, bool) { return m.seize(r, now, t) })
	return rec, err
}

func (m *model) Forget(ctx context.Context, id semel.ID, by semel.Owner) (bool, error) {
	_, forgot, err := m.do(ctx, forgetting, id, func(r semel.Record, now semel.Time) (semel.Record, bool) {
		return semel.Record{}, m.forgettable(r, now, by)
	})
	return forgot, err
}

func (m *model) List(ctx context.Context, q semel.Query, yield func(semel.ID, semel.Record) bool) error {
	if err := ctx.Err(); err != nil && !m.deaf.has(listing) {
		return err
	}
	m.mu.Lock()
	records, now := maps.Clone(m.records), m.clock
	m.mu.Unlock()
	given := 0
	for id, r := range records {
		r.Now = now
		m.told(listing, false, &r.Now)
		if !m.matches(id, r, q) {
			continue
		}
		more := yield(id, r)
		if given++; (!more || given == q.Limit) && !m.endless {
			return nil
		}
	}
	return nil
}

func (m *model) Count(context.Context) (n semel.Counts, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n.Records = int64(len(m.records))
	for _, r := range m.records {
		r.Now = m.clock
		if r.State == semel.Running {
			n.Running++
			n.OldestRunning = max(n.OldestRunning, r.Now.Sub(r.Started))
		}
		if m.reads(r) == semel.ReadsUnknown {
			n.Unknown++
		}
	}
	return n, nil
}

// bendClaim lets f change what Claim looks at.
func (m *model) bendClaim(f func(r *semel.Record, now semel.Time, c *semel.Claim)) {
	m.claim = func(r semel.Record, now semel.Time, c semel.Claim) (semel.Record, bool) {
		bent := r
		f(&bent, now, &c)
		if rec, owned := bent.Claim(now, c); owned {
			return rec, true
		}
		return r, false
	}
}

// bendClaimed lets f change what an owned Claim stores.
func (m *model) bendClaimed(f func(old semel.Record, rec *semel.Record, c semel.Claim)) {
	m.claim = func(r semel.Record, now semel.Time, c semel.Claim) (semel.Record, bool) {
		rec, owned := r.Claim(now, c)
		if owned {
			f(r, &rec, c)
		}
		return rec, owned
	}
}

// bendExtend lets f change what Extend looks at.
func (m *model) bendExtend(f func(r *semel.Record, now semel.Time, by *semel.Owner, x *semel.Extension)) {
	m.extend = func(r semel.Record, now semel.Time, by semel.Owner, x semel.Extension) (semel.Record, bool) {
		bent := r
		f(&bent, now, &by, &x)
		if rec, owned := bent.Extend(now, by, x); owned {
			return rec, true
		}
		return r, false
	}
}

// bendSave lets f change what SaveStep looks at.
func (m *model) bendSave(f func(r *semel.Record, now semel.Time, by *semel.Owner)) {
	m.saveStep = func(r semel.Record, now semel.Time, by semel.Owner) (semel.Record, bool) {
		bent := r
		f(&bent, now, &by)
		if _, owned := bent.SaveStep(now, by); owned {
			r.Steps = true
			return r, true
		}
		return r, false
	}
}

// bendSettle lets f change what Settle looks at.
func (m *model) bendSettle(f func(r *semel.Record, now semel.Time, by *semel.Owner, o *semel.Outcome)) {
	m.settle = func(r semel.Record, now semel.Time, by semel.Owner, o semel.Outcome) (semel.Record, bool) {
		bent := r
		f(&bent, now, &by, &o)
		if rec, owned := bent.Settle(now, by, o); owned {
			return rec, true
		}
		return r, false
	}
}

// bendSettled lets f change what an owned Settle stores.
func (m *model) bendSettled(f func(old semel.Record, rec *semel.Record, by semel.Owner, o semel.Outcome)) {
	m.settle = func(r semel.Record, now semel.Time, by semel.Owner, o semel.Outcome) (semel.Record, bool) {
		rec, owned := r.Settle(now, by, o)
		if owned {
			f(r, &rec, by, o)
		}
		return rec, owned
	}
}

// bendSeize lets f change what Seize looks at, and what it stores.
func (m *model) bendSeize(before func(r *semel.Record, t *semel.Token), after func(old semel.Record, rec *semel.Record)) {
	m.seize = func(r semel.Record, now semel.Time, t semel.Token) (semel.Record, bool) {
		bent := r
		before(&bent, &t)
		rec, seized := bent.Seize(now, t)
		if !seized {
			return r, false
		}
		after(r, &rec)
		return rec, true
	}
}

// bendAnswers lets f change the answers that are stored.
func (m *model) bendAnswers(f func(a *semel.Response) *semel.Response) {
	m.stored = func(r semel.Record) semel.Record {
		if r.Response != nil {
			a := *r.Response
			r.Response = f(&a)
		}
		return r
	}
}
