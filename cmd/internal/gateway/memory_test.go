package gateway

import (
	"bytes"
	"log/slog"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"
)

func files(of map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, content := range of {
		m[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return m
}

func TestTheMemoryLimitIsThatOfTheGroupOrTheMachine(t *testing.T) {
	t.Parallel()
	const machine = "MemTotal:        8388608 kB\nMemFree:         1000 kB\n" // 8 GiB
	for name, c := range map[string]struct {
		set   Memory
		files map[string]string
		want  Memory
		from  string
	}{
		"no group": {
			files: map[string]string{"proc/meminfo": machine},
			want:  Memory{400, 2 << 30}, from: "machine",
		},
		"no limit in the group": {
			files: map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n"},
			want:  Memory{400, 2 << 30}, from: "machine",
		},
		"version 2": {
			files: map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1000000000\n"},
			want:  Memory{400, 800_000_000}, from: "cgroup",
		},
		"version 2, the limit of a group above": {
			files: map[string]string{
				"proc/meminfo": machine, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1000000000\n", "sys/fs/cgroup/a/memory.max": "500000000\n",
			},
			want: Memory{400, 400_000_000}, from: "cgroup",
		},
		"version 2, in a container that sees its own group as the root": {
			files: map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/../pod/c\n", "sys/fs/cgroup/memory.max": "1000000000\n"},
			want:  Memory{400, 800_000_000}, from: "cgroup",
		},
		"version 1": {
			files: map[string]string{
				"proc/meminfo": machine, "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/docker/c\n0::/\n",
				"sys/fs/cgroup/memory/docker/c/memory.limit_in_bytes": "1000000000\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			},
			want: Memory{400, 800_000_000}, from: "cgroup",
		},
		"a group that may take more than the machine has": {
			files: map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "9000000000\n"},
			want:  Memory{400, 2 << 30}, from: "machine",
		},
		"no machine that says": {
			want: Memory{100, 0}, from: "nothing",
		},
		"no machine that says, and a limit": {
			set:  Memory{Limit: 1 << 30},
			want: Memory{400, 1 << 30}, from: "configuration",
		},
		"all set": {
			set: Memory{50, 1 << 30}, files: map[string]string{"proc/meminfo": machine},
			want: Memory{50, 1 << 30}, from: "configuration",
		},
		"nonsense": {
			files: map[string]string{"proc/meminfo": "MemTotal: much kB\n", "proc/self/cgroup": "x\n0::/\n4:memory\n", "sys/fs/cgroup/memory.max": "-5\n"},
			want:  Memory{100, 0}, from: "nothing",
		},
	} {
		if got, from := c.set.complete(files(c.files)); got != c.want || from != c.from {
			t.Errorf("%s: %+v from %s, want %+v from %s", name, got, from, c.want, c.from)
		}
	}
}

// Not parallel: the collector is the process's.
func TestTheEnvironmentGoesBeforeTheMemorySettings(t *testing.T) {
	percent, limit := gcPercent(), debug.SetMemoryLimit(-1)
	restore := func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
	defer restore()
	for _, c := range []struct {
		gogc, gomemlimit string
		percent          int
		limit            int64
		from             string
	}{
		{"", "", 321, 5 << 30, "limit_from=configuration"},
		{"100", "", percent, 5 << 30, "limit_from=configuration"},
		{"", "1GiB", 321, limit, "limit_from=GOMEMLIMIT"},
	} {
		restore()
		t.Setenv("GOGC", c.gogc)
		t.Setenv("GOMEMLIMIT", c.gomemlimit)
		var log bytes.Buffer
		Memory{GCPercent: 321, Limit: 5 << 30}.Use(slog.New(slog.NewTextHandler(&log, nil)))
		if p, l := gcPercent(), debug.SetMemoryLimit(-1); p != c.percent || l != c.limit || !strings.Contains(log.String(), c.from) {
			t.Errorf("with GOGC=%s and GOMEMLIMIT=%s: %d %%, %d bytes, want %d and %d; logged %s", c.gogc, c.gomemlimit, p, l, c.percent, c.limit, log.String())
		}
	}
}
