package keyring

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/semelhq/semel/driver"
)

// SealNames encrypts the names of a claim, and binds them to the claim's token. The operation's name keeps its token
// when the next run replaces the correlation id.
func (k *Ring) SealNames(id driver.ID, c *driver.Claim) {
	if k == nil {
		return
	}
	c.Operation = k.sealName(operationField, id, c.Token, c.Operation)
	c.Correlation = k.sealName(correlationField, id, c.Token, c.Correlation)
}

func (k *Ring) sealName(field string, id driver.ID, t driver.Token, name string) string {
	if name == "" {
		return ""
	}
	return driver.SealedName + base64.RawURLEncoding.EncodeToString(k.SealField(field, id, t, []byte(name)))
}

const (
	operationField   = "operation"
	correlationField = "correlation"
)

// OpenNames decrypts the Operation and the Correlation of a record. A name that can't be read stays as it is stored,
// and the error wraps [driver.ErrUnreadable]. Then its key is not in the keyring, or it was not stored for this record,
// or it is not encrypted although the keyring is neither nil nor of [Ring.AllowPlain].
func (k *Ring) OpenNames(id driver.ID, rec *driver.Record) error {
	operation, err := k.openName(operationField, id, rec.Operation)
	if err == nil {
		rec.Operation = operation
	}
	correlation, other := k.openName(correlationField, id, rec.Correlation)
	if other == nil {
		rec.Correlation = correlation
	}
	return cmp.Or(err, other)
}

func (k *Ring) openName(field string, id driver.ID, name string) (string, error) {
	text, sealed := strings.CutPrefix(name, driver.SealedName)
	switch {
	case !sealed && (name == "" || k.readsPlain()):
		return name, nil
	case !sealed:
		return "", fmt.Errorf("open stored %s: %w: %w", field, driver.ErrUnreadable, errNotEncrypted)
	}
	envelope, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(envelope) == 0 || envelope[0] != envelopeSealed {
		return "", fmt.Errorf("open stored %s: %w: its form is unknown", field, driver.ErrUnreadable)
	}
	plain, err := k.OpenField(field, id, envelope)
	return string(plain), err
}
