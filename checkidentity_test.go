package semel_test

import (
	"context"
	"encoding/hex"
	"errors"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/identity"
	"github.com/semelhq/semel/memstore"
)

var (
	ourSecret   = []byte("0123456789abcdef")
	otherSecret = []byte("0123456789abcdeg")
)

// identityRecord returns the one record of the store that stands for no operation.
func identityRecord(t *testing.T, store *memstore.Store) (driver.ID, driver.Record) {
	t.Helper()
	var found driver.ID
	n := 0
	err := store.List(t.Context(), driver.Query{}, func(id driver.ID, _ driver.Record) bool {
		if id.Reserved() {
			found, n = id, n+1
		}
		return true
	})
	if err != nil || n != 1 {
		t.Fatalf("the store has %d records of its own, want 1 (%v)", n, err)
	}
	rec, err := store.Load(t.Context(), found)
	if err != nil {
		t.Fatal(err)
	}
	return found, rec
}

// The check value is stored for good, so its place and its form never change. The digests were computed by another
// program from the definition: of a part that follows its length as a varint, HMAC-SHA-256, or SHA-256 without a
// secret.
func TestR15_IdentityCheckGolden(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ secret, digest string }{
		{"0123456789abcdef", "5eae67979ac3337e9db1736f8fc3f294a805285c8a09139108d8acc18de82663"},
		{"", "ceb6304de52c2039089e0f29734fa565e53b4f1e0afd4c85636603a18f594c36"},
	} {
		store := memstore.New()
		if err := identity.Check(t.Context(), store, []byte(c.secret)); err != nil {
			t.Fatal(err)
		}
		id, rec := identityRecord(t, store)
		if got, want := string(id[:]), string(make([]byte, 16))+"semel identity check"+string(make([]byte, 12)); got != want {
			t.Errorf("the check value stands at %q, want %q", got, want)
		}
		if got := hex.EncodeToString(append(rec.Fingerprint.Raw[:], rec.Fingerprint.Canonical[:]...)); got != c.digest {
			t.Errorf("secret %q: the check value is %s, want %s", c.secret, got, c.digest)
		}
		if rec.State != driver.Done || rec.Response != nil || rec.Fingerprint.Settings != [8]byte{} {
			t.Errorf("secret %q: the record is %+v", c.secret, rec)
		}
	}
}

func TestR15_AStoreIsUsedWithOneSecretOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		first, then []byte
		want        error
	}{
		{"the same", ourSecret, ourSecret, nil},
		{"another", ourSecret, otherSecret, identity.ErrOtherSecret},
		{"none where there was one", ourSecret, nil, identity.ErrOtherSecret},
		{"one where there was none", nil, ourSecret, identity.ErrOtherSecret},
		{"none both times", nil, []byte{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			if err := identity.Check(t.Context(), store, c.first); err != nil {
				t.Fatal(err)
			}
			_, before := identityRecord(t, store)
			if err := identity.Check(t.Context(), store, c.then); !errors.Is(err, c.want) {
				t.Errorf("the second secret: %v, want %v", err, c.want)
			}
			if known, err := identity.Verify(t.Context(), store, c.then); !known || !errors.Is(err, c.want) {
				t.Errorf("verified: known %v, %v, want %v", known, err, c.want)
			}
			_, after := identityRecord(t, store)
			before.Now, after.Now = 0, 0
			if !reflect.DeepEqual(before, after) {
				t.Errorf("the check value was changed from\n%+v to\n%+v", before, after)
			}
		})
	}
}

func TestR15_VerifyingWritesNothing(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	if known, err := identity.Verify(t.Context(), store, ourSecret); known || err != nil {
		t.Errorf("of an empty store: known %v, %v", known, err)
	}
	if n := store.Len(); n != 0 {
		t.Errorf("the store has %d records", n)
	}
}

func TestAShortSecretIsRefused(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	if err := identity.Check(t.Context(), store, []byte("short")); err == nil || store.Len() != 0 {
		t.Errorf("checked: %v, records %d", err, store.Len())
	}
	if _, err := identity.Verify(t.Context(), store, []byte("short")); err == nil {
		t.Error("verified")
	}
}

func TestR15_OfManyFirstStartsOneSecretWins(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	var wg sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[string]map[bool]int{string(ourSecret): {}, string(otherSecret): {}}
	start := make(chan struct{})
	for i := range 40 {
		secret := ourSecret
		if i%2 == 1 {
			secret = otherSecret
		}
		wg.Go(func() {
			<-start
			err := identity.Check(context.Background(), store, secret)
			if err != nil && !errors.Is(err, identity.ErrOtherSecret) {
				t.Errorf("check: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			outcomes[string(secret)][err == nil]++
		})
	}
	close(start)
	wg.Wait()
	ours, others := outcomes[string(ourSecret)], outcomes[string(otherSecret)]
	if !(ours[true] == 20 && others[false] == 20 || ours[false] == 20 && others[true] == 20) {
		t.Errorf("accepted (true) and refused: ours %v, others %v; want all of one, none of the other", ours, others)
	}
}

// Another process writes its check value between this one's look and its claim.
func TestR15_AFirstStartThatComesSecondCompares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first []byte
		want  error
	}{{ourSecret, nil}, {otherSecret, identity.ErrOtherSecret}} {
		store := memstore.New()
		late := &faulty{Store: store}
		late.load = func(ctx context.Context, id driver.ID) (driver.Record, error) {
			rec, err := store.Load(ctx, id)
			if err := identity.Check(ctx, store, c.first); err != nil {
				t.Error(err)
			}
			return rec, err
		}
		if err := identity.Check(t.Context(), late, ourSecret); !errors.Is(err, c.want) {
			t.Errorf("after %q: %v, want %v", c.first, err, c.want)
		}
	}
}

// A process dies between claim and settle. Its check value binds from then on, and a later start finishes it.
func TestR15_AnUnfinishedCheckValueBinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		dies := &faulty{Store: store}
		dead := errors.New("dead")
		dies.settle = func(context.Context, driver.ID, driver.Owner, driver.Outcome) (driver.Record, bool, error) {
			return driver.Record{}, false, dead
		}
		if err := identity.Check(t.Context(), dies, ourSecret); !errors.Is(err, dead) {
			t.Fatalf("check: %v", err)
		}
		for _, when := range []struct {
			name string
			wait time.Duration
			want driver.State
		}{
			{"while its lease is valid", 0, driver.Running},
			{"after that", time.Minute, driver.Done},
		} {
			time.Sleep(when.wait)
			if err := identity.Check(t.Context(), store, otherSecret); !errors.Is(err, identity.ErrOtherSecret) {
				t.Errorf("%s: another secret: %v", when.name, err)
			}
			if err := identity.Check(t.Context(), store, ourSecret); err != nil {
				t.Errorf("%s: the same secret: %v", when.name, err)
			}
			if _, rec := identityRecord(t, store); rec.State != when.want {
				t.Errorf("%s: the record is %v, want %v", when.name, rec.State, when.want)
			}
		}
	})
}

func TestR15_TheCheckValueIsNeverSwept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		if err := identity.Check(t.Context(), store, ourSecret); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * 365 * 24 * time.Hour)
		if n, err := store.Sweep(t.Context(), 10); n != 0 || err != nil {
			t.Errorf("swept %d, %v", n, err)
		}
		if err := identity.Check(t.Context(), store, otherSecret); !errors.Is(err, identity.ErrOtherSecret) {
			t.Errorf("another secret, 50 years later: %v", err)
		}
	})
}

func TestR15_LostRepliesOfTheStoreAreAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		lossy := &faulty{Store: store}
		lost := errors.New("reply lost")
		var loads, claims, settles int
		lossy.load = func(ctx context.Context, id driver.ID) (driver.Record, error) {
			rec, err := store.Load(ctx, id)
			if loads++; loads == 1 {
				return driver.Record{}, lost
			}
			return rec, err
		}
		lossy.claim = func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
			rec, owned, err := store.Claim(ctx, id, c)
			if claims++; claims == 1 {
				return driver.Record{}, false, lost
			}
			return rec, owned, err
		}
		lossy.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			rec, owned, err := store.Settle(ctx, id, by, o)
			if settles++; settles == 1 {
				return driver.Record{}, false, lost
			}
			return rec, owned, err
		}
		if err := identity.Check(t.Context(), lossy, ourSecret); err != nil {
			t.Fatal(err)
		}
		if loads != 2 || claims != 2 || settles != 2 {
			t.Errorf("asked %d times to load, %d to claim, %d to settle", loads, claims, settles)
		}
		if _, rec := identityRecord(t, store); rec.State != driver.Done || rec.Attempt != 1 {
			t.Errorf("the record is %v after %d attempts, want done after 1", rec.State, rec.Attempt)
		}
	})
}

func TestR15_ACheckValueThatCantBeReadIsNotAbsent(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	broken := &faulty{Store: store}
	loads := 0
	broken.load = func(context.Context, driver.ID) (driver.Record, error) {
		loads++
		return driver.Record{}, driver.ErrUnreadable
	}
	if err := identity.Check(t.Context(), broken, ourSecret); !errors.Is(err, driver.ErrUnreadable) {
		t.Errorf("check: %v", err)
	}
	if store.Len() != 0 || loads != 1 {
		t.Errorf("records %d, loads %d", store.Len(), loads)
	}
}

func TestR15_OperationsAreNotReserved(t *testing.T) {
	t.Parallel()
	for _, secret := range [][]byte{nil, ourSecret} {
		for _, kind := range []semel.Kind{"", semel.KindHTTP, semel.KindDo, "message", "saga"} {
			for _, key := range []string{"", "semel identity check"} {
				if id := semel.Identify(secret, kind, "", key); id.Reserved() {
					t.Errorf("%s is reserved", id)
				}
			}
		}
	}
}
