package faults

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/proof"
)

// A moment is that in the life of an operation at which a fault comes.
type moment string

const (
	atClaim  moment = "claim"
	atExtend moment = "extend"
	atSettle moment = "settle"
)

var always = []moment{atClaim, atExtend, atSettle}

// A strike is a fault of the server, or of the way to it from instance a.
type strike struct {
	name string
	at   []moment
	// alone: other requests would lose their replies too, and with them the connection on which a verb is to be executed.
	alone bool
	// begin brings the fault. What the operation does next meets it.
	begin func(*testing.T, *fleet)
	// end ends it, once executed returns: when the storage has executed the verb that met the fault.
	end func(t *testing.T, f *fleet, executed func())
}

const (
	short = 100 * time.Millisecond // within a lease
	dark  = 5 * lease / 4          // beyond it
)

// strikes are the faults that every store survives.
var strikes = []strike{
	{
		"server killed", always, false,
		func(t *testing.T, f *fleet) { must(t, f.server.Kill()) },
		func(t *testing.T, f *fleet, _ func()) { time.Sleep(short); must(t, f.server.Start()) },
	},
	{
		"server killed between execution and reply", always, true,
		func(_ *testing.T, f *fleet) { f.a.proxy.DropReplies() },
		func(t *testing.T, f *fleet, executed func()) {
			executed()
			must(t, f.server.Kill())
			must(t, f.a.proxy.Restore())
			must(t, f.server.Start())
		},
	},
	{
		"server stopped and started",
		[]moment{atSettle},
		false,
		func(t *testing.T, f *fleet) { must(t, f.server.Stop()) },
		func(t *testing.T, f *fleet, _ func()) { must(t, f.server.Start()) },
	},
	{
		"server paused for longer than a lease", always, false,
		func(t *testing.T, f *fleet) { must(t, f.server.Pause()) },
		func(t *testing.T, f *fleet, _ func()) { time.Sleep(dark); must(t, f.server.Resume()) },
	},
	{
		"connections reset before execution", always, false,
		func(_ *testing.T, f *fleet) { f.a.proxy.Cut() },
		func(t *testing.T, f *fleet, _ func()) { time.Sleep(short); must(t, f.a.proxy.Restore()) },
	},
	{
		"connections reset between execution and reply", always, true,
		func(_ *testing.T, f *fleet) { f.a.proxy.DropReplies() },
		func(t *testing.T, f *fleet, executed func()) {
			executed()
			f.a.proxy.ResetAll()
			must(t, f.a.proxy.Restore())
		},
	},
	{
		"partition for longer than a lease",
		[]moment{atClaim, atSettle},
		false,
		func(_ *testing.T, f *fleet) { f.a.proxy.BlackHole() },
		func(t *testing.T, f *fleet, _ func()) { time.Sleep(dark); must(t, f.a.proxy.Restore()) },
	},
	{
		"replies lost for longer than a lease",
		[]moment{atClaim, atSettle},
		false,
		func(_ *testing.T, f *fleet) { f.a.proxy.DropReplies() },
		func(t *testing.T, f *fleet, _ func()) { time.Sleep(dark); must(t, f.a.proxy.Restore()) },
	},
	{
		"replies slower than a lease",
		[]moment{atClaim, atExtend},
		false,
		func(_ *testing.T, f *fleet) { f.a.proxy.Slow(time.Second) },
		func(t *testing.T, f *fleet, _ func()) { time.Sleep(dark); must(t, f.a.proxy.Restore()) },
	},
	{
		"connections used up",
		[]moment{atClaim, atSettle},
		false,
		func(t *testing.T, f *fleet) { f.exhausted = f.exhaust(t) },
		func(_ *testing.T, f *fleet, _ func()) { time.Sleep(short); f.exhausted() },
	},
}

// hit lets an operation of instance a meet a fault, and brings it to its end.
func (f *fleet) hit(t *testing.T, s strike, at moment) {
	t.Helper()
	key := f.key(string(at))
	var was driver.Record
	over := make(chan struct{})
	begin := func() {
		f.await(t, key, func(rec driver.Record) bool { was = rec; return true })
		s.begin(t, f)
		go func() {
			defer close(over)
			s.end(t, f, func() {
				// A verb that has no connection yet finds none while replies are dropped, and is executed later.
				rec, err := f.awaitFor(key, 5*lease, func(rec driver.Record) bool { return executed(at, was, rec) })
				if err != nil || !executed(at, was, rec) {
					t.Logf("%s: the fault ends before the verb was executed: %v, %v", key, rec.State, err)
				}
			})
		}()
	}
	switch at {
	case atClaim:
		begin()
	case atExtend:
		f.world.stage(key, script{before: func(context.Context) { begin(); <-over }})
	case atSettle:
		f.world.stage(key, script{after: begin})
	}
	ask(f.a.hold, key)
	pursue(t, key, f.a.hold) // the fault may have come before the operation could
	wait(t, over)
	f.settled(t, key)
}

// calm waits until both instances are connected, have used the verb that is to meet a fault, and owe nothing from the
// last one.
func (f *fleet) calm(t *testing.T, at moment) {
	t.Helper()
	key := f.key("before")
	if at == atExtend {
		f.world.stage(key, script{before: func(context.Context) { time.Sleep(lease / 2) }})
		pursue(t, key, f.a.hold)
	}
	f.settled(t, key)
	drain(t, f.a.guard)
	drain(t, f.b.guard)
}

// executed tells whether the verb that ends a moment shows in the record.
func executed(at moment, was, is driver.Record) bool {
	switch at {
	case atClaim:
		return is.State != driver.Absent
	case atExtend:
		return is.LeaseEnd > was.LeaseEnd
	}
	return is.State == driver.Done
}

// survive runs the faults that every store survives: at most one effect a key, true answers, and no key stuck. In the
// short form each comes at one of its moments, by chance.
func survive(t *testing.T, f *fleet, strikes []strike) {
	t.Helper()
	for _, s := range strikes {
		moments := s.at
		if f.oneCommit { // there is no lease to extend, and nothing to see of a claim
			moments = slices.DeleteFunc(slices.Clone(moments), func(at moment) bool {
				return at == atExtend || at == atClaim && s.alone
			})
		}
		for _, at := range proof.Some(1, moments...) {
			t.Run(s.name+"/"+string(at), func(t *testing.T) {
				f.calm(t, at)
				if !s.alone {
					defer f.bustle(t)()
				}
				f.hit(t, s, at)
			})
		}
	}
}

// surviveAll is survive with the faults in which the two instances play different parts.
func surviveAll(t *testing.T, f *fleet, strikes []strike) {
	t.Helper()
	survive(t, f, strikes)
	t.Run("partition while another takes over", f.takeover)
	t.Run("partition while another asks under hold", f.heldOver)
	t.Run("slow server", f.slow)
	t.Run("clocks off by hours", f.clockOff)
}

// takeover: an instance that is cut off stops before its effect, another one runs the operation, and the first one's
// client gets that one's answer.
func (f *fleet) takeover(t *testing.T) {
	f.overtaken(t, func(cutOff func()) script {
		return script{before: func(ctx context.Context) {
			cutOff()
			<-ctx.Done()
		}}
	})
}

// overtaken lets b take an operation over from a, which is cut off in the course of a script.
func (f *fleet) overtaken(t *testing.T, script func(cutOff func()) script) {
	key := f.key("takeover")
	off := make(chan struct{})
	f.world.stage(key, script(func() {
		f.a.proxy.BlackHole()
		close(off)
	}))
	first := make(chan string, 1)
	go func() { first <- pursue(t, key, f.a.rerun) }()
	wait(t, off)
	// The lease of who takes over is one that a busy machine does not end.
	policy := semel.Policy{OnLost: semel.Rerun, OneCommit: f.oneCommit}
	b := newGuard(t, f.b.store, semel.Options{}).Route(policy).Wrap(f.world.handler(f.b))
	answers := map[string]bool{pursue(t, key, b): true}
	must(t, f.a.proxy.Restore())
	answers[<-first] = true
	f.judge(t, key, answers)
}

// heldOver: under Hold nobody takes over; others are told that the outcome is unknown, until the owner is back.
func (f *fleet) heldOver(t *testing.T) {
	key := f.key("held")
	off := make(chan struct{})
	f.world.stage(key, script{after: func() {
		f.a.proxy.BlackHole()
		close(off)
	}})
	first := make(chan string, 1)
	go func() { first <- pursue(t, key, f.a.hold) }()
	wait(t, off)
	for until := time.Now().Add(long); ; time.Sleep(20 * time.Millisecond) {
		got, body := ask(f.b.hold, key)
		if got == unknown {
			break
		}
		if got != later || time.Now().After(until) {
			t.Errorf("want unknown, got %s: %s", got, body)
			break
		}
	}
	must(t, f.a.proxy.Restore())
	answers := map[string]bool{<-first: true}
	answers[pursue(t, key, f.b.hold)] = true
	f.judge(t, key, answers)
}

// slow: with a lease that a slow server does not eat up, everything is as ever, only later.
func (f *fleet) slow(t *testing.T) {
	f.calm(t, atSettle) // connecting takes several exchanges
	f.a.proxy.Slow(time.Second)
	f.b.proxy.Slow(time.Second)
	defer func() {
		must(t, f.a.proxy.Restore())
		must(t, f.b.proxy.Restore())
	}()
	key := f.key("slow")
	answers := map[string]bool{}
	for _, i := range []*instance{f.a, f.b} {
		g := newGuard(t, i.store, semel.Options{})
		answers[pursue(t, key, g.Wrap(f.world.handler(i)))] = true
	}
	f.judge(t, key, answers)
}

// clockOff: instances whose clocks differ by hours from the server's, and from each other.
func (f *fleet) clockOff(t *testing.T) {
	const lease = 3 * time.Second // a machine that stands still for a moment ends none
	handler := func(i *instance, by time.Duration) http.Handler {
		g := newGuard(t, off{i.store, by}, semel.Options{})
		return g.Route(semel.Policy{Lease: lease, OnLost: semel.Rerun}).Wrap(f.world.handler(i))
	}
	early, late := handler(f.a, time.Hour), handler(f.b, -time.Hour)
	key := f.key("clock")
	began := make(chan struct{})
	f.world.stage(key, script{before: func(context.Context) {
		close(began)
		time.Sleep(5 * lease / 4) // it is renewed meanwhile
	}})
	first := make(chan string, 1)
	go func() { first <- pursue(t, key, early) }()
	wait(t, began)
	answers := map[string]bool{pursue(t, key, late): true}
	answers[<-first] = true
	f.judge(t, key, answers)
}

// off is a store as an instance sees it whose clock is behind the server's by so much.
type off struct {
	driver.Store
	by time.Duration
}

func (o off) seen(rec driver.Record) driver.Record {
	for _, at := range []*driver.Time{&rec.Now, &rec.Created, &rec.Started, &rec.LeaseEnd, &rec.Settled} {
		if *at != 0 {
			*at = at.Add(o.by)
		}
	}
	return rec
}

func (o off) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	rec, owned, err := o.Store.Claim(ctx, id, c)
	return o.seen(rec), owned, err
}

func (o off) Settle(ctx context.Context, id driver.ID, by driver.Owner, out driver.Outcome) (driver.Record, bool, error) {
	rec, owned, err := o.Store.Settle(ctx, id, by, out)
	return o.seen(rec), owned, err
}

func (o off) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	rec, err := o.Store.Load(ctx, id)
	return o.seen(rec), err
}
