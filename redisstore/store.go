package redisstore

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
)

// Options are a store's settings. The zero value is valid.
type Options struct {
	// Prefix is what the names of all keys, and of the channel, begin with. Stores with different prefixes share a server
	// and nothing else. A prefix with braces, such as "{semel}:", puts all records of a Cluster on one node. Defaults to
	// "semel:".
	Prefix string

	// AllowEviction lets the store work on a server that may evict records to make room, by its maxmemory-policy. An
	// evicted record is an operation that never was: it runs again. By default Open then fails with [ErrEvicts].
	AllowEviction bool

	// Notify has each settle published on the channel Prefix + "settled", so that waiters in other processes look again at
	// once, and not at their next poll. In a Cluster each such message goes to every node. It needs a client that is a
	// [Subscriber], in all processes.
	Notify bool

	// Log gets what an operator should know of. Defaults to nobody.
	Log *slog.Logger
}

const defaultPrefix = "semel:"

// Store is a [driver.Store] in Redis. It is also a [driver.StepStore], [driver.Seizer],
// [driver.Scanner], [driver.Auditor], [driver.Counter] and [driver.Waker]. It is safe for concurrent use, and has
// nothing to close. Several stores, in several processes, share records that have the same prefix.
type Store struct {
	client   Client
	texts    TextClient // the same
	prefix   string
	channel  string // "" if settles are not published
	cluster  bool   // keys are on several nodes, whose clocks are not one
	native   bool   // native commands can be used where no script is needed
	reads    *line  // looks for answers
	writes   *line  // native claims and settles
	finished finished
	runs     runs
	clock    clock
}

var (
	_ driver.StepStore = (*Store)(nil)
	_ driver.Seizer    = (*Store)(nil)
	_ driver.Scanner   = (*Store)(nil)
	_ driver.Auditor   = (*Store)(nil)
	_ driver.Counter   = (*Store)(nil)
	_ driver.Waker     = (*Store)(nil)
)

// Open returns a store on the client. It asks the server, and with a [NodeVisitor] each node of a Cluster, what it is:
// errors wrap [ErrVersion] and [ErrEvicts]. If the user of the client may not ask, that is logged.
func Open(ctx context.Context, client Client, o Options) (*Store, error) {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{client: client, texts: textClient(client), prefix: o.Prefix}
	s.reads, s.writes = newReads(s.texts), &line{alone: s.writeAlone, together: s.writeTogether}
	if o.Notify {
		if _, ok := client.(Subscriber); !ok {
			return nil, fmt.Errorf("open redisstore: Options.Notify is set, but the client, a %T, is no Subscriber", client)
		}
		s.channel = o.Prefix + "settled"
	}
	if err := s.inspect(ctx, o); err != nil {
		return nil, fmt.Errorf("open redisstore: %w", err)
	}
	s.reads.apart.Store(s.cluster) // for good: no command is for keys of several nodes
	if s.native {
		s.askTime(ctx)
	}
	return s, nil
}

// key returns the key of a record. The part in braces decides about its slot, also of those of its answer and steps.
func (s *Store) key(id driver.ID) string { return keyOf(s.prefix, id) }

func keyOf(prefix string, id driver.ID) string {
	b := make([]byte, 0, 128)
	b = append(append(b, prefix...), '{')
	return string(append(base64.RawURLEncoding.AppendEncode(b, id[:]), '}'))
}

// ask executes a script on a record.
func (s *Store) ask(ctx context.Context, sc *script, key string, args ...string) (reply, error) {
	sent := time.Now()
	r, err := sc.ask(ctx, s.texts, key, args...)
	if err == nil {
		s.clock.set(r.now, sent, time.Now())
	}
	return r, err
}

// eachNode visits all nodes that have records, one after another, until the first error.
func (s *Store) eachNode(ctx context.Context, visit func(ctx context.Context, node Client) error) error {
	v, ok := s.client.(NodeVisitor)
	switch {
	case !ok && s.cluster:
		return fmt.Errorf("the client, a %T, is no NodeVisitor, which a Cluster needs for that", s.client)
	case !ok:
		return visit(ctx, s.client)
	}
	var mu sync.Mutex
	var failed error
	return v.EachNode(ctx, func(ctx context.Context, node Client) error {
		mu.Lock()
		defer mu.Unlock()
		if failed == nil {
			failed = visit(ctx, node)
		}
		return failed
	})
}
