package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a webhook, in the form in which net/http has them.
const (
	idHeader        = "Webhook-Id"
	timestampHeader = "Webhook-Timestamp"
	signatureHeader = "Webhook-Signature"
)

const (
	secretPrefix            = "whsec_"
	minSecret, maxSecret    = 24, 64 // bytes, by the specification
	newSecret               = 32     // bytes
	signatureVersion        = "v1,"  // HMAC-SHA256
	longestID               = 255    // as of an outbox's message
	longestTimestampInBytes = 12
)

// NewSecret makes a secret for one endpoint: 32 random bytes in the form that its receiver needs too.
func NewSecret() string {
	key := make([]byte, newSecret)
	rand.Read(key) //nolint:errcheck // it never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// errSecret does not show the secret.
var errSecret = fmt.Errorf("a secret is not %s and the base64 of %d to %d bytes", secretPrefix, minSecret, maxSecret)

func parseSecrets(secrets []string) ([][]byte, error) {
	if len(secrets) == 0 {
		return nil, errors.New("there is no secret")
	}
	keys := make([][]byte, len(secrets))
	for i, secret := range secrets {
		text, prefixed := strings.CutPrefix(secret, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil || !prefixed || len(key) < minSecret || len(key) > maxSecret {
			return nil, errSecret
		}
		keys[i] = key
	}
	return keys, nil
}

// Sign sets the headers of a webhook: its id, the time of the attempt, and a signature for each secret. A secret is
// "whsec_" and the base64 of 24 to 64 bytes. An id has 1 to 255 visible ASCII characters, none of which is a full stop:
// a full stop divides the parts of what is signed.
func Sign(h http.Header, id string, at time.Time, payload []byte, secrets ...string) error {
	keys, err := parseSecrets(secrets)
	if err == nil {
		err = checkID(id)
	}
	if err != nil {
		return fmt.Errorf("sign webhook: %w", err)
	}
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(keys))
	for i, key := range keys {
		signatures[i] = signature(key, id, timestamp, payload)
	}
	h.Set(idHeader, id)
	h.Set(timestampHeader, timestamp)
	h.Set(signatureHeader, strings.Join(signatures, " "))
	return nil
}

func checkID(id string) error {
	if id == "" || len(id) > longestID {
		return fmt.Errorf("the id has %d characters, want 1 to %d", len(id), longestID)
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' || c == '.' {
			return errors.New("the id has a character that is not visible ASCII, or a full stop")
		}
	}
	return nil
}

func signature(key []byte, id, timestamp string, payload []byte) string {
	mac := hmac.New(sha256.New, key)
	for _, part := range [][]byte{[]byte(id), []byte("."), []byte(timestamp), []byte("."), payload} {
		mac.Write(part) //nolint:errcheck // it never fails
	}
	return signatureVersion + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// signed reports whether one of the signatures, which spaces divide, is by one of the keys. How long it takes does not
// depend on what is right in a wrong signature.
func signed(signatures string, keys [][]byte, id, timestamp string, payload []byte) bool {
	given := strings.Fields(signatures)
	ok := false
	for _, key := range keys {
		want := []byte(signature(key, id, timestamp, payload))
		for _, s := range given {
			ok = hmac.Equal([]byte(s), want) || ok
		}
	}
	return ok
}

// parseTimestamp reads whole seconds since 1970, in the one way in which a number can be written.
func parseTimestamp(text string) (time.Time, bool) {
	if text == "" || len(text) > longestTimestampInBytes || strings.Trim(text, "0123456789") != "" {
		return time.Time{}, false
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(seconds, 0), err == nil && strconv.FormatInt(seconds, 10) == text
}
