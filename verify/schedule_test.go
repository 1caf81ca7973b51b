package verify

import (
	"slices"
	"testing"
	"time"
)

func planOf(o LoadOptions) (all []planned) {
	s := newSchedule(o)
	for p, ok := s.take(); ok; p, ok = s.take() {
		all = append(all, p)
	}
	return all
}

func faultsOf(o LoadOptions) (all []string) {
	for request := range 1000 {
		for attempt := 1; attempt <= 3; attempt++ {
			all = append(all, o.fault(request, attempt))
		}
	}
	return all
}

func TestASeedDecidesRequestsAndFaults(t *testing.T) {
	t.Parallel()
	o := LoadOptions{Rate: 100, Duration: 20 * time.Second, Faults: 0.3, Seed: 7}
	other := o
	other.Seed = 8
	if !slices.Equal(planOf(o), planOf(o)) || !slices.Equal(faultsOf(o), faultsOf(o)) {
		t.Error("the same seed makes another load")
	}
	if slices.Equal(planOf(o), planOf(other)) || slices.Equal(faultsOf(o), faultsOf(other)) {
		t.Error("another seed makes the same load")
	}
}

func TestAScheduleRepeatsNewRecentAndOldOperations(t *testing.T) {
	t.Parallel()
	plan := planOf(LoadOptions{Rate: 100, Duration: 20 * time.Second, Seed: 1})
	if len(plan) != 2000 {
		t.Fatalf("%d requests, want 2000", len(plan))
	}
	var operations, repeats, atOnce, old int
	var previous time.Duration
	for i, p := range plan {
		if p.index != i || p.at < previous || p.at > 20*time.Second {
			t.Fatalf("request %d: %+v after %v", i, p, previous)
		}
		switch {
		case !p.repeat:
			if p.operation != operations {
				t.Fatalf("request %d: first of operation %d, want %d", i, p.operation, operations)
			}
			operations++
		case p.operation >= operations:
			t.Fatalf("request %d repeats an operation that was not asked for", i)
		default:
			repeats++
			if p.at == previous && p.operation == operations-1 {
				atOnce++
			}
			if p.operation < operations-recent {
				old++
			}
		}
		previous = p.at
	}
	if repeats < 500 || repeats > 700 || atOnce < repeats/4 || old < repeats/4 {
		t.Errorf("of 2000 requests %d repeats, %d at once, %d old; want 600, and a third each", repeats, atOnce, old)
	}
}

func TestFaultsAreEvenAndAsManyAsAsked(t *testing.T) {
	t.Parallel()
	o := LoadOptions{Faults: 0.3, Seed: 1}
	got := map[string]int{}
	for _, fault := range faultsOf(o) {
		got[fault]++
	}
	if none := got[""]; none < 2000 || none > 2200 {
		t.Errorf("%d of 3000 attempts meet none, want 2100", none)
	}
	for _, kind := range faultKinds {
		if n := got[kind]; n < 60 || n > 120 {
			t.Errorf("%s: %d of 3000, want 90", kind, n)
		}
	}
	o.Faults = 1
	if slices.Contains(faultsOf(o), "") {
		t.Error("an attempt meets no fault, and all should")
	}
	o.Faults = 0
	if slices.ContainsFunc(faultsOf(o), func(f string) bool { return f != "" }) {
		t.Error("an attempt meets a fault, and none should")
	}
}
