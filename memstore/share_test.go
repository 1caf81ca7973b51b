package memstore_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
)

// of returns the nth of some ids of a principal.
func of(principal string, n int) driver.ID {
	return semel.Identify(nil, semel.KindHTTP, principal, strconv.Itoa(n))
}

// By default one principal fills half of the store. Others are not refused for it, and its own keys are still answered.
func TestField01_OnePrincipalFillsHalfOfTheStore(t *testing.T) {
	t.Parallel()
	s, err := memstore.Open(memstore.Options{MaxRecords: 40})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		claim(t, s, of("mallory", n), ask(time.Hour))
	}
	for n := 20; n < 100; n++ {
		_, owned, err := s.Claim(t.Context(), of("mallory", n), ask(time.Hour))
		if owned || !errors.Is(err, driver.ErrShareFull) || !errors.Is(err, driver.ErrFull) {
			t.Fatalf("key %d: owned %t, %v; want the share full", n, owned, err)
		}
	}
	for n := range 20 {
		claim(t, s, of("principal "+strconv.Itoa(n), 0), ask(time.Hour))
	}
	_, _, err = s.Claim(t.Context(), of("one more", 0), ask(time.Hour))
	if !errors.Is(err, driver.ErrFull) || errors.Is(err, driver.ErrShareFull) {
		t.Errorf("beyond all: %v, want the store full", err)
	}
	rec := load(t, s, of("mallory", 7))
	settle(t, s, of("mallory", 7), rec.Owner(), driver.Outcome{State: driver.Free})
	claim(t, s, of("mallory", 7), ask(time.Hour)) // a known key runs again
}

func TestField01_TheShareIsThatOfBytesToo(t *testing.T) {
	t.Parallel()
	s, err := memstore.Open(memstore.Options{MaxBytes: 16_000, PrincipalShare: 0.25})
	if err != nil {
		t.Fatal(err)
	}
	answer := func(id driver.ID, n int) error {
		rec := claim(t, s, id, ask(time.Hour))
		_, _, err := s.Settle(t.Context(), id, rec.Owner(), driver.Outcome{State: driver.Done, Response: &driver.Response{Status: 200, Body: []byte(strings.Repeat("x", n))}})
		return err
	}
	if err := answer(of("mallory", 0), 2000); err != nil {
		t.Errorf("within the share: %v", err)
	}
	if err := answer(of("mallory", 1), 1500); !errors.Is(err, driver.ErrShareFull) {
		t.Errorf("beyond the share: %v, want it full", err)
	}
	if err := answer(of("alice", 0), 2000); err != nil {
		t.Errorf("another principal: %v", err)
	}
}

// Principals come and go, and are counted for as long as they have a record.
func TestField01_AShareIsGivenBackWithItsRecords(t *testing.T) {
	t.Parallel()
	s, c := open(t, memstore.Options{MaxRecords: 64, PrincipalShare: 0.25})
	const share = 16
	for round := range 20 {
		var wg sync.WaitGroup
		var owned, refused atomic.Int64
		for n := range 2 * share {
			wg.Go(func() {
				id := of("mallory", n+100*round)
				rec, won, err := s.Claim(context.Background(), id, ask(time.Minute))
				switch {
				case won:
					owned.Add(1)
					if _, _, err := s.Settle(context.Background(), id, rec.Owner(), driver.Outcome{State: driver.Done}); err != nil {
						t.Error(err)
					}
				case errors.Is(err, driver.ErrShareFull):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if owned.Load() != share || refused.Load() != share {
			t.Fatalf("round %d: %d owned, %d refused; want %d of each", round, owned.Load(), refused.Load(), share)
		}
		c.Advance(2 * time.Minute)
		if _, err := s.Sweep(t.Context(), 1000); err != nil || s.Len() != 0 {
			t.Fatalf("%d records are left: %v", s.Len(), err)
		}
	}
}

// A principal whose last record goes while its next one comes is counted once.
func TestField01_APrincipalThatComesAndGoesIsCountedOnce(t *testing.T) {
	t.Parallel()
	const share, callers, rounds = 4, 8, 500
	s, _ := open(t, memstore.Options{MaxRecords: 4 * share, PrincipalShare: 0.25})
	var wg sync.WaitGroup
	var now atomic.Int64
	for caller := range callers {
		wg.Go(func() {
			for n := range rounds {
				id := of("mallory", caller*rounds+n)
				rec, owned, err := s.Claim(context.Background(), id, ask(time.Minute))
				if !owned {
					if !errors.Is(err, driver.ErrShareFull) {
						t.Error(err)
					}
					continue
				}
				if now.Add(1) > share {
					t.Error("more records at once than the share")
				}
				if _, _, err := s.Settle(context.Background(), id, rec.Owner(), driver.Outcome{State: driver.Done}); err != nil {
					t.Error(err)
				}
				now.Add(-1)
				if forgotten, err := s.Forget(context.Background(), id, rec.Owner()); !forgotten || err != nil {
					t.Errorf("forget: %t, %v", forgotten, err)
				}
			}
		})
	}
	wg.Wait()
	if s.Len() != 0 {
		t.Errorf("%d records are left", s.Len())
	}
	for n := range share {
		claim(t, s, of("mallory", -n-1), ask(time.Minute))
	}
	if _, _, err := s.Claim(t.Context(), of("mallory", -99), ask(time.Minute)); !errors.Is(err, driver.ErrShareFull) {
		t.Errorf("beyond the share: %v", err)
	}
}
