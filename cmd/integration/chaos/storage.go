package chaos

import "slices"

// A Storage is what keeps the records of a run.
type Storage string

// The storages.
const (
	// SQLite is a file that the fronts share.
	SQLite Storage = "sqlite"
	// Postgres is a PostgreSQL server.
	Postgres Storage = "postgres"
	// Redis is a Redis server that has each write on its disk before it replies.
	Redis Storage = "redis"
	// Tiered is a PostgreSQL server that decides, and a Redis server that keeps nothing, which answers repeats.
	Tiered Storage = "tiered"
	// Sharded is four PostgreSQL servers, two of which join all the time: the fronts are at both steps of this change.
	Sharded Storage = "sharded"
)

// Storages returns all storages.
func Storages() []Storage { return []Storage{SQLite, Postgres, Redis, Tiered, Sharded} }

// Modes returns those in which effects can be protected with the storage.
func (s Storage) Modes() []Mode {
	switch s {
	case Redis, Sharded:
		return []Mode{Rerun, Hold}
	case Tiered:
		return []Mode{Rerun, Hold, Tx}
	}
	return []Mode{Rerun, Hold, Tx, OneCommit}
}

// shards returns how many servers decide, each about operations of its own.
func (s Storage) shards() int {
	if s == Sharded {
		return 4
	}
	return 1
}

// server reports whether the storage is a server, which can fail apart from the fronts.
func (s Storage) server() bool { return s != SQLite }

// A Fault is what a disk or a server suffers, or a front's way to a server.
type Fault string

// The faults. Those of the cache cost nobody a lease.
const (
	DiskFull         Fault = "disk-full"         // for less than a lease, or more; the service's ledger has another disk
	ServerKilled     Fault = "server-killed"     // and started again soon
	ServerPaused     Fault = "server-paused"     // for longer than a lease
	ServerReadOnly   Fault = "server-read-only"  // in recovery, or a replica
	ConnectionsTaken Fault = "connections-taken" // a front has lost its own, and gets no others
	Partitioned      Fault = "partitioned"       // a front is cut off for longer than a lease, while the others are not
	RepliesLost      Fault = "replies-lost"      // the server executes what a front sends; then the connections are reset
	Slow             Fault = "slow"              // a front's replies come late, by as much as a second
	CacheKilled      Fault = "cache-killed"      // and started again, empty
	CachePaused      Fault = "cache-paused"
	CacheEmptied     Fault = "cache-emptied"
	CachePartitioned Fault = "cache-partitioned" // a front is cut off from it
)

var (
	serverFaults = []Fault{ServerKilled, ServerPaused, ServerReadOnly, ConnectionsTaken, Partitioned, RepliesLost, Slow}
	cacheFaults  = []Fault{CacheKilled, CachePaused, CacheEmptied, CachePartitioned}
	allFaults    = slices.Concat([]Fault{DiskFull}, serverFaults, cacheFaults)
)

// Faults returns those that a run with the storage brings about.
func (s Storage) Faults() []Fault {
	switch s {
	case SQLite:
		return []Fault{DiskFull}
	case Tiered:
		return slices.Concat(serverFaults, cacheFaults)
	}
	return serverFaults
}
