package main

import (
	"context"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
)

// fillers are the stores that are filled past their verbs.
func fillers(t *testing.T) map[string]filler {
	t.Helper()
	ctx := context.Background()
	f, err := newSQLiteFile(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	p, err := newPostgresServer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	s, err := p.open(ctx, "semel")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return map[string]filler{"SQLite": f, "PostgreSQL": s}
}

// What a store was filled with is what its verbs find, and sweep.
func TestAStoreIsFilledAsItsVerbsWould(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const n = 20
	for name, s := range fillers(t) {
		if err := s.fill(ctx, n, time.Hour); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var first driver.ID
		full := idOf(0)
		copy(first[8:], full[8:])
		rec, err := s.Load(ctx, first)
		if err != nil || rec.State != driver.Done || rec.Response == nil || len(rec.Response.Body) != len(answer200) {
			t.Errorf("%s: the first record is %v, %v", name, rec.State, err)
		}
		if swept, err := s.Sweep(ctx, n); swept != 0 || err != nil {
			t.Errorf("%s: of records in their time %d are swept, %v", name, swept, err)
		}
	}
}

// A store that can't be filled says so: the bench ends, and does not wait for what the failure has left open.
func TestAFillThatFailsEnds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, s := range fillers(t) {
		if err := s.fill(ctx, 2, time.Hour); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := s.fill(ctx, 2, time.Hour); err == nil {
			t.Errorf("%s: two records have one id", name)
		}
		claimOnly(s, 1)
	}
}
