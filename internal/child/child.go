// Package child has a test's own program run as another process.
package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/semelhq/semel/internal/proof"
)

// Program returns the path of the test's own program. A test that runs under the race detector gets one without it: to
// start a process with it costs nearly three times as much, which tests that kill many would pay for. In the long form
// of the tests it is the running program itself.
func Program() (string, error) {
	if !race || proof.Long() {
		return os.Executable()
	}
	return plain()
}

// Remove removes what Program has built. It is to be called in the end, by TestMain.
func Remove() error {
	built.Lock()
	defer built.Unlock()
	if built.folder == "" {
		return nil
	}
	return os.RemoveAll(built.folder)
}

var built struct {
	sync.Mutex
	folder string
}

// The folder of the package, in which its tests begin. It is asked of the system: os.Getwd looks up PWD, which "go test"
// would take for an input, and so would it the age of a folder that a command is started in.
var folder, errFolder = syscall.Getwd()

var plain = sync.OnceValues(func() (string, error) {
	built.Lock()
	defer built.Unlock()
	dir, err := os.MkdirTemp("", "child-*")
	if err = errors.Join(errFolder, err); err != nil {
		return "", fmt.Errorf("build the test's program without the race detector: %w", err)
	}
	built.folder = dir
	path := filepath.Join(dir, "child.test")
	c := exec.Command("go", "test", "-c", "-race=false", "-vet=off", "-ldflags=-s", "-o", path, ".")
	if now, err := syscall.Getwd(); err != nil || now != folder {
		c.Dir = folder
	}
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the test's program without the race detector: %w\n%s", err, out)
	}
	return path, nil
})
