// Package memstore keeps records in the memory of one process. It is the reference for a [driver.Store]: every verb
// applies the transition of the same name in package driver under a lock.
//
// It is bounded. A full store refuses new keys with [driver.ErrFull]; it never drops a record that may still be needed.
// One principal may fill half of it, so that nobody takes the room of the others. Claims of new keys remove expired
// records, so that the store does not fill up in a program that never sweeps. Nothing survives the end of the process.
// With several processes, or with effects that must not be repeated after a restart, use a store that lasts.
package memstore
