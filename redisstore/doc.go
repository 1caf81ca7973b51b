// Package redisstore keeps records in Redis 6.2 or later, or Valkey: one server, the primary that Sentinel names, or a
// Cluster. It speaks through the caller's client ([Client]); adapters for rueidis and go-redis are a few lines.
//
// A record is one key, Prefix{operation's public id}, which holds one binary string, and each verb is one script and
// one round trip. Time is the server's. Keys that are no longer needed expire by themselves: nothing has to sweep. A
// record with a tombstone keeps its answer in a second key of the same slot, which expires first. Results of steps are
// a hash in that slot too, Prefix{id}:created, which is there only if a step was saved: it ends with the retention, or
// with the record if that ends without one, and goes when the record is forgotten or claimed as a new operation.
// Whoever deletes records by hand deletes all of Prefix{id}, Prefix{id}~ and Prefix{id}:*.
//
// A record that says that it has steps, and whose hash is not there, since it was evicted or deleted, or while its slot
// is moved to another node, is unreadable where steps are concerned: nothing is taken for not done that was.
//
// How durable the records are is up to the server: see docs/guarantees.md for what an asynchronous failover, or a
// restart, can lose. A server that may evict records is refused.
package redisstore
