package sqlitestore

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/semelhq/semel/driver"
)

// seen are operations that this process has asked for. Each slot keeps the last of those that it may be: one that is
// displaced, or was asked for by another process, counts as new. It says only where to look first, so it may be wrong.
type seen [1 << 18]atomic.Uint32

// of reports whether the operation was asked for before, and remembers it.
func (f *seen) of(id *driver.ID) bool {
	hash := binary.LittleEndian.Uint64(id[16:]) // those before are the scope's
	tag := uint32(hash>>32) | 1
	slot := &f[hash%uint64(len(f))]
	return slot.Load() == tag || slot.Swap(tag) == tag
}
