package memstore

import (
	"sync"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/slab"
)

// What things take of memory. All of it counts towards Options.MaxBytes.
const (
	entrySize     = 240 // an entry, and its places in the index and in the queue
	principalSize = 64  // a use
	stepSize      = 96  // a step, besides its name and its result
)

// weight is how much a record takes whose packed text has so many bytes, without its steps.
func weight(text int) int64 { return entrySize + slab.Size(text) }

// weight is how much the record of an entry takes, with its steps.
func (sh *shard) weight(at slab.Ref) int64 {
	if at == 0 {
		return 0
	}
	return weight(sh.entries.At(at).size) + sh.stepsWeight(at)
}

func (sh *shard) stepsWeight(at slab.Ref) (n int64) {
	for name, result := range sh.steps[at] {
		n += stepWeight(name, result)
	}
	return n
}

func stepWeight(name string, result []byte) int64 { return int64(stepSize + len(name) + len(result)) }

// A room counts what the store holds, and what each principal's records take of it.
type room struct {
	most, share use // bounds, of all and of one principal

	mu  sync.Mutex
	all use
	of  map[driver.ScopeID]use // those that have records
}

// A use is what records take.
type use struct{ records, bytes int64 }

func (u use) plus(v use) use { return use{u.records + v.records, u.bytes + v.bytes} }

// within reports whether u, after it has grown by v, is within a bound. What has not grown is.
func (u use) within(most use, grown use) bool {
	return (grown.records <= 0 || u.records <= most.records) && (grown.bytes <= 0 || u.bytes <= most.bytes)
}

// take counts that the principal of id takes so much more, or less. With strict, it counts nothing and returns an error
// if a bound would be passed. The store's own records belong to no principal.
func (r *room) take(id *driver.ID, more use, strict bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	scope, own := id.Scope(), id.Reserved()
	before, known := r.of[scope]
	now := before.plus(more)
	switch {
	case own:
	case !known:
		more.bytes += principalSize
		now.bytes += principalSize
	case now.records == 0:
		more.bytes -= principalSize
	}
	all := r.all.plus(more)
	if strict && !own && !now.within(r.share, more) {
		return driver.ErrShareFull
	}
	if strict && !all.within(r.most, more) {
		return driver.ErrFull
	}
	r.all = all
	switch {
	case own:
	case now.records == 0:
		delete(r.of, scope)
	default:
		r.of[scope] = now
	}
	return nil
}

// records returns how many there are.
func (r *room) records() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.records
}
