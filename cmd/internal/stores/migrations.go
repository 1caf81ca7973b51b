package stores

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/semelhq/semel/pgstore"
	"github.com/semelhq/semel/sqlitestore"
)

// Migrations returns the folder of SQL files that bring the schema of the store that an address names from a version, 0
// if there is none yet, to the one that is needed; nil if such a store has no schema.
func Migrations(address string, from int) (fs.FS, error) {
	a, err := parse(address)
	var after func(version int) fs.FS
	switch {
	case err != nil:
		return nil, fmt.Errorf("store %q: %w", Redacted(address), err)
	case a.kind == sqliteKind:
		after = sqlitestore.Migrations
	case a.kind == postgresKind:
		after = func(version int) fs.FS { return pgstore.Migrations(a.text("schema"), version) }
	default:
		return nil, nil
	}
	all, err := fs.ReadDir(after(0), ".")
	if err != nil {
		return nil, fmt.Errorf("list the migrations: %w", err)
	}
	if from < 0 || from > len(all) {
		return nil, fmt.Errorf("the schema has no version %d: this program knows versions up to %d", from, len(all))
	}
	return after(from), nil
}

// Script joins the files of [Migrations] to a script that runs in one transaction; "" if there are none.
func Script(address string, from int) (string, error) {
	files, err := Migrations(address, from)
	if files == nil || err != nil {
		return "", err
	}
	all, err := fs.ReadDir(files, ".")
	if len(all) == 0 || err != nil {
		return "", err
	}
	var script strings.Builder
	if a, _ := parse(address); a.kind == sqliteKind {
		script.WriteString("BEGIN IMMEDIATE;\n\n") // locked before it is read
	} else {
		script.WriteString("BEGIN;\n\n")
	}
	for _, file := range all {
		sql, err := fs.ReadFile(files, file.Name())
		if err != nil {
			return "", fmt.Errorf("read a migration: %w", err)
		}
		script.Write(sql)
	}
	script.WriteString("\nCOMMIT;\n")
	return script.String(), nil
}
