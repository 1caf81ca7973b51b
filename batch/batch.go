// Package batch calls [semel.Do] for many operations at once, each with its own key, run and result.
package batch

import (
	"context"
	"runtime/debug"
	"sync"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/refusal"
)

// Item is one operation.
type Item struct {
	Key     semel.Key
	Request semel.Fingerprinter
}

// Options are the settings of [Do]. The zero value of each field means the documented default.
type Options struct {
	// Concurrency is how many items are asked for or run at once. Defaults to 16, also if it is negative.
	Concurrency int
}

// defaultConcurrency is the default of [Options].Concurrency.
const defaultConcurrency = 16

// Result is what [semel.Do] has returned and reported for an item.
type Result[T any] struct {
	Value T // zero if there is an error
	semel.Report
	Err error
}

// Do runs fn(ctx, i) once for each items[i], and returns their results in the same order. Each item is a call of
// [semel.Do], and gets the result of that call; an item that fails says nothing about the others. If fn panics or calls
// runtime.Goexit for an item, the item's error is a [*PanicError].
//
// At most o.Concurrency items are asked for or run at once. Items with the same Key.Scope and Key.Value take turns in
// their order, one after the other. If their request is the same, all but the first get the first one's result. If the
// request or Key.Operation is another, they get [refusal.KeyReused]. Nothing else is said about the order. An item that
// waits for a run elsewhere (Policy.Wait) keeps its place meanwhile.
//
// When ctx ends, items that have not begun are not run, and get [refusal.StoreUnavailable], without a claim. An item
// that is being claimed gets this error once the store has replied. Items that run go on, and get
// [refusal.OutcomePending]. The same error comes when Policy.Patience has passed since the item was asked for. Its run
// then keeps its place until fn has returned. Only the next item with its key waits for that. That item may find the
// run not yet settled: without Policy.Wait it gets [refusal.InProgress]. So fn may still be at work when Do has
// returned; [semel.Guard.Drain] waits for it.
func Do[T any](
	ctx context.Context, g *semel.Guard, items []Item, o Options, fn func(ctx context.Context, i int) (T, error),
) []Result[T] {
	if o.Concurrency <= 0 {
		o.Concurrency = defaultConcurrency
	}
	b := &batch[T]{
		ctx: ctx, g: g, items: items, fn: fn,
		results: make([]Result[T], len(items)),
		places:  make(chan struct{}, o.Concurrency),
	}
	b.left.Add(len(items))
	for _, i := range b.turns() {
		b.places <- struct{}{}
		go b.take(i)
	}
	b.left.Wait()
	return b.results
}

// A batch is one call of [Do].
type batch[T any] struct {
	ctx     context.Context
	g       *semel.Guard
	items   []Item
	fn      func(context.Context, int) (T, error)
	results []Result[T]
	next    []int         // the item whose turn is after this one's; 0 for none
	places  chan struct{} // one for each item that is asked for or runs
	left    sync.WaitGroup
}

// turns links the items that have the same key, and returns the first ones.
func (b *batch[T]) turns() (first []int) {
	type key struct{ scope, value string }
	last := make(map[key]int, len(b.items))
	b.next = make([]int, len(b.items))
	for i := range b.items {
		k := key{b.items[i].Key.Scope, b.items[i].Key.Value}
		if before, known := last[k]; known {
			b.next[before] = i
		} else {
			first = append(first, i)
		}
		last[k] = i
	}
	return first
}

// take asks for an item, at a place that belongs to the caller, and gives the place to the next item with its key. It
// runs on the item's goroutine, which a panic or Goexit from Do may end.
func (b *batch[T]) take(i int) {
	r, returned := &b.results[i], false
	t := &thrower{ended: make(chan struct{})}
	defer func() {
		if !returned {
			if t.stack == nil {
				t.stack = debug.Stack()
			}
			*r = Result[T]{Err: &PanicError{Value: recover(), Stack: t.stack}}
		}
		p, _ := r.Err.(*semel.Problem) //nolint:errorlint // Do's own error; the methods of another error may panic
		b.left.Done()                  // from here on the result is the caller's
		if p != nil && p.Code == refusal.OutcomePending {
			select { // an item is pending only if fn was begun for it
			case <-t.ended:
			case <-b.ctx.Done(): // no item begins any more
			}
		}
		if next := b.next[i]; next != 0 {
			go b.take(next)
		} else {
			<-b.places
		}
	}()
	it := &b.items[i]
	r.Value, r.Err = semel.Do(semel.WithReport(b.ctx, &r.Report), b.g, it.Key, it.Request, func(ctx context.Context) (T, error) {
		defer t.end()
		value, err := b.fn(ctx, i)
		t.returned = true
		return value, err
	})
	returned = true
}

// A thrower records how an item's fn has ended.
type thrower struct {
	ended    chan struct{} // closed when fn has ended; the rest may be read then
	returned bool
	stack    []byte // the stack at the panic or Goexit
}

// end is deferred around fn. It does not stop fn's panic or Goexit.
func (t *thrower) end() {
	if !t.returned {
		t.stack = debug.Stack()
	}
	close(t.ended)
}
