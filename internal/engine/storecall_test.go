package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/refusal"
)

var errLost = errors.New("no reply")

// A valve is a breaker that a test shuts; heard is what it was told.
type valve struct {
	open  error
	heard []error
}

func (b *valve) Allow() (func(error), error) {
	if b.open != nil {
		return nil, b.open
	}
	return func(err error) { b.heard = append(b.heard, err) }, nil
}

// The breaker hears of each request that it may refuse once, however that ends. What it refuses is asked of nobody, and
// told to nobody as an error of the store.
func TestR64_TheBreakerHearsOfEachRequestOnce(t *testing.T) {
	t.Parallel()
	open := errors.New("open")
	for _, tc := range []struct {
		name      string
		refusable bool
		open      error
		f         func() error
		want      error
		heard     []error
		told      event.Kind
	}{
		{"a reply", true, nil, func() error { return nil }, nil, []error{nil}, ""},
		{"a full store", true, nil, func() error { return driver.ErrFull }, driver.ErrFull, []error{nil}, event.StoreError},
		{"an unreadable record", true, nil, func() error { return driver.ErrUnreadable }, driver.ErrUnreadable, []error{nil}, event.Unreadable},
		{"no reply", true, nil, func() error { return errLost }, errLost, []error{errLost}, event.StoreError},
		{"the goroutine's end", true, nil, exits, nil, []error{errEnded}, ""},
		{"open", true, open, func() error { panic("asked") }, open, nil, ""},
		{"open, with the error of a store", true, driver.ErrFull, func() error { panic("asked") }, driver.ErrFull, nil, ""},
		{"never refused", false, open, func() error { return errLost }, errLost, nil, event.StoreError},
	} {
		b := &valve{open: tc.open}
		r, seen := newRoute(newScript(), testPolicy(driver.Hold), b)
		var err error
		apart(func() {
			err = r.askUntil(t.Context(), time.Now().Add(time.Minute), request{verb: "claim", id: numberedID(1), refusable: tc.refusable}, func(context.Context) error { return tc.f() })
		})
		if !errors.Is(err, tc.want) || !slices.Equal(b.heard, tc.heard) {
			t.Errorf("%s: %v, and heard %v; want %v and %v", tc.name, err, b.heard, tc.want, tc.heard)
		}
		if asked := tc.heard != nil || !tc.refusable; wasAsked(err) != asked || !asked && isAnswer(err) {
			t.Errorf("%s: asked %t, an answer %t; want %t", tc.name, wasAsked(err), isAnswer(err), asked)
		}
		if n := seen.count(tc.told); len(seen.list) != n || tc.told != "" && n != 1 {
			t.Errorf("%s: told %v, want %q", tc.name, seen.list, tc.told)
		}
	}
}

// What a store throws is told, and is no answer, whatever it is.
func TestField08_WhatAStoreThrowsIsNoAnswer(t *testing.T) {
	t.Parallel()
	b := &valve{}
	r, seen := newRoute(newScript(), testPolicy(driver.Hold), b)
	err := r.askUntil(t.Context(), time.Now().Add(time.Minute), request{verb: "claim", id: numberedID(1), refusable: true}, func(context.Context) error { panic(driver.ErrFull) })
	if err == nil || isAnswer(err) || len(b.heard) != 1 || b.heard[0] == nil || seen.count(event.StoreError) != 1 {
		t.Errorf("%v; the breaker heard %v, told %d", err, b.heard, seen.count(event.StoreError))
	}
}

// A claim whose first copy got no reply, and whose second one the breaker refuses, is released: the first may have been
// executed. That holds whatever error the breaker refuses with.
func TestR64_ABreakerThatOpensBetweenTwoCopiesLeavesNothingClaimed(t *testing.T) {
	t.Parallel()
	for _, open := range []error{errors.New("open"), driver.ErrFull, driver.ErrUnreadable} {
		synctest.Test(t, func(t *testing.T) {
			s, b := newScript(), &valve{}
			r, seen := newRoute(s, testPolicy(driver.Hold), b)
			s.on("claim", func() error {
				b.open = open
				return errLost
			})
			var rec driver.Record
			run, refused := r.Claim(t.Context(), askFor(1), &rec)
			if run != nil || codeOf(refused) != refusal.StoreUnavailable || s.count("claim") != 1 {
				t.Errorf("open with %v: got %v, %v after %d claims", open, run, refused, s.count("claim"))
			}
			drained(t, r.Engine)
			if s.count("settle") != 2 || seen.count(event.GaveUp) != 1 || seen.count(event.StoreError) != 1 {
				t.Errorf("open with %v: released %d times, told %v", open, s.count("settle"), seen.list)
			}
		})
	}
}

// No try begins when the time for all of them is over.
func TestR61_NoTryBeginsAfterTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		r, _ := newRoute(s, testPolicy(driver.Hold), nil)
		s.on("claim", func() error { // the first takes nearly all of the window
			time.Sleep(claimWindow - time.Millisecond)
			return errLost
		})
		var rec driver.Record
		began := time.Now()
		if run, refused := r.Claim(t.Context(), askFor(1), &rec); run != nil || codeOf(refused) != refusal.StoreUnavailable {
			t.Errorf("got %v, %v", run, refused)
		}
		if took := time.Since(began); s.count("claim") != 1 || took != claimWindow {
			t.Errorf("%d claims within %v, want one within %v", s.count("claim"), took, claimWindow)
		}
		drained(t, r.Engine)
	})
}

// Pauses between tries grow, and end with the time for all tries.
func TestTriesPauseLongerAndLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for try, most := range []time.Duration{1: 20 * time.Millisecond, 2: 40 * time.Millisecond, 3: 80 * time.Millisecond, 10: time.Second, 70: time.Second} {
			if most == 0 {
				continue
			}
			began := time.Now()
			more := tries{}.wait(t.Context(), try)
			if took := time.Since(began); !more || took < most/2 || took >= most {
				t.Errorf("after try %d: paused %v, another one %t; want up to %v", try, took, more, most)
			}
		}
		began := time.Now()
		if (tries{until: began.Add(time.Millisecond)}).wait(t.Context(), 9) || time.Since(began) != time.Millisecond {
			t.Errorf("paused %v, and another try; want no more than 1ms, and none", time.Since(began))
		}
		if (tries{until: began}).wait(t.Context(), 1) {
			t.Error("another try, after the end")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if (tries{}).wait(ctx, 1) {
			t.Error("another try, for nobody")
		}
	})
}

// A refusal says to logs all that it knows, and unwraps to its code and its cause.
func TestRefusalsTellTheirCause(t *testing.T) {
	t.Parallel()
	err := error(&Refusal{Code: refusal.StoreUnavailable, Detail: "too many", Cause: errLost})
	if want := fmt.Sprint(string(refusal.StoreUnavailable), ": too many: no reply"); err.Error() != want || !errors.Is(err, errLost) || !errors.Is(err, refusal.StoreUnavailable) {
		t.Errorf("got %q, want %q", err, want)
	}
}
