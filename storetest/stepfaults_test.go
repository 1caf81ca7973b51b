package storetest

import (
	"context"
	"strings"

	"github.com/semelhq/semel/driver"
)

var stepFaults = []fault{
	// Who may save.
	{
		"SaveStep ignores the fence",
		before(stepping, func(x *call) { x.by.Fence = x.rec.Fence }),
		[]string{"steps/it is the owner's"},
	},
	{
		"SaveStep ignores the token",
		before(stepping, func(x *call) { x.by.Token = x.rec.Token }),
		[]string{"steps/it is the owner's"},
	},
	{
		"SaveStep compares half of the token",
		before(stepping, func(x *call) { copy(x.by.Token[8:], x.rec.Token[8:]) }),
		[]string{"steps/it is the owner's"},
	},
	{
		"SaveStep ignores who asks",
		before(stepping, func(x *call) { *x.by = x.rec.Owner() }),
		[]string{
			"steps/it is the owner's",
			"steps/a fenced owner saves nothing",
			"fence/a late owner changes nothing after a takeover",
		},
	},
	{
		"SaveStep takes any fence above one",
		before(stepping, when(
			func(x *call) bool { return x.by.Above && x.rec.Fence > x.by.Fence },
			func(x *call) { x.by.Fence, x.by.Above = x.rec.Fence, false },
		)),
		[]string{"steps/it is the owner's"},
	},
	{
		"SaveStep ignores the state",
		before(stepping, when(
			func(x *call) bool { return x.rec.State != driver.Absent },
			func(x *call) { x.rec.State = driver.Running },
		)),
		[]string{
			"steps/it acts on a running record only",
			"steps/nobody saves a step of a seized record",
			"steps/none slips in after a settle",
		},
	},
	{
		"who seized a record may save",
		before(stepping, when(
			func(x *call) bool { return x.rec.Seized },
			func(x *call) { x.rec.State = driver.Running },
		)),
		[]string{"steps/nobody saves a step of a seized record"},
	},
	{
		"saving needs a lease",
		before(stepping, when(
			func(x *call) bool { return x.now >= x.rec.LeaseEnd },
			func(x *call) { x.rec.State = driver.Unknown },
		)),
		[]string{"steps/it acts on a running record only", "steps/a fenced owner saves nothing"},
	},
	{
		"a begun run saves nothing",
		before(stepping, when(func(x *call) bool { return x.rec.Begun }, func(x *call) { x.rec.State = driver.Done })),
		[]string{"steps/it acts on a running record only"},
	},
	{
		"SaveStep creates a record",
		before(stepping, was(driver.Absent, func(x *call) {
			*x.rec = driver.Record{State: driver.Running, Fence: x.by.Fence, Token: x.by.Token}
			x.by.Above = false
		})),
		[]string{"steps/it creates nothing"},
	},
	{
		"a step that is refused is kept all the same",
		func(m *model) { m.open = func(m *model) driver.Store { return eager{m} } },
		[]string{"steps/it is the owner's", "steps/it creates nothing", "steps/a fenced owner saves nothing"},
	},
	{
		"saving a step is read, then written",
		func(m *model) { m.torn = of(stepping) },
		[]string{"steps/none slips in after a settle", "steps/none slips in after a takeover"},
	},
	{
		"steps ignore their context",
		func(m *model) { m.deaf = of(stepping, showing) },
		[]string{"steps/an ended context is an error and changes nothing"},
	},
	{
		"SaveStep acknowledges before it sets Steps",
		func(m *model) { m.hasty = of(stepping) },
		[]string{"steps/one that ends meanwhile saves all or nothing"},
	},

	// The flag.
	{
		"saving sets no flag",
		func(m *model) {
			m.saveStep = func(r driver.Record, now driver.Time, by driver.Owner) (driver.Record, bool) {
				rec, owned := r.SaveStep(now, by)
				rec.Steps = r.Steps
				return rec, owned
			}
			m.keeps = func(verb, driver.Record, driver.Record) bool { return true }
		},
		[]string{"steps/a result is kept under its name", "steps/a lost run with steps is kept seven retentions"},
	},
	{
		"saving extends the lease",
		func(m *model) {
			m.saveStep = func(r driver.Record, now driver.Time, by driver.Owner) (driver.Record, bool) {
				rec, owned := r.SaveStep(now, by)
				if owned {
					rec.LeaseEnd = now.Add(2 * long)
				}
				return rec, owned
			}
		},
		[]string{"steps/a result is kept under its name", "steps/the first result stays"},
	},
	{
		"a settle clears the flag",
		func(m *model) {
			after(settling, func(x *call) { x.rec.Steps = false })(m)
			m.keeps = func(v verb, _, rec driver.Record) bool { return rec.Steps || v == settling }
		},
		[]string{"steps/they outlast a run", "steps/unknown keeps them", "steps/seizing keeps them"},
	},
	{
		"a takeover clears the flag",
		func(m *model) {
			after(claiming, func(x *call) { x.rec.Steps = false })(m)
			m.keeps = func(v verb, _, rec driver.Record) bool { return rec.Steps || v == claiming }
		},
		[]string{"steps/they outlast a run", "steps/a fenced owner saves nothing"},
	},

	// What is kept.
	{
		"the last result stays",
		func(m *model) { m.kept = func(_ bool, _, result string) string { return result } },
		[]string{"steps/the first result stays", "steps/of one name one result stays", "steps/they are there after a restart"},
	},
	{
		"an empty result is none, and replaced",
		func(m *model) {
			m.kept = func(had bool, old, result string) string { return firstStays(had && old != "", old, result) }
		},
		[]string{"steps/the first result stays"},
	},
	{
		"empty results are not shown",
		func(m *model) {
			m.shown = func(saved map[string][]byte) map[string][]byte {
				for name, result := range saved {
					if len(result) == 0 {
						delete(saved, name)
					}
				}
				return saved
			}
		},
		[]string{"steps/a result is kept under its name", "steps/results are exact"},
	},
	{
		"a name that is saved is refused",
		func(m *model) { m.open = func(m *model) driver.Store { return once{m} } },
		[]string{"steps/the first result stays", "steps/of one name one result stays"},
	},
	{
		"results are the caller's",
		func(m *model) { m.open = func(m *model) driver.Store { return aliasing{m, map[string][]byte{}} } },
		[]string{"steps/a result stays its caller's"},
	},
	{
		"results end at a NUL",
		func(m *model) {
			m.kept = func(had bool, old, result string) string {
				result, _, _ = strings.Cut(result, "\x00")
				return firstStays(had, old, result)
			}
		},
		[]string{"steps/results are exact"},
	},
	{
		"results are cut at 64 KiB",
		func(m *model) {
			m.kept = func(had bool, old, result string) string {
				return firstStays(had, old, result[:min(len(result), 1<<16)])
			}
		},
		[]string{"steps/results are exact"},
	},
	{
		"results are made valid UTF-8",
		func(m *model) {
			m.kept = func(had bool, old, result string) string {
				return firstStays(had, old, strings.ToValidUTF8(result, "\ufffd"))
			}
		},
		[]string{"steps/results are exact"},
	},
	{
		"names are compared without case",
		func(m *model) { m.named = strings.ToLower },
		[]string{"steps/names are exact and apart"},
	},
	{
		"names are trimmed",
		func(m *model) { m.named = strings.TrimSpace },
		[]string{"steps/names are exact and apart"},
	},
	{
		"names are cut",
		func(m *model) { m.named = func(name string) string { return name[:min(len(name), 254)] } },
		[]string{"steps/names are exact and apart"},
	},
	{
		"names are normalized",
		func(m *model) { m.named = strings.NewReplacer("a\u0308", "ä", "\u212a", "K").Replace },
		[]string{"steps/names are exact and apart"},
	},
	{
		"there is room for a hundred steps",
		func(m *model) {
			m.shown = func(saved map[string][]byte) map[string][]byte {
				for name := range saved {
					if len(saved) > 100 {
						delete(saved, name)
					}
				}
				return saved
			}
		},
		[]string{"steps/an operation may have many"},
	},
	{
		"steps are kept by half of the id",
		func(m *model) {
			m.shelf = func(id driver.ID) driver.ID { return driver.ID(append(id[:24:24], make([]byte, 24)...)) }
		},
		[]string{"steps/each operation has its own"},
	},
	{
		"steps are read from a copy that lags",
		func(m *model) { m.open = func(m *model) driver.Store { return &lagging{model: m} } },
		[]string{"steps/a result is kept under its name", "steps/each run goes on where the last one stopped"},
	},

	// How long.
	{
		"steps go with a release",
		keeping(func(_ verb, _, rec driver.Record) bool { return rec.Steps && rec.State != driver.Free }),
		[]string{"steps/they outlast a run", "steps/the first result stays", "steps/seizing keeps them"},
	},
	{
		"steps go with a settle",
		keeping(func(v verb, _, rec driver.Record) bool { return rec.Steps && v != settling }),
		[]string{"steps/they outlast a run", "steps/unknown keeps them", "steps/results are exact"},
	},
	{
		"steps go with the next run",
		keeping(func(v verb, _, rec driver.Record) bool { return rec.Steps && v != claiming }),
		[]string{"steps/they outlast a run", "steps/a fenced owner saves nothing", "steps/each run goes on where the last one stopped"},
	},
	{
		"steps go with a heartbeat",
		keeping(func(v verb, _, rec driver.Record) bool { return rec.Steps && v != extending }),
		[]string{"steps/they outlast a run"},
	},
	{
		"steps go with a seizure",
		keeping(func(v verb, _, rec driver.Record) bool { return rec.Steps && v != seizing }),
		[]string{"steps/seizing keeps them", "steps/nobody saves a step of a seized record"},
	},
	{
		"a new operation inherits the steps",
		keeping(func(v verb, _, rec driver.Record) bool { return rec.Steps || v == claiming }),
		[]string{"steps/a new operation has none", "steps/a new operation after a begun one has none", "steps/an operation may have many"},
	},
	{
		"a new operation inherits the flag",
		func(m *model) {
			after(claiming, func(x *call) { x.rec.Steps = x.old.Steps })(m)
			m.keeps = func(v verb, old, rec driver.Record) bool {
				return rec.Steps && (v != claiming || old.Attempt < rec.Attempt)
			}
		},
		[]string{"steps/a new operation has none", "steps/a new operation after a begun one has none"},
	},
	{
		"Forget leaves the steps",
		keeping(func(v verb, _, rec driver.Record) bool { return rec.Steps || v == forgetting }),
		[]string{"steps/they are forgotten with their record"},
	},
	{
		"Sweep leaves the steps",
		keeping(func(v verb, _, rec driver.Record) bool { return rec.Steps || v == sweeping }),
		[]string{
			"steps/a tombstone has none",
			"steps/a lost run with steps is kept seven retentions",
			"steps/a free record with steps is kept its retention",
		},
	},
	{
		"Sweep leaves the steps of a tombstone, and says so",
		func(m *model) {
			m.swept = func(r driver.Record, now driver.Time) (driver.Record, bool) {
				rec, changed := r.Swept(now)
				rec.Steps = r.Steps && rec.State != driver.Absent
				return rec, changed
			}
		},
		[]string{"steps/a tombstone has none"},
	},
	{
		"Sweep takes steps only where there is an answer",
		before(sweeping, when(func(x *call) bool { return x.rec.State == driver.Done && x.rec.Response == nil }, func(x *call) { x.rec.Steps = false })),
		[]string{"steps/a tombstone has none"},
	},
	{
		"Sweep does not mind the steps of lost runs",
		before(sweeping, func(x *call) { x.rec.Steps = x.rec.Steps && x.rec.State != driver.Running }),
		[]string{"steps/a lost run with steps is kept seven retentions"},
	},
	{
		"Sweep does not mind the steps of free records",
		before(sweeping, func(x *call) { x.rec.Steps = x.rec.Steps && x.rec.State != driver.Free }),
		[]string{"steps/a free record with steps is kept its retention"},
	},
	{
		"a free record with steps is kept no longer than its retention",
		func(m *model) {
			m.expires = func(r driver.Record) driver.Time {
				if r.State == driver.Free && r.Steps {
					return r.Settled.Add(r.Retention)
				}
				return r.Expires()
			}
		},
		[]string{"steps/a free record with steps is kept its retention"},
	},
	{
		"steps go before what is owed",
		before(sweeping, func(x *call) { x.rec.Owed = x.rec.Owed && !x.rec.Steps }),
		[]string{"steps/a free record that is owed is kept seven retentions, with steps too"},
	},
	{
		"a restart loses steps",
		func(m *model) { m.forgetful = true },
		[]string{"steps/they are there after a restart"},
	},
}

// An eager handle keeps a step, and then looks whose it is.
type eager struct{ *model }

func (s eager) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	owned, err := s.model.SaveStep(ctx, id, by, name, result)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.steps[id] == nil {
		s.steps[id] = map[string]string{}
	}
	s.steps[id][name] = string(result)
	return owned, err
}

// A once handle refuses a name that is saved.
type once struct{ *model }

func (s once) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	saved, err := s.Steps(ctx, id)
	if _, had := saved[name]; had || err != nil {
		return false, err
	}
	return s.model.SaveStep(ctx, id, by, name, result)
}

// An aliasing handle keeps its callers' bytes.
type aliasing struct {
	*model
	raw map[string][]byte
}

func (s aliasing) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	owned, err := s.model.SaveStep(ctx, id, by, name, result)
	if owned {
		s.raw[name] = result
	}
	return owned, err
}

func (s aliasing) Steps(ctx context.Context, id driver.ID) (map[string][]byte, error) {
	saved, err := s.model.Steps(ctx, id)
	for name := range saved {
		if raw, ok := s.raw[name]; ok {
			saved[name] = raw
		}
	}
	return saved, err
}

// A lagging handle shows the steps that the call before should have shown.
type lagging struct {
	*model
	last map[string][]byte
}

func (s *lagging) Steps(ctx context.Context, id driver.ID) (map[string][]byte, error) {
	saved, err := s.model.Steps(ctx, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	saved, s.last = s.last, saved
	return saved, err
}
