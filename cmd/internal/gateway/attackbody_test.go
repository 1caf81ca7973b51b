package gateway

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/semelhq/semel/refusal"
)

func TestAttack06_AMalformedBodyIsItsClientsFault(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	for _, chunks := range []string{
		"zz\r\nok\r\n0\r\n\r\n", "-1\r\nok\r\n0\r\n\r\n", "2\r\nokok\r\n0\r\n\r\n", "fffffffffffffffff\r\nok\r\n0\r\n\r\n", "\r\n\r\n", "2\r\nok\r\n0x0\r\n\r\n",
		"2\r\nok\r\n0\r\nno trailer\r\n\r\n",
	} {
		for key, code := range map[string]refusal.Code{"": "REQUEST_NOT_FORWARDABLE", "Idempotency-Key: k\r\n": refusal.RequestUnreadable} {
			c := dial(t, g.Addr().String())
			fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\n"+key+"Transfer-Encoding: chunked\r\n\r\n"+chunks)
			in := bufio.NewReader(c)
			a := readAnswer(t, in)
			a.wants(t, 400, code)
			if _, err := in.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) { // what follows has no known beginning
				t.Errorf("%q: the connection goes on after a malformed body: %v", chunks, err)
			}
		}
	}
	if n := len(u.requests()); n != 0 {
		t.Errorf("the service has executed %d requests", n)
	}
	wantMetrics(t, g, `idempotency_upstream_errors_total{kind="no_answer"} 0`)
	if strings.Contains(g.log.String(), "upstream gave no answer") {
		t.Errorf("the log blames the service: %s", g.log)
	}
}

// A client that hangs up, or resets its stream, in the middle of a body.
func TestAttack06_HalfABodyIsNoErrorOfTheService(t *testing.T) {
	t.Parallel()
	read, ended := make(chan struct{}), make(chan struct{}, 8)
	u := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		if _, err := io.ReadFull(r.Body, make([]byte, 4)); err == nil {
			read <- struct{}{}
		}
		io.Copy(io.Discard, r.Body) //nolint:errcheck // it breaks off
	}))
	t.Cleanup(u.Close)
	g := start(t, u.URL)
	for _, head := range []string{"Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"} {
		c := dial(t, g.Addr().String())
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\n"+head)
		<-read
		c.Close()
		<-ended
	}
	for again := true; again; { // net/http may end a new connection on a machine that stands still for 2 s
		c := dial(t, g.Addr().String())
		over := make(chan string, 1)
		go func() { over <- http2End(c, 1) }()
		c.Write(append(append(http2Start(), http2Post(1, "/", false)...), http2Frame(0, 0, 1, []byte("half"))...))
		select {
		case <-over:
		case <-read:
			c.Write(http2Frame(3, 0, 1, []byte{0, 0, 0, 8})) // RST_STREAM, CANCEL
			<-ended
			again = false
		}
	}
	if err := g.stop(); err != nil { // all has ended, and been counted
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	g.Gateway.admin.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, kind := range upstreamErrorKinds {
		if line := fmt.Sprintf("idempotency_upstream_errors_total{kind=%q} 0\n", kind); !strings.Contains(w.Body.String(), line) {
			t.Errorf("not %s: %s", line, w.Body)
		}
	}
}

// A query with a control character has no place in a request line: what follows a tab or a line break could be read as
// the protocol, or as another request.
func TestAttack06_AQueryWithAControlCharacterIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	for _, c := range append([]byte{0x7f}, []byte(" \t\x00\x01\x08\n\v\f\r\x1b\x1f")...) {
		target := "/payments?a=" + string(rune(c)) + "b"
		for _, whole := range []bool{true, false} { // also while its body is still to come
			var refused, after string
			for range 5 { // net/http may end a new connection on a machine that stands still for 2 s
				conn := dial(t, g.Addr().String())
				conn.Write(append(http2Start(), http2Post(1, target, whole)...))
				refused = http2End(conn, 1)
				conn.Write(http2Post(3, "/payments?a=b", true)) // the connection's other streams go on
				after = http2End(conn, 3)
				conn.Close()
				if after == "an answer" {
					break
				}
			}
			if refused != "400" && refused != "RST_STREAM" || after != "an answer" {
				t.Errorf("HTTP/2, %q: %s, and after it %s", target, refused, after)
			}
		}
		a := raw(t, g.Addr().String(), "POST "+target+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		if a.status != 400 {
			t.Errorf("HTTP/1, %q: %d", target, a.status)
		}
	}
	for _, r := range u.requests() {
		if r.URL.RawQuery != "a=b" {
			t.Errorf("%q reached the service", r.URL.RawQuery)
		}
	}
}

// http2Frame is a frame (RFC 9113, section 4.1).
func http2Frame(kind, flags, stream byte, payload []byte) []byte {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return append(append(head, flags, 0, 0, 0, stream), payload...)
}

// http2Start begins a connection.
func http2Start() []byte {
	return append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), http2Frame(4, 0, 0, nil)...)
}

// http2Post is the head of a POST. Its fields are of the static table, or literals without indexing (RFC 7541).
func http2Post(stream byte, path string, whole bool) []byte {
	fields := []byte{0x83, 0x86, 0x01, 1, 'x', 0x04, byte(len(path))} // :method POST, :scheme http, :authority x, :path
	flags := byte(0x4)
	if whole {
		flags |= 0x1
	}
	return http2Frame(1, flags, stream, append(fields, path...))
}

// http2End returns what comes of a stream: a refusal, with 400 or by the frame that ends it, or another answer.
func http2End(c net.Conn, stream byte) string {
	var head [9]byte
	for {
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return err.Error()
		}
		payload := make([]byte, binary.BigEndian.Uint32(head[:4])>>8)
		if _, err := io.ReadFull(c, payload); err != nil {
			return err.Error()
		}
		switch kind := head[3]; {
		case kind == 7:
			return "GOAWAY"
		case head[8] != stream:
		case kind == 3:
			return "RST_STREAM"
		case kind == 1 && payload[0] == 0x8c: // :status 400 of the static table
			return "400"
		case kind == 1:
			return "an answer"
		}
	}
}

// What net/http hands over as a request of another protocol is one of the connection's all the same: the next is not
// taken for it.
func TestAttack06_APrefaceInTheMiddleHidesNoTwoLengths(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	c := dial(t, g.Addr().String())
	fmt.Fprint(c, "POST /first HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"+
		"\rPRI * HTTP/2.0\r\nHost: x\r\n\r\n"+
		"POST /two HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n")
	in := bufio.NewReader(c)
	readAnswer(t, in).wants(t, 201, "")
	readAnswer(t, in).wants(t, 400, "TARGET_REFUSED")
	readAnswer(t, in).wants(t, 400, "REQUEST_NOT_FORWARDABLE")
	for _, r := range u.requests() {
		if r.URL.Path != "/first" {
			t.Errorf("%s reached the service", r.URL.Path)
		}
	}
}
