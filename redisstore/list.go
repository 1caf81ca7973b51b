package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/semelhq/semel"
)

const (
	scanCount = "512" // keys that one SCAN looks at, about
	loadsOnce = 32    // records that a listing reads at once
)

// List implements [semel.Lister]. It goes through all keys of all nodes, also those of others: it is for operators, and
// slow on a large server. It passes over records that can't be read, and returns an error that wraps
// [semel.ErrUnreadable] in the end, which names them. In a Cluster it needs a client that is a [NodeVisitor].
func (s *Store) List(ctx context.Context, q semel.Query, yield func(semel.ID, semel.Record) bool) error {
	var unreadable []error
	seen := map[semel.ID]bool{} // a scan may show a key twice
	given := 0
	err := s.scan(ctx, s.pattern(q.Scope), func(ids []semel.ID) error {
		fresh := ids[:0]
		for _, id := range ids {
			if !seen[id] && (q.Scope == nil || *q.Scope == id.Scope()) {
				seen[id] = true
				fresh = append(fresh, id)
			}
		}
		for i, l := range s.loadAll(ctx, fresh) {
			switch {
			case errors.Is(l.err, semel.ErrUnreadable):
				unreadable = append(unreadable, fmt.Errorf("operation %s: %w", fresh[i], l.err))
				continue
			case l.err != nil:
				return l.err
			case l.rec.State == semel.Absent,
				q.Operation != "" && q.Operation != l.rec.Operation,
				q.Reading != semel.ReadsAbsent && q.Reading != l.rec.Reads(l.rec.OnLost):
				continue
			}
			given++
			if !yield(fresh[i], l.rec) || given == q.Limit {
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

// pattern returns what SCAN looks for. Of an id's text the first 21 characters are its scope's alone.
func (s *Store) pattern(scope *semel.ScopeID) string {
	p := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s.prefix) + "{"
	if scope != nil {
		var id semel.ID
		copy(id[:], scope[:])
		p += id.String()[:21]
	}
	return p + "*}"
}

// scan calls each with the operations that have a key.
func (s *Store) scan(ctx context.Context, pattern string, each func([]semel.ID) error) error {
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
			var ids []semel.ID
			for _, key := range keys {
				if id, ok := s.idOf(key); ok {
					ids = append(ids, id)
				}
			}
			if err := each(ids); err != nil {
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
func (s *Store) idOf(key string) (semel.ID, bool) {
	text, ok1 := strings.CutPrefix(key, s.prefix+"{")
	text, ok2 := strings.CutSuffix(text, "}")
	if !ok1 || !ok2 {
		return semel.ID{}, false
	}
	id, err := semel.ParseID(text)
	return id, err == nil
}

type loaded struct {
	rec semel.Record
	err error
}

// loadAll reads records, several at a time.
func (s *Store) loadAll(ctx context.Context, ids []semel.ID) []loaded {
	all := make([]loaded, len(ids))
	var wg sync.WaitGroup
	for first := range min(loadsOnce, len(ids)) {
		wg.Go(func() {
			for i := first; i < len(ids); i += loadsOnce {
				all[i].rec, all[i].err = s.load(ctx, ids[i])
			}
		})
	}
	wg.Wait()
	return all
}
