package outboxtest

import (
	"crypto/rand"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/outbox"
)

var addChecks = []check{
	{
		name:    "what is committed comes, what is rolled back does not",
		promise: "A message exists exactly when its transaction is committed.",
		run: func(e *env) {
			a, b := e.open(outbox.Options{}), e.open(outbox.Options{})
			tx := a.begin()
			e.must("Add", tx.Add(message("1", "")))
			if !e.storage.OneWriter {
				b.leases("before the commit")
			}
			e.must("commit", tx.Commit())
			tx = a.begin()
			e.must("Add", tx.Add(message("2", "")))
			e.must("roll back", tx.Rollback())
			b.leases("after commit and rollback", "1")
		},
	},
	{
		name:    "a message comes as it was added",
		promise: "Topic, key, tenant, payload and headers come out as they went in; an id is made if there is none.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			binary := make([]byte, 256)
			for i := range binary {
				binary[i] = byte(i)
			}
			large := make([]byte, 1<<20)
			rand.Read(large)
			want := []outbox.Message{
				{ID: "plain", Topic: "a", Payload: []byte("{}")},
				{ID: strings.Repeat("~", 255), Topic: strings.Repeat("ü", 127), Key: "it's; DROP TABLE \\ \"x\"", Tenant: "\u2028\r\n", Payload: binary},
				{ID: "headers", Topic: "c", Headers: map[string]string{"Trace-Id": "ünïcode \U0001F600", "empty": ""}},
				{Topic: "d", Payload: large},
			}
			h.add(want...)
			all, _ := h.lease()
			if len(all) != len(want) {
				e.Fatalf("%d messages were leased, want %d", len(all), len(want))
			}
			for _, got := range all {
				found := false
				for _, w := range want {
					if w.Topic != got.Topic {
						continue
					}
					found = true
					if w.ID != got.ID && (w.ID != "" || got.ID == "") || w.Key != got.Key || w.Tenant != got.Tenant ||
						string(w.Payload) != string(got.Payload) || !maps.Equal(w.Headers, got.Headers) || got.Err != nil {
						e.Errorf("message %s to %q differs from what was added: key %q, tenant %q, %d bytes, headers %v, error %v",
							got.ID, got.Topic, got.Key, got.Tenant, len(got.Payload), got.Headers, got.Err)
					}
				}
				if !found {
					e.Errorf("a message to %q, to which none was added", got.Topic)
				}
			}
		},
	},
	{
		name:    "what is not allowed is refused",
		promise: "An invalid message fails with ErrInvalid, an id that is there with ErrDuplicate.",
		run: func(e *env) {
			h := e.open(outbox.Options{MaxPayload: 100})
			h.add(message("taken", ""))
			for why, m := range map[string]outbox.Message{
				"no topic":                {ID: "1"},
				"a large payload":         {ID: "1", Topic: "a", Payload: make([]byte, 101)},
				"a space in the id":       {ID: "1 2", Topic: "a"},
				"a NUL in the key":        {ID: "1", Topic: "a", Key: "\x00"},
				"a key that is not UTF-8": {ID: "1", Topic: "a", Key: "\xff"},
				"a negative delay":        {ID: "1", Topic: "a", Delay: -1},
				"a header without a name": {ID: "1", Topic: "a", Headers: map[string]string{"": "x"}},
				"a line end in a header":  {ID: "1", Topic: "a", Headers: map[string]string{"a": "b\r\nc: d"}},
			} {
				tx := h.begin()
				if err := tx.Add(m); !errors.Is(err, outbox.ErrInvalid) {
					e.Errorf("%s: %v", why, err)
				}
				e.must("roll back", tx.Rollback())
			}
			tx := h.begin()
			if err := tx.Add(message("taken", "")); !errors.Is(err, outbox.ErrDuplicate) {
				e.Errorf("an id that is taken: %v", err)
			}
			e.must("roll back", tx.Rollback())
			h.leases("what was added", "taken")
		},
	},
	{
		name:    "a delay is waited for",
		promise: "A message with a delay is leased after it, and so are later ones of its key, but no others.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			late := message("1", "a")
			late.Delay = time.Hour
			h.add(late, message("2", "a"), message("3", "b"))
			t := h.leases("before the delay is over", "3")
			h.settle(t, sent("3"))
			if due := h.entry("1").Due; due.IsZero() {
				e.Error("the delayed message does not say when it is due")
			}
			e.storage.Advance(time.Hour + time.Second)
			h.leases("after the delay", "1", "2")
		},
	},
	{
		name:    "payloads are sealed with a keyring",
		promise: "With a keyring payload and headers are encrypted, bound to the message; what is not is unreadable (R-61).",
		run: func(e *env) {
			ring, err := keyring.New(keyring.Key{ID: "k1", Key: make([]byte, 32)})
			e.must("make a keyring", err)
			sealed, plain := e.open(outbox.Options{Keyring: ring}), e.open(outbox.Options{})
			allows := e.open(outbox.Options{Keyring: ring.AllowPlain()})
			m := message("1", "")
			m.Headers = map[string]string{"a": "b"}
			sealed.add(m)
			plain.add(message("2", ""))
			for _, c := range []struct {
				why      string
				h        handle
				id       string
				readable bool
			}{
				{"sealed, with the key", sealed, "1", true},
				{"sealed, without the key", plain, "1", false},
				{"plain, with a keyring", sealed, "2", false},
				{"plain, with a keyring that allows it", allows, "2", true},
			} {
				got := c.h.entry(c.id)
				if readable := got.Err == nil; readable != c.readable || !readable && (!errors.Is(got.Err, driver.ErrUnreadable) || got.Payload != nil || got.Headers != nil) {
					e.Errorf("%s: error %v, payload %q, headers %v", c.why, got.Err, got.Payload, got.Headers)
				}
				if c.readable && string(got.Payload) != "payload of "+c.id {
					e.Errorf("%s: the payload is %q", c.why, got.Payload)
				}
			}
			all, _ := sealed.lease()
			e.same("what is unreadable is leased too", ids(all), []string{"1", "2"})
			if all[0].Headers["a"] != "b" || all[1].Err == nil {
				e.Errorf("leased: headers %v, error %v", all[0].Headers, all[1].Err)
			}
		},
	},
	{
		name:    "a commit rings",
		promise: "The channel of Changed is closed soon after messages were committed in the same process.",
		run: func(e *env) {
			h := e.open(outbox.Options{})
			changed := h.Changed()
			h.add(message("1", ""))
			select {
			case <-changed:
			case <-e.ctx.Done():
				e.Error("nobody was told")
			}
		},
	},
}
