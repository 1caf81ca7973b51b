//go:build unix

package servers

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// A home is the folder of this process, below which each server has its own.
type home struct {
	dir string
	// The watcher removes the folder when this process has ended, however that came: when its end of the pipe is closed.
	watcher io.WriteCloser
}

var base = sync.OnceValues(func() (*home, error) {
	dir, err := os.MkdirTemp(reachable(os.TempDir()), "semel-servers-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // other users reach their servers' folders through it
		return nil, err
	}
	watcher, err := watch(dir)
	return &home{dir, watcher}, err
})

// newFolder makes a folder for a server that runs as who.
func newFolder(pattern string, who *syscall.Credential) (string, error) {
	parent, err := base()
	if err != nil {
		return "", fmt.Errorf("make a folder for servers: %w", err)
	}
	dir, err := os.MkdirTemp(parent.dir, pattern)
	if err != nil {
		return "", err
	}
	return dir, give(dir, who)
}

func give(path string, who *syscall.Credential) error {
	if who == nil {
		return nil
	}
	return os.Chown(path, int(who.Uid), int(who.Gid))
}

// reachable returns dir if every user can pass through it, or if there is but one user; else /tmp.
func reachable(dir string) string {
	if os.Geteuid() != 0 {
		return dir
	}
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if info, err := os.Stat(at); err != nil || info.Mode()&0o001 == 0 {
			return "/tmp"
		}
		if at == filepath.Dir(at) {
			return dir
		}
	}
}

// watcherScript waits until its standard input ends, which it does with the process that has the other end. It then
// ends each server whose folder says who it is, and removes all folders.
const watcherScript = `
trap '' HUP INT TERM
cat >/dev/null
for f in "$1"/*/pid; do
	read -r pid signal <"$f" || continue
	kill -s CONT -- "-$pid"
	kill -s "$signal" -- "-$pid"
done
for tenth in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	alive=
	for f in "$1"/*/pid; do
		read -r pid signal <"$f" && kill -s 0 -- "-$pid" && alive=yes
	done
	[ -z "$alive" ] && break
	sleep 0.1
done
for f in "$1"/*/pid; do
	read -r pid signal <"$f" && kill -s KILL -- "-$pid"
done
rm -rf "$1"
`

// watch starts the watcher of the folder dir. It lives until what it returns is closed.
func watch(dir string) (io.WriteCloser, error) {
	cmd := exec.Command("/bin/sh", "-c", watcherScript, "semel-servers-watcher", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watcher: %w", err)
	}
	return stdin, nil
}
