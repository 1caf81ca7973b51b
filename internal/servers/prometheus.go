//go:build unix

package servers

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// A Prometheus is a Prometheus server.
type Prometheus struct {
	*process
	port int
}

var _ Server = (*Prometheus)(nil)

// NewPrometheus starts a server with a configuration, as its file has it. What it has scraped ends with it.
func NewPrometheus(config string) (*Prometheus, error) {
	path, err := program("prometheus")
	if err != nil {
		return nil, fmt.Errorf("start Prometheus: %w", err)
	}
	p := &Prometheus{}
	err = onFreePort(func(port int) error {
		dir, err := newFolder("prometheus-", nil)
		if err != nil {
			return err
		}
		p.port = port
		file := filepath.Join(dir, "prometheus.yml")
		p.process = &process{
			name: "Prometheus", dir: dir, ending: syscall.SIGTERM, quick: syscall.SIGTERM,
			before: func() error { return os.WriteFile(file, []byte(config), 0o600) },
			command: func() *exec.Cmd {
				return exec.Command(path, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
					"--web.listen-address="+loopback(port))
			},
			ready: func(int) error { return p.ready() },
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
func (p *Prometheus) Addr() string { return loopback(p.port) }

func (p *Prometheus) ready() error {
	res, err := http.Get("http://" + p.Addr() + "/-/ready")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("it says %s", res.Status)
	}
	return nil
}
