// Package web is the shop's checkout page. It pays with the JavaScript client of semel, which the program serves from its
// own binary: there is no build step, and nothing is loaded from elsewhere.
//
// Where to look: static/checkout.js is how a page pays once, whatever happens to it, and is what to copy.
// static/naive.js is the same without semel, to compare. static/page.js shows it, and dev.go with static/scenes.js is
// for those who want to break it.
//
// The pictures in docs/pictures are made, where the typeface Inter is installed, by
//
//	SHOP_SCREENSHOTS=../../../../docs/pictures go test ./web/webtest -run UsedByAll
//
// in examples/shop.
package web

import (
	"embed"
	"io/fs"
	"net/http"

	"github.com/semelhq/semel/js"
)

//go:embed static
var static embed.FS

// Handler serves the page at /, and has the rest served by the shop. With dev, it also serves what a demonstration
// needs, and what must not be had in production: see [Dev].
func Handler(shop http.Handler, dev *Dev) http.Handler {
	mux := http.NewServeMux()
	files := http.FileServerFS(sub(static, "static"))
	mux.Handle("GET /{$}", page(files))
	mux.Handle("GET /static/", page(http.StripPrefix("/static/", files)))
	mux.Handle("GET /client/", page(http.StripPrefix("/client/", http.FileServerFS(sub(js.Source, "src")))))
	if dev != nil {
		shop = dev.mount(mux, shop)
	}
	mux.Handle("/", shop)
	return mux
}

// policy lets the page load only what this program serves, and nobody show it within another page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func page(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}

func sub(files fs.FS, folder string) fs.FS {
	f, err := fs.Sub(files, folder)
	if err != nil {
		panic(err) // the folder's name is not valid
	}
	return f
}
