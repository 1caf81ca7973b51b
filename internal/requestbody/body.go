// Package requestbody reads the body of a request once, into memory or a temporary file, so that it can be read again.
package requestbody

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/budget"
	"github.com/semelhq/semel/refusal"
)

// Options say how a request's body is read. Zero fields mean the default.
type Options struct {
	Limit  int64    // bytes, as sent and decoded; defaults to 1 MiB
	Memory int64    // bytes above which the body goes to a temporary file; defaults to limit, that is never
	Dir    string   // of the temporary file; defaults to os.TempDir
	Length int64    // the Content-Length, 0 or negative if unknown; it is not trusted
	Coding []string // the field lines of Content-Encoding

	Principal driver.ScopeID // the principal whose budget is used; zero if it is not known yet
	Held      *budget.Budget // of bytes in memory; nil for no limit
	Files     *budget.Budget // of bytes in temporary files; nil for no limit

	Reuse *Body // a body no longer in use, whose memory may be used again; nil for none
}

// A Body is a request's body, read whole. Once somebody has read it, or may have, its bytes are never used for another
// request. A handler that still reads after it has returned sees its own body or none.
type Body struct {
	// As it was sent, in memory or in a file.
	Data     []byte
	file     *os.File
	unlinked bool
	Lent     bool // the bytes were shown to a function of the user
	N        int64
	taken    account
	closed   atomic.Bool
	opened   atomic.Bool
	first    bodyReader // for the first Open: most bodies are read once

	// Without its content coding, which is "gzip", "deflate" or "" for none. If the coding can't be undone, Opaque names
	// it and the body stays as it was sent.
	coding     string
	Opaque     string
	Plain      []byte // nil if streamed
	PlainSize  int64
	Streamed   bool  // too large for memory
	SpoolAbove int64 // the size above which bodies are streamed; 0 if none is
}

// An account is what a body has taken of the budgets.
type account struct {
	principal   driver.ScopeID
	held, files *budget.Budget
	n, filed    int
}

func (a *account) hold(n int) bool {
	if !a.held.Take(a.principal, n) {
		return false
	}
	a.n += n
	return true
}

func (a *account) file(n int) bool {
	if !a.files.Take(a.principal, n) {
		return false
	}
	a.filed += n
	return true
}

func (a *account) close() {
	a.held.Give(a.principal, a.n)
	a.files.Give(a.principal, a.filed)
	a.n, a.filed = 0, 0
}

// A filing writes to a temporary file as long as there is room.
type filing struct {
	io.Writer
	taken *account
}

func (f filing) Write(p []byte) (int, error) {
	if !f.taken.file(len(p)) {
		return 0, budget.ErrNoRoom
	}
	return f.Writer.Write(p)
}

// Read reads a body. If the body is larger than the limit, as sent or decoded, the error wraps refusal.BodyTooLarge.
// Whatever length the client claims, Read takes no more memory than it has read. A nil src is an empty body.
func Read(src io.Reader, o Options) (*Body, error) {
	if o.Limit <= 0 {
		o.Limit = 1 << 20
	}
	if o.Memory <= 0 || o.Memory > o.Limit {
		o.Memory = o.Limit
	}
	if o.Length > o.Limit {
		return nil, tooLarge("", o.Limit)
	}
	if src == nil {
		src = http.NoBody
	}
	b := o.Reuse
	var room []byte
	if b == nil {
		b = &Body{}
	} else {
		room = b.Data[:0]
		*b = Body{}
	}
	if o.Memory < o.Limit {
		b.SpoolAbove = o.Memory
	}
	b.taken = account{principal: o.Principal, held: o.Held, files: o.Files}
	data, err := readUpTo(src, room, o.Memory, o.Length, &b.taken)
	switch {
	case err != nil:
		b.taken.close()
		return nil, readError(err)
	case int64(len(data)) <= o.Memory:
		b.Data, b.N = data, int64(len(data))
	case o.Memory == o.Limit:
		b.taken.close()
		return nil, tooLarge("", o.Limit)
	default:
		if err := b.spool(data, src, &o); err != nil {
			b.Close() //nolint:errcheck // the request is refused for the first error
			return nil, err
		}
	}
	if err := b.decode(&o); err != nil {
		b.Close() //nolint:errcheck // the request is refused for the first error
		return nil, err
	}
	return b, nil
}

func tooLarge(how string, limit int64) error {
	return fmt.Errorf("read request body: %w: more than %d bytes%s", refusal.BodyTooLarge, limit, how)
}

// ErrSpooled means that the temporary file of a request's body has failed. The request did not cause this.
var ErrSpooled = errors.New("spooled request body")

// readError distinguishes the limit that somebody set before from other errors.
func readError(err error) error {
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return tooLarge("", large.Limit)
	}
	return fmt.Errorf("read request body: %w", err)
}

const longestReused = 16 << 10

// Reusable reports whether nobody can still hold a part of the body, which is no longer in use, and whether its memory
// is worth keeping.
func (b *Body) Reusable() bool {
	return !b.Lent && !b.opened.Load() && b.file == nil && cap(b.Data) <= longestReused
}

// readUpTo reads src to its end, or one byte or more beyond limit. It reads into room if that is large enough. The
// memory that it takes is counted in taken; the error is budget.ErrNoRoom if that is too much.
func readUpTo(src io.Reader, room []byte, limit, hint int64, taken *account) ([]byte, error) {
	const unknown, most = 512, 16 << 10 // first steps
	first := int64(unknown)
	if hint > 0 {
		first = min(hint, most) + 1 // one byte more, in which to see the end
	}
	buf := room
	if first = min(first, limit+1); first > int64(cap(room)) {
		buf = make([]byte, 0, first)
	}
	if !taken.hold(cap(buf)) {
		return nil, budget.ErrNoRoom
	}
	for {
		n, err := src.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return nil, err
		case int64(len(buf)) > limit:
			return buf, nil
		}
		if len(buf) == cap(buf) {
			size := int(min(2*int64(cap(buf)), limit+1))
			if !taken.hold(size - cap(buf)) {
				return nil, budget.ErrNoRoom
			}
			buf = append(make([]byte, 0, size), buf...)
		}
	}
}

// spool writes head, which was already read, and the rest of src to a temporary file.
func (b *Body) spool(head []byte, src io.Reader, o *Options) (err error) {
	if b.file, err = os.CreateTemp(o.Dir, "semel-body-*"); err != nil {
		return fmt.Errorf("%w: write: %w", ErrSpooled, err)
	}
	// Where the system allows an open file without a name, the body does not stay behind even if the process is killed.
	b.unlinked = os.Remove(b.file.Name()) == nil
	rest := WatchedReader{Reader: io.LimitReader(src, o.Limit-int64(len(head))+1)}
	n, err := io.Copy(filing{b.file, &b.taken}, io.MultiReader(bytes.NewReader(head), &rest))
	b.taken.held.Give(b.taken.principal, b.taken.n) // the memory of head
	b.taken.n = 0
	switch {
	case rest.Err != nil:
		return readError(rest.Err)
	case errors.Is(err, budget.ErrNoRoom):
		return fmt.Errorf("read request body: %w", err)
	case err != nil:
		return fmt.Errorf("%w: write: %w", ErrSpooled, err)
	case n > o.Limit:
		return tooLarge("", o.Limit)
	}
	b.N = n
	return nil
}

// A WatchedReader remembers the first error of its source that is not io.EOF.
type WatchedReader struct {
	io.Reader
	Err error
}

func (r *WatchedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF && r.Err == nil {
		r.Err = err
	}
	return n, err
}

// decode undoes the content coding, if it is one that can be undone.
func (b *Body) decode(o *Options) error {
	coding := contentCoding(o.Coding)
	if coding == "gzip" || coding == "deflate" {
		b.coding = coding
		if ok, err := b.inflate(o); ok || err != nil {
			return err
		}
		b.coding = ""
	}
	b.Opaque = coding
	b.Plain, b.PlainSize, b.Streamed = b.Data, b.N, b.file != nil
	return nil
}

// contentCoding returns the codings of a body in normal form, "" for none (RFC 9110, section 8.4).
func contentCoding(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	var names []string
	for _, name := range strings.Split(strings.ToLower(strings.Join(lines, ",")), ",") {
		switch name = strings.Trim(name, " \t"); name {
		case "", "identity":
		case "x-gzip":
			names = append(names, "gzip")
		default:
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// inflate decodes the body once, into memory if it is small enough, and reports whether it is well-formed.
func (b *Body) inflate(o *Options) (ok bool, err error) {
	src := WatchedReader{Reader: b.Sent()}
	r := inflater{src: bufio.NewReader(&src), coding: b.coding}
	plain, err := readUpTo(&r, nil, o.Memory, 0, &b.taken)
	size := int64(len(plain))
	if err == nil && size > o.Memory && o.Memory < o.Limit {
		plain, b.Streamed = nil, true
		var n int64
		n, err = io.Copy(io.Discard, io.LimitReader(&r, o.Limit-size+1))
		size += n
	}
	switch {
	case src.Err != nil:
		return false, fmt.Errorf("%w: read: %w", ErrSpooled, src.Err)
	case errors.Is(err, budget.ErrNoRoom):
		return false, fmt.Errorf("read request body: %w", err)
	case err != nil:
		return false, nil //nolint:nilerr // a body that is not well-formed is no failure: it counts as it was sent
	case size > o.Limit:
		return false, tooLarge(" decoded", o.Limit)
	}
	b.Plain, b.PlainSize = plain, size
	return true, nil
}

// An inflater undoes one gzip or zlib stream. Nothing may follow the stream, because readers differ in what they make
// of it.
type inflater struct {
	src    *bufio.Reader // has ReadByte, so that decoders take no more bytes than they need
	coding string
	r      io.Reader
}

var errTrailingData = errors.New("data after the end of the compressed stream")

func (i *inflater) Read(p []byte) (int, error) {
	if i.r == nil {
		if err := i.open(); err != nil {
			return 0, err
		}
	}
	n, err := i.r.Read(p)
	if err == io.EOF {
		if _, more := i.src.ReadByte(); more == nil {
			err = errTrailingData
		}
	}
	return n, err
}

func (i *inflater) open() error {
	if i.coding == "deflate" {
		r, err := zlib.NewReader(i.src)
		i.r = r
		return err
	}
	r, err := gzip.NewReader(i.src)
	if err == nil {
		r.Multistream(false)
	}
	i.r = r
	return err
}

// Sent returns a reader of the bytes as sent. If the file has become shorter, reading it is an error.
func (b *Body) Sent() io.Reader {
	if b.file != nil {
		return &bodyReader{body: b}
	}
	return bytes.NewReader(b.Data)
}

// Decoded returns a reader of the body without its content coding.
func (b *Body) Decoded() io.Reader {
	switch {
	case !b.Streamed:
		return bytes.NewReader(b.Plain)
	case b.coding != "":
		return &inflater{src: bufio.NewReader(b.Sent()), coding: b.coding}
	}
	return b.Sent()
}

// Stream writes the body without its content coding to w.
func (b *Body) Stream(w io.Writer) error {
	n, err := io.Copy(w, b.Decoded())
	if err == nil && n != b.PlainSize {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("%w: read: %w", ErrSpooled, err)
	}
	return nil
}

// Size returns how many bytes were sent.
func (b *Body) Size() int64 { return b.N }

// Open returns a reader of the bytes as sent, from the first one on. Several readers may be used at once.
func (b *Body) Open() io.ReadCloser {
	if b.opened.Swap(true) {
		return &bodyReader{body: b}
	}
	b.first.body = b
	return &b.first
}

// Close removes the temporary file. From then on readers return http.ErrBodyReadAfterClose. It may be called while they
// read, and may be called again.
func (b *Body) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	b.taken.close()
	if b.file == nil {
		return nil
	}
	err := b.file.Close()
	if !b.unlinked {
		err = errors.Join(err, os.Remove(b.file.Name()))
	}
	if err != nil {
		return fmt.Errorf("remove spooled request body: %w", err)
	}
	return nil
}

// A bodyReader is the body that a handler reads. As with the bodies of net/http, Close may be called during Read.
type bodyReader struct {
	body   *Body
	at     int64
	closed atomic.Bool
}

func (r *bodyReader) Read(p []byte) (n int, err error) {
	if r.closed.Load() || r.body.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	left := r.body.N - r.at
	switch {
	case len(p) == 0:
		return 0, nil
	case left <= 0:
		return 0, io.EOF
	case r.body.file == nil:
		n = copy(p, r.body.Data[r.at:])
	default:
		n, err = r.body.file.ReadAt(p[:min(int64(len(p)), left)], r.at)
		if errors.Is(err, os.ErrClosed) {
			return 0, http.ErrBodyReadAfterClose
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF // the file has become shorter
		}
	}
	r.at += int64(n)
	return n, err
}

func (r *bodyReader) Close() error {
	r.closed.Store(true)
	return nil
}
