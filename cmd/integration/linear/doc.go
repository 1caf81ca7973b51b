// Package linear proves that the verbs of a store are atomic: what concurrent clients asked and were told is compared
// with the rules of package semel. There must be an order of the verbs, each between its call and its reply, in which
// one verb after the other, applied as the rules say, gives just these replies (linearizability; the search is
// porcupine's).
//
// A verb whose reply was lost may have been executed at any time after its call, or never.
package linear
