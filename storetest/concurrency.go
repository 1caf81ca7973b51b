package storetest

import (
	"fmt"
	"sync"

	"github.com/semelhq/semel/driver"
)

// callers is how many do the same at once.
const callers = 100

// A reply is what a verb returned to one of several callers.
type reply struct {
	rec   driver.Record
	owned bool
	err   error
}

// claimTogether sends the claims at once, over both handles, and returns the replies.
func (e *env) claimTogether(id driver.ID, claims []driver.Claim) []reply {
	e.Helper()
	replies := make([]reply, len(claims))
	e.together(len(claims), func(i int) {
		r := &replies[i]
		r.rec, r.owned, r.err = e.both(i).Claim(e.ctx, id, claims[i])
	})
	for _, r := range replies {
		if r.err != nil {
			e.Fatalf("Claim: %v", r.err)
		}
	}
	return replies
}

// oneWins sends claims for the same request at once and checks that exactly one of them is owned.
func (e *env) oneWins(what string, id driver.ID, c driver.Claim) driver.Record {
	e.Helper()
	claims := make([]driver.Claim, callers)
	for i := range claims {
		claims[i] = retry(c)
	}
	return e.oneOf(what, id, claims)
}

// oneOf sends claims at once and checks that exactly one of them is owned.
func (e *env) oneOf(what string, id driver.ID, claims []driver.Claim) driver.Record {
	e.Helper()
	replies := e.claimTogether(id, claims)
	final := e.a.load(id)
	owners := 0
	for i, r := range replies {
		if r.owned {
			owners++
			if r.rec.Token != claims[i].Token {
				e.Errorf("%s: an owner was given another's record", what)
			}
		} else if r.rec.Token == claims[i].Token {
			e.Errorf("%s: a claim was refused, and its token is in the record", what)
		}
		if r.owned {
			e.same(what+": the winner's record", final, r.rec)
		}
	}
	if owners != 1 {
		e.Errorf("%s: %d of %d claims are owned, want 1", what, owners, callers)
	}
	return final
}

var concurrencyChecks = []check{
	{
		name:    "one of many first claims wins",
		promise: "Of a hundred claims of an absent key at once, over two handles, exactly one is owned (R-26, cases 11, 12).",
		run: func(e *env) {
			for range 3 {
				if rec := e.oneWins("absent", newID(), ask(driver.Hold)); rec.Attempt != 1 {
					e.Errorf("attempt %d, want 1", rec.Attempt)
				}
			}
		},
	},
	{
		name:    "one of many takeovers wins",
		promise: "Of a hundred claims of a record lapsed under Rerun at once exactly one takes over (R-46, case 37).",
		run: func(e *env) {
			s := e.lapse(driver.Rerun, false)
			if rec := e.oneWins("lapsed", s.id, s.claim); rec.Attempt != 2 || rec.Fence != s.rec.Fence+1 {
				e.Errorf("attempt %d, fence %d after %d; want 2, and the next", rec.Attempt, rec.Fence, s.rec.Fence)
			}
		},
	},
	{
		name:    "one of many reruns wins",
		promise: "Of a hundred claims of a free record at once exactly one starts a run.",
		run: func(e *env) {
			id, c := newID(), ask(driver.Rerun)
			rec := e.a.begin(id, c)
			e.a.end(id, rec.Owner(), free(""))
			if got := e.oneWins("free", id, c); got.Attempt != 2 || got.Fence != rec.Fence+1 {
				e.Errorf("attempt %d, fence %d after %d; want 2, and the next", got.Attempt, got.Fence, rec.Fence)
			}
		},
	},
	{
		name:    "one of many claims after retention wins",
		promise: "Of a hundred claims of a record past its retention at once exactly one starts the new operation.",
		run: func(e *env) {
			id := e.expired(1)[0]
			if rec := e.oneWins("past retention", id, ask(driver.Hold)); rec.Attempt != 1 {
				e.Errorf("attempt %d, want 1", rec.Attempt)
			}
		},
	},
	{
		name: "copies of one claim are one claim",
		promise: "Copies of one claim, as a guard sends them when replies are lost, are all owned with one fence and count as " +
			"one attempt, also when they arrive at once (case 7).",
		run: func(e *env) {
			id, c := newID(), ask(driver.Hold)
			claims := make([]driver.Claim, callers)
			for i := range claims {
				claims[i] = c
			}
			for _, r := range e.claimTogether(id, claims) {
				if !r.owned || r.rec.Attempt != 1 || r.rec.Fence != e.a.load(id).Fence {
					e.Fatalf("a copy: owned %t, attempt %d, fence %d; want true, 1, %d", r.owned, r.rec.Attempt, r.rec.Fence, e.a.load(id).Fence)
				}
			}
			e.b.end(id, driver.Owner{Fence: e.a.load(id).Fence, Token: c.Token}, done(nil))
		},
	},
	{
		name:    "one outcome is written",
		promise: "Of different outcomes that an owner sends at once one is written; only copies of that one are acknowledged.",
		run: func(e *env) {
			for range 5 {
				id := newID()
				by := e.a.begin(id, ask(driver.Rerun))
				outcomes := []driver.Outcome{done(answer()), free("gave up"), unknown("timeout")}
				replies := make([]reply, 24)
				e.together(len(replies), func(i int) {
					r := &replies[i]
					r.rec, r.owned, r.err = e.both(i/3).Settle(e.ctx, id, by.Owner(), outcomes[i%3])
				})
				final := e.a.load(id)
				for i, r := range replies {
					if r.err != nil {
						e.Fatalf("Settle: %v", r.err)
					}
					if wrote := outcomes[i%3].State; r.owned != (wrote == final.State) {
						e.Errorf("Settle as %s: owned is %t, and the record is %s", wrote, r.owned, final.State)
					}
					e.same("the record returned", r.rec, final)
				}
			}
		},
	},
	{
		name: "a late heartbeat reopens nothing",
		promise: "Extend that meets Settle of the same owner never undoes it: once a settle is acknowledged the record is " +
			"settled.",
		run: func(e *env) {
			for round := range 10 {
				id := newID()
				by := e.a.begin(id, ask(driver.Rerun))
				var settled reply
				errs := make([]error, 8)
				e.together(len(errs), func(i int) {
					if i == 3 {
						settled.rec, settled.owned, settled.err = e.both(round).Settle(e.ctx, id, by.Owner(), done(answer()))
						return
					}
					for range 3 {
						if _, err := e.both(i).Extend(e.ctx, id, by.Owner(), driver.Extension{Lease: long}); err != nil {
							errs[i] = err
							return
						}
					}
				})
				for _, err := range append(errs, settled.err) {
					if err != nil {
						e.Fatalf("Extend or Settle: %v", err)
					}
				}
				if !settled.owned {
					e.Errorf("Settle was refused to the owner")
				}
				e.unchanged("settled under heartbeats", id, settled.rec)
			}
		},
	},
	{
		name: "many at work on few keys lose nothing",
		promise: "Under many callers at once every run that was acknowledged has a fence of its own, above all that were " +
			"acknowledged before it was asked for, every owner's verbs succeed, and each run is counted.",
		run: func(e *env) {
			const workers, turns, keys = 12, 40, 3
			c := ask(driver.Rerun)
			var runs ledger
			ids := make([]driver.ID, keys)
			for i := range ids {
				ids[i] = newID()
			}
			errs := make([]error, workers)
			e.together(workers, func(w int) {
				h := e.both(w)
				for turn := range turns {
					if errs[w] = runs.turn(e, h, ids[(w+turn)%keys], retry(c), turn); errs[w] != nil {
						return
					}
				}
			})
			for _, err := range errs {
				if err != nil {
					e.Errorf("%v", err)
				}
			}
			for _, id := range ids {
				if rec := e.b.load(id); int(rec.Attempt) != runs.count(id) {
					e.Errorf("attempt %d after %d runs", rec.Attempt, runs.count(id))
				}
			}
		},
	},
}

// A ledger notes the runs that a store has acknowledged.
type ledger struct {
	mu   sync.Mutex
	runs map[driver.ID]*runs
}

type runs struct {
	highest uint64
	fences  map[uint64]bool
}

func (l *ledger) of(id driver.ID) *runs {
	if l.runs == nil {
		l.runs = map[driver.ID]*runs{}
	}
	if l.runs[id] == nil {
		l.runs[id] = &runs{fences: map[uint64]bool{}}
	}
	return l.runs[id]
}

func (l *ledger) highest(id driver.ID) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of(id).highest
}

func (l *ledger) count(id driver.ID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.of(id).fences)
}

func (l *ledger) note(id driver.ID, fence uint64) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.of(id)
	first = !r.fences[fence]
	r.fences[fence] = true
	r.highest = max(r.highest, fence)
	return first
}

// turn claims the key and, if it is owned, runs and releases it.
func (l *ledger) turn(e *env, h handle, id driver.ID, c driver.Claim, turn int) error {
	before := l.highest(id)
	rec, owned, err := h.Claim(e.ctx, id, c)
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	if !owned {
		return nil
	}
	if rec.Token != c.Token || rec.State != driver.Running {
		return fmt.Errorf("the owner was given a record that is %s, with another token", rec.State)
	}
	if !l.note(id, rec.Fence) || rec.Fence <= before {
		return fmt.Errorf("fence %d was given out twice, or after %d", rec.Fence, before)
	}
	if turn%2 == 0 {
		if owned, err = h.Extend(e.ctx, id, rec.Owner(), driver.Extension{Lease: 2 * long}); err != nil || !owned {
			return fmt.Errorf("extend by the owner: owned is %t, error %w", owned, err)
		}
	}
	if rec, owned, err = h.Settle(e.ctx, id, rec.Owner(), free("again")); err != nil || !owned {
		return fmt.Errorf("settle by the owner: owned is %t, record %s, error %w", owned, rec.State, err)
	}
	return nil
}
