package semel

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/semelhq/semel/refusal"
)

// KeyFormat says which keys a route accepts. The zero value accepts 1 to 255 visible ASCII characters other than
// quote, backslash, comma and semicolon, in the quoted form or bare. Keys are case-sensitive, but for those of
// a UUID rule.
//
// The format is that of the decoded key, so quoting widens nothing: a key that needs an escape breaks it.
type KeyFormat struct {
	// Strict accepts a header's value only in the quoted form of draft-ietf-httpapi-idempotency-key-header-07, an
	// sf-string (RFC 9651, section 3.3.3). Keys that do not come in a header are not affected.
	Strict bool
	// UUID accepts only UUIDs. Defaults to AnyKey.
	UUID UUIDRule
	// MaxLength is the length of the longest key accepted, 1 to 255 characters; with a UUID rule at least 36. Defaults
	// to 255.
	MaxLength int
	// Check is asked about each key that keeps the rules above, and can refuse it. The text of its error is shown to
	// the client in the 400. It is called concurrently.
	Check func(key string) error
}

// UUIDRule says whether a key must be a UUID.
type UUIDRule uint8

// The rules for UUIDs. A UUID has the text form and the variant of RFC 9562, section 4; in either case of its hexadecimal
// digits it is the same key, and its owner sees it as it was sent. The nil and the max UUID, which are of another variant,
// are refused: they are what a client sends that forgot to make one.
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

// parseKey reads the key from the field lines of one header, in the form in which it is compared. Without a line there is no
// key: it returns "" and no error. Anything else that is not exactly one valid key is an error which wraps refusal.KeyInvalid and names the broken
// rule, so that a malformed key is never taken for none. The error never repeats what the client sent, save for
// one visible character.
func parseKey(lines []string, f *KeyFormat) (string, error) {
	if len(lines) == 0 {
		return "", nil
	}
	if len(lines) > 1 {
		// Even equal ones: a hop that sees only the first, or only the last, would mean another operation.
		return "", keyInvalid("sent in %d field lines, want one", len(lines))
	}
	key := strings.Trim(lines[0], " \t") // OWS, RFC 9110, section 5.6.3
	switch {
	case key == "":
		return "", keyInvalid("empty")
	case key[0] == '"':
		value, rest, err := sfString(key)
		if err == nil {
			err = sfParameters(rest)
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

// checkKey returns a decoded key in the form in which it is compared, or which rule of the format it breaks, as an error
// that wraps refusal.KeyInvalid.
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
			return "", fmt.Errorf("%w: %w", refusal.KeyInvalid, byteError(c))
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

// compared returns a valid key in the form in which it is compared, and of which identities are made: a UUID, where only
// they are keys, in lower case (RFC 9562, section 4).
func (f *KeyFormat) compared(key string) string {
	if f.UUID == AnyKey || !isUUID(key) { // a key that was minted need not be one
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
			if c := s[i] | 0x20; !isDigit(s[i]) && (c < 'a' || c > 'f') {
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

// byteError refuses a byte that no structured field and no key may hold. It is named, not repeated.
type byteError byte

func (c byteError) Error() string { return fmt.Sprintf("byte 0x%02x is not visible ASCII", byte(c)) }

// Errors of the quoted form.
var (
	errUnclosed   = errors.New("quote is not closed")
	errEscape     = errors.New(`backslash may only stand before " or \`)
	errTrailing   = errors.New("only parameters may follow the closing quote")
	errParamName  = errors.New("malformed parameter name")
	errParamValue = errors.New("malformed parameter value")
)

// sfString reads the sf-string (RFC 9651, section 4.2.5) with which s begins, and returns its value and what follows.
func sfString(s string) (value, rest string, err error) {
	var decoded []byte // nil as long as the value is a part of s
	from := 1
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' && decoded == nil:
			return s[from:i], s[i+1:], nil
		case c == '"':
			return string(append(decoded, s[from:i]...)), s[i+1:], nil
		case c == '\\':
			decoded = append(decoded, s[from:i]...)
			if i++; i == len(s) {
				return "", "", errUnclosed
			}
			if s[i] != '"' && s[i] != '\\' {
				return "", "", errEscape
			}
			from = i
		case c < 0x20 || c > 0x7e:
			return "", "", byteError(c)
		}
	}
	return "", "", errUnclosed
}

// sfParameters checks that s consists of parameters (RFC 9651, section 4.2.3.2). The draft defines none, so what they
// say is ignored.
func sfParameters(s string) error {
	for s != "" {
		if s[0] != ';' {
			return errTrailing
		}
		s = strings.TrimLeft(s[1:], " ")
		n := span(s, isParamNameByte)
		if n == 0 || s[0] != '*' && !isLower(s[0]) {
			return errParamName
		}
		s = s[n:]
		if strings.HasPrefix(s, "=") {
			var ok bool
			if s, ok = skipBareItem(s[1:]); !ok {
				return errParamValue
			}
		}
	}
	return nil
}

// skipBareItem returns what follows the bare item (RFC 9651, section 4.2.3.1) with which s begins.
func skipBareItem(s string) (rest string, ok bool) {
	if s == "" {
		return "", false
	}
	switch c := s[0]; {
	case c == '-' || isDigit(c):
		return skipNumber(s, true)
	case c == '@': // date
		return skipNumber(s[1:], false)
	case c == '"':
		_, rest, err := sfString(s)
		return rest, err == nil
	case c == '*' || isLower(c|0x20):
		return s[span(s, isTokenByte):], true
	case c == '?': // boolean
		if len(s) < 2 || s[1] != '0' && s[1] != '1' {
			return "", false
		}
		return s[2:], true
	case c == ':':
		return skipBinary(s)
	case c == '%':
		return skipDisplayString(s)
	}
	return "", false
}

// skipNumber skips an integer of up to 15 digits, or, if decimal is set, also a decimal of up to 12 and 3.
func skipNumber(s string, decimal bool) (rest string, ok bool) {
	s = strings.TrimPrefix(s, "-")
	whole := span(s, isDigit)
	if s = s[whole:]; !strings.HasPrefix(s, ".") {
		return s, whole >= 1 && whole <= 15
	}
	fraction := span(s[1:], isDigit)
	return s[1+fraction:], decimal && whole >= 1 && whole <= 12 && fraction >= 1 && fraction <= 3
}

// skipBinary skips a byte sequence. As RFC 9651 asks of parsers, missing padding is let pass.
func skipBinary(s string) (rest string, ok bool) {
	s = s[1:]
	digits := span(s, isBase64Byte)
	s = s[digits:]
	padding := span(s, func(c byte) bool { return c == '=' })
	if s = s[padding:]; !strings.HasPrefix(s, ":") {
		return "", false
	}
	return s[1:], digits%4 != 1 && (padding == 0 || padding <= 2 && (digits+padding)%4 == 0)
}

// skipDisplayString skips a display string (RFC 9651, section 4.2.10).
func skipDisplayString(s string) (rest string, ok bool) {
	if !strings.HasPrefix(s, `%"`) {
		return "", false
	}
	var text []byte
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[i+1:], utf8.Valid(text)
		case c < 0x20 || c > 0x7e:
			return "", false
		case c == '%':
			if len(s)-i < 3 || !isLowerHex(s[i+1]) || !isLowerHex(s[i+2]) {
				return "", false
			}
			text = append(text, unhex(s[i+1])<<4|unhex(s[i+2]))
			i += 2
		default:
			text = append(text, c)
		}
	}
	return "", false
}

// span returns how many bytes at the start of s are of the class.
func span(s string, class func(byte) bool) int {
	for i := range len(s) {
		if !class(s[i]) {
			return i
		}
	}
	return len(s)
}

func isDigit(c byte) bool    { return c >= '0' && c <= '9' }
func isLower(c byte) bool    { return c >= 'a' && c <= 'z' }
func isLowerHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' }

func isParamNameByte(c byte) bool {
	return isLower(c) || isDigit(c) || c == '_' || c == '-' || c == '.' || c == '*'
}

func isTokenByte(c byte) bool {
	return isLower(c|0x20) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}

func isBase64Byte(c byte) bool { return isLower(c|0x20) || isDigit(c) || c == '+' || c == '/' }

// unhex returns the value of a lower-case hexadecimal digit.
func unhex(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return c - 'a' + 10
}
