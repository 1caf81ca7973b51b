package semel

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/internal/budget"
)

// Item is one operation of a [DoBatch].
type Item struct {
	Key     Key
	Request Fingerprinter
}

// BatchOptions are the settings of a [DoBatch]. The zero value of each field means the documented default.
type BatchOptions struct {
	// Concurrency is how many items are claimed or run at once. Defaults to defaultConcurrency, also if it is negative.
	Concurrency int
}

// defaultConcurrency is that of [BatchOptions].
const defaultConcurrency = 16

// ItemResult is what [Do] would have returned for an item, and reported.
type ItemResult[T any] struct {
	Value T // zero if there is an error
	Report
	Err error
}

// PanicError is the error of an item whose function did not return, or whose goroutine the store has ended. If it was
// the function, the run is settled as lost: Policy.OnLost decides.
type PanicError struct {
	Value any    // that it panicked with; nil if it ended by runtime.Goexit
	Stack []byte // where, as [debug.Stack] says it
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return "the function ended by runtime.Goexit"
	}
	return fmt.Sprintf("panic: %v", e.Value)
}

// Unwrap returns the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error) // most are none
	return err
}

// caught is called where a panic was recovered from, or a Goexit was noticed.
func caught(thrown any) *PanicError { return &PanicError{Value: thrown, Stack: debug.Stack()} }

// DoBatch runs fn(ctx, i) once for each items[i], and returns their results in the same order. Each item is an
// operation of its own, and gets what [Do] would return for it; one that fails says nothing about the others. Instead
// of throwing what an item's fn throws, DoBatch gives that item a [*PanicError].
//
// At most o.Concurrency items are claimed or run at once. A store that is a [driver.BatchClaimer] is asked for as many
// items in one round trip as can start at that moment, never for more: what is claimed is begun, so that a process that
// dies leaves hardly anything in doubt that it did not start. Other stores, and all in one-commit mode, are asked for
// each item.
//
// Items with the same key have their turns in their order: with the same request, all but the first get its result;
// with another one, or another Key.Operation, [refusal.KeyReused]. Each counts for [Options].MaxAttempts and MaxKeys.
// An item whose operation runs elsewhere, and may be waited for (Policy.Wait), is asked for again when the others have
// begun.
//
// When ctx ends, items that have not begun are not run, and get [refusal.StoreUnavailable], once a claim under way has
// been answered; those that run go on, and get [refusal.OutcomePending]. The same error comes when Policy.Patience has
// passed; the run then keeps its place among the o.Concurrency until it ends, but DoBatch does not wait for it. So fn
// may still be at work when DoBatch has returned: [Guard.Drain] waits for that.
func DoBatch[T any](
	ctx context.Context, g *Guard, items []Item, o BatchOptions, fn func(ctx context.Context, i int) (T, error),
) []ItemResult[T] {
	if o.Concurrency <= 0 {
		o.Concurrency = defaultConcurrency
	}
	b := &batch[T]{
		g: g, ctx: ctx, items: items, fn: fn, results: make([]ItemResult[T], len(items)),
		free: o.Concurrency, open: len(items), under: map[driver.ID]*entry{}, wake: make(chan struct{}, 1),
	}
	_, together := g.store.own.(driver.BatchClaimer)
	b.together = together && !g.policy.OneCommit
	b.do()
	return b.results
}

// A batch is one call of DoBatch. The call's own goroutine takes the items up, and claims them where that goes
// together; then each has a goroutine, and one of the free places, until its run has ended.
type batch[T any] struct {
	g        *Guard
	ctx      context.Context
	items    []Item
	fn       func(context.Context, int) (T, error)
	results  []ItemResult[T]
	together bool          // the store claims many at once
	wake     chan struct{} // tells the call's goroutine that something below has changed

	mu    sync.Mutex
	taken int                  // of items, in their order
	later []*entry             // to be asked for after the rest of items
	under map[driver.ID]*entry // taken up and not ended, one for each operation
	free  int                  // places
	open  int                  // items without a result
}

// An entry is an item that was taken up. One goroutine has it at a time.
type entry struct {
	i     int
	call  call
	chain []*entry // items of the same operation, whose turn is after this; guarded by the batch

	counted bool      // by the caps
	until   time.Time // how long it may wait for another run
	putOff  bool      // once
	again   bool      // to be asked for again

	// Of a claim that was sent together with others.
	claimed bool
	rec     driver.Record
	run     *run
	problem *Problem
	broken  *PanicError // that claim threw

	ended <-chan struct{} // closed when its run has ended; nil without one
}

// do returns when every item has a result.
func (b *batch[T]) do() {
	gone := b.ctx.Done()
	for {
		b.start(b.ready())
		b.mu.Lock()
		over := b.open == 0
		b.mu.Unlock()
		if over {
			return
		}
		select {
		case <-b.wake:
		case <-gone:
			gone = nil
			b.unchain()
		}
	}
}

// ready takes up as many items as there are free places, and takes the places. Those that are refused need none; when
// ctx has ended, all that are left are.
func (b *batch[T]) ready() (list []*entry) {
	b.mu.Lock()
	free := b.free
	b.mu.Unlock()
	for len(list) < free || b.ctx.Err() != nil {
		e := b.next()
		if e == nil {
			break
		}
		if b.admit(e) {
			list = append(list, e)
		} else {
			b.mu.Lock()
			b.pass(e)
			b.mu.Unlock()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free -= len(list)
	return list
}

// next returns the next item to ask for, or nil if there is none for now.
func (b *batch[T]) next() *entry {
	for b.taken < len(b.items) {
		e := &entry{i: b.taken, call: call{g: b.g, ctx: b.ctx, started: time.Now()}}
		b.mu.Lock()
		b.taken++
		b.mu.Unlock()
		known := false
		b.decide(e, func(e *entry) (zero T, decided bool, err error) {
			if err := e.call.name(b.items[e.i].Key); err != nil {
				return zero, true, err
			}
			p := e.call.identify(b.items[e.i].Key, b.items[e.i].Request)
			if known = p == nil; known {
				return zero, false, nil
			}
			zero, err = refused[T](&e.call, p)
			return zero, true, err
		})
		if known && !b.follows(e) {
			return e
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.later) == 0 {
		return nil
	}
	e := b.later[0]
	b.later = b.later[1:]
	return e
}

// follows puts an item behind one of the same operation, if there is one that has not ended.
func (b *batch[T]) follows(e *entry) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := b.under[e.call.ask.id]
	switch {
	case first == nil:
		b.under[e.call.ask.id] = e
		return false
	case b.ctx.Err() != nil:
		return false // it is refused anyway
	}
	first.chain = append(first.chain, e)
	return true
}

// unchain takes up the items that were to have their turn after others, to refuse them.
func (b *batch[T]) unchain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.under {
		b.later = append(b.later, e.chain...)
		e.chain = nil
	}
}

// admit counts an item by the caps. It reports false if it was refused.
func (b *batch[T]) admit(e *entry) (admitted bool) {
	now, a := time.Now(), &e.call.ask
	e.call.started = now
	if e.until.IsZero() {
		e.until = now.Add(a.wait)
	} else if !now.Before(e.until) {
		a.wait = 0
	}
	gone := b.ctx.Err() != nil
	if !e.counted && !gone && b.g.keys.full(a.id.Scope(), now) > 0 {
		return true // the store has to be asked whether the key is there, on the item's own goroutine
	}
	b.decide(e, func(e *entry) (zero T, decided bool, err error) {
		var p *Problem
		if gone {
			p = b.g.mayClaim(b.ctx, a)
		} else {
			p = b.counted(e)
		}
		if admitted = p == nil; admitted {
			return zero, false, nil
		}
		zero, err = refused[T](&e.call, p)
		return zero, true, err
	})
	return admitted
}

// counted asks the caps, once for each item.
func (b *batch[T]) counted(e *entry) *Problem {
	if e.counted {
		return nil
	}
	e.counted = true
	return b.g.withinCaps(b.ctx, &e.call.ask, e.call.started)
}

// start gives each item its goroutine, after its claim where that is sent together with others.
func (b *batch[T]) start(list []*entry) {
	var together []*entry
	batches := b.together && len(list) > 0 && b.g.knowsSecret(b.ctx) == nil
	for _, e := range list {
		if batches && e.counted && b.ctx.Err() == nil && b.g.owed.full(e.call.ask.id.Scope()) == budget.HasRoom {
			together = append(together, e)
			continue
		}
		go b.serve(e)
	}
	if len(together) > 0 {
		b.claim(together)
	}
}

// claim claims the items in one round trip. Places that become free meanwhile are filled by the next one: the slower
// the store, the fewer trips. What has to be sent again does not hold up the others.
func (b *batch[T]) claim(list []*entry) {
	claims := make([]claiming, len(list))
	for i, e := range list {
		claims[i] = claiming{ask: &e.call.ask, rec: &e.rec, claim: b.g.claimOf(&e.call.ask)}
	}
	s := b.g.newSending(b.ctx)
	s.then = func(i int) {
		e, c := list[i], &claims[i]
		list[i] = nil
		e.claimed, e.run, e.problem = true, c.run, c.problem
		go func() {
			defer b.serve(e)
			c.giveBack(b.ctx, b.g)
		}()
	}
	whole := func(send func([]claiming)) (returned bool) {
		defer func() {
			if returned {
				return
			}
			broken := caught(recover()) // the store has ended this goroutine
			s.abandon(claims)
			for _, e := range list {
				if e != nil {
					e.broken = broken
					go b.serve(e)
				}
			}
		}()
		send(claims)
		return true
	}
	if !whole(s.send) || s.left == 0 {
		s.window.end(nil)
		return
	}
	go func() {
		defer s.window.end(nil)
		whole(s.rest)
	}()
}

// decide gives an item the result of f, unless f says that there is none yet. What f throws is a result, too.
func (b *batch[T]) decide(e *entry, f func(*entry) (value T, decided bool, err error)) {
	var result ItemResult[T]
	returned, decided := false, true
	defer func() {
		if !returned {
			result = ItemResult[T]{Err: caught(recover())}
		}
		if !decided {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.results[e.i] = result
		b.open--
		b.nudge()
	}()
	result.Value, decided, result.Err = f(e)
	result.Report = e.call.report
	returned = true
}

func (b *batch[T]) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// serve is the goroutine of an item.
func (b *batch[T]) serve(e *entry) {
	defer b.leave(e)
	b.decide(e, b.pursue)
}

// leave gives the item's place back when its run has ended, and has the next item of its operation asked for.
func (b *batch[T]) leave(e *entry) {
	if e.ended != nil {
		<-e.ended
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free++
	if e.again {
		e.again = false
		b.later = append(b.later, e)
	} else {
		b.pass(e)
	}
	b.nudge()
}

// pass gives the next item of the operation its turn. Its caller holds the lock.
func (b *batch[T]) pass(e *entry) {
	id := e.call.ask.id
	if b.under[id] != e {
		return // ctx has ended: it was refused without a turn
	}
	if len(e.chain) == 0 {
		delete(b.under, id)
		return
	}
	next := e.chain[0]
	next.chain, e.chain = e.chain[1:], nil
	b.under[id] = next
	b.later = append(b.later, next)
}

// pursue is Do, from the claim on.
func (b *batch[T]) pursue(e *entry) (value T, decided bool, err error) {
	c := &e.call
	if e.broken != nil {
		return value, true, e.broken
	}
	if p := b.counted(e); p != nil {
		e.problem = p
	} else if !e.claimed {
		e.run, e.problem = b.g.claim(b.ctx, &c.ask, &e.rec)
	}
	e.claimed = false
	if b.puts(e) {
		return value, false, nil
	}
	run, p := b.g.follow(b.ctx, &c.ask, e.until, &e.rec, e.run, e.problem)
	c.run = run
	switch {
	case run != nil:
		value, err = b.run(e)
	case p == nil:
		value, err = replayResult[T](c, &e.rec)
	case b.g.opens(p):
		defer c.decided(event.Bypassed, nil)
		value, err = b.fn(outside(b.ctx), e.i)
	default:
		value, err = refused[T](c, p)
	}
	return value, true, err
}

// puts puts an item off, once, if it would wait for another run while there are others to begin.
func (b *batch[T]) puts(e *entry) bool {
	a := &e.call.ask
	if e.putOff || e.problem != nil || e.run != nil || a.wait <= 0 ||
		!e.rec.Fingerprint.Equal(a.fingerprint) || e.rec.Reads(b.g.policy.OnLost) != driver.ReadsRunning {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e.again = b.taken < len(b.items) || len(b.later) > 0
	e.putOff = e.again
	return e.again
}

// run runs an item that was claimed.
func (b *batch[T]) run(e *entry) (value T, err error) {
	c := &e.call
	j := startJob(c.run, func(ctx context.Context) (T, error) { return b.fn(ctx, e.i) })
	e.ended = j.ended
	if err := j.wait(c); err != nil {
		return goesOnAlone[T](c, err)
	}
	if j.broken != nil {
		c.decided(event.Failed, nil)
		return value, j.broken
	}
	return j.result(c)
}
