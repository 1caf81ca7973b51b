package main

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestAStoreIsUsedOnceItsSchemaIsThere(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "semel.db")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	address := "sqlite://" + file
	status, _, stderr := run(t, "keys", "list", "--store", address)
	if status != 1 {
		t.Errorf("a store without a schema is used: exit status %d", status)
	}
	contains(t, stderr, "version 0", "semel migrate --help")
	status, stdout, stderr := run(t, "migrate", "--store", address)
	migrated := regexp.MustCompile("^" + regexp.QuoteMeta(address) + `: migrated the schema from version 0 to version [1-9]\d*\n$`)
	if status != 0 || stderr != "" || !migrated.MatchString(stdout) {
		t.Errorf("exit status %d, %q, %q", status, stdout, stderr)
	}
	status, stdout, stderr = run(t, "migrate", "--store", address)
	if status != 0 || stderr != "" || !strings.HasSuffix(stdout, ", which is the one needed\n") {
		t.Errorf("again: exit status %d, %q, %q", status, stdout, stderr)
	}
	if status, stdout, _ := run(t, "keys", "list", "--store", address); status != 0 || strings.Count(stdout, "\n") != 1 {
		t.Errorf("the migrated store: exit status %d, %q", status, stdout)
	}
	execute(t, file, "UPDATE semel_meta SET version = 999")
	for _, command := range [][]string{{"migrate"}, {"keys", "list"}} {
		status, stdout, stderr := run(t, append(command, "--store", address)...)
		if status != 1 || stdout != "" {
			t.Errorf("%v on a newer one: exit status %d, %q", command, status, stdout)
		}
		contains(t, stderr, "version 999")
	}
}

func TestMigratePrintsWhatItDoes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "semel.db")
	status, script, stderr := run(t, "migrate", "--print", "--store", "sqlite://"+file)
	if status != 0 || stderr != "" {
		t.Fatalf("exit status %d, %q", status, stderr)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("printing has made the file: %v", err)
	}
	execute(t, file, script)
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := run(t, "migrate", "--store", "sqlite://"+file)
	if status != 0 || !strings.Contains(stdout, "which is the one needed") {
		t.Errorf("after the printed script: exit status %d, %q, %q", status, stdout, stderr)
	}
	if status, stdout, stderr := run(t, "migrate", "--print", "--store", "memory://"); status != 0 || stdout != "" || !strings.Contains(stderr, "has no schema") {
		t.Errorf("of a store without a schema: exit status %d, %q", status, stdout)
	}
	if status, _, stderr := run(t, "migrate", "--print", "--store", "mysql://x"); status != 1 || !strings.Contains(stderr, "unknown kind") {
		t.Errorf("of an unknown one: exit status %d, %q", status, stderr)
	}
}

// execute runs SQL in the database of a file.
func execute(t *testing.T, file, query string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(query); err != nil {
		t.Fatal(err)
	}
}
