package outboxtest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/outbox"
)

var leaseChecks = []check{
	{
		name:    "what is leased is not leased again before its lease is over",
		promise: "A lease keeps messages from all others until it is over, by the store's clock.",
		run: func(e *env) {
			a, b := e.open(outbox.Options{}), e.open(outbox.Options{})
			a.add(message("1", ""), message("2", "k"))
			a.leases("first", "1", "2")
			b.leases("while they are leased")
			if !b.entry("1").Leased {
				e.Error("the message does not say that it is leased")
			}
			e.storage.Advance(lease + time.Second)
			b.leases("after the lease", "1", "2")
		},
	},
	{
		name:    "a settle needs the lease",
		promise: "A relay that has lost its lease changes nothing any more; a settle that is repeated changes nothing either.",
		run: func(e *env) {
			a, b := e.open(outbox.Options{Keep: time.Hour}), e.open(outbox.Options{Keep: time.Hour})
			a.add(message("1", ""), message("2", ""))
			old := a.leases("first", "1", "2")
			e.storage.Advance(lease + time.Second)
			present := b.leases("after the lease", "1", "2")
			a.settle(old, sent("1"), givenUp("2", false))
			a.settle(driver.NewToken(), sent("1"), back("2"))
			if got := b.entry("1"); got.State != outbox.Pending || !got.Leased {
				e.Errorf("after a late settle the message is %v, leased: %t", got.State, got.Leased)
			}
			b.settle(present, sent("1"), failed("2", time.Hour))
			b.settle(present, failed("1", 0), failed("2", 0))
			if got := b.entry("1"); got.State != outbox.Sent {
				e.Errorf("after a second settle the message is %v", got.State)
			}
			if got := b.entry("2"); got.State != outbox.Pending || got.Attempts != 1 || got.Due.IsZero() {
				e.Errorf("after a second settle the message is %v, with %d attempts", got.State, got.Attempts)
			}
		},
	},
	{
		name:    "outcomes do what they say",
		promise: "Acknowledged ends, Failed counts and waits, GivenUp is dead, PutBack is as before.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			h.add(message("1", ""), message("2", ""), message("3", ""), message("4", ""))
			t := h.leases("all", "1", "2", "3", "4")
			h.settle(t, sent("1"), failed("2", time.Hour), givenUp("3", false), back("4"))
			e.same("what is left", ids(h.list(outbox.Query{})), []string{"2", "3", "4"})
			two, three, four := h.entry("2"), h.entry("3"), h.entry("4")
			if two.State != outbox.Pending || two.Attempts != 1 || two.Error != "no answer" || two.Due.IsZero() || two.Leased {
				e.Errorf("failed: %+v", two)
			}
			if three.State != outbox.Dead || three.Attempts != 1 || three.Error != "no such order" || three.Ended.IsZero() || three.Holds {
				e.Errorf("given up: %+v", three)
			}
			if four.State != outbox.Pending || four.Attempts != 0 || four.Error != "" || !four.Due.IsZero() || four.Leased {
				e.Errorf("put back: %+v", four)
			}
			h.settle(h.leases("what is due", "4"), back("4"))
			e.storage.Advance(time.Hour + time.Second)
			h.leases("after the delay", "2", "4")
		},
	},
	{
		name:    "a clock that is set back stops nothing new",
		promise: "After the store's clock was set back, messages that were added before and after are leased at once.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			h.add(message("1", "k"))
			e.storage.Advance(-time.Hour)
			h.add(message("2", "k"), message("3", ""))
			t := h.leases("after the clock was set back", "1", "2", "3")
			h.settle(t, sent("1"), sent("2"), sent("3"))
			e.same("what is left", ids(h.list(outbox.Query{})), nil)
		},
	},
	{
		name:    "many lease at once",
		promise: "However many lease at once, no message is leased twice (case 32), and none of a key before older ones are sent.",
		run: func(e *env) {
			const messages, keys = 300, 7
			var first []outbox.Message
			for i := range messages {
				first = append(first, message(fmt.Sprintf("%03d", i), fmt.Sprint(i%keys)))
			}
			a := e.open(outbox.Options{})
			a.add(first...)
			var mu sync.Mutex
			var order []string
			out := map[string]bool{} // leased and not settled
			var all sync.WaitGroup
			for range 3 {
				h := e.open(outbox.Options{})
				all.Go(func() {
					for {
						mu.Lock()
						done := len(order) == messages
						mu.Unlock()
						if done || e.ctx.Err() != nil {
							return
						}
						q := ask()
						q.Limit = 10
						got, err := h.Lease(e.ctx, q)
						if errors.Is(err, outbox.ErrBusy) {
							continue
						}
						if err != nil {
							e.Errorf("Lease: %v", err)
							return
						}
						var results []outbox.Result
						mu.Lock()
						for _, m := range got {
							if out[m.ID] {
								e.Errorf("%s is leased twice at once", m.ID)
							}
							out[m.ID] = true
							order = append(order, m.ID)
							results = append(results, sent(m.ID))
						}
						mu.Unlock()
						if err := h.Settle(e.ctx, q.Token, results); err != nil {
							e.Errorf("Settle: %v", err)
							return
						}
					}
				})
			}
			all.Wait()
			if len(order) != messages {
				e.Fatalf("%d messages were leased, want %d", len(order), messages)
			}
			for k := range keys {
				var got []string
				for _, id := range order {
					if n, err := strconv.Atoi(id); err == nil && n%keys == k {
						got = append(got, id)
					}
				}
				if !slices.IsSorted(got) {
					e.Errorf("key %d was leased in the order %q", k, got)
				}
			}
		},
	},
}

var orderChecks = []check{
	{
		name:    "an older message of the key comes first",
		promise: "A message is leased only if no older unsent one of its key is outside of the same lease (R-83).",
		run: func(e *env) {
			a, b := e.open(outbox.Options{}), e.open(outbox.Options{})
			a.add(message("1", "k"), message("2", "k"), message("3", "k"), message("4", "other"), message("5", ""))
			q := ask()
			q.Limit = 1
			e.same("the first", ids(a.leaseWith(q)), []string{"1"})
			t := b.leases("those of other keys", "4", "5")
			a.settle(q.Token, back("1"))
			b.settle(t, back("4"), back("5"))
			t = b.leases("all of a key in one lease", "1", "2", "3", "4", "5")
			b.settle(t, sent("1"), failed("2", time.Hour), back("3"), sent("4"), sent("5"))
			b.leases("behind one that failed")
			a.add(message("6", "k"), message("7", "free"))
			a.leases("added behind one that failed", "7")
			e.storage.Advance(time.Hour + time.Second)
			a.leases("after its delay", "2", "3", "6", "7")
		},
	},
	{
		name:    "the same key in another lane is another key",
		promise: "Order is kept per tenant, topic and key: what is stuck in one lane holds nothing in another.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			topic, tenant := message("2", "k"), message("3", "k")
			topic.Topic, tenant.Tenant = "refunds", "t"
			h.add(message("1", "k"), topic, tenant)
			q := ask()
			q.Limits = map[outbox.Lane]int{{Topic: "refunds"}: 0, {Topic: "orders", Tenant: "t"}: 0}
			e.same("one lane", ids(h.leaseWith(q)), []string{"1"})
			h.leases("the others", "3", "2") // in the order of topic and tenant
		},
	},
	{
		name:    "Case31: a dead message frees its key, or holds it",
		promise: "Later messages of a dead one's key go on, unless it holds the key: then until it is requeued or dropped.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			h.add(message("1", "k"), message("2", "k"))
			h.settle(h.leases("both", "1", "2"), givenUp("1", false), back("2"))
			h.settle(h.leases("freed", "2"), givenUp("2", true))
			h.add(message("3", "k"), message("4", "other"))
			h.leases("held", "4")
			h.leases("held, seen for the second time")
			if !h.entry("2").Holds || h.entry("1").Holds {
				e.Error("the dead messages do not say which of them holds the key")
			}
			if n, err := h.Requeue(e.ctx, "2"); n != 1 || err != nil {
				e.Fatalf("Requeue: %d, %v", n, err)
			}
			t := h.leases("requeued", "2", "3")
			h.settle(t, givenUp("2", true), back("3"))
			h.leases("held again")
			if n, err := h.Drop(e.ctx, "2"); n != 1 || err != nil {
				e.Fatalf("Drop: %d, %v", n, err)
			}
			h.leases("after the drop", "3")
		},
	},
	{
		name:    "Case31: many behind one that failed do not stall the others",
		promise: "However many messages wait for an older one of their key, those of other keys in the lane are found.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			var behind []outbox.Message
			for i := range 3000 {
				behind = append(behind, message(fmt.Sprintf("behind-%04d", i), "k"))
			}
			h.add(message("0", "k"))
			h.settle(h.leases("the first", "0"), failed("0", time.Hour))
			h.add(behind...)
			h.add(message("other", "o"), message("none", ""))
			q := ask()
			q.Limit = 2
			var found []string
			for range 20 {
				found = append(found, ids(h.leaseWith(q))...)
				q.Token = driver.NewToken()
			}
			e.same("found behind 3000 that wait", found, []string{"other", "none"})
			for _, end := range []struct {
				how string
				do  func() (int, error)
			}{
				{"requeued", func() (int, error) { return h.Requeue(e.ctx, "0") }},
				{"dropped", func() (int, error) { return h.Drop(e.ctx, "0") }},
			} {
				if n, err := end.do(); n != 1 || err != nil {
					e.Fatalf("%s: %d, %v", end.how, n, err)
				}
				q := ask()
				q.Limit = 3
				got := h.leaseWith(q)
				want := []string{"0", "behind-0000", "behind-0001"}
				if end.how == "dropped" {
					want = []string{"behind-0000", "behind-0001", "behind-0002"}
				}
				e.same("after it was "+end.how, ids(got), want)
				results := []outbox.Result{failed(got[0].ID, time.Hour)}
				for _, m := range got[1:] {
					results = append(results, back(m.ID))
				}
				h.settle(q.Token, results...)
			}
		},
	},
	{
		name:    "Case30: what is committed late is not passed over",
		promise: "A message is found by its state: one that is committed after a younger one was sent is sent too.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			if e.storage.OneWriter {
				h.add(message("1", "k"), message("2", "k"))
				h.leases("with one writer nothing is committed late", "1", "2")
				return
			}
			early, late := h.begin(), h.begin()
			e.must("Add", early.Add(message("1", "k"), message("2", "")))
			e.must("Add", late.Add(message("3", "k"), message("4", "")))
			e.must("commit", late.Commit())
			t := h.leases("those committed first", "3", "4")
			h.settle(t, sent("3"), sent("4"))
			e.must("commit", early.Commit())
			h.leases("those committed late", "1", "2")
		},
	},
}
