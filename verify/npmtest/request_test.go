package npmtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// A request is one to the API. Keys are the field lines of that name.
type request struct {
	method, path string
	keys         []string
	headers      map[string]string
	body         string
}

func get(path string) request { return request{method: "GET", path: path} }

func (r request) with(name, value string) request {
	headers := map[string]string{name: value}
	for n, v := range r.headers {
		if n != name {
			headers[n] = v
		}
	}
	r.headers = headers
	return r
}

func (r request) on(path string) request {
	r.path = path
	return r
}

func (r request) keyed(keys ...string) request {
	r.keys = keys
	return r
}

// saying returns the request with another body.
func (r request) saying(body string) request {
	r.body = body
	return r
}

// wire returns the request as HTTP/1.1 has it.
func (r request) wire(host string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.method, r.path, host)
	for _, key := range r.keys {
		fmt.Fprintf(&b, "Idempotency-Key: %s\r\n", key)
	}
	for name, value := range r.headers {
		fmt.Fprintf(&b, "%s: %s\r\n", name, value)
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(r.body), r.body)
	return b.Bytes()
}

// A reply is what came of a request.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

func (r reply) String() string {
	if r.err != nil {
		return "no answer"
	}
	return strconv.Itoa(r.status)
}

func (r reply) same(as reply) bool {
	return r.err == nil && as.err == nil && r.status == as.status && r.body == as.body &&
		r.header.Get("Content-Type") == as.header.Get("Content-Type")
}

// client sends every request once, on a connection of its own: on one that it had used before, the transport would send
// a request with a key again by itself.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (a *api) send(ctx context.Context, r request) reply {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, r.method, a.url+r.path, strings.NewReader(r.body))
	if err != nil {
		return reply{err: err}
	}
	if len(r.keys) > 0 {
		q.Header["Idempotency-Key"] = r.keys
	}
	for name, value := range r.headers {
		q.Header.Set(name, value)
	}
	return read(client.Do(q))
}

func read(response *http.Response, err error) reply {
	if err != nil {
		return reply{err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, string(body), err}
}
