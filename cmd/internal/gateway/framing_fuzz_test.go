package gateway

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
)

// FuzzFraming compares the framing with net/http over the bytes of one connection: of each request that net/http reads,
// and the gateway is asked about, it must know where it ends and whether it had two lengths, or say that it is lost.
func FuzzFraming(f *testing.F) {
	const get, host = "GET / HTTP/1.1\r\n", "Host: x\r\n"
	for _, seed := range []string{
		get + host + "\r\n",
		"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc\r\n\r\n" + get + "\r\n",
		"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc\r" + get + "\r\n",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=\"\r\nabc\r\n00\r\nX: y\r\n\r\n" + get + "\r\n",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n" + get + "\r\n",
		"POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + get + "\r\n",
		"GET /" + strings.Repeat("a", 600) + " HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + get + "\r\n",
		"POST / HTTP/1.1\nContent-length:\t3 \nX: a\n b\n\nabc" + get + "\n",
		"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc" + get + "\r\n",
		"POST / HTTP/1.1\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + get + "\r\n",
		"POST / HTTP/1.1\r\nX:" + strings.Repeat(" ", 600) + "\r\nContent-Length:" + strings.Repeat(" ", 600) + "3\r\n\r\nabc" + get + "\r\n",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1" + strings.Repeat(" ", 600) + "\r\na\r\n0\r\n\r\n" + get + "\r\n",
		"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n\rPRI * HTTP/2.0\r\n" + host + "\r\nPOST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.0\r\nContent-Length: 3" + strings.Repeat(" ", 600) + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(compareFraming)
}

func compareFraming(t *testing.T, sent []byte) {
	whole, bytewise := &framing{}, &framing{}
	whole.read(sent)
	for i := range sent {
		bytewise.read(sent[i : i+1])
	}
	if whole.lost != bytewise.lost || !whole.lost && whole.atEnd() != bytewise.atEnd() || !equalHeads(whole, bytewise) {
		t.Fatalf("read at once it is %+v, byte by byte %+v", whole, bytewise)
	}

	asked, followed, at := &framing{}, &framing{}, 0 // what the gateway asks, and what has read no further than net/http
	asked.read(sent)
	rest := bytes.NewReader(sent)
	in := bufio.NewReader(rest)
	for post := false; ; {
		if post { // as net/http's server does
			peek, _ := in.Peek(4)
			in.Discard(len(peek) - len(bytes.TrimLeft(peek, "\r\n"))) //nolint:errcheck // they are there
		}
		begin := len(sent) - rest.Len() - in.Buffered()
		r, err := http.ReadRequest(in)
		if err != nil || r.ProtoMajor != 1 && (r.Method != "PRI" || r.RequestURI != "*" || r.Proto != "HTTP/2.0") {
			return
		}
		head := sent[begin : len(sent)-rest.Len()-in.Buffered()]
		refused := hasTwoLengths(r.WithContext(context.WithValue(context.Background(), framingKey{}, asked)))
		if two := hadTwoLengths(t, head); two && !refused {
			t.Fatalf("net/http has read %q, which had two lengths", head)
		} else if !two && refused && !asked.lost {
			t.Fatalf("net/http has read %q, which had not two lengths", head)
		}
		if refused {
			return // the connection ends
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil || r.Close {
			return
		}
		end := len(sent) - rest.Len() - in.Buffered()
		followed.read(sent[at:end])
		if at = end; !followed.lost && !followed.atEnd() {
			t.Fatalf("net/http has read %q to its end, the framing is in its middle: %+v", sent[begin:end], followed)
		}
		post = r.Method == http.MethodPost
	}
}

// atEnd reports whether a message has just ended, or none has begun.
func (f *framing) atEnd() bool {
	return !f.begun && f.skip == 0 && len(bytes.Trim(f.line, "\r")) == 0 && f.part == nil
}

func equalHeads(a, b *framing) bool {
	if len(a.heads) != len(b.heads) {
		return false
	}
	for i := range a.heads {
		if a.heads[i] != b.heads[i] {
			return false
		}
	}
	return true
}

// hadTwoLengths goes by what a head says, which net/http does not show.
func hadTwoLengths(t *testing.T, head []byte) bool {
	t.Helper()
	_, fields, _ := bytes.Cut(head, []byte("\n"))
	h, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(fields))).ReadMIMEHeader()
	if err != nil {
		t.Fatalf("a head that net/http has read: %v", err)
	}
	return len(h["Content-Length"]) > 0 && len(h["Transfer-Encoding"]) > 0
}
