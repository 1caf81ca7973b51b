package storetest

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
)

// A model is the plainest store there is: a map under a lock. Every rule that it follows can be replaced by a wrong
// one.
type model struct {
	mu      sync.Mutex
	records map[driver.ID]driver.Record
	steps   map[driver.ID]map[string]string
	clock   driver.Time
	entered int // how many verbs have read a record

	claim       func(driver.Record, driver.Time, driver.Claim) (driver.Record, bool)
	extend      func(driver.Record, driver.Time, driver.Owner, driver.Extension) (driver.Record, bool)
	settle      func(driver.Record, driver.Time, driver.Owner, driver.Outcome) (driver.Record, bool)
	saveStep    func(driver.Record, driver.Time, driver.Owner) (driver.Record, bool)
	forgettable func(driver.Record, driver.Time, driver.Owner) bool
	expires     func(driver.Record) driver.Time
	swept       func(driver.Record, driver.Time) (driver.Record, bool)
	matches     func(driver.ID, driver.Record, driver.Query) bool
	reads       func(driver.Record) driver.Reading // as Count sees it

	before, after map[verb]func(*call) // what bends a verb

	stored    func(driver.Record) driver.Record          // what storing makes of a record
	told      func(v verb, owned bool, now *driver.Time) // what Now is told to be
	filed     func(driver.ID) driver.ID                  // under which id a record is filed
	open      func(m *model) driver.Store                // what a handle is
	lost      func(driver.Record) bool                   // what a restart loses
	batch     func(limit int) (most, says int)           // how many Sweep deletes, and says; -1 is the truth
	endless   bool                                       // List heeds neither Limit nor yield
	deaf      verbs                                      // verbs that don't look at their context
	torn      verbs                                      // verbs that let others in between reading and writing
	hasty     verbs                                      // verbs that acknowledge before they write, and don't if their context ends
	forgetful bool                                       // a restart loses steps
	wordy     bool                                       // refused claims write

	keeps func(v verb, old, rec driver.Record) bool // whether the steps stay as a record is written or deleted
	shelf func(driver.ID) driver.ID                 // where the steps of a record are kept
	named func(string) string                       // under which name a step is kept
	kept  func(had bool, old, result string) string // what is kept of a result
	shown func(map[string][]byte) map[string][]byte // what Steps makes of them
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
		records:     map[driver.ID]driver.Record{},
		steps:       map[driver.ID]map[string]string{},
		clock:       driver.TimeOf(time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)),
		claim:       driver.Record.Claim,
		extend:      driver.Record.Extend,
		settle:      driver.Record.Settle,
		saveStep:    driver.Record.SaveStep,
		forgettable: func(r driver.Record, now driver.Time, by driver.Owner) bool { return r.Forgettable(now, by) },
		expires:     func(r driver.Record) driver.Time { return r.Expires() },
		swept:       driver.Record.Swept,
		matches:     matches,
		reads:       func(r driver.Record) driver.Reading { return r.Reads(r.OnLost) },
		before:      map[verb]func(*call){},
		after:       map[verb]func(*call){},
		stored:      func(r driver.Record) driver.Record { return r },
		told:        func(verb, bool, *driver.Time) {},
		filed:       func(id driver.ID) driver.ID { return id },
		open:        func(m *model) driver.Store { return m },
		lost:        func(driver.Record) bool { return false },
		batch:       func(limit int) (int, int) { return limit, -1 },
		keeps:       func(_ verb, _, rec driver.Record) bool { return rec.Steps },
		named:       func(name string) string { return name },
		shelf:       func(id driver.ID) driver.ID { return id },
		kept:        firstStays,
		shown:       func(saved map[string][]byte) map[string][]byte { return saved },
	}
}

func firstStays(had bool, old, result string) string {
	if had {
		return old
	}
	return result
}

func matches(id driver.ID, r driver.Record, q driver.Query) bool {
	return (q.Scope == nil || *q.Scope == id.Scope()) &&
		strings.HasPrefix(id.String(), q.Prefix) &&
		(q.Operation == "" || q.Operation == r.Operation) &&
		(q.Correlation == "" || q.Correlation == r.Correlation) &&
		(!q.Sealed || len(r.Sealed) > 0) &&
		(q.Reading == driver.ReadsAbsent || q.Reading == r.Reads(r.OnLost))
}

func (m *model) means() means {
	return means{
		open: func() driver.Store { return m.open(m) },
		advance: func(d time.Duration) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.clock = m.clock.Add(d)
		},
		restart: func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			maps.DeleteFunc(m.records, func(_ driver.ID, r driver.Record) bool { return m.lost(r) })
			maps.DeleteFunc(m.steps, func(id driver.ID, _ map[string]string) bool {
				return m.forgetful || m.records[id].State == driver.Absent
			})
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
func (m *model) do(ctx context.Context, v verb, id driver.ID, rule func(driver.Record, driver.Time) (driver.Record, bool)) (driver.Record, bool, error) {
	if err := ctx.Err(); err != nil && !m.deaf.has(v) {
		return driver.Record{}, false, err
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
	case owned && rec.State == driver.Absent:
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

func (m *model) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	return m.do(ctx, claiming, id, func(r driver.Record, now driver.Time) (driver.Record, bool) {
		return m.bent(claiming, &call{old: r, now: now, claim: &c}, func(r driver.Record) (driver.Record, bool) { return m.claim(r, now, c) })
	})
}

func (m *model) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	_, owned, err := m.do(ctx, extending, id, func(r driver.Record, now driver.Time) (driver.Record, bool) {
		return m.bent(extending, &call{old: r, now: now, by: &by, extension: &x}, func(r driver.Record) (driver.Record, bool) {
			return m.extend(r, now, by, x)
		})
	})
	return owned, err
}

func (m *model) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	return m.do(ctx, settling, id, func(r driver.Record, now driver.Time) (driver.Record, bool) {
		return m.bent(settling, &call{old: r, now: now, by: &by, outcome: &o}, func(r driver.Record) (driver.Record, bool) {
			return m.settle(r, now, by, o)
		})
	})
}

func (m *model) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	text := string(result)
	_, owned, err := m.do(ctx, stepping, id, func(r driver.Record, now driver.Time) (driver.Record, bool) {
		rec, owned := m.bent(stepping, &call{old: r, now: now, by: &by}, func(bent driver.Record) (driver.Record, bool) {
			if m.before[stepping] == nil {
				return m.saveStep(r, now, by)
			}
			_, owned := bent.SaveStep(now, by)
			r.Steps = r.Steps || owned
			return r, owned // what was bent is not saved with it
		})
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

func (m *model) Steps(ctx context.Context, id driver.ID) (map[string][]byte, error) {
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

func (m *model) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	rec, _, err := m.do(ctx, loading, id, func(r driver.Record, _ driver.Time) (driver.Record, bool) { return r, false })
	return rec, err
}

func (m *model) Sweep(ctx context.Context, limit int) (int, error) {
	if err := ctx.Err(); err != nil && !m.deaf.has(sweeping) {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	most, says := m.batch(limit)
	var ids []driver.ID
	for id, r := range m.records {
		bent := r
		if f := m.before[sweeping]; f != nil {
			f(&call{old: r, rec: &bent})
		}
		if len(ids) < most && m.clock >= m.expires(bent) {
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
		if changed && rec.State != driver.Absent {
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

func (m *model) Seize(ctx context.Context, id driver.ID, t driver.Token) (driver.Record, error) {
	rec, _, err := m.do(ctx, seizing, id, func(r driver.Record, now driver.Time) (driver.Record, bool) {
		return m.bent(seizing, &call{old: r, now: now, token: &t}, func(r driver.Record) (driver.Record, bool) { return r.Seize(now, t) })
	})
	return rec, err
}

func (m *model) Forget(ctx context.Context, id driver.ID, by driver.Owner) (bool, error) {
	_, forgot, err := m.do(ctx, forgetting, id, func(r driver.Record, now driver.Time) (driver.Record, bool) {
		return m.bent(forgetting, &call{old: r, now: now, by: &by}, func(r driver.Record) (driver.Record, bool) {
			return driver.Record{}, m.forgettable(r, now, by)
		})
	})
	return forgot, err
}

func (m *model) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
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

func (m *model) Count(context.Context) (n driver.Counts, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n.Records = int64(len(m.records))
	for _, r := range m.records {
		r.Now = m.clock
		if r.State == driver.Running {
			n.Running++
			n.OldestRunning = max(n.OldestRunning, r.Now.Sub(r.Started))
		}
		if m.reads(r) == driver.ReadsUnknown {
			n.Unknown++
		}
	}
	return n, nil
}
