package gateway

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// frame is a frame of HTTP/2 (RFC 9113, section 4.1).
func frame(kind, flags byte, stream uint32, payload string) string {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return string(binary.BigEndian.AppendUint32(b, stream)) + payload
}

const (
	headersFrame, resetFrame, settingsFrame, pingFrame, continuationFrame = 1, 3, 4, 6, 9

	endStream, endHeaders = 1, 4

	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	getRoot = "\x82\x86\x84\x41\x01x" // :method GET, :scheme http, :path /, :authority x, by the static table
)

// Each floods one connection, on which nothing is read.
func TestHeld_FloodsOfFramesDisturbNobody(t *testing.T) {
	t.Parallel()
	const enough, endless = 2 << 20, 64 << 20 // bytes; the last is more than lies between a client and the gateway
	for name, next := range map[string]func(n int) string{
		"rapid reset": func(n int) string {
			stream := uint32(2*n + 1)
			return frame(headersFrame, endStream|endHeaders, stream, getRoot) + frame(resetFrame, 0, stream, "\x00\x00\x00\x08")
		},
		"streams":  func(n int) string { return frame(headersFrame, endStream|endHeaders, uint32(2*n+1), getRoot) },
		"settings": func(int) string { return frame(settingsFrame, 0, 0, "") },
		"ping":     func(int) string { return frame(pingFrame, 0, 0, "12345678") },
		"continuation": func(n int) string {
			if n == 0 {
				return frame(headersFrame, endStream, 1, getRoot)
			}
			return frame(continuationFrame, 0, 1, strings.Repeat("\x00\x01x\x7f\x00"+strings.Repeat("y", 127), 8))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, created)
			g := start(t, u.URL, func(c *Config) { c.IdleTimeout = 2 * time.Second })
			c, err := net.Dial("tcp", g.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			io.WriteString(c, preface+frame(settingsFrame, 0, 0, ""))
			out, sent := bufio.NewWriterSize(c, 64<<10), 0
			most := enough
			if name == "continuation" {
				most = endless
			}
			for n := 0; err == nil && sent < most; n++ {
				var m int
				m, err = out.WriteString(next(n))
				sent += m
				if n%50_000 == 5_000 {
					ask(t, "POST", g.url+"/", "{}", "Idempotency-Key", "during-"+strconv.Itoa(n)).wants(t, 201, "")
				}
			}
			// A head has no more than 64 KiB, however many frames it comes in.
			if name == "continuation" && (err == nil || errors.Is(err, os.ErrDeadlineExceeded)) {
				t.Errorf("after %d bytes the connection was kept: %v", sent, err)
			}
			ask(t, "POST", g.url+"/", "{}", "Idempotency-Key", "after").wants(t, 201, "")
			c.Close()
			g.left(t)
		})
	}
}

// A head has ten seconds to come.
func TestHeld_HeadsThatDoNotComeAreGivenUp(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	for _, head := range []string{"", "P", "POST / HTTP/1.1\r\nHost: x\r\nX-A: b", "POST / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X-A: b\r\n", 100)} {
		c := dial(t, g.Addr().String())
		io.WriteString(c, head)
		defer func() {
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%.20q: the connection was kept", head)
			}
		}()
	}
	ask(t, http.MethodPost, g.url+"/", "{}").wants(t, 201, "")
}
