//go:build unix

package servers

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// A RabbitMQ is a RabbitMQ server of one node, without plugins. Its user is guest, with the password guest.
type RabbitMQ struct {
	*process
	port int
}

var _ Server = (*RabbitMQ)(nil)

// rabbitScript runs a node with a port mapper of its own, which ends with it.
const rabbitScript = `epmd -port "$ERL_EPMD_PORT" -address 127.0.0.1 & mapper=$!
trap 'kill "$node"' TERM
"$0" & node=$!
wait "$node" || true
wait "$node" || true
kill "$mapper"
wait`

// NewRabbitMQ starts a server.
func NewRabbitMQ() (*RabbitMQ, error) {
	path, err := rabbitProgram()
	if err != nil {
		return nil, fmt.Errorf("start RabbitMQ: %w", err)
	}
	r := &RabbitMQ{}
	err = onFreePort(func(port int) error {
		dir, err := newFolder("rabbitmq-", nil)
		if err != nil {
			return err
		}
		r.port = port
		env := []string{
			"HOME=" + dir, // the cookie is made there
			"RABBITMQ_CONF_ENV_FILE=" + os.DevNull,
			"RABBITMQ_CONFIG_FILE=" + filepath.Join(dir, "rabbitmq.conf"),
			"RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(dir, "enabled_plugins"),
			"RABBITMQ_MNESIA_BASE=" + filepath.Join(dir, "data"),
			"RABBITMQ_LOG_BASE=" + dir,
			"RABBITMQ_LOGS=-",
			"RABBITMQ_NODENAME=semel" + strconv.Itoa(port) + "@localhost",
			"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
			"RABBITMQ_NODE_PORT=" + strconv.Itoa(port),
			"ERL_EPMD_ADDRESS=127.0.0.1",
			"RABBITMQ_ALLOW_INPUT=1", // the node is the process that was started, not a child of it
			"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-noinput -kernel inet_dist_use_interface {127,0,0,1}",
		}
		r.process = &process{
			name: "RabbitMQ", dir: dir, ending: syscall.SIGTERM, quick: syscall.SIGTERM,
			before: func() error {
				return errors.Join(
					os.WriteFile(filepath.Join(dir, "rabbitmq.conf"), []byte("disk_free_limit.absolute = 10MB\n"), 0o600),
					os.WriteFile(filepath.Join(dir, "enabled_plugins"), []byte("[].\n"), 0o600))
			},
			command: func() *exec.Cmd {
				cmd := exec.Command("/bin/sh", "-c", rabbitScript, path)
				cmd.Env = append(slices.Clone(env),
					"RABBITMQ_DIST_PORT="+strconv.Itoa(passingPort()), "ERL_EPMD_PORT="+strconv.Itoa(passingPort()))
				return cmd
			},
			ready: func(int) error { return greeted(loopback(port)) },
		}
		if err := r.Start(); err != nil {
			return errors.Join(err, r.Close())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// URL returns the server's address, as clients of AMQP 0-9-1 take it.
func (r *RabbitMQ) URL() string { return "amqp://guest:guest@" + loopback(r.port) + "/" }

// rabbitProgram returns the server's own script: the one that packages put on PATH can be run only by root, and only as
// the user rabbitmq.
func rabbitProgram() (string, error) {
	packaged, err := filepath.Glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")
	if err != nil {
		return "", fmt.Errorf("find rabbitmq-server: %w", err)
	}
	for _, path := range slices.Backward(packaged) {
		if isProgram(path) {
			return path, nil
		}
	}
	return program("rabbitmq-server")
}

// greeted opens a connection of AMQP 0-9-1 and waits for the server's first method.
func greeted(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		return err
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(c, first); err != nil {
		return err
	}
	if first[0] != 1 {
		return fmt.Errorf("it answers with a frame of type %d, not a method", first[0])
	}
	return nil
}
