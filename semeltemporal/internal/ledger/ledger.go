// Package ledger has services for tests of sagas: they have effects, recognise repetitions by the key, and fail as they
// are told.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/semelhq/semel/saga"
)

// Order is the state of the sagas.
type Order struct {
	ID    string   `json:"id"`
	Total int      `json:"total"`
	Done  []string `json:"done"`
}

// A Ledger has the effects of the services, for many sagas at once.
type Ledger struct {
	// Fail says how a call of a step ends, whose name is "undo " and the step's for a compensation; n counts the calls
	// from 1. It is called before the effect, and the function that it returns after it. Either error is what the step
	// gets; nil functions are none. Defaults to calls that succeed.
	Fail func(ctx context.Context, id, what string, n int) (after func() error, before error)

	mu      sync.Mutex
	calls   map[string][]string          // by id
	effects map[string]map[string]string // by id: keys, and what was done under them
}

// Step returns a step that calls the ledger, and compensates by calling it.
func (l *Ledger) Step(name string, retry saga.Retry) saga.Step[Order] {
	call := func(what string) func(context.Context, *Order) error {
		return func(ctx context.Context, o *Order) error {
			o.Done = append(o.Done, what)
			return l.Call(ctx, o.ID, what)
		}
	}
	return saga.Step[Order]{Name: name, Do: call(name), Undo: call("undo " + name), Retry: retry}
}

// Call has an effect under the key of the context, unless it has been had.
func (l *Ledger) Call(ctx context.Context, id, what string) error {
	key, ok := saga.Key(ctx)
	if !ok {
		return errors.New("the step has no key")
	}
	l.mu.Lock()
	if l.calls == nil {
		l.calls, l.effects = map[string][]string{}, map[string]map[string]string{}
	}
	l.calls[id] = append(l.calls[id], what)
	n := 0
	for _, c := range l.calls[id] {
		if c == what {
			n++
		}
	}
	l.mu.Unlock()
	var after func() error
	if l.Fail != nil {
		var before error
		if after, before = l.Fail(ctx, id, what, n); before != nil {
			return before
		}
	}
	l.mu.Lock()
	if l.effects[id] == nil {
		l.effects[id] = map[string]string{}
	}
	had, taken := l.effects[id][key]
	l.effects[id][key] = what
	l.mu.Unlock()
	if taken && had != what {
		return fmt.Errorf("%s has the key of %s", what, had)
	}
	if after != nil {
		return after()
	}
	return nil
}

// Calls returns what was called for a saga, in order.
func (l *Ledger) Calls(id string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls[id])
}

// Effects returns what was done for a saga, sorted; what was done under two keys comes twice.
func (l *Ledger) Effects(id string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, what := range l.effects[id] {
		all = append(all, what)
	}
	slices.Sort(all)
	return all
}

// Keys returns the keys under which effects were had for a saga, by what was done.
func (l *Ledger) Keys(id string) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := map[string]string{}
	for key, what := range l.effects[id] {
		keys[what] = key
	}
	return keys
}
