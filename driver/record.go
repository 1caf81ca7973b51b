package driver

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	"net/http"
	"time"
)

// State is the state of a record as it is stored. What it means to a reader is a [Reading].
type State uint8

// The states of a record. The numbers are part of the record's layout.
const (
	Absent  State = iota // there is no record
	Running              // a run owns it, or its lease has run out and nobody has noticed
	Done                 // ended, with an answer to replay or without one
	Free                 // released: the next claim runs
	Unknown              // may have taken effect; only an operator or reconcile moves it
)

var stateNames = [...]string{"absent", "running", "done", "free", "unknown"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// LostPolicy says what becomes of an operation whose run was lost: it has no answer, but may have had an effect.
type LostPolicy uint8

const (
	// Hold never runs it again: at most once. Repeats are told that the outcome is unknown, until an operator or
	// reconcile decides.
	Hold LostPolicy = iota
	// Rerun runs it again. The handler must be safe to run again: it is transactional, or resumable, or its downstream
	// deduplicates by a derived key.
	Rerun
)

func (p LostPolicy) String() string {
	switch p {
	case Hold:
		return "hold"
	case Rerun:
		return "rerun"
	}
	return fmt.Sprintf("lost-policy(%d)", uint8(p))
}

// Token is 128 random bits that the owner of a run chooses for its claim.
type Token [16]byte

// NewToken returns a fresh random token.
func NewToken() (t Token) {
	rand.Read(t[:])
	return t
}

func (t Token) String() string { return hex.EncodeToString(t[:]) }

// Time is an instant on the store's clock, in microseconds since the Unix epoch; zero means not set. It has its own
// type so that it is never compared with a process's clock by mistake.
type Time int64

// TimeOf returns t as a Time.
func TimeOf(t time.Time) Time { return Time(t.UnixMicro()) }

// Time returns t as a time.Time in UTC; the zero Time gives the zero time.Time.
func (t Time) Time() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(t)).UTC()
}

// Add returns t+d. If d is Forever, or the sum is beyond the largest Time, it returns the largest Time, which never
// comes.
func (t Time) Add(d time.Duration) Time {
	us := Time(d / time.Microsecond)
	if d == Forever || us > 0 && t > math.MaxInt64-us {
		return math.MaxInt64
	}
	return t + us
}

// Sub returns t-u.
func (t Time) Sub(u Time) time.Duration {
	us := int64(t - u)
	switch {
	case us > math.MaxInt64/int64(time.Microsecond):
		return math.MaxInt64
	case us < math.MinInt64/int64(time.Microsecond):
		return math.MinInt64
	}
	return time.Duration(us) * time.Microsecond
}

// A Record is what a store keeps of one operation.
type Record struct {
	State  State
	OnLost LostPolicy // policy of the present run's owner
	Begun  bool       // the first byte of a streamed answer may have left: never run again
	Maybe  bool       // an earlier run under Rerun may have had its effect
	Seized bool       // Seize has written Unknown, and its owner may settle
	Steps  bool       // results of steps are saved with the record
	Owed   bool       // a completer must finish it: its client has a promise or lost an answer, and may not ask again
	Wrote  State      // the outcome with which (Fence, Token) settled; Absent if it has not settled

	Fence uint64 // grows with each run of the identity
	Token Token  // the owner's

	Fingerprint Fingerprint
	Attempt     uint32 // runs started, without those that were released by token

	Created   Time          // the operation's first claim
	Started   Time          // the present run's claim
	LeaseEnd  Time          // end of the present run's lease
	Settled   Time          // when Done, Free or Unknown was written
	Retention time.Duration // from Settled; never zero: a zero Claim.Retention means DefaultRetention
	Tombstone time.Duration // from the end of Retention; 0 for none

	Operation   string
	Correlation string
	Error       string    // why the last run ended without an answer
	Response    *Response // the answer to replay; nil for done without an answer. Read-only
	Sealed      []byte    // the request, encrypted, for a completer; nil if it is not stored. Read-only

	// Now is the store's clock when the store returned the record. It is not stored.
	Now Time

	unknown string // fields of a newer layout, kept so that an older version loses nothing
}

// Response is an answer as it is stored. It is never changed once it is made, and may be shared.
type Response struct {
	Status  int         // HTTP status; 0 for a result of Do
	Header  http.Header // without the headers that must not be replayed
	Trailer http.Header
	Body    []byte
	Codec   string // name of the codec in which Body is stored; "" if it is stored as it was sent
}

// Owner returns who owns the record.
func (r *Record) Owner() Owner { return Owner{Fence: r.Fence, Token: r.Token} }

// Reading is what a record means to a reader at a given moment. It is derived, not stored. For example, under Hold a
// running record whose lease is over is unknown to every reader, while its own late owner may still settle it.
type Reading uint8

// What a record can mean.
const (
	ReadsAbsent  Reading = iota // no operation: absent, or done past its retention and its tombstone
	ReadsRunning                // a run owns it
	ReadsDone                   // ended; without an answer if Response is nil
	ReadsFree                   // the next claim runs: released, or lapsed under Rerun
	ReadsUnknown                // may have taken effect; refused until an operator or reconcile decides
	ReadsExpired                // ended, and its answer is gone; the key stays refused until its tombstone ends
)

var readingNames = [...]string{"absent", "running", "done", "free", "unknown", "expired"}

func (r Reading) String() string {
	if int(r) < len(readingNames) {
		return readingNames[r]
	}
	return fmt.Sprintf("reading(%d)", uint8(r))
}

// Reads returns what the record means at r.Now to a caller with the given policy. If either the record or the caller
// says Hold, Hold counts. A reader that will not run the operation passes the record's own OnLost.
func (r *Record) Reads(caller LostPolicy) Reading {
	hold := r.OnLost == Hold || caller == Hold
	switch r.State {
	case Running:
		switch {
		case !r.lapsed(r.Now):
			return ReadsRunning
		case r.Begun:
			return r.readsEnded()
		case hold:
			return ReadsUnknown
		}
		return ReadsFree
	case Done:
		return r.readsEnded()
	case Free:
		if r.Maybe && caller == Hold {
			return ReadsUnknown
		}
		return ReadsFree
	case Unknown:
		return ReadsUnknown
	}
	return ReadsAbsent
}

// lapsed reports whether the lease of a running record is over.
func (r *Record) lapsed(now Time) bool { return now >= r.LeaseEnd }

// readsEnded is Reads for a record that has ended, or that began and lapsed.
func (r *Record) readsEnded() Reading {
	switch {
	case r.over(r.Now):
		return ReadsAbsent
	case r.past(r.Now):
		return ReadsExpired
	}
	return ReadsDone
}

// Kept returns the time until which the answer of a record is kept that has ended or begun.
func (r *Record) Kept() Time {
	switch {
	case r.State == Done:
		return r.Settled.Add(r.Retention)
	case r.State == Running && r.Begun:
		return r.LeaseEnd.Add(r.Retention)
	}
	return never
}

// past reports whether the retention is over of a record that has ended, or that began and lapsed.
func (r *Record) past(now Time) bool { return r.Kept() != never && now >= r.Kept() }

// over reports whether the record's tombstone is over too.
func (r *Record) over(now Time) bool {
	end := r.Kept().Add(r.Tombstone)
	return end != never && now >= end
}
