//go:build unix

package servers

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Redis is a Redis server without a password.
type Redis struct {
	*process
	port int
}

var _ Server = (*Redis)(nil)

// NewRedis starts a server with options as they stand on its command line ("--appendonly", "yes"). Without any it keeps
// nothing: started again, it is empty.
func NewRedis(args ...string) (*Redis, error) {
	return newRedis(func(*Redis, map[string]string) error { return nil }, args)
}

// newRedis starts a server whose INFO has to satisfy complete before it is taken as started.
func newRedis(complete func(r *Redis, info map[string]string) error, args []string) (*Redis, error) {
	path, err := program("redis-server")
	if err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	r := &Redis{}
	err = onFreePort(func(port int) error {
		dir, err := newFolder("redis-", nil)
		if err != nil {
			return err
		}
		r.port = port
		all := append([]string{
			"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir, "--save", "", "--appendonly", "no",
		}, args...)
		r.process = &process{
			name: "Redis", dir: dir, ending: syscall.SIGTERM, quick: syscall.SIGTERM,
			command: func() *exec.Cmd { return exec.Command(path, all...) },
			ready: func(pid int) error {
				info, err := r.info(pid)
				if err != nil {
					return err
				}
				return complete(r, info)
			},
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

// Addr returns the server's host and port.
func (r *Redis) Addr() string { return loopback(r.port) }

// info asks the server that has this process id for its INFO.
func (r *Redis) info(pid int) (map[string]string, error) {
	text, err := redisDo(r.Addr(), time.Second, "INFO")
	if err != nil {
		return nil, err
	}
	info := readInfo(text)
	switch {
	case info["process_id"] != strconv.Itoa(pid):
		return nil, fmt.Errorf("another process answers on its port: %s", info["process_id"])
	case info["loading"] != "0":
		return nil, errors.New("it is loading its data")
	}
	return info, nil
}

// NewRedisPair starts a primary and a replica that follows it. Each is closed by itself.
func NewRedisPair() (primary, replica *Redis, err error) {
	if primary, err = NewRedis("--repl-diskless-sync-delay", "0"); err != nil {
		return nil, nil, err
	}
	replica, err = newRedis(linked, []string{"--replicaof", strings.ReplaceAll(primary.Addr(), ":", " ")})
	if err != nil {
		return nil, nil, errors.Join(err, primary.Close())
	}
	return primary, replica, nil
}

// linked tells whether a replica follows its primary. One that is none any more follows nobody.
func linked(_ *Redis, info map[string]string) error {
	if info["role"] == "slave" && info["master_link_status"] != "up" {
		return errors.New("it has no link to its primary")
	}
	return nil
}
