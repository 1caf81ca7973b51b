//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/semelhq/semel/cmd/internal/rawhttp"
)

// A victim is a service behind a gateway that attacks are meant for.
type victim struct {
	url     string
	release func() // lets requests for /hold go on

	mu   sync.Mutex
	seen []*http.Request
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	v := &victim{}
	held := make(chan struct{})
	v.release = sync.OnceFunc(func() { close(held) })
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return // no whole request has come
		}
		v.mu.Lock()
		v.seen = append(v.seen, r)
		v.mu.Unlock()
		switch {
		case r.URL.Path == "/hold":
			<-held
		case r.URL.Path == "/zero":
			v.writeRaw(w, "HTTP/1.1 000 Odd\r\nContent-Length: 4\r\n\r\npaid")
			return
		case r.URL.Path == "/switch" && r.Header.Get("Upgrade") != "":
			v.writeRaw(w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
			return
		case r.URL.Path == "/untyped":
			w.Header()["Content-Type"] = nil
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "<p>of "+r.Header.Get("X-Account")+r.Header.Get("Authorization"))
	}))
	t.Cleanup(func() {
		v.release()
		s.Close()
	})
	v.url = s.URL
	return v
}

func (v *victim) writeRaw(w http.ResponseWriter, answer string) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		io.WriteString(c, answer)
		c.Close()
	}
}

// requests returns how many requests have come for a path; "" for all.
func (v *victim) requests(path string) (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range v.seen {
		if path == "" || r.URL.Path == path {
			n++
		}
	}
	return n
}

func (v *victim) last() http.Header {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen[len(v.seen)-1].Header
}

// An exposed gateway is the program, as a gateway with a configuration file in a folder of its own.
type exposed struct {
	dir, address, admin string
	log                 *output
	cmd                 *exec.Cmd
}

// expose starts it in a folder with what a file of settings says beside addresses and upstream.
func expose(t *testing.T, dir, upstream, settings string) *exposed {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	g := &exposed{dir: dir, log: &output{}}
	config := writeConfig(t, "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nupstream: "+upstream+"\n"+settings)
	g.cmd = exec.Command(path, "gateway", "--config", config, "--log-format", "json")
	g.cmd.Dir, g.cmd.Stderr = dir, g.log
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.cmd.Process.Kill() //nolint:errcheck // it may have ended
		g.cmd.Wait()         //nolint:errcheck // it was killed
	})
	g.address, g.admin = addresses(t, g.log)
	return g
}

// stop ends it in order, so that another one may have its folder.
func (g *exposed) stop(t *testing.T) {
	t.Helper()
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Wait(); err != nil {
		t.Fatalf("the gateway ended with %v\n%s", err, g.log)
	}
}

// An answer is what came back on a connection.
type answer struct {
	status int
	header http.Header
	body   string
}

var connect = rawhttp.Dial

// send sends a request line and header lines with a body of "{}", on a connection of its own.
func send(t *testing.T, address, line string, headers ...string) answer {
	t.Helper()
	if !slices.ContainsFunc(headers, func(h string) bool { return strings.HasPrefix(h, "Host: ") }) {
		headers = append([]string{"Host: localhost"}, headers...)
	}
	c := connect(t, address)
	fmt.Fprintf(c, "%s HTTP/1.1\r\n%s\r\nContent-Length: 2\r\n\r\n{}", line, strings.Join(headers, "\r\n"))
	return receive(t, bufio.NewReader(c))
}

func receive(t *testing.T, in *bufio.Reader) (a answer) {
	t.Helper()
	a.status, a.header, a.body = rawhttp.Receive(t, in)
	return a
}

// wants reports an answer with another status or code.
func (a answer) wants(t *testing.T, what string, status int, code string) {
	t.Helper()
	if a.status != status || a.header.Get("Idempotency-Code") != code {
		t.Errorf("%s: %d %s %.100s, want %d %s", what, a.status, a.header.Get("Idempotency-Code"), a.body, status, code)
	}
}

func (a answer) replayed() bool { return a.header.Get("Idempotent-Replayed") == "true" }

// writeIn writes a file for its owner only.
func writeIn(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
