package client

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/refusal"
)

// A Key stands for one logical call. Keep it where it survives a crash, before the call, and use the same one until the
// call has a definite answer: see [Do].
type Key struct {
	// Value is 1 to 255 visible ASCII characters, or spaces, which servers may refuse. In the bare form, without space,
	// quote, backslash, comma and semicolon.
	Value string `json:"value"`
	// Made is when the key was made, and so the time from which Options.MaxAge counts. The zero value means now.
	Made time.Time `json:"made"`

	unsent *atomic.Bool // shared by all copies; nil, as of a key that was kept or derived: it may have been sent
}

// NewKey makes a key: a random UUID (version 4, RFC 9562). Until it is sent for the first time, the process knows that
// no earlier request can have had it.
func NewKey() Key {
	var u [16]byte
	rand.Read(u[:])
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	value := fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
	unsent := &atomic.Bool{}
	unsent.Store(true)
	return Key{Value: value, Made: time.Now().Round(0), unsent: unsent} // a wall clock's time: it is compared across processes
}

// take takes the key for a call, and reports whether it may have been sent before.
func (k Key) take() bool { return k.unsent == nil || !k.unsent.Swap(false) }

// Digest stands for the key in logs and metrics: 16 hexadecimal digits of its SHA-256, "" if there is no key.
func (k Key) Digest() string {
	if k.Value == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(k.Value))
	return hex.EncodeToString(sum[:8])
}

// LogValue implements [slog.LogValuer] with the digest.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.Digest()) }

type keyContext struct{}

// WithKey returns a context in which a request of an unsafe method has the given key, unless it brings one in its
// header. It is for one logical call: another request under the same key is refused by the server. In the handler of a
// protected operation the key is best derived from it, so that each run of the handler makes the same call:
//
//	ctx = client.WithKey(ctx, client.Key{Value: semel.FromContext(ctx).Key("charge")})
func WithKey(ctx context.Context, k Key) context.Context {
	return context.WithValue(ctx, keyContext{}, k)
}

const maxKeyLength = 255

// encode returns the header's text for a key. An error wraps refusal.KeyInvalid; it never repeats the key.
func encode(key string, bare bool) (string, error) {
	if key == "" || len(key) > maxKeyLength {
		return "", fmt.Errorf("%w: %d characters, want 1 to %d", refusal.KeyInvalid, len(key), maxKeyLength)
	}
	escapes := 0
	for i := range len(key) {
		switch c := key[i]; {
		case c < ' ' || c > '~':
			return "", fmt.Errorf("%w: byte 0x%02x is not visible ASCII", refusal.KeyInvalid, c)
		case bare && strings.IndexByte(` "\,;`, c) >= 0:
			return "", fmt.Errorf("%w: character %q is not allowed in the bare form", refusal.KeyInvalid, c)
		case c == '"' || c == '\\':
			escapes++
		}
	}
	if bare {
		return key, nil
	}
	text := make([]byte, 0, len(key)+escapes+2)
	text = append(text, '"')
	for i := range len(key) {
		if key[i] == '"' || key[i] == '\\' {
			text = append(text, '\\')
		}
		text = append(text, key[i])
	}
	return string(append(text, '"')), nil
}

// decode returns the key in a header's text, in either form. What follows a closing quote is left to the server.
func decode(text string) (string, error) {
	text = strings.Trim(text, " \t")
	if !strings.HasPrefix(text, `"`) {
		_, err := encode(text, true)
		return text, err
	}
	var key []byte
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			if rest := strings.TrimLeft(text[i+1:], " "); rest != "" && rest[0] != ';' {
				return "", fmt.Errorf("%w: only parameters may follow the closing quote", refusal.KeyInvalid)
			}
			_, err := encode(string(key), false)
			return string(key), err
		case c == '\\':
			if i++; i == len(text) || text[i] != '"' && text[i] != '\\' {
				return "", fmt.Errorf(`%w: backslash may only stand before " or \`, refusal.KeyInvalid)
			}
			key = append(key, text[i])
		default:
			key = append(key, c)
		}
	}
	return "", fmt.Errorf("%w: quote is not closed", refusal.KeyInvalid)
}

// takeHeader removes a header, whatever the case of its name in the map, and returns its field lines.
func takeHeader(h http.Header, name string) (lines []string) {
	for k, v := range h {
		if http.CanonicalHeaderKey(k) == name {
			lines = append(lines, v...)
			delete(h, k)
		}
	}
	return lines
}

// conceal hides the names on which Go's http.Transport would send a request again by itself, unseen and uncounted, when
// a reused connection breaks before the answer: it looks for them in their canonical form only. On the wire a name's
// case has no meaning (RFC 9110, section 5.1).
func conceal(h http.Header) {
	for _, name := range [...]string{"Idempotency-Key", "X-Idempotency-Key"} {
		if lines, ok := h[name]; ok {
			delete(h, name)
			h[strings.ToLower(name)] = lines
		}
	}
}
