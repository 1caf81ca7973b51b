// Package tieredstore puts fast layers in front of a durable store: the durable store decides, the layers answer
// repeats of what has ended. A layer in the process, a [Cache] that several processes share, or both.
//
// The layers hold copies of records that are done, and nothing else. Claim and Load look there first. A copy within its
// retention refuses the claim by the same rule as the record itself, its fingerprint included; everything else, and
// every other verb, is the durable store's. A layer that is down, slow, or holds nonsense makes answers slower, never
// wrong.
//
// # When copies are made
//
// A copy is made by the first repeat that the durable store has answered, not when a run is settled: the ticket without
// which a cache takes no copy must be older than the read that it goes with, and a reader that has just missed the
// cache has one. So the first repeat of an operation costs what it costs without layers, the others a read of a layer,
// and runs that are never repeated fill nothing.
//
// # When copies end
//
//   - A copy is never served at or past its record's retention. That is told from the durable store's clock, as its last
//     reply showed it, moved on by this process's; a process that has not heard from the durable store for an hour asks it.
//   - Copies in a process end after [Memory].Age, 5 seconds at most.
//   - Forget deletes the record in the durable store, then the copies in the cache and in its own process; copies in other
//     processes end within Memory.Age. A reader that was under way brings none back: the cache refuses it for its ticket.
//     While the cache can't be reached Forget returns [ErrCopyLeft].
//   - Whoever changes or deletes done records by other means, such as SQL, calls [Dropper].Drop afterwards. A storage that
//     was restored from a backup needs an empty cache.
//
// All processes on one storage, those of operators included, need the same cache, and two storages never share one:
// give each a key prefix of its own.
package tieredstore
