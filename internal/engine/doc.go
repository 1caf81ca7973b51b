// Package engine runs operations once. It claims an operation in a store, keeps the claim while the operation runs, and
// settles its outcome. It does not know HTTP or requests: its caller brings an identity and a fingerprint, and says how
// the run has ended.
//
// An [Engine] is one store, with everything that its users in a process share. A [Route] is an Engine under a [Policy].
// [Route.Enter] asks for an operation and returns a [Run], a [Refusal], or the record of what was settled before.
// [Run.Settle] ends a Run.
package engine
