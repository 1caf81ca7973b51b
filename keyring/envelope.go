package keyring

import (
	"crypto/rand"
	"fmt"

	"github.com/semelhq/semel/driver"
)

// Steps, requests and other texts beside an answer are stored in an envelope, which says how to read them:
//
//	0, then the text; or
//	1, the length of a key's id in one byte, the id, the token of the owner that stored it, the nonce, and the text
//	encrypted by that key
//
// The text is bound to the field, and to record and token, so that nothing can be moved unnoticed.
const (
	envelopeOpen   = 0
	envelopeSealed = 1
)

// SealField puts a text into an envelope. It encrypts the text if there is a keyring.
func (k *Ring) SealField(field string, id driver.ID, t driver.Token, text []byte) []byte {
	if k == nil {
		return append([]byte{envelopeOpen}, text...)
	}
	bound := boundTo(field, id, t)
	aead := k.aead(k.first, bound)
	head := 2 + len(k.first) + len(t)
	out := make([]byte, 0, head+aead.NonceSize()+len(text)+aead.Overhead())
	out = append(out, envelopeSealed, byte(len(k.first)))
	out = append(out, k.first...)
	out = append(out, t[:]...)
	nonce := out[head : head+aead.NonceSize()]
	rand.Read(nonce)
	return aead.Seal(out[:head+len(nonce)], nonce, text, bound)
}

// IsPlain reports whether the text in an envelope is not encrypted.
func IsPlain(envelope []byte) bool { return len(envelope) > 0 && envelope[0] == envelopeOpen }

// OpenField takes a text out of its envelope. An error wraps [driver.ErrUnreadable].
func (k *Ring) OpenField(field string, id driver.ID, envelope []byte) ([]byte, error) {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("open stored %s: %w: %w", field, driver.ErrUnreadable, fmt.Errorf(format, args...))
	}
	switch {
	case len(envelope) == 0:
		return nil, fail("it is empty")
	case IsPlain(envelope) && k.readsPlain():
		return envelope[1:], nil
	case IsPlain(envelope):
		return nil, fail("%w", errNotEncrypted)
	case envelope[0] != envelopeSealed:
		return nil, fail("envelope of kind %d", envelope[0])
	case len(envelope) < 2 || len(envelope) < 2+int(envelope[1])+len(driver.Token{}):
		return nil, fail("%d encrypted bytes", len(envelope))
	}
	n := 2 + int(envelope[1])
	name, rest := string(envelope[2:n]), envelope[n:]
	if k == nil || k.keys[name] == nil {
		return nil, fail("encrypted with key %q, which is not in the keyring", name)
	}
	bound := boundTo(field, id, driver.Token(rest[:len(driver.Token{})]))
	rest = rest[len(driver.Token{}):]
	aead := k.aead(name, bound)
	if len(rest) < aead.NonceSize() {
		return nil, fail("%d encrypted bytes", len(rest))
	}
	text, err := aead.Open(nil, rest[:aead.NonceSize()], rest[aead.NonceSize():], bound)
	if err != nil {
		return nil, fail("key %q: %w", name, err)
	}
	return text, nil
}
