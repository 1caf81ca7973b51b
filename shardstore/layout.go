package shardstore

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/semelhq/semel/driver"
)

// A layout says which shard has which operations.
type layout []*shard

// of returns the shard that has an operation: the one whose score for it is the highest. A shard that joins takes
// operations from the others, and gives them none.
func (l layout) of(id *driver.ID) *shard {
	sum := sumOf(id)
	best, most := l[0], mix(l[0].seed^sum)
	for _, h := range l[1:] {
		if score := mix(h.seed ^ sum); score > most { // no two are equal, since no two seeds are
			best, most = h, score
		}
	}
	return best
}

// seedOf returns the number that stands for a name.
func seedOf(name string) uint64 {
	sum := sha256.Sum256([]byte("semel shard " + name))
	return binary.BigEndian.Uint64(sum[:])
}

// sumOf returns a number that depends on all bytes of an id.
func sumOf(id *driver.ID) (sum uint64) {
	for at := 0; at < len(id); at += 8 {
		sum = mix(sum ^ binary.BigEndian.Uint64(id[at:]))
	}
	return sum
}

// mix is the finalizer of SplitMix64: one to one, and each bit of the result depends on all of x.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
