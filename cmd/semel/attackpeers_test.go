//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
)

func TestAttack05_PeersThatStandStillTakeNothingFromOthers(t *testing.T) {
	t.Parallel()
	service := newVictim(t)
	g := expose(t, t.TempDir(), service.url, "store: memory://\nscope: single\nidle_timeout: 200ms\nmax_connections: 4\n")
	var still []net.Conn
	for _, key := range []string{"", "Idempotency-Key: k\r\n"} { // more than there may be connections
		for _, body := range []string{"", "{", "{{"} {
			c := connect(t, g.address)
			fmt.Fprintf(c, "POST /payments HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: 10\r\n\r\n%s", key, body)
			still = append(still, c)
		}
	}
	for i, c := range still {
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d was kept", i)
		}
	}
	if n := service.requests(""); n != 0 {
		t.Errorf("executed %d times", n)
	}

	var waiting []*bufio.Reader
	for i := range 6 {
		c := connect(t, g.address)
		fmt.Fprintf(c, "POST /hold HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k%d\r\nContent-Length: 2\r\n\r\n{}", i)
		waiting = append(waiting, bufio.NewReader(c))
	}
	eventually(t, "four requests", func() bool { return service.requests("/hold") == 4 })
	eventually(t, "the log of it", func() bool { return strings.Contains(g.log.String(), "all connections for clients are taken") })
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if a := send(t, g.admin, "GET "+path); a.status != 200 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if n := service.requests("/hold"); n != 4 {
		t.Errorf("%d requests are under way, want 4", n)
	}
	service.release()
	for _, in := range waiting {
		receive(t, in).wants(t, "one that has waited", 201, "")
	}
}
