package semel

import "github.com/semelhq/semel/internal/keyformat"

// KeyFormat says which keys a route accepts. The zero value accepts 1 to 255 visible ASCII characters other than quote,
// backslash, comma and semicolon, in the quoted form or bare. Keys are case-sensitive, except under a UUID rule.
//
// The format is checked on the decoded key, so quoting allows no further keys: a key that needs an escape is refused.
type KeyFormat struct {
	// Strict accepts a header's value only in the quoted form of draft-ietf-httpapi-idempotency-key-header-07, an
	// sf-string (RFC 9651, section 3.3.3). Keys that do not come in a header are not affected.
	Strict bool
	// UUID accepts only UUIDs. Defaults to AnyKey.
	UUID UUIDRule
	// MaxLength is the length of the longest key accepted, 1 to 255 characters; with a UUID rule at least 36. Defaults
	// to 255.
	MaxLength int
	// Check is asked about each key that satisfies the rules above, and can refuse it. The text of its error is shown to
	// the client in the 400. It is called concurrently.
	Check func(key string) error
}

// UUIDRule says whether a key must be a UUID.
type UUIDRule uint8

// The rules for UUIDs. A UUID has the text form and the variant of RFC 9562, section 4. Its hexadecimal digits may be
// in upper or lower case: it is the same key, and its owner sees it as it was sent. The nil and the max UUID, which are
// of another variant, are refused: clients send them when they have forgotten to make a UUID.
const (
	AnyKey  = UUIDRule(keyformat.AnyKey)  // any key
	UUIDAny = UUIDRule(keyformat.UUIDAny) // a UUID of any version
	UUIDv4  = UUIDRule(keyformat.UUIDv4)  // a random UUID, version 4
)

// format returns the rules in the form in which keys are read.
func (f *KeyFormat) format() *keyformat.Format {
	return &keyformat.Format{Strict: f.Strict, UUID: keyformat.UUIDRule(f.UUID), MaxLength: f.MaxLength, Check: f.Check}
}
