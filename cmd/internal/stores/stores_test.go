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

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/sqlitestore"
)

func claim(t *testing.T, o *Opened, id semel.ID) (owned bool) {
	t.Helper()
	_, owned, err := o.Store.Claim(context.Background(), id, semel.Claim{Token: semel.NewToken()})
	if err != nil {
		t.Fatal(err)
	}
	return owned
}

func TestAnAddressNamesAStore(t *testing.T) {
	t.Parallel()
	o, err := Open(t.Context(), "memory://", nil)
	if err != nil || o.Lasts || o.Path != "" || !claim(t, o, semel.ID{1}) {
		t.Errorf("memory://: %+v, %v", o, err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}

	// Characters that mean something in addresses and data source names are part of the file's name.
	path := filepath.Join(t.TempDir(), "a #%41&é name.db")
	for i := range 2 {
		o, err := Open(t.Context(), "sqlite://"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !o.Lasts || o.Path != path {
			t.Errorf("%+v", o)
		}
		if owned := claim(t, o, semel.ID{1}); owned != (i == 0) {
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
	o, err := Open(t.Context(), "sqlite://semel.db", nil)
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
		{"mysql://host/db", "unknown kind; there are memory:// and sqlite://FILE", nil},
		{"memory://x", "memory:// takes nothing", nil},
		{"sqlite://", "needs the path of a file", nil},
		{"sqlite://semel.db?mode=ro", "no settings", nil},
		{"sqlite://" + dir, "is a folder", nil},
		{"sqlite://" + filepath.Join(dir, "missing", "semel.db"), "missing does not exist", nil},
		{"sqlite://" + text, "not a SQLite database", sqlitestore.ErrCorrupt},
		{"sqlite://" + filepath.Join(text, "semel.db"), "not a directory", nil},
	} {
		o, err := Open(t.Context(), row.address, nil)
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
		_, err := Open(t.Context(), address, nil)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
		if _, err := Migrations(address); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}

func TestASchemaCanBeMadeByHand(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "semel.db")
	address := "sqlite://" + path
	_, err := OpenUnmigrated(t.Context(), address, nil)
	if !errors.Is(err, sqlitestore.ErrVersion) {
		t.Fatalf("%v, want ErrVersion", err)
	}
	script, err := Migrations(address)
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
	o, err := OpenUnmigrated(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if !claim(t, o, semel.ID{1}) {
		t.Error("not owned")
	}
	if script, err := Migrations("memory://"); script != "" || err != nil {
		t.Errorf("memory:// needs %q, %v", script, err)
	}
}
