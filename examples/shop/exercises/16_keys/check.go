package keys

import (
	"context"
	"errors"
	"strings"
	"time"
)

// Check says what is wrong with Key and Identity, or nil.
func Check(_ context.Context, solution bool) error {
	key, identity := Key, Identity
	if solution {
		key, identity = solvedKey, solvedIdentity
	}
	first := Click{User: "alice@example.org", Body: `{"book":1}`, At: time.Unix(1000, 0), Wish: "6d3b5c1e-0d0c-4c39-8e7c-0f3f5b0c1a77", Number: 1}
	retry, next, other := first, first, first
	retry.At, retry.Number = time.Unix(1060, 0), 2
	next.At, next.Wish = time.Unix(2000, 0), "f2a1c0b4-58d7-4f0e-9a53-7d1f3f8f2c90"
	other.User, other.Wish = "bob@example.org", "0c9a7a52-3f1b-4a44-b7a6-2f6f0f1f6d11"
	switch {
	case key(first) == "":
		return errors.New("a click has no key at all")
	case key(first) != key(retry):
		return errors.New("a retry a minute later has another key: it would pay again")
	case key(first) == key(next):
		return errors.New("alice buys the same book again, an hour later, and gets the answer of the first time: she has one book, and wanted two")
	case key(first) == key(other):
		return errors.New("alice and bob have the same key")
	case strings.Contains(key(first), "alice"):
		return errors.New("the key names the user: keys stand in logs of proxies and in other companies' databases")
	}
	for _, pairs := range [][2][2]string{{{"acme", "key"}, {"other", "key"}}, {{"ac", "mekey"}, {"acme", "key"}}, {{"acme:", "1"}, {"acme", ":1"}}, {{"a", "1"}, {"a", "2"}}} {
		if identity(pairs[0][0], pairs[0][1]) == identity(pairs[1][0], pairs[1][1]) {
			return errors.New("tenant and key " + strings.Join(pairs[0][:], ", ") + " are stored as tenant and key " + strings.Join(pairs[1][:], ", ") + ": one of them gets the other's answer")
		}
	}
	if first, second := identity("acme", "key"), identity("acme", "key"); first != second {
		return errors.New("a retry is stored as another operation")
	}
	return nil
}
