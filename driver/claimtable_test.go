package driver

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

// The claim's table, as a product of everything that it looks at. A situation is one element of that product; a rule
// is one row of the table, and the first row that matches is the one that holds.

const (
	t0            = Time(1_700_000_000_000_000) // when the run of a situation started
	testLease     = 30 * time.Second
	testRetention = 24 * time.Hour
)

var (
	mine   = Token{1}
	theirs = Token{2}
)

type runAge uint8 // of a run: how far its lease, or its retention, is over

const (
	withinLease   runAge = iota // the lease is valid, or the outcome is new
	leaseOver                   // the lease is over
	retentionOver               // and the retention after it too
)

type printPair uint8 // how two fingerprints relate

const (
	identical printPair = iota
	sameRaw             // the route's settings have changed
	sameCanonical
	otherSettings // canonical digests agree by chance of settings, which says nothing
	different
)

type situation struct {
	state               State
	begun, maybe, seize bool
	age                 runAge
	sameToken           bool
	prints              printPair
	recorded, asking    LostPolicy
	steps, owed         bool
}

func (s situation) String() string {
	return fmt.Sprintf("%v/begun=%v/maybe=%v/seized=%v/%s/own token=%v/%s/recorded=%v/asking=%v/steps=%v/owed=%v",
		s.state, s.begun, s.maybe, s.seize, [...]string{"fresh", "over", "expired"}[s.age], s.sameToken,
		[...]string{"identical", "same raw", "same canonical", "other settings", "different"}[s.prints], s.recorded, s.asking, s.steps, s.owed)
}

func (s situation) equal() bool { return s.prints <= sameCanonical }

// situations returns every combination that can be told apart and can exist.
func situations() (all []situation) {
	for n := range 5 * 2 * 2 * 2 * 3 * 2 * 5 * 2 * 2 * 2 * 2 {
		pick := func(of int) int {
			i := n % of
			n /= of
			return i
		}
		s := situation{
			state: State(pick(5)), begun: pick(2) == 1, maybe: pick(2) == 1, seize: pick(2) == 1,
			age: runAge(pick(3)), sameToken: pick(2) == 1, prints: printPair(pick(5)),
			recorded: LostPolicy(pick(2)), asking: LostPolicy(pick(2)), steps: pick(2) == 1, owed: pick(2) == 1,
		}
		switch {
		case s.state == Absent && s != situation{asking: s.asking}: // nothing else is recorded
		case s.seize && s.state != Unknown:
		case s.begun && s.state == Free: // a begun record is never freed
		case s.maybe && s.state == Done, s.owed && s.state == Done: // done clears them
		default:
			all = append(all, s)
		}
	}
	return all
}

// record returns the record of a situation, and the claim that meets it.
func (s situation) record() (r Record, now Time, c Claim) {
	held := Fingerprint{Raw: [16]byte{1}, Canonical: [16]byte{2}, Settings: [8]byte{3}}
	c = Claim{
		Fingerprint: held, Token: theirs, Lease: testLease, Retention: 2 * testRetention, OnLost: s.asking,
		Operation: "POST /asked", Correlation: "asked", Sealed: []byte("asked"),
	}
	switch s.prints {
	case sameRaw:
		c.Fingerprint.Canonical, c.Fingerprint.Settings = [16]byte{9}, [8]byte{9}
	case sameCanonical:
		c.Fingerprint.Raw = [16]byte{9}
	case otherSettings:
		c.Fingerprint.Raw, c.Fingerprint.Settings = [16]byte{9}, [8]byte{9}
	case different:
		c.Fingerprint.Raw, c.Fingerprint.Canonical = [16]byte{9}, [16]byte{9}
	}
	if s.sameToken {
		c.Token = mine
	}
	now = t0.Add(time.Second)
	switch s.age {
	case leaseOver:
		now = t0.Add(testLease)
	case retentionOver:
		now = t0.Add(testLease + testRetention)
	}
	if s.state == Absent {
		return Record{}, now, c
	}
	r = Record{
		State: s.state, OnLost: s.recorded, Begun: s.begun, Maybe: s.maybe, Seized: s.seize,
		Fence: 7, Token: mine, Fingerprint: held, Attempt: 3,
		Created: t0 - 5, Started: t0, LeaseEnd: t0.Add(testLease), Retention: testRetention,
		Operation: "POST /held", Correlation: "held", Error: "lost before", Sealed: []byte("held"),
		Steps: s.steps, Owed: s.owed,
		unknown: "\x02\x01\x63\x01x",
	}
	if s.state != Running {
		r.Settled = t0.Add(testLease)
		if s.age != retentionOver {
			r.Settled = t0
		}
	}
	if s.state == Done {
		r.Wrote, r.Response, r.Sealed = Done, &Response{Status: 201}, nil
	}
	if s.state == Free || s.state == Unknown && !s.seize {
		r.Wrote = s.state
	}
	return r, now, c
}

type claimResult uint8

const (
	claimRefused claimResult = iota // nothing is written
	claimRenewed                    // the caller's own run: only its lease moves
	claimNew                        // a new operation
	claimNext                       // another run of the same operation
)

type claimRow struct {
	when   func(s situation) bool
	result claimResult
	reads  Reading // what a refused caller is told
	maybe  bool    // the new run's record says that an effect may have happened
	reason string
}

var claimTable = []claimRow{
	{
		func(s situation) bool { return s.state == Absent }, claimNew, 0, false,
		"absent: the key is new",
	},
	{
		func(s situation) bool { return s.state == Done && s.age == retentionOver }, claimNew, 0, false,
		"done past retention: the key is new, whoever asks for whatever",
	},
	{
		func(s situation) bool { return s.state == Running && s.begun && s.age == retentionOver }, claimNew, 0, false,
		"begun: counts as done from the end of its lease, so that the key is new a retention later",
	},
	{
		func(s situation) bool { return s.state == Done && !s.equal() }, claimRefused, ReadsDone, false,
		"done, another request: key reused",
	},
	{
		func(s situation) bool { return s.state == Running && s.age == withinLease && !s.equal() }, claimRefused, ReadsRunning, false,
		"running, another request: key reused, whosever token it carries",
	},
	{
		func(s situation) bool { return s.state == Running && s.begun && !s.equal() }, claimRefused, ReadsDone, false,
		"begun and lapsed, another request: key reused",
	},
	{
		func(s situation) bool {
			return s.state == Running && (s.recorded == Hold || s.asking == Hold) && !s.equal()
		}, claimRefused, ReadsUnknown, false,
		"lapsed under Hold, another request: key reused",
	},
	{
		func(s situation) bool { return s.state == Running && !s.equal() }, claimRefused, ReadsFree, false,
		"lapsed under Rerun, another request: key reused",
	},
	{
		func(s situation) bool {
			return s.state == Free && !s.sameToken && !s.equal() && !s.maybe && !s.steps && !s.owed
		}, claimNew, 0, false,
		"free and remembering nothing, another request: the key has not been used",
	},
	{
		func(s situation) bool { return s.state == Free && s.maybe && s.asking == Hold && !s.equal() }, claimRefused, ReadsUnknown, false,
		"free with maybe, another request under Hold: key reused",
	},
	{
		func(s situation) bool { return s.state == Free && !s.equal() }, claimRefused, ReadsFree, false,
		"free, another request, and something is remembered or the token is spent: the fingerprint still binds",
	},
	{
		func(s situation) bool { return s.state == Unknown && !s.equal() }, claimRefused, ReadsUnknown, false,
		"unknown, another request: key reused",
	},
	{
		func(s situation) bool { return s.state == Running && s.sameToken }, claimRenewed, 0, false,
		"running, own token: the claim whose reply was lost, whether its lease is over or not",
	},
	{
		func(s situation) bool { return s.state == Free && s.sameToken && s.maybe && s.asking == Hold }, claimRefused, ReadsUnknown, false,
		"free, own token: a token once settled is spent",
	},
	{
		func(s situation) bool { return s.state == Free && s.sameToken }, claimRefused, ReadsFree, false,
		"free, own token: a token once settled is spent",
	},
	{
		func(s situation) bool { return s.state == Done && s.sameToken }, claimRefused, ReadsDone, false,
		"done, own token: a token once settled is spent",
	},
	{
		func(s situation) bool { return s.state == Unknown && s.sameToken }, claimRefused, ReadsUnknown, false,
		"unknown, own token: a token once settled is spent, an operator's never runs",
	},
	{
		func(s situation) bool { return s.state == Free && s.maybe && s.asking == Hold }, claimRefused, ReadsUnknown, false,
		"free with maybe: an earlier run may have had its effect, and the caller wants it at most once",
	},
	{
		func(s situation) bool { return s.state == Free && s.maybe }, claimNext, 0, true,
		"free with maybe, claimed under Rerun: the doubt stays until it is done",
	},
	{
		func(s situation) bool { return s.state == Free }, claimNext, 0, false,
		"free: the next run",
	},
	{
		func(s situation) bool { return s.state == Running && s.age == withinLease }, claimRefused, ReadsRunning, false,
		"running with a valid lease: in progress",
	},
	{
		func(s situation) bool { return s.state == Running && s.begun }, claimRefused, ReadsDone, false,
		"begun and lapsed: bytes may be out, so never again, whatever the policy",
	},
	{
		func(s situation) bool { return s.state == Running && (s.recorded == Hold || s.asking == Hold) }, claimRefused, ReadsUnknown, false,
		"lapsed, and the record or the caller says Hold: unknown",
	},
	{
		func(s situation) bool { return s.state == Running }, claimNext, 0, true,
		"lapsed under Rerun in both: taken over, and the lost run may have had its effect",
	},
	{
		func(s situation) bool { return s.state == Unknown }, claimRefused, ReadsUnknown, false,
		"unknown: only an operator or reconcile moves it",
	},
	{
		func(s situation) bool { return s.state == Done }, claimRefused, ReadsDone, false,
		"done within retention: replayed",
	},
}

// and the contract's table of claims, row by row, over every combination.
func TestR16_R46_R53_EveryClaimIsAsTheTableSays(t *testing.T) {
	t.Parallel()
	met := make([]int, len(claimTable))
	for _, s := range situations() {
		at := -1
		for i, row := range claimTable {
			if row.when(s) {
				at = i
				break
			}
		}
		if at < 0 {
			t.Fatalf("%v: no row of the table", s)
		}
		met[at]++
		checkClaim(t, s, claimTable[at])
	}
	for i, n := range met {
		if n == 0 {
			t.Errorf("no situation reaches the row %q", claimTable[i].reason)
		}
	}
}

func checkClaim(t *testing.T, s situation, row claimRow) {
	t.Helper()
	before, now, c := s.record()
	want := before
	want.Now = now
	next := func() {
		want.State, want.OnLost, want.Seized, want.Wrote = Running, c.OnLost, false, Absent
		want.Token, want.Started, want.LeaseEnd, want.Settled = c.Token, now, now.Add(testLease), 0
		want.Retention, want.Correlation = c.Retention, c.Correlation
	}
	switch row.result {
	case claimRenewed:
		want.LeaseEnd = now.Add(testLease)
	case claimNext:
		next()
		want.Fence, want.Attempt, want.Maybe = before.Fence+1, before.Attempt+1, row.maybe
		want.Owed = s.owed || s.state == Running // its request is stored, and its client has no answer
	case claimNew:
		fence := before.Fence + 1
		if s.state == Absent {
			fence = uint64(now) / 1000
		}
		want = Record{
			Fence: fence, Attempt: 1, Fingerprint: c.Fingerprint, Created: now,
			Operation: c.Operation, Sealed: c.Sealed, Now: now,
		}
		next()
	}
	got, owned := before.Claim(now, c)
	if owned != (row.result != claimRefused) || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: %s\n got %v %+v\nwant %v %+v", s, row.reason, owned, got, row.result != claimRefused, want)
	}
	if row.result == claimRefused {
		if reads := got.Reads(s.asking); reads != row.reads {
			t.Errorf("%v: reads %v, want %v: %s", s, reads, row.reads, row.reason)
		}
	}
}
