package semel_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
)

// listed is a memory store that is looked through by a function.
func listed(mem *memstore.Store, list listerFunc) driver.Store {
	return struct {
		driver.Store
		listerFunc
		driver.Seizer
	}{mem, list, mem}
}

// What keeps an operation from being run is told, however a hook or a layer above the guard ends.
func TestR52_AFailureIsToldHoweverAHookEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		principal func()
		layer     func()
		want      string
	}{
		"Principal exits":        {func() { runtime.Goexit() }, nil, "ended its goroutine"},
		"Principal panics":       {func() { panic("no directory") }, nil, "panic: no directory"},
		"Principal aborts":       {func() { panic(http.ErrAbortHandler) }, nil, "no guard took it"},
		"a layer above it exits": {nil, func() { runtime.Goexit() }, "ended its goroutine"},
		"a layer above aborts":   {nil, func() { panic(http.ErrAbortHandler) }, "no guard took it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New()
				_, end := abandon(t, mem, finishing(), post("k", `{}`))
				g, seen := newFinishing(t, mem, finishing())
				guarded, tries := g.Wrap(say("done")), 0
				stop := finish(t, g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if tries == 1 && c.layer != nil {
						c.layer()
					}
					guarded.ServeHTTP(w, r)
				}), semel.CompleterOptions{Principal: func(_ context.Context, r *http.Request, _ string) (*http.Request, error) {
					if tries++; tries == 1 && c.principal != nil {
						c.principal()
					}
					return r, nil
				}})
				time.Sleep(time.Minute)
				stop()
				if got := seen.failures(); len(got) != 1 || !strings.Contains(got[0], c.want) {
					t.Errorf("told %q, want %q once", got, c.want)
				}
				wantAnswer(t, answer(guarded, post("k", `{}`)), http.StatusCreated, "done", true)
				end()
			})
		})
	}
}

func TestR52_AReconcileThatEndsItsGoroutineIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		g, seen := newFinishing(t, mem, finishing())
		held := shortLease(semel.Hold)
		serve(g.Route(held).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		})), post("k", `{}`)).answer()
		tries := 0
		stop := finish(t, g, g.Wrap(say("")), semel.CompleterOptions{
			Reconcile: func(context.Context, semel.Inquiry) (semel.Finding, error) {
				if tries++; tries == 1 {
					runtime.Goexit()
				}
				return semel.Finding{Found: semel.FoundNever}, nil
			},
		})
		time.Sleep(time.Hour)
		stop()
		got := seen.failures()
		if len(got) != 1 || !strings.Contains(got[0], "ended its goroutine") || tries != 2 {
			t.Errorf("told %q, asked %d times", got, tries)
		}
	})
}

// A store may show only a part, because a node of it is away or because that takes too long: that part is finished.
func TestR52_WhatAListingShowsBeforeItFailsIsFinished(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(context.Context) error{
		"it fails":       func(context.Context) error { return errDown },
		"it never comes": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New()
				_, end := abandon(t, mem, finishing(), post("k", `{}`))
				g, seen := newFinishing(t, listed(mem, func(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
					if err := mem.List(ctx, q, yield); err != nil {
						return err
					}
					return after(ctx)
				}), finishing())
				h := g.Wrap(say("done"))
				stop := finish(t, g, h, semel.CompleterOptions{})
				time.Sleep(time.Hour)
				stop()
				if seen.count(event.StoreError) == 0 {
					t.Error("nobody is told that the listing fails")
				}
				if rec := loaded(t, mem, "k"); rec.State != driver.Done {
					t.Errorf("the record that was shown is %v, want done", rec.State)
				}
				end()
			})
		})
	}
}

// Listing is not a snapshot: a record may be shown twice. It is one operation all the same.
func TestR52_WhatIsListedTwiceIsTakenOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		_, end := abandon(t, mem, finishing(), post("k", `{}`))
		g, seen := newFinishing(t, listed(mem, func(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
			return mem.List(ctx, q, func(id driver.ID, rec driver.Record) bool {
				again := yield(id, rec)
				return again && yield(id, rec)
			})
		}), finishing())
		under, most := 0, 0
		stop := finish(t, g, g.Wrap(say("")), semel.CompleterOptions{
			Principal: func(context.Context, *http.Request, string) (*http.Request, error) {
				under++
				most = max(most, under)
				time.Sleep(time.Second)
				under--
				return nil, errors.New("no such account")
			},
		})
		time.Sleep(30 * time.Minute)
		stop()
		if most != 1 || len(seen.failures()) > 20 {
			t.Errorf("%d at once, failed %d times", most, len(seen.failures()))
		}
		end()
	})
}

// A completer tells what it gives up also where the store is slow to acknowledge that.
func TestR52_WhatIsGivenUpIsToldThoughTheStoreIsSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		_, end := abandon(t, mem, finishing(), post("k", `{}`))
		slow := &faulty{Store: mem}
		start := time.Now()
		slow.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			if time.Since(start) < 30*time.Second {
				return driver.Record{}, false, errDown
			}
			return mem.Settle(ctx, id, by, o)
		}
		g, seen := newFinishing(t, searchableAs(slow, mem), finishing())
		stop := finish(t, g, g.Wrap(say("")), semel.CompleterOptions{MaxAttempts: 1})
		time.Sleep(10 * time.Minute)
		stop()
		drained(t, g)
		if rec := loaded(t, mem, "k"); rec.State != driver.Unknown || seen.count(event.CompletionGivenUp) != 1 {
			t.Errorf("the record is %v, told %d times that it was given up", rec.State, seen.count(event.CompletionGivenUp))
		}
		end()
	})
}

// A handler that can't work without what net/http gives it works without a client, too.
func TestR52_AHandlerControlsAConnectionThatIsNotThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		_, end := abandon(t, mem, finishing(), post("k", `{}`))
		g, _ := newFinishing(t, mem, finishing())
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			err := errors.Join(rc.SetReadDeadline(time.Now().Add(time.Minute)), rc.SetWriteDeadline(time.Now().Add(time.Minute)),
				rc.EnableFullDuplex())
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			say("done").ServeHTTP(w, r)
		}))
		stop := finish(t, g, h, semel.CompleterOptions{})
		time.Sleep(10 * time.Minute)
		stop()
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "done", true)
		end()
	})
}
