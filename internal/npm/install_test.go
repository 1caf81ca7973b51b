package npm_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/npm"
)

// locks returns the lock files of all tests.
func locks(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case d != nil && d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git"):
			return fs.SkipDir
		case d != nil && d.Name() == "package-lock.json":
			paths = append(paths, path)
		}
		return err
	})
	if err != nil || len(paths) < 2 {
		t.Fatalf("lock files: %q, %v", paths, err)
	}
	return paths
}

// Whoever runs the tests has a registry set up, or a mirror of one.
func TestLockFilesNameVersionsAndNoRegistry(t *testing.T) {
	t.Parallel()
	for _, path := range locks(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var lock struct {
			Packages map[string]struct {
				Version, Integrity, Resolved string
			}
		}
		if err := json.Unmarshal(text, &lock); err != nil {
			t.Fatal(err)
		}
		for name, p := range lock.Packages {
			if name != "" && (p.Version == "" || !strings.HasPrefix(p.Integrity, "sha512-") || p.Resolved != "") {
				t.Errorf("%s: %s: version %q, integrity %q, resolved %q; want a version, its digest, and no place",
					path, name, p.Version, p.Integrity, p.Resolved)
			}
		}
	}
}

func TestWithoutARegistryTheErrorSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	err := npm.Install(os.DirFS(filepath.Dir(locks(t)[0])), ".", filepath.Join(dir, "app"),
		"npm_config_registry=http://127.0.0.1:9/", "npm_config_cache="+filepath.Join(dir, "cache"), "npm_config_fetch_retries=0")
	if err == nil {
		t.Fatal("packages come from nowhere")
	}
	for _, want := range []string{"npm ci: ", "from a registry once", "ECONNREFUSED"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error has no %q:\n%v", want, err)
		}
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Errorf("%v is no error of npm's", err)
	}
}
