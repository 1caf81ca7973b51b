// Package structuredfield reads structured fields (RFC 9651), as far as keys and digests need them.
package structuredfield

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ByteError refuses a byte that no structured field and no key may hold. It is named, not repeated.
type ByteError byte

func (c ByteError) Error() string { return fmt.Sprintf("byte 0x%02x is not visible ASCII", byte(c)) }

// Errors of the quoted form.
var (
	errUnclosed   = errors.New("quote is not closed")
	errEscape     = errors.New(`backslash may only stand before " or \`)
	errParamName  = errors.New("malformed parameter name")
	errParamValue = errors.New("malformed parameter value")
)

// ReadString reads the sf-string (RFC 9651, section 4.2.5) with which s begins, and returns its value and what follows.
func ReadString(s string) (value, rest string, err error) {
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
			return "", "", ByteError(c)
		}
	}
	return "", "", errUnclosed
}

// Name returns how long the key is with which s begins (RFC 9651, section 4.2.3.3), 0 if there is none.
func Name(s string) int {
	if s == "" || s[0] != '*' && !IsLower(s[0]) {
		return 0
	}
	return span(s, func(c byte) bool { return IsLower(c) || IsDigit(c) || strings.IndexByte("_-.*", c) >= 0 })
}

// SkipParameters returns what follows the parameters with which s begins (RFC 9651, section 4.2.3.2).
func SkipParameters(s string) (rest string, err error) {
	for strings.HasPrefix(s, ";") {
		s = strings.TrimLeft(s[1:], " ")
		n := Name(s)
		if n == 0 {
			return "", errParamName
		}
		if s = s[n:]; strings.HasPrefix(s, "=") {
			var ok bool
			if s, ok = SkipBareItem(s[1:]); !ok {
				return "", errParamValue
			}
		}
	}
	return s, nil
}

// SkipBareItem returns what follows the bare item (RFC 9651, section 4.2.3.1) with which s begins.
func SkipBareItem(s string) (rest string, ok bool) {
	if s == "" {
		return "", false
	}
	switch c := s[0]; {
	case c == '-' || IsDigit(c):
		return skipNumber(s, true)
	case c == '@': // date
		return skipNumber(s[1:], false)
	case c == '"':
		_, rest, err := ReadString(s)
		return rest, err == nil
	case c == '*' || IsLower(c|0x20):
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
	whole := span(s, IsDigit)
	if s = s[whole:]; !strings.HasPrefix(s, ".") {
		return s, whole >= 1 && whole <= 15
	}
	fraction := span(s[1:], IsDigit)
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

// IsDigit reports whether c is a decimal digit.
func IsDigit(c byte) bool { return c >= '0' && c <= '9' }

// IsLower reports whether c is a lower-case letter of ASCII.
func IsLower(c byte) bool { return c >= 'a' && c <= 'z' }

func isLowerHex(c byte) bool { return IsDigit(c) || c >= 'a' && c <= 'f' }

func isTokenByte(c byte) bool {
	return IsLower(c|0x20) || IsDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}

func isBase64Byte(c byte) bool { return IsLower(c|0x20) || IsDigit(c) || c == '+' || c == '/' }

// unhex returns the value of a lower-case hexadecimal digit.
func unhex(c byte) byte {
	if IsDigit(c) {
		return c - '0'
	}
	return c - 'a' + 10
}

// IsToken reports whether s is a token of RFC 9110, section 5.6.2, as method and field names are.
func IsToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
