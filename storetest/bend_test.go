package storetest

import "github.com/semelhq/semel/driver"

// A call is what a fault sees of a verb, and bends: what the verb looks at, or what it stores. What a verb has not is
// nil.
type call struct {
	old       driver.Record  // as it was read
	rec       *driver.Record // as the verb sees it, or stores it
	now       driver.Time
	by        *driver.Owner
	claim     *driver.Claim
	extension *driver.Extension
	outcome   *driver.Outcome
	token     *driver.Token
}

// bent applies a rule to a record, and what bends it.
func (m *model) bent(v verb, x *call, rule func(driver.Record) (driver.Record, bool)) (driver.Record, bool) {
	read := x.old
	x.rec = &read
	before, after := m.before[v], m.after[v]
	if before != nil {
		before(x)
	}
	rec, owned := rule(read)
	if !owned && before != nil {
		return x.old, false
	}
	if x.rec = &rec; owned && after != nil {
		after(x)
	}
	return rec, owned
}

// before bends what a verb looks at.
func before(v verb, do func(*call)) func(*model) { return func(m *model) { m.before[v] = do } }

// after bends what a verb stores.
func after(v verb, do func(*call)) func(*model) { return func(m *model) { m.after[v] = do } }

func when(holds func(*call) bool, do func(*call)) func(*call) {
	return func(x *call) {
		if holds(x) {
			do(x)
		}
	}
}

// was bends only records that were read in a state.
func was(s driver.State, do func(*call)) func(*call) {
	return when(func(x *call) bool { return x.old.State == s }, do)
}

// becomes bends only records that are written in a state.
func becomes(s driver.State, do func(*call)) func(*call) {
	return when(func(x *call) bool { return x.rec.State == s }, do)
}

func both(one, other func(*model)) func(*model) {
	return func(m *model) {
		one(m)
		other(m)
	}
}

// selecting bends what List is asked for.
func selecting(bend func(*driver.Query)) func(*model) {
	return func(m *model) {
		m.matches = func(id driver.ID, r driver.Record, q driver.Query) bool {
			bend(&q)
			return matches(id, r, q)
		}
	}
}

// keeping has the steps of a record stay by another rule.
func keeping(keeps func(v verb, old, rec driver.Record) bool) func(*model) {
	return func(m *model) { m.keeps = keeps }
}

// answers bends the answers that are stored.
func answers(bend func(a *driver.Response) *driver.Response) func(*model) {
	return func(m *model) {
		m.stored = func(r driver.Record) driver.Record {
			if r.Response != nil {
				a := *r.Response
				r.Response = bend(&a)
			}
			return r
		}
	}
}
