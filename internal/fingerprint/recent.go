package fingerprint

import (
	"encoding/binary"
	"sync"

	"github.com/semelhq/semel/driver"
)

// Recent remembers the fingerprints of requests that came recently. A repeat of the same bytes then needs no canonical
// form. The zero value is ready for use, also concurrently.
//
// It can't make a fingerprint wrong. The canonical digest is a function of what the raw digest covers and of the
// settings, and a fingerprint is used only if both are equal. It is found only by the id of its operation: else a
// principal could learn from the time that an answer takes whether another has sent the same bytes.
type Recent struct {
	shards [recentShards]recentShard
}

const (
	recentShards  = 32
	recentInShard = 256 // each shard takes 12 KiB once it is used
)

type recentShard struct {
	mu    sync.Mutex
	known *[recentInShard]recentPrint
}

type recentPrint struct {
	operation uint64 // a part of its id
	driver.Fingerprint
}

// place returns where the fingerprint of an operation is, and how it is recognised there. The end of an id is a digest,
// each part of which serves equally well.
func (m *Recent) place(id *driver.ID) (s *recentShard, at int, operation uint64) {
	digest := id[len(driver.ScopeID{}):]
	return &m.shards[digest[0]%recentShards], int(digest[1]), binary.LittleEndian.Uint64(digest[2:])
}

// complete fills in the canonical digest of a repeat, and reports whether it could.
func (m *Recent) complete(id driver.ID, fp *driver.Fingerprint) bool {
	if m == nil {
		return false
	}
	s, at, operation := m.place(&id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		return false
	}
	k := &s.known[at]
	if k.operation != operation || k.Raw != fp.Raw || k.Settings != fp.Settings {
		return false
	}
	fp.Canonical = k.Canonical
	return true
}

// add remembers a fingerprint in the place of another.
func (m *Recent) add(id driver.ID, fp *driver.Fingerprint) {
	if m == nil {
		return
	}
	s, at, operation := m.place(&id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = new([recentInShard]recentPrint)
	}
	s.known[at] = recentPrint{operation, *fp}
}
