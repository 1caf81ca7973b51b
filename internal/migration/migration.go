// Package migration holds the numbered files of SQL that make a store's schema.
package migration

import (
	"io/fs"
	"testing/fstest"
)

// Pattern is what the names of the files match. Those of goose end in .sql, those of golang-migrate in .up.sql. Their
// comments for goose make each file one statement to it; the others read them as comments.
const Pattern = "*.up.sql"

// Files are the migrations of a schema, in order: the nth makes version n.
type Files []File

// A File is one migration.
type File struct{ Name, SQL string }

// Read returns the files of an embedded folder.
func Read(embedded fs.FS, folder string) Files {
	names, err := fs.Glob(embedded, folder+"/"+Pattern)
	if err != nil {
		panic(err) // the pattern is wrong
	}
	var files Files
	for _, name := range names { // in lexical order, which is that of their numbers
		sql, err := fs.ReadFile(embedded, name)
		if err != nil {
			panic(err) // not embedded
		}
		files = append(files, File{name[len(folder)+1:], string(sql)})
	}
	return files
}

// After returns a folder with the files of the versions after one, their SQL as fill makes it.
func (f Files) After(version int, fill func(sql string) string) fs.FS {
	folder := fstest.MapFS{}
	for _, file := range f[min(max(version, 0), len(f)):] {
		folder[file.Name] = &fstest.MapFile{Data: []byte(fill(file.SQL)), Mode: 0o444}
	}
	return folder
}
