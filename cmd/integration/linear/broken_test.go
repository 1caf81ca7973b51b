package linear

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
)

// A plain store is a map under a lock, of which each rule can be replaced by a wrong one.
type plain struct {
	mu      sync.Mutex
	records map[driver.ID]driver.Record
	copies  map[driver.ID]driver.Record // of done records, with which Load and Claim answer, if it has layers
	layers  bool

	claim  func(driver.Record, driver.Time, driver.Claim) (driver.Record, bool)
	extend func(driver.Record, driver.Time, driver.Owner, driver.Extension) (driver.Record, bool)
	settle func(driver.Record, driver.Time, driver.Owner, driver.Outcome) (driver.Record, bool)
	seize  func(driver.Record, driver.Time, driver.Token) (driver.Record, bool)
	forget func(driver.Record, driver.Time, driver.Owner) bool
	load   func(id driver.ID, rec driver.Record) driver.Record // what a reader gets
	keeps  func(id driver.ID) bool                             // the copies, in Forget
	torn   bool                                                // a claim reads, and then writes
	wordy  bool                                                // a refused claim writes
}

func newPlain() *plain {
	return &plain{
		records: map[driver.ID]driver.Record{}, copies: map[driver.ID]driver.Record{},
		claim: driver.Record.Claim, extend: driver.Record.Extend, settle: driver.Record.Settle, seize: driver.Record.Seize,
		forget: func(r driver.Record, now driver.Time, by driver.Owner) bool { return r.Forgettable(now, by) },
		load:   func(_ driver.ID, rec driver.Record) driver.Record { return rec },
		keeps:  func(driver.ID) bool { return false },
	}
}

func (p *plain) do(id driver.ID, torn bool, rule func(driver.Record, driver.Time) (driver.Record, bool)) (driver.Record, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.records[id]
	if torn {
		p.mu.Unlock()
		time.Sleep(50 * time.Microsecond)
		p.mu.Lock()
	}
	now := driver.TimeOf(time.Now())
	rec, owned := rule(old, now)
	if owned {
		p.records[id] = rec
	}
	rec.Now = now
	return rec, owned
}

// copied returns the copy of a done record, if there is one.
func (p *plain) copied(id driver.ID) (driver.Record, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rec, ok := p.copies[id]
	if rec.Now = driver.TimeOf(time.Now()); !ok && p.layers && p.records[id].State == driver.Done {
		p.copies[id] = p.records[id]
	}
	return rec, ok
}

func (p *plain) Claim(_ context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	if rec, ok := p.copied(id); ok {
		return rec, false, nil
	}
	granted := true
	rec, owned := p.do(id, p.torn, func(r driver.Record, now driver.Time) (rec driver.Record, owned bool) {
		rec, granted = p.claim(r, now, c)
		if !granted && p.wordy {
			rec.Correlation = c.Correlation
		}
		return rec, granted || p.wordy
	})
	return rec, owned && granted, nil
}

func (p *plain) Extend(_ context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	_, owned := p.do(id, false, func(r driver.Record, now driver.Time) (driver.Record, bool) { return p.extend(r, now, by, x) })
	return owned, nil
}

func (p *plain) Settle(_ context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	rec, owned := p.do(id, false, func(r driver.Record, now driver.Time) (driver.Record, bool) { return p.settle(r, now, by, o) })
	return rec, owned, nil
}

func (p *plain) Load(_ context.Context, id driver.ID) (driver.Record, error) {
	if rec, ok := p.copied(id); ok {
		return rec, nil
	}
	rec, _ := p.do(id, false, func(r driver.Record, _ driver.Time) (driver.Record, bool) { return p.load(id, r), false })
	return rec, nil
}

func (p *plain) Sweep(context.Context, int) (int, error) { return 0, nil }

func (p *plain) Seize(_ context.Context, id driver.ID, t driver.Token) (driver.Record, error) {
	rec, _ := p.do(id, false, func(r driver.Record, now driver.Time) (driver.Record, bool) { return p.seize(r, now, t) })
	return rec, nil
}

func (p *plain) Forget(_ context.Context, id driver.ID, by driver.Owner) (bool, error) {
	_, forgot := p.do(id, false, func(r driver.Record, now driver.Time) (driver.Record, bool) {
		return driver.Record{Fence: r.Fence}, p.forget(r, now, by)
	})
	if p.layers {
		time.Sleep(100 * time.Microsecond) // the copies are elsewhere
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.keeps(id) {
		delete(p.copies, id)
	}
	return forgot, nil
}

func run(t *testing.T, s *plain, rounds int, seed uint64) *Trace {
	t.Helper()
	r := Run{Handles: []driver.Store{s}, Layers: s.layers, Seed: seed, Rounds: rounds, Clients: 6, Verbs: 20, Records: 3}
	trace, err := r.Do(t.Context())
	must(t, err)
	return trace
}

func TestAStoreThatFollowsTheRulesHasAnOrder(t *testing.T) {
	t.Parallel()
	for _, layers := range []bool{false, true} {
		s := newPlain()
		s.layers = layers
		if err := run(t, s, 60, seed(t)).Check(os.TempDir()); err != nil {
			t.Errorf("with layers %t: %v", layers, err)
		}
	}
}

func TestAStoreThatBreaksARuleIsFoundOut(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(s *plain){
		"settle does not compare the fence": func(s *plain) {
			s.settle = func(r driver.Record, now driver.Time, by driver.Owner, o driver.Outcome) (driver.Record, bool) {
				if !by.Above {
					by.Fence = r.Fence
				}
				return r.Settle(now, by, o)
			}
		},
		"settle does not compare the token": func(s *plain) {
			s.settle = func(r driver.Record, now driver.Time, by driver.Owner, o driver.Outcome) (driver.Record, bool) {
				by.Token = r.Token
				return r.Settle(now, by, o)
			}
		},
		"settle refuses a late owner whom nobody has replaced": func(s *plain) {
			s.settle = func(r driver.Record, now driver.Time, by driver.Owner, o driver.Outcome) (driver.Record, bool) {
				if r.State == driver.Running && now >= r.LeaseEnd {
					return r, false
				}
				return r.Settle(now, by, o)
			}
		},
		"a settle is acknowledged and not written": func(s *plain) {
			n := 0
			s.settle = func(r driver.Record, now driver.Time, by driver.Owner, o driver.Outcome) (driver.Record, bool) {
				rec, owned := r.Settle(now, by, o)
				if n++; owned && n%8 == 0 {
					return r, true
				}
				return rec, owned
			}
		},
		"extend acts on a done record": func(s *plain) {
			s.extend = func(r driver.Record, now driver.Time, by driver.Owner, x driver.Extension) (driver.Record, bool) {
				if r.State == driver.Done {
					r.State, r.Wrote = driver.Running, driver.Absent
				}
				return r.Extend(now, by, x)
			}
		},
		"extend does not move the lease": func(s *plain) {
			s.extend = func(r driver.Record, now driver.Time, by driver.Owner, x driver.Extension) (driver.Record, bool) {
				rec, owned := r.Extend(now, by, x)
				rec.LeaseEnd = r.LeaseEnd
				return rec, owned
			}
		},
		"a claim does not heed that its token was settled": func(s *plain) {
			s.claim = func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool) {
				if r.Token == c.Token && r.State == driver.Free {
					r.Token = driver.Token{}
				}
				return r.Claim(now, c)
			}
		},
		"a claim does not heed the lease": func(s *plain) {
			s.claim = func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool) {
				if r.State == driver.Running && r.Token != c.Token {
					r.LeaseEnd = now
				}
				return r.Claim(now, c)
			}
		},
		"a claim does not compare the request": func(s *plain) {
			s.claim = func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool) {
				r.Fingerprint = c.Fingerprint
				return r.Claim(now, c)
			}
		},
		"a claim for another request does not heed maybe": func(s *plain) {
			s.claim = func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool) {
				if r.State == driver.Free && r.Fingerprint != c.Fingerprint {
					r.Maybe = false
				}
				return r.Claim(now, c)
			}
		},
		"a refused claim writes":         func(s *plain) { s.wordy = true },
		"a claim reads, and then writes": func(s *plain) { s.torn = true },
		"a reader sees what was before": func(s *plain) {
			before := map[driver.ID]driver.Record{}
			n := 0
			s.load = func(id driver.ID, rec driver.Record) driver.Record {
				old := before[id]
				before[id] = rec
				if n++; n%4 == 0 {
					return old
				}
				return rec
			}
		},
		"seize does not raise the fence": func(s *plain) {
			s.seize = func(r driver.Record, now driver.Time, t driver.Token) (driver.Record, bool) {
				rec, seized := r.Seize(now, t)
				rec.Fence = r.Fence
				return rec, seized
			}
		},
		"forget deletes what runs": func(s *plain) {
			s.forget = func(r driver.Record, now driver.Time, by driver.Owner) bool {
				return r.Forgettable(now, by) || r.State == driver.Running && r.Owner() == by
			}
		},
		"fences start again after forget": func(s *plain) {
			s.claim = func(r driver.Record, now driver.Time, c driver.Claim) (driver.Record, bool) {
				if r.State == driver.Absent && r.Fence > 0 {
					rec, owned := driver.Record{Fence: r.Fence}.Claim(now, c)
					rec.Fence = r.Fence
					return rec, owned
				}
				return r.Claim(now, c)
			}
		},
		"a layer keeps a copy of what is forgotten": func(s *plain) {
			s.layers = true
			s.keeps = func(driver.ID) bool { return true }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newPlain()
			breaks(s)
			v := findOut(t, s)
			if v == nil {
				t.Fatal("it was not found out")
			}
			told := v.Error()
			if lines := strings.Count(told, "\n"); lines == 0 || lines > 42 {
				t.Errorf("it is told in %d lines:\n%s", lines, told)
			}
			if !strings.Contains(told, v.Picture) || !strings.Contains(told, v.ID.String()) {
				t.Errorf("record or picture are not named:\n%s", told)
			}
			page, err := os.ReadFile(v.Picture)
			if err != nil || !strings.Contains(string(page), "<html") {
				t.Errorf("the picture is %d bytes long, %v", len(page), err)
			}
		})
	}
}

// findOut runs clients until the store has no order. What they do is a matter of luck, so that they try often.
func findOut(t *testing.T, s *plain) *Violation {
	t.Helper()
	folder, seed := t.TempDir(), seed(t)
	for i := range uint64(100) {
		err := run(t, s, 10, seed+i).Check(folder)
		var v *Violation
		if errors.As(err, &v) {
			return v
		}
		must(t, err)
	}
	return nil
}
