package e2e

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/examples/shop/host"
	"github.com/semelhq/semel/internal/npm"
)

//go:embed testdata/npm testdata/tsclient
var testdata embed.FS

// npmFolder is where installed has put npm's packages. TestMain removes it.
var npmFolder string

// installed returns the folder with the programs of npm's that the tests use.
var installed = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "shop-npm-")
	if err != nil {
		return "", err
	}
	npmFolder = folder
	return folder, npm.Install(testdata, "testdata/npm", folder,
		"npm_config_ignore_scripts=true", "npm_config_prefer_offline=true", "npm_config_audit=false")
})

// runNPM runs a program of npm's in the folder.
func runNPM(t *testing.T, program string, args ...string) string {
	t.Helper()
	folder, err := installed()
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(folder, "node_modules", ".bin", program), args...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestALinterFindsNothingInTheDescription(t *testing.T) {
	t.Parallel()
	for _, simple := range []bool{false, true} {
		t.Run(fmt.Sprintf("simple=%v", simple), func(t *testing.T) {
			t.Parallel()
			text, err := newStage(t, host.Config{SimpleErrors: simple}).host.Shops[0].OpenAPI()
			must(t, err)
			file := filepath.Join(t.TempDir(), "openapi.json")
			must(t, os.WriteFile(file, text, 0o600))
			if out := runNPM(t, "redocly", "lint", "--config", "redocly.yaml", file); !strings.Contains(out, "is valid") || strings.Contains(out, "warning.") {
				t.Error(out)
			}
		})
	}
}
