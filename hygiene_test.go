package semel_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
)

// The key and the principal appear in an answer to their own client, and nowhere else: not in any record of any state,
// not in an event, not in a log line, whatever becomes of the request.
func TestR15_RawKeysReachNeitherStoreNorLogsNorEvents(t *testing.T) {
	t.Parallel()
	const key, who = "s3cret-key-7f3a", "s3cret-principal-11"
	for _, secret := range [][]byte{nil, []byte("0123456789abcdef")} {
		mem := memstore.New()
		var claims []string
		s := &faulty{Store: mem}
		s.claim = func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
			claims = append(claims, fmt.Sprintf("%+v %+v", id, c), string(id[:]))
			return mem.Claim(ctx, id, c)
		}
		var logged bytes.Buffer
		log := event.Log(slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})), "i")
		seen := &events{}
		g, err := semel.New(s, semel.ScopeFunc(headerScope), semel.Hold, semel.Options{
			IdentitySecret: secret, MaxAttempts: 4, MaxKeys: 2,
			Observer: observers{log, seen},
			Policy:   semel.Policy{KeyOptional: true, MaxResponseBody: 64},
		})
		if err != nil {
			t.Fatal(err)
		}
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("X-How") {
			case "503":
				w.WriteHeader(503)
			case "panic":
				panic(http.ErrAbortHandler)
			case "large":
				io.WriteString(w, strings.Repeat("x", 1000))
			case "lost":
				semel.FromContext(r.Context()).Lost(errors.New("upstream broke"))
			}
		}))
		send := func(key, how string) {
			defer func() { recover() }() //nolint:errcheck // the handler's own panic
			answer(h, post(key, `{}`, "X-Principal", who, "X-How", how))
		}
		for _, how := range []string{"200", "503", "panic", "large", "lost"} {
			for range 6 { // run, repeat, attempts capped, keys capped
				send(key+how, how)
			}
		}
		for _, malformed := range []string{key + `"`, `"` + key, key + " x", key + "\x01", key + strings.Repeat("x", 255)} {
			send(malformed, "200")
		}
		answer(h, post(key+"200", `{"other":1}`, "X-Principal", who))
		s.set(func(f *faulty) {
			f.claim = func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
				return driver.Record{}, false, errors.New("down")
			}
		})
		send(key+"down", "200")

		var found []string
		look := func(where, text string) {
			for _, raw := range []string{key, who} {
				for _, form := range []string{raw, hex.EncodeToString([]byte(raw)), base64.StdEncoding.EncodeToString([]byte(raw))[:12]} {
					if strings.Contains(text, form) {
						found = append(found, where)
					}
				}
			}
		}
		records := 0
		err = mem.List(t.Context(), driver.Query{}, func(id driver.ID, rec driver.Record) bool {
			records++
			look("a record", string(recordBytes(t, rec)))
			look("a record", fmt.Sprintf("%+v %+v", id, rec))
			return true
		})
		if err != nil || records < 2 {
			t.Fatalf("%d records, %v; want the operations that ran", records, err)
		}
		for _, c := range claims {
			look("a claim", c)
		}
		told := seen.all()
		for _, e := range told {
			look("an event of "+string(e.Kind), fmt.Sprintf("%+v", e))
		}
		if len(told) < 20 {
			t.Errorf("%d events, want many", len(told))
		}
		look("the log", logged.String())
		if len(found) > 0 {
			t.Errorf("secret %q: the raw key or principal is in %v", secret, found)
		}
	}
}

// observers tells several.
type observers []event.Observer

func (list observers) Observe(ctx context.Context, e event.Event) {
	for _, o := range list {
		o.Observe(ctx, e)
	}
}

// Under an identity secret the id can't be guessed from scope and key; without one the log says so.
func TestR15_TheIdentityIsKeyedByTheSecret(t *testing.T) {
	t.Parallel()
	secret := []byte("an identity secret of its own")
	s := memstore.New()
	seen := &events{}
	g, _ := newGuardWith(t, s, semel.Options{IdentitySecret: secret, Observer: seen})
	kept := bytes.Clone(secret)
	clear(secret) // the caller may wipe its copy: the guard goes on with its own
	h := g.Wrap(http.HandlerFunc((&ledger{}).pay))
	checkRun(t, answer(h, post("k", `{}`)))
	checkReplay(t, answer(h, post("k", `{}`)))
	if got := recordOf(t, s, semel.Identify(kept, semel.KindHTTP, "alice", "k")).State; got != driver.Done {
		t.Errorf("under the secret's id the record is %v, want done", got)
	}
	if got := recordOfKey(t, s, "alice", "k").State; got != driver.Absent {
		t.Errorf("under the plain id the record is %v, want absent", got)
	}
	if got := seen.count(event.PlainIdentity); got != 0 {
		t.Errorf("a keyed guard reports plain identities %d times", got)
	}
	_, seen = newGuardWith(t, s, semel.Options{})
	if got := seen.count(event.PlainIdentity); got != 1 {
		t.Errorf("a guard without a secret reports it %d times, want once", got)
	}

	// Digests are made concurrently, each from the whole secret.
	done := make(chan struct{}, 8)
	for i := range 8 {
		go func() {
			k := fmt.Sprintf("c%d", i)
			answer(h, post(k, `{}`))
			done <- struct{}{}
		}()
	}
	for range 8 {
		<-done
	}
	for i := range 8 {
		id := semel.Identify(kept, semel.KindHTTP, "alice", fmt.Sprintf("c%d", i))
		if got := recordOf(t, s, id).State; got != driver.Done {
			t.Errorf("c%d: the record is %v, want done", i, got)
		}
	}
}

// A fingerprint is keyed too: equal bodies of two secrets have nothing in common, and no digest is a plain one.
func TestR15_FingerprintsAreKeyed(t *testing.T) {
	t.Parallel()
	const body = `{"amount":5}`
	prints := map[[16]byte]bool{}
	for _, secret := range []string{"", "0123456789abcdef", "fedcba9876543210"} {
		s := memstore.New()
		g, _ := newGuardWith(t, s, semel.Options{IdentitySecret: []byte(secret)})
		checkRun(t, answer(g.Wrap(http.HandlerFunc((&ledger{}).pay)), post("k", body)))
		rec := recordOf(t, s, semel.Identify([]byte(secret), semel.KindHTTP, "alice", "k"))
		plain := sha256.Sum256([]byte(body))
		for _, fp := range [][16]byte{rec.Fingerprint.Raw, rec.Fingerprint.Canonical} {
			if prints[fp] || bytes.Equal(fp[:], plain[:16]) {
				t.Errorf("secret %q: the digest %x is not its own", secret, fp)
			}
			prints[fp] = true
		}
	}
}

// Derived keys stay the same, whoever derives them, and tell operations, names and secrets apart.
func TestR84_DerivedKeysAreTheSameOverAttemptsAndExpiry(t *testing.T) {
	t.Parallel()
	derive := func(secret, scope, key, name string, identity string) string {
		g, _ := newGuardWith(t, nil, semel.Options{DerivationSecret: []byte(secret), IdentitySecret: []byte(identity), Policy: semel.Policy{OnLost: semel.Rerun}})
		var got []string
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = append(got, semel.FromContext(r.Context()).Key(name))
			w.WriteHeader(503)
		}))
		answer(h, post(key, `{}`, "X-Principal", scope))
		answer(h, post(key, `{}`, "X-Principal", scope)) // the second attempt
		if len(got) != 2 || got[0] != got[1] {
			t.Fatalf("derived %q, want the same key twice", got)
		}
		return got[0]
	}
	const secret, identity = "a derivation secret", "an identity secret"
	base := derive(secret, "alice", "k", "charge", identity)
	if got := derive(secret, "alice", "k", "charge", "another identity secret"); got != base {
		t.Errorf("another identity secret changes a derived key: %s, %s", got, base)
	}
	for what, got := range map[string]string{
		"secret": derive("another derivation", "alice", "k", "charge", identity),
		"scope":  derive(secret, "bob", "k", "charge", identity),
		"key":    derive(secret, "alice", "k2", "charge", identity),
		"name":   derive(secret, "alice", "k", "refund", identity),
		"parts":  derive(secret, "alice", "kc", "harge", identity),
	} {
		if got == base {
			t.Errorf("another %s gives the same derived key", what)
		}
	}
	// Golden: a key once derived may stand in a UNIQUE column for years.
	if want := "464e3306-62ea-8c50-a452-89a669bb06e7"; base != want {
		t.Errorf("the derived key is %s, want %s", base, want)
	}
}

// The text of a Lost error and the name of a route are for operators; clients see neither.
func TestR57_ALostRunTellsItsClientNothingOfTheCause(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		s := memstore.New()
		g, _ := newGuard(t, s, semel.Policy{OnLost: onLost, Operation: "secret route"})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Secret", "header")
			io.WriteString(w, "secret half")
			semel.FromContext(r.Context()).Lost(errors.New("secret cause"))
		}))
		for range 2 {
			w := answer(h, post("k", `{}`))
			if w.Code < 400 || strings.Contains(exchangeText(w), "ecret") {
				t.Errorf("%v: answered\n%s", onLost, exchangeText(w))
			}
		}
		if got := recordOfKey(t, s, "alice", "k").Error; got != "secret cause" {
			t.Errorf("%v: the record says %q, want the cause", onLost, got)
		}
	}
}

// Run sweeps in batches, rests after each, reports what fails, and ends with its context.
func TestR55_RunSweepsInBatchesAndRestsBetweenThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var at []time.Duration
		s := &sweeping{Store: memstore.New(), sweep: func(ctx context.Context, limit int) (int, error) {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("a sweep has no deadline")
			}
			at = append(at, time.Since(start))
			time.Sleep(2 * time.Second)
			switch len(at) {
			case 1, 2:
				return limit, nil
			case 3:
				return limit - 1, nil
			case 4, 5:
				return 0, errors.New("down")
			}
			cancel()
			return 0, ctx.Err()
		}}
		g, seen := newGuardWith(t, s, semel.Options{SweepInterval: time.Minute})
		if err := g.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returns %v, want the context's error", err)
		}
		if got, want := fmt.Sprint(at), "[1m0s 1m4s 1m8s 2m0s 3m0s 4m0s]"; got != want {
			t.Errorf("swept at %s, want %s", got, want)
		}
		if got := seen.count(event.StoreError); got != 2 {
			t.Errorf("%d failures of the store are reported, want 2: the end of Run is none", got)
		}
	})
}

type sweeping struct {
	driver.Store
	sweep func(context.Context, int) (int, error)
}

func (s *sweeping) Sweep(ctx context.Context, limit int) (int, error) { return s.sweep(ctx, limit) }
