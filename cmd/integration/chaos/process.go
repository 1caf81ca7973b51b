package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A process is one of the cast: the same part, played by one process after the other.
type process struct {
	name    string
	part    part
	program string
	log     string // file of what all of them wrote to standard error

	mu      sync.Mutex
	address string
	life    *life
	deaths  []death
}

// A life is one process, from its start to its end.
type life struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	began time.Time
	ready chan struct{} // closed once it listens
	armed chan struct{} // closed once a trap is set
	ended chan struct{} // closed once it has been waited for

	mu      sync.Mutex
	killed  time.Time // when the run killed it
	drained time.Time // when it was told to end
	fired   Point     // when it killed itself
	at      time.Time
}

// A death is a kill, or an end in order. Its time is known to lie between from and to.
type death struct {
	role     role
	name     string // of the process
	point    Point
	from, to time.Time
	clean    bool // nothing was cut short
}

func (c *Config) newProcess(name string, p part) *process {
	p.Mode, p.Lease, p.Flaw = c.Mode, c.Lease, c.flaw
	p.Storage, p.Front, p.Ledger, p.Listen = c.Storage, name, c.ledger(), "127.0.0.1:0"
	return &process{name: name, part: p, program: c.program, log: filepath.Join(c.Dir, name+".log")}
}

// start starts the process, on the address that it had before.
func (p *process) start() (*life, error) {
	p.mu.Lock()
	told, err := json.Marshal(p.part)
	p.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	defer log.Close() //nolint:errcheck // the process has its own
	l := &life{cmd: exec.Command(p.program), ready: make(chan struct{}), armed: make(chan struct{}), ended: make(chan struct{})}
	l.cmd.Env = append(os.Environ(), partVariable+"="+string(told))
	l.cmd.Stderr = log
	stdout, err := l.cmd.StdoutPipe()
	if err == nil {
		l.stdin, err = l.cmd.StdinPipe()
	}
	if err == nil {
		l.began = time.Now()
		err = l.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	go p.watch(l, stdout)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life = l
	return l, nil
}

// watch reads what a process says, to its end.
func (p *process) watch(l *life, stdout io.Reader) {
	defer close(l.ended)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var address string
		var point Point
		var at int64
		if _, err := fmt.Sscanf(lines.Text(), "fired %s %d", &point, &at); err == nil {
			l.mu.Lock()
			l.fired, l.at = point, time.UnixMicro(at)
			l.mu.Unlock()
		} else if lines.Text() == "armed" {
			close(l.armed)
		} else if _, err := fmt.Sscanf(lines.Text(), "listening %s", &address); err == nil {
			p.mu.Lock()
			p.address, p.part.Listen = address, address
			p.mu.Unlock()
			close(l.ready)
		}
	}
	l.cmd.Wait() //nolint:errcheck // how it has ended is looked at by whoever waits for that
}

// at returns the address at which the process listens, or has listened and will again.
func (p *process) at() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.address
}

// alive returns the present life.
func (p *process) alive() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life
}

const startTime = 30 * time.Second

// listening waits until the process listens.
func (p *process) listening(l *life) error {
	timeout := time.NewTimer(startTime)
	defer timeout.Stop()
	select {
	case <-l.ready:
		return nil
	case <-l.ended:
		return p.unexpected(l)
	case <-timeout.C:
		return fmt.Errorf("%s does not listen within %v", p.name, startTime)
	}
}

// arm lets the process kill itself when it comes by a point for the n-th time from now on. Once a life.
func (l *life) arm(at Point, n int) {
	fmt.Fprintf(l.stdin, "arm %s %d\n", at, n) // a process that has ended will not need it
	select {
	case <-l.armed:
	case <-l.ended:
	}
}

func (l *life) kill() {
	l.mu.Lock()
	if l.killed.IsZero() {
		l.killed = time.Now()
	}
	l.mu.Unlock()
	l.cmd.Process.Kill() //nolint:errcheck // it has ended by itself: buried finds out how
}

// drain tells the process to end.
func (l *life) drain() {
	l.mu.Lock()
	l.drained = time.Now()
	l.mu.Unlock()
	fmt.Fprintln(l.stdin, "drain") // a process that has ended will not need it
}

// bury waits for the end of a life, and notes how it ended. A process that has neither been killed nor told to end, but
// ended, is an error.
func (p *process) bury(l *life) (death, error) {
	<-l.ended
	l.stdin.Close()
	d := death{role: p.part.Role, name: p.name, point: Random, from: l.killed, to: time.Now()}
	if l.fired != "" {
		d.point, d.from = l.fired, l.at
	}
	status, ok := l.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Exited() && !l.drained.IsZero():
		d.point, d.from, d.clean = Drained, l.drained, status.ExitStatus() == 0
	case d.from.IsZero() || !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL:
		return d, p.unexpected(l)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaths = append(p.deaths, d)
	return d, nil
}

func (p *process) unexpected(l *life) error {
	said, err := os.ReadFile(p.log)
	if err != nil {
		said = []byte(err.Error())
	}
	const most = 4 << 10
	if len(said) > most {
		said = said[len(said)-most:]
	}
	return fmt.Errorf("%s ended by itself: %v\n%s", p.name, l.cmd.ProcessState, strings.TrimSpace(string(said)))
}
