package tieredstore

import "errors"

// ErrCopyLeft means that a record was forgotten in the durable store, but that the cache could not be told: a copy
// there may answer repeats until the record's retention is over. Repeated when the cache is back, Forget, or Drop,
// deletes it.
var ErrCopyLeft = errors.New("the durable store has forgotten the record, but a copy in the cache may answer repeats until its retention is over")
