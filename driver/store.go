package driver

import (
	"context"
	"time"
)

// A Store keeps records. Each method is one atomic verb on one record. It reads the record, applies the rule of the
// same name in transition.go at the store's own clock, and writes the result. Nothing else changes the record in
// between. Methods are called concurrently, by many guards in many processes.
//
// A nil error acknowledges the verb, also when nothing was changed. An error means only that the system failed (or
// [ErrFull], [ErrUnreadable]); the verb may have been executed all the same. After a lost reply every verb can be
// repeated with the same arguments, and then succeeds as if the first reply had come.
//
// Once Response and Sealed are given to the other side, neither side may change them: a store may keep and share them.
// The rest of a returned record belongs to the caller. A returned record has Now set to the store's clock. Methods
// return soon after ctx ends.
//
// Package storetest proves a store; docs/writing-a-store.md explains how to write one.
type Store interface {
	// Claim starts a run of the operation if [Record.Claim] allows it. Otherwise it writes nothing, locks nothing, and
	// returns the record as it is, with owned false. If a new record can't be stored, the error is ErrFull. A store never
	// makes room by dropping a record that may still be needed.
	Claim(ctx context.Context, id ID, c Claim) (rec Record, owned bool, err error)

	// Extend moves the lease of the running record that by owns, and may mark it begun ([Record.Extend]). If state, fence
	// or token differ, it changes nothing and returns false.
	Extend(ctx context.Context, id ID, by Owner, x Extension) (owned bool, err error)

	// Settle ends the run that by owns ([Record.Settle]), whether or not its lease is over. It returns the record as it
	// stands after the call. If the owner that settled the record repeats the same settle, Settle returns true again and
	// changes nothing.
	Settle(ctx context.Context, id ID, by Owner, o Outcome) (rec Record, owned bool, err error)

	// Load returns the record. If the record does not exist, it returns a record whose State is Absent, and no error.
	Load(ctx context.Context, id ID) (Record, error)

	// Sweep deletes at most limit records for which [Record.Expired] holds, or strips them to tombstones ([Record.Swept]).
	// It returns how many; fewer than limit means that none is left for now. Several sweepers may run at once. Sweep never
	// touches a record that a concurrent Claim has just started. Records that a storage deletes by itself are not counted.
	Sweep(ctx context.Context, limit int) (changed int, err error)
}

// A Seizer is a [Store] in which operators and reconcile can decide about a record that has no living owner. A decision
// takes two steps, so that a late owner can't interfere: first Seize, then Settle or Forget as the new owner.
type Seizer interface {
	// Seize works on a record that is running, unknown, or free with Maybe ([Record.Seize]); a begun record whose lease is
	// over counts as done. In one compare-and-set it raises the fence, replaces the token by t and stores the record as
	// unknown. It returns the record as it stands after the call; its Token is t if it was seized.
	Seize(ctx context.Context, id ID, t Token) (Record, error)

	// Forget deletes the record if it has by's fence and token and is done (or counts as done), free, or seized
	// ([Record.Forgettable]). It returns whether it deleted the record.
	Forget(ctx context.Context, id ID, by Owner) (bool, error)
}

// A Lister is a [Store] whose records operators and completers can list. A listing is not a snapshot: a record that
// changes meanwhile may be seen in either state.
type Lister interface {
	// List calls yield for the records that match q ([Query.Matches]), in no particular order, until yield returns false
	// or q.Limit records were given. With [Query.Range] it can look only at the records that q.Scope and q.Prefix allow;
	// for the other conditions it may look at all of them.
	List(ctx context.Context, q Query, yield func(ID, Record) bool) error
}

// A Scanner is a [Lister] without an index of the records that wait: of those that read unknown, and of those that read
// free and have a sealed request. To find them it goes through all records.
type Scanner interface {
	Lister

	// Scan goes through all records, again and again, at a pace that hardly holds up other verbs, until ctx ends or it
	// fails. What it finds waiting, in any process, List gives at once with Query.Scanned. Of all who call it on one
	// storage one works at a time. If that one ends, or dies, another goes on where it was. A store that finds what
	// waits without that returns an error that wraps [errors.ErrUnsupported].
	Scan(ctx context.Context) error
}

// A Transactor is a [Store] in whose database the handler works too, so that effect and answer commit together.
// Handlers do not call it: the store's package has a method for them, built on [RunTx].
type Transactor interface {
	Store

	// Begin starts a transaction. ctx limits the wait for it; the transaction lasts until its Settle, Commit or Rollback.
	Begin(ctx context.Context) (Tx, error)

	// BeginClaim starts a transaction in which the operation is claimed, for one-commit mode. Others see the claimed
	// record only once it has been settled and committed. If a claim is refused or fails, no transaction and no lock stays
	// open. If another transaction has claimed the operation and has not ended, BeginClaim waits for its end until ctx
	// ends. Or it returns at once a record that reads as running, with the claim's fingerprint and without a token.
	BeginClaim(ctx context.Context, id ID, c Claim) (tx Tx, rec Record, owned bool, err error)
}

// A Tx is a transaction of a [Transactor]. One goroutine uses it at a time. Others see its changes once it has
// committed.
type Tx interface {
	// Mark sets the point to which Undo returns.
	Mark(ctx context.Context) error

	// Undo takes back everything since Mark. The transaction, and its mark, remain.
	Undo(ctx context.Context) error

	// Settle is [Store].Settle within the transaction, and ends the transaction: it commits if by owns the record, else it
	// rolls back. A nil error with owned true means that all is durable. An error that wraps [ErrFull] means that nothing
	// was changed, and that the transaction is still open, for a settle without the answer. An error that wraps
	// [ErrRolledBack] means that certainly nothing of the transaction is durable, or ever will be. After any other error
	// the transaction may have committed all the same.
	Settle(ctx context.Context, id ID, by Owner, o Outcome) (rec Record, owned bool, err error)

	// Commit ends a transaction that settles nothing. Its errors are those of Settle, without ErrFull.
	Commit(ctx context.Context) error

	// Rollback ends the transaction without a trace. After the transaction's end it does nothing.
	Rollback()
}

// A StepStore is a [Store] that keeps the results of steps with the record of their operation. The results last as long
// as the operation, over releases and takeovers: until it is claimed as a new one, forgotten or swept. A tombstone has
// none.
type StepStore interface {
	Store

	// SaveStep saves the result of a step of the running record that by owns, and sets its Steps ([Record.SaveStep]). If
	// state, fence or token differ, it changes nothing and returns false. The first result of a name stays: if the
	// record's owner saves the name again, SaveStep changes nothing and returns true. The name is 1 to 255 bytes of UTF-8
	// without NUL. The result may be empty; the caller may change it once the call has returned. An error that wraps
	// [ErrFull] means that there is no room for the result.
	SaveStep(ctx context.Context, id ID, by Owner, name string, result []byte) (owned bool, err error)

	// Steps returns the saved results of the operation, by name; nothing for an absent record. The results are read-only.
	// If the owner of a run calls it, nothing can be missing: from its claim on nobody else saves anything.
	Steps(ctx context.Context, id ID) (map[string][]byte, error)
}

// A Snapshotter is a [Transactor] whose transactions may see the database as it was at their beginning. Such a
// transaction can't settle a record that was renewed since then.
type Snapshotter interface {
	// HoldsSnapshot reports whether transactions do this. The guard then renews the lease before such a transaction, and
	// not within it. So the transaction has to be shorter than the lease.
	HoldsSnapshot() bool
}

// A Waker is a [Store] that learns what other processes settle. Requests that wait for a run of another process then
// need not poll so often. Polling goes on: if Wake misses a settle, an answer is delayed, and nothing else happens.
type Waker interface {
	// Wake calls settled with each operation that any process has settled, until ctx ends or Wake fails. [Guard.Run] calls
	// it, and after a failure again after a pause, unless the error wraps [errors.ErrUnsupported].
	Wake(ctx context.Context, settled func(ID)) error
}

// An Auditor is a [Store] that keeps what operators and reconcile have decided, and why. Entries are only added, never
// changed; they outlive their records.
type Auditor interface {
	// Audit adds an entry and sets its time, on the store's clock.
	Audit(ctx context.Context, e AuditEntry) error

	// AuditTrail calls yield with the entries about an operation, the newest first; with all entries if id is nil. It ends
	// when yield returns false, or after limit entries if limit is above 0.
	AuditTrail(ctx context.Context, id *ID, limit int, yield func(AuditEntry) bool) error
}

// AuditEntry is one step of a decision about an operation.
type AuditEntry struct {
	At        Time
	ID        ID
	Operation string // as the record had it; sealed if it was sealed there
	Actor     string // who
	Action    string // what: "complete", "release", "forget", "reconcile", "show"
	Reason    string // why
	Result    string // "asked" before the change; after it "done", or why it was refused
}

// A Counter is a [Store] that can count what it holds, at a cost that hardly grows with the number of records.
type Counter interface {
	Count(ctx context.Context) (Counts, error)
}

// Counts is what a store holds. It may be a little out of date. If very many records are stored as running or unknown,
// a store may count only the 100 000 of them that started first.
type Counts struct {
	Records       int64         // all records; an estimate if counting costs much
	Running       int64         // stored as running, the lapsed ones included
	Unknown       int64         // unknown to their own policy: stored so, or running under Hold with a lapsed lease, and not begun
	OldestRunning time.Duration // age of the run that started first; 0 if there is none
	SweepLag      time.Duration // how long the sweep of the record that was due first is overdue; 0 if there is none
	Bytes         int64         // the size of the storage; 0 if not known
}

// Owner names a run. Compare-and-set compares both fields, and the record's state.
type Owner struct {
	Fence uint64
	Token Token
	// Above matches any fence above Fence, instead of exactly that fence. It is for the release-by-token of a guard that
	// gave up on a claim, and is used only with Settle to Free.
	Above bool
}

// Claim is what a guard sends when it wants to run an operation.
type Claim struct {
	Fingerprint Fingerprint
	Token       Token         // chosen by the guard at random, one for each claim
	Lease       time.Duration // how long the run is owned without renewal; zero or negative means DefaultLease
	Retention   time.Duration // how long the outcome is kept, from completion; zero or negative means DefaultRetention
	Tombstone   time.Duration // how long the key is refused after that; zero or negative means no time
	OnLost      LostPolicy
	Operation   string // such as "POST /payments", or sealed; for operators, not part of the identity
	Correlation string // correlation id of the request that started the run, or sealed
	Sealed      []byte // the request, encrypted, for a completer; nil where none is used
}

// Extension is what [Store].Extend changes.
type Extension struct {
	Lease time.Duration // from now; zero or negative means DefaultLease
	Begun bool          // the first byte of a streamed answer is about to leave; false does not change the mark
}

// Outcome ends a run.
type Outcome struct {
	State    State     // Done, Free or Unknown
	Response *Response // with Done: the answer to replay, nil if there is none
	Error    string    // why the run ended without an answer, for operators
	Owed     bool      // with Free and Unknown: somebody who may not ask again was promised the end (Record.Owed)
	// Retention, with Done, is how long the outcome is kept, from now. It replaces Claim.Retention, unless it is zero or
	// negative.
	Retention time.Duration
}

// Defaults that the store contract knows. The guard's other defaults are documented at [Policy] and [Options].
const (
	DefaultLease     = 30 * time.Second
	DefaultRetention = 24 * time.Hour
	// FreeRetention is how long a free record is kept.
	FreeRetention = time.Hour
	// Forever is a retention without an end.
	Forever = time.Duration(1<<63 - 1)
)
