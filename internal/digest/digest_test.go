package digest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/driver"
)

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// Derived keys go to other systems, which keep them: they never change. The values were computed by another
// program from the definition.
func TestR15_DerivedKeyGolden(t *testing.T) {
	t.Parallel()
	for secret, want := range map[string]string{
		"secret": "89ebe57e-24d1-8141-88fb-3942b3c6e734",
		"":       "d61181e9-7a06-8c7c-82c5-83aa8ee98b1f",
	} {
		if got := New([]byte(secret)).DerivedKey("http", "acct-1", "abc", "charge"); got != want {
			t.Errorf("secret %q: derived key is %s, want %s", secret, got, want)
		}
	}
}

// a derived key depends on scope, key and step alone, and is in the form of a UUIDv8 (RFC 9562, section 5.8).
func TestR84_DerivedKeysAreDistinctUUIDv8(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	d := New([]byte("secret"))
	seen := map[string][4]string{}
	for _, kind := range []string{"http", "saga"} {
		for _, scope := range []string{"a", "ab", ""} {
			for _, key := range []string{"b", "bc", "c", ""} {
				for _, name := range []string{"charge", "arge", "", "undo"} {
					x := [4]string{kind, scope, key, name}
					got := d.DerivedKey(kind, scope, key, name)
					if !form.MatchString(got) {
						t.Errorf("%q: %s is not a UUIDv8", x, got)
					}
					if !uuid.MatchString(got) {
						t.Errorf("%q: %s does not keep the key format UUIDAny", x, got)
					}
					if y, taken := seen[got]; taken {
						t.Errorf("%q and %q derive the same key", x, y)
					}
					seen[got] = x
					if again := d.DerivedKey(kind, scope, key, name); again != got {
						t.Errorf("%q derives %s, then %s", x, got, again)
					}
				}
			}
		}
	}
}

func TestUUIDv8_KeepsAllOtherBits(t *testing.T) {
	t.Parallel()
	var zeros, ones [sha256.Size]byte
	for i := range ones {
		ones[i] = 0xff
	}
	if got, want := UUIDv8(zeros), "00000000-0000-8000-8000-000000000000"; got != want {
		t.Errorf("zeros make %s, want %s", got, want)
	}
	if got, want := UUIDv8(ones), "ffffffff-ffff-8fff-bfff-ffffffffffff"; got != want {
		t.Errorf("ones make %s, want %s", got, want)
	}
}

// digestOf computes a digest from its definition, without a pool or a buffer.
func digestOf(secret []byte, write func(part func(string), number func(uint64))) [sha256.Size]byte {
	var all []byte
	number := func(n uint64) { all = binary.AppendUvarint(all, n) }
	write(func(s string) { number(uint64(len(s))); all = append(all, s...) }, number)
	if len(secret) == 0 {
		return sha256.Sum256(all)
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(all)
	return [sha256.Size]byte(mac.Sum(nil))
}

// The buffer in front of the hash changes nothing, wherever parts and numbers meet its end.
func TestEveryPartOfADigestIsLengthPrefixed(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"", "secret"} {
		d := New([]byte(secret))
		for _, first := range []int{0, 1, 480, 490, 495, 500, 501, 502, 503, 504, 505, 506, 507, 508, 509, 510, 511, 512, 513, 514, 2000} {
			for _, second := range []int{0, 1, 127, 128, 511, 512, 513, 5000} {
				a, b := strings.Repeat("a", first), strings.Repeat("b", second)
				s := d.Start("domain")
				s.Text(a)
				s.Uint(1 << 60)
				s.Bytes([]byte(b))
				s.Text(a)
				got := s.Sum()
				want := digestOf([]byte(secret), func(part func(string), number func(uint64)) {
					part("domain")
					part(a)
					number(1 << 60)
					part(b)
					part(a)
				})
				if got != want {
					t.Errorf("secret %q, parts of %d and %d bytes: %x, want %x", secret, first, second, got, want)
				}
			}
		}
	}
}

// the identity secret is taken when it is given; who wipes or reuses the slice later changes no identity.
func TestR15_TheSecretIsCopied(t *testing.T) {
	t.Parallel()
	secret := []byte("secret")
	d := New(secret)
	clear(secret)
	if got, want := d.ID("http", "a", "b"), New([]byte("secret")).ID("http", "a", "b"); got != want {
		t.Error("ids changed with the caller's slice")
	}
}

func TestADigesterIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	d := New([]byte("secret"))
	keys := []string{"a", "b", strings.Repeat("c", 700), ""}
	want := make([]driver.ID, len(keys))
	for i, key := range keys {
		want[i] = d.ID("do", "scope", key)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range 200 {
				i := n % len(keys)
				if got := d.ID("do", "scope", keys[i]); got != want[i] {
					t.Errorf("id of key %d is %v, want %v", i, got, want[i])
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkIdentify(b *testing.B) {
	d := New([]byte("secret"))
	b.ReportAllocs()
	for b.Loop() {
		d.ID("http", "acct-1", "5f0c9c1e-8d5b-4f0e-9d5e-0a1b2c3d4e5f")
	}
}
