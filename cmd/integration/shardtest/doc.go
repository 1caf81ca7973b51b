// Package shardtest proves package shardstore with PostgreSQL as shards, and that a verb touches no second key.
package shardtest
