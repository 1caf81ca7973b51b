package semel

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

// A digester makes the keyed digests of identities, fingerprints and derived keys: HMAC-SHA-256 under a secret, or
// plain SHA-256 without one. Every part is length-prefixed and every digest starts with its domain, so that no two
// different inputs are written the same. It is safe for concurrent use.
type digester struct {
	pool sync.Pool
	last atomic.Pointer[scopeDigest]
}

// A scopeDigest remembers the scope asked for last: with one tenant, or one busy one, its digest is made once.
type scopeDigest struct {
	kind  Kind
	scope string
	id    driver.ScopeID
}

func newDigester(secret []byte) *digester {
	d := &digester{}
	secret = bytes.Clone(secret)
	d.pool.New = func() any {
		s := &digest{d: d, buf: make([]byte, 0, 512)}
		if len(secret) == 0 {
			s.hash = sha256.New()
		} else {
			s.hash = hmac.New(sha256.New, secret)
		}
		return s
	}
	return d
}

// A digest is being written. It is used by one goroutine, and not after sum.
type digest struct {
	d    *digester
	hash hash.Hash
	buf  []byte // small parts gather here, so that the hash is fed in few calls
}

// start begins a digest of the given domain.
func (d *digester) start(domain string) *digest {
	s := d.pool.Get().(*digest)
	s.hash.Reset()
	s.buf = s.buf[:0]
	s.string(domain)
	return s
}

// string writes a part.
func (s *digest) string(part string) {
	s.uint(uint64(len(part)))
	if len(part) > cap(s.buf)-len(s.buf) {
		s.flush()
		if len(part) > cap(s.buf) {
			s.hash.Write([]byte(part))
			return
		}
	}
	s.buf = append(s.buf, part...)
}

// bytes writes a part.
func (s *digest) bytes(part []byte) {
	s.uint(uint64(len(part)))
	s.Write(part)
}

// Write writes a piece of a part whose length was written before. It never fails.
func (s *digest) Write(piece []byte) (int, error) {
	if len(piece) > cap(s.buf)-len(s.buf) {
		s.flush()
		if len(piece) > cap(s.buf) {
			return s.hash.Write(piece)
		}
	}
	s.buf = append(s.buf, piece...)
	return len(piece), nil
}

// strings writes a list of parts.
func (s *digest) strings(list []string) {
	s.uint(uint64(len(list)))
	for _, part := range list {
		s.string(part)
	}
}

// flag writes a yes or no.
func (s *digest) flag(yes bool) {
	if yes {
		s.uint(1)
	} else {
		s.uint(0)
	}
}

// uint writes a number.
func (s *digest) uint(n uint64) {
	if cap(s.buf)-len(s.buf) < binary.MaxVarintLen64 {
		s.flush()
	}
	if n < 0x80 { // most are
		s.buf = append(s.buf, byte(n))
		return
	}
	s.buf = binary.AppendUvarint(s.buf, n)
}

func (s *digest) flush() {
	s.hash.Write(s.buf)
	s.buf = s.buf[:0]
}

// sum ends the digest and gives its resources back.
func (s *digest) sum() [sha256.Size]byte {
	s.flush()
	sum := [sha256.Size]byte(s.hash.Sum(s.buf))
	s.d.pool.Put(s)
	return sum
}

// id returns HMAC(kind, scope)[:16] ‖ HMAC(kind, scope, key).
func (d *digester) id(kind Kind, scope, key string) (id driver.ID) {
	scopeID := d.scope(kind, scope)
	copy(id[:], scopeID[:])
	s := d.start("semel key 1")
	s.string(string(kind))
	s.string(scope)
	s.string(key)
	sum := s.sum()
	copy(id[16:], sum[:])
	return id
}

// scope returns HMAC(kind, scope)[:16].
func (d *digester) scope(kind Kind, scope string) driver.ScopeID {
	if l := d.last.Load(); l != nil && l.kind == kind && l.scope == scope {
		return l.id
	}
	s := d.start("semel scope 1")
	s.string(string(kind))
	s.string(scope)
	sum := s.sum()
	id := driver.ScopeID(sum[:16])
	d.last.Store(&scopeDigest{kind, strings.Clone(scope), id})
	return id
}

// derivedKey returns HMAC(kind, scope, key, name) in the form of a UUIDv8 (RFC 9562, section 5.8).
func (d *digester) derivedKey(kind Kind, scope, key, name string) string {
	s := d.start("semel derived 1")
	s.string(string(kind))
	s.string(scope)
	s.string(key)
	s.string(name)
	sum := s.sum()
	return uuidv8(sum)
}

func uuidv8(sum [sha256.Size]byte) string {
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
