package secret

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	shortest = 16
	longest  = 4096

	longestFile = 1 << 20
)

// readFile reads a secret.
func readFile(name string) ([]byte, error) {
	text, err := readText(name, "the identity secret")
	if err != nil {
		return nil, err
	}
	return parse(text, name)
}

// readText reads a file that others must not read. Modes mean nothing on Windows, and are not looked at there.
func readText(name, what string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", what, err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read %s: %w", what, err)
	}
	// A group may read: that is how a service is given a file which it can't change.
	const others = 0o037
	switch mode := info.Mode(); {
	case mode.IsDir():
		return "", fmt.Errorf("read %s: %s is a folder", what, name)
	case mode.Perm()&others != 0 && runtime.GOOS != "windows":
		return "", fmt.Errorf("read %s: others have access to %s (mode %04o): chmod 600 %[2]s", what, name, mode.Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, longestFile+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", what, err)
	case len(text) > longestFile:
		return "", fmt.Errorf("read %s: %s has more than %d characters", what, name, longestFile)
	}
	return string(text), nil
}

// Derivation reads the secret of derived keys from a file that others must not read; a line end behind it doesn't
// count. "" is no secret.
func Derivation(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	text, err := readText(file, "the derivation secret")
	if err != nil {
		return nil, err
	}
	if text = strings.TrimRight(text, "\r\n"); text == "" {
		return nil, fmt.Errorf("the derivation secret from %s is empty", file)
	}
	return []byte(text), nil
}

// parse returns the secret that a text is.
func parse(text, from string) ([]byte, error) {
	if line, ok := strings.CutSuffix(text, "\n"); ok {
		text = strings.TrimSuffix(line, "\r")
	}
	const advice = "; one that is good has 64 characters, as \"openssl rand -hex 32\" makes them"
	hidden := strings.IndexFunc(text, func(c rune) bool { return c < '!' || c > '~' })
	switch {
	case text == "":
		return nil, fmt.Errorf("the identity secret from %s is empty", from)
	case hidden >= 0:
		return nil, fmt.Errorf("the identity secret from %s: byte %d is not a visible ASCII character%s", from, hidden+1, advice)
	case len(text) < shortest:
		return nil, fmt.Errorf("the identity secret from %s has %d characters, want at least %d%s", from, len(text), shortest, advice)
	case len(text) > longest:
		return nil, fmt.Errorf("the identity secret from %s has more than %d characters%s", from, longest, advice)
	}
	return []byte(text), nil
}

// makeFile makes a secret of 256 random bits in a new file, and returns what the file holds once that is durable. Of
// several processes that do so at once, all get the same.
func makeFile(name string) ([]byte, error) {
	text := make([]byte, 32)
	rand.Read(text)
	if err := writeOnce(name, hex.EncodeToString(text)+"\n"); err != nil {
		return nil, fmt.Errorf("make the identity secret: %w", err)
	}
	return readFile(name)
}

// writeOnce makes a file that only its owner can read, unless there is one of that name. It is there as a whole or not
// at all, whenever the process dies.
func writeOnce(name, text string) (err error) {
	dir, base := filepath.Split(name)
	if dir == "" {
		dir = "."
	}
	f, err := os.CreateTemp(dir, "."+base+".*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), name); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncFolder(dir)
}

// syncFolder makes the names in a folder durable. Windows has no such thing.
func syncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
