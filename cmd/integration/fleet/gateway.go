package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/semelhq/semel/cmd/internal/gateway"
	"github.com/semelhq/semel/cmd/internal/secret"
	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/internal/servers"
)

// variable names the configuration of the gateway that a process is to be.
const variable = "SEMEL_FLEET_GATEWAY"

// identitySecret is that of every gateway here.
const identitySecret = "the-secret-of-fleets-in-tests"

// Act makes the process a gateway and does not return, if it was started as one. It is the first thing that main does.
func Act() {
	file := os.Getenv(variable)
	if file == "" {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := act(ctx, file)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func act(ctx context.Context, file string) (err error) {
	c, err := gateway.LoadFile(file)
	if err != nil {
		return err
	}
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	opened, err := stores.Open(ctx, c.StoreAddress, stores.Options{Cache: c.CacheAddress, Log: c.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	c.Store, c.CheckCache = opened.Store, opened.CheckCache
	if c.IdentitySecret, err = secret.ForStore(ctx, opened, "", c.Log); err != nil {
		return err
	}
	g, err := gateway.New(c)
	if err != nil {
		return err
	}
	return g.Run(ctx)
}

// A Gateway is one in a process of its own, which can be killed and started again.
type Gateway struct {
	URL string

	admin, file, log string
	cmd              *exec.Cmd
	ended            chan struct{}
}

// NewGateway prepares a gateway in front of the service, on the storage. Scope is as in its file. Policy is the default
// route's, in YAML, such as "on_lost: rerun".
func NewGateway(name, dir string, service *Service, s *Storage, scope, policy string) (*Gateway, error) {
	g := &Gateway{file: filepath.Join(dir, name+".yaml"), log: filepath.Join(dir, name+".log")}
	listen, err := servers.FreeAddress()
	if err == nil {
		g.admin, err = servers.FreeAddress()
	}
	if err != nil {
		return nil, fmt.Errorf("find a port: %w", err)
	}
	g.URL = "http://" + listen
	text := fmt.Sprintf("listen: %s\nadmin: %s\nupstream: %s\nscope: %s\nstore: %s\ncache: %s\ndefault: {%s}\n",
		listen, g.admin, service.URL, scope, strconv.Quote(s.Store), strconv.Quote(s.Cache), policy)
	if err := os.WriteFile(g.file, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration of %s: %w", name, err)
	}
	return g, nil
}

// Start starts the process and returns when it is ready. Whoever has its address meanwhile, as the near end of a
// connection may, is waited for.
func (g *Gateway) Start(ctx context.Context) error {
	for tries := 0; ; tries++ {
		taken, err := g.start(ctx)
		if err == nil || !taken || tries == addressTries {
			return err
		}
		select {
		case <-time.After(addressPause):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

const (
	addressTries = 60
	addressPause = 500 * time.Millisecond
)

// start is Start, once. It reports whether the process has ended because its address was taken.
func (g *Gateway) start(ctx context.Context) (taken bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return false, fmt.Errorf("start a gateway: %w", err)
	}
	before, err := os.ReadFile(g.log)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("start a gateway: %w", err)
	}
	log, err := os.OpenFile(g.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return false, fmt.Errorf("start a gateway: %w", err)
	}
	defer log.Close() //nolint:errcheck // the child has its own
	g.cmd = exec.Command(self)
	g.cmd.Env = append(os.Environ(), variable+"="+g.file, secret.Variable+"="+identitySecret)
	g.cmd.Stdout, g.cmd.Stderr = log, log
	if err := g.cmd.Start(); err != nil {
		return false, fmt.Errorf("start a gateway: %w", err)
	}
	g.ended = make(chan struct{})
	go func() {
		defer close(g.ended)
		g.cmd.Wait() //nolint:errcheck // it is killed in the end
	}()
	for {
		answer, err := http.Get("http://" + g.admin + "/readyz")
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return false, nil
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-g.ended:
			said, _ := os.ReadFile(g.log)
			said = said[min(len(before), len(said)):]
			return bytes.Contains(said, []byte("address already in use")), fmt.Errorf("start a gateway: it has ended: %s", said)
		case <-ctx.Done():
			return false, errors.Join(ctx.Err(), g.Kill())
		}
	}
}

// Kill ends the process with SIGKILL, and returns when it is gone.
func (g *Gateway) Kill() error { return g.end(syscall.SIGKILL) }

// Stop ends the process with SIGTERM, and returns when it has drained.
func (g *Gateway) Stop() error { return g.end(syscall.SIGTERM) }

func (g *Gateway) end(how syscall.Signal) error {
	if g.ended == nil {
		return nil
	}
	if err := g.cmd.Process.Signal(how); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end a gateway: %w", err)
	}
	<-g.ended
	return nil
}
