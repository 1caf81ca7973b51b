package demo

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A process is a gateway in a process of its own, on a file, which can be killed and started again.
type process struct {
	stage *stage
	name  string
	args  []string
	admin string
	front string // where clients reach it, before and after a restart
	cmd   *exec.Cmd
}

// store is the address of the file that keeps the process's records, in the stage's folder.
func (p *process) store() string { return "sqlite://" + p.name + ".db" }

// newProcess prepares a gateway with the given policy; args are its flags besides addresses, upstream and store.
func (s *stage) newProcess(name string, args ...string) (*process, error) {
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	p := &process{stage: s, name: name}
	if p.admin, err = freeAddress(); err != nil {
		return nil, err
	}
	p.args = append([]string{
		"gateway", "--listen", listen, "--admin", p.admin, "--upstream", s.service.url, "--store", p.store(),
		"--scope", "header:X-Account", "--require-key", "--lease", processLease.String(),
	}, args...)
	upstream, err := url.Parse(s.service.url)
	if err != nil {
		return nil, err
	}
	p.front, err = s.inFront(&url.URL{Scheme: "http", Host: listen}, upstream)
	return p, err
}

// newConfiguredProcess prepares a gateway with a configuration file, in which %s stands for both addresses, upstream
// and store, in this order.
func (s *stage) newConfiguredProcess(name, yaml string) (*process, error) {
	p, err := s.newProcess(name)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, name+".yaml")
	text := fmt.Sprintf(yaml, p.args[2], p.admin, s.service.url, p.store())
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	p.args = []string{"gateway", "--config", path}
	return p, nil
}

// start starts the gateway and waits until it is ready.
func (p *process) start(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(p.stage.dir, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the child has its own
	p.cmd = p.stage.semel(p.args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start a gateway: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.cmd.Wait() //nolint:errcheck // it is killed in the end
	}()
	p.stage.closing(func() error {
		p.cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-ended
		return nil
	})
	return until(ctx, func() bool { return status(ctx, "http://"+p.admin+"/readyz") == http.StatusOK })
}

// kill ends the process as kill -9 does: it gets no chance to do anything more.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the gateway: %w", err)
	}
	return nil
}

// semel is this program, with other arguments, in the stage's folder.
func (s *stage) semel(args ...string) *exec.Cmd {
	cmd := exec.Command(s.cfg.Self, args...)
	cmd.Dir = s.dir
	return cmd
}

// command runs this program and prints it as somebody would have typed it, with what it prints.
func (a *act) command(args ...string) bool {
	typed := make([]string, len(args))
	for i, arg := range args {
		if typed[i] = arg; strings.ContainsAny(arg, " {\"") {
			typed[i] = "'" + arg + "'"
		}
	}
	a.typed("semel " + strings.Join(typed, " "))
	var out bytes.Buffer
	cmd := a.semel(args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	a.printed(out.String())
	return a.did(err)
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", freePort)
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
