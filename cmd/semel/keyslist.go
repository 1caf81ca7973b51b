package main

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/internal/secret"
	"github.com/semelhq/semel/driver"
)

// list prints the operations that the flags select, in order.
func (k *keysRun) list(ctx context.Context, c *keysList) error {
	q := driver.Query{Operation: c.Operation, Reading: readingNamed(c.State)}
	scope, err := c.given()
	if err != nil {
		return err
	}
	recent, err := since(c.Since)
	if err != nil {
		return usageError{err}
	}
	if scope != "" {
		identitySecret, err := secret.Find(ctx, k.opened, k.secretFile)
		if err != nil {
			return err
		}
		s := semel.Identify(identitySecret, semel.Kind(c.Kind), scope, "").Scope()
		q.Scope = &s
	}
	found, failed := k.collect(ctx, q, recent, c.Limit, orders[c.Order])
	if failed != nil && found.total == 0 {
		return failed
	}
	return errors.Join(k.printAll(found), failed) // some could be listed, others not
}

// collect reads all that a query selects, and returns so many of them, in order.
func (k *keysRun) collect(ctx context.Context, q driver.Query, recent func(*driver.Record) bool, limit int, order func(a, b *listed) int) (*listing, error) {
	found := &listing{order: order, limit: limit}
	err := k.desk.List(ctx, q, func(id driver.ID, rec driver.Record) bool {
		if recent(&rec) {
			found.add(id, &rec)
		}
		return true
	})
	return found, err
}

// printAll prints a listing, and says how much of it is left out.
func (k *keysRun) printAll(l *listing) error {
	views := l.sorted()
	var err error
	if k.json {
		err = printJSON(k.Stdout, views)
	} else {
		err = printTable(k.Stdout, views)
	}
	if err == nil && l.total > len(views) {
		fmt.Fprintf(k.Stderr, "Listed are %d of %d: narrow it down, or raise --limit.\n", len(views), l.total)
	}
	return err
}

// A listed operation is one line of a listing.
type listed struct {
	id      driver.ID
	started driver.Time
	view    operationView
}

// orders are those in which operations are listed. What ran at the same time is in the order of ids.
var orders = map[string]func(a, b *listed) int{
	"newest": func(a, b *listed) int { return cmp.Or(cmp.Compare(b.started, a.started), byID(a, b)) },
	"oldest": func(a, b *listed) int { return cmp.Or(cmp.Compare(a.started, b.started), byID(a, b)) },
	"id":     byID,
}

// byID compares texts, as people and sort(1) do: base64url is not in the order of the bytes.
func byID(a, b *listed) int { return cmp.Compare(a.view.ID, b.view.ID) }

// A listing keeps those of the operations added to it that come first in an order, and no more than its limit: a store
// may hold more than fits into memory.
type listing struct {
	order func(a, b *listed) int
	limit int // 0 keeps all
	total int // of all that were added
	last  lastFirst
}

func (l *listing) add(id driver.ID, rec *driver.Record) {
	l.total++
	l.last.order = l.order
	heap.Push(&l.last, &listed{id, rec.Started, viewOf(id, rec, false)})
	if l.limit > 0 && l.last.Len() > l.limit {
		heap.Pop(&l.last)
	}
}

// sorted returns what was kept, in order, and empties the listing.
func (l *listing) sorted() []operationView {
	views := make([]operationView, l.last.Len())
	for i := len(views) - 1; i >= 0; i-- {
		views[i] = heap.Pop(&l.last).(*listed).view
	}
	return views
}

// lastFirst is a heap on whose top is what comes last.
type lastFirst struct {
	order func(a, b *listed) int
	items []*listed
}

func (h *lastFirst) Len() int           { return len(h.items) }
func (h *lastFirst) Less(i, j int) bool { return h.order(h.items[i], h.items[j]) > 0 }
func (h *lastFirst) Swap(i, j int)      { h.items[i], h.items[j] = h.items[j], h.items[i] }
func (h *lastFirst) Push(x any)         { h.items = append(h.items, x.(*listed)) }
func (h *lastFirst) Pop() any {
	end := len(h.items) - 1
	x := h.items[end]
	h.items[end] = nil
	h.items = h.items[:end]
	return x
}

// since reads --since, and returns what tells whether an operation's last run began since then.
func since(text string) (func(*driver.Record) bool, error) {
	if text == "" {
		return func(*driver.Record) bool { return true }, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return func(rec *driver.Record) bool { return rec.Now.Sub(rec.Started) <= d }, nil // on the store's clock
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, fmt.Errorf("--since %q: want how long ago, such as 90m or 24h, or an instant, such as 2026-11-29T08:30:00Z", text)
	}
	return func(rec *driver.Record) bool { return rec.Started >= driver.TimeOf(at) }, nil
}
