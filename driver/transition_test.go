package driver

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"
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
func TestR16_R46_R53_ClaimTable(t *testing.T) {
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

// holding returns a record that a run owns, claimed at t0.
func holding(policy LostPolicy) (Record, Owner) {
	r, _ := Record{}.Claim(t0, Claim{Token: mine, Lease: testLease, Retention: testRetention, OnLost: policy})
	return r, r.Owner()
}

func mustSettle(t *testing.T, r Record, now Time, by Owner, o Outcome) Record {
	t.Helper()
	r, ok := r.Settle(now, by, o)
	if !ok {
		t.Fatalf("settle(%v) by %v of %+v refused", o.State, by, r)
	}
	return r
}

func mustClaim(t *testing.T, r Record, now Time, c Claim) Record {
	t.Helper()
	r, ok := r.Claim(now, c)
	if !ok {
		t.Fatalf("claim of %+v refused", r)
	}
	return r
}

func mustSeize(t *testing.T, r Record, now Time, tok Token) Record {
	t.Helper()
	r, ok := r.Seize(now, tok)
	if !ok {
		t.Fatalf("seize of %+v refused", r)
	}
	return r
}

func TestClaim_FenceOfANewOperation(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		remembered uint64
		now        Time
		want       uint64
		reason     string
	}{
		{0, t0, uint64(t0 / 1000), "the clock in milliseconds, so that it grows over forget, sweep and failover"},
		{0, 0, 1, "a clock at its epoch still gives a fence"},
		{uint64(t0/1000) + 40, t0, uint64(t0/1000) + 41, "a remembered fence above the clock is exceeded"},
		{5, t0, uint64(t0 / 1000), "a remembered fence below the clock does not hold it back"},
	} {
		r := mustClaim(t, Record{Fence: tt.remembered}, tt.now, Claim{Token: mine})
		if r.Fence != tt.want {
			t.Errorf("fence %d, want %d: %s", r.Fence, tt.want, tt.reason)
		}
	}
}

// R-51 and case 3: no length of time is read as "over".
func TestR51_Case03_NoLeaseIsTheDefaultLease(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		lease, want time.Duration
		reason      string
	}{
		{0, DefaultLease, "missing"},
		{-1, DefaultLease, "negative"},
		{math.MinInt64, DefaultLease, "as negative as can be"},
		{time.Millisecond, time.Millisecond, "short, but said"},
		{Forever, Forever, "as long as can be, and no overflow into the past"},
	} {
		c := Claim{Token: mine, Lease: tt.lease, Retention: tt.lease}
		r := mustClaim(t, Record{}, t0, c)
		again := mustClaim(t, r, t0+7, c)
		extended, ok := r.Extend(t0+7, r.Owner(), Extension{Lease: tt.lease})
		if !ok || r.LeaseEnd != t0.Add(tt.want) || again.LeaseEnd != (t0+7).Add(tt.want) || extended.LeaseEnd != again.LeaseEnd {
			t.Errorf("lease %v ends %v, %v, %v after the claim, want %v: %s", tt.lease,
				r.LeaseEnd.Sub(t0), again.LeaseEnd.Sub(t0), extended.LeaseEnd.Sub(t0), tt.want, tt.reason)
		}
		if got := r.Reads(Rerun); got != ReadsRunning {
			t.Errorf("lease %v: reads %v right after the claim", tt.lease, got)
		}
		if tt.lease <= 0 && r.Retention != DefaultRetention {
			t.Errorf("retention %v became %v, want the default", tt.lease, r.Retention)
		}
	}
}

// Extend, verb by owner and state.
func TestExtend(t *testing.T) {
	t.Parallel()
	now := t0.Add(time.Minute) // the lease is over
	run, owner := holding(Rerun)
	begun, _ := run.Extend(t0, owner, Extension{Lease: testLease, Begun: true})
	hold, _ := holding(Hold)
	taken := mustClaim(t, run, now, Claim{Token: theirs, OnLost: Rerun})
	for _, tt := range []struct {
		record Record
		by     Owner
		begun  bool
		want   bool
		reason string
	}{
		{run, owner, false, true, "lapsed, and nobody has taken over: it is still its owner's"},
		{hold, owner, false, true, "lapsed under Hold: unknown to readers, but its owner may live on"},
		{run, owner, true, true, "the first byte is about to leave"},
		{begun, owner, false, true, "begun is never unset"},
		{run, Owner{Fence: owner.Fence - 1, Token: mine}, true, false, "another fence"},
		{run, Owner{Fence: owner.Fence, Token: theirs}, true, false, "another token"},
		{run, Owner{Token: mine, Above: true}, true, false, "above is for releases"},
		{run, Owner{}, true, false, "nobody"},
		{taken, owner, true, false, "taken over"},
		{mustSettle(t, run, now, owner, Outcome{State: Done}), owner, true, false, "a late heartbeat must not reopen what is done"},
		{mustSettle(t, run, now, owner, Outcome{State: Free}), owner, true, false, "nor what is free"},
		{mustSettle(t, run, now, owner, Outcome{State: Unknown}), owner, true, false, "nor what is unknown"},
		{mustSeize(t, run, now, theirs), owner, true, false, "an operator has taken it"},
		{mustSeize(t, run, now, theirs), Owner{Fence: owner.Fence + 1, Token: theirs}, true, false, "an operator decides, it does not run"},
		{Record{}, Owner{}, true, false, "absent has no owner"},
	} {
		got, ok := tt.record.Extend(now, tt.by, Extension{Lease: 2 * testLease, Begun: tt.begun})
		want := tt.record
		want.Now = now
		if tt.want {
			want.LeaseEnd = now.Add(2 * testLease)
			want.Begun = tt.begun || want.Begun
		}
		if ok != tt.want || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %v %+v\nwant %v %+v", tt.reason, ok, got, tt.want, want)
		}
	}
}

// a step is saved by the owner of a run, and by nobody else.
func TestR84_SaveStep(t *testing.T) {
	t.Parallel()
	now := t0.Add(time.Minute) // the lease is over
	run, owner := holding(Rerun)
	hold, _ := holding(Hold)
	begun, _ := run.Extend(t0, owner, Extension{Lease: testLease, Begun: true})
	saved, _ := run.SaveStep(t0, owner)
	taken := mustClaim(t, saved, now, Claim{Token: theirs, OnLost: Rerun})
	seized := mustSeize(t, run, now, theirs)
	for _, tt := range []struct {
		record Record
		by     Owner
		want   bool
		reason string
	}{
		{run, owner, true, "lapsed, and nobody has taken over: what it did is still its operation's"},
		{hold, owner, true, "lapsed under Hold: its owner may live on"},
		{begun, owner, true, "begun is running"},
		{saved, owner, true, "another step, or the same again"},
		{taken, taken.Owner(), true, "the next run's owner"},
		{taken, owner, false, "taken over"},
		{run, Owner{Fence: owner.Fence - 1, Token: mine}, false, "another fence"},
		{run, Owner{Fence: owner.Fence, Token: theirs}, false, "another token"},
		{run, Owner{Fence: owner.Fence - 1, Token: mine, Above: true}, false, "above is for releases"},
		{run, Owner{}, false, "nobody"},
		{mustSettle(t, run, now, owner, Outcome{State: Done}), owner, false, "done: the answer does not know of it"},
		{mustSettle(t, saved, now, owner, Outcome{State: Free}), owner, false, "free: the next run may have begun to read"},
		{mustSettle(t, run, now, owner, Outcome{State: Unknown}), owner, false, "unknown"},
		{seized, owner, false, "an operator has taken it"},
		{seized, seized.Owner(), false, "an operator decides, it does not run"},
		{Record{}, Owner{}, false, "absent has no owner"},
	} {
		got, ok := tt.record.SaveStep(now, tt.by)
		want := tt.record
		want.Now = now
		want.Steps = want.Steps || tt.want
		if ok != tt.want || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %v %+v\nwant %v %+v", tt.reason, ok, got, tt.want, want)
		}
	}
}

// steps last as long as their operation, whatever becomes of its runs.
func TestR84_StepsLastAsLongAsTheirOperation(t *testing.T) {
	t.Parallel()
	lapse := t0.Add(testLease)
	claim := Claim{Token: theirs, Lease: testLease, Retention: testRetention, OnLost: Rerun}
	r, owner := holding(Rerun)
	r, _ = r.SaveStep(t0, owner)
	begun, _ := r.Extend(t0, owner, Extension{Lease: testLease, Begun: true})
	freed := mustSettle(t, r, t0, owner, Outcome{State: Free})
	done := mustSettle(t, r, t0, owner, Outcome{State: Done, Response: &Response{}})
	seized := mustSeize(t, freed, t0, theirs)
	for _, tt := range []struct {
		record Record
		want   bool
		reason string
	}{
		{freed, true, "released"},
		{mustClaim(t, freed, t0, claim), true, "released, and run again"},
		{mustClaim(t, r, lapse, claim), true, "taken over"},
		{mustClaim(t, r, t0, Claim{Token: mine}), true, "its own claim again"},
		{mustSettle(t, r, t0, Owner{Token: mine, Above: true}, Outcome{State: Free}), true, "released by token"},
		{done, true, "done: kept with the answer"},
		{mustSettle(t, r, t0, owner, Outcome{State: Unknown}), true, "unknown: an operator may want to know"},
		{mustSettle(t, begun, t0, owner, Outcome{State: Free}), true, "begun and released"},
		{seized, true, "seized"},
		{mustSettle(t, seized, t0, seized.Owner(), Outcome{State: Free}), true, "released by an operator"},
		{mustClaim(t, done, t0.Add(testRetention), claim), false, "another operation, after the retention"},
		{mustClaim(t, begun, lapse.Add(testRetention), claim), false, "another operation, after a begun one"},
	} {
		if tt.record.Steps != tt.want {
			t.Errorf("%s: Steps is %v", tt.reason, tt.record.Steps)
		}
	}
}

// what is owed is so from the release that says it, until the operation has its end.
func TestR52_OwedUntilTheEnd(t *testing.T) {
	t.Parallel()
	now := t0.Add(time.Second)
	claim := Claim{Token: theirs, Lease: testLease, Retention: testRetention, OnLost: Rerun}
	run, owner := holding(Rerun)
	owed := mustSettle(t, run, t0, owner, Outcome{State: Free, Owed: true})
	again := mustClaim(t, owed, now, claim)
	begun, _ := again.Extend(now, again.Owner(), Extension{Lease: testLease, Begun: true})
	seized := mustSeize(t, owed, now, mine)
	other := mustSeize(t, run, now, theirs)
	for _, tt := range []struct {
		record Record
		want   bool
		reason string
	}{
		{owed, true, "its owner gave up, and somebody was promised the end"},
		{again, true, "the next run"},
		{mustClaim(t, again, now.Add(testLease), Claim{Token: mine, OnLost: Rerun}), true, "taken over"},
		{mustSettle(t, again, now, again.Owner(), Outcome{State: Free}), true, "released again, without saying so"},
		{mustSettle(t, again, now, Owner{Token: theirs, Above: true}, Outcome{State: Free}), true, "released by token"},
		{mustSettle(t, again, now, again.Owner(), Outcome{State: Unknown}), true, "unknown: still no end"},
		{seized, true, "seized: somebody is deciding"},
		{mustSettle(t, seized, now, seized.Owner(), Outcome{State: Free}), true, "released by an operator: it can be finished now"},
		{mustSettle(t, seized, now, seized.Owner(), Outcome{State: Unknown}), true, "undecided by an operator"},
		{mustSettle(t, other, now, other.Owner(), Outcome{State: Free, Owed: true}), true, "an operator's release may say so first"},
		{mustSettle(t, again, now, again.Owner(), Outcome{State: Done}), false, "done is the end"},
		{mustSettle(t, seized, now, seized.Owner(), Outcome{State: Done}), false, "done, by an operator"},
		{mustSettle(t, begun, now, begun.Owner(), Outcome{State: Free, Owed: true}), false, "begun and released: done without an answer"},
		{mustSettle(t, begun, now, begun.Owner(), Outcome{State: Unknown}), false, "begun and lost: the same"},
		{mustSettle(t, run, now, owner, Outcome{State: Done, Owed: true}), false, "what is done is not owed"},
		{mustSettle(t, run, now, owner, Outcome{State: Unknown, Owed: true}), true, "unknown: an operator may set it free, and then somebody has to finish it"},
		{mustSettle(t, run, now, Owner{Token: mine, Above: true}, Outcome{State: Free, Owed: true}), false, "nothing ran, so nothing is promised"},
		{mustClaim(t, begun, now.Add(testLease+testRetention), claim), false, "another operation"},
	} {
		if tt.record.Owed != tt.want {
			t.Errorf("%s: Owed is %v", tt.reason, tt.record.Owed)
		}
	}
	if late, ok := owed.Settle(now, owner, Outcome{State: Free}); !ok || !late.Owed {
		t.Errorf("the release again: %v, Owed %v; want no change", ok, late.Owed)
	}
	first := mustSettle(t, run, t0, owner, Outcome{State: Free})
	if late, ok := first.Settle(now, owner, Outcome{State: Free, Owed: true}); !ok || late.Owed {
		t.Errorf("the release again, with Owed: %v, Owed %v; want no change", ok, late.Owed)
	}
}

// Settle, from state to state.
func TestSettle(t *testing.T) {
	t.Parallel()
	answer := &Response{Status: 201}
	now := t0.Add(time.Hour)
	mark := func(policy LostPolicy, begun, maybe, seize bool) Record {
		r, _ := holding(policy)
		r.Begun, r.Maybe = begun, maybe
		if seize {
			r = mustSeize(t, r, t0, mine)
		}
		return r
	}
	for _, tt := range []struct {
		record Record
		to     State
		want   State
		answer bool
		maybe  bool
		reason string
	}{
		{mark(Hold, false, false, false), Done, Done, true, false, "done long after the lease: nobody has replaced the owner"},
		{mark(Rerun, false, true, false), Done, Done, true, false, "done ends all doubt"},
		{mark(Rerun, true, true, false), Done, Done, true, false, "a begun run that came to its end has an answer"},
		{mark(Hold, false, false, false), Free, Free, false, false, "released under Hold is a promise that nothing happened"},
		{mark(Rerun, false, false, false), Free, Free, false, true, "released under Rerun is not: an effect may have happened"},
		{mark(Rerun, false, true, false), Free, Free, false, true, "doubt stays"},
		{mark(Hold, true, false, false), Free, Done, false, false, "begun: can't run again, so done without an answer"},
		{mark(Rerun, true, true, false), Free, Done, false, false, "begun under Rerun: the same"},
		{mark(Hold, false, false, false), Unknown, Unknown, false, false, "lost under Hold"},
		{mark(Rerun, false, true, false), Unknown, Unknown, false, true, "lost, said so by the upstream"},
		{mark(Hold, true, false, false), Unknown, Done, false, false, "begun and lost: not unknown, but without an answer"},
		{mark(Hold, false, false, true), Done, Done, true, false, "an operator knows the answer"},
		{mark(Hold, false, false, true), Free, Free, false, false, "an operator found that nothing happened"},
		{mark(Rerun, false, true, true), Free, Free, false, false, "an operator's release ends the doubt"},
		{mark(Hold, false, false, true), Unknown, Unknown, false, false, "an operator can't tell either"},
		{mark(Hold, true, false, true), Free, Done, false, false, "begun and seized: bytes may be out, whoever decides"},
	} {
		o := Outcome{State: tt.to, Response: answer, Error: "why"} // only done keeps it
		got, ok := tt.record.Settle(now, tt.record.Owner(), o)
		want := tt.record
		want.State, want.Wrote, want.Seized, want.Maybe = tt.want, tt.to, false, tt.maybe
		want.Settled, want.Error, want.Now = now, "why", now
		if tt.answer {
			want.Response = answer
		}
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %v %+v\nwant true %+v", tt.reason, ok, got, want)
		}
	}
}

// What is settled stays: the same settle again succeeds as its own and changes nothing, another is fenced.
func TestR46_Case07_RepeatedSettleIsItsOwn(t *testing.T) {
	t.Parallel()
	answer := &Response{Status: 201}
	now := t0.Add(time.Hour)
	for _, begun := range []bool{false, true} {
		for _, first := range []State{Done, Free, Unknown} {
			for _, again := range []State{Done, Free, Unknown} {
				r, owner := holding(Rerun)
				r.Begun = begun
				r = mustSettle(t, r, t0, owner, Outcome{State: first, Response: answer})
				got, ok := r.Settle(now, owner, Outcome{State: again, Response: &Response{Status: 500}, Error: "late"})
				want := r
				want.Now = now
				if ok != (first == again) || !reflect.DeepEqual(got, want) {
					t.Errorf("begun %v: settle(%v), then settle(%v): got %v %+v, want %v %+v", begun, first, again, ok, got, first == again, want)
				}
				for _, other := range []Owner{{Fence: owner.Fence, Token: theirs}, {Fence: owner.Fence + 1, Token: mine}, {Fence: owner.Fence - 1, Token: mine}} {
					if got, ok := r.Settle(now, other, Outcome{State: first}); ok || !reflect.DeepEqual(got, want) {
						t.Errorf("begun %v: settle(%v) again by %v, who is not its owner: got %v", begun, first, other, ok)
					}
				}
			}
		}
	}
}

func TestSettle_RefusesWhatIsNoOutcome(t *testing.T) {
	t.Parallel()
	for _, to := range []State{Absent, Running, Unknown + 1} {
		r, owner := holding(Rerun)
		if got, ok := r.Settle(t0, owner, Outcome{State: to}); ok || !reflect.DeepEqual(got, r) {
			t.Errorf("settle(%v) of a running record: got %v %+v", to, ok, got)
		}
		// A record that has not been settled wrote Absent, which must not pass for a repeat.
		if _, ok := mustSeize(t, r, t0, theirs).Settle(t0, owner, Outcome{State: to}); ok {
			t.Errorf("settle(%v) of a seized record by its former owner succeeded", to)
		}
	}
	if _, ok := (Record{}).Settle(t0, Owner{}, Outcome{State: Done}); ok {
		t.Error("settle of an absent record succeeded")
	}
}

// cases 2, 37 and 41: whatever became of the record, a stale owner changes nothing and is told so.
func TestR46_R48_Case02_Case41_StaleOwnerIsFenced(t *testing.T) {
	t.Parallel()
	lapse := t0.Add(testLease)
	claim := Claim{Token: theirs, Lease: testLease, Retention: testRetention, OnLost: Rerun}
	run, stale := holding(Rerun)
	takeover := mustClaim(t, run, lapse, claim)
	for _, tt := range []struct {
		record Record
		reason string
	}{
		{takeover, "taken over"},
		{mustSettle(t, takeover, lapse, takeover.Owner(), Outcome{State: Done}), "taken over, done"},
		{mustSettle(t, takeover, lapse, takeover.Owner(), Outcome{State: Free}), "taken over, released"},
		{
			mustClaim(t, mustSettle(t, takeover, lapse, takeover.Owner(), Outcome{State: Free}), lapse, Claim{Token: Token{3}, OnLost: Rerun}),
			"taken over, released, claimed again",
		},
		{mustSettle(t, takeover, lapse, takeover.Owner(), Outcome{State: Unknown}), "taken over, lost"},
		{mustClaim(t, Record{}, lapse, claim), "forgotten or swept, claimed as new: the fence grows with the clock"},
		{mustClaim(t, Record{Fence: stale.Fence}, t0, claim), "forgotten, claimed as new within the same millisecond"},
		{mustClaim(t, Record{}, t0, claim), "the same by a store that remembers no fence: the token tells"},
		{Record{}, "forgotten or swept"},
		{mustSeize(t, run, lapse, theirs), "seized"},
		{
			mustSettle(t, mustSeize(t, run, lapse, theirs), lapse, Owner{Fence: stale.Fence + 1, Token: theirs}, Outcome{State: Free}),
			"released by an operator",
		},
	} {
		for _, verb := range []struct {
			name string
			do   func(r Record) (Record, bool)
		}{
			{"extend", func(r Record) (Record, bool) { return r.Extend(lapse, stale, Extension{}) }},
			{"begin", func(r Record) (Record, bool) { return r.Extend(lapse, stale, Extension{Begun: true}) }},
			{"step", func(r Record) (Record, bool) { return r.SaveStep(lapse, stale) }},
			{"complete", func(r Record) (Record, bool) { return r.Settle(lapse, stale, Outcome{State: Done}) }},
			{"fail", func(r Record) (Record, bool) { return r.Settle(lapse, stale, Outcome{State: Unknown}) }},
			{"release", func(r Record) (Record, bool) { return r.Settle(lapse, stale, Outcome{State: Free}) }},
			{"release by token", func(r Record) (Record, bool) {
				return r.Settle(lapse, Owner{Token: stale.Token, Above: true}, Outcome{State: Free})
			}},
		} {
			want := tt.record
			want.Now = lapse
			if got, ok := verb.do(tt.record); ok || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, then the stale owner's %s: got %v %+v", tt.reason, verb.name, ok, got)
			}
		}
		if tt.record.Forgettable(lapse, stale) {
			t.Errorf("%s: the stale owner may forget it", tt.reason)
		}
	}
}

// Case 37: of two callers who saw the same lapsed run one takes it over.
func TestR46_Case37_OneOfTwoTakeoversWins(t *testing.T) {
	t.Parallel()
	lapse := t0.Add(testLease)
	run, _ := holding(Rerun)
	first := mustClaim(t, run, lapse, Claim{Token: theirs, OnLost: Rerun})
	if r, ok := first.Claim(lapse, Claim{Token: Token{3}, OnLost: Rerun}); ok || r.Reads(Rerun) != ReadsRunning {
		t.Errorf("second takeover: owned %v, reads %v; want refused, in progress", ok, r.Reads(Rerun))
	}
}

// Case 43: a guard that gave up on its claim frees what that claim may have started, and nothing else.
func TestCase43_ReleaseByToken(t *testing.T) {
	t.Parallel()
	now := t0.Add(time.Second)
	hold, owner := holding(Hold)
	rerun, _ := holding(Rerun)
	maybe := rerun
	maybe.Maybe = true
	begun := rerun
	begun.Begun = true
	freed := mustSettle(t, rerun, t0, owner, Outcome{State: Free})
	operator := mustSeize(t, hold, t0, theirs)
	for _, tt := range []struct {
		record  Record
		by      Owner
		want    bool
		state   State
		attempt uint32
		maybe   bool
		reason  string
	}{
		{hold, Owner{Token: mine, Above: true}, true, Free, 0, false, "never started: freed, and the attempt does not count"},
		{rerun, Owner{Token: mine, Above: true}, true, Free, 0, false, "under Rerun too: what never started had no effect"},
		{maybe, Owner{Token: mine, Above: true}, true, Free, 0, true, "an earlier run's doubt stays"},
		{
			rerun,
			Owner{Fence: owner.Fence - 1, Token: mine, Above: true},
			true, Free, 0, false,
			"started under a lower fence, not under this one",
		},
		{
			rerun,
			Owner{Fence: owner.Fence, Token: mine, Above: true},
			false, Running, 1, false,
			"started under this fence: it may have had its effect",
		},
		{rerun, Owner{Fence: math.MaxUint64, Token: mine, Above: true}, false, Running, 1, false, "no fence is above the last"},
		{rerun, Owner{Token: theirs, Above: true}, false, Running, 1, false, "another claim's run"},
		{begun, Owner{Token: mine, Above: true}, true, Done, 1, false, "begun can't be free"},
		{freed, Owner{Token: mine, Above: true}, true, Free, 1, true, "already released by its owner: acknowledged, unchanged"},
		{mustSettle(t, rerun, t0, owner, Outcome{State: Done}), Owner{Token: mine, Above: true}, false, Done, 1, false, "done is done"},
		{
			mustSettle(t, rerun, t0, owner, Outcome{State: Unknown}),
			Owner{Token: mine, Above: true},
			false, Unknown, 1, false,
			"unknown is closed",
		},
		{
			operator,
			Owner{Token: theirs, Above: true},
			false, Unknown, 1, false,
			"only a running record is released by token: a seized one waits for its decision",
		},
		{Record{}, Owner{Above: true}, false, Absent, 0, false, "absent"},
	} {
		for _, to := range []State{Done, Unknown} {
			if _, ok := tt.record.Settle(now, tt.by, Outcome{State: to}); ok {
				t.Errorf("%s: above with settle(%v) succeeded", tt.reason, to)
			}
		}
		got, ok := tt.record.Settle(now, tt.by, Outcome{State: Free})
		if ok != tt.want || got.State != tt.state || got.Attempt != tt.attempt || got.Maybe != tt.maybe {
			t.Errorf("%s: got %v %v, attempt %d, maybe %v; want %v %v, %d, %v", tt.reason,
				ok, got.State, got.Attempt, got.Maybe, tt.want, tt.state, tt.attempt, tt.maybe)
		}
		again, ok := got.Settle(now+1, tt.by, Outcome{State: Free})
		again.Now = got.Now
		if ok != tt.want || !reflect.DeepEqual(again, got) {
			t.Errorf("%s: repeated: got %v %+v, want %v and no change", tt.reason, ok, again, tt.want)
		}
	}
}

// An attempt that was released by token is not counted by the runs that follow.
func TestR49_AttemptsCountRunsAndFencesOrderOwners(t *testing.T) {
	t.Parallel()
	r, owner := holding(Hold)
	first := r.Fence
	r = mustSettle(t, r, t0, Owner{Token: owner.Token, Above: true}, Outcome{State: Free})
	r = mustClaim(t, r, t0, Claim{Token: theirs})
	if r.Attempt != 1 || r.Fence != first+1 {
		t.Errorf("after a claim that never started: attempt %d, fence +%d; want 1, +1", r.Attempt, r.Fence-first)
	}
	r = mustSettle(t, r, t0, r.Owner(), Outcome{State: Free})
	r = mustClaim(t, r, t0, Claim{Token: mine})
	if r.Attempt != 2 || r.Fence != first+2 {
		t.Errorf("after a released run: attempt %d, fence +%d; want 2, +2", r.Attempt, r.Fence-first)
	}
}

// Seize, from state to state.
func TestR75a_Seize(t *testing.T) {
	t.Parallel()
	now := t0.Add(testLease)
	hold, owner := holding(Hold)
	rerun, _ := holding(Rerun)
	operator := Token{9}
	begun := hold
	begun.Begun = true
	maybe := mustSettle(t, rerun, t0, owner, Outcome{State: Free})
	for _, tt := range []struct {
		record Record
		now    Time
		want   bool
		reason string
	}{
		{hold, now, true, "lapsed under Hold"},
		{rerun, now, true, "lapsed under Rerun"},
		{hold, t0, true, "running: its owner is told by the fence"},
		{begun, t0, true, "begun, its owner alive"},
		{mustSettle(t, hold, t0, owner, Outcome{State: Unknown}), now, true, "settled unknown"},
		{mustSeize(t, hold, t0, theirs), now, true, "seized by another operator, who is fenced now"},
		{maybe, now, true, "free with maybe: Hold callers are told unknown, and somebody must be able to decide"},
		{mustSettle(t, hold, t0, owner, Outcome{State: Free}), now, false, "free: nothing to decide"},
		{mustSettle(t, hold, t0, owner, Outcome{State: Done}), now, false, "done: decided"},
		{Record{}, now, false, "absent"},
	} {
		got, ok := tt.record.Seize(tt.now, operator)
		want := tt.record
		want.Now = tt.now
		if tt.want {
			want.State, want.Seized, want.Wrote = Unknown, true, Absent
			want.Fence, want.Token, want.Settled = tt.record.Fence+1, operator, tt.now
		}
		if ok != tt.want || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %v %+v\nwant %v %+v", tt.reason, ok, got, tt.want, want)
		}
		if !tt.want {
			continue
		}
		again, ok := got.Seize(tt.now+1, operator)
		again.Now = got.Now
		if !ok || !reflect.DeepEqual(again, got) {
			t.Errorf("%s: repeated: got %v %+v, want true and no change", tt.reason, ok, again)
		}
		if c, ok := got.Claim(tt.now, Claim{Token: operator, OnLost: Rerun}); ok {
			t.Errorf("%s: the operator's token claimed it: %+v", tt.reason, c)
		}
	}
}

// A decision belongs to the operator who seized last.
func TestR75a_OnlyTheSeizingOwnerDecides(t *testing.T) {
	t.Parallel()
	run, owner := holding(Hold)
	lost := mustSettle(t, run, t0, owner, Outcome{State: Unknown})
	if _, ok := lost.Settle(t0, owner, Outcome{State: Done}); ok {
		t.Error("the owner who settled unknown settled done later: stored unknown is closed")
	}
	first := mustSeize(t, lost, t0, Token{8})
	second := mustSeize(t, first, t0, Token{9})
	if _, ok := second.Settle(t0, first.Owner(), Outcome{State: Free}); ok {
		t.Error("an operator whose seizure was overtaken decided")
	}
	decided := mustSettle(t, second, t0, second.Owner(), Outcome{State: Done, Response: &Response{Status: 200}})
	if decided.State != Done || decided.Response == nil {
		t.Errorf("decided: %+v", decided)
	}
	undecided := mustSettle(t, second, t0, second.Owner(), Outcome{State: Unknown})
	if _, ok := undecided.Settle(t0, second.Owner(), Outcome{State: Free}); ok {
		t.Error("an operator who settled unknown settled free by the same seizure: its token is spent")
	}
}

func TestR87_Forgettable(t *testing.T) {
	t.Parallel()
	hold, owner := holding(Hold)
	operator := mustSeize(t, hold, t0, theirs)
	for _, tt := range []struct {
		record Record
		by     Owner
		want   bool
		reason string
	}{
		{mustSettle(t, hold, t0, owner, Outcome{State: Done}), owner, true, "done"},
		{mustSettle(t, hold, t0, owner, Outcome{State: Free}), owner, true, "free"},
		{operator, operator.Owner(), true, "seized by who asks"},
		{operator, owner, false, "seized by another"},
		{mustSettle(t, hold, t0, owner, Outcome{State: Unknown}), owner, false, "unknown: seize it first"},
		{hold, owner, false, "running"},
		{mustSettle(t, hold, t0, owner, Outcome{State: Done}), Owner{Token: mine, Above: true}, false, "above is for releases"},
		{mustSettle(t, hold, t0, owner, Outcome{State: Done}), Owner{Fence: owner.Fence + 1, Token: mine}, false, "another fence"},
		{Record{}, Owner{}, false, "absent"},
	} {
		if got := tt.record.Forgettable(t0, tt.by); got != tt.want {
			t.Errorf("%s: forgettable %v, want %v", tt.reason, got, tt.want)
		}
	}
}

// a process's clock decides nothing, so verbs give the same in a process that believes to be in the year 2000.
func TestR50_OnlyTheStoresClockCounts(t *testing.T) {
	t.Parallel()
	story := func() (all []Record) {
		for _, s := range situations() {
			r, now, c := s.record()
			r, _ = r.Claim(now, c)
			e, _ := r.Extend(now, r.Owner(), Extension{})
			f, _ := e.Settle(now, r.Owner(), Outcome{State: Free})
			g, _ := f.Seize(now, Token{9})
			all = append(all, r, e, f, g)
		}
		return all
	}
	here := story()
	synctest.Test(t, func(t *testing.T) {
		if there := story(); !reflect.DeepEqual(here, there) {
			t.Error("verbs depend on the clock of the process")
		}
	})
}

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
