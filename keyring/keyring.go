// Package keyring encrypts what a store keeps: answers, steps, requests, paths and correlation ids, and the messages of
// an outbox.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/semelhq/semel/driver"
)

// A Key is one key of a [Ring].
type Key struct {
	// ID names the key in the texts that it has encrypted: 1 to 64 visible ASCII characters. It must not name another key
	// later.
	ID string
	// Key is 32 random bytes.
	Key []byte
}

// A Ring encrypts stored answers, steps, requests, names of operations and correlation ids at rest. A reader of the
// store then learns only an answer's status, sizes, times, the names of steps and the errors of runs without an answer.
// The cipher is AES-256-GCM. Each text is encrypted under a key of its own, derived from the ring's first key, from the
// record's id, and from a token. So the number of texts under one key has no limit in practice. The text is also bound
// to record, token and field, so that it can't be moved unnoticed.
//
// To rotate, first give each process the new key as a later one; then put it first. Keep the old keys until the longest
// retention has passed (seven times that if requests or steps are stored), and until no operation from before is
// unknown any more. With an outbox, keep them also until all messages from before are sent or dropped.
//
// A text that is not encrypted is refused as unreadable. So somebody who can write into the store can't put an answer
// or a step of his own there. For the change from a store without a keyring there is [Ring.AllowPlain]. The Ring can't
// notice if somebody puts back a whole row that was there before.
//
// A Ring is safe for concurrent use. A nil Ring encrypts nothing.
type Ring struct {
	first string
	keys  map[string][]byte
	plain bool // texts that are not encrypted can be read
}

const (
	sealedCodec  = "aes-256-gcm:" // the key's id follows
	longestKeyID = 64
	aesKeySize   = 32
)

// New returns a keyring that encrypts with the first key, and decrypts with any of them.
func New(keys ...Key) (*Ring, error) {
	var errs []error
	k := &Ring{keys: map[string][]byte{}}
	for i, key := range keys {
		visible := strings.IndexFunc(key.ID, func(c rune) bool { return c < '!' || c > '~' }) < 0
		switch {
		case key.ID == "" || len(key.ID) > longestKeyID || !visible:
			errs = append(errs, fmt.Errorf("key %d: its id must be 1 to %d visible ASCII characters", i+1, longestKeyID))
		case len(key.Key) != aesKeySize:
			errs = append(errs, fmt.Errorf("key %q has %d bytes, want %d", key.ID, len(key.Key), aesKeySize))
		case k.keys[key.ID] != nil:
			errs = append(errs, fmt.Errorf("key %q is there twice", key.ID))
		default:
			k.keys[key.ID] = append([]byte(nil), key.Key...)
		}
		if i == 0 {
			k.first = key.ID
		}
	}
	if len(keys) == 0 {
		errs = append(errs, errors.New("it has no key"))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("semel: new keyring: %w", errors.Join(errs...))
	}
	return k, nil
}

// AllowPlain returns a keyring with the same keys that also reads texts that are not encrypted, except for requests. It
// is for stores that were used without a keyring, until the longest retention has passed, or seven times that if steps
// are stored. Each such read is reported as [event.PlainStored].
func (k *Ring) AllowPlain() *Ring {
	if k == nil {
		return nil
	}
	return &Ring{first: k.first, keys: k.keys, plain: true}
}

// readsPlain reports whether texts that are not encrypted can be read.
func (k *Ring) readsPlain() bool { return k == nil || k.plain }

var errNotEncrypted = errors.New("it is not encrypted, and there is a keyring")

// Seal returns the encrypted form of an answer of the operation, for the owner with that token to settle. A nil answer
// stays nil.
func (k *Ring) Seal(id driver.ID, t driver.Token, answer *driver.Response) *driver.Response {
	if k == nil || answer == nil || strings.HasPrefix(answer.Codec, sealedCodec) {
		return answer
	}
	plain, err := answer.AppendBinary(nil)
	if err != nil {
		panic("semel: " + err.Error()) // AppendBinary does not fail
	}
	bound := boundTo("answer", id, t)
	aead := k.aead(k.first, bound)
	body := make([]byte, aead.NonceSize(), aead.NonceSize()+len(plain)+aead.Overhead())
	rand.Read(body)
	body = aead.Seal(body, body, plain, bound)
	return &driver.Response{Status: answer.Status, Codec: sealedCodec + k.first, Body: body}
}

// Open returns the answer of a record, decrypted if it is encrypted; nil if there is none. An error wraps
// [driver.ErrUnreadable]. It is also an error if the answer is not encrypted, unless the keyring is nil or of
// [Ring.AllowPlain].
func (k *Ring) Open(id driver.ID, rec *driver.Record) (*driver.Response, error) {
	if rec.Response == nil {
		return nil, nil
	}
	name, sealed := strings.CutPrefix(rec.Response.Codec, sealedCodec)
	switch {
	case !sealed && k.readsPlain():
		return rec.Response, nil
	case !sealed:
		return nil, fmt.Errorf("open stored answer: %w: %w", driver.ErrUnreadable, errNotEncrypted)
	case k == nil || k.keys[name] == nil:
		return nil, fmt.Errorf("open stored answer: %w: encrypted with key %q, which is not in the keyring", driver.ErrUnreadable, name)
	}
	bound := boundTo("answer", id, rec.Token)
	aead := k.aead(name, bound)
	body := rec.Response.Body
	if len(body) < aead.NonceSize() {
		return nil, fmt.Errorf("open stored answer: %w: %d encrypted bytes", driver.ErrUnreadable, len(body))
	}
	plain, err := aead.Open(nil, body[:aead.NonceSize()], body[aead.NonceSize():], bound)
	if err != nil {
		return nil, fmt.Errorf("open stored answer: %w: key %q: %w", driver.ErrUnreadable, name, err)
	}
	answer := new(driver.Response)
	if err := answer.UnmarshalBinary(plain); err != nil {
		return nil, fmt.Errorf("open stored answer: %w", err)
	}
	return answer, nil
}

// aead returns the cipher for a text that is bound to bound, under the text's own key.
func (k *Ring) aead(name string, bound []byte) cipher.AEAD {
	mac := hmac.New(sha256.New, k.keys[name])
	mac.Write(bound)
	block, err := aes.NewCipher(mac.Sum(nil))
	var aead cipher.AEAD
	if err == nil {
		aead, err = cipher.NewGCM(block)
	}
	if err != nil {
		panic("semel: " + err.Error()) // the key has the right size
	}
	return aead
}

// boundTo is what an encrypted text is bound to: the record, the run and the field.
func boundTo(field string, id driver.ID, t driver.Token) []byte {
	b := append([]byte("semel "+field+" 1\x00"), id[:]...)
	return append(b, t[:]...)
}
