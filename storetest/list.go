package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/semelhq/semel/driver"
)

// list returns what List gives, and how often.
func (h handle) list(q driver.Query) map[driver.ID]driver.Record {
	h.e.Helper()
	got := map[driver.ID]driver.Record{}
	err := h.Store.(driver.Lister).List(h.e.ctx, q, func(id driver.ID, rec driver.Record) bool {
		if _, twice := got[id]; twice {
			h.e.Errorf("List gave %s twice", id)
		}
		got[id] = rec
		return true
	})
	if err != nil {
		h.e.Fatalf("List: %v", err)
	}
	return got
}

// listed checks that got holds exactly the given records.
func (e *env) listed(what string, got map[driver.ID]driver.Record, want []situation) {
	e.Helper()
	for _, s := range want {
		rec, ok := got[s.id]
		if !ok {
			e.Errorf("%s: a record is missing: %s", what, s.name)
			continue
		}
		e.same(what+", "+s.name, rec, s.rec)
		if rec.Now == 0 {
			e.Errorf("%s, %s: Now is not set", what, s.name)
		}
	}
	if len(got) != len(want) {
		e.Errorf("%s: %d records, want %d", what, len(got), len(want))
	}
}

var listChecks = []check{
	{
		name:    "it shows all as they are",
		promise: "List without conditions gives each record once, as Load does.",
		needs:   lister,
		run: func(e *env) {
			all := e.situations()
			e.listed("all", e.b.list(driver.Query{}), all)
		},
	},
	{
		name: "it selects by reading",
		promise: "List by reading gives the records that read so, also where that is derived: lapsed under Hold is unknown, " +
			"lapsed under Rerun free, lapsed and begun done (R-52).",
		needs: lister,
		run: func(e *env) {
			all := e.situations()
			for _, reading := range []driver.Reading{driver.ReadsRunning, driver.ReadsDone, driver.ReadsFree, driver.ReadsUnknown} {
				var want []situation
				for _, s := range all {
					if s.rec.Reads(s.rec.OnLost) == reading {
						want = append(want, s)
					}
				}
				e.listed(reading.String(), e.b.list(driver.Query{Reading: reading}), want)
			}
		},
	},
	{
		name: "it finds what waits",
		promise: "List with Scanned gives what reads unknown, and what reads free and has a sealed request, of a Scanner as soon as " +
			"its scan has come by (R-52).",
		needs: lister,
		run: func(e *env) {
			all := e.situations()
			if s, ok := e.a.Store.(driver.Scanner); ok {
				ctx, stop := context.WithCancel(e.ctx)
				ended := make(chan error, 1)
				go func() { ended <- s.Scan(ctx) }()
				defer func() {
					stop()
					if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, errors.ErrUnsupported) {
						e.Errorf("Scan: %v", err)
					}
				}()
			}
			for _, q := range []driver.Query{
				{Reading: driver.ReadsUnknown, Scanned: true},
				{Reading: driver.ReadsFree, Sealed: true, Scanned: true},
			} {
				var want []situation
				for _, s := range all {
					if q.Matches(s.id, &s.rec) {
						want = append(want, s)
					}
				}
				got := e.b.list(q)
				for until := time.Now().Add(30 * time.Second); len(got) < len(want) && time.Now().Before(until); got = e.b.list(q) {
					time.Sleep(5 * time.Millisecond)
				}
				e.listed(q.Reading.String(), got, want)
			}
		},
	},
	{
		name:    "it selects by scope and operation",
		promise: "List by scope gives the records of that kind and scope, by operation those of that operation, by both those of both.",
		needs:   lister,
		run: func(e *env) {
			scope := newID().Scope()
			const operation = "PUT /accounts/{id}"
			var inScope, ofOperation, both []situation
			for i := range 8 {
				s := situation{name: "running", id: newID(), claim: ask(driver.Hold)}
				if i&1 != 0 {
					copy(s.id[:], scope[:])
				}
				if i&2 != 0 {
					s.claim.Operation = operation
				}
				s.rec = e.a.begin(s.id, s.claim)
				if i&1 != 0 {
					inScope = append(inScope, s)
				}
				if i&2 != 0 {
					ofOperation = append(ofOperation, s)
				}
				if i&3 == 3 {
					both = append(both, s)
				}
			}
			e.listed("by scope", e.b.list(driver.Query{Scope: &scope}), inScope)
			e.listed("by operation", e.b.list(driver.Query{Operation: operation}), ofOperation)
			e.listed("by both", e.b.list(driver.Query{Scope: &scope, Operation: operation}), both)
			other := newID().Scope()
			e.listed("by a scope that has none", e.b.list(driver.Query{Scope: &other}), nil)
		},
	},
	{
		name: "it selects by the id's beginning and by correlation",
		promise: "List by prefix gives the records whose public id begins so, by correlation those whose last run was started by that " +
			"request, and by several conditions those for which all hold.",
		needs: lister,
		run: func(e *env) {
			id, near := newID(), newID()
			const wanted = "trace-7"
			copy(near[:], id[:20]) // 26 characters of it are the same
			one := situation{name: "one", id: id, claim: ask(driver.Hold)}
			two := situation{name: "near it", id: near, claim: ask(driver.Hold)}
			far := situation{name: "far from it", id: newID(), claim: ask(driver.Hold)}
			one.claim.Correlation, far.claim.Correlation = wanted, wanted
			two.claim.Correlation = "trace-70"
			for _, s := range []*situation{&one, &two, &far} {
				s.rec = e.a.begin(s.id, s.claim)
			}
			text, scope := id.String(), id.Scope()
			e.listed("by 26 characters", e.b.list(driver.Query{Prefix: text[:26]}), []situation{one, two})
			e.listed("by all characters", e.b.list(driver.Query{Prefix: text}), []situation{one})
			e.listed("by correlation", e.b.list(driver.Query{Correlation: wanted}), []situation{one, far})
			e.listed("by both", e.b.list(driver.Query{Prefix: text[:26], Correlation: wanted}), []situation{one})
			e.listed("by prefix and scope", e.b.list(driver.Query{Prefix: text[:10], Scope: &scope}), []situation{one, two})
			other := newID().Scope()
			e.listed("by a prefix of another scope", e.b.list(driver.Query{Prefix: text[:26], Scope: &other}), nil)
			e.listed("by what no id begins with", e.b.list(driver.Query{Prefix: "no id!"}), nil)
			e.listed("by more than an id has", e.b.list(driver.Query{Prefix: text + "A"}), nil)
			e.listed("by correlation among what runs", e.b.list(driver.Query{Correlation: wanted, Reading: driver.ReadsRunning}), []situation{one, far})
		},
	},
	{
		name: "it selects by sealed request",
		promise: "List with Sealed gives the records that have a sealed request, an empty one is none, also together with the other " +
			"conditions (R-52).",
		needs: lister,
		run: func(e *env) {
			sealed := e.situations() // all claimed with one
			sealed = slices.DeleteFunc(sealed, func(s situation) bool { return s.rec.State == driver.Done })
			for i := range 6 {
				s := situation{name: "without", id: newID(), claim: ask(driver.Rerun)}
				s.claim.Sealed = [][]byte{nil, {}}[i%2]
				rec := e.a.begin(s.id, s.claim)
				if i >= 2 {
					e.b.end(s.id, rec.Owner(), []driver.Outcome{free(""), owed(""), done(nil)}[i%3])
				}
			}
			const operation = "PUT /accounts/{id}"
			one := situation{name: "of its operation", id: newID(), claim: ask(driver.Rerun)}
			one.claim.Operation, one.claim.Sealed = operation, []byte{0}
			one.rec = e.a.ran(one.id, one.claim, free(""))
			sealed = append(sealed, one)

			e.listed("sealed", e.b.list(driver.Query{Sealed: true}), sealed)
			for _, reading := range []driver.Reading{driver.ReadsRunning, driver.ReadsDone, driver.ReadsFree, driver.ReadsUnknown} {
				var want []situation
				for _, s := range sealed {
					if s.rec.Reads(s.rec.OnLost) == reading {
						want = append(want, s)
					}
				}
				e.listed("sealed, "+reading.String(), e.b.list(driver.Query{Sealed: true, Reading: reading}), want)
			}
			scope := one.id.Scope()
			e.listed("sealed, by scope", e.b.list(driver.Query{Sealed: true, Scope: &scope}), []situation{one})
			e.listed("sealed, by operation", e.b.list(driver.Query{Sealed: true, Operation: operation}), []situation{one})
			e.listed("sealed, by all", e.b.list(driver.Query{
				Sealed: true, Scope: &scope, Operation: operation, Reading: driver.ReadsFree,
			}), []situation{one})
			if got := len(e.b.list(driver.Query{Sealed: true, Reading: driver.ReadsFree, Limit: 2})); got != 2 {
				e.Errorf("sealed, free, limit 2: %d records", got)
			}
		},
	},
	{
		name:    "it stops",
		promise: "List gives at most Limit matching records, and none after yield has returned false.",
		needs:   lister,
		run: func(e *env) {
			for i := range 9 {
				c := ask(driver.Hold)
				if i%3 == 0 {
					c.Operation = "GET /quotes"
				}
				e.a.begin(newID(), c)
			}
			for _, row := range []struct {
				q    driver.Query
				want int
			}{
				{driver.Query{Limit: 1}, 1},
				{driver.Query{Limit: 5}, 5},
				{driver.Query{Limit: 50}, 9},
				{driver.Query{Limit: 2, Operation: "GET /quotes"}, 2},
				{driver.Query{Limit: 9, Operation: "GET /quotes"}, 3},
			} {
				if got := len(e.b.list(row.q)); got != row.want {
					e.Errorf("limit %d, operation %q: %d records, want %d", row.q.Limit, row.q.Operation, got, row.want)
				}
			}
			calls := 0
			err := e.b.Store.(driver.Lister).List(e.ctx, driver.Query{}, func(driver.ID, driver.Record) bool {
				calls++
				return calls < 3
			})
			if err != nil || calls != 3 {
				e.Errorf("yield returned false at the third record: %d calls, error %v", calls, err)
			}
		},
	},
}
