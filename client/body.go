package client

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// body is a request's body, as often as it is needed.
type body struct {
	first  io.ReadCloser // what the first attempt sends, nil if there is none
	again  func() (io.ReadCloser, error)
	length int64
	used   bool
}

// bodyOf returns the body of a request. If it has to be sent again and can't be got again, it is read into memory, up
// to limit; an error wraps ErrBodyNotRepeatable unless reading failed.
func bodyOf(r *http.Request, repeats bool, limit int64) (body, error) {
	b := body{first: r.Body, again: r.GetBody, length: r.ContentLength}
	if !repeats || r.Body == nil || r.Body == http.NoBody || r.GetBody != nil {
		return b, nil
	}
	tooLarge := func() error {
		return fmt.Errorf("client: %w: it is larger than %d bytes and has no GetBody", ErrBodyNotRepeatable, limit)
	}
	if r.ContentLength > limit {
		return b, tooLarge()
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if closeErr := r.Body.Close(); err == nil {
		err = closeErr
	}
	switch {
	case err != nil:
		return b, fmt.Errorf("client: read request body: %w", err)
	case int64(len(text)) > limit:
		return b, tooLarge()
	case r.ContentLength > 0 && r.ContentLength != int64(len(text)):
		return b, fmt.Errorf("client: the request's body has %d bytes, its ContentLength is %d", len(text), r.ContentLength)
	}
	if len(r.Trailer) == 0 || r.ContentLength > 0 { // a trailer needs a body whose length is not told (RFC 9112, section 7.1.2)
		b.length = int64(len(text))
	} else {
		b.length = -1
	}
	b.again = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	if b.length == 0 {
		b.again = func() (io.ReadCloser, error) { return http.NoBody, nil }
	}
	b.first, _ = b.again()
	return b, nil
}

// streamed reports whether a request's body would have to be read into memory to be sent again, and may be too large.
func streamed(r *http.Request, limit int64) bool {
	return r.Body != nil && r.Body != http.NoBody && r.GetBody == nil && (r.ContentLength <= 0 || r.ContentLength > limit)
}

// next returns the body for an attempt.
func (b *body) next() (io.ReadCloser, error) {
	if !b.used || b.again == nil { // without again there is nothing to send, or only once
		b.used = true
		return b.first, nil
	}
	again, err := b.again()
	if err != nil {
		return nil, fmt.Errorf("client: %w: %w", ErrBodyNotRepeatable, err)
	}
	return again, nil
}

// drop closes a first body that was never sent.
func (b *body) drop() {
	if !b.used && b.first != nil {
		b.first.Close()
	}
}
