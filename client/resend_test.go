package client_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/client"
)

// closingServer answers the first request, reads the second and closes the connection, and answers all that follow.
func closingServer(t *testing.T) (url string, seen func() []http.Header) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu   sync.Mutex
		list []http.Header
		wg   sync.WaitGroup
	)
	serve := func(c net.Conn) {
		defer c.Close()
		for in := bufio.NewReader(c); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			mu.Lock()
			list = append(list, r.Header)
			n := len(list)
			mu.Unlock()
			if n == 2 {
				return
			}
			if _, err := io.WriteString(c, "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return "http://" + l.Addr().String(), func() []http.Header {
		mu.Lock()
		defer mu.Unlock()
		return list
	}
}

// Go's http.Transport sends a keyed request again by itself when a reused connection breaks before the answer. Under a
// client.Transport it must not: that would be an attempt outside of every bound.
func TestR66_NothingIsResentUnseen(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		for _, body := range []string{"", "{}"} {
			newRequest := func(url string) *http.Request {
				var reader io.Reader // nil: no body at all
				if body != "" {
					reader = strings.NewReader(body) // with a GetBody
				}
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, reader)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set(header, "mine")
				return r
			}

			// What is to be prevented happens: if this fails, Go has changed.
			plain := &http.Transport{}
			url, seen := closingServer(t)
			for range 2 {
				if status, _, err := fetch(&http.Client{Transport: plain}, newRequest(url)); status != 201 {
					t.Fatalf("plain: %d, %v", status, err)
				}
			}
			plain.CloseIdleConnections()
			if len(seen()) != 3 {
				t.Errorf("%s, body %q: the plain transport sent 2 requests as %d, not as 3", header, body, len(seen()))
			}

			for _, own := range []bool{true, false} { // the header is the option's, or just happens to be there
				base := &http.Transport{}
				url, seen = closingServer(t)
				var told attempts
				o := client.Options{OnAttempt: told.add, MaxAttempts: 1}
				if own {
					o.Header = header
				} else {
					o.Header = "Other-Key"
				}
				hc := newClient(t, base, o)
				if status, _, err := fetch(hc, newRequest(url)); status != 201 {
					t.Fatalf("first: %d, %v", status, err)
				}
				if status, _, err := fetch(hc, newRequest(url)); err == nil {
					t.Errorf("second: %d, want the broken connection's error", status)
				}
				if len(seen()) != 2 || len(told.list) != 2 {
					t.Errorf("%s, own %v, body %q: %d requests arrived, %d attempts were told, want 2",
						header, own, body, len(seen()), len(told.list))
				}
				for _, h := range seen() {
					if h.Get(header) != "mine" {
						t.Errorf("%s did not arrive in %v", header, h)
					}
				}
				hc.CloseIdleConnections()
			}
		}
	}
}

// The same broken connection is mended by an attempt that counts.
func TestR66_ABrokenConnectionIsAnAttempt(t *testing.T) {
	t.Parallel()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	url, seen := closingServer(t)
	var told attempts
	hc := newClient(t, base, client.Options{OnAttempt: told.add, Random: func() float64 { return 0 }})
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if status, _, err := fetch(hc, r); status != 201 {
			t.Errorf("%d, %v", status, err)
		}
	}
	if len(seen()) != 3 || len(told.list) != 3 || told.list[1].Err == nil || !told.list[1].Again {
		t.Errorf("%d requests arrived, told %+v; want three, the second repeated", len(seen()), told.list)
	}
	if a, b := seen()[1].Get("Idempotency-Key"), seen()[2].Get("Idempotency-Key"); a == "" || a != b {
		t.Errorf("keys %q and %q, want the same", a, b)
	}
}
