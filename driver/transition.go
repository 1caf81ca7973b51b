package driver

import (
	"cmp"
	"time"
)

// The state machine, as pure functions of a record, the store's clock and a request. A store that reads, applies and
// writes under one lock can use them as they are. A store that uses scripts or SQL repeats them there, and storetest
// compares. Each clause is needed: without it the invariant breaks, and docs/model has the traces.

// Claim starts a run if the record allows it. It returns the record as it must be stored, and true; or the record
// unchanged, and false. In an absent record, Fence may hold the highest fence that the store remembers for it.
func (r Record) Claim(now Time, c Claim) (Record, bool) {
	c.Lease = cmp.Or(max(c.Lease, 0), DefaultLease)
	c.Retention = cmp.Or(max(c.Retention, 0), DefaultRetention)
	c.Tombstone = max(c.Tombstone, 0)
	r.Now = now
	switch {
	case r.State == Absent:
		// A fence from the clock grows even after forget, sweep and failover.
		return r.fresh(now, c, max(uint64(now)/1000, r.Fence+1)), true
	case r.over(now), r.unused() && r.Token != c.Token && !r.Fingerprint.Equal(c.Fingerprint):
		return r.fresh(now, c, r.Fence+1), true
	case r.past(now):
		return r, false // only a tombstone is left, which says nothing else
	case !r.Fingerprint.Equal(c.Fingerprint):
		return r, false
	case r.Token == c.Token:
		if r.State != Running {
			return r, false // a token that has settled can't be used again
		}
		r.LeaseEnd = now.Add(c.Lease) // the same claim again, whose reply was lost
		return r, true
	case r.Reads(c.OnLost) != ReadsFree:
		return r, false
	}
	if r.State == Running {
		r.Maybe = true // taken over: the lost run may have had its effect
		r.lose()
	}
	return r.started(now, c, r.Fence+1), true
}

// unused reports whether the record was released and nothing of it remains. Its client was told that nothing happened,
// so its key may stand for another request: a corrected one.
func (r *Record) unused() bool { return r.State == Free && !r.Maybe && !r.Steps && !r.Owed }

// fresh makes the record of a new operation. It takes over nothing but the order of fences.
func (r Record) fresh(now Time, c Claim, fence uint64) Record {
	n := Record{Fingerprint: c.Fingerprint, Created: now, Operation: c.Operation, Sealed: c.Sealed, Now: now}
	return n.started(now, c, fence)
}

// started makes the record of a new run.
func (r Record) started(now Time, c Claim, fence uint64) Record {
	r.State, r.OnLost, r.Seized, r.Wrote = Running, c.OnLost, false, Absent
	r.Fence, r.Token = fence, c.Token
	r.Attempt++
	r.Started, r.LeaseEnd, r.Settled = now, now.Add(c.Lease), 0
	r.Retention, r.Tombstone = c.Retention, c.Tombstone
	r.Correlation = c.Correlation
	return r
}

// lose notes that a run is over whose owner has not settled, so that its client has no answer. If the request is
// stored, the operation can be finished from it, and this is owed from now on.
func (r *Record) lose() { r.Owed = r.Owed || len(r.Sealed) > 0 }

// Extend moves the lease of a running record, and sets Begun if asked to. For any other owner or state it reports false
// and changes nothing: a late heartbeat must not reopen a settled record.
func (r Record) Extend(now Time, by Owner, x Extension) (Record, bool) {
	r.Now = now
	if r.State != Running || !r.ownedBy(by) || by.Above {
		return r, false
	}
	r.LeaseEnd = now.Add(cmp.Or(max(x.Lease, 0), DefaultLease))
	r.Begun = r.Begun || x.Begun
	return r, true
}

// Settle ends a run, or decides about a record that by has seized. It does not look at the lease: a late owner that
// nobody has replaced may still settle. If the owner repeats the settle that it has written, Settle reports true and
// changes nothing; anything else reports false.
func (r Record) Settle(now Time, by Owner, o Outcome) (Record, bool) {
	r.Now = now
	switch {
	case !r.ownedBy(by), o.State != Done && o.State != Free && o.State != Unknown, by.Above && o.State != Free:
		return r, false
	case r.State == Running, r.State == Unknown && r.Seized && !by.Above:
	default:
		return r, r.Wrote == o.State
	}
	r.Wrote = o.State
	r.Settled = now
	r.Error = o.Error
	seized := r.Seized
	r.Seized = false
	switch {
	case o.State == Done:
		if o.Retention > 0 {
			r.Retention = o.Retention
		}
		r.finish(o.Response)
	case r.Begun:
		// Bytes of an answer may have been sent: the operation can neither be run again nor be called unknown.
		r.finish(nil)
	case o.State == Unknown:
		r.State = Unknown
		r.Owed = r.Owed || o.Owed
	default:
		r.State = Free
		r.Owed = r.Owed || o.Owed && !by.Above
		switch {
		case seized:
			r.Maybe = false // an operator or reconcile found that nothing happened
		case by.Above:
			r.Attempt-- // never started
		case r.OnLost == Rerun:
			r.Maybe = true
		}
	}
	return r, true
}

// finish makes the record done. Nothing is left to do, so nobody needs the request any more.
func (r *Record) finish(answer *Response) {
	r.State, r.Response, r.Sealed, r.Maybe, r.Owed = Done, answer, nil, false, false
}

// SaveStep notes that the result of a step is saved. For any other owner or state it reports false and changes nothing.
func (r Record) SaveStep(now Time, by Owner) (Record, bool) {
	r.Now = now
	if r.State != Running || !r.ownedBy(by) || by.Above {
		return r, false
	}
	r.Steps = true
	return r, true
}

// Seize raises the fence of a record, replaces its token, and makes it unknown. It does so if the record is running,
// unknown, or free with Maybe; a begun record whose lease is over counts as done. For any other record it reports false
// and changes nothing. Repeated with the same token it reports true.
func (r Record) Seize(now Time, t Token) (Record, bool) {
	r.Now = now
	switch {
	case r.State == Unknown && r.Seized && r.Token == t:
		return r, true
	case r.State == Running && (!r.Begun || !r.lapsed(now)):
	case r.State == Unknown, r.State == Free && r.Maybe:
	default:
		return r, false
	}
	if r.State == Running {
		r.lose()
	}
	r.State, r.Seized, r.Wrote = Unknown, true, Absent
	r.Fence++
	r.Token = t
	r.Settled = now
	return r, true
}

// Forgettable reports whether by may delete the record. It may if the record is done, or begun with its lease over, or
// free, or seized by by.
func (r *Record) Forgettable(now Time, by Owner) bool {
	if !r.ownedBy(by) || by.Above {
		return false
	}
	switch r.State {
	case Done, Free:
		return true
	case Unknown:
		return r.Seized
	case Running:
		return r.Begun && r.lapsed(now)
	}
	return false
}

// Swept returns what Sweep makes of an expired record, and true. That is a tombstone, which is the record without the
// data for replays, or an absent record. Any other record is returned unchanged, with false.
func (r Record) Swept(now Time) (Record, bool) {
	r.Now = now
	switch {
	case !r.Expired(now):
		return r, false
	case r.past(now) && !r.over(now):
		r.Response, r.Sealed, r.Steps = nil, nil, false
		return r, true
	}
	return Record{Now: now}, true
}

// Expired reports whether Sweep has to process the record: nobody owns it and nobody has to decide about it.
func (r *Record) Expired(now Time) bool {
	at := r.Expires()
	return at != never && now >= at
}

// Expires returns the time from which Sweep may delete the record, or its data for replays ([Record.Swept]), if nothing
// changes it before. A record that waits for a decision never expires.
func (r *Record) Expires() Time {
	switch r.State {
	case Done:
		return r.endedExpires()
	case Free:
		switch {
		case r.Owed:
			return r.Settled.Add(times(7, r.Retention))
		case r.Steps:
			return r.Settled.Add(max(FreeRetention, r.Retention))
		}
		return r.Settled.Add(FreeRetention)
	case Running:
		switch {
		case r.Begun:
			return r.endedExpires()
		case r.OnLost == Hold:
			return never
		case len(r.Sealed) > 0, r.Steps:
			return r.LeaseEnd.Add(times(7, r.Retention)) // it may still be finished
		}
		return r.LeaseEnd.Add(r.Retention)
	}
	return never
}

// endedExpires is Expires for a record that has ended or begun.
func (r *Record) endedExpires() Time {
	if r.Response == nil && len(r.Sealed) == 0 && !r.Steps {
		return r.Kept().Add(r.Tombstone) // there is nothing to strip
	}
	return r.Kept()
}

const never = Time(1<<63 - 1)

func (r *Record) ownedBy(by Owner) bool {
	if r.State == Absent || r.Token != by.Token {
		return false
	}
	if by.Above {
		return r.Fence > by.Fence
	}
	return r.Fence == by.Fence
}

// times multiplies a retention; more than Forever is Forever.
func times(n int64, d time.Duration) time.Duration {
	if d > Forever/time.Duration(n) {
		return Forever
	}
	return d * time.Duration(n)
}
