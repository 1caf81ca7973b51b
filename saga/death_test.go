package saga_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/saga"
)

// A mortal is the store of a process that dies at one of its points: before and after each verb of an operation, and
// each call of a service. A dead process changes nothing more.
type mortal struct {
	*memstore.Store
	dieAt int // counted from 1; 0 for never

	mu   sync.Mutex
	at   int
	dead bool
}

var errDead = errors.New("the process is dead")

func (m *mortal) point() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at++; m.at == m.dieAt {
		m.dead = true
	}
	if m.dead {
		return errDead
	}
	return nil
}

func (m *mortal) alive() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	return nil
}

// revive lets a process that was thought dead go on, so that it can come to its end.
func (m *mortal) revive() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead, m.dieAt = false, 0
}

func (m *mortal) around(id driver.ID, verb func() error) error {
	if id.Reserved() {
		return errors.Join(m.alive(), verb())
	}
	if err := m.point(); err != nil {
		return err
	}
	return errors.Join(verb(), m.point())
}

func (m *mortal) Claim(ctx context.Context, id driver.ID, c driver.Claim) (rec driver.Record, owned bool, err error) {
	err = m.around(id, func() error { rec, owned, err = m.Store.Claim(ctx, id, c); return err })
	return rec, owned, err
}

func (m *mortal) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (rec driver.Record, owned bool, err error) {
	err = m.around(id, func() error { rec, owned, err = m.Store.Settle(ctx, id, by, o); return err })
	return rec, owned, err
}

func (m *mortal) Load(ctx context.Context, id driver.ID) (rec driver.Record, err error) {
	err = m.around(id, func() error { rec, err = m.Store.Load(ctx, id); return err })
	return rec, err
}

func (m *mortal) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (owned bool, err error) {
	err = m.around(id, func() error { owned, err = m.Store.SaveStep(ctx, id, by, name, result); return err })
	return owned, err
}

func (m *mortal) Steps(ctx context.Context, id driver.ID) (steps map[string][]byte, err error) {
	err = m.around(id, func() error { steps, err = m.Store.Steps(ctx, id); return err })
	return steps, err
}

// When a lease is renewed, and when a completer looks, is chance.

func (m *mortal) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	if err := m.alive(); err != nil {
		return false, err
	}
	return m.Store.Extend(ctx, id, by, x)
}

func (m *mortal) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
	if err := m.alive(); err != nil {
		return err
	}
	return m.Store.List(ctx, q, yield)
}

// define returns a definition whose services a dead process does not reach.
func (m *mortal) define(t testing.TB, d *saga.Definition[order]) *saga.Definition[order] {
	t.Helper()
	steps := d.Steps()
	for i := range steps {
		for _, call := range []*func(context.Context, *order) error{&steps[i].Do, &steps[i].Undo} {
			made := *call
			*call = func(ctx context.Context, o *order) error {
				if err := m.point(); err != nil {
					return err
				}
				return errors.Join(made(ctx, o), m.point())
			}
		}
	}
	dying, err := saga.Define(d.Name(), steps...)
	must(t, err)
	return dying
}

// The process of a saga dies at each point, up to the first that the saga no longer has. Its client starts the saga
// again at another process. Each effect is there once, and each compensation of an effect, in reverse.
func TestR85_ASagaWhoseProcessDiesAtAnyPointEndsWithEachEffectOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		hurt   func(l *ledger)
		cancel string // the step that cancels the saga
		want   saga.State
		effect []string
		least  int // points that there must be
	}{
		{"done", func(*ledger) {}, "", saga.Done, []string{"charge", "reserve", "ship"}, 20},
		{
			"compensated", func(l *ledger) {
				l.fail["charge"] = func(n int) error { return []error{errors.New("not now"), nil}[min(n, 2)-1] }
				l.fail["ship"] = func(int) error { return semel.Final(errors.New("no such address")) }
			}, "", saga.Compensated,
			[]string{"charge", "reserve", "undo reserve", "undo charge"},
			30,
		},
		{"cancelled", func(*ledger) {}, "reserve", saga.Compensated, []string{"charge", "reserve", "undo reserve", "undo charge"}, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := 1
			for died := true; died && !t.Failed(); n++ {
				synctest.Test(t, func(t *testing.T) {
					l := newLedger()
					c.hurt(l)
					s := memstore.New()
					first, second := &mortal{Store: s, dieAt: n}, &mortal{Store: s}
					start := func(m *mortal) *process {
						var p *process
						d := l.define(t, "charge", "reserve", "ship")
						steps := d.Steps()
						for i := range steps {
							if do := steps[i].Do; steps[i].Name == c.cancel {
								steps[i].Do = func(ctx context.Context, o *order) error {
									return errors.Join(do(ctx, o), p.orders.Cancel(ctx, "a"))
								}
							}
						}
						d, err := saga.Define(d.Name(), steps...)
						must(t, err)
						p = newProcess(t, m, saga.Options{Concurrency: 1}, m.define(t, d))
						return p
					}
					p := start(first)
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if _, err := p.orders.Start(ctx, "a", order{}); err == nil {
						p.orders.Wait(ctx, "a") //nolint:errcheck // it may be dead
					}
					died = first.alive() != nil
					q := start(second)
					_, err := q.orders.Start(t.Context(), "a", order{})
					must(t, err)
					if got := q.ends(t, "a"); got.State != c.want {
						t.Errorf("killed at point %d it ends as %+v", n, got)
					}
					if !slices.Equal(l.wrote(), c.effect) {
						t.Errorf("killed at point %d: %v", n, l.wrote())
					}
					first.revive()
					p.end()
					q.end()
					if got, err := q.orders.Status(t.Context(), "a"); err != nil || got.State != c.want || !slices.Equal(l.wrote(), c.effect) {
						t.Errorf("killed at point %d, it comes back: %+v, %v, %v", n, got, err, l.wrote())
					}
				})
			}
			if n < c.least {
				t.Errorf("there were %d points only", n)
			}
		})
	}
}

// While the store's clock is set back no lease ends. The saga ends later, with each effect once.
func TestR85_ASagaEndsAlthoughTheStoresClockIsSetBack(t *testing.T) {
	t.Parallel()
	for _, back := range []time.Duration{2 * time.Minute, -2 * time.Minute} {
		for n := range 24 {
			synctest.Test(t, func(t *testing.T) {
				l := newLedger()
				var first *mortal
				s, err := memstore.Open(memstore.Options{Clock: func() time.Time {
					if first != nil && first.alive() != nil {
						return time.Now().Add(-back)
					}
					return time.Now()
				}})
				must(t, err)
				first = &mortal{Store: s, dieAt: n + 1}
				d := l.define(t, "charge", "reserve", "ship")
				p := newProcess(t, first, saga.Options{}, first.define(t, d))
				p.orders.Start(t.Context(), "a", order{}) //nolint:errcheck // it dies
				synctest.Wait()
				q := newProcess(t, s, saga.Options{}, d)
				_, err = q.orders.Start(t.Context(), "a", order{})
				must(t, err)
				if got := q.ends(t, "a"); got.State != saga.Done || !slices.Equal(l.wrote(), []string{"charge", "reserve", "ship"}) {
					t.Errorf("killed at point %d, the clock set back by %v: %+v, %v", n+1, back, got, l.wrote())
				}
				first.revive()
				p.end()
				q.end()
			})
		}
	}
}

// A process that stops lets its sagas stop before their next step, and waits for them. Another one goes on at once.
func TestR85_AProcessThatStopsLeavesItsSagasToOthers(t *testing.T) {
	t.Parallel()
	for _, startedHere := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l := newLedger()
			s := memstore.New()
			under := make(chan struct{}, 2)
			steps := l.define(t, "charge", "reserve", "ship").Steps()
			do := steps[1].Do
			steps[1].Do = func(ctx context.Context, o *order) error {
				under <- struct{}{}
				time.Sleep(3 * time.Second)
				return do(ctx, o)
			}
			d, err := saga.Define("place-order", steps...)
			must(t, err)
			p := newProcess(t, s, saga.Options{}, d)
			if startedHere {
				_, err = p.orders.Start(t.Context(), "a", order{})
				must(t, err)
			} else {
				dead := &mortal{Store: s, dieAt: 3} // after the claim
				o := newProcess(t, dead, saga.Options{}, d)
				o.orders.Start(t.Context(), "a", order{}) //nolint:errcheck // it dies
				defer o.end()
				defer dead.revive()
			}
			<-under
			p.end()
			status, err := p.orders.Status(t.Context(), "a")
			must(t, err)
			if want := []string{"charge", "reserve"}; status.State != saga.Running || !slices.Equal(status.Saved, want) || !slices.Equal(l.wrote(), want) {
				t.Errorf("when it had stopped: %+v, %v", status, l.wrote())
			}
			stopped := time.Now()
			q := newProcess(t, s, saga.Options{}, d)
			defer q.end()
			if got := q.ends(t, "a"); got.State != saga.Done || time.Since(stopped) > 15*time.Second {
				t.Errorf("ended after %v: %+v", time.Since(stopped), got)
			}
			if want := []string{"charge", "reserve", "ship"}; !slices.Equal(l.wrote(), want) {
				t.Errorf("wrote %v", l.wrote())
			}
		})
	}
}
