//go:build unix

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/servers"
)

// edit changes the file of a gateway's store, as one does who can write there.
func edit(t *testing.T, g *exposed, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(g.dir, "semel.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // what one has attached another has not
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

const keyringText = "k1 0707070707070707070707070707070707070707070707070707070707070707\n"

func TestAttack08_R61_WhatIsWrittenIntoTheStoreIsNotReplayed(t *testing.T) {
	t.Parallel()
	service := newVictim(t)
	home := t.TempDir()
	secret := "identity_secret_file: " + writeIn(t, home, "secret", strings.Repeat("ab", 32)) + "\n"
	sealed := secret + "encryption_keys_file: " + writeIn(t, home, "keys", keyringText) + "\nencryption: "
	const scope = "scope: header:X-Account\n"
	plain, required, allowing := expose(t, t.TempDir(), service.url, scope+secret), expose(t, t.TempDir(), service.url, scope+sealed+"required\n"),
		expose(t, t.TempDir(), service.url, scope+sealed+"allow-plain\n")
	ask := func(g *exposed, account string) answer {
		t.Helper()
		return send(t, g.address, "POST /payments", "X-Account: "+account, "Idempotency-Key: k")
	}
	all := []*exposed{plain, required, allowing}
	for _, account := range []string{"alice", "bob"} { // rows 2 and 3; the first one is the store's own
		for _, g := range all {
			ask(g, account).wants(t, account, 201, "")
		}
	}
	n := service.requests("")

	for _, g := range all {
		edit(t, g, "UPDATE semel_records SET record = (SELECT record FROM semel_records WHERE rowid = 2) WHERE rowid = 3")
	}
	ask(required, "bob").wants(t, "another's answer", 409, "IDEMPOTENCY_REPLAY_UNAVAILABLE")
	ask(allowing, "bob").wants(t, "another's answer, in the change-over", 409, "IDEMPOTENCY_REPLAY_UNAVAILABLE")
	if a := ask(plain, "bob"); a.body != "<p>of alice" {
		t.Errorf("without encryption bob gets %d %s: no attack", a.status, a.body)
	}

	for _, g := range []*exposed{required, allowing} {
		edit(t, g, "ATTACH '"+filepath.Join(plain.dir, "semel.db")+"' AS plain",
			"UPDATE semel_records SET record = (SELECT p.record FROM plain.semel_records p WHERE p.rowid = 3) WHERE rowid = 3")
	}
	a := ask(required, "bob")
	if a.wants(t, "an answer in the clear", 409, "IDEMPOTENCY_REPLAY_UNAVAILABLE"); strings.Contains(a.body, "alice") {
		t.Errorf("shown: %s", a.body)
	}
	if a := ask(allowing, "bob"); a.body != "<p>of alice" {
		t.Errorf("in the change-over bob gets %d %s: no attack", a.status, a.body)
	}
	if a := ask(required, "alice"); !a.replayed() || a.body != "<p>of alice" {
		t.Errorf("what nobody has touched: %d %s", a.status, a.body)
	}
	if got := service.requests(""); got != n {
		t.Errorf("executed %d times more", got-n)
	}
}

func TestAttack09_WrongBodiesLockNobodyOut(t *testing.T) {
	t.Parallel()
	service := newVictim(t)
	g := expose(t, t.TempDir(), service.url, "store: memory://\nscope: single\ncaps: {max_attempts: 5}\n")
	send(t, g.address, "POST /payments", "Idempotency-Key: k").wants(t, "the first request", 201, "")
	for i := range 12 {
		send(t, g.address, fmt.Sprintf("POST /payments?n=%d", i), "Idempotency-Key: k").wants(t, "another request", 422, "IDEMPOTENCY_KEY_REUSED")
	}
	last := answer{}
	for range 6 {
		last = send(t, g.address, "POST /payments?n=0", "Idempotency-Key: k")
	}
	last.wants(t, "the same wrong one again and again", 429, "IDEMPOTENCY_TOO_MANY_ATTEMPTS")
	if a := send(t, g.address, "POST /payments", "Idempotency-Key: k"); a.status != 201 || !a.replayed() {
		t.Errorf("the owner's repeat: %d %s", a.status, a.body)
	}
}

func TestAttack09_WhatOthersMayReadIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	service := newVictim(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"semel.db", "keys", "secret", "derivation"} {
		dir := t.TempDir()
		for _, file := range [][2]string{{"keys", keyringText}, {"secret", strings.Repeat("ab", 32)}, {"derivation", strings.Repeat("cd", 32)}} {
			writeIn(t, dir, file[0], file[1])
		}
		const settings = "scope: single\nencryption_keys_file: keys\nidentity_secret_file: secret\nderivation_secret_file: derivation\n"
		expose(t, dir, service.url, settings).stop(t) // as they are it starts, and makes the database
		file := filepath.Join(dir, name)
		if err := os.Chmod(file, 0o644); err != nil {
			t.Fatal(err)
		}
		config := writeConfig(t, "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nupstream: "+service.url+"\n"+settings)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // one that starts would go on
		defer cancel()
		start := exec.CommandContext(ctx, path, "gateway", "--config", config)
		start.Dir = dir
		if out, err := start.CombinedOutput(); err == nil || !strings.Contains(string(out), "others have access") {
			t.Errorf("%s that all may read: %v\n%s", name, err, out)
		}
	}
}

func TestAttack09_AKeyringIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	service, dir := newVictim(t), t.TempDir()
	const settings = "scope: single\nencryption_keys_file: keys\n"
	writeIn(t, dir, "keys", keyringText)
	old := expose(t, dir, service.url, settings)
	send(t, old.address, "POST /payments", "Idempotency-Key: k").wants(t, "the first request", 201, "")
	old.stop(t)
	newer := ""
	for i := range 100 { // 7 KiB
		newer += fmt.Sprintf("new-%d %064x\n", i, i+1)
	}
	writeIn(t, dir, "keys", newer+keyringText)
	g := expose(t, dir, service.url, settings)
	if a := send(t, g.address, "POST /payments", "Idempotency-Key: k"); a.status != 201 || !a.replayed() {
		t.Errorf("sealed by the last key of many: %d %s", a.status, a.body)
	}
}

func TestAttack09_NeitherPasswordsNorAnswersArePrinted(t *testing.T) {
	t.Parallel()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"postgres//u:hunter2@127.0.0.1/x", "postgres://u:hunter2@127.0.0.1:1/x?connect_timeout=1", "postgers://u:hunter2@127.0.0.1/x", "redis://:hunter2@127.0.0.1:1"} {
		for _, args := range [][]string{
			{"gateway", "--upstream", "http://127.0.0.1:1", "--scope", "single", "--store", address, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--identity-secret-file", writeIn(t, t.TempDir(), "s", strings.Repeat("ab", 32))},
			{"keys", "list", "--store", address},
		} {
			if out, err := exec.Command(path, args...).CombinedOutput(); err == nil || strings.Contains(string(out), "hunter2") {
				t.Errorf("%s --store %s: %v\n%s", args[0], address, err, out)
			}
		}
	}
	service := newVictim(t)
	g := expose(t, t.TempDir(), service.url, "scope: header:X-Account\n")
	send(t, g.address, "POST /payments", "X-Account: alice", "Idempotency-Key: k").wants(t, "the request", 201, "")
	keys := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(path, append([]string{"keys"}, args...)...)
		cmd.Dir = g.dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("keys %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	var found struct{ ID string }
	if err := json.Unmarshal([]byte(keys("find", "k", "--scope", "alice", "--json")), &found); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"find", "k", "--scope", "alice"}, {"find", "k", "--scope", "alice", "--json"}, {"list", "--json"}, {"show", "--", found.ID}} {
		if out := keys(args...); strings.Contains(out, "of alice") {
			t.Errorf("keys %v prints the answer:\n%s", args, out)
		}
	}
	if out := keys("show", "--body", "--", found.ID); !strings.Contains(out, "of alice") {
		t.Errorf("with --body:\n%s", out)
	}
}

// What means something to a database, a shell or Redis is a name like any other, as key and as principal.
func TestHeld_R62_NamesThatMeanSomethingElsewhereAreInert(t *testing.T) {
	t.Parallel()
	redis, err := servers.NewRedis("--appendonly", "yes")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { redis.Close() })
	service := newVictim(t)
	names := []string{
		"'; DROP TABLE semel_records; --", "' OR '1'='1", "\\'; DELETE FROM semel_records; --", "$(touch owned)", "`touch owned`", "| touch owned", "; touch owned",
		"*", "semel:*", "semel:{x}", "semel:audit", "*3 $3 DEL $1 k $1 v", "../../../owned", "%s%n", "{{7*7}}", "${jndi:ldap://x}", "\x1b[2J", "<script>", "%00", "null",
	}
	for _, store := range []string{"sqlite://semel.db", "redis://" + redis.Addr()} {
		dir := t.TempDir()
		g := expose(t, dir, service.url, "scope: header:X-Account\nidentity_secret_file: "+writeIn(t, dir, "secret", strings.Repeat("ab", 32))+"\nstore: "+store+"\n")
		for again := range 2 {
			for i, name := range names {
				key := fmt.Sprintf("Idempotency-Key: k%d", i%2) // the same for many principals
				a := send(t, g.address, "POST /payments", "X-Account: "+name, key)
				if strings.Contains(name, "\x1b") {
					continue // refused: no header has it
				}
				if a.status != 201 || a.body != "<p>of "+name || a.replayed() != (again == 1) {
					t.Errorf("%s, %q: %d %s, replayed %t", store, name, a.status, a.body, a.replayed())
				}
			}
			for _, key := range names {
				if strings.ContainsAny(key, " ;,\x1b\"\\") {
					continue // refused: no key has it
				}
				if a := send(t, g.address, "POST /payments", "X-Account: me", "Idempotency-Key: "+key); a.status != 201 || a.replayed() != (again == 1) {
					t.Errorf("%s, the key %q: %d %s, replayed %t", store, key, a.status, a.body, a.replayed())
				}
			}
		}
		files, err := filepath.Glob(filepath.Join(g.dir, "owned*"))
		if err != nil || len(files) > 0 {
			t.Errorf("%s: files %q, %v", store, files, err)
		}
	}
}
