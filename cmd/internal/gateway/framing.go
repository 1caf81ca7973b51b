package gateway

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A framedListener accepts connections without TLS whose requests of HTTP/1 are watched for two lengths. A proxy in
// front that goes by the Content-Length of a request that has a Transfer-Encoding too sees another end of it than the
// gateway: what follows would be somebody else's request (RFC 9112, section 11.2). net/http drops such a Content-Length
// in silence.
type framedListener struct{ net.Listener }

func (l framedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &framedConn{Conn: c}, nil
}

type framedConn struct {
	net.Conn
	framing framing
}

func (c *framedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.framing.read(p[:n])
	return n, err
}

// CloseWrite lets a client read the answer to a request that was refused before it had come whole.
func (c *framedConn) CloseWrite() error {
	if tcp, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return tcp.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SetLinger lets a guard break a stream that it can't end otherwise.
func (c *framedConn) SetLinger(sec int) error {
	if tcp, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		return tcp.SetLinger(sec)
	}
	return errors.ErrUnsupported
}

type framingKey struct{}

// withFraming gives the requests of a connection what watches it.
func withFraming(ctx context.Context, c net.Conn) context.Context {
	if client, ok := c.(*clientConn); ok {
		c = client.NetConn()
	}
	if framed, ok := c.(*framedConn); ok {
		return context.WithValue(ctx, framingKey{}, &framed.framing)
	}
	return ctx
}

// hasTwoLengths reports whether a request had both a Content-Length and a Transfer-Encoding, or may have had. It must
// be asked about each request of a connection, once and in their order.
func hasTwoLengths(r *http.Request) bool {
	f, ok := r.Context().Value(framingKey{}).(*framing)
	if !ok {
		return false
	}
	two, known := f.next()
	return two || !known && mayHaveTwoLengths(r)
}

// mayHaveTwoLengths reports whether net/http may have dropped one of two lengths: the Content-Length beside a
// Transfer-Encoding, or from a request of HTTP/1.0 the Transfer-Encoding.
func mayHaveTwoLengths(r *http.Request) bool {
	return len(r.TransferEncoding) > 0 || r.ProtoMajor == 1 && r.ProtoMinor == 0
}

// A framing follows the bytes of one connection from message to message. Where it can't, every later request that may
// have had two lengths counts as one that had.
type framing struct {
	mu    sync.Mutex
	part  func(f *framing, line []byte) // reads the next line, which is one of a head if it is nil
	line  []byte                        // what has come of it
	skip  int64                         // bytes of a body before it
	lost  bool
	heads []bool // of requests that nobody has asked about: whether each had two lengths

	// Of the head that is read:
	begun, chunked, encoded, sized bool
	framing                        bool // the line before is one of the two
	size                           int64
}

const (
	longestFrameLine = 512  // what is kept of a line: its beginning and its end; lengths in longer ones are not followed
	frameLineEnd     = 16   // of which so much is its end, where a request says its protocol
	mostFrameHeads   = 1024 // more than fit into what net/http reads at once
)

// next returns whether the next request had two lengths, if that is known.
func (f *framing) next() (two, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.heads) == 0 {
		return false, false
	}
	two = f.heads[0]
	f.heads = f.heads[1:]
	return two, true
}

func (f *framing) read(p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(p) > 0 && !f.lost {
		if f.skip > 0 {
			n := min(f.skip, int64(len(p)))
			f.skip, p = f.skip-n, p[n:]
			continue
		}
		rest, after, found := bytes.Cut(p, []byte("\n"))
		for piece := range slices.Chunk(rest, longestFrameLine) {
			if f.line = append(f.line, piece...); len(f.line) > longestFrameLine {
				f.line = slices.Delete(f.line, longestFrameLine-frameLineEnd, len(f.line)-frameLineEnd)
			}
		}
		p = after
		if found {
			line := bytes.TrimSuffix(f.line, []byte("\r"))
			f.line = f.line[:0]
			if f.part == nil {
				f.head(line)
			} else {
				f.part(f, line)
			}
		}
	}
}

// head reads a line of a request's head.
func (f *framing) head(line []byte) {
	switch {
	case !f.begun && len(line) == 0: // net/http takes no notice either
	case !f.begun:
		f.begun, f.encoded, f.sized, f.framing, f.size = true, false, false, false, 0
		f.chunked = !bytes.HasSuffix(line, []byte(" HTTP/1.0"))
		f.lost = bytes.HasPrefix(line, []byte("PRI ")) // HTTP/2
	case len(line) > 0:
		f.field(line)
	default:
		f.heads, f.begun = append(f.heads, f.encoded && f.sized), false
		f.lost = len(f.heads) > mostFrameHeads // the connection speaks something else by now
		if f.encoded && f.chunked {
			f.part = (*framing).chunk
		} else {
			f.skip = f.size
		}
	}
}

// field reads a line with a header.
func (f *framing) field(line []byte) {
	if line[0] == ' ' || line[0] == '\t' { // more of the one before
		f.lost = f.framing
		return
	}
	name, value, _ := strings.Cut(string(line), ":")
	switch f.framing = true; strings.ToLower(name) {
	case "transfer-encoding":
		f.encoded = true
	case "content-length":
		var err error
		f.size, err = strconv.ParseInt(strings.Trim(value, " \t"), 10, 64)
		f.sized, f.lost = true, err != nil && len(strings.Trim(value, " \t")) > 0 || f.size < 0 || len(line) >= longestFrameLine-1
	default:
		f.framing = false
	}
}

// chunk reads a line with the size of a chunk.
func (f *framing) chunk(line []byte) {
	digits, _, _ := strings.Cut(string(line), ";")
	size, err := strconv.ParseInt(strings.TrimSpace(digits), 16, 62)
	switch {
	case err != nil || size < 0:
		f.lost = true
	case size == 0:
		f.part = (*framing).trailer
	default:
		f.skip = size + 2
	}
}

// trailer reads a line behind the last chunk.
func (f *framing) trailer(line []byte) {
	if len(line) == 0 {
		f.part = nil
	}
}
