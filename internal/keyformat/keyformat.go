// Package keyformat reads idempotency keys, and says which of them a route accepts.
package keyformat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/semelhq/semel/internal/structuredfield"
	"github.com/semelhq/semel/refusal"
)

// A Format says which keys a route accepts. Its fields are those of semel.KeyFormat, which explains them.
type Format struct {
	Strict    bool
	UUID      UUIDRule
	MaxLength int
	Check     func(key string) error
}

// UUIDRule says whether a key must be a UUID; see semel.UUIDRule.
type UUIDRule uint8

// The rules for UUIDs.
const (
	AnyKey UUIDRule = iota
	UUIDAny
	UUIDv4
)

const (
	maxLength  = 255
	uuidLength = 36
)

// Validate reports a format that contradicts its documentation.
func (f *Format) Validate() error {
	switch {
	case f.UUID > UUIDv4:
		return fmt.Errorf("unknown UUID rule %d", f.UUID)
	case f.MaxLength < 0 || f.MaxLength > maxLength:
		return fmt.Errorf("MaxLength is %d, want 1 to %d", f.MaxLength, maxLength)
	case f.UUID != AnyKey && f.MaxLength != 0 && f.MaxLength < uuidLength:
		return fmt.Errorf("MaxLength is %d, but a UUID has %d characters", f.MaxLength, uuidLength)
	}
	return nil
}

// Parse reads the key from the field lines of one header, and returns it in the form in which keys are compared.
// Without a line there is no key: it returns "" and no error. Any other input that is not exactly one valid key is an
// error that wraps refusal.KeyInvalid and names the broken rule. So a malformed key is never taken for no key.
// The error never repeats the client's text, except for one visible character.
func Parse(lines []string, f *Format) (string, error) {
	if len(lines) == 0 {
		return "", nil
	}
	if len(lines) > 1 {
		// Equal lines are refused too: a hop that sees only the first line, or only the last, would see another operation
		//
		return "", invalid("sent in %d field lines, want one", len(lines))
	}
	key := strings.Trim(lines[0], " \t") // OWS, RFC 9110, section 5.6.3
	switch {
	case key == "":
		return "", invalid("empty")
	case key[0] == '"':
		value, rest, err := structuredfield.ReadString(key)
		if err == nil { // the draft defines no parameters, so what they say is ignored
			rest, err = structuredfield.SkipParameters(rest)
		}
		if err == nil && rest != "" {
			err = errTrailing
		}
		if err != nil {
			return "", fmt.Errorf("%w: %w", refusal.KeyInvalid, err)
		}
		key = value
	case f.Strict:
		return "", invalid("not in quotes, want the form %s", `"key"`)
	}
	return Check(key, f)
}

// Check returns a decoded key in the form in which keys are compared. If the key breaks a rule of the format, it
// returns an error that names the rule and wraps refusal.KeyInvalid.
func Check(key string, f *Format) (string, error) {
	limit := f.MaxLength
	if limit == 0 {
		limit = maxLength
	}
	if key == "" {
		return "", invalid("empty")
	}
	if len(key) > limit {
		return "", invalid("longer than %d characters", limit)
	}
	for i := range len(key) {
		switch c := key[i]; {
		case c < 0x20 || c > 0x7e:
			return "", fmt.Errorf("%w: %w", refusal.KeyInvalid, structuredfield.ByteError(c))
		case c == ' ' || c == '"' || c == '\\' || c == ',' || c == ';':
			return "", invalid("character %q is not allowed", c)
		}
	}
	if f.UUID != AnyKey {
		if !isUUID(key) {
			return "", invalid("not a UUID (RFC 9562)")
		}
		if f.UUID == UUIDv4 && key[14] != '4' {
			return "", invalid("not a UUID of version 4")
		}
	}
	if f.Check != nil {
		if err := f.Check(key); err != nil {
			return "", fmt.Errorf("%w: %w", refusal.KeyInvalid, err)
		}
	}
	return f.Compared(key), nil
}

// Compared returns a valid key in the form in which keys are compared, and from which identities are made. Where only
// UUIDs are keys, this is the lower case (RFC 9562, section 4).
func (f *Format) Compared(key string) string {
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

var errTrailing = errors.New("only parameters may follow the closing quote")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", refusal.KeyInvalid, fmt.Sprintf(format, args...))
}
