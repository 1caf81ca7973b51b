// Package js holds the JavaScript client, so that a program in Go can serve it to its own pages without a build step:
//
//	client, err := fs.Sub(js.Source, "src")
//	…
//	mux.Handle("GET /client/", http.StripPrefix("/client/", http.FileServerFS(client)))
//
// A page then imports /client/index.js, or /client/page.js, which leaves out what only servers need.
package js

import "embed"

// Source is the client's source: src/index.js, the modules that it imports, and its types.
//
//go:embed src
var Source embed.FS
