// Package driver is for authors of stores. It has the contract that a store keeps ([Store] and the optional
// interfaces), the record that a store keeps of an operation, and the rules by which a record changes. Users of a guard
// need not import it.
//
// Package storetest proves a store, and docs/writing-a-store.md explains how to write one.
package driver
