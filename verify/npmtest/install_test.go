package npmtest

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/npm"
)

//go:embed all:testdata
var testdata embed.FS

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

// installed returns the folder with what the lock file names.
var installed = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(home, "installed")
	return dir, npm.Install(testdata, "testdata", dir)
})

func TestTheTableIsAboutThePackageThatIsPinned(t *testing.T) {
	t.Parallel()
	text, err := testdata.ReadFile("testdata/package.json")
	if err != nil || !strings.Contains(string(text), `"express-idempotency": "1.0.6"`) {
		t.Errorf("express-idempotency is not 1.0.6, which the table is about: %v\n%s", err, text)
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
