package semel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/digest"
)

// ErrOtherSecret means that a storage was made with another identity secret, or with one where there is none now, or
// without one. With this one every key would be new, and every repeat would run again.
var ErrOtherSecret = errors.New("the store was made with another identity secret")

// identityID is where every storage keeps the check value of its identity secret: the same under every secret, or it
// would not be found under another one.
var identityID = func() (id driver.ID) {
	copy(id[len(driver.ScopeID{}):], "semel identity check")
	return id
}()

// CheckIdentity makes sure that a storage is used with one identity secret only. The first call writes a check
// value, a digest under the secret, in a record of its own ([driver.ID.Reserved]) that never expires; every later one
// compares, and returns an error that wraps [ErrOtherSecret] if the secret is another. No secret is one too. Then
// nothing is changed.
//
// A guard does the same by itself before its first claim, and claims nothing before it has succeeded. Call
// CheckIdentity where a process starts, for an error there instead of refused requests. What was recorded before the
// check value was written is not checked. It can be repeated after any error, and called by several processes at once;
// of those with different secrets one succeeds.
func CheckIdentity(ctx context.Context, store driver.Store, secret []byte) error {
	mark, err := identityMark(secret)
	if err != nil {
		return err
	}
	return checkIdentity(ctx, store, mark)
}

func checkIdentity(ctx context.Context, store driver.Store, mark driver.Fingerprint) error {
	rec, err := loadIdentity(ctx, store, mark)
	if err != nil || rec.State == driver.Done {
		return err
	}
	// A record left running by a process that died binds as well as a finished one, and runs again: nothing is at stake.
	c := driver.Claim{Fingerprint: mark, Token: driver.NewToken(), Retention: Forever, OnLost: Rerun, Operation: "identity check"}
	var owned bool
	err = untilAcknowledged(ctx, func() (err error) {
		rec, owned, err = store.Claim(ctx, identityID, c)
		return err
	})
	if err != nil {
		return fmt.Errorf("check the identity secret: claim: %w", err)
	}
	if err := compareIdentity(&rec, mark); err != nil || !owned {
		return err // another process writes the same value
	}
	err = untilAcknowledged(ctx, func() error {
		_, _, err := store.Settle(ctx, identityID, rec.Owner(), driver.Outcome{State: driver.Done})
		return err // if not owned, another process has taken over, under the same secret
	})
	if err != nil {
		return fmt.Errorf("check the identity secret: settle: %w", err)
	}
	return nil
}

// VerifyIdentity is [CheckIdentity] for tools that must not write: it only compares. known is false if the storage has
// no check value.
func VerifyIdentity(ctx context.Context, store driver.Store, secret []byte) (known bool, err error) {
	mark, err := identityMark(secret)
	if err != nil {
		return false, err
	}
	rec, err := loadIdentity(ctx, store, mark)
	return rec.State != driver.Absent, err
}

// loadIdentity returns the check value's record, and an error if it could not be read or was made with another secret.
func loadIdentity(ctx context.Context, store driver.Store, mark driver.Fingerprint) (rec driver.Record, err error) {
	err = untilAcknowledged(ctx, func() error {
		rec, err = store.Load(ctx, identityID)
		return err
	})
	if err != nil {
		return driver.Record{}, fmt.Errorf("check the identity secret: load: %w", err)
	}
	return rec, compareIdentity(&rec, mark)
}

func compareIdentity(rec *driver.Record, mark driver.Fingerprint) error {
	if rec.State != driver.Absent && rec.Fingerprint != mark {
		return fmt.Errorf("check the identity secret: %w", ErrOtherSecret)
	}
	return nil
}

// identityMark is the check value of a secret.
func identityMark(secret []byte) (driver.Fingerprint, error) {
	if len(secret) > 0 && len(secret) < minSecret {
		return driver.Fingerprint{}, fmt.Errorf("check the identity secret: it has %d bytes, want at least %d", len(secret), minSecret)
	}
	return markOf(digest.New(secret)), nil
}

func markOf(d *digest.Digester) (f driver.Fingerprint) {
	sum := d.Start("semel identity check 1").Sum()
	copy(f.Raw[:], sum[:])
	copy(f.Canonical[:], sum[len(f.Raw):])
	return f
}

// untilAcknowledged repeats a verb whose reply may have been lost, a few times.
func untilAcknowledged(ctx context.Context, verb func() error) error {
	for try := 1; ; try++ {
		err := verb()
		if err == nil || try == claimTries || errors.Is(err, driver.ErrFull) || errors.Is(err, driver.ErrUnreadable) ||
			!pause(ctx, jitter(time.Duration(try)*50*time.Millisecond)) {
			return err
		}
	}
}
