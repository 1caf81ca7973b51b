package semel_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// throwingStore panics in the verbs that are named, after they were executed; or instead.
type throwingStore struct {
	*memstore.Store
	verbs   atomic.Value // string
	instead bool
	thrown  atomic.Int64
	throw   func()
}

func (s *throwingStore) on(verbs string) *throwingStore { s.verbs.Store(verbs); return s }

// armed is deferred, and called, by each verb.
func (s *throwingStore) armed(verb string, executed bool) {
	if strings.Contains(s.verbs.Load().(string), verb) && executed != s.instead {
		s.thrown.Add(1)
		s.throw()
	}
}

func (s *throwingStore) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	s.armed("claim", false)
	defer s.armed("claim", true)
	return s.Store.Claim(ctx, id, c)
}

func (s *throwingStore) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	s.armed("extend", false)
	defer s.armed("extend", true)
	return s.Store.Extend(ctx, id, by, x)
}

func (s *throwingStore) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	s.armed("settle", false)
	defer s.armed("settle", true)
	return s.Store.Settle(ctx, id, by, o)
}

func (s *throwingStore) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	s.armed("load", false)
	defer s.armed("load", true)
	return s.Store.Load(ctx, id)
}

func (s *throwingStore) Sweep(ctx context.Context, limit int) (int, error) {
	s.armed("sweep", false)
	defer s.armed("sweep", true)
	return s.Store.Sweep(ctx, limit)
}

func (s *throwingStore) Wake(context.Context, func(driver.ID)) error {
	s.armed("wake", false)
	defer s.armed("wake", true)
	return errors.ErrUnsupported
}

// forADay is a policy with a short lease and the default retention.
func forADay(onLost semel.LostPolicy) semel.Policy {
	p := shortLease(onLost)
	p.Retention = driver.DefaultRetention
	return p
}

// Whatever verb of a store throws, wherever the guard calls it: the process lives, there is one effect at most, and an
// hour after the store was mended no key is stuck and nothing is left to wait for.
func TestField08_AVerbThatThrowsHasGivenNoReply(t *testing.T) {
	t.Parallel()
	for _, verbs := range []string{"claim", "extend", "settle", "load", "sweep", "wake", "claim extend settle load sweep wake"} {
		for _, instead := range []bool{false, true} {
			for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
				t.Run(fmt.Sprintf("%s, instead %v, %v", verbs, instead, onLost), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						s := &throwingStore{Store: memstore.New(), instead: instead, throw: func() { panic(errThrown) }}
						s.on(verbs)
						p := forADay(onLost)
						p.Wait = 2 * briefLease // so that repeats look into the store
						g, seen := newGuard(t, s, p)
						ctx, stop := context.WithCancel(t.Context())
						ended := make(chan error, 1)
						go func() { ended <- g.Run(ctx) }()
						var l ledger
						first := serve(g.Wrap(paused(&l, 2*briefLease)), post("k", `{}`))
						synctest.Wait()
						repeat := serve(g.Wrap(paused(&l, 2*briefLease)), post("k", `{}`))
						first.answer()
						repeat.answer()
						time.Sleep(2 * time.Minute) // and two sweeps
						if s.thrown.Load() == 0 || seen.count(event.StoreError) == 0 {
							t.Errorf("%d verbs have thrown, %d were reported", s.thrown.Load(), seen.count(event.StoreError))
						}
						s.on("")
						time.Sleep(time.Hour)
						w := answer(g.Wrap(paused(&l, 0)), post("k", `{}`))
						if refusalCode(w) == refusal.InProgress || l.count() > 1 && onLost == semel.Hold {
							t.Errorf("an hour later answered %d %s, after %d effects", w.Code, w.Body, l.count())
						}
						if w := answer(g.Wrap(paused(&l, 0)), post("another", `{}`)); w.Code != http.StatusCreated {
							t.Errorf("another key is answered with %d %s", w.Code, w.Body)
						}
						stop()
						if err := <-ended; !errors.Is(err, context.Canceled) {
							t.Errorf("Run returned %v, want the end of its context", err)
						}
						drained(t, g)
					})
				})
			}
		}
	}
}

// A claim that was executed, and whose reply was thrown away, is sent again with the same token, or released: its key
// does not read unknown because of a run that never started.
func TestField08_AClaimThatThrowsIsSentAgainOrReleased(t *testing.T) {
	t.Parallel()
	for name, throw := range map[string]func(){"panic": func() { panic(errThrown) }, "goexit": runtime.Goexit} {
		for throws := range 4 {
			t.Run(fmt.Sprint(name, " ", throws), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					mem := memstore.New()
					left := throws
					f := &faulty{Store: mem}
					f.claim = func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
						rec, owned, err := mem.Claim(ctx, id, c)
						if left--; left >= 0 {
							throw()
						}
						return rec, owned, err
					}
					g, _ := newGuard(t, f, forADay(semel.Hold))
					var l ledger
					h := g.Wrap(http.HandlerFunc(l.pay))
					s := serve(h, post("k", `{}`))
					w := s.answer()
					switch {
					case throws == 0, name == "panic" && throws < 3:
						checkRun(t, w)
					case name == "panic":
						wantProblem(t, w, http.StatusServiceUnavailable, refusal.StoreUnavailable)
					case !s.exited:
						t.Errorf("answered %d, want the goroutine's end", w.Code)
					}
					left = 0
					time.Sleep(time.Hour)
					answer(h, post("k", `{}`))
					checkReplay(t, answer(h, post("k", `{}`)))
					if l.count() != 1 {
						t.Errorf("%d effects, want 1", l.count())
					}
					drained(t, g)
				})
			})
		}
	}
}

// An observer that throws changes nothing: requests are answered, runs end, and the process lives, whichever goroutine
// tells it of whatever.
func TestField08_AnObserverThatThrowsChangesNothing(t *testing.T) {
	t.Parallel()
	for _, verbs := range []string{"", "claim", "extend", "settle", "load", "sweep"} {
		t.Run(verbs, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				play := func(o event.Observer) (answers []string) {
					f := (&throwingStore{Store: memstore.New(), throw: func() { panic(errThrown) }}).on("")
					g, _ := newGuardWith(t, f, semel.Options{Policy: forADay(semel.Rerun), Observer: o})
					var l ledger
					tell := func(s *served) {
						w := s.answer()
						answers = append(answers, fmt.Sprint(w.Code, " ", refusalCode(w), " ", s.thrown, " ", l.count()))
					}
					tell(serve(g.Wrap(http.HandlerFunc(l.pay)), post("before", `{}`)))
					f.on(verbs)
					tell(serve(g.Wrap(paused(&l, 2*briefLease)), post("k", `{}`)))
					tell(serve(g.Wrap(panics), post("panics", `{}`)))
					tell(serve(g.Wrap(http.HandlerFunc(l.pay)), post("", `{}`)))
					time.Sleep(time.Hour)
					f.on("")
					tell(serve(g.Wrap(http.HandlerFunc(l.pay)), post("k", `{}`)))
					tell(serve(g.Wrap(http.HandlerFunc(l.pay)), post("panics", `{}`)))
					drained(t, g)
					return answers
				}
				quiet, startled := play(&events{}), play(observerFunc(func(event.Event) { panic(errThrown) }))
				if got, want := strings.Join(startled, "\n"), strings.Join(quiet, "\n"); got != want {
					t.Errorf("with an observer that throws:\n%s\nwant\n%s", got, want)
				}
			})
		})
	}
}

type observerFunc func(event.Event)

func (f observerFunc) Observe(_ context.Context, e event.Event) { f(e) }

var panics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(errThrown) })

// A breaker that throws is as none: what it throws about a claim that was executed leaves no run without an end.
func TestField08_ABreakerThatThrowsIsAsNone(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]throwingBreaker{"when asked": {}, "when told": {allows: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, seen := newGuardWith(t, nil, semel.Options{Breaker: b, Operations: operationsPath})
			var l ledger
			h := g.Wrap(http.HandlerFunc(l.pay))
			checkRun(t, answer(h, post("k", `{}`)))
			checkReplay(t, answer(h, post("k", `{}`)))
			statusOf(t, answer(g.Operations(), about("", "Idempotency-Key", "k")), http.StatusOK)
			if l.count() != 1 || seen.count(event.StoreError) != 3 {
				t.Errorf("%d effects, reported %d times", l.count(), seen.count(event.StoreError))
			}
			drained(t, g)
		})
	}
}

type throwingBreaker struct{ allows bool }

func (b throwingBreaker) Allow() (func(error), error) {
	if b.allows {
		return func(error) { panic(errThrown) }, nil
	}
	panic(errThrown)
}

// What a hook throws before the claim goes to whoever called the guard, and leaves nothing behind.
func TestField08_AHookThatThrowsLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	throws := func() { panic(errThrown) }
	for name, tc := range map[string]struct {
		p semel.Policy
		o semel.Options
		r *http.Request
	}{
		"mint":         {semel.Policy{KeyHeaders: []string{"X-Key"}, Mint: func(*http.Request, []byte) (string, error) { throws(); return "", nil }}, semel.Options{}, post("", strings.Repeat("x", 100))},
		"key format":   {semel.Policy{KeyFormat: semel.KeyFormat{Check: func(string) error { throws(); return nil }}}, semel.Options{}, post("k", `{}`)},
		"authorize":    {semel.Policy{AuthorizeReplay: func(*http.Request) error { throws(); return nil }}, semel.Options{}, post("k", `{}`)},
		"problem":      {semel.Policy{}, semel.Options{Problems: semel.ProblemOptions{Write: func(http.ResponseWriter, *http.Request, *semel.Problem) { throws() }}}, post("", `{}`)},
		"observe, too": {semel.Policy{ObserveOnly: true, AuthorizeReplay: func(*http.Request) error { throws(); return nil }}, semel.Options{}, post("k", `{}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := memstore.New()
			first, _ := newGuard(t, s, semel.Policy{})
			checkRun(t, answer(first.Wrap(http.HandlerFunc((&ledger{}).pay)), post("k", `{}`)))
			tc.o.TempDir = t.TempDir()
			tc.p.SpoolRequestAbove = 1
			tc.o.Policy = tc.p
			g, seen := newGuardWith(t, s, tc.o)
			var l ledger
			sent := serve(g.Wrap(http.HandlerFunc(l.pay)), tc.r)
			w := sent.answer()
			if tc.p.ObserveOnly {
				checkRun(t, w)
			} else if sent.thrown != errThrown || l.count() != 0 {
				t.Errorf("threw %v, answered %d, %d effects", sent.thrown, w.Code, l.count())
			}
			if left, err := os.ReadDir(tc.o.TempDir); len(left) > 0 || err != nil {
				t.Errorf("left %v, %v", left, err)
			}
			if n := len(seen.results()); name == "problem" && n != 1 {
				t.Errorf("%d decisions, want 1", n)
			}
			if stats := doing(g); stats != (semel.Stats{}) {
				t.Errorf("it is left with %+v", stats)
			}
			if s := g.Stats(); s.BodyMemory != 0 || s.TempSpace != 0 {
				t.Errorf("%d bytes of memory and %d of files were not given back", s.BodyMemory, s.TempSpace)
			}
			drained(t, g)
		})
	}
}
