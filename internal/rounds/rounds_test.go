package rounds

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/pause"
)

// few lists records that have nothing but an id and the time since which they are due.
type few map[driver.ID]driver.Time

func (l few) List(_ context.Context, _ driver.Query, yield func(driver.ID, driver.Record) bool) error {
	for id, since := range l {
		if !yield(id, driver.Record{Settled: since, Now: driver.TimeOf(time.Now())}) {
			break
		}
	}
	return nil
}

func numbered(n int) (id driver.ID) {
	binary.BigEndian.PutUint64(id[:], uint64(n)+1)
	return id
}

// newFew returns rounds over so many records, one second from one look to the next.
func newFew(n int, s Settings) (*Rounds, few) {
	l := few{}
	for i := range n {
		l[numbered(i)] = driver.Time(i)
	}
	s.Lister, s.Listing = l, time.Minute
	if s.Due == nil {
		s.Due = func(_ driver.ID, rec *driver.Record, _ uint64) (driver.Time, bool) { return rec.Settled, true }
	}
	s.Concurrency, s.Most = max(s.Concurrency, 1), max(s.Most, 16)
	s.Delay = func(tries int) time.Duration { return pause.Backoff(time.Second, time.Hour, tries) }
	s.Rest = func(time.Duration, bool) time.Duration { return time.Second }
	if s.Looked == nil {
		s.Looked = func(context.Context, error) {}
	}
	return New(s), l
}

// start starts rounds in a synctest bubble; stop ends them.
func start(t *testing.T, r *Rounds) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// However much is due and fails, memory is bounded, and everything comes to its turn.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most, kept = 16, 16 * 16
		const due = kept + 8*most
		r, l := newFew(due, Settings{Most: most})
		r.kept = kept
		tried := map[driver.ID]int{}
		r.Do = func(_ context.Context, o Operation) (bool, uint64) {
			tried[o.ID]++
			return true, 0
		}
		rounds := 0
		for ; rounds < 400 && len(tried) < due; rounds++ {
			list, more := r.look(t.Context())
			if len(list) > most || more && len(r.memories) == kept {
				t.Fatalf("%d are due at once, more: %v", len(list), more)
			}
			for _, d := range list {
				r.begin(t.Context(), d.Operation)
				r.end(<-r.ended)
			}
			time.Sleep(time.Millisecond)
		}
		if len(r.memories) != kept || r.doing != 0 || len(tried) != due {
			t.Errorf("%d are remembered, %d are being done; %d of %d were tried in %d rounds", len(r.memories), r.doing, len(tried), due, rounds)
		}
		clear(l)
		if r.look(t.Context()); len(r.memories) != 0 {
			t.Errorf("%d that are gone are remembered", len(r.memories))
		}
	})
}

func TestAFailureRestsTwiceAsLongEachTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var tried []time.Duration
		r, _ := newFew(1, Settings{Do: func(context.Context, Operation) (bool, uint64) {
			tried = append(tried, time.Since(began))
			return len(tried) != 6, 0
		}})
		stop := start(t, r)
		time.Sleep(4000 * time.Second)
		stop()
		s := time.Second
		// The sixth succeeds; from then on it counts anew.
		if want := []time.Duration{0, s, 3 * s, 7 * s, 15 * s, 31 * s, 32 * s, 33 * s, 35 * s}; !slices.Equal(tried[:len(want)], want) {
			t.Errorf("tried at %v, want %v first", tried, want)
		}
	})
}

func TestTheOldestAreDoneFirstAndOnlySoManyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var (
			mu        sync.Mutex
			now, most int
			order     []driver.ID
		)
		r, l := newFew(40, Settings{Concurrency: 4, Do: func(_ context.Context, o Operation) (bool, uint64) {
			mu.Lock()
			now++
			most = max(most, now)
			order = append(order, o.ID)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			now--
			return false, 0
		}})
		stop := start(t, r)
		time.Sleep(3500 * time.Millisecond) // four times four are begun
		stop()
		if most != 4 || len(order) != 16 {
			t.Errorf("%d of %d were done at once", most, len(order))
		}
		for i, id := range order {
			if place := int(l[id]); place/4 != i/4 { // of four at once any may be first
				t.Errorf("the one that is due as number %d is done as number %d", place, i)
			}
		}
	})
}

func TestWhatSomebodyWaitsForIsDoneFirstButNotAgainAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var done []driver.ID
		waited := numbered(100)
		r, _ := newFew(10, Settings{Least: 50 * time.Second, Do: func(_ context.Context, o Operation) (bool, uint64) {
			done = append(done, o.ID)
			time.Sleep(time.Second)
			return o.ID == waited, 0
		}})
		stop := start(t, r)
		time.Sleep(time.Second / 2)
		r.Tell(Operation{ID: waited})
		time.Sleep(time.Second)
		r.Tell(Operation{ID: waited}) // it is being done
		time.Sleep(2 * time.Minute / 3)
		r.Tell(Operation{ID: waited})
		time.Sleep(time.Minute / 3)
		synctest.Wait()
		if len(done) < 2 || done[1] != waited || times(done, waited) != 1 {
			t.Errorf("done are %v, want the one that somebody waits for as the second, and once", done)
		}
		r.Tell(Operation{ID: waited})
		time.Sleep(time.Second)
		stop()
		if times(done, waited) != 2 {
			t.Error("it is not done again though its least rest is over")
		}
	})
}

func TestWhatSomebodyWaitsForIsNotDoneAgainForTheLookThatHasFoundItToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var done []driver.ID
		r, _ := newFew(3, Settings{Do: func(_ context.Context, o Operation) (bool, uint64) {
			done = append(done, o.ID)
			time.Sleep(100 * time.Millisecond)
			return true, 0
		}})
		stop := start(t, r)
		time.Sleep(50 * time.Millisecond)
		r.Tell(Operation{ID: numbered(1)}) // while the first is being done
		time.Sleep(700 * time.Millisecond)
		stop()
		if want := []driver.ID{numbered(0), numbered(1), numbered(2)}; !slices.Equal(done, want) {
			t.Errorf("done are %v, want %v", done, want)
		}
	})
}

// A listing may show a record twice, records of the store's own, and those that are not due yet.
func TestOnlyWhatIsDueIsFoundAndOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, l := newFew(1, Settings{})
		l[driver.ID{}] = 0
		l[numbered(1)] = driver.TimeOf(time.Now()).Add(time.Second)
		r.Lister = twice{l}
		if found, more := r.look(t.Context()); len(found) != 1 || found[0].ID != numbered(0) || more {
			t.Errorf("found %v, more: %v", found, more)
		}
		time.Sleep(time.Second)
		if found, _ := r.look(t.Context()); len(found) != 2 || found[1].ID != numbered(1) {
			t.Errorf("found %v once the second was due", found)
		}
	})
}

type twice struct{ few }

func (l twice) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
	return l.few.List(ctx, q, func(id driver.ID, rec driver.Record) bool {
		again := yield(id, rec)
		return again && yield(id, rec)
	})
}

func times(list []driver.ID, id driver.ID) (n int) {
	for _, other := range list {
		if other == id {
			n++
		}
	}
	return n
}

func TestTellingNeverBlocks(t *testing.T) {
	t.Parallel()
	r, _ := newFew(0, Settings{})
	for i := range 10 * maxTold {
		r.Tell(Operation{ID: numbered(i)})
	}
	if len(r.told) != maxTold {
		t.Errorf("%d are noted, want %d", len(r.told), maxTold)
	}
}

func TestDueIsToldTheFenceOfTheLastTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen []uint64
		fences := []uint64{7, 0, 9}
		r, _ := newFew(1, Settings{
			Due: func(_ driver.ID, rec *driver.Record, fence uint64) (driver.Time, bool) {
				rec.Operation = "a name in the clear"
				seen = append(seen, fence)
				return 0, true
			},
			Do: func(_ context.Context, o Operation) (bool, uint64) {
				if o.Name != "a name in the clear" {
					t.Errorf("it is done as %q", o.Name)
				}
				fence := fences[0]
				fences = fences[1:]
				return len(fences) > 0, fence
			},
		})
		stop := start(t, r)
		time.Sleep(3500 * time.Millisecond)
		stop()
		// Done at once, after 1 s and after 2 s more; a try that raised none leaves the last one.
		if want := []uint64{0, 7, 7, 7}; !slices.Equal(seen, want) || len(fences) != 0 {
			t.Errorf("told %v, want %v", seen, want)
		}
	})
}

func TestADoThatEndsItsGoroutineWasInVain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r, _ := newFew(1, Settings{Do: func(context.Context, Operation) (bool, uint64) {
			tries++
			runtime.Goexit()
			return false, 0
		}})
		stop := start(t, r)
		time.Sleep(6500 * time.Millisecond)
		stop()
		if tries != 3 {
			t.Errorf("tried %d times in 6 s, want 3: at once, after 1 s and after 2 s more", tries)
		}
	})
}

// The end waits for what is under way, and is told to it.
func TestRoundsEndWithWhatTheyHaveBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var left atomic.Int32
		r, _ := newFew(10, Settings{Concurrency: 3, Do: func(ctx context.Context, _ Operation) (bool, uint64) {
			<-ctx.Done()
			time.Sleep(time.Second)
			left.Add(1)
			return true, 0
		}})
		stop := start(t, r)
		time.Sleep(time.Minute)
		stop()
		if n := left.Load(); n != 3 {
			t.Errorf("%d have ended, want the 3 that were begun", n)
		}
	})
}

type brokenLister struct {
	few
	err error
}

func (l brokenLister) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
	return errors.Join(l.few.List(ctx, q, yield), l.err)
}

// A look that has failed does not show that an operation is gone.
func TestAFailedLookForgetsNothing(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for _, c := range []struct {
		err  error
		kept int
	}{{down, 1}, {driver.ErrUnreadable, 0}, {nil, 0}} {
		synctest.Test(t, func(t *testing.T) {
			var told []error
			r, l := newFew(1, Settings{
				Do:     func(context.Context, Operation) (bool, uint64) { return true, 0 },
				Looked: func(_ context.Context, err error) { told = append(told, err) },
			})
			r.begin(t.Context(), Operation{ID: numbered(0)})
			r.end(<-r.ended)
			clear(l)
			r.Lister = brokenLister{l, c.err}
			r.look(t.Context())
			if len(r.memories) != c.kept || len(told) != 1 || !errors.Is(told[0], c.err) {
				t.Errorf("%v: %d are remembered, want %d; told %v", c.err, len(r.memories), c.kept, told)
			}
		})
	}
}
