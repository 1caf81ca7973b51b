package npm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A pkg is a package of npm's with a program that a machine may lack. Nothing of it is run but what the digest vouches
// for.
type pkg struct {
	name, version string
	digest        string // SHA-512 of the package's archive, in base64
}

// kept returns the folder with what make has made of the package's files, which it may read in from and must write
// below to. It makes that once for all runs of the tests, in a folder of the user's cache.
func (p pkg) kept(cache string, make func(from, to string) error, npmEnv ...string) (string, error) {
	dir := filepath.Join(cache, strings.ReplaceAll(strings.TrimPrefix(p.name, "@"), "/", "-")+"-"+p.version)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cache, ".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work) //nolint:errcheck // nobody looks there
	from, to := filepath.Join(work, "from"), filepath.Join(work, "to")
	if err := p.fetch(work, from, npmEnv); err != nil {
		return "", fmt.Errorf("npm's package %s %s: %w", p.name, p.version, err)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return "", err
	}
	if err := make(from, to); err != nil {
		return "", fmt.Errorf("npm's package %s %s: %w", p.name, p.version, err)
	}
	if err := os.Rename(to, dir); err != nil {
		if _, other := os.Stat(dir); other != nil { // else another run was faster
			return "", err
		}
	}
	return dir, nil
}

// fetch lets npm load the package's archive, checks that, and unpacks it.
func (p pkg) fetch(work, to string, env []string) error {
	spec := p.name
	if p.version != "" {
		spec += "@" + p.version
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "pack", "--loglevel=error", "--ignore-scripts", "--prefer-offline", spec)
	npm.Dir, npm.Env = work, append(os.Environ(), env...)
	npm.WaitDelay = time.Second // for what it has started
	out, err := npm.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("it has not ended within %v", limit)
	}
	if err != nil {
		return fmt.Errorf("npm pack: %w: %s", err, bytes.TrimSpace(out))
	}
	archives, err := filepath.Glob(filepath.Join(work, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return fmt.Errorf("npm pack has made %d archives, want 1 (%w)", len(archives), err)
	}
	archive, err := os.ReadFile(archives[0])
	if err != nil {
		return err
	}
	if sum := sha512.Sum512(archive); base64.StdEncoding.EncodeToString(sum[:]) != p.digest {
		return errors.New("it is not the one that the tests know: its SHA-512 differs")
	}
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	return untar(plain, to)
}

// untar writes the files of an archive, and the folders that they need.
func untar(r io.Reader, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir) // no name leads out of it
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing was written through it
	for t := tar.NewReader(r); ; {
		head, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case head.Typeflag != tar.TypeReg:
			continue
		}
		if err := root.MkdirAll(filepath.Dir(head.Name), 0o755); err != nil {
			return err
		}
		f, err := root.OpenFile(head.Name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, head.FileInfo().Mode().Perm()|0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, t)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
}
