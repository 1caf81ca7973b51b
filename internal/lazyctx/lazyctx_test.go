package lazyctx

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	errDue  = errors.New("due")
	errMine = errors.New("mine")
)

type (
	deadlineKey struct{}
	otherKey    struct{}
)

// twoContexts are a deadline and what the standard library makes of the same arguments.
type twoContexts struct {
	d        *Context
	std      context.Context
	endStd   func(error)
	endAbove context.CancelCauseFunc // of the parent
}

func newTwoContexts(parentAfter time.Duration) *twoContexts {
	above, cancel := context.WithCancelCause(context.WithValue(context.Background(), deadlineKey{}, "value"))
	endAbove := cancel
	if parentAfter > 0 {
		timed, stop := context.WithTimeout(above, parentAfter)
		above = timed
		endAbove = func(cause error) {
			cancel(cause)
			stop()
		}
	}
	c := &twoContexts{d: For(above, 10*time.Second), endAbove: endAbove}
	c.d.Cause = errDue
	causal, cancelStd := context.WithCancelCause(above)
	std, stop := context.WithDeadlineCause(causal, c.d.At, errDue)
	c.std = std
	c.endStd = func(cause error) {
		cancelStd(cause)
		stop()
	}
	return c
}

func (c *twoContexts) end(cause error) {
	c.d.End(cause)
	c.endStd(cause)
}

func isDone(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// Each way of looking at a context is tried as the first one, since it is the first that makes the real one.
var looks = map[string]func(context.Context) any{
	"Err":      func(ctx context.Context) any { return ctx.Err() },
	"Cause":    func(ctx context.Context) any { return context.Cause(ctx) },
	"Done":     func(ctx context.Context) any { return isDone(ctx) },
	"Value":    func(ctx context.Context) any { return ctx.Value(deadlineKey{}) },
	"no Value": func(ctx context.Context) any { return ctx.Value(0) },
	"Deadline": func(ctx context.Context) any {
		at, ok := ctx.Deadline()
		return [2]any{at, ok}
	},
	"child": func(ctx context.Context) any {
		child, cancel := context.WithCancel(ctx)
		defer cancel()
		return [3]any{isDone(child), child.Err(), context.Cause(child)}
	},
	"child with a deadline": func(ctx context.Context) any {
		child, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		at, _ := child.Deadline()
		return [3]any{child.Err(), context.Cause(child), at}
	},
	"child without cancellation": func(ctx context.Context) any {
		child := context.WithoutCancel(ctx)
		return [3]any{child.Err(), context.Cause(child), child.Value(deadlineKey{})}
	},
	"AfterFunc": func(ctx context.Context) any {
		ran := false
		stop := context.AfterFunc(ctx, func() { ran = true })
		synctest.Wait()
		stop()
		return ran
	},
}

// A deadline behaves as context.WithDeadlineCause within context.WithCancelCause, whatever happens to it and however it
// is looked at first.
func TestDeadlineIsLikeTheStandardContexts(t *testing.T) {
	t.Parallel()
	type events []func(*twoContexts)
	pass := func(d time.Duration) func(*twoContexts) { return func(*twoContexts) { time.Sleep(d) } }
	end := func(cause error) func(*twoContexts) { return func(c *twoContexts) { c.end(cause) } }
	above := func(c *twoContexts) { c.endAbove(errMine) }
	use := func(c *twoContexts) { c.d.Done() }
	for name, happens := range map[string]events{
		"nothing":                               {},
		"the time comes":                        {pass(10 * time.Second)},
		"the time has passed":                   {pass(time.Hour)},
		"it is ended":                           {end(nil)},
		"it is ended with a cause":              {end(errMine)},
		"it is ended twice":                     {end(nil), end(errMine)},
		"it is ended with two causes":           {end(errMine), end(errDue)},
		"it is ended, then the time comes":      {end(nil), pass(time.Hour)},
		"it is ended for a cause, then in time": {end(errMine), pass(time.Hour)},
		"the time comes, then it is ended":      {pass(time.Hour), end(nil)},
		"the time comes, then a cause":          {pass(time.Hour), end(errMine)},
		"its parent ends":                       {above},
		"its parent ends, then it":              {above, end(nil)},
		"its parent ends, then the time comes":  {above, pass(time.Hour)},
		"it is ended, then its parent":          {end(nil), above},
		"the time comes, then its parent ends":  {pass(time.Hour), end(nil), above},
		"in use, nothing":                       {use},
		"in use, the time comes":                {use, pass(time.Hour)},
		"in use, it is ended":                   {use, end(errMine)},
		"in use, it is ended, the time comes":   {use, end(nil), pass(time.Hour)},
		"in use, its parent ends":               {use, above},
	} {
		for _, parentAfter := range []time.Duration{0, 5 * time.Second, 2 * time.Hour} {
			for first, look := range looks {
				t.Run(name+"/"+parentAfter.String()+"/"+first, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						c := newTwoContexts(parentAfter)
						defer c.endAbove(nil)
						defer c.end(nil)
						for _, happen := range happens {
							happen(c)
							synctest.Wait()
						}
						if got, want := look(c.d), look(c.std); got != want {
							t.Errorf("%s is %v, want %v", first, got, want)
						}
						for second, look := range looks {
							if got, want := look(c.d), look(c.std); got != want {
								t.Errorf("after %s, %s is %v, want %v", first, second, got, want)
							}
						}
					})
				})
			}
		}
	}
}

// Whoever waits on a deadline, or on its child, is told why it ended.
func TestDeadlineTellsThoseWhoWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		end        func(*twoContexts)
		err, cause error
	}{
		{"by its time", func(*twoContexts) { time.Sleep(10 * time.Second) }, context.DeadlineExceeded, errDue},
		{"by its owner", func(c *twoContexts) { c.end(errMine) }, context.Canceled, errMine},
		{"as it is not needed", func(c *twoContexts) { c.end(nil) }, context.Canceled, context.Canceled},
		{"by its parent", func(c *twoContexts) { c.endAbove(errMine) }, context.Canceled, errMine},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				both := newTwoContexts(0)
				defer both.endAbove(nil)
				defer both.end(nil)
				child, cancel := context.WithCancel(both.d)
				defer cancel()
				var told atomic.Bool
				var wg sync.WaitGroup
				for _, ctx := range []context.Context{both.d, child, both.std} {
					wg.Go(func() { <-ctx.Done() })
				}
				go func() {
					wg.Wait()
					told.Store(true)
				}()
				synctest.Wait()
				if told.Load() {
					t.Fatal("it has ended before")
				}
				c.end(both)
				synctest.Wait()
				if !told.Load() {
					t.Fatal("nobody was told")
				}
				for _, ctx := range []context.Context{both.d, child, both.std} {
					if ctx.Err() != c.err || context.Cause(ctx) != c.cause {
						t.Errorf("ended by %v, %v; want %v, %v", ctx.Err(), context.Cause(ctx), c.err, c.cause)
					}
				}
			})
		})
	}
}

// Many look at a deadline while it is ended: what each has seen stays so.
func TestDeadlineIsUsedConcurrently(t *testing.T) {
	t.Parallel()
	for range 500 {
		parent, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		d := For(parent, 50*time.Microsecond)
		d.Cause = errDue
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				switch i {
				case 0:
					d.End(errMine)
				case 1:
					d.End(nil)
				case 2:
					cancel(errMine)
				case 3:
					<-d.Done()
				case 4:
					child, cancel := context.WithTimeout(d, time.Hour)
					<-child.Done()
					cancel()
				}
				var seen, cause error
				for range 20 {
					if err := d.Err(); seen == nil {
						seen = err
					} else if err != seen {
						t.Errorf("ended by %v, then by %v", seen, err)
					}
					if err := context.Cause(d); cause == nil {
						cause = err
					} else if err != cause {
						t.Errorf("caused by %v, then by %v", cause, err)
					}
					d.Value(deadlineKey{})
				}
			})
		}
		wg.Wait()
		if d.Err() == nil || context.Cause(d) == nil || !isDone(d) {
			t.Fatalf("ended by %v, %v, done %v", d.Err(), context.Cause(d), isDone(d))
		}
	}
}

// What it holds is found in it and in its children, and hides what its parents have under the key.
func TestAContextHoldsAValue(t *testing.T) {
	t.Parallel()
	above := context.WithValue(context.Background(), deadlineKey{}, "above")
	c := For(above, time.Hour)
	defer c.End(nil)
	if got := c.Value(deadlineKey{}); got != "above" {
		t.Errorf("it holds nothing, and has %v", got)
	}
	c.Key, c.Held = deadlineKey{}, "held"
	child, cancel := context.WithCancel(context.WithValue(c, otherKey{}, 1))
	defer cancel()
	for _, ctx := range []context.Context{c, child, For(child, time.Minute)} {
		if got := ctx.Value(deadlineKey{}); got != "held" {
			t.Errorf("found %v", got)
		}
	}
}
