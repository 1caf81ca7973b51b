package linear

import (
	"fmt"
	"strings"

	"github.com/semelhq/semel/driver"
)

type verb uint8

const (
	claim verb = iota
	extend
	settle
	load
	seize
	forget
	verbs // how many there are

	// drop is the second half of a Forget in a store with layers.
	drop = verbs
)

var verbNames = [...]string{"Claim", "Extend", "Settle", "Load", "Seize", "Forget", "copies dropped"}

// A call is what a client asks of one record.
type call struct {
	verb    verb
	claim   driver.Claim
	by      driver.Owner
	extend  driver.Extension
	outcome driver.Outcome
	token   driver.Token // of a Seize

	// A Forget in a store with layers, and its second half, have the same number, of those of the record.
	layers bool
	n      int
}

// A reply is what a client was told.
type reply struct {
	lost  bool          // nothing
	rec   driver.Record // not of Extend and Forget
	owned bool          // not of Load and Seize
}

// shows reports whether the reply of a verb has the record in it.
func (v verb) shows() bool { return v == claim || v == settle || v == load || v == seize }

// says reports whether the reply of a verb has owned in it.
func (v verb) says() bool { return v == claim || v == extend || v == settle || v == forget }

func (c call) String() string {
	name := verbNames[c.verb]
	switch c.verb {
	case claim:
		return fmt.Sprintf("%s %s request %d, %s, lease %v",
			name, short(c.claim.Token), c.claim.Fingerprint.Raw[0], c.claim.OnLost, c.claim.Lease)
	case extend:
		begun := ""
		if c.extend.Begun {
			begun = ", begun"
		}
		return fmt.Sprintf("%s by %s, lease %v%s", name, owner(c.by), c.extend.Lease, begun)
	case settle:
		return fmt.Sprintf("%s by %s, %s%s", name, owner(c.by), c.outcome.State, answer(c.outcome.Response))
	case seize:
		return fmt.Sprintf("%s %s", name, short(c.token))
	case forget:
		return fmt.Sprintf("%s by %s", name, owner(c.by))
	}
	return name
}

// exchange tells a call and its reply.
func exchange(c call, r reply) string {
	var says []string
	switch {
	case r.lost:
		says = append(says, "?")
	case c.verb.says() && r.owned:
		says = append(says, "yes")
	case c.verb.says():
		says = append(says, "no")
	}
	if !r.lost && c.verb.shows() {
		says = append(says, describe(&r.rec))
	}
	if len(says) == 0 {
		return c.String()
	}
	return c.String() + " → " + strings.Join(says, ", ")
}

func describe(r *driver.Record) string {
	if r.State == driver.Absent {
		return "absent"
	}
	s := fmt.Sprintf("%s %s, attempt %d, %s", r.State, owner(r.Owner()), r.Attempt, r.OnLost)
	for _, flag := range []struct {
		is   bool
		name string
	}{{r.Begun, "begun"}, {r.Maybe, "maybe"}, {r.Seized, "seized"}} {
		if flag.is {
			s += ", " + flag.name
		}
	}
	switch {
	case r.Response != nil:
		s += answer(r.Response)
	case r.State == driver.Running:
		s += fmt.Sprintf(", lease left %v", r.LeaseEnd.Sub(r.Now))
	}
	return s
}

func answer(r *driver.Response) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf(" %q", r.Body)
}

func owner(by driver.Owner) string {
	above := ""
	if by.Above {
		above = ">"
	}
	return fmt.Sprintf("%s%d/%s", above, by.Fence, short(by.Token))
}

// short returns enough of a token to tell it from the others of a test.
func short(t driver.Token) string { return t.String()[:6] }
