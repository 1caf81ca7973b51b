package outbox

import (
	"crypto/sha512"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/settings"
	"github.com/semelhq/semel/keyring"
)

// Options are what outboxes of all stores have in common. The zero value is valid.
type Options struct {
	// MaxPayload is the size of the largest payload, in bytes. Defaults to 1 MiB.
	MaxPayload int
	// Keep is how long a message stays in the outbox after it was sent, for operators. Defaults to 0: it is deleted with
	// the acknowledgement.
	Keep time.Duration
	// Keyring encrypts payloads and headers at rest, bound to id, topic, key and tenant. A message that was added
	// without encryption is then unreadable, except with a keyring of [keyring.Ring.AllowPlain]. Defaults to no encryption.
	Keyring *keyring.Ring
}

const maxPayloadDefault = 1 << 20

// Check reports what is wrong with the options.
func (o Options) Check() error {
	var f settings.Faults
	settings.Fill(&f, "MaxPayload", &o.MaxPayload, maxPayloadDefault)
	settings.Fill(&f, "Keep", &o.Keep, 0)
	return f.Err()
}

// A Row is a message in the form in which stores keep it.
type Row struct {
	ID, Topic, Key, Tenant string

	Payload []byte // not nil
	Headers []byte // a JSON object; nil if there are none
	Sealed  bool   // Payload and Headers are encrypted
	Delay   time.Duration
}

// Row checks a message and gives it the form in which stores keep it; one without an id gets one. An error wraps
// [ErrInvalid].
func (o Options) Row(m Message) (Row, error) {
	if m.ID == "" {
		m.ID = newID()
	}
	limit := o.MaxPayload
	if limit == 0 {
		limit = maxPayloadDefault
	}
	if err := m.check(limit); err != nil {
		return Row{}, err
	}
	r := Row{ID: m.ID, Topic: m.Topic, Key: m.Key, Tenant: m.Tenant, Payload: m.Payload, Delay: m.Delay}
	if r.Payload == nil {
		r.Payload = []byte{}
	}
	if len(m.Headers) > 0 {
		headers, err := json.Marshal(m.Headers)
		if err != nil {
			return Row{}, fmt.Errorf("%w: headers of message %s: %w", ErrInvalid, m.ID, err)
		}
		r.Headers = headers
	}
	if o.Keyring != nil {
		r.Sealed = true
		bound, t := r.bound(), driver.NewToken()
		r.Payload = o.Keyring.SealField(payloadField, bound, t, r.Payload)
		if r.Headers != nil {
			r.Headers = o.Keyring.SealField(headersField, bound, t, r.Headers)
		}
	}
	return r, nil
}

// Message reads a row. If it can't be read, the message lacks payload and headers, and the error wraps
// [driver.ErrUnreadable].
func (o Options) Message(r Row) (Message, error) {
	m := Message{ID: r.ID, Topic: r.Topic, Key: r.Key, Tenant: r.Tenant}
	payload, err := o.open(payloadField, &r, r.Payload)
	if err != nil {
		return m, fmt.Errorf("message %s: %w", r.ID, err)
	}
	var headers map[string]string
	if r.Headers != nil {
		text, err := o.open(headersField, &r, r.Headers)
		if err == nil && json.Unmarshal(text, &headers) != nil {
			err = fmt.Errorf("open stored headers: %w: not a JSON object of strings", driver.ErrUnreadable)
		}
		if err != nil {
			return m, fmt.Errorf("message %s: %w", r.ID, err)
		}
	}
	m.Payload, m.Headers = payload, headers
	return m, nil
}

const (
	payloadField = "outbox payload"
	headersField = "outbox headers"
)

func (o Options) open(field string, r *Row, stored []byte) ([]byte, error) {
	if !r.Sealed && o.Keyring == nil {
		return stored, nil
	}
	if !r.Sealed {
		stored = (*keyring.Ring)(nil).SealField(field, driver.ID{}, driver.Token{}, stored)
	} else if keyring.IsPlain(stored) {
		return nil, fmt.Errorf("open stored %s: %w: it says that it is encrypted, and is not", field, driver.ErrUnreadable)
	}
	return o.Keyring.OpenField(field, r.bound(), stored)
}

// bound is what the encrypted parts of a message are bound to: its id, and where it goes.
func (r *Row) bound() driver.ID {
	var b []byte
	for _, s := range []string{r.ID, r.Topic, r.Key, r.Tenant} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return driver.ID(sha512.Sum384(append([]byte("semel outbox 1\x00"), b...)))
}
