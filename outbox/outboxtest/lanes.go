package outboxtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel/outbox"
)

// in returns a message of a lane.
func in(id, topic, tenant string) outbox.Message {
	return outbox.Message{ID: id, Topic: topic, Tenant: tenant, Payload: make([]byte, 1000)}
}

var laneChecks = []check{
	{
		name:    "lanes take turns",
		promise: "Lease goes through the lanes in their order, from the one behind After on, and takes from each no more than it may.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			for _, lane := range []outbox.Lane{{Topic: "a"}, {Topic: "a", Tenant: "t"}, {Topic: "b"}, {Topic: "b", Tenant: "t"}} {
				for i := range 3 {
					h.add(in(fmt.Sprint(lane.Topic, lane.Tenant, i), lane.Topic, lane.Tenant))
				}
			}
			ask := func(change func(*outbox.LeaseRequest)) outbox.LeaseRequest {
				q := ask()
				q.Limit = 1
				change(&q)
				return q
			}
			for _, c := range []struct {
				why    string
				change func(*outbox.LeaseRequest)
				want   []string
			}{
				{"one of each", func(*outbox.LeaseRequest) {}, []string{"a0", "at0", "b0", "bt0"}},
				{"from two lanes", func(q *outbox.LeaseRequest) { q.Lanes = 2 }, []string{"a0", "at0"}},
				{"behind one", func(q *outbox.LeaseRequest) { q.After, q.Lanes = outbox.Lane{Topic: "a", Tenant: "t"}, 3 }, []string{"b0", "bt0", "a0"}},
				{"behind the last", func(q *outbox.LeaseRequest) { q.After, q.Lanes = outbox.Lane{Topic: "b", Tenant: "t"}, 1 }, []string{"a0"}},
				{"behind one that is not there", func(q *outbox.LeaseRequest) { q.After, q.Lanes = outbox.Lane{Topic: "a", Tenant: "z"}, 1 }, []string{"b0"}},
				{"so many in all", func(q *outbox.LeaseRequest) { q.Limit, q.Max = 2, 3 }, []string{"a0", "a1", "at0"}},
				{"so many bytes", func(q *outbox.LeaseRequest) { q.Limit, q.Bytes, q.Lanes = 3, 2999, 1 }, []string{"a0", "a1"}},
				{"one that is larger", func(q *outbox.LeaseRequest) { q.Limit, q.Bytes, q.Lanes = 3, 1, 1 }, []string{"a0"}},
				{"without a topic", func(q *outbox.LeaseRequest) { q.Skip = []string{"a"} }, []string{"b0", "bt0"}},
				{"without the last topic", func(q *outbox.LeaseRequest) { q.Skip = []string{"b", "c"} }, []string{"a0", "at0"}},
				{"without any", func(q *outbox.LeaseRequest) { q.Skip = []string{"b", "a"} }, nil},
				{"lanes with limits of their own", func(q *outbox.LeaseRequest) {
					q.Limits = map[outbox.Lane]int{{Topic: "a"}: 0, {Topic: "b"}: 2}
				}, []string{"at0", "b0", "b1", "bt0"}},
				{"nothing", func(q *outbox.LeaseRequest) { q.Max = 0 }, nil},
			} {
				q := ask(c.change)
				got := ids(h.leaseWith(q))
				e.same(c.why, got, c.want)
				var results []outbox.Result
				for _, id := range got {
					results = append(results, back(id))
				}
				h.settle(q.Token, results...)
			}
		},
	},
}

var operatorChecks = []check{
	{
		name:    "what was sent is kept and cleaned",
		promise: "A sent message is deleted at once, or kept for Options.Keep and then cleaned.",
		run: func(e *env) {
			keeps, other := e.open(outbox.Options{Keep: time.Hour}), e.open(outbox.Options{})
			keeps.add(message("1", "k"), message("2", ""))
			t := keeps.leases("both", "1", "2")
			keeps.settle(t, sent("1"), sent("2"))
			if got := keeps.entry("1"); got.State != outbox.Sent || got.Ended.IsZero() || got.Error != "" {
				e.Errorf("kept: %+v", got)
			}
			keeps.add(message("3", "k"))
			keeps.leases("behind one that is sent", "3")
			if n, err := other.Clean(e.ctx, many); n != 0 || err != nil {
				e.Errorf("cleaned too early: %d, %v", n, err)
			}
			e.storage.Advance(time.Hour + time.Second)
			for _, want := range []int{1, 1, 0} {
				if n, err := keeps.Clean(e.ctx, 1); n != want || err != nil {
					e.Errorf("Clean: %d, %v; want %d", n, err, want)
				}
			}
			e.same("what is left", ids(keeps.list(outbox.Query{})), []string{"3"})
		},
	},
	{
		name:    "messages are listed",
		promise: "List gives what the query selects, in the order of the ids, page by page.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			h.add(in("4", "a", ""), in("2", "a", "t"), in("3", "b", "t"))
			keyed := in("1", "b", "")
			keyed.Key = "k"
			h.add(keyed)
			t := h.leases("all", "4", "2", "1", "3")
			h.settle(t, givenUp("2", false), back("1"), back("3"), back("4"))
			for why, c := range map[string]struct {
				q    outbox.Query
				want []string
			}{
				"all":        {outbox.Query{}, []string{"1", "2", "3", "4"}},
				"a topic":    {outbox.Query{Topic: "a"}, []string{"2", "4"}},
				"a tenant":   {outbox.Query{Tenant: "t"}, []string{"2", "3"}},
				"a key":      {outbox.Query{Key: "k"}, []string{"1"}},
				"the dead":   {outbox.Query{State: outbox.Dead}, []string{"2"}},
				"pending":    {outbox.Query{State: outbox.Pending, Topic: "b", Tenant: "t"}, []string{"3"}},
				"ids":        {outbox.Query{IDs: []string{"3", "9", "1"}}, []string{"1", "3"}},
				"no id":      {outbox.Query{IDs: []string{}}, nil},
				"a page":     {outbox.Query{Limit: 2}, []string{"1", "2"}},
				"the next":   {outbox.Query{Limit: 2, After: "2"}, []string{"3", "4"}},
				"the last":   {outbox.Query{After: "4"}, nil},
				"every part": {outbox.Query{State: outbox.Dead, Topic: "a", Tenant: "t", IDs: []string{"2"}, After: "1", Limit: 1}, []string{"2"}},
			} {
				e.same(why, ids(h.list(c.q)), c.want)
			}
			n := 0
			e.must("List", h.List(e.ctx, outbox.Query{}, func(outbox.Entry) bool { n++; return false }))
			if n != 1 {
				e.Errorf("%d messages were given after the first was enough", n)
			}
			if got := h.entry("3"); got.Topic != "b" || got.Tenant != "t" || len(got.Payload) != 1000 || got.Since.IsZero() {
				e.Errorf("listed: %+v", got)
			}
		},
	},
	{
		name:    "messages are requeued and dropped",
		promise: "Requeue makes dead and waiting messages due; Drop deletes; neither touches what is leased.",
		run: func(e *env) {
			h := e.open(outbox.Options{Keep: time.Hour})
			h.add(message("1", ""), message("2", ""), message("3", ""), message("4", ""), message("5", ""))
			t := h.leases("all", "1", "2", "3", "4", "5")
			h.settle(t, sent("1"), failed("2", time.Hour), givenUp("3", false), givenUp("4", false))
			if n, err := h.Requeue(e.ctx, "1", "2", "3", "5", "9"); n != 2 || err != nil {
				e.Errorf("Requeue: %d, %v; want 2: neither what is sent nor what is leased", n, err)
			}
			if two, three := h.entry("2"), h.entry("3"); two.Attempts != 1 || three.Attempts != 0 || three.State != outbox.Pending {
				e.Errorf("requeued: %+v, %+v", two, three)
			}
			if n, err := h.Drop(e.ctx, "1", "4", "5", "9"); n != 2 || err != nil {
				e.Errorf("Drop: %d, %v; want 2: not what is leased", n, err)
			}
			t = h.leases("requeued", "2", "3")
			h.settle(t, back("2"), back("3"))
			if n, err := h.Drop(e.ctx, "2"); n != 1 || err != nil {
				e.Errorf("Drop of a pending one: %d, %v", n, err)
			}
			e.same("what is left", ids(h.list(outbox.Query{})), []string{"3", "5"})
			for what, call := range map[string]func() (int, error){
				"Requeue": func() (int, error) { return h.Requeue(e.ctx) },
				"Drop":    func() (int, error) { return h.Drop(e.ctx) },
			} {
				if n, err := call(); n != 0 || err != nil {
					e.Errorf("%s of nothing: %d, %v", what, n, err)
				}
			}
		},
	},
	{
		name:    "messages are counted",
		promise: "Stats tell what is pending and dead, and how long the oldest waits.",
		run: func(e *env) {
			h := e.open(outbox.Options{Keep: time.Hour})
			h.add(in("1", "a", ""), in("2", "a", "t"), in("3", "b", ""), in("4", "b", ""))
			later := in("5", "c", "")
			later.Delay = 24 * time.Hour
			h.add(later)
			t := h.leases("all", "1", "2", "3", "4")
			h.settle(t, sent("1"), failed("2", 2*time.Hour), givenUp("3", false), givenUp("4", false))
			e.storage.Advance(time.Hour)
			h.add(in("6", "a", ""))
			s, err := h.Stats(e.ctx)
			e.must("Stats", err)
			about := func(d time.Duration) bool { return d >= time.Hour && d < time.Hour+checkTimeout }
			a, b, c := s.Topics["a"], s.Topics["b"], s.Topics["c"]
			if s.Pending != 3 || s.Dead != 2 || len(s.Topics) != 3 || !about(s.Lag) ||
				a.Pending != 2 || a.Dead != 0 || !about(a.Lag) || b != (outbox.TopicStats{Dead: 2}) || c != (outbox.TopicStats{Pending: 1}) {
				e.Errorf("counted: %+v", s)
			}
		},
	},
	{
		name:    "a context that has ended is heeded",
		promise: "No method works on after its context has ended.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			h.add(message("1", ""))
			ctx, cancel := contextEnded()
			defer cancel()
			if _, err := h.Lease(ctx, ask()); !errors.Is(err, ctx.Err()) {
				e.Errorf("Lease: %v", err)
			}
			if _, err := h.Stats(ctx); !errors.Is(err, ctx.Err()) {
				e.Errorf("Stats: %v", err)
			}
		},
	},
}
