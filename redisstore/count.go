package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/driver"
)

// A count that goes through more keys than countAlone is shared: its result stands in the key Prefix + "counts" for
// those who ask next, and one of them at most, who has set Prefix + "counting", counts again after countRest times as
// long as it took.
const (
	countAlone = 1 << 14 // about: some 200 ms of the server's time
	countRest  = 9
)

// Count implements [driver.Counter]. Redis has no index of the records that run. While somebody scans ([Store.Scan]),
// and that takes long, the result of the last round is told. Otherwise it goes through all keys of all nodes, also
// those of others, in short steps between which the server does other work. All stores of a prefix together take a
// tenth of its time for that: where there are more than 16 384 keys, the result of an earlier count is told, up to ten
// times as old as it took. A record may be counted twice while the server rehashes its keys. SweepLag and Bytes are 0.
// In a Cluster it needs a client that is a [NodeVisitor].
func (s *Store) Count(ctx context.Context) (driver.Counts, error) {
	n, err := s.countOrAsk(ctx)
	if err != nil {
		return driver.Counts{}, fmt.Errorf("redisstore: count: %w", err)
	}
	return n, nil
}

func (s *Store) countOrAsk(ctx context.Context) (driver.Counts, error) {
	last, took, err := s.lastCounts(ctx)
	if err != nil {
		return driver.Counts{}, err
	}
	if took > 0 {
		first, err := s.say(ctx, "SET", "counting", "1", "NX", "PX", millis((1+countRest)*took))
		if err == nil && first == nil {
			return last, nil
		}
	}
	began := time.Now()
	n, steps, err := s.countAll(ctx)
	if err != nil || steps*listStep <= countAlone {
		return n, err
	}
	took = max(1, time.Since(began))
	s.share(ctx, n, took, countRest*took)
	return n, nil
}

// share tells others a result, also how long it took. For a time nobody counts again. A full server may not take it.
func (s *Store) share(ctx context.Context, n driver.Counts, took, rest time.Duration) {
	told := fmt.Sprintf("%d %d %d %d %d", took, n.Records, n.Running, n.Unknown, n.OldestRunning)
	if _, err := s.say(ctx, "SET", "counts", told, "PX", millis(4*rest)); err == nil {
		s.say(ctx, "SET", "counting", "1", "PX", millis(rest)) //nolint:errcheck // another counts sooner, no more
	}
}

// lastCounts returns the result that is shared and how long it took, or 0 if there is none.
func (s *Store) lastCounts(ctx context.Context) (n driver.Counts, took time.Duration, err error) {
	got, err := s.say(ctx, "GET", "counts")
	if err != nil || got == nil {
		return n, 0, err
	}
	text, _ := textOf(got)
	if _, err := fmt.Fscan(strings.NewReader(text), &took, &n.Records, &n.Running, &n.Unknown, &n.OldestRunning); err != nil {
		return driver.Counts{}, 0, nil //nolint:nilerr // of another version
	}
	return n, took, nil
}

// say sends a command about a key of the store's own.
func (s *Store) say(ctx context.Context, command, key string, args ...any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key = s.prefix + key
	got, err := s.client.Do(ctx, key, append([]any{command, key}, args...)...)
	return got, interpretError(err)
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// countAll goes through all keys, and returns in how many steps.
func (s *Store) countAll(ctx context.Context) (n driver.Counts, steps int, err error) {
	err = s.eachPage(ctx, s.pattern(&driver.Query{}), []any{"none"}, func(p *page) error {
		steps++
		p.addTo(&n)
		if p.running > 0 {
			n.OldestRunning = max(n.OldestRunning, p.now.Sub(p.oldest))
		}
		return nil
	})
	return n, steps, err
}

func (p *page) addTo(n *driver.Counts) {
	n.Records += p.records
	n.Running += p.running
	n.Unknown += p.unknown
}
