package main

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
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

// The files of a folder are those that the printed script joins. What is there is never written over.
func TestMigrateWritesNumberedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, folder := filepath.Join(dir, "semel.db"), filepath.Join(dir, "migrations", "semel")
	write := []string{"migrate", "--store", "sqlite://" + file, "--files", folder}
	if status, stdout, stderr := run(t, write...); status != 0 || stdout != "" || stderr != "" {
		t.Fatalf("exit status %d, %q, %q", status, stdout, stderr)
	}
	names, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("the files are %q, %v", names, err)
	}
	for _, name := range names {
		sql, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		execute(t, file, string(sql))
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := run(t, "migrate", "--store", "sqlite://"+file)
	if status != 0 || !strings.Contains(stdout, "which is the one needed") {
		t.Errorf("after the files: exit status %d, %q, %q", status, stdout, stderr)
	}
	if status, _, stderr := run(t, write...); status != 1 || !strings.Contains(stderr, "file exists") {
		t.Errorf("into a folder that has them: exit status %d, %q", status, stderr)
	}
	latest := strconv.Itoa(len(names))
	if status, _, stderr := run(t, append(write, "--from", latest)...); status != 0 || !strings.Contains(stderr, "version "+latest) {
		t.Errorf("of none: exit status %d, %q", status, stderr)
	}
}

func TestMigrateShowsWhatCameAfterAVersion(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--print", "--from", "1"}, 0, "version 1 of the schema is the one needed"},
		{[]string{"--print", "--from", "999"}, 1, "no version 999"},
		{[]string{"--print", "--from=-1"}, 1, "no version -1"},
		{[]string{"--from", "1"}, 2, "--from needs --print or --files"},
		{[]string{"--print", "--files", filepath.Join(t.TempDir(), "x")}, 2, "do not go together"},
	} {
		status, stdout, stderr := run(t, append([]string{"migrate", "--store", "postgres://nowhere.invalid/x"}, row.args...)...)
		if status != row.status || stdout != "" || !strings.Contains(stderr, row.says) {
			t.Errorf("%q: exit status %d, %q, %q", row.args, status, stdout, stderr)
		}
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
