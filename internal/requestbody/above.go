package requestbody

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync/atomic"
)

// ReadAbove reports how a body that was read to its end shows that somebody has read it before; "" if it does not show
// this. With a declared length, a missing part was read before: if a connection breaks off, net/http returns an error.
// Without a declared length only two cases can be told. The rest is empty but there is a Content-Type, which nobody
// sends without a body. Or the rest of a multipart body does not begin with the delimiter.
func (b *Body) ReadAbove(r *http.Request) string {
	switch n := b.Size(); {
	case r.ContentLength > 0 && n < r.ContentLength:
		return fmt.Sprintf("%d bytes are left of a Content-Length of %d", n, r.ContentLength)
	case r.ContentLength >= 0:
	case n == 0 && len(r.Header["Content-Type"]) > 0:
		return "nothing is left of a body with a Content-Type"
	case r.MultipartForm != nil:
		begin := make([]byte, 2)
		if _, err := io.ReadFull(b.Sent(), begin); err == nil && !bytes.Equal(begin, []byte("--")) {
			return "its parts were read"
		}
	}
	return ""
}

// ClosedAbove reports whether a body can't be read because somebody has closed it.
func ClosedAbove(err error) bool {
	return errors.Is(err, http.ErrBodyReadAfterClose) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, fs.ErrClosed) ||
		strings.HasSuffix(err.Error(), "body closed by handler") // of net/http's HTTP/2, which exports no error
}

// A Watched notices that it is read or closed.
type Watched struct {
	io.ReadCloser
	Touched atomic.Bool
}

func (b *Watched) Read(p []byte) (int, error) {
	b.Touched.Store(true)
	return b.ReadCloser.Read(p)
}

func (b *Watched) Close() error {
	b.Touched.Store(true)
	return b.ReadCloser.Close()
}
