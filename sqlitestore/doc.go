// Package sqlitestore keeps records in a SQLite database, on a [*sql.DB] with the caller's driver. It needs nothing
// installed, survives the end of its process at any instruction, and several processes may share one file on one
// machine.
//
// What a verb has acknowledged is durable: the database is in WAL mode, and each commit is synced. The verbs of
// concurrent callers share commits. The store takes connections of its own from the DB, so that its verbs never queue
// behind handlers; one must be left to the application.
//
// Handlers that work in the same database let their effects commit together with the answer: see [Store.Tx].
//
// Messages that must leave exactly when their data is committed are added to the outbox in the database: see
// [OpenOutbox].
//
// Space of deleted records is used again, and the file keeps the largest size that it had. VACUUM, run by an operator
// while no process uses the file, gives the rest back to the file system.
package sqlitestore
