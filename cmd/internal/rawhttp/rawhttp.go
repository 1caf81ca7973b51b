// Package rawhttp speaks to a server over a bare connection, for tests of what no client would send.
package rawhttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// Dial opens a connection, which ends with the test. Nothing keeps a test waiting on it for more than a minute.
func Dial(t testing.TB, address string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// Receive reads one answer. One that hands the connection over has no body.
func Receive(t testing.TB, in *bufio.Reader) (status int, header http.Header, body string) {
	t.Helper()
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusSwitchingProtocols {
		return res.StatusCode, res.Header, ""
	}
	all, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(all)
}
