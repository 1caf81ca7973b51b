package answer

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/thrown"
)

// A Codec compresses stored bodies; see the root package.
type Codec interface {
	Name() string
	Encode(body []byte) ([]byte, error)
	Decode(stored []byte, limit int64) ([]byte, error)
}

// Codecs finds a codec by the name in a record. Gzip is always known, so that a record can be read after a change of
// Options.Codec.
type Codecs struct {
	write  Codec
	name   string // name of write
	byName map[string]Codec
	failed func(error)
}

// NewCodecs returns Codecs that compress with c; with gzip if c is nil. failed is told the error that keeps a body from
// being compressed.
func NewCodecs(c Codec, failed func(error)) Codecs {
	if c == nil {
		c = gzipCodec{}
	}
	name := c.Name()
	return Codecs{write: c, name: name, failed: failed, byName: map[string]Codec{gzipCodec{}.Name(): gzipCodec{}, name: c}}
}

// A body larger than many samples is compressed only if its beginning shrinks. For an image or an archive compressing
// would cost much processor time and save nothing.
const (
	codecSample = 64 << 10 // bytes
	manySamples = 8
)

// Pack compresses a body of at least threshold bytes. If that does not make it smaller, it returns the body and "".
func (c *Codecs) Pack(body []byte, threshold int) ([]byte, string) {
	if threshold < 0 || len(body) < threshold || len(body) == 0 {
		return body, ""
	}
	if len(body) > manySamples*codecSample {
		sample, err := encode(c.write, body[:codecSample])
		if err == nil && len(sample) > codecSample*31/32 {
			return body, ""
		}
	}
	packed, err := encode(c.write, body)
	if err != nil {
		c.failed(fmt.Errorf("compress a body with codec %q: %w", c.name, err))
	}
	if err != nil || len(packed) >= len(body) {
		return body, ""
	}
	return packed, c.name
}

// A panic of a codec counts as an error of the codec.

func encode(c Codec, body []byte) (packed []byte, err error) {
	defer thrown.Catch(&err)
	return c.Encode(body)
}

func decode(c Codec, stored []byte, limit int64) (body []byte, err error) {
	defer thrown.Catch(&err)
	return c.Decode(stored, limit)
}

// Unpack returns a stored body as it was sent. If it can't, the error wraps driver.ErrUnreadable.
func (c *Codecs) Unpack(r *driver.Response, limit int64) ([]byte, error) {
	if r.Codec == "" {
		return r.Body, nil
	}
	codec, ok := c.byName[r.Codec]
	if !ok {
		return nil, fmt.Errorf("unpack stored body: %w: unknown codec %q", driver.ErrUnreadable, r.Codec)
	}
	body, err := decode(codec, r.Body, limit)
	if err != nil {
		return nil, fmt.Errorf("unpack stored body: %w: %w", driver.ErrUnreadable, err)
	}
	return body, nil
}

type gzipCodec struct{}

func (gzipCodec) Name() string { return "gzip" }

var gzipWriters = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic("semel: " + err.Error()) // BestSpeed is a valid level
	}
	return w
}}

func (gzipCodec) Encode(body []byte) ([]byte, error) {
	w := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	var out bytes.Buffer
	w.Reset(&out)
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return bytes.Clone(out.Bytes()), nil
}

func (gzipCodec) Decode(stored []byte, limit int64) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(stored))
	if err != nil {
		return nil, err
	}
	// The last four bytes are the length of the body (RFC 1952, section 2.3.1). They are no more than a hint: what is
	// compressed has at most 1032 times its size.
	length := int64(binary.LittleEndian.Uint32(stored[len(stored)-4:]))
	body := bytes.NewBuffer(make([]byte, 0, min(length, limit, 1032*int64(len(stored)))+bytes.MinRead))
	if _, err := body.ReadFrom(io.LimitReader(r, limit+1)); err != nil {
		return nil, err
	}
	if int64(body.Len()) > limit {
		return nil, fmt.Errorf("larger than %d bytes", limit)
	}
	return body.Bytes(), nil
}
