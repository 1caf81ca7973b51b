package linear

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/semelhq/semel/driver"
)

// ErrUndecided means that the search for an order did not come to an end in time.
var ErrUndecided = errors.New("linearizability undecided")

// patience is how long the search may take for one record; what has an order has it in milliseconds.
const patience = time.Minute

// A Violation is a record whose verbs have no order that gives the replies that they gave.
type Violation struct {
	ID driver.ID
	// Picture is a file, in HTML, that shows the verbs in time and how far they can be brought into an order.
	Picture string

	operations []porcupine.Operation // those that it takes, by call
}

// Check looks for an order for each record, and returns a [*Violation] of the first one that has none, with a picture
// written to the folder, or an error that wraps [ErrUndecided].
func (t *Trace) Check(folder string) error { return t.check(folder, patience) }

func (t *Trace) check(folder string, patience time.Duration) error {
	spec := specification()
	for _, id := range t.ids() {
		operations := t.records[id]
		switch porcupine.CheckOperationsTimeout(spec, operations, patience) {
		case porcupine.Unknown:
			return fmt.Errorf("record %s, with %d verbs: %w", id, len(operations), ErrUndecided)
		case porcupine.Illegal:
			v := &Violation{ID: id, operations: shrunk(spec, operations, patience)}
			if err := v.draw(spec, folder, patience); err != nil {
				return errors.Join(v, err)
			}
			return v
		}
	}
	return nil
}

func (v *Violation) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "record %s is not linearizable: in no order do these verbs give these replies", v.ID)
	if v.Picture != "" {
		fmt.Fprintf(&b, " (picture: %s)", v.Picture)
	}
	const most = 40
	told := v.operations
	if len(told) > most {
		fmt.Fprintf(&b, "\n\t… %d verbs before", len(told)-most)
		told = told[len(told)-most:]
	}
	for _, o := range told {
		c, r := o.Input.(call), o.Output.(reply)
		until := "?"
		if !r.lost {
			until = fmt.Sprint(o.Return)
		}
		fmt.Fprintf(&b, "\n\t%6d – %6s  client %d: %s", o.Call, until, o.ClientId, exchange(c, r))
	}
	if len(told) > 0 {
		if last := told[len(told)-1].Output.(reply).rec; last.State != driver.Absent {
			last.Response = nil
			fmt.Fprintf(&b, "\n\tthe last record: %+v", last)
		}
	}
	return b.String()
}

func (v *Violation) draw(spec porcupine.Model, folder string, patience time.Duration) error {
	_, info := porcupine.CheckOperationsVerbose(spec, v.operations, patience)
	f, err := os.CreateTemp(folder, "linear-*.html")
	if err != nil {
		return fmt.Errorf("draw a picture: %w", err)
	}
	if err := porcupine.Visualize(spec, info, f); err != nil {
		f.Close() //nolint:errcheck // it is of no use
		return fmt.Errorf("draw a picture: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("draw a picture: %w", err)
	}
	v.Picture = f.Name()
	return nil
}

// shrunk returns fewer operations that have no order either: up to the first reply that leaves none, and without the
// verbs that changed nothing, unless they are what can't be.
func shrunk(spec porcupine.Model, operations []porcupine.Operation, patience time.Duration) []porcupine.Operation {
	illegal := func(some []porcupine.Operation) bool {
		return porcupine.CheckOperationsTimeout(spec, some, patience) == porcupine.Illegal
	}
	var replies []int64
	for _, o := range operations {
		if o.Return != never {
			replies = append(replies, o.Return)
		}
	}
	slices.Sort(replies)
	// Whatever has an order has one up to any moment.
	first, _ := slices.BinarySearchFunc(replies, true, func(at int64, _ bool) int {
		if illegal(before(operations, at)) {
			return 0
		}
		return -1
	})
	if first == len(replies) {
		return operations
	}
	operations = before(operations, replies[first])
	for i := len(operations) - 1; i >= 0; i-- {
		if fewer := slices.Delete(slices.Clone(operations), i, i+1); idle(operations[i]) && illegal(fewer) {
			operations = fewer
		}
	}
	return operations
}

// before returns the operations as they were known at a moment, by call.
func before(operations []porcupine.Operation, at int64) (known []porcupine.Operation) {
	for _, o := range operations {
		if o.Call > at {
			continue
		}
		if o.Return > at {
			o.Output, o.Return = reply{lost: true}, never
		}
		known = append(known, o)
	}
	slices.SortFunc(known, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	return known
}

// idle reports whether a verb says that it changed nothing, copies included. Without it, what has an order still has
// one.
func idle(o porcupine.Operation) bool {
	c, r := o.Input.(call), o.Output.(reply)
	switch {
	case r.lost, c.verb == drop, c.layers:
		return c.verb == load
	case c.verb == seize:
		return r.rec.Token != c.token
	}
	return !r.owned
}
