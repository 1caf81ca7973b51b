package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/semelhq/semel/driver"
)

const scanCount = "512" // keys that one SCAN looks at, about

const atOnce = 32 // commands that a listing has under way

// List implements [driver.Lister]. It goes through all keys of all nodes, also those of others: it is for operators and
// completers, and slow on a large server. For a reading, or sealed requests, it looks at the first 152 bytes of each
// record, and reads those that match. It passes over records that can't be read, and returns an error that wraps
// [driver.ErrUnreadable] in the end, which names them. In a Cluster it needs a client that is a [NodeVisitor].
func (s *Store) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
	first, last, some := q.Range()
	if !some {
		return nil
	}
	var unreadable []error
	seen := map[driver.ID]bool{} // given or unreadable: a scan may show a key twice. All others would be too many to remember
	given := 0
	err := s.scan(ctx, s.pattern(&q), func(node Client, ids []driver.ID) error {
		fresh := ids[:0]
		for _, id := range ids {
			if !seen[id] && bytes.Compare(first[:], id[:]) <= 0 && bytes.Compare(id[:], last[:]) <= 0 {
				fresh = append(fresh, id)
			}
		}
		fresh, err := s.candidates(ctx, node, q, fresh)
		if err != nil {
			return err
		}
		for i, l := range s.loadAll(ctx, fresh) {
			id := fresh[i]
			switch {
			case seen[id]: // twice in one reply
				continue
			case errors.Is(l.err, driver.ErrUnreadable):
				seen[id] = true
				unreadable = append(unreadable, fmt.Errorf("operation %s: %w", id, l.err))
				continue
			case l.err != nil:
				return l.err
			case !q.Matches(id, &l.rec):
				continue
			}
			seen[id] = true
			given++
			if !yield(id, l.rec) || given == q.Limit {
				return errEnough
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, errEnough):
		return nil
	case err == nil:
		err = errors.Join(unreadable...)
	}
	if err != nil {
		return fmt.Errorf("redisstore: list: %w", err)
	}
	return nil
}

var errEnough = errors.New("the listing is over")

// pattern returns what SCAN looks for. Of an id's text the first 21 characters are its scope's alone. A prefix is
// base64url, in which nothing is special.
func (s *Store) pattern(q *driver.Query) string {
	p := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s.prefix) + "{"
	begins := ""
	if q.Scope != nil {
		var id driver.ID
		copy(id[:], q.Scope[:])
		begins = id.String()[:21]
	}
	if len(q.Prefix) > len(begins) {
		begins = q.Prefix
	}
	return p + begins + "*}"
}

// candidates returns those operations of which a look at the head does not say that they do not match. A record that
// can't be read is one of them.
func (s *Store) candidates(ctx context.Context, node Client, q driver.Query, ids []driver.ID) ([]driver.ID, error) {
	if !q.Sealed && q.Reading == driver.ReadsAbsent || len(ids) == 0 {
		return ids, nil
	}
	now, err := timeOf(ctx, node)
	if err != nil {
		return nil, err
	}
	errs, matches := make([]error, len(ids)), make([]bool, len(ids))
	each(len(ids), func(i int) {
		var head string
		if head, errs[i] = headOf(ctx, s.client, s.key(ids[i])); errs[i] == nil {
			matches[i] = mayMatch(q, head, now)
		}
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	left := ids[:0]
	for i, id := range ids {
		if matches[i] {
			left = append(left, id)
		}
	}
	return left, nil
}

func mayMatch(q driver.Query, head string, now driver.Time) bool {
	rec, err := readHead(head)
	if err != nil || rec.State == driver.Absent {
		return err != nil
	}
	rec.Now = now
	return (!q.Sealed || partSize(head, partSealed) > 0) && (q.Reading == driver.ReadsAbsent || q.Reading == rec.Reads(rec.OnLost))
}

// headOf returns the first bytes of what a key holds.
func headOf(ctx context.Context, client Client, key string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	got, err := client.Do(ctx, key, "GETRANGE", key, "0", strconv.Itoa(frameHead-1))
	if err != nil {
		return "", interpretError(err)
	}
	head, ok := textOf(got)
	if !ok {
		return "", fmt.Errorf("GETRANGE replied a %T", got)
	}
	return head, nil
}

// timeOf returns the clock of a node.
func timeOf(ctx context.Context, node Client) (driver.Time, error) {
	got, err := node.Do(ctx, "", "TIME")
	if err != nil {
		return 0, interpretError(err)
	}
	pair, _ := got.([]any)
	if len(pair) != 2 {
		return 0, fmt.Errorf("TIME replied a %T of %d parts", got, len(pair))
	}
	seconds, _ := textOf(pair[0])
	micros, _ := textOf(pair[1])
	sec, err1 := strconv.ParseInt(seconds, 10, 64)
	usec, err2 := strconv.ParseInt(micros, 10, 64)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("TIME replied %.40q and %.40q", seconds, micros)
	}
	return driver.Time(sec*1e6 + usec), nil
}

// scan calls visit with the operations that have a key on a node, some at a time.
func (s *Store) scan(ctx context.Context, pattern string, visit func(node Client, ids []driver.ID) error) error {
	return s.eachNode(ctx, func(ctx context.Context, node Client) error {
		for cursor := "0"; ; {
			if err := ctx.Err(); err != nil {
				return err
			}
			got, err := node.Do(ctx, "", "SCAN", cursor, "MATCH", pattern, "COUNT", scanCount)
			if err = interpretError(err); err != nil {
				return err
			}
			next, keys, ok := scanReply(got)
			if !ok {
				return fmt.Errorf("SCAN replied a %T", got)
			}
			var ids []driver.ID
			for _, key := range keys {
				if id, ok := s.idOf(key); ok {
					ids = append(ids, id)
				}
			}
			if err := visit(node, ids); err != nil {
				return err
			}
			if cursor = next; cursor == "0" {
				return nil
			}
		}
	})
}

func scanReply(v any) (next string, keys []string, ok bool) {
	pair, ok := v.([]any)
	if !ok || len(pair) != 2 {
		return "", nil, false
	}
	next, ok1 := textOf(pair[0])
	list, ok2 := pair[1].([]any)
	for _, v := range list {
		key, _ := textOf(v)
		keys = append(keys, key)
	}
	return next, keys, ok1 && ok2
}

// idOf returns the operation whose record a key holds.
func (s *Store) idOf(key string) (driver.ID, bool) {
	text, ok1 := strings.CutPrefix(key, s.prefix+"{")
	text, ok2 := strings.CutSuffix(text, "}")
	if !ok1 || !ok2 {
		return driver.ID{}, false
	}
	id, err := driver.ParseID(text)
	return id, err == nil
}

type loaded struct {
	rec driver.Record
	err error
}

// loadAll reads records, several at a time.
func (s *Store) loadAll(ctx context.Context, ids []driver.ID) []loaded {
	all := make([]loaded, len(ids))
	each(len(ids), func(i int) { all[i].rec, all[i].err = s.load(ctx, ids[i]) })
	return all
}

// each calls do with 0 to n-1, several at a time. It panics if one of them does.
func each(n int, do func(i int)) {
	var wg sync.WaitGroup
	var thrown atomic.Pointer[any]
	for first := range min(atOnce, n) {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					thrown.CompareAndSwap(nil, &p)
				}
			}()
			for i := first; i < n; i += atOnce {
				do(i)
			}
		})
	}
	wg.Wait()
	if p := thrown.Load(); p != nil {
		panic(*p)
	}
}
