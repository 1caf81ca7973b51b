package shardstore_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/shardstore"
)

// A fleet is processes that serve the same clients, each with a guard of its own.
type fleet struct {
	t         *testing.T
	processes [2]atomic.Pointer[http.Handler]

	mu      sync.Mutex
	effects map[string]int    // by key
	answers map[string]string // the first that a client got
	asked   int
	some    *sync.Cond // there were more requests
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, effects: map[string]int{}, answers: map[string]string{}}
	f.some = sync.NewCond(&f.mu)
	return f
}

// restart has one process, and so many requests later the other one, go on with another store, until there were as many
// requests again.
func (f *fleet) restart(over driver.Store, apart int) {
	for i := range f.processes {
		g, err := semel.New(over, semel.SingleTenant, semel.Hold, semel.Options{})
		if err != nil {
			f.t.Fatal(err)
		}
		h := g.Wrap(http.HandlerFunc(f.pay))
		f.processes[i].Store(&h)
		f.wait(apart)
	}
}

// wait waits until so many more requests were answered.
func (f *fleet) wait(more int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for until := f.asked + more; f.asked < until; {
		f.some.Wait()
	}
}

func (f *fleet) pay(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	f.mu.Lock()
	f.effects[key]++
	n := f.effects[key]
	f.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "payment %d of %s", n, key)
}

func (f *fleet) ask(key string) (answered bool) {
	w := verbs.Order(*f.processes[rand.IntN(2)].Load(), key)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	f.some.Broadcast()
	switch body := w.Body.String(); {
	case w.Code == http.StatusConflict, w.Code == http.StatusServiceUnavailable:
		return false
	case w.Code != http.StatusCreated:
		f.t.Errorf("%s: status %d, %s", key, w.Code, body)
	case f.answers[key] == "":
		f.answers[key] = body
	case f.answers[key] != body:
		f.t.Errorf("%s: answered %q, and %q before", key, body, f.answers[key])
	}
	return true
}

// Shards are added and taken away under load, step by step, with two processes that are never at the same step for long:
// no operation is lost, and none has its effect twice.
func TestR26_ShardsAreAddedAndTakenAwayUnderLoad(t *testing.T) {
	t.Parallel()
	s := newSite(t, 4)
	f := newFleet(t)
	shards := s.shards(3)[:3]
	leaving := s.shards(4)
	leaving[0].Leaves, leaving[3].Joins = true, true
	f.restart(open(t, shards, shardstore.None), 0)

	var clients sync.WaitGroup
	var keys atomic.Int64
	var ended atomic.Bool
	for range 4 {
		clients.Go(func() {
			for !ended.Load() {
				key := keys.Add(1)
				if rand.IntN(2) == 0 {
					key = 1 + rand.Int64N(key)
				}
				f.ask(fmt.Sprint("key-", key))
			}
		})
	}
	f.wait(300)
	f.restart(open(t, leaving, shardstore.Prepare), 300)
	moving := open(t, leaving, shardstore.Move)
	f.restart(moving, 300)
	ended.Store(true)
	clients.Wait()
	for key := range keys.Load() {
		for !f.ask(fmt.Sprint("key-", key+1)) {
		}
	}
	for key, n := range f.effects {
		if n != 1 {
			t.Errorf("%s has had its effect %d times", key, n)
		}
	}
	if len(f.effects) < 500 {
		t.Errorf("%d operations, too few to have shown anything", len(f.effects))
	}

	// The change may end once what is in old shards has expired.
	remaining := func(limit int) int {
		n, err := moving.(shardstore.Changer).Remaining(t.Context(), limit)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := remaining(0); n < 100 || remaining(7) != 7 {
		t.Errorf("%d operations remain in old shards, want a third of %d and more", n, len(f.effects))
	}
	s.Advance(25 * time.Hour)
	if n := remaining(0); n != 0 {
		t.Errorf("%d operations remain in old shards after their retention", n)
	}
	after := open(t, s.shards(4)[1:], shardstore.None)
	id := verbs.NewID()
	verbs.Finish(t, moving, id, verbs.Ask(driver.Hold))
	if rec := verbs.Load(t, after, id); rec.State != driver.Done {
		t.Errorf("after the change an operation of its last step is %v", rec.State)
	}
}
