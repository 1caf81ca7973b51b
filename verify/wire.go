package verify

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A request is what goes over the wire, byte for byte: a client of a library would mend some of what has to be sent,
// and would send some of it again by itself.
type request struct {
	method, path string // the path with its query, behind that of the target
	headers      []field
	body         []byte
}

type field struct{ name, value string }

// with returns the request with a field, in place of those of the name.
func (r request) with(name, value string) request {
	return r.without(name).adding(name, value)
}

// adding returns the request with one more line of a field.
func (r request) adding(name, value string) request {
	r.headers = append(slices.Clone(r.headers), field{name, value})
	return r
}

func (r request) without(name string) request {
	r.headers = slices.DeleteFunc(slices.Clone(r.headers), func(f field) bool { return strings.EqualFold(f.name, name) })
	return r
}

// bytes returns the request as HTTP/1.1 has it (RFC 9112), on a connection of its own.
func (r request) bytes(base *url.URL) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", r.method, base.EscapedPath(), r.path, base.Host)
	for _, f := range r.headers {
		fmt.Fprintf(&b, "%s: %s\r\n", f.name, f.value)
	}
	if len(r.body) > 0 || r.method != http.MethodGet && r.method != http.MethodHead {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(r.body))
	}
	b.WriteString("\r\n")
	b.Write(r.body)
	return b.Bytes()
}

// An answer is what came back.
type answer struct {
	status  int
	header  http.Header
	trailer http.Header
	body    []byte
	err     error // there is no whole answer; what came of it is in the other fields

	problem bool   // the body is a problem document (RFC 9457)
	code    string // of the refusal, or ""
	sent    time.Time
	first   time.Duration // until the status line
	took    time.Duration
}

// manner is how a request is sent.
type manner struct {
	leave time.Duration // hang up so long after sending; 0 is never
	cut   bool          // hang up once the status line has come
	twice bool          // deliver the request twice, as a network may
	via   string        // an address to connect to instead of the target's
	sent  func()        // is called when the request has been written
}

var (
	errLeft = errors.New("the client hung up")
	errCut  = errors.New("the connection was cut after the status line")
)

// exchange sends a request once, on a connection of its own, and reads the answer.
func (w *wire) exchange(ctx context.Context, r request, m manner) *answer {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	raw := r.bytes(w.base)
	if m.twice {
		other := make(chan struct{})
		go func() {
			defer close(other)
			w.once(ctx, r.method, raw, manner{via: m.via})
		}()
		defer func() { <-other }()
	}
	a := w.once(ctx, r.method, raw, m)
	a.took = time.Since(a.sent)
	if kind, _, err := mime.ParseMediaType(a.header.Get("Content-Type")); err == nil && kind == "application/problem+json" {
		var p struct {
			Code string `json:"code"`
		}
		a.problem = json.Unmarshal(a.body, &p) == nil
		a.code = p.Code
	}
	if code := a.header.Get("Idempotency-Code"); code != "" {
		a.code = code // whatever the body's form
	}
	return a
}

// A wire sends requests to one target.
type wire struct {
	base    *url.URL
	timeout time.Duration
	tls     *tls.Config
}

// dial connects to the target, or to another address that leads there.
func (w *wire) dial(ctx context.Context, via string) (net.Conn, error) {
	address := via
	if address == "" {
		address = w.address()
	}
	if w.base.Scheme == "http" {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	return (&tls.Dialer{Config: w.config()}).DialContext(ctx, "tcp", address)
}

func (w *wire) once(ctx context.Context, method string, raw []byte, m manner) *answer {
	a := &answer{sent: time.Now(), header: http.Header{}}
	conn, err := w.dial(ctx, m.via)
	if err != nil {
		a.err = err
		return a
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) }) //nolint:errcheck // it is closed then
	defer stop()
	if _, a.err = conn.Write(raw); a.err != nil {
		return a
	}
	if m.sent != nil {
		m.sent()
	}
	if m.leave > 0 {
		defer time.AfterFunc(m.leave, func() { hangUp(conn) }).Stop()
	}
	in := bufio.NewReader(conn)
	if m.cut {
		line, err := in.ReadString('\n')
		a.first = time.Since(a.sent)
		a.status, _ = strconv.Atoi(strings.Fields(line + " - -")[1])
		hangUp(conn)
		a.err = errors.Join(errCut, err)
		return a
	}
	for {
		var response *http.Response
		response, a.err = http.ReadResponse(in, &http.Request{Method: method}) //nolint:bodyclose // the connection is closed
		if a.err == nil && response.StatusCode/100 == 1 && response.StatusCode != http.StatusSwitchingProtocols {
			continue // an interim one
		}
		a.first = time.Since(a.sent)
		if a.err == nil {
			a.status, a.header = response.StatusCode, response.Header
			a.body, a.err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
			a.trailer = response.Trailer
		}
		break
	}
	if a.err != nil && m.leave > 0 && time.Since(a.sent) >= m.leave {
		a.err = errLeft
	}
	if a.err != nil && ctx.Err() != nil {
		a.err = fmt.Errorf("no answer within %v", w.timeout)
	}
	return a
}

// maxAnswer is how much of an answer is read.
const maxAnswer = 64 << 20

// hangUp resets the connection, as a process that dies does.
func hangUp(conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		c.SetLinger(0) //nolint:errcheck // it is closed all the same
	}
	conn.Close()
}
