package broken

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

var (
	errMissing = errors.New("an idempotency key is required")
	errSyntax  = errors.New("not a quoted string (RFC 9651 section 3.3.3), and not a bare key")
)

const maxKey = 255 // characters

const (
	quoted    = `"((?:[ !#-\[\]-~]|\\["\\])*)"`
	parameter = `; *[a-z*][a-z0-9_.*-]*(?:=(?:` + quoted + `|[!#$%&'*+./:?=@^_|~0-9A-Za-z-]+))?`
)

var (
	// quotedKey is a string of RFC 9651 with its parameters, which say nothing here.
	quotedKey = regexp.MustCompile(`^` + quoted + `(?:` + parameter + `)*$`)
	// plainKey is what a key may be: visible ASCII without quotation mark, backslash, comma and semicolon.
	plainKey = regexp.MustCompile(`^[!#-+\--:<-\[\]-~]+$`)
	escape   = strings.NewReplacer(`\"`, `"`, `\\`, `\`)
)

// parseKey reads the key from the lines of its header. No line is errMissing; anything else that is not
// one valid key is another error, so that a malformed key is never taken for none. Two lines are an error even if they
// are equal: somebody on the way may have seen the first one only.
func parseKey(lines []string) (string, error) {
	if len(lines) == 0 {
		return "", errMissing
	}
	if len(lines) > 1 {
		return "", fmt.Errorf("sent in %d lines, want one", len(lines))
	}
	key := strings.Trim(lines[0], " \t")
	if strings.HasPrefix(key, `"`) {
		parts := quotedKey.FindStringSubmatch(key)
		if parts == nil {
			return "", errSyntax
		}
		key = escape.Replace(parts[1])
	}
	switch {
	case len(key) > maxKey:
		return "", fmt.Errorf("longer than %d characters", maxKey)
	case !plainKey.MatchString(key):
		return "", errSyntax
	}
	return key, nil
}

// A twin is an operation that had a body, and when.
type twin struct {
	id string
	at time.Time
}

// identity returns what an account's key stands for. Keys themselves are not stored.
func (l *Layer) identity(account, key, print string) string {
	if l.bug == "mix-tenants" {
		account = ""
	}
	if l.bug == "fold-case" {
		key = strings.ToLower(key)
	}
	if l.bug == "truncate-key" && len(key) > 64 {
		key = key[:64]
	}
	id := digest(account, key)
	if l.bug == "body-as-key" {
		id = l.sameBody(digest(account, print), id)
	}
	return id
}

// sameBody returns the operation that had this body a short time ago, or id.
func (l *Layer) sameBody(body, id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if t, ok := l.bodies[body]; ok && now.Sub(t.at) < time.Minute {
		return t.id
	}
	l.bodies[body] = twin{id, now}
	return id
}

// digest returns one text for several: other parts are another digest, however they are cut.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}
