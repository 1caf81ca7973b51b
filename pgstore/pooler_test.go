package pgstore

import (
	"context"
	"testing"
	"time"
)

// A verb that waits returns soon after its context ends, behind a pooler too; that one outlives it.
func TestAPoolerIsNoticed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		url    string
		pooled bool
	}{"a server": {server.URL(), false}, "a pooler": {bouncer.URL(), true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openOn(t, newPool(t, c.url), Options{Schema: newSchema()})
			if got := s.pooled.Load(); got != c.pooled {
				t.Fatalf("a pooler: %v, want %v", got, c.pooled)
			}
			verb := func(seconds string, patience time.Duration) error {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, err := collect(ctx, s, &call{sql: "SELECT true FROM pg_sleep(" + seconds + ")"}, func(row [][]byte) (bool, error) {
					return boolOf(row[0]), nil
				})
				return err
			}
			if err := verb("600", 10*time.Millisecond); err == nil {
				t.Error("a verb of ten minutes was waited for")
			}
			if err := verb("0", time.Minute); err != nil {
				t.Errorf("the next verb: %v", err)
			}
		})
	}
}
