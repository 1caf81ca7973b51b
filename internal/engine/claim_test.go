package engine

import (
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/refusal"
)

// What a record says to a repeat, and to the client of a run that it no longer belongs to. "" stands for the stored
// answer.
func TestR16_R48_WhatARecordSays(t *testing.T) {
	t.Parallel()
	const now = driver.Time(1_000_000_000_000)
	mine := driver.Fingerprint{Settings: [8]byte{1}, Raw: [16]byte{1}, Canonical: [16]byte{1}}
	other, changed, sameBytes := mine, mine, mine
	other.Raw[0], other.Canonical[0] = 2, 2
	changed.Settings[0], changed.Raw[0], changed.Canonical[0] = 2, 2, 2
	sameBytes.Settings[0], sameBytes.Canonical[0] = 2, 2
	in, over := now.Add(time.Minute), now.Add(-time.Minute)
	done := driver.Record{State: driver.Done, Settled: over, Retention: time.Hour}
	tombstone, gone := done, done
	tombstone.Retention, tombstone.Tombstone = time.Second, time.Hour
	gone.Retention = time.Second
	for _, tc := range []struct {
		name      string
		onLost    driver.LostPolicy
		rec       driver.Record
		recorded  refusal.Code
		overtaken refusal.Code
	}{
		{"absent", driver.Hold, driver.Record{}, refusal.InProgress, refusal.OutcomeUnknown},
		{"running", driver.Hold, driver.Record{State: driver.Running, LeaseEnd: in}, refusal.InProgress, refusal.InProgress},
		{"lapsed under hold", driver.Hold, driver.Record{State: driver.Running, LeaseEnd: over}, refusal.OutcomeUnknown, refusal.OutcomeUnknown},
		{"lapsed under rerun", driver.Rerun, driver.Record{State: driver.Running, OnLost: driver.Rerun, LeaseEnd: over}, refusal.InProgress, refusal.InProgress},
		{"lapsed, had begun", driver.Rerun, driver.Record{State: driver.Running, OnLost: driver.Rerun, Begun: true, LeaseEnd: over, Retention: time.Hour}, "", ""},
		{"free", driver.Hold, driver.Record{State: driver.Free, OnLost: driver.Rerun}, refusal.InProgress, refusal.InProgress},
		{"free, maybe", driver.Hold, driver.Record{State: driver.Free, OnLost: driver.Rerun, Maybe: true}, refusal.OutcomeUnknown, refusal.OutcomeUnknown},
		{"unknown", driver.Rerun, driver.Record{State: driver.Unknown}, refusal.OutcomeUnknown, refusal.OutcomeUnknown},
		{"done", driver.Hold, done, "", ""},
		{"done, a tombstone is left", driver.Hold, tombstone, refusal.KeyExpired, refusal.OutcomeUnknown},
		{"done, and over", driver.Hold, gone, refusal.InProgress, refusal.OutcomeUnknown},
	} {
		for print, want := range map[driver.Fingerprint]struct{ recorded, overtaken refusal.Code }{
			mine:      {tc.recorded, tc.overtaken},
			sameBytes: {tc.recorded, tc.overtaken},
			other:     {refusal.KeyReused, refusal.OutcomeUnknown},
			changed:   {refusal.ReplayUnavailable, refusal.OutcomeUnknown},
		} {
			rec := tc.rec
			rec.Fingerprint, rec.Now = print, now
			if rec.Reads(tc.onLost) == driver.ReadsAbsent {
				want.recorded = refusal.InProgress // nothing is left to compare with
			}
			r := &Route{Policy: testPolicy(tc.onLost)}
			a := askFor(1)
			a.Fingerprint = mine
			if got := codeOf(r.recorded(a, &rec)); got != want.recorded {
				t.Errorf("%s, fingerprint %d: a repeat is told %q, want %q", tc.name, print.Raw[0], got, want.recorded)
			}
			if got := codeOf(r.Overtaken(a, &rec)); got != want.overtaken {
				t.Errorf("%s, fingerprint %d: a late owner is told %q, want %q", tc.name, print.Raw[0], got, want.overtaken)
			}
		}
	}
}

func codeOf(r *Refusal) refusal.Code {
	if r == nil {
		return ""
	}
	return r.Code
}

// Retry-After is the age of the run, within what is left of its lease, in whole seconds.
func TestR27_RetryAfter(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ age, left, want time.Duration }{
		{0, 30 * time.Second, time.Second},
		{1500 * time.Millisecond, 30 * time.Second, 2 * time.Second},
		{10 * time.Second, 3 * time.Second, 3 * time.Second},
		{10 * time.Second, -time.Second, time.Second},
		{time.Hour, time.Hour, 30 * time.Second},
	} {
		const now = driver.Time(1_000_000_000_000)
		rec := driver.Record{State: driver.Running, Now: now, Started: now.Add(-tc.age), LeaseEnd: now.Add(tc.left)}
		if got := RetryAfter(&rec); got != tc.want {
			t.Errorf("a run of %v, %v of its lease left: %v, want %v", tc.age, tc.left, got, tc.want)
		}
	}
}
