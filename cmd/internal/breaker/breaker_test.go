package breaker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/cmd/internal/breaker"
	"github.com/semelhq/semel/driver"
)

var errDown = errors.New("connection refused")

// call makes a call that must be allowed, and ends with err.
func call(t *testing.T, b *breaker.Breaker, err error) {
	t.Helper()
	allow(t, b)(err)
}

func allow(t *testing.T, b *breaker.Breaker) func(error) {
	t.Helper()
	done, err := b.Allow()
	if err != nil {
		t.Fatalf("Allow: %v", err)
	}
	return done
}

func refused(t *testing.T, b *breaker.Breaker) {
	t.Helper()
	if done, err := b.Allow(); !errors.Is(err, breaker.ErrOpen) || done != nil {
		t.Fatalf("Allow: error %v, want ErrOpen", err)
	}
	if !b.Open() {
		t.Fatal("it refuses calls, and says that it is closed")
	}
}

func TestR64_ItOpensAfterSoManyFailuresInARow(t *testing.T) {
	t.Parallel()
	b := breaker.New(breaker.Options{Name: "store", Failures: 3})
	for range 10 {
		call(t, b, errDown)
		call(t, b, context.DeadlineExceeded)
		call(t, b, nil)
	}
	for range 3 {
		call(t, b, errDown)
	}
	refused(t, b)
	_, err := b.Allow()
	if !strings.HasPrefix(err.Error(), "store: ") {
		t.Errorf("the error does not say what is behind the breaker: %v", err)
	}
}

func TestR64_ItLetsOneCallTryAndClosesWhenThatSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Options{Failures: 1, Open: time.Minute})
		call(t, b, errDown)
		time.Sleep(time.Minute)
		refused(t, b)
		time.Sleep(time.Millisecond)
		probe := allow(t, b)
		refused(t, b) // the others while it is under way
		probe(errDown)
		time.Sleep(time.Minute)
		refused(t, b) // again for the whole time
		time.Sleep(time.Millisecond)
		call(t, b, nil)
		if b.Open() {
			t.Error("it is open after a call that tried has succeeded")
		}
		allow(t, b)
		allow(t, b)
	})
}

func TestR64_AsManyMustSucceedAsMayTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Options{Failures: 1, Open: time.Second, Probes: 2})
		call(t, b, errDown)
		time.Sleep(time.Second + 1)
		first, second := allow(t, b), allow(t, b)
		refused(t, b)
		first(nil)
		refused(t, b)
		second(nil)
		call(t, b, nil)
	})
}

// A full store answers, and so does one that holds a damaged record; a client that leaves says nothing about the store.
func TestR64_WhatIsNotTheStoresFailureDoesNotOpenIt(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		nil, fmt.Errorf("claim: %w", driver.ErrFull), fmt.Errorf("load: %w", driver.ErrUnreadable),
		fmt.Errorf("claim: %w", context.Canceled),
	} {
		b := breaker.New(breaker.Options{Failures: 1})
		for range 100 {
			call(t, b, err)
		}
		if b.Open() {
			t.Errorf("it opened for: %v", err)
		}
	}
}

func TestR64_AClientThatLeavesNeitherClosesItNorHoldsItUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Options{Failures: 2, Open: time.Second})
		call(t, b, errDown)
		call(t, b, context.Canceled) // is not a success in between
		call(t, b, errDown)
		time.Sleep(time.Second + 1)
		call(t, b, context.Canceled) // had its try, and learnt nothing
		if !b.Open() {
			t.Fatal("a call whose client left has closed it")
		}
		call(t, b, nil) // the next one tries
		if b.Open() {
			t.Error("it is open after a call that tried has succeeded")
		}
	})
}

// Calls that were under way when it opened end much later, when the store is back.
func TestR64_LateFailuresDoNotOpenItAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Options{Failures: 1, Open: time.Second})
		var late []func(error)
		for range 10 {
			late = append(late, allow(t, b))
		}
		call(t, b, errDown)
		late[0](errDown)
		time.Sleep(time.Second + 1)
		late[1](errDown)
		call(t, b, nil)
		for _, done := range late[2:] {
			done(errDown)
		}
		if b.Open() {
			t.Error("failures from before it opened have opened it again")
		}
	})
}

func TestItTellsTheLogWhenItOpensAndCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := breaker.New(breaker.Options{Name: "cache", Failures: 1, Log: slog.New(slog.NewTextHandler(&out, nil))})
		call(t, b, errDown)
		time.Sleep(breaker.DefaultOpen + 1)
		call(t, b, nil)
		for _, want := range []string{
			`level=WARN msg="circuit breaker is open" of=cache`, `msg="circuit breaker is half-open"`,
			`level=INFO msg="circuit breaker is closed"`,
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the log has no %s:\n%s", want, out.String())
			}
		}
	})
}
