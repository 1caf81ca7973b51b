package semel

import (
	"fmt"
	"strings"

	"github.com/semelhq/semel/internal/structuredfield"
	"github.com/semelhq/semel/refusal"
)

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
	AnyKey  UUIDRule = iota // any key
	UUIDAny                 // a UUID of any version
	UUIDv4                  // a random UUID, version 4
)

const (
	maxKeyLength = 255
	uuidLength   = 36
)

// validate reports a format that contradicts its documentation.
func (f KeyFormat) validate() error {
	switch {
	case f.UUID > UUIDv4:
		return fmt.Errorf("unknown UUID rule %d", f.UUID)
	case f.MaxLength < 0 || f.MaxLength > maxKeyLength:
		return fmt.Errorf("MaxLength is %d, want 1 to %d", f.MaxLength, maxKeyLength)
	case f.UUID != AnyKey && f.MaxLength != 0 && f.MaxLength < uuidLength:
		return fmt.Errorf("MaxLength is %d, but a UUID has %d characters", f.MaxLength, uuidLength)
	}
	return nil
}

// parseKey reads the key from the field lines of one header, and returns it in the form in which keys are compared.
// Without a line there is no key: it returns "" and no error. Any other input that is not exactly one valid key is an
// error that wraps refusal.KeyInvalid and names the broken rule. So a malformed key is never taken for no key.
// The error never repeats the client's text, except for one visible character.
func parseKey(lines []string, f *KeyFormat) (string, error) {
	if len(lines) == 0 {
		return "", nil
	}
	if len(lines) > 1 {
		// Equal lines are refused too: a hop that sees only the first line, or only the last, would see another operation
		//
		return "", keyInvalid("sent in %d field lines, want one", len(lines))
	}
	key := strings.Trim(lines[0], " \t") // OWS, RFC 9110, section 5.6.3
	switch {
	case key == "":
		return "", keyInvalid("empty")
	case key[0] == '"':
		value, rest, err := structuredfield.ReadString(key)
		if err == nil {
			err = structuredfield.Parameters(rest)
		}
		if err != nil {
			return "", fmt.Errorf("%w: %w", refusal.KeyInvalid, err)
		}
		key = value
	case f.Strict:
		return "", keyInvalid("not in quotes, want the form %s", `"key"`)
	}
	return checkKey(key, f)
}

// checkKey returns a decoded key in the form in which keys are compared. If the key breaks a rule of the format, it
// returns an error that names the rule and wraps refusal.KeyInvalid.
func checkKey(key string, f *KeyFormat) (string, error) {
	limit := f.MaxLength
	if limit == 0 {
		limit = maxKeyLength
	}
	if key == "" {
		return "", keyInvalid("empty")
	}
	if len(key) > limit {
		return "", keyInvalid("longer than %d characters", limit)
	}
	for i := range len(key) {
		switch c := key[i]; {
		case c < 0x20 || c > 0x7e:
			return "", fmt.Errorf("%w: %w", refusal.KeyInvalid, structuredfield.ByteError(c))
		case c == ' ' || c == '"' || c == '\\' || c == ',' || c == ';':
			return "", keyInvalid("character %q is not allowed", c)
		}
	}
	if f.UUID != AnyKey {
		if !isUUID(key) {
			return "", keyInvalid("not a UUID (RFC 9562)")
		}
		if f.UUID == UUIDv4 && key[14] != '4' {
			return "", keyInvalid("not a UUID of version 4")
		}
	}
	if f.Check != nil {
		if err := f.Check(key); err != nil {
			return "", fmt.Errorf("%w: %w", refusal.KeyInvalid, err)
		}
	}
	return f.compared(key), nil
}

// compared returns a valid key in the form in which keys are compared, and from which identities are made. Where only
// UUIDs are keys, this is the lower case (RFC 9562, section 4).
func (f *KeyFormat) compared(key string) string {
	if f.UUID == AnyKey || !isUUID(key) { // a minted key need not be a UUID
		return key
	}
	return strings.ToLower(key)
}

// isUUID reports whether s has the text form and the variant of RFC 9562.
func isUUID(s string) bool {
	if len(s) != uuidLength {
		return false
	}
	for i := range len(s) {
		switch i {
		case 8, 13, 18, 23:
			if s[i] != '-' {
				return false
			}
		default:
			if c := s[i] | 0x20; !structuredfield.IsDigit(s[i]) && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	switch s[19] {
	case '8', '9', 'a', 'b', 'A', 'B':
		return true
	}
	return false
}

func keyInvalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", refusal.KeyInvalid, fmt.Sprintf(format, args...))
}
