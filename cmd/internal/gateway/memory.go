package gateway

import (
	"cmp"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// Memory says how the process uses memory. What the environment says, in GOGC and GOMEMLIMIT, goes before it.
type Memory struct {
	// GCPercent is how much may be garbage before it is collected, in percent of what is in use. The collector takes
	// processor time from requests; the more may lie around, the less often it runs. Defaults to 400 where the limit is
	// known, else to Go's 100.
	GCPercent int
	// Limit is how many bytes the process may take before garbage is collected more often than GCPercent says. It refuses
	// nothing. Defaults to 80 % of what the process's control group may take, or to a quarter of the machine's memory if
	// no group has a limit.
	Limit int64
}

// DefaultGCPercent is the default of [Memory].GCPercent.
const DefaultGCPercent = 400

// goGCPercent is Go's own default.
const goGCPercent = 100

// complete returns m with its defaults, on the machine whose files root has, and where its limit comes from.
func (m Memory) complete(root fs.FS) (Memory, string) {
	from := "configuration"
	if m.Limit == 0 {
		m.Limit, from = memoryLimit(root)
	}
	percent := DefaultGCPercent
	if m.Limit == 0 {
		percent = goGCPercent
	}
	m.GCPercent = cmp.Or(m.GCPercent, percent)
	return m, from
}

// Use sets the process's collector, and logs how. It is for a process that is a gateway and nothing else.
func (m Memory) Use(log *slog.Logger) {
	m, from := m.complete(os.DirFS("/"))
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(m.GCPercent)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		from = "GOMEMLIMIT"
	} else if m.Limit > 0 {
		debug.SetMemoryLimit(m.Limit)
	}
	log.Info("memory", "gc_percent", gcPercent(), "limit", debug.SetMemoryLimit(-1), "limit_from", from)
}

// gcPercent returns what is in force.
func gcPercent() int {
	now := debug.SetGCPercent(-1)
	debug.SetGCPercent(now)
	return now
}

// memoryLimit returns the default of [Memory].Limit, 0 if neither a control group nor the machine says anything, and
// which of them it comes from.
func memoryLimit(root fs.FS) (limit int64, from string) {
	machine, group := machineMemory(root), groupMemory(root)
	switch {
	case group > 0 && (machine == 0 || group < machine):
		return group / 5 * 4, "cgroup"
	case machine > 0:
		return machine / 4, "machine"
	}
	return 0, "nothing"
}

// machineMemory returns the memory of the machine in bytes, 0 if that can't be told.
func machineMemory(root fs.FS) int64 {
	content, _ := fs.ReadFile(root, "proc/meminfo") //nolint:errcheck // other systems have none
	for line := range strings.Lines(string(content)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
			return parsedBytes(f[1]) << 10
		}
	}
	return 0
}

// groupMemory returns the least limit in bytes of the control groups that the process is in, 0 for none. Inside a
// container the names of the groups may be those of outside, of which only the root can be seen.
func groupMemory(root fs.FS) (least int64) {
	content, _ := fs.ReadFile(root, "proc/self/cgroup") //nolint:errcheck // other systems have none
	for line := range strings.Lines(string(content)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		folder, file := "sys/fs/cgroup", "memory.max"
		switch {
		case f[1] == "memory": // version 1
			folder, file = folder+"/memory", "memory.limit_in_bytes"
		case f[1] != "":
			continue
		}
		for group := path.Clean("/" + f[2]); ; group = path.Dir(group) {
			said, _ := fs.ReadFile(root, path.Join(folder, group, file)) //nolint:errcheck // not every group has a limit
			if limit := parsedBytes(strings.TrimSpace(string(said))); limit > 0 && (least == 0 || limit < least) {
				least = limit
			}
			if group == "/" {
				break
			}
		}
	}
	return least
}

// parsedBytes reads a number of bytes, 0 for anything else, such as "max".
func parsedBytes(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 53)
	if err != nil {
		return 0
	}
	return n
}
