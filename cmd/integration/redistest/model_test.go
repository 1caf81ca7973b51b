package redistest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/redisstore"
)

// The scripts say again what the rules of package semel say. Here they are compared, verb by verb, over runs of verbs
// drawn at random on a few records, whose times end all the while.
func TestScriptsFollowTheRules(t *testing.T) {
	t.Parallel()
	for _, lib := range clientLibraries {
		for seed := range proof.Of[uint64](1, 4) {
			t.Run(fmt.Sprintf("%s, seed %d", lib.name, seed), func(t *testing.T) {
				t.Parallel()
				m := &model{
					T: t, store: open(t, lib.connect(t, single.Get(t).Addr()), redisstore.Options{}),
					rand: rand.New(rand.NewPCG(seed, 7)), records: map[driver.ID]driver.Record{}, steps: map[driver.ID]map[string]string{},
				}
				for range 3 {
					m.ids = append(m.ids, newID())
				}
				for range 4 {
					m.tokens = append(m.tokens, driver.NewToken())
				}
				for i := 0; i < 1500 && !t.Failed(); i++ {
					m.step()
				}
			})
		}
	}
}

// A model is what the records must be.
type model struct {
	*testing.T
	store   *redisstore.Store
	rand    *rand.Rand
	ids     []driver.ID
	tokens  []driver.Token // few, so that they meet again
	records map[driver.ID]driver.Record
	steps   map[driver.ID]map[string]string
	owners  []driver.Owner // all that there were
}

func pick[T any](m *model, of ...T) T { return of[m.rand.IntN(len(of))] }

func (m *model) step() {
	id := pick(m, m.ids...)
	before := m.records[id]
	switch m.rand.IntN(14) {
	case 0, 1, 2, 3:
		m.claim(id, before)
	case 4, 5:
		m.extend(id, before)
	case 6, 7, 8:
		m.settle(id, before)
	case 9:
		m.seize(id, before)
	case 10:
		m.forget(id, before)
	case 11, 12:
		m.saveStep(id, before)
	case 13:
		time.Sleep(time.Duration(m.rand.IntN(3000)) * time.Microsecond)
	}
	rec, err := m.store.Load(context.Background(), id)
	if err != nil {
		m.Fatalf("Load: %v", err)
	}
	m.agree("Load", id, rec, true, func(r driver.Record) driver.Record { return r })
	m.compareSteps(id, rec)
}

// compareSteps takes the record as it was loaded just before.
func (m *model) compareSteps(id driver.ID, rec driver.Record) {
	saved, err := m.store.Steps(context.Background(), id)
	if err != nil {
		m.Fatalf("Steps: %v", err)
	}
	want := m.steps[id]
	if !rec.Steps {
		want = nil
	}
	got := map[string]string{}
	for name, result := range saved {
		got[name] = string(result)
	}
	if maps.Equal(got, want) {
		return
	}
	if later, err := m.store.Load(context.Background(), id); err != nil || later.Steps || len(got) > 0 {
		m.Errorf("the steps of %+v are %q, want %q (error %v)", rec, got, want, err)
	}
}

func (m *model) saveStep(id driver.ID, before driver.Record) {
	by := m.owner(before)
	by.Above = m.rand.IntN(10) == 0
	name, result := pick(m, "charge", "ship", "mail"), fmt.Sprint(m.rand.Int())
	owned, err := m.store.SaveStep(context.Background(), id, by, name, []byte(result))
	if err != nil {
		m.Fatalf("SaveStep: %v", err)
	}
	rec, err := m.store.Load(context.Background(), id)
	if err != nil {
		m.Fatalf("Load: %v", err)
	}
	m.agree("SaveStep", id, rec, true, func(r driver.Record) driver.Record {
		r, ok := r.SaveStep(rec.Now, by)
		if ok != owned {
			r.Error = fmt.Sprint("owned is ", ok)
		}
		return r
	})
	if m.records[id].Steps && owned {
		if m.steps[id] == nil {
			m.steps[id] = map[string]string{}
		}
		if _, saved := m.steps[id][name]; !saved {
			m.steps[id][name] = result
		}
	}
}

// owner returns the record's owner mostly, else another one.
func (m *model) owner(rec driver.Record) driver.Owner {
	by := rec.Owner()
	switch m.rand.IntN(6) {
	case 0:
		by.Token = pick(m, m.tokens...)
	case 1:
		by.Fence += pick(m, 1, ^uint64(0))
	case 2:
		if len(m.owners) > 0 {
			by = pick(m, m.owners...)
		}
	}
	return by
}

func (m *model) claim(id driver.ID, before driver.Record) {
	ms := func(n int) time.Duration { return time.Duration(1+m.rand.IntN(n)) * time.Millisecond }
	c := driver.Claim{
		Fingerprint: driver.Fingerprint{
			Raw: [16]byte{byte(m.rand.IntN(2))}, Canonical: [16]byte{byte(m.rand.IntN(8) / 7)}, Settings: [8]byte{byte(m.rand.IntN(8) / 7)},
		},
		Token:       pick(m, m.tokens...),
		Lease:       pick(m, ms(4), ms(4), time.Hour, semel.Forever),
		Retention:   pick(m, ms(8), ms(8), time.Hour, 300*24*time.Hour+1, semel.Forever, semel.Forever-1),
		Tombstone:   pick(m, 0, 0, ms(8), time.Hour, semel.Forever),
		OnLost:      pick(m, semel.Hold, semel.Rerun, semel.Rerun),
		Operation:   pick(m, "", "POST /payments"),
		Correlation: pick(m, "", "a", "longer than the other"),
		Sealed:      pick(m, nil, nil, []byte("sealed")),
	}
	rec, owned, err := m.store.Claim(context.Background(), id, c)
	if err != nil {
		m.Fatalf("Claim: %v", err)
	}
	if owned {
		m.owners = append(m.owners, rec.Owner())
	}
	m.agree("Claim", id, rec, false, func(r driver.Record) driver.Record {
		if owned && r.State == driver.Absent && rec.Started < rec.Now {
			r, _ = r.Claim(rec.Started, c) // its reply took so long that it was sent again
		}
		r, ok := r.Claim(rec.Now, c)
		if ok != owned {
			r.Error = fmt.Sprint("owned is ", ok)
		}
		return r
	})
}

func (m *model) extend(id driver.ID, before driver.Record) {
	by := m.owner(before)
	x := driver.Extension{
		Lease: pick(m, time.Millisecond, 3*time.Millisecond, time.Hour, semel.Forever), Begun: m.rand.IntN(6) == 0,
	}
	rec, owned := m.extendAndLoad(id, by, x)
	if owned && rec.State == driver.Absent {
		// Its lease and its retention ended before it was loaded, at a time that is not known: it is extended again, or
		// Redis has dropped it.
		x.Lease = time.Hour
		if rec, owned = m.extendAndLoad(id, by, x); !owned {
			m.records[id] = driver.Record{Fence: before.Fence}
			delete(m.steps, id)
			return
		}
	}
	m.agree("Extend", id, rec, true, func(r driver.Record) driver.Record {
		now := rec.Now
		if owned && x.Lease != semel.Forever {
			now = rec.LeaseEnd.Add(-x.Lease)
		}
		r, ok := r.Extend(now, by, x)
		if ok != owned {
			r.Error = fmt.Sprint("owned is ", ok)
		}
		return r
	})
}

func (m *model) extendAndLoad(id driver.ID, by driver.Owner, x driver.Extension) (driver.Record, bool) {
	owned, err := m.store.Extend(context.Background(), id, by, x)
	if err != nil {
		m.Fatalf("Extend: %v", err)
	}
	rec, err := m.store.Load(context.Background(), id)
	if err != nil {
		m.Fatalf("Load: %v", err)
	}
	return rec, owned
}

func (m *model) settle(id driver.ID, before driver.Record) {
	by := m.owner(before)
	if m.rand.IntN(5) == 0 {
		by.Above, by.Fence = true, by.Fence-uint64(m.rand.IntN(2))
	}
	o := driver.Outcome{
		State: pick(m, driver.Done, driver.Done, driver.Free, driver.Unknown, driver.Running), Error: pick(m, "", "", "timeout"),
		Owed: m.rand.IntN(4) == 0,
	}
	if o.State == driver.Done {
		o.Response = pick(m, nil, done("answer").Response, done("another").Response)
	}
	rec, owned, err := m.store.Settle(context.Background(), id, by, o)
	if err != nil {
		m.Fatalf("Settle: %v", err)
	}
	looks := o.State == driver.Running || by.Above && o.State != driver.Free // no outcome: it only looks
	m.agree("Settle", id, rec, looks, func(r driver.Record) driver.Record {
		r, ok := r.Settle(rec.Now, by, o)
		if ok != owned {
			r.Error = fmt.Sprint("owned is ", ok)
		}
		return r
	})
}

func (m *model) seize(id driver.ID, before driver.Record) {
	token := pick(m, m.tokens...)
	rec, err := m.store.Seize(context.Background(), id, token)
	if err != nil {
		m.Fatalf("Seize: %v", err)
	}
	m.agree("Seize", id, rec, false, func(r driver.Record) driver.Record {
		r, _ = r.Seize(rec.Now, token)
		return r
	})
}

func (m *model) forget(id driver.ID, before driver.Record) {
	by := m.owner(before)
	forgot, err := m.store.Forget(context.Background(), id, by)
	if err != nil {
		m.Fatalf("Forget: %v", err)
	}
	rec, err := m.store.Load(context.Background(), id)
	if err != nil {
		m.Fatalf("Load: %v", err)
	}
	m.agree("Forget", id, rec, true, func(r driver.Record) driver.Record {
		if forgot && r.Forgettable(rec.Now, by) {
			return driver.Record{Fence: r.Fence}
		}
		return r
	})
}

// agree compares the record that a verb gave, or that was loaded after it, with what the rule makes of the one before:
// as it was, or absent if its end had come, for then Redis drops it within a few milliseconds. Of an absent one the
// model keeps the highest fence.
func (m *model) agree(verb string, id driver.ID, got driver.Record, loaded bool, rule func(driver.Record) driver.Record) {
	m.Helper()
	before := m.records[id]
	want := rule(before)
	expect := want
	if loaded {
		expect, _ = want.Swept(got.Now)
	}
	if !same(got, expect) {
		gone := rule(driver.Record{})
		if swept, _ := before.Swept(got.Now); swept.State != driver.Absent || !same(got, gone) {
			m.Errorf("%s at %d of\n%+v\ngave\n%+v\nwant\n%+v", verb, got.Now, before, got, want)
		}
		want = gone
	}
	if want.State != driver.Absent && before.Fence > want.Fence {
		m.Errorf("%s: fence %d follows %d", verb, want.Fence, before.Fence)
	}
	if want.State == driver.Absent {
		want = driver.Record{Fence: max(before.Fence, want.Fence)}
	}
	m.records[id] = want
	if !want.Steps {
		delete(m.steps, id)
	}
}

// same compares records as a reader sees them: without Now, without what a tombstone does not show, and an absent one
// without its fence.
func same(a, b driver.Record) bool {
	b.Now = a.Now
	a, b = shown(a), shown(b)
	sealed := bytes.Equal(a.Sealed, b.Sealed)
	a.Sealed, b.Sealed, a.Now, b.Now = nil, nil, 0, 0
	return sealed && reflect.DeepEqual(a, b)
}

func shown(r driver.Record) driver.Record {
	if r.State == driver.Absent {
		return driver.Record{}
	}
	if reads := r.Reads(r.OnLost); r.Tombstone > 0 && (reads == driver.ReadsExpired || reads == driver.ReadsAbsent) {
		r.Response, r.Sealed, r.Steps = nil, nil, false
	}
	return r
}
