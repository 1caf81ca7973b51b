// Package identity checks that a storage is used with one identity secret: the option IdentitySecret of a guard.
package identity

import (
	"context"
	"fmt"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/defaults"
	"github.com/semelhq/semel/internal/digest"
	"github.com/semelhq/semel/internal/engine"
)

// ErrOtherSecret means that the storage was first used with another identity secret: the storage has one and the guard
// has a different one, or only one of the two has a secret. With this secret every key would be new, and every repeat
// would run again.
var ErrOtherSecret = engine.ErrOtherSecret

// Check makes sure that a storage is used with one identity secret only. The first call writes a check value: a
// digest under the secret, in a record of its own ([driver.ID.Reserved]) that never expires. Every later call compares
// the secret with it. If the secret is another, the call returns an error that wraps [ErrOtherSecret] and changes
// nothing. Having no secret counts as a secret too.
//
// A guard does the same by itself before its first claim, and claims nothing before the check has succeeded. Call
// Check where a process starts, to get an error there instead of refused requests. Records that are older than the check
// value are not checked. Check can be repeated after any error, and called by several processes at once. If their
// secrets differ, the processes with one of the secrets succeed.
func Check(ctx context.Context, store driver.Store, secret []byte) error {
	mark, err := markOf(secret)
	if err != nil {
		return err
	}
	return engine.CheckIdentity(ctx, store, mark)
}

// Verify is [Check] for tools that must not write: it only compares. known is false if the storage has
// no check value.
func Verify(ctx context.Context, store driver.Store, secret []byte) (known bool, err error) {
	mark, err := markOf(secret)
	if err != nil {
		return false, err
	}
	rec, err := engine.LoadIdentity(ctx, store, mark)
	return rec.State != driver.Absent, err
}

// markOf is the check value of a secret.
func markOf(secret []byte) (driver.Fingerprint, error) {
	if len(secret) > 0 && len(secret) < defaults.LeastSecret {
		return driver.Fingerprint{}, fmt.Errorf("check the identity secret: it has %d bytes, want at least %d", len(secret), defaults.LeastSecret)
	}
	return digest.New(secret).Mark(), nil
}
