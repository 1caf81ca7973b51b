// Package digest makes the keyed digests of identities, fingerprints and derived keys.
package digest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/semelhq/semel/driver"
)

// A Digester makes the keyed digests of identities, fingerprints and derived keys: HMAC-SHA-256 under a secret, or
// plain SHA-256 without one. Every part is length-prefixed and every digest starts with its domain, so that no two
// different inputs are written the same. It is safe for concurrent use.
type Digester struct {
	pool sync.Pool
	last atomic.Pointer[scopeDigest]
}

// A scopeDigest remembers the scope asked for last: with one tenant, or one busy one, its digest is made once.
type scopeDigest struct {
	kind  string
	scope string
	id    driver.ScopeID
}

// New returns a digester under a secret; nil for none.
func New(secret []byte) *Digester {
	d := &Digester{}
	secret = bytes.Clone(secret)
	d.pool.New = func() any {
		s := &Digest{d: d, buf: make([]byte, 0, 512)}
		if len(secret) == 0 {
			s.hash = sha256.New()
		} else {
			s.hash = hmac.New(sha256.New, secret)
		}
		return s
	}
	return d
}

// A Digest is being written. It is used by one goroutine, and not after sum.
type Digest struct {
	d    *Digester
	hash hash.Hash
	buf  []byte // small parts gather here, so that the hash is fed in few calls
}

// Start begins a digest of the given domain.
func (d *Digester) Start(domain string) *Digest {
	s := d.pool.Get().(*Digest)
	s.hash.Reset()
	s.buf = s.buf[:0]
	s.Text(domain)
	return s
}

// Text writes a part.
func (s *Digest) Text(part string) {
	s.Uint(uint64(len(part)))
	if len(part) > cap(s.buf)-len(s.buf) {
		s.flush()
		if len(part) > cap(s.buf) {
			s.hash.Write([]byte(part))
			return
		}
	}
	s.buf = append(s.buf, part...)
}

// Bytes writes a part.
func (s *Digest) Bytes(part []byte) {
	s.Uint(uint64(len(part)))
	s.Write(part)
}

// Write writes a piece of a part whose length was written before. It never fails.
func (s *Digest) Write(piece []byte) (int, error) {
	if len(piece) > cap(s.buf)-len(s.buf) {
		s.flush()
		if len(piece) > cap(s.buf) {
			return s.hash.Write(piece)
		}
	}
	s.buf = append(s.buf, piece...)
	return len(piece), nil
}

// Texts writes a list of parts.
func (s *Digest) Texts(list []string) {
	s.Uint(uint64(len(list)))
	for _, part := range list {
		s.Text(part)
	}
}

// Flag writes a yes or no.
func (s *Digest) Flag(yes bool) {
	if yes {
		s.Uint(1)
	} else {
		s.Uint(0)
	}
}

// Uint writes a number.
func (s *Digest) Uint(n uint64) {
	if cap(s.buf)-len(s.buf) < binary.MaxVarintLen64 {
		s.flush()
	}
	if n < 0x80 { // most are
		s.buf = append(s.buf, byte(n))
		return
	}
	s.buf = binary.AppendUvarint(s.buf, n)
}

func (s *Digest) flush() {
	s.hash.Write(s.buf)
	s.buf = s.buf[:0]
}

// Sum ends the digest and gives its resources back.
func (s *Digest) Sum() [sha256.Size]byte {
	s.flush()
	sum := [sha256.Size]byte(s.hash.Sum(s.buf))
	s.d.pool.Put(s)
	return sum
}

// Short is Sum, cut to its first 16 bytes.
func (s *Digest) Short() [16]byte {
	sum := s.Sum()
	return [16]byte(sum[:16])
}

// Mark is the check value of the secret. It is stored for good, so its form never changes.
func (d *Digester) Mark() (f driver.Fingerprint) {
	sum := d.Start("semel identity check 1").Sum()
	copy(f.Raw[:], sum[:])
	copy(f.Canonical[:], sum[len(f.Raw):])
	return f
}

// ID returns HMAC(kind, scope)[:16] ‖ HMAC(kind, scope, key).
func (d *Digester) ID(kind string, scope, key string) (id driver.ID) {
	scopeID := d.Scope(string(kind), scope)
	copy(id[:], scopeID[:])
	s := d.Start("semel key 1")
	s.Text(kind)
	s.Text(scope)
	s.Text(key)
	sum := s.Sum()
	copy(id[16:], sum[:])
	return id
}

// Scope returns HMAC(kind, scope)[:16].
func (d *Digester) Scope(kind string, scope string) driver.ScopeID {
	if l := d.last.Load(); l != nil && l.kind == kind && l.scope == scope {
		return l.id
	}
	s := d.Start("semel scope 1")
	s.Text(kind)
	s.Text(scope)
	id := driver.ScopeID(s.Short())
	d.last.Store(&scopeDigest{kind, strings.Clone(scope), id})
	return id
}

// DerivedKey returns HMAC(kind, scope, key, name) in the form of a UUIDv8 (RFC 9562, section 5.8).
func (d *Digester) DerivedKey(kind string, scope, key, name string) string {
	s := d.Start("semel derived 1")
	s.Text(kind)
	s.Text(scope)
	s.Text(key)
	s.Text(name)
	sum := s.Sum()
	return UUIDv8(sum)
}

// UUIDv8 returns the first bytes of a digest in the form of a UUIDv8 (RFC 9562, section 5.8).
func UUIDv8(sum [sha256.Size]byte) string {
	const hexDigits = "0123456789abcdef"
	sum[6] = sum[6]&0x0f | 0x80
	sum[8] = sum[8]&0x3f | 0x80
	out := make([]byte, 0, 36)
	for i, b := range sum[:16] {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			out = append(out, '-')
		}
		out = append(out, hexDigits[b>>4], hexDigits[b&15])
	}
	return string(out)
}
