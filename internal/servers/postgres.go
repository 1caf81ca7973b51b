//go:build unix

package servers

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// PostgresOptions say what a PostgreSQL server is to be.
type PostgresOptions struct {
	// Settings are lines of postgresql.conf: names with their values, unquoted. They replace what this package sets.
	Settings map[string]string
	// Durable makes commits survive a loss of power, as in production. Without it they survive a kill of the server, but
	// cost no wait for the disk.
	Durable bool
}

// A Postgres is a PostgreSQL server that trusts everybody who comes from this machine.
type Postgres struct {
	*process
	port int
}

var _ Server = (*Postgres)(nil)

// NewPostgres starts a server on an empty database cluster.
func NewPostgres(o PostgresOptions) (*Postgres, error) {
	bin, err := postgresFolder()
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	who, err := unprivileged()
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	p := &Postgres{}
	err = onFreePort(func(port int) error {
		dir, err := newFolder("postgres-", who)
		if err != nil {
			return err
		}
		data := filepath.Join(dir, "data")
		if err := copyTemplate(data, who); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
		if err := configure(data, o, port); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
		p.port = port
		p.process = &process{
			name: "PostgreSQL", dir: dir, who: who, ending: syscall.SIGINT, quick: syscall.SIGQUIT,
			command: func() *exec.Cmd { return exec.Command(filepath.Join(bin, "postgres"), "-D", data) },
			before:  p.clean,
			ready:   p.answersAs,
			after:   p.release,
		}
		if err := p.Start(); err != nil {
			return errors.Join(err, p.Close())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Addr returns the server's host and port.
func (p *Postgres) Addr() string { return loopback(p.port) }

// URL returns where the database "postgres" is found, and who may do anything there.
func (p *Postgres) URL() string { return postgresURL(p.port) }

func postgresURL(port int) string {
	return "postgres://postgres@" + loopback(port) + "/postgres?sslmode=disable"
}

// StartInRecovery starts a server that was killed or stopped as a standby that has no primary: it can be read only. The
// next Start makes it a primary again.
func (p *Postgres) StartInRecovery() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	primary := p.before
	p.before = func() error {
		if err := primary(); err != nil {
			return err
		}
		return os.WriteFile(p.standbyPath(), nil, 0o644)
	}
	defer func() { p.before = primary }()
	return p.wrap("start in recovery", p.start())
}

func (p *Postgres) dataPath(name string) string { return filepath.Join(p.dir, "data", name) }
func (p *Postgres) standbyPath() string         { return p.dataPath("standby.signal") }

// clean removes what a killed server left, which a process that happens to have its id would make look alive.
func (p *Postgres) clean() error {
	p.release()
	for _, path := range []string{p.dataPath("postmaster.pid"), p.standbyPath()} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// status returns the lines of postmaster.pid, which is there as long as the server has not ended in order.
func (p *Postgres) status() ([]string, error) {
	text, err := os.ReadFile(p.dataPath("postmaster.pid"))
	if err != nil {
		return nil, err
	}
	return append(strings.Split(string(text), "\n"), make([]string, 8)...), nil
}

// release removes the segment of shared memory that a killed server left in the system. Its id is the second number of
// line 7.
func (p *Postgres) release() {
	status, err := p.status()
	if err != nil {
		return // it ended in order
	}
	if ids := strings.Fields(status[6]); len(ids) == 2 {
		exec.Command("ipcrm", "-m", ids[1]).Run() //nolint:errcheck // the next start from the same folder would do it too
	}
}

// answersAs tells whether the server that has this process id takes queries.
func (p *Postgres) answersAs(pid int) error {
	status, err := p.status()
	if err != nil {
		return err
	}
	if s := strings.TrimSpace(status[7]); status[0] != strconv.Itoa(pid) || s != "ready" && s != "standby" {
		return fmt.Errorf("postmaster.pid says %q", s)
	}
	c, err := dialPG(p.Addr(), "postgres", time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

// configure writes what is not left at its default. The last of two lines counts.
func configure(data string, o PostgresOptions, port int) error {
	settings := map[string]string{
		"listen_addresses":           "127.0.0.1",
		"port":                       strconv.Itoa(port),
		"unix_socket_directories":    filepath.Dir(data),
		"max_connections":            "200",
		"shared_buffers":             "32MB",
		"dynamic_shared_memory_type": "mmap", // files below data, which go with it
		"synchronous_commit":         "on",
	}
	if !o.Durable {
		settings["fsync"] = "off" // but not full_page_writes: SIGKILL can tear a page
	}
	maps.Copy(settings, o.Settings)
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&lines, "%s = '%s'\n", name, quote.Replace(settings[name]))
	}
	f, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(lines.String())
	return errors.Join(err, f.Close())
}

var quote = strings.NewReplacer("'", "''", `\`, `\\`)

// template returns the folder of a database cluster that no server has touched. It is made once a process.
var template = sync.OnceValues(func() (string, error) {
	bin, err := postgresFolder()
	if err != nil {
		return "", err
	}
	who, err := unprivileged()
	if err != nil {
		return "", err
	}
	dir, err := newFolder("template-", who)
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	return data, runAs(who, dir, filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
		"--locale=C", "--no-sync")
})

func copyTemplate(data string, who *syscall.Credential) error {
	from, err := template()
	if err != nil {
		return fmt.Errorf("make a database cluster: %w", err)
	}
	return runAs(who, filepath.Dir(data), "cp", "-Rp", from, data)
}

func runAs(who *syscall.Credential, dir, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: who}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, out)
	}
	return nil
}
