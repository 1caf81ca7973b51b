package driver

import (
	"context"
	"time"
)

// A Store keeps records. Each method is one atomic verb on one record: it reads the record, applies the rule of the
// same name in transition.go at the store's own clock, and writes the result, with nothing in between. Methods are
// called concurrently, by many guards in many processes.
//
// A nil error acknowledges, also when nothing was changed. An error means only that the system failed (or [ErrFull],
// [ErrUnreadable]); the verb may then have been executed all the same. Every verb can be repeated with the same
// arguments after a lost reply, and succeeds as its own.
//
// Response and Sealed are read-only on both sides, once given: a store may keep and share them. Otherwise records that
// a store returns are the caller's. A returned record has Now set to the store's clock. Methods return soon after ctx
// ends.
//
// Package storetest proves a store; docs/writing-a-store.md explains how to write one.
type Store interface {
	// Claim starts a run of the operation where [Record.Claim] allows that. Otherwise it writes nothing, locks nothing,
	// and returns the record as it stands with owned false. An absent record that can't be stored is ErrFull; a store
	// never makes room by dropping a record that may still be needed.
	Claim(ctx context.Context, id ID, c Claim) (rec Record, owned bool, err error)

	// Extend moves the lease of the running record that by owns, and may mark it begun ([Record.Extend]). On another
	// state, fence or token it changes nothing and returns false.
	Extend(ctx context.Context, id ID, by Owner, x Extension) (owned bool, err error)

	// Settle ends the run that by owns ([Record.Settle]), whether or not its lease is over. It returns the record as it
	// stands after the call. Repeated by the owner who wrote it, it returns true again and changes nothing.
	Settle(ctx context.Context, id ID, by Owner, o Outcome) (rec Record, owned bool, err error)

	// Load returns the record. A record that does not exist is one whose State is Absent, not an error.
	Load(ctx context.Context, id ID) (Record, error)

	// Sweep deletes, or strips to tombstones, at most limit records for which [Record.Expired] holds ([Record.Swept]), and
	// returns how many; fewer than limit means that none is left for now. Several sweepers may run at once. It never
	// touches a record that a concurrent Claim has just started. A storage that deletes by itself does not count that.
	Sweep(ctx context.Context, limit int) (changed int, err error)
}

// A Seizer is a [Store] in which operators and reconcile can decide about a record that has no living owner. The
// decision takes two steps, so that a late owner can't interfere: Seize, then Settle or Forget as the new owner.
type Seizer interface {
	// Seize raises the fence, replaces the token by t and stores the record as unknown, in one compare-and-set, if it is
	// running, unknown, or free with Maybe; a begun record whose lease is over counts as done ([Record.Seize]). It returns
	// the record as it stands after the call; its Token is t if it was seized.
	Seize(ctx context.Context, id ID, t Token) (Record, error)

	// Forget deletes the record if it is done (or counts as done), free, or seized, and has by's fence and token
	// ([Record.Forgettable]). It returns whether it did.
	Forget(ctx context.Context, id ID, by Owner) (bool, error)
}

// A Lister is a [Store] whose records can be looked through, by operators and completers. Listing is not a snapshot:
// records that change meanwhile may be seen in either state.
type Lister interface {
	// List calls yield for the records that match q ([Query.Matches]), in no particular order, until yield returns false
	// or q.Limit records were given. It need not go through more records than q.Scope and q.Prefix allow ([Query.Range]);
	// for the other conditions it may go through all.
	List(ctx context.Context, q Query, yield func(ID, Record) bool) error
}

// A Transactor is a [Store] in whose database the handler works too, so that effect and answer commit together.
// Handlers do not call it: the store's package has a method for them, built on [RunTx].
type Transactor interface {
	Store

	// Begin starts a transaction. ctx bounds the wait for it; the transaction lasts until its Settle, Commit or Rollback.
	Begin(ctx context.Context) (Tx, error)

	// BeginClaim starts a transaction in which the operation is claimed, for one-commit mode: what it claims shows to
	// others once it has committed, and settled. A claim that is refused leaves no transaction open, and no lock; nor
	// does one that fails. Where another transaction has claimed the operation, and has not ended, it waits for that
	// until ctx ends, or returns at once a record that reads as running, with the claim's fingerprint and without a token.
	BeginClaim(ctx context.Context, id ID, c Claim) (tx Tx, rec Record, owned bool, err error)
}

// A Tx is a transaction of a [Transactor]. One goroutine uses it at a time. What it did shows to others once it has
// committed.
type Tx interface {
	// Mark sets the point to which Undo goes back.
	Mark(ctx context.Context) error

	// Undo takes back everything since Mark. The transaction, and its mark, remain.
	Undo(ctx context.Context) error

	// Settle is [Store].Settle within the transaction, and its end: it commits if by owns the record, and else rolls
	// back. A nil error with owned true means that all is durable. An error that wraps [ErrFull] means that nothing was
	// changed, and that the transaction is still open, for a settle without the answer. One that wraps [ErrRolledBack]
	// means that it is certain that nothing of the transaction is durable, or ever will be. After any other error it may
	// have committed all the same.
	Settle(ctx context.Context, id ID, by Owner, o Outcome) (rec Record, owned bool, err error)

	// Commit ends a transaction that settles nothing. Its errors are those of Settle, without ErrFull.
	Commit(ctx context.Context) error

	// Rollback ends the transaction without a trace. After its end it does nothing.
	Rollback()
}

// A StepStore is a [Store] that keeps the results of steps with the record of their operation. They last as long as the
// operation: over releases and takeovers, until it is claimed as a new one, forgotten or swept; a tombstone has none.
type StepStore interface {
	Store

	// SaveStep saves the result of a step of the running record that by owns, and sets its Steps ([Record.SaveStep]). On
	// another state, fence or token it changes nothing and returns false. The first result of a name stays: saved again by
	// the record's owner it changes nothing and returns true. The name is 1 to 255 bytes of UTF-8 without NUL; the result
	// may be empty, and is the caller's again once the call has returned. An error that wraps [ErrFull] means that there
	// is no room for the result.
	SaveStep(ctx context.Context, id ID, by Owner, name string, result []byte) (owned bool, err error)

	// Steps returns what is saved of the operation, by name; nothing for an absent record. The results are read-only. What
	// another owner saves later can't be missing for the owner of a run: from its claim on nobody else saves anything.
	Steps(ctx context.Context, id ID) (map[string][]byte, error)
}

// A Snapshotter is a [Transactor] whose transactions may see the database as it was at their beginning. A record that
// was renewed since can't be settled in one.
type Snapshotter interface {
	// HoldsSnapshot reports whether they do. The guard then renews the lease before such a transaction, and not within it:
	// it has to be shorter than the lease.
	HoldsSnapshot() bool
}

// A Waker is a [Store] that learns what other processes settle, so that requests that wait for one of their runs need
// not poll so often. Polling goes on: what Wake misses delays an answer, no more.
type Waker interface {
	// Wake calls settled with each operation that any process has settled, until ctx ends or it fails. [Guard.Run] calls
	// it, again after a pause, unless the error wraps [errors.ErrUnsupported].
	Wake(ctx context.Context, settled func(ID)) error
}

// An Auditor is a [Store] that keeps what operators and reconcile have decided, and why. Entries are only ever added;
// they outlive their records.
type Auditor interface {
	// Audit adds an entry and sets its time, on the store's clock.
	Audit(ctx context.Context, e AuditEntry) error

	// AuditTrail calls yield with the entries about an operation, or all if id is nil, the newest first, until yield
	// returns false or limit (if above 0) were given.
	AuditTrail(ctx context.Context, id *ID, limit int, yield func(AuditEntry) bool) error
}

// AuditEntry is one step of a decision about an operation.
type AuditEntry struct {
	At        Time
	ID        ID
	Operation string // as the record had it, sealed where that is
	Actor     string // who
	Action    string // what: "complete", "release", "forget", "reconcile", "show"
	Reason    string // why
	Result    string // "asked" before the change, then what came of it: "done", or why it was refused
}

// A Counter is a [Store] that can say what it holds, at a cost that does not grow with it by much.
type Counter interface {
	Count(ctx context.Context) (Counts, error)
}

// Counts is what a store holds. It may be a little behind. Where very many records are stored as running or unknown, a
// store may leave out all but the 100 000 of them that started first.
type Counts struct {
	Records       int64         // all of them; an estimate where counting is dear
	Running       int64         // stored as running, the lapsed ones included
	Unknown       int64         // read unknown to their own policy: stored so, or running under Hold with a lease that ran out, and not begun
	OldestRunning time.Duration // age of the run that started first; 0 if there is none
	SweepLag      time.Duration // how long the record that should have been swept first is overdue; 0 if there is none
	Bytes         int64         // what the storage takes; 0 if not known
}

// Owner names a run: compare-and-set is on both, and on the record's state.
type Owner struct {
	Fence uint64
	Token Token
	// Above asks for any fence above Fence, instead of that fence. It is the release-by-token of a guard that gave up on
	// a claim, and goes with Settle to Free only.
	Above bool
}

// Claim is what a guard asks for when it wants to run an operation.
type Claim struct {
	Fingerprint Fingerprint
	Token       Token         // chosen by the guard at random, one for each claim
	Lease       time.Duration // how long the run is owned without renewal; zero or negative means DefaultLease
	Retention   time.Duration // how long the outcome is kept, from completion; zero or negative means DefaultRetention
	Tombstone   time.Duration // how long the key is refused after that; zero or negative means not at all
	OnLost      LostPolicy
	Operation   string // such as "POST /payments", or sealed; for operators, not part of the identity
	Correlation string // correlation id of the request that started the run, or sealed
	Sealed      []byte // the request, encrypted, for a completer; nil where none is used
}

// Extension is what [Store].Extend changes.
type Extension struct {
	Lease time.Duration // from now; zero or negative means DefaultLease
	Begun bool          // the first byte of a streamed answer is about to leave; false leaves the mark as it is
}

// Outcome ends a run.
type Outcome struct {
	State    State     // Done, Free or Unknown
	Response *Response // with Done: the answer to replay, nil if there is none
	Error    string    // why the run ended without an answer, for operators
	Owed     bool      // with Free and Unknown: the end is owed to somebody who may not ask again (Record.Owed)
	// Retention, with Done, is how long the outcome is kept, from now, instead of Claim.Retention. Zero or negative leaves
	// that.
	Retention time.Duration
}

// Defaults that the store contract knows. The guard's other defaults are documented at [Policy] and [Options].
const (
	DefaultLease     = 30 * time.Second
	DefaultRetention = 24 * time.Hour
	// FreeRetention is how long a free record is kept.
	FreeRetention = time.Hour
	// Forever is a retention that never ends.
	Forever = time.Duration(1<<63 - 1)
)
