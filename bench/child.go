package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/semelhq/semel/internal/servers"
)

// serveChild is what a child process of the gateway benchmark runs: the upstream, or the bare proxy that is the floor.
// It prints the address it listens on and serves until ctx ends or its standard input does.
func serveChild(ctx context.Context, what string) error {
	var h http.Handler
	switch upstream, isProxy := strings.CutPrefix(what, "proxy:"); {
	case isProxy:
		u, err := url.Parse(upstream)
		if err != nil {
			return fmt.Errorf("serve: %w", err)
		}
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 1024
		h = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u); r.SetXForwarded() }, Transport: t}
	case what == "upstream":
		h = http.HandlerFunc(pay)
	default:
		return fmt.Errorf("serve: unknown %q", what)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	fmt.Println(l.Addr())
	srv := &http.Server{Handler: h}
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // its end is all that counts: the parent is gone
		srv.Close()
	}()
	go func() {
		<-ctx.Done()
		srv.Close()
	}()
	if err := srv.Serve(l); err != http.ErrServerClosed {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// A child is a process of this benchmark. It ends with its standard input.
type child struct {
	cmd  *exec.Cmd
	in   io.Closer
	addr string
	dir  string // of its binary, "" if that is this program's
}

func (c *child) stop() {
	c.in.Close()
	c.cmd.Process.Signal(os.Interrupt) //nolint:errcheck // it may have ended
	c.cmd.Wait()                       //nolint:errcheck // its exit code says nothing more
	if c.dir != "" {
		os.RemoveAll(c.dir) //nolint:errcheck // a temporary folder
	}
}

// startSelf starts this program as a server.
func startSelf(ctx context.Context, what string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self, "-serve", what)}
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", what, err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", what, err)
	}
	c.addr = strings.TrimSpace(line)
	return c, nil
}

// startGateway builds and starts the gateway in front of upstream. A store on a file gets a fresh one.
func startGateway(ctx context.Context, upstream, store string) (*child, error) {
	dir, err := os.MkdirTemp("", "semel-bench-*")
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(dir, "semel")
	build := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/semelhq/semel/cmd/semel")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the gateway (run from the repository, where go.work is): %w\n%s", err, out)
	}
	addr, err := servers.FreeAddress()
	if err != nil {
		return nil, err
	}
	admin, err := servers.FreeAddress()
	if err != nil {
		return nil, err
	}
	c := &child{addr: addr, dir: dir}
	if store == "sqlite://" {
		store += filepath.Join(dir, "semel.db")
	}
	c.cmd = exec.CommandContext(ctx, bin, "gateway", "--listen", addr, "--admin", admin, "--upstream", "http://"+upstream,
		"--store", store, "--scope", "single", "--require-key", "--log-level", "warn", "--retention", "1h")
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the gateway: %w", err)
	}
	for ctx.Err() == nil {
		r, err := http.Get("http://" + admin + "/readyz")
		if err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return c, nil
			}
		}
	}
	return nil, ctx.Err()
}
