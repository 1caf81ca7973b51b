package driver

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// history is what a walk over a record remembers of its past.
type walk struct {
	t       *testing.T
	rng     *rand.Rand
	record  Record
	now     Time
	tokens  []Token
	owners  []Owner        // everybody who was ever told "owned"
	settled map[Owner]bool // who has settled
	lost    bool           // in this operation: a run was lost, or released under Rerun, and no operator has decided since
	closed  bool           // in this operation: stored unknown, and no operator has decided since
	begun   bool
	steps   bool // in this operation: one was saved
	owed    bool // in this operation: a release has said so
	runs    uint32
	log     []string
}

func (h *walk) failf(format string, args ...any) {
	h.t.Helper()
	n := max(0, len(h.log)-12)
	h.t.Fatalf("%s\nrecord %+v\nlast verbs:\n%v", fmt.Sprintf(format, args...), h.record, h.log[n:])
}

// ended reports whether the operation is over for all, by the contract's words.
func (h *walk) ended() bool {
	r := h.record
	switch {
	case r.State == Absent:
		return true
	case r.State == Done:
		return h.now >= r.Settled.Add(r.Retention)
	}
	return r.State == Running && r.Begun && h.now >= r.LeaseEnd.Add(r.Retention)
}

func (h *walk) lapsed() bool { return h.record.State == Running && h.now >= h.record.LeaseEnd }

func (h *walk) token() Token {
	if len(h.tokens) > 0 && h.rng.IntN(3) == 0 {
		return h.tokens[h.rng.IntN(len(h.tokens))]
	}
	var tok Token
	for i := range tok {
		tok[i] = byte(h.rng.Uint32())
	}
	h.tokens = append(h.tokens, tok)
	return tok
}

func (h *walk) owner() Owner {
	by := h.record.Owner()
	if len(h.owners) > 0 && h.rng.IntN(2) == 0 {
		by = h.owners[h.rng.IntN(len(h.owners))]
	}
	switch h.rng.IntN(12) {
	case 0:
		by.Fence++
	case 1:
		by.Fence--
	case 2:
		by.Token = h.token()
	}
	return by
}

// put takes a verb's result over. Whatever the verb: refused changes nothing, and fences never fall.
func (h *walk) put(next Record, ok bool, verb string, args ...any) {
	h.t.Helper()
	h.log = append(h.log, fmt.Sprintf("%v %v %s %v\n", h.now, ok, verb, args))
	if next.Now != h.now {
		h.failf("%s: the record's clock is %v, want %v", verb, next.Now, h.now)
	}
	next.Now = h.record.Now
	if !ok && !reflect.DeepEqual(next, h.record) {
		h.failf("refused %s changed the record to %+v", verb, next)
	}
	if next.Fence < h.record.Fence {
		h.failf("%s lowered the fence to %d", verb, next.Fence)
	}
	if next.State == Running && next.Owner() != h.record.Owner() && next.Fence == h.record.Fence {
		h.failf("%s changed the owner but not the fence", verb)
	}
	h.record = next
}

func (h *walk) claim() {
	before, ended, lapsed := h.record, h.ended(), h.lapsed()
	c := Claim{Token: h.token(), OnLost: LostPolicy(h.rng.IntN(2)), Lease: testLease, Retention: testRetention}
	if h.rng.IntN(5) == 0 {
		c.Fingerprint.Raw[0], c.Fingerprint.Canonical[0] = 1, 1
	}
	r, ok := before.Claim(h.now, c)
	h.put(r, ok, "claim", c.Token, c.OnLost)
	if !ok {
		return
	}
	anew := ended
	if !before.Fingerprint.Equal(c.Fingerprint) {
		anew = true
		if !ended && (before.State != Free || before.Token == c.Token || h.lost || h.steps || h.owed) {
			h.failf("another request was let run")
		}
	}
	if r.Owner() == before.Owner() && before.State == Running && !ended {
		return // its own claim again
	}
	if r.Fence <= before.Fence && before.State != Absent {
		h.failf("a run began without raising the fence")
	}
	if anew {
		h.lost, h.closed, h.begun, h.steps, h.owed, h.runs = false, false, false, false, false, 0
	}
	h.runs++
	hold := c.OnLost == Hold || before.OnLost == Hold && before.State == Running
	switch {
	case before.State == Running && !lapsed:
		h.failf("a run with a valid lease was taken over")
	case h.begun:
		h.failf("begun was run again")
	case h.closed:
		h.failf("unknown was run again")
	case lapsed && !ended && hold:
		h.failf("a lost run was run again under Hold")
	case h.lost && c.OnLost == Hold:
		h.failf("an operation that may have had its effect was run under Hold")
	}
	h.lost = h.lost || lapsed && !ended
	h.owners = append(h.owners, r.Owner())
}

func (h *walk) extend() {
	by, before := h.owner(), h.record
	x := Extension{Lease: testLease, Begun: h.rng.IntN(8) == 0}
	r, ok := before.Extend(h.now, by, x)
	h.put(r, ok, "extend", by, x)
	if !ok {
		return
	}
	if h.settled[by] {
		h.failf("an owner who had settled extended")
	}
	if by != before.Owner() {
		h.failf("extended by %v", by)
	}
	h.begun = h.begun || x.Begun
}

func (h *walk) saveStep() {
	by, before := h.owner(), h.record
	r, ok := before.SaveStep(h.now, by)
	h.put(r, ok, "save step", by)
	if !ok {
		return
	}
	if h.settled[by] || by != before.Owner() || before.State != Running {
		h.failf("a step was saved by %v", by)
	}
	h.steps = true
}

func (h *walk) settle() {
	by, before := h.owner(), h.record
	o := Outcome{State: []State{Done, Free, Unknown}[h.rng.IntN(3)], Error: "e", Owed: h.rng.IntN(6) == 0}
	if o.State == Done {
		o.Response = &Response{Status: 200, Body: []byte{byte(h.rng.Uint32())}}
	}
	if h.rng.IntN(4) == 0 {
		by.Above, by.Fence = true, by.Fence-uint64(h.rng.IntN(2))
	}
	r, ok := before.Settle(h.now, by, o)
	h.put(r, ok, "settle", by, o.State)
	if !ok {
		return
	}
	own := r.Owner()
	if own.Token != by.Token || !by.Above && own.Fence != by.Fence || by.Above && own.Fence <= by.Fence {
		h.failf("settled by %v, who does not own it", by)
	}
	if h.settled[own] {
		r.Now = before.Now
		if !reflect.DeepEqual(r, before) {
			h.failf("a repeated settle changed the record from %+v", before)
		}
		return
	}
	h.settled[own] = true
	if h.begun && r.State != Done {
		h.failf("begun was settled as %v", r.State)
	}
	h.owed = r.State != Done && (h.owed || o.Owed && !by.Above)
	switch {
	case r.State == Done:
		h.lost, h.closed = false, false
	case r.State == Unknown:
		h.closed = true
	case before.Seized:
		h.lost, h.closed = false, false
	case by.Above:
		h.runs--
	case before.OnLost == Rerun:
		h.lost = true
	}
	if again, ok := r.Settle(h.now+1, by, o); !ok || again.State != r.State || again.Settled != r.Settled {
		h.failf("the same settle again: %v %+v", ok, again)
	}
}

func (h *walk) seize() {
	before, tok := h.record, h.token()
	r, ok := before.Seize(h.now, tok)
	h.put(r, ok, "seize", tok)
	if !ok {
		return
	}
	if before.State == Done || before.State == Absent || before.State == Free && !before.Maybe {
		h.failf("%v was seized", before.State)
	}
	h.closed = true
	h.owners = append(h.owners, r.Owner())
}

func (h *walk) sweep() {
	before := h.record
	if !before.Expired(h.now) {
		return
	}
	switch {
	case before.State == Unknown, before.State == Absent:
		h.failf("%v expired", before.State)
	case before.State == Running && !h.lapsed():
		h.failf("a record with a valid lease expired")
	case before.State == Running && before.OnLost == Hold && !before.Begun:
		h.failf("a record that waits for a decision expired")
	case before.State == Done && !h.ended():
		h.failf("expired within its retention")
	case before.State == Free && h.owed && h.now < before.Settled.Add(7*testRetention):
		h.failf("expired, and its end was owed")
	case before.State == Free && h.steps && h.now < before.Settled.Add(testRetention):
		h.failf("expired with its steps within its retention")
	}
	h.log = append(h.log, fmt.Sprintf("%v swept\n", h.now))
	h.record = Record{Fence: before.Fence}
}

func (h *walk) forget() {
	by := h.owner()
	if !h.record.Forgettable(h.now, by) {
		return
	}
	if h.record.State == Running && !h.record.Begun {
		h.failf("a running record may be forgotten")
	}
	h.log = append(h.log, fmt.Sprintf("%v forgotten by %v\n", h.now, by))
	h.record = Record{Fence: h.record.Fence}
}

// check looks at what must hold between any two verbs.
func (h *walk) check() {
	r := h.record
	r.Now = h.now
	if r.State != Absent && r.Attempt != h.runs {
		h.failf("attempt %d after %d runs", r.Attempt, h.runs)
	}
	if r.State != Absent && (r.Steps != h.steps || r.Owed != h.owed) {
		h.failf("Steps is %v, Owed %v; want %v, %v", r.Steps, r.Owed, h.steps, h.owed)
	}
	if r.State == Free && h.lost != r.Maybe {
		h.failf("maybe is %v, but an effect may have happened: %v", r.Maybe, h.lost)
	}
	for _, caller := range []LostPolicy{Hold, Rerun} {
		reads := r.Reads(caller)
		c, ok := r.Claim(h.now, Claim{Token: Token{0xff}, OnLost: caller, Fingerprint: r.Fingerprint})
		if ok != (reads == ReadsAbsent || reads == ReadsFree) {
			h.failf("reads %v to %v, but its claim is owned: %v", reads, caller, ok)
		}
		if !ok && c.State != r.State {
			h.failf("a refused claim made it %v", c.State)
		}
	}
	for by := range h.settled {
		if _, ok := r.Extend(h.now, by, Extension{}); ok {
			h.failf("%v owns it again after it had settled", by)
		}
	}
	if r.State == Absent {
		return
	}
	b, err := r.AppendBinary(nil)
	if err != nil {
		h.failf("encode: %v", err)
	}
	var back Record
	if err := back.UnmarshalBinary(b); err != nil {
		h.failf("decode: %v", err)
	}
	back.Now = r.Now
	if !reflect.DeepEqual(back, r) {
		h.failf("decoded as %+v", back)
	}
}

// Random walks over the verbs keep the invariants of the contract, whatever late copies and stale owners do.
func TestR46_R47_R48_RandomVerbsKeepTheInvariants(t *testing.T) {
	t.Parallel()
	jumps := []time.Duration{0, time.Microsecond, time.Second, testLease / 2, testLease, FreeRetention, testRetention, 8 * testRetention}
	var reached [Unknown + 1]int
	for seed := range uint64(150) {
		h := &walk{t: t, rng: rand.New(rand.NewPCG(seed, 46)), now: t0, settled: map[Owner]bool{}}
		for range 300 {
			if h.rng.IntN(4) == 0 {
				h.now = h.now.Add(jumps[h.rng.IntN(len(jumps))])
			}
			switch h.rng.IntN(20) {
			case 0, 1:
				h.seize()
			case 2:
				h.sweep()
			case 3:
				h.forget()
			case 4, 5, 6, 7:
				h.extend()
			case 8:
				h.saveStep()
			case 9, 10, 11, 12:
				h.settle()
			default:
				h.claim()
			}
			h.check()
			reached[h.record.State]++
		}
	}
	for s, n := range reached {
		if n < 1000 {
			t.Errorf("%v was reached only %d times: the walks prove little about it", State(s), n)
		}
	}
}
