package driver

import (
	"math"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

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

func TestTheFenceOfANewOperationComesFromTheClock(t *testing.T) {
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
func TestAnExtensionIsItsOwners(t *testing.T) {
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
func TestR84_OnlyTheOwnerOfARunSavesAStep(t *testing.T) {
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
func TestASettleEndsARunAsItsOwnerSays(t *testing.T) {
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

func TestASettleRefusesWhatIsNoOutcome(t *testing.T) {
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
func TestCase43_AReleaseByTokenFreesWhatItsClaimStarted(t *testing.T) {
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
func TestR75a_SeizingClosesWhatIsUndecided(t *testing.T) {
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

func TestR87_OnlyWhatIsDecidedMayBeForgotten(t *testing.T) {
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
