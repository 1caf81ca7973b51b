package pgstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/semelhq/semel/driver"
)

// A kindOfVerb says how verbs of one kind go together.
type kindOfVerb struct {
	sql     string
	columns []int // the arguments of the call for one that become arrays
	rest    int   // the first of its arguments that are the same for all, up to its end
	read    func(row [][]byte, all []*waiter) error
}

// kindsOfVerbs are in the order in which a group executes them. A run that is extended and settled at once is extended
// first; a claim or a load sees what the same group has settled.
type kindsOfVerbs struct {
	extend, settle, claim, load kindOfVerb
}

func newKinds(o Options) *kindsOfVerbs {
	in := func(template string) string { return inSchema(template, o.Schema) }
	return &kindsOfVerbs{
		extend: kindOfVerb{in("SELECT * FROM {schema}.extends_1(" + placeholders(5) + ")"), []int{0, 1, 2, 3, 4}, 5, readExtended},
		settle: kindOfVerb{in("SELECT * FROM {schema}.settles_1(" + placeholders(8) + ")"), []int{0, 1, 2, 6, 7, 8}, 10, readRecord},
		claim:  kindOfVerb{in("SELECT * FROM {schema}.claims_1(" + placeholders(10) + ")"), []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 10, readClaimed},
		load:   kindOfVerb{in("SELECT * FROM {schema}.loads_1($1)"), []int{0}, 1, readRecord},
	}
}

// arrayOf has the type of the array of each type that an argument has.
var arrayOf = map[uint32]uint32{
	pgtype.ByteaOID: pgtype.ByteaArrayOID, pgtype.Int8OID: pgtype.Int8ArrayOID, pgtype.Int2OID: pgtype.Int2ArrayOID, pgtype.BoolOID: pgtype.BoolArrayOID,
}

// together makes one call of the calls of several verbs of the kind.
func (k *kindOfVerb) together(all []*waiter) *call {
	c := &call{sql: k.sql, often: true}
	values := make([][]byte, len(all))
	for _, i := range k.columns {
		for j, w := range all {
			values[j] = w.one.values[i]
		}
		element := all[0].one.oids[i]
		c.array(arrayOf[element], element, values)
	}
	first := all[0].one
	for i := k.rest; i < len(first.values); i++ {
		c.add(first.oids[i], first.values[i])
	}
	return c
}

// A group is executed together. It goes on until the last of its callers has left.
type group struct {
	all    []*waiter
	ctx    context.Context
	cancel context.CancelFunc
	here   atomic.Int64 // callers that have not left
}

func newGroup(all []*waiter) *group {
	g := &group{all: all}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.here.Store(int64(len(all)))
	for _, w := range all {
		w.group = g
	}
	return g
}

// leave takes a caller out, whose verb may be executed all the same.
func (g *group) leave() {
	if g.here.Add(-1) == 0 {
		g.cancel()
	}
}

// answer tells the callers what became of their verbs.
func (g *group) answer() {
	g.cancel()
	for _, w := range g.all {
		if w.over {
			w.turn <- turnOver
		} else {
			w.turn <- turnAlone
		}
	}
}

// end notes what became of the group. Where the server has certainly rolled it back, each of its verbs is sent again,
// alone: the cause may be one of them. Else nobody knows what was executed.
func (g *group) end(err error) {
	again := rolledBack(err)
	for _, w := range g.all {
		if err != nil {
			w.f, w.owned, w.err, w.over = found{}, false, err, !again
		}
	}
}

// executeGroup executes the verbs of a group. What ends the goroutine, such as a hook of the application's that panics,
// leaves no caller behind.
func (s *Store) executeGroup(g *group) {
	err := errors.New("the goroutine of a group of verbs was ended")
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a group of verbs: %v", p)
		}
		g.end(err)
	}()
	err = s.together(g)
}

// together executes the verbs of a group in one round trip and one transaction. Those that are not done when it returns
// without an error were left out.
func (s *Store) together(g *group) error {
	return s.onConn(g.ctx, func(conn *pgconn.PgConn) error {
		var b pgconn.Batch
		var parts []part
		for _, k := range []*kindOfVerb{&s.kinds.extend, &s.kinds.settle, &s.kinds.claim, &s.kinds.load} {
			p := part{kind: k}
			for _, w := range g.all {
				if w.kind == k {
					p.all = append(p.all, w)
				}
			}
			if len(p.all) == 0 {
				continue
			}
			slices.SortFunc(p.all, func(a, b *waiter) int { return bytes.Compare(a.one.values[0], b.one.values[0]) })
			parts = append(parts, p)
			if err := s.queue(g.ctx, conn, &b, k.together(p.all)); err != nil {
				return err
			}
		}
		answers := conn.ExecBatch(g.ctx, &b)
		var unread error
		for i := 0; answers.NextResult(); i++ {
			r := answers.ResultReader()
			for r.NextRow() {
				unread = cmp.Or(unread, parts[i].kind.read(r.Values(), parts[i].all))
			}
			r.Close() //nolint:errcheck // its error is that of all
		}
		return cmp.Or(answers.Close(), unread)
	})
}

// A part of a group are its verbs of one kind, sorted by their ids.
type part struct {
	kind *kindOfVerb
	all  []*waiter
}

// numbered returns the verb whose number is in a row, counted from 1.
func numbered(all []*waiter, number []byte) (*waiter, error) {
	n := int8Of(number)
	if n < 1 || n > int64(len(all)) {
		return nil, fmt.Errorf("a row for verb %d of %d", n, len(all))
	}
	return all[n-1], nil
}

func readExtended(row [][]byte, all []*waiter) error {
	w, err := numbered(all, row[0])
	if err == nil {
		w.owned, w.over = true, true
	}
	return err
}

func readRecord(row [][]byte, all []*waiter) error {
	w, err := numbered(all, row[0])
	if err == nil {
		w.f, w.err = readFound(row[1])
		w.over = true
	}
	return err
}

// readClaimed reads what became of claims: the new records at once, and then those that were there, one by one. A claim
// that may change one of those is left out.
func readClaimed(row [][]byte, all []*waiter) error {
	f, err := readFound(row[2])
	if int8Of(row[0]) == 0 {
		return cmp.Or(err, readMade(row[1], f.rec.Now, f.rec.Fence, all))
	}
	w, lost := numbered(all, row[0])
	if lost != nil {
		return lost
	}
	if _, owned := f.rec.Claim(f.rec.Now, *w.claim); owned && err == nil {
		return nil
	}
	w.f, w.err, w.over = f, err, true
	return nil
}

func readMade(made []byte, now driver.Time, fence uint64, all []*waiter) error {
	const size = len(driver.ID{}) + len(driver.Token{})
	for ; len(made) >= size; made = made[size:] {
		id, token := made[:len(driver.ID{})], driver.Token(made[len(driver.ID{}):size])
		i, _ := slices.BinarySearchFunc(all, id, func(w *waiter, id []byte) int { return bytes.Compare(w.one.values[0], id) })
		for ; i < len(all) && bytes.Equal(all[i].one.values[0], id); i++ {
			if w := all[i]; w.claim.Token == token {
				w.f.rec, w.f.owned = driver.Record{}.Claim(now, *w.claim)
				w.f.rec.Fence = fence
				w.over = true
			}
		}
	}
	if len(made) > 0 {
		return fmt.Errorf("ids and tokens of new records end with %d bytes", len(made))
	}
	return nil
}
