package storetest

import (
	"context"
	"time"

	"github.com/semelhq/semel/driver"
)

// ended returns contexts that have ended, in both ways.
func ended() map[string]context.Context {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	cancel()
	return map[string]context.Context{"canceled": canceled, "past its deadline": late}
}

var contextChecks = []check{
	{
		name:    "an ended one is an error and changes nothing",
		promise: "A verb whose context has ended before it was called returns an error, and does nothing.",
		run: func(e *env) {
			id, c, absent := newID(), ask(driver.Rerun), newID()
			want := e.a.begin(id, c)
			freed := newID()
			rec := e.a.begin(freed, c)
			wantFreed := e.a.end(freed, rec.Owner(), free(""))
			gone := e.expired(2)
			before := e.left(gone)
			for why, ctx := range ended() {
				verbs := map[string]func() error{
					"Claim of an absent record": func() error {
						_, owned, err := e.a.Store.Claim(ctx, absent, ask(driver.Hold))
						return refusedToo(owned, err)
					},
					"Claim of a free record": func() error {
						_, owned, err := e.a.Store.Claim(ctx, freed, retry(c))
						return refusedToo(owned, err)
					},
					"Extend": func() error {
						owned, err := e.a.Store.Extend(ctx, id, want.Owner(), driver.Extension{Lease: 2 * long, Begun: true})
						return refusedToo(owned, err)
					},
					"Settle": func() error {
						_, owned, err := e.a.Store.Settle(ctx, id, want.Owner(), done(answer()))
						return refusedToo(owned, err)
					},
					"Load": func() error {
						_, err := e.a.Store.Load(ctx, id)
						return err
					},
					"Sweep": func() error {
						_, err := e.a.Store.Sweep(ctx, 10)
						return err
					},
				}
				for verb, call := range verbs {
					if err := call(); err == nil {
						e.Errorf("%s with a context %s: no error", verb, why)
					}
					e.unchanged(verb+", context "+why, absent, driver.Record{})
					e.unchanged(verb+", context "+why, id, want)
					e.unchanged(verb+", context "+why, freed, wantFreed)
				}
			}
			if after := e.left(gone); after != before {
				e.Errorf("Sweep with an ended context deleted %d records", before-after)
			}
		},
	},
	{
		name:    "an ended one stops operators too",
		promise: "Seize and Forget with a context that has ended return an error and do nothing.",
		needs:   seizer,
		run: func(e *env) {
			running, finished := newID(), newID()
			wantRunning := e.a.begin(running, ask(driver.Hold))
			rec := e.a.begin(finished, ask(driver.Hold))
			wantFinished := e.a.end(finished, rec.Owner(), done(answer()))
			for why, ctx := range ended() {
				s := e.a.Store.(driver.Seizer)
				if _, err := s.Seize(ctx, running, driver.NewToken()); err == nil {
					e.Errorf("Seize with a context %s: no error", why)
				}
				if forgot, err := s.Forget(ctx, finished, wantFinished.Owner()); err == nil || forgot {
					e.Errorf("Forget with a context %s: %t, error %v", why, forgot, err)
				}
				e.unchanged("Seize, context "+why, running, wantRunning)
				e.unchanged("Forget, context "+why, finished, wantFinished)
			}
		},
	},
	{
		name:    "an ended one ends a listing",
		promise: "List with a context that has ended returns an error.",
		needs:   lister,
		run: func(e *env) {
			e.a.begin(newID(), ask(driver.Hold))
			for why, ctx := range ended() {
				err := e.a.Store.(driver.Lister).List(ctx, driver.Query{}, func(driver.ID, driver.Record) bool { return true })
				if err == nil {
					e.Errorf("List with a context %s: no error", why)
				}
			}
		},
	},
	{
		name: "one that ends meanwhile leaves all or nothing",
		promise: "A verb whose context ends while it runs was executed whole or not at all. What it acknowledged holds, what " +
			"it did not can be sent again and succeeds as its own (cases 7, 8).",
		run: func(e *env) {
			for i := range 60 {
				delay := time.Duration(i) * 15 * time.Microsecond
				id, c := newID(), ask(driver.Hold)
				var claimed, settled reply
				e.cutOff(delay, func(ctx context.Context) {
					claimed.rec, claimed.owned, claimed.err = e.both(i).Claim(ctx, id, c)
				})
				now := e.a.load(id)
				switch {
				case claimed.err == nil && !claimed.owned:
					e.Fatalf("a first claim whose context ended meanwhile was refused without an error")
				case claimed.err == nil:
					e.same("acknowledged claim, cut off", now, claimed.rec)
				case now.State != driver.Absent && (now.State != driver.Running || now.Token != c.Token || now.Attempt != 1):
					e.Fatalf("a claim that was cut off left half a record: %+v", now)
				}
				by := e.b.begin(id, c)

				o := done(answer())
				e.cutOff(delay, func(ctx context.Context) {
					settled.rec, settled.owned, settled.err = e.both(i+1).Settle(ctx, id, by.Owner(), o)
				})
				now = e.a.load(id)
				switch {
				case settled.err == nil && !settled.owned:
					e.Fatalf("the owner's settle, whose context ended meanwhile, was refused without an error")
				case settled.err == nil:
					e.same("acknowledged settle, cut off", now, settled.rec)
				case now.State != driver.Done:
					by.LeaseEnd = max(by.LeaseEnd, now.LeaseEnd) // the claim that was cut off may be executed late
					e.same("a settle that was cut off", now, by)
				}
				rec := e.b.end(id, by.Owner(), o)
				if d := diffAnswers(rec.Response, o.Response); rec.State != driver.Done || d != nil {
					e.Fatalf("the settle sent again left a record that is %s: %v", rec.State, d)
				}
			}
		},
	},
}

// cutOff calls do with a context that ends after the given delay, and returns when both have ended.
func (e *env) cutOff(delay time.Duration, do func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(e.ctx, delay)
	defer cancel()
	do(ctx)
}

// refusedToo returns err, or nil where a verb says with its error that it did something: that must not pass as a
// refusal.
func refusedToo(owned bool, err error) error {
	if owned {
		return nil
	}
	return err
}
