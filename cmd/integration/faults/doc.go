// Package faults puts a proxy between a store's client and its server and spoils what passes: connections reset,
// replies lost, bytes that vanish or come late.
//
// Its tests take each store through the faults of servers and networks: an operation has at most one effect, an answer
// that was acknowledged is true, and no key is stuck.
package faults
