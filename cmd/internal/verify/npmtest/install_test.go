package npmtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// home is where all that the tests write goes.
var home string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if home, err = os.MkdirTemp("", "semel-npmtest-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(home)                           //nolint:errcheck // a temporary folder
		os.Setenv("OWNER", fmt.Sprintf("%d", os.Getpid())) //nolint:errcheck // servers outlive no test
		return m.Run()
	}())
}

// installLimit is how long npm may take. With a full cache it takes some seconds.
const installLimit = 2 * time.Minute

// installed returns the folder with what the lock file names.
var installed = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(home, "installed")
	return dir, install(dir)
})

// install makes the folder and installs there what the lock file names, with more variables in npm's environment.
func install(dir string, env ...string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc", "server.js"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: scripts/servers installs what the tests need, or says how", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), installLimit)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci")
	npm.Dir, npm.Env = dir, append(os.Environ(), env...)
	npm.WaitDelay = time.Second // for what it has started
	out, err := npm.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("it has not ended within %v", installLimit)
	}
	if err != nil {
		return fmt.Errorf("npm ci: %w: the tests need the packages of testdata/package-lock.json, from a registry once, "+
			"and from npm's cache then; npm said:\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

// Whoever runs the tests has a registry set up, or a mirror of one.
func TestTheLockFileNamesVersionsAndNoRegistry(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/package-lock.json")
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
			t.Errorf("%s: version %q, integrity %q, resolved %q; want a version, its digest, and no place",
				name, p.Version, p.Integrity, p.Resolved)
		}
	}
	if got := lock.Packages["node_modules/express-idempotency"].Version; got != "1.0.6" {
		t.Errorf("express-idempotency is %q; the table is about 1.0.6", got)
	}
}

// A key in progress stays so until its request is answered by send() or reported: nothing of the package measures time.
// So where the table has 409 again and again, waiting longer would tell no more.
func TestNothingOfThePackageMeasuresTime(t *testing.T) {
	t.Parallel()
	dir, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	code := filepath.Join(dir, "node_modules", "express-idempotency", "dist")
	err = filepath.WalkDir(code, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".js") {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		if m := clock.Find(text); m != nil {
			t.Errorf("%s has %s", filepath.Base(path), m)
		}
		return err
	})
	if err != nil || files < 5 {
		t.Errorf("%d files read, %v", files, err)
	}
}

var clock = regexp.MustCompile(`(?i)\bdate\b|setTimeout|setInterval|setImmediate|performance\.|hrtime|expire|ttl`)

func TestWithoutARegistryTheErrorSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	err := install(filepath.Join(dir, "app"),
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
