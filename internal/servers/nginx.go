//go:build unix

package servers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// An Nginx is an nginx, as it stands in front of services.
type Nginx struct {
	*process
	port int
}

var _ Server = (*Nginx)(nil)

// nginxFile is its configuration. It runs as one process, so that all its files are its starter's.
const nginxFile = `daemon off;
master_process off;
pid nginx.pid;
events {}
http {
access_log off;
client_body_temp_path body;
proxy_temp_path proxy;
fastcgi_temp_path fastcgi;
uwsgi_temp_path uwsgi;
scgi_temp_path scgi;
%s
}
`

// NewNginx starts one with what stands in the http block of its configuration. It listens where that says "listen 80;".
func NewNginx(config string) (*Nginx, error) {
	path, err := program("nginx")
	if err != nil {
		return nil, fmt.Errorf("start nginx: %w", err)
	}
	n := &Nginx{}
	err = onFreePort(func(port int) error {
		dir, err := newFolder("nginx-", nil)
		if err != nil {
			return err
		}
		n.port = port
		file := filepath.Join(dir, "nginx.conf")
		text := fmt.Sprintf(nginxFile, strings.ReplaceAll(config, "listen 80;", "listen "+loopback(port)+";"))
		n.process = &process{
			name: "nginx", dir: dir, ending: syscall.SIGQUIT, quick: syscall.SIGTERM,
			before:  func() error { return os.WriteFile(file, []byte(text), 0o600) },
			command: func() *exec.Cmd { return exec.Command(path, "-e", "stderr", "-p", dir, "-c", file) },
			ready: func(int) error {
				c, err := net.Dial("tcp", loopback(port))
				if err != nil {
					return err
				}
				return c.Close()
			},
		}
		if err := n.Start(); err != nil {
			return errors.Join(err, n.Close())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// Addr returns its host and port.
func (n *Nginx) Addr() string { return loopback(n.port) }
