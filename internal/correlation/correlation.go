// Package correlation has the ids by which a request is followed through logs and services.
package correlation

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
)

// New makes a correlation id: 128 random bits. It is not a secret, so a cheap source of random bits is
// enough.
func New() string {
	var id [16]byte
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	return hex.EncodeToString(id[:])
}

// Plain reports whether a correlation id can be written to logs and headers unchanged.
func Plain(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
