package shardstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/pause"
	"github.com/semelhq/semel/internal/thrown"
)

// sweepTime is how long a shard may take for its part of a sweep, so that one that hangs does not keep the others'
// records.
const sweepTime = 5 * time.Second

// Sweep implements [driver.Store], in all shards at once. Shards that have more than their part get what others have
// left over. If a shard fails, the others are swept all the same, and the error is returned once fewer than limit are
// left there.
func (s *store) Sweep(ctx context.Context, limit int) (changed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	var errs []error
	for left := s.shards; len(left) > 0 && changed < limit; {
		now := left[:min(len(left), limit-changed)]
		part := (limit - changed) / len(now)
		left = left[len(now):]
		swept := make([]int, len(now))
		errs = append(errs, each(now, func(i int, h *shard) error {
			return h.call(func(s driver.Store) (err error) {
				swept[i], err = s.Sweep(ctx, part)
				return err
			})
		})...)
		for i, h := range now {
			changed += swept[i]
			if swept[i] >= part {
				left = append(left[:len(left):len(left)], h)
			}
		}
	}
	if changed >= limit {
		return changed, nil
	}
	return changed, errors.Join(errs...)
}

// Wake implements [driver.Waker], by the shards that are wakers. A shard that fails is asked again after a pause. If no
// shard wakes, the error wraps [errors.ErrUnsupported].
func (s *store) Wake(ctx context.Context, settled func(driver.ID)) error {
	var mu sync.Mutex
	one := func(id driver.ID) {
		mu.Lock()
		defer mu.Unlock()
		settled(id)
	}
	return s.inAll(ctx, "wake", func(h *shard) error { return h.wake(ctx, one) })
}

// inAll does in all shards at once what lasts until ctx ends. Where it fails it is begun again after a pause. If no
// shard can do it, the error wraps [errors.ErrUnsupported].
func (s *store) inAll(ctx context.Context, what string, do func(h *shard) error) error {
	each(s.shards, func(_ int, h *shard) error {
		for {
			err := do(h)
			if errors.Is(err, errors.ErrUnsupported) || !pause.For(ctx, pause.Jitter(2*time.Second)) {
				return nil
			}
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	return fmt.Errorf("shardstore: %s: the shards: %w", what, errors.ErrUnsupported)
}

func (h *shard) wake(ctx context.Context, settled func(driver.ID)) (err error) {
	defer thrown.Catch(&err)
	return h.call(func(s driver.Store) error {
		if w, ok := s.(driver.Waker); ok {
			return w.Wake(ctx, settled)
		}
		return errors.ErrUnsupported
	})
}

type lister struct{ s *store }

// List implements [driver.Lister]. All shards are read at once. If one fails, the records of the others are given, and
// its error is returned in the end. During a change, an operation that has left something in its other shard may be
// given twice.
func (l lister) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
	type item struct {
		id  driver.ID
		rec driver.Record
	}
	reading, cancel := context.WithCancel(ctx)
	items := make(chan item)
	var errs []error
	go func() {
		defer close(items)
		errs = each(l.s.shards, func(_ int, h *shard) error {
			return h.call(func(s driver.Store) error {
				return s.(driver.Lister).List(reading, q, func(id driver.ID, rec driver.Record) bool {
					select {
					case items <- item{id, rec}:
						return true
					case <-reading.Done():
						return false
					}
				})
			})
		})
	}()
	defer func() {
		cancel()
		for range items { // until all have ended
		}
	}()
	given := 0
	for i := range items {
		if given++; !yield(i.id, i.rec) || given == q.Limit {
			return nil
		}
	}
	return errors.Join(errs...)
}

// Scan implements [driver.Scanner], in the shards that are scanners. A shard that fails is scanned again after a pause;
// that it fails, its listings tell. If no shard scans, the error wraps [errors.ErrUnsupported].
func (l lister) Scan(ctx context.Context) error {
	return l.s.inAll(ctx, "scan", func(h *shard) error { return h.scan(ctx) })
}

func (h *shard) scan(ctx context.Context) (err error) {
	defer thrown.Catch(&err)
	return h.call(func(s driver.Store) error {
		if s, ok := s.(driver.Scanner); ok {
			return s.Scan(ctx)
		}
		return errors.ErrUnsupported
	})
}

type counter struct{ s *store }

// Count implements [driver.Counter]: sums, and of ages the greatest. Bytes is 0 if a shard does not know its size.
func (c counter) Count(ctx context.Context) (n driver.Counts, err error) {
	counts := make([]driver.Counts, len(c.s.shards))
	errs := each(c.s.shards, func(i int, h *shard) error {
		return h.call(func(s driver.Store) (err error) {
			counts[i], err = s.(driver.Counter).Count(ctx)
			return err
		})
	})
	if err := errors.Join(errs...); err != nil {
		return n, err
	}
	known := true
	for _, of := range counts {
		n.Records += of.Records
		n.Running += of.Running
		n.Unknown += of.Unknown
		n.OldestRunning = max(n.OldestRunning, of.OldestRunning)
		n.SweepLag = max(n.SweepLag, of.SweepLag)
		n.Bytes += of.Bytes
		known = known && of.Bytes > 0
	}
	if !known {
		n.Bytes = 0
	}
	return n, nil
}

type auditor struct{ s *store }

// Audit implements [driver.Auditor], in the operation's shard.
func (a auditor) Audit(ctx context.Context, e driver.AuditEntry) error {
	h := a.s.pair(&e.ID).begin
	return h.call(func(s driver.Store) error { return s.(driver.Auditor).Audit(ctx, e) })
}

// AuditTrail implements [driver.Auditor]. It asks all shards, for entries outlive changes of the shards. If one fails,
// the entries of the others are given, and its error is returned in the end.
func (a auditor) AuditTrail(ctx context.Context, id *driver.ID, limit int, yield func(driver.AuditEntry) bool) error {
	type trail struct {
		entry driver.AuditEntry
		next  func() (driver.AuditEntry, bool)
	}
	var trails []*trail
	errs := make([]error, len(a.s.shards))
	for i, h := range a.s.shards {
		next, stop := iter.Pull(func(yield func(driver.AuditEntry) bool) {
			errs[i] = h.call(func(s driver.Store) error { return s.(driver.Auditor).AuditTrail(ctx, id, limit, yield) })
		})
		defer stop()
		if e, ok := next(); ok {
			trails = append(trails, &trail{e, next})
		}
	}
	for given := 1; len(trails) > 0; given++ {
		newest := slices.MaxFunc(trails, func(a, b *trail) int { return cmp.Compare(a.entry.At, b.entry.At) })
		if !yield(newest.entry) || given == limit {
			return nil
		}
		var ok bool
		if newest.entry, ok = newest.next(); !ok {
			trails = slices.DeleteFunc(trails, func(t *trail) bool { return t == newest })
		}
	}
	return errors.Join(errs...)
}
