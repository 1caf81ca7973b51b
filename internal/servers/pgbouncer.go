//go:build unix

package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// PgBouncerOptions say what a PgBouncer is to be.
type PgBouncerOptions struct {
	// PoolSize is how many connections to the server it holds at most (its default_pool_size). Defaults to 20.
	PoolSize int
}

// A PgBouncer pools connections to a PostgreSQL server by transaction: two statements of a client that are in no
// transaction may run in different sessions.
type PgBouncer struct {
	*process
	port int
}

var _ Server = (*PgBouncer)(nil)

// NewPgBouncer starts a pooler in front of p. It takes as many as 500 clients, and lets in everybody.
func NewPgBouncer(p *Postgres, o PgBouncerOptions) (*PgBouncer, error) {
	if o.PoolSize == 0 {
		o.PoolSize = 20
	}
	path, err := program("pgbouncer")
	if err != nil {
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	who, err := unprivileged()
	if err != nil {
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	b := &PgBouncer{}
	err = onFreePort(func(port int) error {
		dir, err := newFolder("pgbouncer-", who)
		if err != nil {
			return err
		}
		config := filepath.Join(dir, "pgbouncer.ini")
		if err := os.WriteFile(config, fmt.Appendf(nil, pgBouncerConfig, p.port, port, o.PoolSize), 0o644); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
		b.port = port
		b.process = &process{
			name: "PgBouncer", dir: dir, who: who, ending: syscall.SIGTERM, quick: syscall.SIGTERM,
			command: func() *exec.Cmd { return exec.Command(path, config) },
			ready:   func(int) error { return b.answers() },
		}
		if err := b.Start(); err != nil {
			return errors.Join(err, b.Close())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// A server that is down is tried again after a second.
const pgBouncerConfig = `
[databases]
* = host=127.0.0.1 port=%d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
admin_users = postgres
pool_mode = transaction
max_client_conn = 500
default_pool_size = %d
server_reset_query = DISCARD ALL
server_login_retry = 1
`

// Addr returns the pooler's host and port.
func (b *PgBouncer) Addr() string { return loopback(b.port) }

// URL returns where the database "postgres" is found through the pooler.
func (b *PgBouncer) URL() string { return postgresURL(b.port) }

// answers tells whether clients are taken, by asking for the pooler's own database.
func (b *PgBouncer) answers() error {
	c, err := dialPG(b.Addr(), "pgbouncer", time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}
