// Package memstore keeps records in the memory of one process. It is the reference of what a [driver.Store] does: every
// verb applies the transition of the same name in package semel under a lock.
//
// It is bounded. A full store refuses new keys with [driver.ErrFull]; it never drops a record that may still be needed.
// One principal may fill half of it, so that nobody takes the room of the others. What has expired is reclaimed as new
// keys are claimed, so that it does not fill up in a program that never sweeps. Nothing survives the end of the
// process: with several processes, or effects that must not be repeated after a restart, use a store that lasts.
package memstore
