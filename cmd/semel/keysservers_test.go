package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/keyring"
)

// On a store that gateways share, an operator finds, decides, shows and forgets as on one in a file; what is forgotten
// is forgotten in the cache too.
func TestR87_OperationsOnServers(t *testing.T) {
	t.Parallel()
	redis, err := servers.NewRedis("--appendonly", "yes")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { redis.Close() })
	postgres, err := servers.NewPostgres(servers.PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { postgres.Close() })
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, []byte("paid by hand"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]struct{ store, cache string }{
		"redis":    {"redis://" + redis.Addr() + "?prefix=alone:", ""},
		"postgres": {postgres.URL(), ""},
		"tiered":   {postgres.URL() + "&schema=tiered", "redis://" + redis.Addr()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShopOn(t, at.store, at.cache, nil, semel.Policy{})
			var cache []string
			if at.cache != "" {
				cache = []string{"--cache", at.cache}
			}
			s.pay("acme", "k")
			contains(t, s.pay("acme", "k").Body.String(), "OUTCOME_UNKNOWN")
			id := s.id("k")
			contains(t, s.must("find", "k", "--scope", "acme"), id, "unknown")
			contains(t, s.must("list", "--state", "unknown"), id)
			decide := func(args ...string) { // that a busy machine's cache was slow may be said
				t.Helper()
				if status, _, stderr := s.keys(append(slices.Clip(cache), args...)...); status != 0 {
					t.Fatalf("%v: exit status %d, %q", args, status, stderr)
				}
			}
			decide("complete", "--status", "201", "--body-file", body, "--actor", "ana", "--reason", "the bank says so", "--", id)
			for range 3 { // from the store, and then from what is in front of it
				if w := s.pay("acme", "k"); w.Code != 201 || w.Body.String() != "paid by hand" {
					t.Errorf("answered %d %q", w.Code, w.Body)
				}
			}
			contains(t, s.must("show", "--", id), "done", "ana", "the bank says so")
			decide("forget", "--actor", "ana", "--reason", "test data", "--force", "--", id)
			if w := s.pay("acme", "k"); w.Code != 201 || w.Body.String() != "paid by run 2" {
				t.Errorf("forgotten, and answered %d %q", w.Code, w.Body)
			}
			if status, _, stderr := run(t, "migrate", "--store", at.store); status != 0 || stderr != "" {
				t.Errorf("migrate: exit status %d, %q", status, stderr)
			}
		})
	}
}

// Answers that the gateway encrypts are shown, and stored by hand, with its keys only.
func TestR61_EncryptedAnswersAndTheirKeys(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("2026 "+strings.Repeat("ab", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, []byte("by hand"), 0o600); err != nil {
		t.Fatal(err)
	}
	ring, err := keyring.New(keyring.Key{ID: "2026", Key: bytes.Repeat([]byte{0xab}, 32)})
	if err != nil {
		t.Fatal(err)
	}
	s := newShopOn(t, "sqlite://"+filepath.Join(t.TempDir(), "semel.db"), "", ring, semel.Policy{})
	s.pay("acme", "lost")
	s.pay("acme", "k")
	shown := s.must("show", "--body", "--", s.id("k"))
	contains(t, shown, "201", "aes-256-gcm:2026")
	if strings.Contains(shown, "paid by run") {
		t.Errorf("shown without the key:\n%s", shown)
	}
	contains(t, s.must("--encryption-keys-file", file, "show", "--body", "--", s.id("k")), "paid by run 2", "/payments/2")
	s.must("--encryption-keys-file", file, "complete", "--status", "202", "--body-file", body, "--actor", "ana", "--reason", "r", "--", s.id("lost"))
	if w := s.pay("acme", "lost"); w.Code != 202 || w.Body.String() != "by hand" {
		t.Errorf("answered %d %q", w.Code, w.Body)
	}
	if shown := s.must("show", "--body", "--", s.id("lost")); strings.Contains(shown, "by hand") {
		t.Errorf("stored in the clear:\n%s", shown)
	}
}
