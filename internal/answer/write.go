package answer

import (
	"io"
	"maps"
	"net/http"
	"slices"
)

// BodyAllowed reports whether an answer of that status has a body (RFC 9110, section 6.4.1).
func BodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// Write sends status, body and trailers. length is the Content-Length of a body; it becomes a header's value. An answer
// with trailers has no Content-Length, because trailers need chunks. It returns an error only if body can't be read
// whole.
func Write(w http.ResponseWriter, status int, trailer http.Header, length []string, body func(io.Writer) error) error {
	h := w.Header()
	if !BodyAllowed(status) {
		if status != http.StatusNotModified {
			delete(h, "Content-Length")
		}
		w.WriteHeader(status)
		return nil
	}
	var names []string
	if len(trailer) > 0 {
		names = slices.Sorted(maps.Keys(trailer))
		announced := FieldNames(h["Trailer"])
		for _, name := range names {
			if !slices.Contains(announced, name) {
				h["Trailer"] = append(slices.Clip(h["Trailer"]), name)
			}
		}
	}
	if len(h["Trailer"]) > 0 || len(h["Transfer-Encoding"]) > 0 {
		delete(h, "Content-Length")
	} else {
		h["Content-Length"] = length
	}
	w.WriteHeader(status)
	if err := body(w); err != nil {
		return err
	}
	for _, name := range names {
		h[name] = trailer[name]
	}
	return nil
}
