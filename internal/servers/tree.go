//go:build unix

package servers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Processes of a server are found by their parents: each backend of PostgreSQL leads a session of its own, so a process
// group does not hold them together.

// freeze stops the process root and all its descendants, and returns their ids, root first. Parents are stopped before
// their children are listed, so that none is born unseen.
func freeze(root int) ([]int, error) {
	stopped := map[int]bool{}
	var pids []int
	for grown := true; grown; {
		tree, err := descendants(root)
		if err != nil {
			return nil, err
		}
		grown = false
		for _, pid := range tree {
			if stopped[pid] {
				continue
			}
			if err := signal(pid, syscall.SIGSTOP); err != nil {
				return nil, err
			}
			stopped[pid], grown = true, true
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// signal sends s to a process. One that has ended is none of its concern.
func signal(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %v to process %d: %w", s, pid, err)
	}
	return nil
}

// signalAll sends s to each process, also behind one that can't be reached.
func signalAll(pids []int, s syscall.Signal) error {
	var errs []error
	for _, pid := range pids {
		errs = append(errs, signal(pid, s))
	}
	return errors.Join(errs...)
}

// descendants returns root and the processes below it, parents before their children.
func descendants(root int) ([]int, error) {
	all, err := processes()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := map[int][]int{}
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p.pid)
	}
	tree := []int{root}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree, nil
}

type processInfo struct {
	pid, parent int
	state       byte // R, S, D, T, Z, …
}

// processes lists those processes, or all if none is named. One that has ended is left out.
func processes(pids ...int) ([]processInfo, error) {
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		return fromProc(pids)
	}
	// ps fails if a process that it is asked for has ended: it is asked for all.
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,stat=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	var found []processInfo
	for line := range strings.Lines(string(out)) {
		if p, ok := parseInfo(strings.Fields(line)); ok && (len(pids) == 0 || slices.Contains(pids, p.pid)) {
			found = append(found, p)
		}
	}
	return found, nil
}

// fromProc reads Linux's files about processes: "pid (name) state parent …". The name may hold anything.
func fromProc(pids []int) ([]processInfo, error) {
	var paths []string
	for _, pid := range pids {
		paths = append(paths, fmt.Sprintf("/proc/%d/stat", pid))
	}
	if len(pids) == 0 {
		var err error
		if paths, err = filepath.Glob("/proc/[0-9]*/stat"); err != nil {
			return nil, err
		}
	}
	var found []processInfo
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, _, _ := bytes.Cut(text, []byte(" "))
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 2 {
			continue
		}
		if p, ok := parseInfo([]string{string(pid), fields[1], fields[0]}); ok {
			found = append(found, p)
		}
	}
	return found, nil
}

// parseInfo takes a process's id, its parent's, and its state.
func parseInfo(fields []string) (p processInfo, ok bool) {
	if len(fields) < 3 {
		return p, false
	}
	pid, err := strconv.Atoi(fields[0])
	parent, parentErr := strconv.Atoi(fields[1])
	return processInfo{pid: pid, parent: parent, state: fields[2][0]}, err == nil && parentErr == nil
}

// gone waits until none of the processes runs. A zombie does not: nobody may collect the orphans of a container.
func gone(pids []int, patience time.Duration) error {
	for until := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		left, err := processes(pids...)
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(left, func(p processInfo) bool { return p.state == 'Z' || p.state == 'X' })
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("process %d has not ended within %v", left[0].pid, patience)
		}
	}
}
