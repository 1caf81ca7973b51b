package fingerprint

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strings"

	"github.com/semelhq/semel/internal/requestbody"
	"github.com/semelhq/semel/internal/structuredfield"
	"github.com/semelhq/semel/refusal"
)

// CheckContentDigest compares the body as it was sent with its Content-Digest (RFC 9530, section 2), if there is one.
// An error wraps refusal.DigestMismatch, unless a body in a temporary file can't be read. Algorithms other than sha-256
// and sha-512 are ignored. If the field itself can't be read the request is refused, as RFC 9651, section 4.2, allows:
// its sender wanted the body checked.
func CheckContentDigest(h http.Header, b *requestbody.Body) error {
	lines := h["Content-Digest"]
	if len(lines) == 0 {
		return nil
	}
	digests, err := parseContentDigest(strings.Join(lines, ","))
	if err != nil {
		return fmt.Errorf("%w: %w", refusal.DigestMismatch, err)
	}
	for name, want := range digests {
		sum := contentDigests[name]()
		if _, err := io.Copy(sum, b.Sent()); err != nil {
			return fmt.Errorf("%w: read: %w", requestbody.ErrSpooled, err)
		}
		if string(sum.Sum(nil)) != want {
			return fmt.Errorf("%w: %s of the body is another one", refusal.DigestMismatch, name)
		}
	}
	return nil
}

// contentDigests are the algorithms of RFC 9530 that are safe against an attacker.
var contentDigests = map[string]func() hash.Hash{"sha-256": sha256.New, "sha-512": sha512.New}

var (
	errDigestField = errors.New("not a dictionary of structured fields")
	errDigestValue = errors.New("a digest is not a byte sequence")
)

// parseContentDigest returns the digests of the known algorithms, by algorithm. If a name occurs again it replaces the
// first, as in any dictionary (RFC 9651, section 4.2.2).
func parseContentDigest(s string) (map[string]string, error) {
	digests := map[string]string{}
	for s = strings.Trim(s, " \t"); s != ""; {
		n := structuredfield.Name(s)
		if n == 0 {
			return nil, errDigestField
		}
		name, value, ok := s[:n], "", true
		if s = s[n:]; strings.HasPrefix(s, "=") {
			from := s[1:]
			s, ok = skipMember(from)
			value = from[:len(from)-len(s)]
		}
		rest, err := structuredfield.SkipParameters(s)
		if s = rest; err != nil || !ok {
			return nil, errDigestField
		}
		if contentDigests[name] != nil {
			digest, err := byteSequence(value)
			if err != nil {
				return nil, err
			}
			digests[name] = digest
		}
		if s = strings.TrimLeft(s, " \t"); s == "" {
			break
		}
		if s[0] != ',' {
			return nil, errDigestField
		}
		if s = strings.TrimLeft(s[1:], " \t"); s == "" {
			return nil, errDigestField
		}
	}
	return digests, nil
}

// byteSequence decodes a byte sequence, whose padding may be missing (RFC 9651, section 4.2.7).
func byteSequence(s string) (string, error) {
	if len(s) < 2 || s[0] != ':' {
		return "", errDigestValue
	}
	value, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s[1:len(s)-1], "="))
	if err != nil {
		return "", errDigestValue
	}
	return string(value), nil
}

// skipMember returns the text after the item or inner list with which s begins.
func skipMember(s string) (rest string, ok bool) {
	if !strings.HasPrefix(s, "(") {
		return structuredfield.SkipBareItem(s)
	}
	for s = s[1:]; ; {
		trimmed := strings.TrimLeft(s, " ")
		if strings.HasPrefix(trimmed, ")") {
			return trimmed[1:], true
		}
		if s, ok = structuredfield.SkipBareItem(trimmed); !ok {
			return "", false
		}
		var err error
		if s, err = structuredfield.SkipParameters(s); err != nil || s == "" || s[0] != ' ' && s[0] != ')' {
			return "", false
		}
	}
}
