// Package verify proves from outside whether the idempotency of an HTTP API holds. It sends requests, repeats them in
// the ways in which clients and networks do, and counts effects. It knows nothing of what is behind the address: what
// it needs to know stands in a [Scenario]. [Run] is all that a test needs; cmd/semel-verify is the same as a command.
//
// A check sends its requests over a wire of its own that never resends, and reports findings. A load asks for many
// operations at once, with faults of the network between the clients and the target. Both end in a [Report].
package verify
