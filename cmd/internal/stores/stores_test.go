package stores

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/cmd/internal/redisclient"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/identity"
	"github.com/semelhq/semel/internal/servers"
	"github.com/semelhq/semel/sqlitestore"
)

func claim(t *testing.T, o *Opened, id driver.ID) (owned bool) {
	t.Helper()
	_, owned, err := o.Store.Claim(context.Background(), id, driver.Claim{Token: driver.NewToken()})
	if err != nil {
		t.Fatal(err)
	}
	return owned
}

func TestAnAddressNamesAStore(t *testing.T) {
	t.Parallel()
	o, err := Open(t.Context(), "memory://", Options{})
	if err != nil || o.Lasts || o.Path != "" || !claim(t, o, driver.ID{1}) {
		t.Errorf("memory://: %+v, %v", o, err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}

	// Characters that mean something in addresses and data source names are part of the file's name.
	path := filepath.Join(t.TempDir(), "a #%41&é name.db")
	for i := range 2 {
		o, err := Open(t.Context(), "sqlite://"+path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !o.Lasts || o.Path != path {
			t.Errorf("%+v", o)
		}
		if owned := claim(t, o, driver.ID{1}); owned != (i == 0) {
			t.Errorf("opened %d times before: owned is %t", i, owned)
		}
		for _, beside := range []string{"", "-wal", "-shm"} {
			if info, err := os.Stat(path + beside); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v; want mode 0600", beside, info, err)
			}
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
	names, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(names) != 1 {
		t.Errorf("after closing there are %v, %v; want the file", names, err)
	}
}

func TestARelativePathIsInTheWorkingFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	o, err := Open(t.Context(), "sqlite://semel.db", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if info, err := os.Stat("semel.db"); err != nil || info.Size() == 0 || !filepath.IsAbs(o.Path) {
		t.Errorf("%v, %v, path %s", info, err, o.Path)
	}
}

func TestAWrongAddressIsSaidToBeWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "letter.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("Dear aunt, ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		address string
		says    string
		is      error
	}{
		{"", "unknown kind", nil},
		{"semel.db", "unknown kind", nil},
		{"mysql://host/db", "unknown kind; there are memory://, sqlite://FILE, postgres://", nil},
		{"memory://x", "memory:// takes nothing", nil},
		{"postgres://db/%zz", "malformed", nil},
		{"postgres://db/semel?schema=a&schema=b", `schema is "a b", want it once`, nil},
		{"postgres://db/semel?schema=Semel", `the schema's name "Semel" must be`, nil},
		{"postgres://db/semel?notify=often", `notify is "often", want it once, true or false`, nil},
		{"postgres://db/semel?pool_max_conns=none", "pool_max_conns", nil},
		{"redis://host/zero", "database", nil},
		{"redis+cluster://host/1", "a Cluster has one database", nil},
		{"redis://host?allow_eviction=2", "allow_eviction", nil},
		{"sqlite://", "needs the path of a file", nil},
		{"sqlite://semel.db?mode=ro", "no settings", nil},
		{"sqlite://" + dir, "is a folder", nil},
		{"sqlite://" + filepath.Join(dir, "missing", "semel.db"), "missing does not exist", nil},
		{"sqlite://" + text, "not a SQLite database", sqlitestore.ErrCorrupt},
		{"sqlite://" + filepath.Join(text, "semel.db"), "not a directory", nil},
	} {
		o, err := Open(t.Context(), row.address, Options{})
		if err == nil || o != nil || !strings.Contains(err.Error(), row.says) || row.is != nil && !errors.Is(err, row.is) {
			t.Errorf("%q: %v, want an error that says %q", row.address, err, row.says)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

func TestAPasswordInAnAddressIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"postgress://ana:hunter2@db/semel", "redi s://ana:hunter2@db%zz", "hunter://ana:hunter2\n@x"} {
		_, err := Open(t.Context(), address, Options{})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
		if _, err := Script(address, 0); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}

func TestASchemaCanBeMadeByHand(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "semel.db")
	address := "sqlite://" + path
	_, err := Open(t.Context(), address, Options{NoMigration: true})
	if !errors.Is(err, sqlitestore.ErrVersion) {
		t.Fatalf("%v, want ErrVersion", err)
	}
	script, err := Script(address, 0)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(script); err != nil {
		t.Fatal(err)
	}
	o, err := Open(t.Context(), address, Options{NoMigration: true})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if !claim(t, o, driver.ID{1}) {
		t.Error("not owned")
	}
	if script, err := Script("memory://", 0); script != "" || err != nil {
		t.Errorf("memory:// needs %q, %v", script, err)
	}
}

func TestACacheGoesInFrontOfWhatLasts(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ cache, store, says string }{
		{"", "memory://", ""},
		{"redis://host", "sqlite://semel.db", ""},
		{"rediss+cluster://host?prefix=a:", "postgres://db/semel", ""},
		{"memory://", "postgres://db/semel", ""},
		{"memory://", "memory://", "in front of a sqlite:// or postgres:// store"},
		{"redis://host", "redis://host", "in front of a sqlite:// or postgres:// store"},
		{"sqlite://cache.db", "postgres://db/semel", "a cache is memory:// or a Redis"},
		{"redis://ana:hunter2@host?notify=true", "sqlite://semel.db", "a cache has only prefix"},
		{"redis", "sqlite://semel.db", "unknown kind"},
		{"redis", "nonsense", ""}, // that is said of the store
	} {
		err := CheckCache(row.cache, row.store)
		if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) || err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s in front of %s: %v, want %q", row.cache, row.store, err, row.says)
		}
	}
}

// A cache in this process answers what has ended; the store is asked for all else.
func TestACacheInTheProcess(t *testing.T) {
	t.Parallel()
	o, err := Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "semel.db"), Options{Cache: "memory://"})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	id := driver.ID{1}
	rec, owned, err := o.Store.Claim(t.Context(), id, driver.Claim{Token: driver.NewToken()})
	if err != nil || !owned {
		t.Fatal(owned, err)
	}
	if _, owned, err = o.Store.Settle(t.Context(), id, rec.Owner(), driver.Outcome{State: driver.Done, Response: &driver.Response{Status: 201}}); err != nil || !owned {
		t.Fatal(owned, err)
	}
	for range 3 {
		if rec, err := o.Store.Load(t.Context(), id); err != nil || rec.Response == nil || rec.Response.Status != 201 || claim(t, o, id) {
			t.Errorf("%+v, %v", rec, err)
		}
	}
	if o.CheckCache != nil {
		t.Error("there is a cache to ask")
	}
	for _, capability := range []bool{is[driver.Seizer](o.Store), is[driver.Lister](o.Store), is[driver.Transactor](o.Store), is[driver.Auditor](o.Store), is[driver.Counter](o.Store)} {
		if !capability {
			t.Errorf("%T can do less than the store behind it", o.Store)
		}
	}
}

func is[T any](v any) bool { _, ok := v.(T); return ok }

// A Redis that is not there does not keep a store from being opened, nor from working, and is used once it is there.
func TestACacheThatComesLate(t *testing.T) {
	t.Parallel()
	redis, err := servers.NewRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { redis.Close() })
	if err := redis.Stop(); err != nil {
		t.Fatal(err)
	}
	o, err := Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "semel.db"), Options{Cache: "redis://" + redis.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := o.CheckCache(t.Context()); !errors.Is(err, errNotConnected) {
		t.Errorf("a cache that is down: %v", err)
	}
	if !claim(t, o, driver.ID{1}) || claim(t, o, driver.ID{1}) {
		t.Error("the store does not work without its cache")
	}
	if err := redis.Start(); err != nil {
		t.Fatal(err)
	}
	for giveUp := time.Now().Add(time.Minute); o.CheckCache(t.Context()) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(giveUp) {
			t.Fatal("a cache that has come is not used")
		}
	}
}

// What a server keeps outlives the store, has no file, and its schema is known by version.
func TestR15_StoresOnServers(t *testing.T) {
	t.Parallel()
	redis, err := servers.NewRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { redis.Close() })
	postgres, err := servers.NewPostgres(servers.PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { postgres.Close() })
	for name, address := range map[string]string{
		"redis":    "redis://" + redis.Addr() + "?prefix=mine:&notify=true",
		"postgres": postgres.URL() + "&schema=mine&notify=true&partition_answers=true&pool_max_conns=3",
	} {
		if name == "postgres" {
			if version, err := Version(t.Context(), address); version != 0 || err != nil {
				t.Errorf("before its migration: version %d, %v", version, err)
			}
			if _, err := Open(t.Context(), address, Options{NoMigration: true}); !OtherVersion(err) {
				t.Errorf("before its migration: %v", err)
			}
		}
		for i := range 2 {
			o, err := Open(t.Context(), address, Options{})
			if err != nil {
				t.Fatal(name, err)
			}
			if !o.Lasts || o.Path != "" || claim(t, o, driver.ID{1}) != (i == 0) {
				t.Errorf("%s, opened %d times before: %+v", name, i, o)
			}
			if err := identity.Check(t.Context(), o.Store, []byte("the secret of this storage")); err != nil {
				t.Errorf("%s, opened %d times before: %v", name, i, err)
			}
			for _, other := range [][]byte{nil, []byte("another secret, though")} {
				if err := identity.Check(t.Context(), o.Store, other); !errors.Is(err, identity.ErrOtherSecret) {
					t.Errorf("%s, under the secret %q: %v", name, other, err)
				}
			}
			if err := o.Close(); err != nil {
				t.Error(name, err)
			}
		}
		version, err := Version(t.Context(), address)
		if err != nil || (version > 0) != (name == "postgres") {
			t.Errorf("%s: version %d, %v", name, version, err)
		}
		script, err := Script(address, 0)
		if err != nil || strings.Contains(script, `"mine"`) != (name == "postgres") {
			t.Errorf("%s: the script is %.80q, %v", name, script, err)
		}
	}
	if keys := redisKeys(t, redis.Addr()); len(keys) != 2 || !strings.HasPrefix(keys[0], "mine:") || !strings.HasPrefix(keys[1], "mine:") {
		t.Errorf("Redis has the keys %q", keys)
	}
}

func redisKeys(t *testing.T, addr string) (keys []string) {
	t.Helper()
	client, err := redisclient.Open("redis://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	all, err := client.Do(t.Context(), "", "KEYS", "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range all.([]any) {
		keys = append(keys, key.(string))
	}
	return keys
}
