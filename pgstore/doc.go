// Package pgstore keeps records in PostgreSQL 14 or later, for any number of processes at once.
//
// Each verb is one function in the database: one statement, one round trip, decided at the database's clock. Claims,
// settles as done, extends and loads that come at the same moment share a round trip and a commit. What a
// verb has acknowledged is durable as far as the server's commits are: where synchronous_commit is off, the verbs turn
// it on for themselves. A refused or replaying claim writes nothing and locks nothing. Connections come from a small
// pool of the store's own, which works behind PgBouncer in transaction mode.
//
// Results of steps are in a table of their own, which the verbs touch only where a record says that it has some: an
// operation without steps costs no more for them. They go when the record does.
//
// # The outbox
//
// [OpenOutbox] returns an outbox in the same schema, for messages that are sent when the transaction that has added them
// is committed; see package outbox.
//
// # The schema
//
// [Open] makes and migrates the schema; [Migrations] are the files for those who do that by a tool. Migrations add before
// they remove, so that programs of neighbouring versions can run on one schema. The view "operations" shows the records
// to people, "outbox_events" the messages to change data capture.
package pgstore
