package driver

import (
	"math"
	"testing"
	"time"
)

// A moment belongs to what begins with it: a lease is over at its end, a retention at its end.
func TestALeaseEndsAtItsVeryMoment(t *testing.T) {
	t.Parallel()
	end := t0.Add(testLease)
	hold, owner := holding(Hold)
	rerun, _ := holding(Rerun)
	begun := hold
	begun.Begun = true
	done := mustSettle(t, hold, t0, owner, Outcome{State: Done})
	kept := done
	kept.Retention = Forever
	maybe := mustSettle(t, rerun, t0, owner, Outcome{State: Free})
	for _, tt := range []struct {
		record Record
		at     Time
		caller LostPolicy
		want   Reading
		reason string
	}{
		{Record{}, t0, Rerun, ReadsAbsent, "absent"},
		{hold, end - 1, Hold, ReadsRunning, "the last microsecond of the lease"},
		{hold, end, Hold, ReadsUnknown, "the lease's end, under Hold"},
		{hold, end, Rerun, ReadsUnknown, "the record's Hold prevails"},
		{rerun, end, Hold, ReadsUnknown, "the caller's Hold prevails"},
		{rerun, end, Rerun, ReadsFree, "the lease's end, under Rerun in both"},
		{rerun, end.Add(8 * testRetention), Rerun, ReadsFree, "a lapsed run stays claimable until it is swept"},
		{hold, end.Add(8 * testRetention), Rerun, ReadsUnknown, "a lapsed run under Hold waits for its decision without end"},
		{begun, end - 1, Hold, ReadsRunning, "begun, within its lease"},
		{begun, end, Rerun, ReadsDone, "begun and lapsed: done without an answer"},
		{begun, end.Add(testRetention) - 1, Rerun, ReadsDone, "the last microsecond of its retention"},
		{begun, end.Add(testRetention), Rerun, ReadsAbsent, "past its retention, counted from its lease's end"},
		{done, t0.Add(testRetention) - 1, Hold, ReadsDone, "the last microsecond of the retention"},
		{done, t0.Add(testRetention), Hold, ReadsAbsent, "past its retention"},
		{kept, never - 1, Hold, ReadsDone, "kept forever"},
		{maybe, t0, Hold, ReadsUnknown, "an effect may have happened, and the caller wants it at most once"},
		{maybe, t0, Rerun, ReadsFree, "the caller may run it again"},
		{mustSettle(t, hold, t0, owner, Outcome{State: Free}), t0, Hold, ReadsFree, "released under Hold"},
		{mustSettle(t, hold, t0, owner, Outcome{State: Unknown}), t0, Rerun, ReadsUnknown, "stored unknown"},
		{mustSeize(t, rerun, t0, theirs), t0, Rerun, ReadsUnknown, "seized"},
	} {
		tt.record.Now = tt.at
		if got := tt.record.Reads(tt.caller); got != tt.want {
			t.Errorf("%s: reads %v, want %v", tt.reason, got, tt.want)
		}
	}
}

// and case 24: what a sweep may delete, and from when on.
func TestR53_R55_Case24_Expires(t *testing.T) {
	t.Parallel()
	end := t0.Add(testLease)
	hold, owner := holding(Hold)
	rerun, _ := holding(Rerun)
	mark := func(r Record, change func(*Record)) Record { change(&r); return r }
	for _, tt := range []struct {
		record Record
		want   Time
		reason string
	}{
		{mustSettle(t, hold, t0, owner, Outcome{State: Done}), t0.Add(testRetention), "done: a retention after completion"},
		{mustSettle(t, hold, end, owner, Outcome{State: Done}), end.Add(testRetention), "done late: retention counts from completion"},
		{mustSettle(t, hold, t0, owner, Outcome{State: Free}), t0.Add(time.Hour), "free: an hour"},
		{mustSettle(t, rerun, t0, owner, Outcome{State: Free}), t0.Add(time.Hour), "free with maybe: an hour"},
		{
			mark(mustSettle(t, rerun, t0, owner, Outcome{State: Free}), func(r *Record) { r.Steps = true }),
			t0.Add(testRetention), "free with steps: its retention",
		},
		{
			mark(mustSettle(t, rerun, t0, owner, Outcome{State: Free}), func(r *Record) { r.Steps, r.Retention = true, time.Minute }),
			t0.Add(time.Hour), "free with steps, and a shorter retention: an hour, as without",
		},
		{
			mustSettle(t, rerun, t0, owner, Outcome{State: Free, Owed: true}),
			t0.Add(7 * testRetention), "free and owed: a completer may still finish it",
		},
		{
			mark(mustSettle(t, rerun, t0, owner, Outcome{State: Free, Owed: true}), func(r *Record) { r.Steps, r.Retention = true, time.Minute }),
			t0.Add(7 * time.Minute), "owed prevails over steps: those who may ask for it do so by then",
		},
		{mark(rerun, func(r *Record) { r.Steps = true }), end.Add(7 * testRetention), "lapsed with steps: it may still be finished"},
		{mark(rerun, func(r *Record) { r.Owed = true }), end.Add(testRetention), "lapsed and owed, without a request: nobody can finish it"},
		{mark(hold, func(r *Record) { r.Steps = true }), never, "lapsed under Hold with steps: somebody must decide"},
		{mark(rerun, func(r *Record) { r.Begun, r.Steps = true, true }), end.Add(testRetention), "begun with steps: as begun"},
		{
			mark(mustSettle(t, hold, t0, owner, Outcome{State: Done}), func(r *Record) { r.Steps, r.Tombstone = true, time.Hour }),
			t0.Add(testRetention), "a tombstone: first the steps go",
		},
		{mark(hold, func(r *Record) { r.Begun, r.Steps, r.Tombstone = true, true, time.Hour }), end.Add(testRetention), "begun, with both"},
		{rerun, end.Add(testRetention), "lapsed under Rerun: no sooner than its owner must have ended"},
		{mark(rerun, func(r *Record) { r.Sealed = []byte("request") }), end.Add(7 * testRetention), "a completer may still finish it"},
		{
			mark(rerun, func(r *Record) { r.Begun = true; r.Sealed = []byte("request") }), end.Add(testRetention),
			"begun: nobody can finish it, so it counts as done from its lease's end",
		},
		{mark(hold, func(r *Record) { r.Begun = true }), end.Add(testRetention), "begun under Hold: the same"},
		{hold, never, "lapsed under Hold: somebody must decide"},
		{mustSettle(t, rerun, t0, owner, Outcome{State: Unknown}), never, "unknown: somebody must decide"},
		{mustSeize(t, rerun, t0, theirs), never, "seized: somebody is deciding"},
		{Record{}, never, "absent: nothing to delete"},
		{
			mark(mustSettle(t, hold, t0, owner, Outcome{State: Done, Response: &Response{}}), func(r *Record) { r.Tombstone = time.Hour }),
			t0.Add(testRetention), "a tombstone: first the answer goes",
		},
		{
			mark(mustSettle(t, hold, t0, owner, Outcome{State: Done}), func(r *Record) { r.Tombstone = time.Hour }),
			t0.Add(testRetention + time.Hour), "a tombstone without an answer: there is nothing to strip",
		},
		{mark(hold, func(r *Record) { r.Begun, r.Tombstone = true, time.Hour }), end.Add(testRetention + time.Hour), "begun, with a tombstone"},
	} {
		if got := tt.record.Expires(); got != tt.want {
			t.Errorf("%s: expires %v, want %v", tt.reason, got.Time(), tt.want.Time())
		}
		if tt.want == never {
			if tt.record.Expired(never) {
				t.Errorf("%s: expired at the end of time", tt.reason)
			}
			continue
		}
		if tt.record.Expired(tt.want-1) || !tt.record.Expired(tt.want) {
			t.Errorf("%s: expired must turn true at %v", tt.reason, tt.want.Time())
		}
	}
}

// at each moment of its life a done record with a tombstone reads, refuses and is swept as it should.
func TestR54_ATombstoneOutlivesTheAnswer(t *testing.T) {
	t.Parallel()
	claim := Claim{Token: mine, Retention: time.Hour, Tombstone: 2 * time.Hour, Sealed: []byte("request"), Operation: "POST /payments"}
	run := mustClaim(t, Record{}, t0, claim)
	if run.Tombstone != claim.Tombstone {
		t.Fatalf("the run's tombstone is %v, want %v", run.Tombstone, claim.Tombstone)
	}
	done := mustSettle(t, run, t0, run.Owner(), Outcome{State: Done, Response: &Response{Status: 201}})
	bare := done
	bare.Response, bare.Sealed = nil, nil
	stepped := bare
	stepped.Steps = true
	other := Claim{Token: theirs, Fingerprint: Fingerprint{Raw: [16]byte{1}}}
	for _, tt := range []struct {
		record Record
		at     time.Duration
		reads  Reading
		swept  bool
		left   State
	}{
		{done, time.Hour - time.Microsecond, ReadsDone, false, Done},
		{done, time.Hour, ReadsExpired, true, Done},
		{bare, time.Hour, ReadsExpired, false, Done},
		{stepped, time.Hour - time.Microsecond, ReadsDone, false, Done},
		{stepped, time.Hour, ReadsExpired, true, Done},
		{stepped, 3 * time.Hour, ReadsAbsent, true, Absent},
		{bare, 3*time.Hour - time.Microsecond, ReadsExpired, false, Done},
		{bare, 3 * time.Hour, ReadsAbsent, true, Absent},
		{done, 3 * time.Hour, ReadsAbsent, true, Absent},
	} {
		now := t0.Add(tt.at)
		r := tt.record
		r.Now = now
		if got := r.Reads(Rerun); got != tt.reads {
			t.Errorf("after %v it reads as %v, want %v", tt.at, got, tt.reads)
		}
		for _, c := range []Claim{claim, other} {
			c.Token = theirs
			if _, owned := r.Claim(now, c); owned != (tt.reads == ReadsAbsent) {
				t.Errorf("after %v a claim gets %t", tt.at, owned)
			}
		}
		rec, swept := r.Swept(now)
		switch {
		case swept != tt.swept || rec.State != tt.left:
			t.Errorf("after %v sweeping it changes %t and leaves %v, want %t, %v", tt.at, swept, rec.State, tt.swept, tt.left)
		case swept && rec.State == Done && (rec.Response != nil || rec.Sealed != nil || rec.Steps || rec.Operation == "" || rec.Fence != r.Fence):
			t.Errorf("after %v the tombstone is %+v", tt.at, rec)
		}
	}
	forever := claim
	forever.Tombstone, forever.Sealed = Forever, nil
	done = mustClaim(t, Record{}, t0, forever)
	done = mustSettle(t, done, t0, done.Owner(), Outcome{State: Done})
	if done.Now = never - 1; done.Reads(Hold) != ReadsExpired || done.Expires() != never {
		t.Errorf("a tombstone for ever reads as %v, and expires %v", done.Reads(Hold), done.Expires().Time())
	}
	begun, _ := mustClaim(t, Record{}, t0, claim).Extend(t0, Owner{Fence: run.Fence, Token: mine}, Extension{Begun: true})
	begun.Now = begun.LeaseEnd.Add(time.Hour)
	if begun.Reads(Rerun) != ReadsExpired {
		t.Errorf("a begun run reads as %v a retention after its lease", begun.Reads(Rerun))
	}
	if _, seized := begun.Seize(begun.Now, theirs); seized {
		t.Error("a begun run whose retention is over was seized")
	}
}

// retention goes up to forever, and a sum of times never wraps around into the past.
func TestR53_ForeverIsNotOverSoonerThanSaid(t *testing.T) {
	t.Parallel()
	claim := Claim{Token: mine, OnLost: Rerun, Retention: Forever, Sealed: []byte("request")}
	run := mustClaim(t, Record{}, t0, claim)
	begun, _ := run.Extend(t0, run.Owner(), Extension{Begun: true})
	stepped, _ := run.SaveStep(t0, run.Owner())
	for name, r := range map[string]Record{
		"lapsed, sealed":   run,
		"free with steps":  mustSettle(t, stepped, t0, run.Owner(), Outcome{State: Free}),
		"free and owed":    mustSettle(t, run, t0, run.Owner(), Outcome{State: Free, Owed: true}),
		"begun and lapsed": begun,
		"done":             mustSettle(t, run, t0, run.Owner(), Outcome{State: Done}),
	} {
		for _, at := range []Time{t0.Add(time.Hour), t0.Add(Forever - time.Hour), never - 1, never} {
			if r.Expired(at) {
				t.Errorf("%s: kept forever, but expired in %v", name, at.Time().Year())
			}
		}
	}
	if got := times(7, Forever); got != Forever {
		t.Errorf("seven times forever is %v", got)
	}
	if got := times(7, Forever/7+1); got != Forever {
		t.Errorf("seven times more than a seventh of forever is %v", got)
	}
	if got := times(7, time.Hour); got != 7*time.Hour {
		t.Errorf("seven hours are %v", got)
	}
}

func TestTimesAreMicrosecondsThatNeverOverflow(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 4, 5, 6, 7, 8, 9_999, time.FixedZone("", 3600))
	if got := TimeOf(at).Time(); !got.Equal(at.Truncate(time.Microsecond)) || got.Location() != time.UTC {
		t.Errorf("there and back: %v, want %v in UTC", got, at)
	}
	if got := Time(0).Time(); !got.IsZero() {
		t.Errorf("not set is %v", got)
	}
	for _, tt := range []struct {
		t    Time
		d    time.Duration
		want Time
	}{
		{5, time.Millisecond, 1005},
		{5, -2 * time.Microsecond, 3},
		{5, time.Microsecond - 1, 5},
		{math.MaxInt64 - 1, time.Hour, math.MaxInt64},
		{math.MaxInt64, Forever, math.MaxInt64},
		{5, Forever, math.MaxInt64},
		{5, Forever - 1, 5 + math.MaxInt64/1000},
	} {
		if got := tt.t.Add(tt.d); got != tt.want {
			t.Errorf("%d + %v = %d, want %d", tt.t, tt.d, got, tt.want)
		}
	}
	for _, tt := range []struct {
		t, u Time
		want time.Duration
	}{
		{7, 5, 2 * time.Microsecond},
		{5, 7, -2 * time.Microsecond},
		{math.MaxInt64, 0, math.MaxInt64},
		{0, math.MaxInt64, math.MinInt64},
	} {
		if got := tt.t.Sub(tt.u); got != tt.want {
			t.Errorf("%d - %d = %v, want %v", tt.t, tt.u, got, tt.want)
		}
	}
}

func TestATokenIsRandomAndPrintsAsHex(t *testing.T) {
	t.Parallel()
	if a, b := NewToken(), NewToken(); a == b || a == (Token{}) {
		t.Errorf("two tokens: %v, %v", a, b)
	}
	if got := (Token{0: 0xab, 15: 0x01}).String(); got != "ab000000000000000000000000000001" {
		t.Errorf("token prints as %s", got)
	}
}

func TestStatesAndReadingsHaveNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		value interface{ String() string }
		want  string
	}{
		{Absent, "absent"},
		{Running, "running"},
		{Done, "done"},
		{Free, "free"},
		{Unknown, "unknown"},
		{State(9), "state(9)"},
		{Hold, "hold"},
		{Rerun, "rerun"},
		{LostPolicy(9), "lost-policy(9)"},
		{ReadsAbsent, "absent"},
		{ReadsRunning, "running"},
		{ReadsDone, "done"},
		{ReadsFree, "free"},
		{ReadsUnknown, "unknown"},
		{Reading(9), "reading(9)"},
	} {
		if got := tt.value.String(); got != tt.want {
			t.Errorf("%T prints as %q, want %q", tt.value, got, tt.want)
		}
	}
}

// The numbers of states and policies are stored: a new one goes to the end.
func TestR93_StoredNumbersNeverChange(t *testing.T) {
	t.Parallel()
	if got := [...]State{Absent, Running, Done, Free, Unknown}; got != [...]State{0, 1, 2, 3, 4} {
		t.Errorf("states are numbered %d", got)
	}
	if got := [...]LostPolicy{Hold, Rerun}; got != [...]LostPolicy{0, 1} {
		t.Errorf("policies are numbered %d", got)
	}
}

// A begun record counts as done from its lease's end: an operator may forget it, whatever its retention.
func TestABegunRecordIsForgettableOnceItsLeaseIsOver(t *testing.T) {
	t.Parallel()
	now := TimeOf(time.Unix(1_700_000_000, 0))
	token := NewToken()
	rec, _ := Record{}.Claim(now, Claim{Token: token, Retention: Forever})
	rec, _ = rec.Extend(now, rec.Owner(), Extension{Begun: true})
	if rec.Forgettable(now, rec.Owner()) {
		t.Error("a begun run whose lease is valid is forgettable")
	}
	if !rec.Forgettable(rec.LeaseEnd, rec.Owner()) {
		t.Error("a begun record whose lease is over is not forgettable")
	}
	if other := (Owner{Fence: rec.Fence, Token: NewToken()}); rec.Forgettable(rec.LeaseEnd, other) {
		t.Error("somebody else may forget it")
	}
}
