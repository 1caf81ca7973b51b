package shardstore_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/shardstore"
)

// scanning is a shard that has no index. Its first scans fail.
type scanning struct {
	*memstore.Store
	failures int
	scans    atomic.Bool
}

func (s *scanning) Scan(ctx context.Context) error {
	if s.failures > 0 {
		s.failures--
		return errors.New("connection refused")
	}
	s.scans.Store(true)
	<-ctx.Done()
	return ctx.Err()
}

// All shards that need it are scanned, also one that fails at first; the others need nothing.
func TestShardsAreScanned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := &scanning{Store: memstore.New()}, &scanning{Store: memstore.New(), failures: 2}
		over := func(shards ...shardstore.Shard) driver.Scanner {
			s, err := shardstore.New(shards, shardstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return s.(driver.Scanner)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		plain := shardstore.Shard{Name: "c", Store: memstore.New()}
		err := over(shardstore.Shard{Name: "a", Store: a}, shardstore.Shard{Name: "b", Store: b}, plain).Scan(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !a.scans.Load() || !b.scans.Load() {
			t.Errorf("scanned are a: %t, b: %t; error %v", a.scans.Load(), b.scans.Load(), err)
		}
		if err := over(plain).Scan(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("over shards that need no scan: %v", err)
		}
	})
}
