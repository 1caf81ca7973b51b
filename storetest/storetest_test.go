package storetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
)

// A recorder is what testing.T is to a check, and keeps what the check reports.
type recorder struct {
	mu       sync.Mutex
	failures []string
	logs     []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}

// record runs a check against a store and returns what it reported.
func record(c check, m *model) *recorder {
	r := &recorder{}
	var wg sync.WaitGroup
	wg.Go(func() { c.prove(r, m.means()) }) // in a goroutine of its own, which Fatalf can end
	wg.Wait()
	return r
}

func allChecks() map[string]check {
	all := map[string]check{}
	for _, topic := range topics {
		for _, c := range topic.checks {
			all[topic.name+"/"+c.name] = c
		}
	}
	return all
}

func TestR88_ARightStorePasses(t *testing.T) {
	t.Parallel()
	Run(t, func(*testing.T) Storage {
		m := newModel()
		means := m.means()
		return Storage{
			Open:    func(*testing.T) driver.Store { return means.open() },
			Advance: means.advance,
			Restart: func(*testing.T) { means.restart() },
		}
	})
}

func TestR88_EachFaultIsFound(t *testing.T) {
	t.Parallel()
	checks := allChecks()
	for _, f := range slices.Concat(faults, claimFaults, settleFaults, operatorFaults, unusedFaults, owedFaults, stepFaults) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			if len(f.fails) == 0 {
				t.Fatal("no check is named that finds it")
			}
			for _, name := range f.fails {
				c, ok := checks[name]
				if !ok {
					t.Errorf("there is no check %q", name)
					continue
				}
				m := newModel()
				f.build(m)
				r := record(c, m)
				if !r.Failed() {
					t.Errorf("%s passes", name)
				}
				if t.Failed() {
					continue
				}
				if last := r.logs[len(r.logs)-1]; !strings.Contains(last, c.promise) {
					t.Errorf("%s: the promise is not printed, but %q", name, last)
				}
			}
		})
	}
}

func TestEachCheckFindsAFault(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	names := map[string]bool{}
	for _, f := range slices.Concat(faults, claimFaults, settleFaults, operatorFaults, unusedFaults, owedFaults, stepFaults) {
		if names[f.name] {
			t.Errorf("two faults are called %q", f.name)
		}
		names[f.name] = true
		for _, name := range f.fails {
			found[name] = true
		}
	}
	total := 0
	for _, topic := range topics {
		for _, c := range topic.checks {
			total++
			if name := topic.name + "/" + c.name; !found[name] {
				t.Errorf("no fault fails %q", name)
			}
			if !strings.HasSuffix(c.promise, ".") && !strings.HasSuffix(c.promise, ").") {
				t.Errorf("%s/%s: the promise is no sentence: %q", topic.name, c.name, c.promise)
			}
		}
	}
	if len(allChecks()) != total {
		t.Errorf("%d checks have %d names", total, len(allChecks()))
	}
}

// A store of the five verbs and no more.
type plain struct{ driver.Store }

func TestWhatAStoreCannotDoIsLeftOut(t *testing.T) {
	t.Parallel()
	m := newModel()
	s := Storage{Open: func(*testing.T) driver.Store { return plain{m} }}
	if has := capabilitiesOf(s, s.Open(t)); has != 0 {
		t.Errorf("a plain store has %s", has)
	}
	s.Advance, s.Restart = func(d time.Duration) {}, func(*testing.T) {}
	if has := capabilitiesOf(s, m); has != seizer|lister|counter|stepper|movable|restartable {
		t.Errorf("a full store has %s", has)
	}
	if got, want := (seizer | movable).String(), "driver.Seizer, Storage.Advance"; got != want {
		t.Errorf("capabilities are written %q, want %q", got, want)
	}
}

func TestAClockThatStandsStillEndsTheCheck(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	m := newModel().means()
	m.advance = func(time.Duration) {}
	var wg sync.WaitGroup
	wg.Go(func() { newEnv(context.Background(), r, m).pass(time.Second) })
	wg.Wait()
	if !r.Failed() || !strings.Contains(r.failures[0], "clock") {
		t.Errorf("reported: %q", r.failures)
	}
}
