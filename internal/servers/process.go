//go:build unix

package servers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// patience is how long a server may take to start or to end: a protection from waiting for ever, not an expectation.
const patience = 3 * time.Minute

// errPortTaken means that another process listens on the port that a server was to have.
var errPortTaken = errors.New("the port is taken")

// A process is a server that runs as one process, with its descendants.
type process struct {
	name    string
	dir     string              // of all its files
	who     *syscall.Credential // nil: who we are
	command func() *exec.Cmd    // what a start runs
	before  func() error        // done before each start; may be nil
	ready   func(pid int) error // whether it answers; asked until it does
	ending  syscall.Signal      // what it ends on, in order
	quick   syscall.Signal      // what it ends on at once, leaving nothing behind outside of dir
	after   func()              // done when it is closed, before dir is removed; may be nil

	mu     sync.Mutex
	pid    int           // 0: not running
	ended  chan struct{} // closed when the process has ended
	frozen []int         // the processes that Pause stopped
	closed bool
}

var errNotRunning = errors.New("it is not running")

func (p *process) wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", doing, p.name, err)
}

// Start starts the server that was killed or stopped, with its port and its data, and returns when it answers. An error
// holds the end of what the server logged.
func (p *process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wrap("start", p.start())
}

func (p *process) start() error {
	switch {
	case p.closed:
		return errors.New("it is closed")
	case p.running():
		return errors.New("it is running")
	}
	if p.before != nil {
		if err := p.before(); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the server has its own
	begin, err := log.Seek(0, 2)
	if err != nil {
		return err
	}
	cmd := p.command()
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	cmd.Env = append(append(os.Environ(), "LC_ALL=C"), cmd.Env...) // so that the log can be understood
	// A group of its own: an interrupt from the terminal is for the one who started it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: p.who}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait() //nolint:errcheck // how it ended stands in its log
		close(ended)
	}()
	p.pid, p.ended, p.frozen = cmd.Process.Pid, ended, nil
	err = p.register()
	if err == nil {
		err = p.answers()
	}
	if err == nil {
		return nil
	}
	err = errors.Join(err, p.kill())
	said := p.logged(begin)
	if bytes.Contains(bytes.ToLower(said), []byte("address already in use")) {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return fmt.Errorf("%w\n%s", err, said)
}

func (p *process) running() bool {
	if p.pid == 0 {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// answers waits until the server does.
func (p *process) answers() error {
	for until := time.Now().Add(patience); ; {
		err := p.ready(p.pid)
		if err == nil {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("no answer within %v: %w", patience, err)
		}
		select {
		case <-p.ended:
			return errors.New("it ended")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (p *process) logPath() string { return filepath.Join(p.dir, "log") }

// logged returns the end of what was logged since the log had the size begin.
func (p *process) logged(begin int64) []byte {
	const most = 4 << 10
	text, err := os.ReadFile(p.logPath())
	if err != nil {
		return []byte(err.Error())
	}
	text = text[min(begin, int64(len(text))):]
	return bytes.TrimSpace(text[max(0, len(text)-most):])
}

// register tells the watcher whom to end.
func (p *process) register() error {
	line := fmt.Sprintf("%d %s\n", p.pid, map[syscall.Signal]string{syscall.SIGQUIT: "QUIT", syscall.SIGTERM: "TERM"}[p.quick])
	return os.WriteFile(filepath.Join(p.dir, "pid"), []byte(line), 0o600)
}

// forget is called when no process is left.
func (p *process) forget() error {
	p.pid, p.frozen = 0, nil
	return os.Remove(filepath.Join(p.dir, "pid"))
}

// Kill ends the server with all its processes by SIGKILL. When it returns they are gone; what they had stored stays.
func (p *process) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		return p.wrap("kill", errNotRunning)
	}
	return p.wrap("kill", p.kill())
}

func (p *process) kill() error {
	if !p.running() {
		return p.forget()
	}
	pids, err := freeze(p.pid)
	if err != nil {
		return err
	}
	if err := signalAll(pids, syscall.SIGKILL); err != nil {
		return err
	}
	<-p.ended
	if err := gone(pids, patience); err != nil {
		return err
	}
	return p.forget()
}

// Stop ends the server as its operator would, and returns when it has ended. A paused server goes on first.
func (p *process) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return p.wrap("stop", errNotRunning)
	}
	return p.wrap("stop", p.end(p.ending, patience))
}

// end sends a signal on which the server ends by itself.
func (p *process) end(s syscall.Signal, patience time.Duration) error {
	if err := p.resume(); err != nil {
		return err
	}
	pids, err := descendants(p.pid)
	if err != nil {
		return err
	}
	if err := signal(p.pid, s); err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		return fmt.Errorf("it has not ended within %v", patience)
	}
	if err := gone(pids, patience); err != nil {
		return err
	}
	return p.forget()
}

// Pause stops all processes of the server with SIGSTOP. Connections stay and new ones are taken by the system, but
// nothing answers.
func (p *process) Pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return p.wrap("pause", errNotRunning)
	}
	pids, err := freeze(p.pid)
	p.frozen = pids
	return p.wrap("pause", err)
}

// Resume lets a paused server go on.
func (p *process) Resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return p.wrap("resume", errNotRunning)
	}
	return p.wrap("resume", p.resume())
}

func (p *process) resume() error {
	err := signalAll(p.frozen, syscall.SIGCONT)
	p.frozen = nil
	return err
}

// Close ends the server in whatever state it is and removes its files.
func (p *process) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	var err error
	if p.running() && p.end(p.quick, 5*time.Second) != nil {
		err = p.kill()
	}
	if p.after != nil {
		p.after()
	}
	return p.wrap("close", errors.Join(err, os.RemoveAll(p.dir)))
}
