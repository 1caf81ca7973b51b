package outbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Message is an event for the world outside of the database.
type Message struct {
	// ID is the message's identity for brokers and consumers, the same each time it is sent: 1 to 255 visible ASCII
	// characters. No two messages in an outbox have the same. Defaults to a new UUIDv7.
	ID string
	// Topic says where the message goes: 1 to 255 bytes of UTF-8 without NUL.
	Topic string
	// Key names what the message is about, such as an order. Messages of one tenant, topic and key are first delivered in
	// the order in which they were committed, if their transactions lock what the key names before they add. At most 255
	// bytes of UTF-8 without NUL. Defaults to no order.
	Key string
	// Tenant is whose message it is. Relays take turns between tenants, so that one with many messages does not make
	// others wait. At most 255 bytes of UTF-8 without NUL. Defaults to none.
	Tenant string
	// Payload is at most [Options].MaxPayload bytes.
	Payload []byte
	// Headers have names of 1 to 255 of the characters of an HTTP field name (RFC 9110, section 5.6.2), and values of UTF-8
	// without control characters. Together they have at most 64 KiB.
	Headers map[string]string
	// Delay is how long after Add the message may be sent at the earliest: 0 to 10 years. Later messages of its key wait for
	// it. It is 0 in a message that is given to a Publisher. Defaults to none.
	Delay time.Duration
}

// A Publisher hands messages to a broker. It is called concurrently.
type Publisher interface {
	// Publish returns once the broker has acknowledged or refused each message: the error at i is about batch[i], and a
	// nil slice means that all are acknowledged. An error that wraps [ErrRefused] is final; after any other one the message
	// is sent again, also if it may have arrived. All messages of a batch have the same tenant and topic, and no two the
	// same key, unless that is empty. Message.ID is to be the broker's id for deduplication where it has one. Publish
	// returns soon after ctx ends. The batch belongs to Publish until it returns.
	Publish(ctx context.Context, batch []*Message) []error
}

// Limits of a message.
const (
	maxName    = 255 // bytes of an id, a topic, a key, a tenant, a header's name
	maxHeaders = 64 << 10
	maxDelay   = 10 * 365 * 24 * time.Hour
)

// check reports why the message can't be added. The error wraps [ErrInvalid].
func (m *Message) check(maxPayload int) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
	}
	if m.ID == "" || len(m.ID) > maxName || strings.IndexFunc(m.ID, func(c rune) bool { return c < '!' || c > '~' }) >= 0 {
		return fail("the id %s must be 1 to %d visible ASCII characters", quoted(m.ID), maxName)
	}
	if m.Topic == "" {
		return fail("message %s has no topic", m.ID)
	}
	for _, f := range []struct{ name, value string }{{"topic", m.Topic}, {"key", m.Key}, {"tenant", m.Tenant}} {
		if len(f.value) > maxName || !utf8.ValidString(f.value) || strings.IndexByte(f.value, 0) >= 0 {
			return fail("the %s %s of message %s must be at most %d bytes of UTF-8 without NUL", f.name, quoted(f.value), m.ID, maxName)
		}
	}
	if len(m.Payload) > maxPayload {
		return fail("the payload of message %s has %d bytes, at most %d are allowed", m.ID, len(m.Payload), maxPayload)
	}
	if m.Delay < 0 || m.Delay > maxDelay {
		return fail("the delay %v of message %s must be from 0 to 10 years", m.Delay, m.ID)
	}
	size := 0
	for name, value := range m.Headers {
		if name == "" || len(name) > maxName || strings.IndexFunc(name, notInFieldName) >= 0 {
			return fail("the header's name %s of message %s must be 1 to %d characters of an HTTP field name", quoted(name), m.ID, maxName)
		}
		if !utf8.ValidString(value) || strings.IndexFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }) >= 0 {
			return fail("the value of the header %q of message %s must be UTF-8 without control characters", name, m.ID)
		}
		size += len(name) + len(value)
	}
	if size > maxHeaders {
		return fail("the headers of message %s have %d bytes, at most %d are allowed", m.ID, size, maxHeaders)
	}
	return nil
}

func notInFieldName(c rune) bool {
	return (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

// quoted returns a text for an error, not longer than is of use.
func quoted(s string) string {
	if len(s) > 64 {
		s = s[:64] + "…"
	}
	return fmt.Sprintf("%q", s)
}

// newID returns a UUIDv7 (RFC 9562, section 5.7): later ones sort after earlier ones, to the millisecond.
func newID() string {
	var b [16]byte
	rand.Read(b[6:])
	ms := uint64(time.Now().UnixMilli())
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
