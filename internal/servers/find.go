//go:build unix

package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// postgresFolder returns the folder with the programs of PostgreSQL: that of the one on PATH, else the newest version
// where packages put them.
func postgresFolder() (string, error) {
	var folders []string
	if path, err := exec.LookPath("postgres"); err == nil {
		folders = append(folders, filepath.Dir(path))
		if real, err := filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(real))
		}
	}
	packaged, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", fmt.Errorf("find postgres: %w", err)
	}
	slices.SortFunc(packaged, func(a, b string) int { return majorVersion(b) - majorVersion(a) })
	for _, dir := range append(folders, packaged...) {
		if isProgram(filepath.Join(dir, "postgres")) && isProgram(filepath.Join(dir, "initdb")) {
			return dir, nil
		}
	}
	return "", notFound("postgres and initdb")
}

var digits = regexp.MustCompile(`\d+`)

func majorVersion(path string) int {
	n, err := strconv.Atoi(digits.FindString(path))
	if err != nil {
		return 0
	}
	return n
}

// program returns the path of a program: the one on PATH, else the one in a folder that an ordinary user's PATH may
// leave out.
func program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/usr/bin"} {
		if path := filepath.Join(dir, name); isProgram(path) {
			return path, nil
		}
	}
	return "", notFound(name)
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func notFound(what string) error {
	return fmt.Errorf("%s not found: scripts/servers installs what the tests need, or says how", what)
}
