package shardstore_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/internal/verbs"
	"github.com/semelhq/semel/shardstore"
)

// A play is one order of all that two guards, in processes at different steps of a change, ask of the shards. The script
// says which actor's request comes next, and what happens to it: an actor is killed before it, or its reply is lost, or
// it is executed later than its sender waits for.
type play struct {
	script []int
	chance *rand.Rand // makes the choices that the script does not; nil for the first of each
	made   []choice
	faults int // how many may still come

	cast   []*actor
	log    []string
	deaths int
}

type choice struct{ made, of int }

func (p *play) choose(of int) int {
	c := choice{0, of}
	if n := len(p.made); n < len(p.script) {
		c.made = p.script[n]
	} else if p.chance != nil {
		c.made = p.chance.IntN(of)
	}
	p.made = append(p.made, c)
	return c.made
}

// next returns the script of the next play, in the order of a depth-first search; false if there is none.
func (p *play) next() ([]int, bool) {
	for n := len(p.made) - 1; n >= 0; n-- {
		if p.made[n].made+1 < p.made[n].of {
			var script []int
			for _, c := range p.made[:n] {
				script = append(script, c.made)
			}
			return append(script, p.made[n].made+1), true
		}
	}
	return nil, false
}

type fate int

const (
	executed fate = iota
	killed
	replyLost
	late
	fates
)

var errLost = errors.New("reply lost")

// An actor comes to a halt before each request.
type actor struct {
	name string
	play *play
	act  func() (struct{}, bool)
	stop func()
	halt func(struct{}) bool
	fate fate // of the next request
}

type curtain struct{} // ends an actor that was killed

func (p *play) enter(name string, part func(a *actor)) {
	a := &actor{name: name, play: p}
	a.act, a.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if value := recover(); value != nil && value != (curtain{}) {
				panic(value)
			}
		}()
		a.halt = yield
		part(a)
	})
	if _, lives := a.act(); lives {
		p.cast = append(p.cast, a)
	}
}

// run lets all actors act to their ends.
func (p *play) run() {
	for len(p.cast) > 0 {
		of := len(p.cast)
		if p.faults > 0 {
			of *= int(fates)
		}
		c := p.choose(of)
		a := p.cast[c%len(p.cast)]
		if a.fate = fate(c / len(p.cast)); a.fate != executed {
			p.faults--
		}
		if a.fate == killed {
			p.log = append(p.log, a.name+" is killed")
			p.deaths++
			a.stop()
		} else if _, lives := a.act(); lives {
			continue
		}
		p.cast = slices.DeleteFunc(p.cast, func(other *actor) bool { return other == a })
	}
}

// request makes one request of an actor.
func (a *actor) request(what string, do func() error) error {
	if !a.halt(struct{}{}) {
		panic(curtain{})
	}
	switch a.fate {
	case replyLost:
		do() //nolint:errcheck // it is lost
		a.play.log = append(a.play.log, fmt.Sprintf("%s: %s, reply lost", a.name, what))
		return errLost
	case late:
		a.play.log = append(a.play.log, fmt.Sprintf("%s: %s, on its way", a.name, what))
		a.play.enter(a.name+"'s late "+what, func(l *actor) {
			l.request(what, do) //nolint:errcheck // nobody waits for it
		})
		return errLost
	}
	err := do()
	a.play.log = append(a.play.log, fmt.Sprintf("%s: %s", a.name, what))
	return err
}

// A stage is a shard as an actor asks it.
type stage struct {
	full
	name string
	a    *actor
}

func (s stage) Claim(ctx context.Context, id driver.ID, c driver.Claim) (rec driver.Record, owned bool, err error) {
	err = s.a.request("claim in "+s.name, func() error {
		rec, owned, err = s.full.Claim(ctx, id, c)
		return err
	})
	if err != nil {
		return driver.Record{}, false, err
	}
	return rec, owned, nil
}

func (s stage) Load(ctx context.Context, id driver.ID) (rec driver.Record, err error) {
	err = s.a.request("load from "+s.name, func() error {
		rec, err = s.full.Load(ctx, id)
		return err
	})
	if err != nil {
		return driver.Record{}, err
	}
	return rec, nil
}

func (s stage) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (rec driver.Record, owned bool, err error) {
	err = s.a.request(fmt.Sprintf("settle %v in %s", o.State, s.name), func() error {
		rec, owned, err = s.full.Settle(ctx, id, by, o)
		return err
	})
	if err != nil {
		return driver.Record{}, false, err
	}
	return rec, owned, nil
}

// A drama is what may be observed of a play.
type drama struct {
	t       *testing.T
	site    *site
	id      driver.ID
	request driver.Claim
	effects []string // who had the effect
	answers []string // that were acknowledged, by the first run or as replays
	tries   int      // of a claim
	again   []func() // releases: their second copies
}

// guard does what a guard of the engine does, as the contract has it.
func (d *drama) guard(a *actor, s full, name string) {
	ctx := context.Background()
	c := verbs.Retry(d.request)
	var rec driver.Record
	var owned bool
	err, tries := errLost, 0
	for ; err != nil && tries < d.tries; tries++ {
		rec, owned, err = s.Claim(ctx, d.id, c)
	}
	free := func(above uint64) {
		release := func(s full) {
			for err := errLost; err != nil; {
				_, _, err = s.Settle(ctx, d.id, driver.Owner{Fence: above, Token: c.Token, Above: true}, driver.Outcome{State: driver.Free})
			}
		}
		release(s)
		d.again = append(d.again, func() { release(d.open(name)) })
	}
	switch {
	case err != nil:
		free(0)
		return
	case !owned && tries > 1:
		free(0)
	case owned && tries > 1:
		defer free(rec.Fence)
	}
	if !owned {
		if rec.Reads(d.request.OnLost) == driver.ReadsDone && rec.Fingerprint.Equal(c.Fingerprint) {
			d.answers = append(d.answers, string(rec.Response.Body))
		}
		return
	}
	for err = errLost; rec.Steps && err != nil; {
		var saved map[string][]byte
		if saved, err = s.Steps(ctx, d.id); err == nil && string(saved["charge"]) != "7" {
			d.t.Errorf("%s runs with the steps %q", name, saved)
		}
	}
	d.effects = append(d.effects, name)
	d.end(s, rec.Owner(), name)
}

// end settles a run, and lets its client have the answer if the run was the owner's.
func (d *drama) end(s full, by driver.Owner, answer string) {
	owned, err := false, errLost
	for err != nil {
		_, owned, err = s.Settle(context.Background(), d.id, by, verbs.Done(answer))
	}
	if owned {
		d.answers = append(d.answers, answer)
	}
}

var steps = map[string]shardstore.Change{"preparing": shardstore.Prepare, "moving": shardstore.Move}

func (d *drama) open(step string) full { return open(d.t, d.site.shards(1), steps[step]) }

// on returns the store of an actor.
func (d *drama) on(a *actor, step string) full {
	shards := d.site.shards(1)
	for i := range shards {
		shards[i].Store = stage{shards[i].Store.(full), shards[i].Name, a}
	}
	return open(d.t, shards, steps[step])
}

// Whatever two processes of neighbouring steps ask the shards at the same time, in whatever order, with a process killed
// between any two requests, a reply lost, or a request that arrives late: there is one effect at most, one answer, and
// the key is not stuck.
func TestR26_Case11_TwoProcessesAtDifferentStepsOfAChange(t *testing.T) {
	t.Parallel()
	site := newSite(t, 2)
	shared := open(t, site.shards(2), shardstore.None)
	moving := func() driver.ID { // an operation that moves from s0 to s1
		for {
			if id := verbs.NewID(); site.shardOf(t, shared, id) == "s1" {
				return id
			}
		}
	}
	run := func(d *drama, step string, end driver.State, step1 bool) driver.Owner {
		s := d.open(step)
		rec := verbs.Claim(t, s, d.id, verbs.Retry(d.request))
		if step1 {
			verbs.SaveStep(t, s, d.id, rec.Owner(), "charge", "7")
		}
		if end != driver.Absent {
			verbs.Settle(t, s, d.id, rec.Owner(), driver.Outcome{State: end, Response: verbs.Done("first").Response})
		}
		return rec.Owner()
	}
	for _, c := range []struct {
		name   string
		onLost driver.LostPolicy
		before func(d *drama) (late driver.Owner) // an owner whose lease is over, if there is a token
		most   int                                // effects
	}{
		{"the key is new", driver.Hold, func(*drama) driver.Owner { return driver.Owner{} }, 1},
		{"released in the old shard", driver.Hold, func(d *drama) driver.Owner {
			run(d, "preparing", driver.Free, false)
			return driver.Owner{}
		}, 1},
		{"released in the new shard", driver.Hold, func(d *drama) driver.Owner {
			run(d, "moving", driver.Free, false)
			return driver.Owner{}
		}, 1},
		{"done in the old shard", driver.Hold, func(d *drama) driver.Owner {
			run(d, "preparing", driver.Done, false)
			return driver.Owner{}
		}, 0},
		{"free with steps in the old shard", driver.Rerun, func(d *drama) driver.Owner {
			run(d, "preparing", driver.Free, true)
			return driver.Owner{}
		}, 1},
		{"free with steps in the new shard", driver.Rerun, func(d *drama) driver.Owner {
			run(d, "moving", driver.Free, true)
			return driver.Owner{}
		}, 1},
		{"lapsed in the old shard, its owner alive", driver.Rerun, func(d *drama) driver.Owner {
			return run(d, "preparing", driver.Absent, true)
		}, 1},
		{"lapsed in the new shard, its owner alive", driver.Rerun, func(d *drama) driver.Owner {
			return run(d, "moving", driver.Absent, false)
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			perform := func(p *play, tries int, guards ...string) {
				d := &drama{t: t, site: site, id: moving(), request: verbs.Ask(c.onLost), tries: tries}
				d.request.Lease = lease
				owner := c.before(d)
				if owner.Token != (driver.Token{}) {
					site.Advance(2 * lease)
					p.enter("late", func(a *actor) { d.end(d.on(a, "preparing"), owner, "late") })
				}
				for _, step := range guards {
					p.enter(step, func(a *actor) { d.guard(a, d.on(a, step), step) })
				}
				p.run()
				d.verify(p, c.most)
				if t.Failed() {
					t.Fatalf("seen in the play %q", p.log)
				}
			}
			plays := 0
			late := strings.Contains(c.name, "alive") // a third actor, and a hundred times the plays
			for script, more := []int(nil), !late || proof.Long(); more; plays++ {
				p := &play{script: script, faults: proof.Of(0, 1)}
				perform(p, proof.Of(1, 2), "preparing", "moving")
				script, more = p.next()
			}
			seed := rand.Uint64()
			t.Logf("%d plays, and some by chance, with the seed %d", plays, seed)
			chance := rand.New(rand.NewPCG(seed, 0))
			for range proof.Of(250, 50_000) {
				perform(&play{chance: chance, faults: 2}, 2, "preparing", "moving", "moving")
			}
		})
	}
}

const lease = time.Minute

// verify fails if a play has broken a promise.
func (d *drama) verify(p *play, most int) {
	t := d.t
	if len(d.effects) > most {
		t.Errorf("effects of %v, want %d at most", d.effects, most)
	}
	for _, release := range d.again {
		release()
	}
	settled := func(when string) {
		for _, step := range []string{"preparing", "moving"} {
			s := d.open(step)
			c := verbs.Retry(d.request)
			rec, owned, err := s.Claim(context.Background(), d.id, c)
			switch reads := rec.Reads(c.OnLost); {
			case err != nil:
				t.Errorf("%s, a claim of a process that is %s: %v", when, step, err)
			case owned:
				if len(d.answers) > 0 {
					t.Errorf("%s, a process that is %s runs what was answered with %q", when, step, d.answers)
				}
				verbs.Settle(t, s, d.id, driver.Owner{Token: c.Token, Above: true}, driver.Outcome{State: driver.Free})
			case reads == driver.ReadsDone:
				d.answers = append(d.answers, string(rec.Response.Body))
			case p.deaths == 0 || d.request.OnLost == driver.Rerun && when != "now":
				t.Errorf("%s, for a process that is %s, the key is %v", when, step, reads)
			}
		}
	}
	settled("now")
	d.site.Advance(2 * lease)
	settled("after the leases")
	if len(slices.Compact(slices.Clone(d.answers))) > 1 {
		t.Errorf("answers %q, want one", d.answers)
	}
}
