// Package shardstore spreads operations over several stores, the shards, so that many servers share the work of one.
// Each operation has one shard, which follows from its id and the shards' names (rendezvous hashing, all shards with
// the same weight). Each verb goes to that shard alone. A shard that is down refuses its own operations, and no others.
//
// A process may start while a shard is down: see Open of [Shard].
//
// The id decides, not the scope: one large tenant is spread over all shards too. A shard's name stands for its records.
// The name never changes, and all processes use the same names; the address of a shard may change.
//
// # Changing the shards
//
// Where shards are added or taken away, some operations get another shard: of n shards, a new one takes 1/n of them, and
// no other operation moves. Records are not copied. An operation stays in its old shard until its record has expired;
// from then on its key is new, and begins in the new shard. A change takes three steps. In each all processes are
// restarted, in any order, before the next one begins:
//
//  1. [Prepare], with the shards that join or leave marked. New operations still begin in their old shard.
//  2. [Move]. New operations begin in their new shard.
//  3. No change, without the marks and without the shards that leave. It may begin when [Changer.Remaining] says that
//     nothing is left in old shards.
//
// Processes of two steps that follow each other may work at the same time; processes of others must not. What makes two
// of them start no operation twice is the order of their verbs, whose subjects are an operation's old and its new shard:
//
//   - A claim looks at both, and goes to the one that has the operation. If neither has it, the claim goes to the shard
//     in which operations begin.
//   - A claim that succeeds is followed by a second look at the other shard. Only if no run is there is the claim
//     acknowledged. Else it fails with [driver.ErrElsewhere], and the guard releases it.
//
// Of two runs that are claimed in two shards at the same time, one was written later. Its look, which comes after that,
// sees the other. So at most one is acknowledged. A process that has been told of only one of an operation's shards does
// not look at the other, and this is why step 1 comes before step 2, and why nothing may be left before step 3.
//
// # What is left out
//
// The store is no [driver.Transactor]: a transaction is in one database, and the operation's id, which the handler does
// not choose, would decide in which. The other optional interfaces are there if all shards have them.
//
// Shards have clocks of their own. Each record is governed by its shard's clock. Where a key moves to another shard its
// fences go on growing if the servers' clocks differ by less than has passed since its last run. A layer of package
// tieredstore goes in front of each shard, not in front of the whole, because such a layer knows one clock.
package shardstore
