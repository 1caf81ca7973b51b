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

const atOnce = 32 // commands that a listing has under way

// List implements [driver.Lister]. It goes through all keys of all nodes, also those of others, in short steps between
// which the server does other work: it is for operators, and slow on a large server. Of each record a step looks at the
// first 152 bytes, and at the operation or correlation id that is asked for; only those that may match are read. With
// q.Scanned it reads what [Store.Scan] has come by, and nothing else. It passes over records that can't be read, and
// returns an error that wraps [driver.ErrUnreadable] in the end, which names them. In a Cluster it needs a client that
// is a [NodeVisitor].
func (s *Store) List(ctx context.Context, q driver.Query, yield func(driver.ID, driver.Record) bool) error {
	first, last, some := q.Range()
	if !some {
		return nil
	}
	var unreadable []error
	seen := map[driver.ID]bool{} // given or unreadable: a scan may show a key twice. All others would be too many to remember
	given := 0
	visit := func(ids []driver.ID) error {
		fresh := ids[:0]
		for _, id := range ids {
			if !seen[id] && bytes.Compare(first[:], id[:]) <= 0 && bytes.Compare(id[:], last[:]) <= 0 {
				fresh = append(fresh, id)
			}
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
	}
	var err error
	if q.Scanned && waits(&q) {
		err = s.eachWaiting(ctx, q, visit)
	} else {
		err = s.eachPage(ctx, s.pattern(&q), selecting(&q), func(p *page) error { return visit(p.ids) })
	}
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

// selecting returns the arguments by which scan.lua gives the keys of records that may match.
func selecting(q *driver.Query) []any {
	reading, sealed := q.Reading, "0"
	if reading == driver.ReadsExpired {
		reading = driver.ReadsDone // which the script does not tell apart
	}
	if q.Sealed {
		sealed = "1"
	}
	if reading == driver.ReadsAbsent && !q.Sealed && q.Operation == "" && q.Correlation == "" {
		return []any{"all"}
	}
	return []any{"matching", strconv.Itoa(int(reading)), sealed, q.Operation, q.Correlation}
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

// listStep is how many keys one step of a listing looks at, about. A step holds up all other commands.
const listStep = 64

// A page is what scan.lua tells of some keys.
type page struct {
	next                      string
	records, running, unknown int64
	oldest, now               driver.Time
	ids                       []driver.ID
}

// eachPage calls visit with the pages of all nodes.
func (s *Store) eachPage(ctx context.Context, pattern string, give []any, visit func(p *page) error) error {
	return s.eachNode(ctx, func(ctx context.Context, node Client) error {
		for cursor := "0"; ; {
			p, err := s.page(ctx, node, cursor, pattern, listStep, give)
			if err == nil {
				err = visit(p)
			}
			if err != nil {
				return err
			}
			if cursor = p.next; cursor == "0" {
				return nil
			}
		}
	})
}

// page looks at the keys of a node that follow a cursor.
func (s *Store) page(ctx context.Context, node Client, cursor, pattern string, count int, give []any) (*page, error) {
	got, err := scanScript.look(ctx, node, append([]any{cursor, pattern, strconv.Itoa(count)}, give...)...)
	if err != nil {
		return nil, err
	}
	parts, _ := got.([]any)
	if len(parts) != 7 {
		return nil, fmt.Errorf("script replied a %T of %d parts", got, len(parts))
	}
	p := &page{}
	next, ok := textOf(parts[0])
	p.next = next
	for i, to := range []*int64{&p.records, &p.running, &p.unknown, (*int64)(&p.oldest), (*int64)(&p.now)} {
		n, isNumber := parts[i+1].(int64)
		*to, ok = n, ok && isNumber
	}
	keys, isList := parts[6].([]any)
	if !ok || !isList {
		return nil, fmt.Errorf("script replied %.200v", parts)
	}
	for _, v := range keys {
		key, _ := textOf(v)
		if id, ok := s.idOf(key); ok {
			p.ids = append(p.ids, id)
		}
	}
	return p, nil
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
