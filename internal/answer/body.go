package answer

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/budget"
	"github.com/semelhq/semel/internal/requestbody"
)

// ErrTooLarge means that an answer is above the limit up to which answers are stored.
var ErrTooLarge = errors.New("the answer is larger than Policy.MaxResponseBody")

// SniffLen is how many bytes http.DetectContentType looks at.
const SniffLen = 512

// A Body is the written part of an answer's body. Up to Limit, and while there is room in Held, it is in memory. Beyond
// that it is in a temporary file, from which it can be sent, or it is dropped.
type Body struct {
	Limit       int64 // in bytes
	Held, Files *budget.Budget
	Principal   driver.ScopeID
	Dir         string // of the temporary file

	memory  []byte
	begin   []byte // the first bytes of a body that is no longer in memory
	file    *os.File
	named   bool // the file still has its name
	size    int64
	filed   int   // bytes in the file
	taken   int   // taken of Held
	why     error // why the body is not whole in memory
	failed  bool  // the file has failed: nothing more is kept
	written int64 // size of the body when the file failed
	rest    []byte
}

// Size returns how many bytes were written.
func (b *Body) Size() int64 { return b.size }

// WhyNotWhole says why the body is not whole in memory: [ErrTooLarge], or [budget.ErrNoRoom]. It returns nil if the
// body is whole.
func (b *Body) WhyNotWhole() error { return b.why }

// Bytes returns the body; nil if it is not whole in memory.
func (b *Body) Bytes() []byte {
	switch {
	case b.why != nil:
		return nil //nolint:nilerr // keeping nothing is no failure
	case b.memory == nil:
		return []byte{}
	}
	return b.memory[:len(b.memory):len(b.memory)]
}

// Begin returns the first bytes, at most [SniffLen].
func (b *Body) Begin() []byte {
	if b.begin != nil {
		return b.begin
	}
	return b.memory[:min(len(b.memory), SniffLen)]
}

// Append adds to a body. The part that does not stay in memory goes to the temporary file if filed is true; else it is
// dropped. An error means that the file has failed. [Body.Salvage] can still write what was written before.
func Append[T []byte | string](b *Body, p T, filed bool) error {
	before := b.size
	b.size += int64(len(p))
	switch {
	case b.failed:
		return nil
	case b.file != nil:
		if err := b.toFile([]byte(p)); err != nil {
			b.failed, b.written = true, before
			return err
		}
		return nil
	case b.why != nil:
		return nil //nolint:nilerr // keeping nothing is no failure
	case b.size > b.Limit:
		b.why = ErrTooLarge
	case hold(b, p):
		return nil
	default:
		b.why = budget.ErrNoRoom
	}
	memory := b.memory
	b.begin = append(bytes.Clone(b.Begin()), p[:min(len(p), SniffLen-len(b.Begin()))]...)
	b.memory = nil
	if !filed {
		b.giveMemory()
		return nil
	}
	if err := b.makeFile(memory, []byte(p)); err != nil {
		b.failed, b.written, b.rest = true, before, memory
		return err
	}
	b.giveMemory()
	return nil
}

// hold adds to the body in memory, if there is room for it.
func hold[T []byte | string](b *Body, p T) bool {
	if size := len(b.memory) + len(p); size > cap(b.memory) {
		room := int(min(max(2*int64(cap(b.memory)), int64(size)), b.Limit))
		if !b.Held.Take(b.Principal, room-b.taken) {
			return false
		}
		b.taken = room
		b.memory = append(make([]byte, 0, room), b.memory...)
	}
	b.memory = append(b.memory, p...)
	return true
}

func (b *Body) makeFile(parts ...[]byte) error {
	f, err := os.CreateTemp(b.Dir, "semel-answer-*")
	if err != nil {
		return err
	}
	// Where the system allows an open file without a name, the answer does not stay behind even if the process is killed.
	b.file, b.named = f, os.Remove(f.Name()) != nil
	for _, part := range parts {
		if err := b.toFile(part); err != nil {
			return err
		}
	}
	return nil
}

// toFile adds to the temporary file, if there is room for it.
func (b *Body) toFile(p []byte) error {
	if !b.Files.Take(b.Principal, len(p)) {
		return budget.ErrNoRoom
	}
	b.filed += len(p)
	_, err := b.file.Write(p)
	return err
}

// Salvage writes the bytes from before the file failed. whole is false if they could not be read; an error of w does
// not count.
func (b *Body) Salvage(w io.Writer) (whole bool) {
	var from io.Reader = bytes.NewReader(b.rest)
	if b.rest == nil && b.written > 0 {
		from = io.NewSectionReader(b.file, 0, b.written)
	}
	return readWhole(w, from, b.written) == nil
}

// Send writes the body. It returns an error only if the file can't be read whole.
func (b *Body) Send(w io.Writer) error {
	if b.file == nil {
		w.Write(b.memory) //nolint:errcheck // the client has gone
		return nil
	}
	return readWhole(w, io.NewSectionReader(b.file, 0, b.size), b.size)
}

// readWhole copies size bytes. An error of w is ignored: the client has gone.
func readWhole(w io.Writer, from io.Reader, size int64) error {
	src := requestbody.WatchedReader{Reader: from}
	n, err := io.Copy(w, &src)
	if err == nil && n < size {
		return io.ErrUnexpectedEOF // the file has become shorter
	}
	return src.Err
}

// Lend returns how much the body has taken of Held. From now on the caller has to give it back.
func (b *Body) Lend() (taken int) {
	taken, b.taken = b.taken, 0
	return taken
}

func (b *Body) giveMemory() { b.Held.Give(b.Principal, b.Lend()) }

// Close gives back what the body holds. Size still returns its size.
func (b *Body) Close() {
	b.memory, b.rest = nil, nil
	b.giveMemory()
	if b.file == nil {
		return
	}
	b.file.Close() //nolint:errcheck // the file was only written for this answer
	if b.named {
		os.Remove(b.file.Name()) //nolint:errcheck // nobody can correct that here
	}
	b.file = nil
	b.Files.Give(b.Principal, b.filed)
	b.filed = 0
}

// Reset is Close, and leaves a body to which nothing was written.
func (b *Body) Reset() {
	b.Close()
	b.size, b.begin, b.why, b.failed = 0, nil, nil, false
}
