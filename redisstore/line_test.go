package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An asker is a server for a line: it answers each key with itself in capitals.
type asker struct {
	reply func(ctx context.Context, keys []string) (any, error) // of a command for several; nil answers
	alone atomic.Int64
	sizes []int // of the commands for several
	mu    sync.Mutex
}

func (a *asker) line() *line {
	return &line{
		alone: func(ctx context.Context, q *question) (string, bool, error) {
			a.alone.Add(1)
			return strings.ToUpper(q.key), true, ctx.Err()
		},
		together: func(ctx context.Context, all []*waiter) (any, error) {
			a.mu.Lock()
			a.sizes = append(a.sizes, len(all))
			a.mu.Unlock()
			var keys []string
			for _, w := range all {
				keys = append(keys, w.key)
			}
			if a.reply != nil {
				return a.reply(ctx, keys)
			}
			return capitals(keys), nil
		},
	}
}

func capitals(keys []string) []any {
	var parts []any
	for _, key := range keys {
		parts = append(parts, strings.ToUpper(key))
	}
	return parts
}

// meet has n callers ask at the same time, and returns their errors when all have their answers.
func meet(ctx context.Context, t *testing.T, l *line, n int) []error {
	t.Helper()
	errs := make([]error, n)
	var all sync.WaitGroup
	wait := hold(t, l)
	for i := range n {
		all.Go(func() {
			key := fmt.Sprintf("key %d", i)
			text, ok, err := l.ask(ctx, question{key: key})
			if errs[i] = err; err == nil && (!ok || text != strings.ToUpper(key)) {
				t.Errorf("%s is answered %q, %t", key, text, ok)
			}
		})
	}
	wait(n)
	all.Wait()
	return errs
}

// hold takes all places for commands. The function that it returns gives one back when everybody waits, who have to be
// n. It needs the clock of synctest: by a real one callers wait for a place no longer than the moment called longest.
func hold(t *testing.T, l *line) (back func(n int)) {
	t.Helper()
	l.mu.Lock()
	l.underWay = mostUnderWay
	l.mu.Unlock()
	return func(n int) {
		t.Helper()
		synctest.Wait()
		l.mu.Lock()
		waiting := len(l.waiting)
		l.mu.Unlock()
		if waiting != n {
			t.Errorf("%d wait in line, want %d", waiting, n)
		}
		l.back()
	}
}

func TestWhoIsAloneAsksAlone(t *testing.T) {
	t.Parallel()
	a := &asker{}
	l := a.line()
	for range 3 {
		if text, ok, err := l.ask(t.Context(), question{key: "k"}); text != "K" || !ok || err != nil {
			t.Errorf("%q, %t, error %v", text, ok, err)
		}
	}
	if a.alone.Load() != 3 || len(a.sizes) != 0 {
		t.Errorf("%d went alone, and %v together", a.alone.Load(), a.sizes)
	}
}

func TestWhoMeetGoTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &asker{}
		for _, err := range meet(t.Context(), t, a.line(), 2*mostTogether+3) {
			if err != nil {
				t.Error(err)
			}
		}
		if slices.Sort(a.sizes); a.alone.Load() != 0 || !slices.Equal(a.sizes, []int{3, mostTogether, mostTogether}) {
			t.Errorf("%d went alone, and %v together", a.alone.Load(), a.sizes)
		}
	})
}

func TestALargeFrameGoesAlone(t *testing.T) {
	t.Parallel()
	a := &asker{}
	l := a.line()
	hold(t, l)
	if _, _, err := l.ask(t.Context(), question{key: "k", frame: strings.Repeat("x", aloneBytes)}); err != nil || a.alone.Load() != 1 {
		t.Errorf("%d went alone, error %v", a.alone.Load(), err)
	}
}

// A null is an answer. Another type is none.
func TestEachPartIsForItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &asker{reply: func(context.Context, []string) (any, error) {
			return []any{nil, "text", []byte("bytes"), int64(1)}, nil
		}}
		l := a.line()
		got := make([]string, 4)
		var all sync.WaitGroup
		send := hold(t, l)
		for i := range got {
			all.Go(func() {
				text, ok, err := l.ask(context.Background(), question{key: "alone"})
				got[i] = fmt.Sprint(text, " ", ok, " ", err)
			})
			synctest.Wait() // in turn
		}
		send(len(got))
		all.Wait()
		if want := []string{" false <nil>", "text true <nil>", "bytes true <nil>", "ALONE true <nil>"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// Whatever becomes of a command for several, each of them has an answer; and for a moment nobody tries again.
func TestWhereTheCommandForSeveralFailsEachAsksAlone(t *testing.T) {
	t.Parallel()
	for what, reply := range map[string]func(ctx context.Context, keys []string) (any, error){
		"an error": func(context.Context, []string) (any, error) {
			return nil, errors.New("CROSSSLOT Keys in request don't hash")
		},
		"too few":        func(context.Context, []string) (any, error) { return []any{"x"}, nil },
		"another type":   func(context.Context, []string) (any, error) { return "x", nil },
		"a panic":        func(context.Context, []string) (any, error) { panic("the client is broken") },
		"a lost routine": func(context.Context, []string) (any, error) { runtime.Goexit(); return nil, nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &asker{reply: reply}
			l := a.line()
			for _, err := range meet(t.Context(), t, l, 5) {
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			hold(t, l)
			if _, _, err := l.ask(t.Context(), question{key: "k"}); err != nil || a.alone.Load() != 6 || len(a.sizes) != 1 {
				t.Errorf("%s: %d went alone, and %v together, error %v", what, a.alone.Load(), a.sizes, err)
			}
			time.Sleep(apartFor)
			synctest.Wait()
			a.reply = nil
			meet(t.Context(), t, l, 2)
			if len(a.sizes) != 2 {
				t.Errorf("%s: later too nobody goes together", what)
			}
		})
	}
}

// Who leaves does not wait for the others, nor they for it. When all have left, the command ends.
func TestACallerLeavesTheLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended, open := false, make(chan struct{})
		a := &asker{reply: func(ctx context.Context, keys []string) (any, error) {
			select {
			case <-ctx.Done():
				ended = true
				return nil, ctx.Err()
			case <-open:
				return capitals(keys), nil
			}
		}}
		l := a.line()
		ask := func() (leave func(), left chan error) {
			ctx, cancel := context.WithCancel(t.Context())
			left = make(chan error, 1)
			go func() {
				_, _, err := l.ask(ctx, question{key: "k"})
				left <- err
			}()
			synctest.Wait()
			return cancel, left
		}
		gone := func(what string, left chan error, want error) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-left:
				if !errors.Is(err, want) {
					t.Errorf("%s: error %v", what, err)
				}
			default:
				t.Errorf("%s waits", what)
			}
		}
		send := hold(t, l)
		leave1, left1 := ask()
		leave2, left2 := ask()
		leave3, left3 := ask()
		leave4, left4 := ask()
		leave1()
		gone("who left before it was sent", left1, context.Canceled)
		send(3)
		leave2()
		gone("who left the command", left2, context.Canceled)
		leave3()
		gone("another", left3, context.Canceled)
		if ended {
			t.Error("the command has ended with somebody in it")
		}
		leave4()
		gone("the last", left4, context.Canceled)
		if !ended {
			t.Error("the command goes on for nobody")
		}
		time.Sleep(apartFor)
		synctest.Wait()
		send = hold(t, l)
		leave1, left1 = ask()
		leave2, left2 = ask()
		defer leave2()
		send(2)
		leave1()
		gone("who left", left1, context.Canceled)
		close(open)
		gone("who stayed", left2, nil)
	})
}

// A place is never lost, and who waits for one gets it: also if the one who got it before has left, and if nothing that
// is under way comes back.
func TestPlacesInTheLineAreHandedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &asker{}
		l := a.line()
		back := hold(t, l)
		begun := time.Now()
		meetNobody := func(n int) (ended *sync.WaitGroup) {
			ended = &sync.WaitGroup{}
			for range n {
				ended.Go(func() {
					if text, _, err := l.ask(t.Context(), question{key: "k"}); text != "K" || err != nil {
						t.Errorf("%q, error %v", text, err)
					}
				})
			}
			synctest.Wait()
			return ended
		}
		ended := meetNobody(1)
		back(1)
		ended.Wait()
		if l.underWay != mostUnderWay-1 || a.alone.Load() != 1 || time.Now() != begun {
			t.Errorf("one has waited %s; %d went alone, and %d places are taken", time.Since(begun), a.alone.Load(), l.underWay)
		}

		back = hold(t, l)
		ctx, leave := context.WithCancel(t.Context())
		w := l.enter(&question{key: "left"})
		back(1) // and the place is its own
		leave()
		if l.wait(ctx, w) {
			l.back() // it had its turn before it left
		}
		if l.underWay != mostUnderWay-1 {
			t.Errorf("after one has left %d places are taken", l.underWay)
		}

		hold(t, l)
		meetNobody(3).Wait()
		if waited := time.Since(begun); waited != longest || !slices.Equal(a.sizes, []int{3}) {
			t.Errorf("where nothing came back they waited %s, and %v went together", waited, a.sizes)
		}
		synctest.Wait()
		if l.underWay != mostUnderWay {
			t.Errorf("%d places are taken in the end", l.underWay)
		}
	})
}
