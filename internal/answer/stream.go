package answer

import (
	"net"
	"net/http"
	"strconv"
	"strings"
)

// DeclaredLength returns the Content-Length that a handler has set, -1 if there is none that counts.
func DeclaredLength(h http.Header) int64 {
	length := h.Get("Content-Length")
	if length == "" {
		return -1
	}
	if n, err := strconv.ParseInt(length, 10, 64); err == nil && n >= 0 {
		return n
	}
	return -1
}

// IsEventStream reports whether an answer is a stream of events for a browser.
func IsEventStream(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(mediaType), "text/event-stream")
}

// Reset resets the connection of an answer that ends with the connection, such as one of HTTP/1.0 without a length. If
// the connection were closed, this would say that the answer is whole (RFC 9112, section 8). The layers above the guard
// may not give the connection away; then the client can't be told.
func Reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	for above, ok := conn.(interface{ NetConn() net.Conn }); ok; above, ok = conn.(interface{ NetConn() net.Conn }) {
		conn = above.NetConn() // the end of a TLS connection would be signed
	}
	if tcp, ok := conn.(interface{ SetLinger(sec int) error }); ok { // of TCP, perhaps in a wrapper
		tcp.SetLinger(0) //nolint:errcheck // then it is closed as it can be
	}
	conn.Close()
}
