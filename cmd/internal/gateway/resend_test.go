package gateway

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A dyingUpstream executes every request. It answers the first one on each connection; on the second it executes, then
// drops the connection without an answer, as a service does that is killed at the wrong moment.
type dyingUpstream struct {
	net.Listener
	mu    sync.Mutex
	calls map[string]int // by the request's X-Call
	work  sync.WaitGroup
}

func newDyingUpstream(t *testing.T) *dyingUpstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &dyingUpstream{Listener: l, calls: map[string]int{}}
	u.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			u.work.Go(func() { u.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close() })
	return u
}

func (u *dyingUpstream) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for i := range 2 {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		u.mu.Lock()
		u.calls[r.Header.Get("X-Call")]++
		u.mu.Unlock()
		if i == 0 {
			fmt.Fprint(c, "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok")
		}
	}
}

func (u *dyingUpstream) executions(call string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.calls[call]
}

func TestCase36_R74_NoRequestIsSentTwiceByTheTransport(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"POST", "PATCH", "PUT", "DELETE"} {
		for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key", ""} {
			for _, body := range []string{"", `{"amount":1}`} {
				for _, quote := range []string{"", `"`} {
					t.Run(fmt.Sprintf("%s %s %sbody=%t", method, header, quote, body != ""), func(t *testing.T) {
						t.Parallel()
						u := newDyingUpstream(t)
						g := start(t, "http://"+u.Addr().String(), func(c *Config) { c.UpstreamIdle = time.Minute })
						send := func(call string) answer {
							headers := []string{"X-Call", call}
							if header != "" {
								headers = append(headers, header, quote+call+quote)
							}
							return ask(t, method, g.url+"/payments", body, headers...)
						}
						send("first").wants(t, 201, "")
						second := send("second")
						if n := u.executions("second"); n != 1 {
							t.Fatalf("upstream executed the request %d times, want once; the client saw %d", n, second.status)
						}
						if header == "Idempotency-Key" {
							second.wants(t, 409, "IDEMPOTENCY_OUTCOME_UNKNOWN")
							send("second").wants(t, 409, "IDEMPOTENCY_OUTCOME_UNKNOWN")
						} else {
							second.wants(t, 502, "UPSTREAM_BROKEN")
						}
					})
				}
			}
		}
	}
}

// If this fails, the Go release has changed what its transport sends twice, and withholdResend must be looked at again.
func TestCase36_GoTransportResendsAKeyedRequestUnlessTheKeyIsWithheld(t *testing.T) {
	t.Parallel()
	for _, key := range resendKeys {
		name := key.canonical
		for _, withheld := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s withheld=%t", name, withheld), func(t *testing.T) {
				t.Parallel()
				u := newDyingUpstream(t)
				transport := &http.Transport{}
				defer transport.CloseIdleConnections()
				send := func(call string) (int, error) {
					req, err := http.NewRequest("POST", "http://"+u.Addr().String()+"/", nil)
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("X-Call", call)
					req.Header.Set(name, call)
					if withheld {
						withholdResend(req.Header, req.Header.Clone())
					}
					res, err := transport.RoundTrip(req)
					if err != nil {
						return 0, err
					}
					defer res.Body.Close()
					_, err = io.Copy(io.Discard, res.Body)
					return res.StatusCode, err
				}
				if status, err := send("first"); err != nil || status != 201 {
					t.Fatalf("first request: %d, %v", status, err)
				}
				status, err := send("second")
				n := u.executions("second")
				if withheld && (n != 1 || err == nil) {
					t.Errorf("key withheld: executed %d times, answer %d, %v; want once and an error", n, status, err)
				}
				if !withheld && (n != 2 || err != nil) {
					t.Errorf("canonical key: executed %d times, answer %d, %v; the trap that withholdResend avoids is gone", n, status, err)
				}
			})
		}
	}
}

func TestR74_TheKeyReachesTheUpstreamAsItWasSent(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	for _, c := range []struct{ method, name, value string }{
		{"POST", "Idempotency-Key", "abc"},
		{"POST", "Idempotency-Key", `"quoted"`},
		{"POST", "Idempotency-Key", `"with"; a=1`},
		{"PUT", "Idempotency-Key", "put"},
		{"GET", "Idempotency-Key", "get"},
		{"POST", "X-Idempotency-Key", "unkeyed"},
	} {
		ask(t, c.method, g.url+"/", "", c.name, c.value, "Connection", c.name).wants(t, 201, "")
		requests := u.requests()
		got := requests[len(requests)-1].Header.Values(c.name)
		if strings.Join(got, "|") != c.value {
			t.Errorf("%s with %s: %s reached the upstream as %q", c.method, c.name, c.value, got)
		}
	}
}

func TestTransportSpeaksNoHTTP2(t *testing.T) {
	t.Parallel()
	transport := newTransport(time.Second)
	if !transport.Protocols.HTTP1() || transport.Protocols.HTTP2() || transport.Protocols.UnencryptedHTTP2() {
		t.Errorf("protocols are %v, want HTTP/1 only", transport.Protocols)
	}
	if transport.Proxy != nil {
		t.Error("the environment can send requests through a proxy")
	}
}

func TestAnswersAreNotDecompressedOnTheWay(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("upstream was asked for %q, which the client did not", r.Header.Get("Accept-Encoding"))
		}
		created(w, r)
	})
	g := start(t, u.URL, func(c *Config) { c.Log = slog.New(slog.DiscardHandler) })
	post(t, g.url, "k").wants(t, 201, "")
}
