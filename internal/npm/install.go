// Package npm installs packages of npm's for tests of services that use them. Node.js and npm have to be there; what a
// lock file pins is fetched once, and comes from npm's cache then.
package npm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// limit is how long npm may take. With a full cache it takes some seconds.
const limit = 2 * time.Minute

// Install copies the files of a folder to another one, and installs there what its package-lock.json pins, with more
// variables in npm's environment.
func Install(from, to string, env ...string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
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
