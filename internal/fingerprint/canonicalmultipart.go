package fingerprint

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"slices"

	"github.com/semelhq/semel/internal/digest"
	"github.com/semelhq/semel/internal/structuredfield"
)

const (
	// maxBoundary is the length of the longest boundary (RFC 2046, section 5.1.1).
	maxBoundary = 70
	// maxPartHeader bounds a part's header in bytes, and each line of it.
	maxPartHeader = 8 << 10
)

// multipartDigest returns a digest of the parts of a multipart body in their order: each part with its header,
// by field name, and its content. It reports false for a body that is not written exactly as RFC 2046 says, because
// lenient readers see different parts in it. An error means that body could not be read.
//
// The body is read as a stream, with little memory whatever its size.
func multipartDigest(d *digest.Digester, body io.Reader, boundary string) (sum [sha256.Size]byte, ok bool, err error) {
	if len(boundary) > maxBoundary {
		return sum, false, nil
	}
	m := multipartReader{in: bufio.NewReaderSize(body, maxPartHeader), delimiter: []byte("--" + boundary)}
	s := d.Start("semel request parts 1")
	more := m.opening()
	for more {
		s.Flag(true)
		m.header(s)
		content := d.Start("semel request part 1")
		more = m.content(content) && m.next()
		part := content.Sum()
		s.Bytes(part[:])
	}
	s.Flag(false)
	sum = s.Sum()
	return sum, !m.malformed && m.err == nil, m.err
}

// A multipartReader stops at the first fault.
type multipartReader struct {
	in        *bufio.Reader
	delimiter []byte // without the line break before it
	text      []byte // of a header
	fields    []partField
	malformed bool
	err       error
}

type partField struct{ name, value []byte }

// fail notes why reading ends: an error of the source, or a fault in the body's form.
func (m *multipartReader) fail(err error) bool {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, bufio.ErrBufferFull) {
		m.malformed = true
	} else {
		m.err = err
	}
	return false
}

// opening moves past the first delimiter, with which the body must begin.
func (m *multipartReader) opening() (more bool) {
	got, err := m.in.Peek(len(m.delimiter))
	if !bytes.Equal(got, m.delimiter) {
		return m.fail(err)
	}
	m.discard(len(got))
	return m.next()
}

// next moves past the rest of a delimiter's line, and reports whether there is another part. There is none if two
// dashes follow the delimiter, with nothing but a line break after them.
func (m *multipartReader) next() (more bool) {
	got, err := m.in.Peek(5)
	switch {
	case bytes.HasPrefix(got, []byte("\r\n")):
		m.discard(2)
		return true
	case err == io.EOF && (string(got) == "--" || string(got) == "--\r\n"):
		return false
	}
	return m.fail(err)
}

// header writes a part's header fields, sorted by name. Fields of the same name keep their order.
func (m *multipartReader) header(s *digest.Digest) {
	m.text, m.fields = slices.Grow(m.text[:0], maxPartHeader), m.fields[:0]
	for {
		line, err := m.in.ReadSlice('\n')
		if err != nil {
			m.fail(err)
			return
		}
		line, ok := bytes.CutSuffix(line, []byte("\r\n"))
		if ok && len(line) == 0 {
			break
		}
		if !ok || len(m.text)+len(line) > maxPartHeader || !m.field(line) {
			m.fail(nil)
			return
		}
	}
	slices.SortStableFunc(m.fields, func(a, b partField) int { return bytes.Compare(a.name, b.name) })
	s.Uint(uint64(len(m.fields)))
	for _, f := range m.fields {
		s.Bytes(f.name)
		s.Bytes(f.value)
	}
}

// field reads a line of a header, and reports whether it is a field. A folded line isn't.
func (m *multipartReader) field(line []byte) bool {
	start := len(m.text)
	m.text = append(m.text, line...) // within the capacity, so that earlier fields are not moved
	name, value, ok := bytes.Cut(m.text[start:], []byte(":"))
	if !ok || !structuredfield.IsToken(string(name)) || bytes.ContainsAny(value, "\x00\r") {
		return false
	}
	for i, b := range name {
		if b >= 'A' && b <= 'Z' {
			name[i] = b | 0x20
		}
	}
	m.fields = append(m.fields, partField{name, bytes.Trim(value, " \t")})
	return true
}

// content writes the bytes before the next delimiter, and moves past the delimiter.
func (m *multipartReader) content(w io.Writer) bool {
	if m.malformed || m.err != nil {
		return false
	}
	for {
		got, err := m.in.Peek(m.in.Size())
		// Some readers take text within a line for a delimiter if it looks like one.
		if i := bytes.Index(got, m.delimiter); i >= 0 {
			if i < 2 || string(got[i-2:i]) != "\r\n" {
				return m.fail(nil)
			}
			w.Write(got[:i-2]) //nolint:errcheck // w is a digest, or nothing
			m.discard(i + len(m.delimiter))
			return true
		}
		if err != nil {
			return m.fail(err)
		}
		// The last bytes may be the beginning of a delimiter and of the line break before it.
		n := len(got) - len(m.delimiter) - 1
		w.Write(got[:n]) //nolint:errcheck // w is a digest, or nothing
		m.discard(n)
	}
}

// discard moves past n bytes that were peeked at. It can't fail.
func (m *multipartReader) discard(n int) {
	m.in.Discard(n) //nolint:errcheck // they are in the buffer
}
