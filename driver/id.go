package driver

import (
	"encoding/base64"
	"fmt"
)

// ID identifies an operation within a store: a digest of (kind, scope) followed by one of (kind, scope, key). It holds
// neither scope nor key.
type ID [48]byte

// ScopeID is the part of an [ID] that all operations of one kind and scope share.
type ScopeID [16]byte

// Scope returns the part that all operations of the same kind and scope share.
func (id ID) Scope() ScopeID { return ScopeID(id[:16]) }

// Reserved reports whether the ID is that of one of the store's own records. They stand for no operation: operators'
// listings leave them out, and nobody decides about them. Their scope is all zeros, which no digest gives.
func (id ID) Reserved() bool { return id.Scope() == ScopeID{} }

// String returns the operation's public id: base64url without padding, 64 characters.
func (id ID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// ParseID reads an operation's public id.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != base64.RawURLEncoding.EncodedLen(len(id)) {
		return ID{}, fmt.Errorf("parse operation id: %d characters, want %d", len(s), base64.RawURLEncoding.EncodedLen(len(id)))
	}
	n, err := base64.RawURLEncoding.Strict().Decode(id[:], []byte(s))
	if err != nil {
		return ID{}, fmt.Errorf("parse operation id: %w", err)
	}
	if n != len(id) { // the decoder skips line ends, but an operation has only one public id
		return ID{}, fmt.Errorf("parse operation id: %d bytes, want %d", n, len(id))
	}
	return id, nil
}

// MarshalText implements [encoding.TextMarshaler] with the public id, so that JSON and logs show the public id too.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] as [ParseID] does.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}
