// Package semeltest helps with tests of handlers and functions that a [semel.Guard] protects: a guard for a test
// ([New]), the proof that a request takes effect once ([AssertOnce]), answers that get lost ([LosingHandler],
// [LosingTransport]), and a process that dies ([Mortal]).
//
// All of it works in a bubble of testing/synctest, where waiting for a lease takes no time.
package semeltest
