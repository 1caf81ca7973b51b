//go:build unix

package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/semelhq/semel/internal/servers"
)

// Whoever reads the store, its files or a dump of it learns neither paths nor correlation ids; who has the keys finds
// by them.
func TestAttack08_NamesAreSealedInEveryStore(t *testing.T) {
	t.Parallel()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := servers.NewRedis("--appendonly", "yes", "--rdbcompression", "no")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.Close() })
	postgres, err := servers.NewPostgres(servers.PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { postgres.Close() })
	inRedis, inPostgres := func(t *testing.T) string { return rawRedis(t, cache.Addr()) }, func(t *testing.T) string { return rawPostgres(t, postgres.URL()) }
	dir := t.TempDir()
	sealed := "encryption_keys_file: keys\nencryption: required\n"
	for _, c := range []struct {
		name, store, cache, keys string
		raw                      func(*testing.T) string
	}{
		// The plain ones come last: they show that what is looked for would be found.
		{"sqlite", "sqlite://" + filepath.Join(dir, "sealed.db"), "", sealed, func(t *testing.T) string { return rawFiles(t, dir, "sealed.db*") }},
		{"redis", "redis://" + cache.Addr(), "", sealed, inRedis},
		{"postgres", postgres.URL(), "", sealed, inPostgres},
		{"tiered", postgres.URL() + "&schema=tiered", "redis://" + cache.Addr() + "?prefix=cache:", sealed, func(t *testing.T) string { return inRedis(t) + inPostgres(t) }},
		{"sqlite, plain", "sqlite://" + filepath.Join(dir, "plain.db"), "", "", func(t *testing.T) string { return rawFiles(t, dir, "plain.db*") }},
		{"redis, plain", "redis://" + cache.Addr() + "?prefix=plain:", "", "", inRedis},
		{"postgres, plain", postgres.URL() + "&schema=plain", "", "", inPostgres},
	} {
		g := startFor(t, path, c.store, c.cache, c.keys)
		for key, want := range map[string]int{"paid": 201, "lost": 409} {
			if status := g.pay(t, key); status != want {
				t.Fatalf("%s: %s: answered %d", c.name, key, status)
			}
		}
		g.stop(t)

		keys := func(args ...string) (int, string) {
			t.Helper()
			common := []string{"keys", "--store", c.store}
			if c.cache != "" {
				common = append(common, "--cache", c.cache)
			}
			status, stdout, stderr := run(t, append(common, args...)...)
			return status, stdout + stderr
		}
		with := func(args ...string) string {
			t.Helper()
			if c.keys != "" {
				args = append([]string{"--encryption-keys-file", filepath.Join(g.dir, "keys")}, args...)
			}
			status, shown := keys(args...)
			if status != 0 {
				t.Fatalf("%s: %v: exit status %d, %s", c.name, args, status, shown)
			}
			return shown
		}
		var found []operationView
		if err := json.Unmarshal([]byte(with("list", "--json", "--operation", "POST "+annsPath)), &found); err != nil || len(found) != 2 {
			t.Fatalf("%s: found %v, %v", c.name, found, err)
		}
		for _, v := range found {
			if v.Operation != "POST "+annsPath || !strings.HasPrefix(v.Correlation, annsTrace) {
				t.Errorf("%s: %q, %q", c.name, v.Operation, v.Correlation)
			}
			if shown := with("find", "--", v.Correlation); !strings.Contains(shown, v.ID) || !strings.Contains(shown, annsPath) {
				t.Errorf("%s: found by its correlation id:\n%s", c.name, shown)
			}
			if v.Reads == "unknown" {
				with("complete", "--status", "201", "--actor", "ana", "--reason", "the bank says so", "--", v.ID)
			}
			with("show", "--body", "--actor", "ana", "--", v.ID)
		}
		if c.keys != "" {
			_, shown := keys("list")
			if strings.Count(shown, "(sealed") != 2 || strings.Contains(shown, "ann@") {
				t.Errorf("%s: listed without the keys:\n%s", c.name, shown)
			}
			if status, shown := keys("find", "--", found[0].Correlation); status != 1 || !strings.Contains(shown, "--encryption-keys-file") {
				t.Errorf("%s: looked for without the keys: exit status %d\n%s", c.name, status, shown)
			}
		}
		raw := c.raw(t)
		if !strings.Contains(raw, "ana") && !strings.Contains(raw, hex.EncodeToString([]byte("ana"))) {
			t.Errorf("%s: what is stored was not read: %d bytes", c.name, len(raw))
		}
		for _, text := range []string{"ann@example.com", "/users/", "ann%40", annsTrace} {
			shows := strings.Contains(raw, text) || strings.Contains(raw, hex.EncodeToString([]byte(text)))
			if want := c.keys == "" && text != "ann%40"; shows != want {
				t.Errorf("%s: %q is readable: %t", c.name, text, shows)
			}
		}
	}
}

const (
	annsPath  = "/users/ann@example.com/payments"
	annsTrace = "trace-of-ann-"
)

// An annsGateway is a gateway in a process of its own, before a service that drops the connections of what is lost.
type annsGateway struct {
	cmd          *exec.Cmd
	dir, address string
	log          *output
}

func startFor(t *testing.T, path, store, cache, keys string) *annsGateway {
	t.Helper()
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") == "lost" {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Location", annsPath+"/1")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "paid by ann@example.com")
	}))
	t.Cleanup(u.Close)
	g := &annsGateway{dir: t.TempDir(), log: &output{}}
	settings := "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nscope: single\nidentity_secret_file: secret\nupstream: " + u.URL + "\nstore: '" + store + "'\n" + keys
	if cache != "" {
		settings += "cache: '" + cache + "'\n"
	}
	for name, content := range map[string]string{
		"keys": "k1 " + strings.Repeat("07", 32) + "\n", "secret": strings.Repeat("5", 32), "gateway.yaml": settings,
	} {
		if err := os.WriteFile(filepath.Join(g.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g.cmd = exec.Command(path, "gateway", "--config", "gateway.yaml", "--log-format", "json")
	g.cmd.Dir, g.cmd.Stderr = g.dir, g.log
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.cmd.Process.Kill() //nolint:errcheck // it has ended, mostly
	})
	g.address, _ = addresses(t, g.log)
	return g
}

func (g *annsGateway) pay(t *testing.T, key string) int {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://"+g.address+annsPath, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-Correlation-Id", annsTrace+key)
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode
}

func (g *annsGateway) stop(t *testing.T) {
	t.Helper()
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Wait(); err != nil {
		t.Fatalf("the gateway ended with %v\n%s", err, g.log)
	}
}

// rawFiles returns what files hold.
func rawFiles(t *testing.T, dir, pattern string) string {
	t.Helper()
	var all strings.Builder
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

// rawRedis returns the keys of a server, and what it would dump of each.
func rawRedis(t *testing.T, addr string) string {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	var all strings.Builder
	for keys := client.Scan(t.Context(), 0, "*", 100).Iterator(); ; {
		if !keys.Next(t.Context()) {
			if err := keys.Err(); err != nil {
				t.Fatal(err)
			}
			return all.String()
		}
		dump, err := client.Dump(t.Context(), keys.Val()).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		all.WriteString(keys.Val() + dump)
	}
}

// rawPostgres returns all rows of a database; binary columns are in hexadecimal digits.
func rawPostgres(t *testing.T, address string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context()) //nolint:errcheck // it was only read
	texts := func(query string) []string {
		rows, err := conn.Query(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	var all strings.Builder
	for _, table := range texts("SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')") {
		all.WriteString(strings.Join(texts("SELECT t::text FROM "+table+" t"), "\n"))
	}
	return all.String()
}
