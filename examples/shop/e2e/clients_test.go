package e2e

import (
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/oapi-codegen/runtime" // the generated client uses it

	"github.com/semelhq/semel/examples/shop/host"
	"github.com/semelhq/semel/examples/shop/shop"
	"github.com/semelhq/semel/internal/proof"
)

// description writes the description of a stage's shop into a file.
func (s *stage) description(file string) string {
	s.t.Helper()
	res, err := http.Get(s.urls[0] + "/openapi.json")
	must(s.t, err)
	defer res.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(res.Body)
	must(s.t, err)
	must(s.t, os.WriteFile(file, text, 0o600))
	return file
}

// ordersOnce checks that a program's first answer was lost, that its second one was a replay, and that what it ordered
// was taken once: 600 of 1000 books.
func (s *stage) ordersOnce(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	token, err := s.host.Keys.Token("acme", "alice", time.Hour)
	must(t, err)
	cmd.Args = append(cmd.Args, s.urls[0], token)
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "2 true 1470000" {
		t.Fatalf("%v\n%s\nwant 2 attempts, a replay, and the total", err, out)
	}
	rest := shop.NewOrder{Lines: []shop.Line{{Product: "book-1", Quantity: 400}}}
	if r := s.call(0, "POST", "/orders", s.newKey(), rest, nil); r.Status != http.StatusCreated {
		t.Errorf("600 of 1000 books were ordered, but 400 more: %s", r)
	}
	rest.Lines[0].Quantity = 1
	if r := s.call(0, "POST", "/orders", s.newKey(), rest, nil); r.Status != http.StatusConflict {
		t.Errorf("all books were ordered, but one more: %s", r)
	}
}

func TestAGeneratedGoClientOrdersOnceThoughItsAnswerIsLost(t *testing.T) {
	t.Parallel()
	proof.Reads(proof.Code, "examples", "tools")
	s, folder := newStage(t, host.Config{}), t.TempDir()
	source, err := filepath.Abs("testdata/goclient")
	must(t, err)
	generated := filepath.Join(folder, "client.gen.go")
	generate := exec.CommandContext(t.Context(), "go", "tool", "oapi-codegen", "-config", filepath.Join(source, "oapi-codegen.yaml"),
		"-o", generated, s.description(filepath.Join(folder, "openapi.json")))
	generate.Dir, generate.Env = "../../../tools", append(os.Environ(), "GOWORK=off")
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(source, "client.gen.go"): generated}})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(folder, "overlay.json"), overlay, 0o600))
	s.ordersOnce(t, exec.CommandContext(t.Context(), "go", "run", "-overlay", filepath.Join(folder, "overlay.json"), "./testdata/goclient"))
}

func TestAGeneratedTypeScriptClientOrdersOnceThoughItsAnswerIsLost(t *testing.T) {
	t.Parallel()
	proof.Reads("js")
	s := newStage(t, host.Config{})
	packages, err := installed()
	must(t, err)
	folder := filepath.Join(packages, "tsclient") // below node_modules
	program, err := fs.Sub(testdata, "testdata/tsclient")
	must(t, err)
	must(t, os.CopyFS(folder, program))
	own := filepath.Join(folder, "node_modules", "@semelhq")
	must(t, os.MkdirAll(own, 0o700))
	must(t, os.CopyFS(filepath.Join(own, "client"), os.DirFS("../../../js")))
	runNPM(t, "openapi-typescript", s.description(filepath.Join(folder, "openapi.json")), "-o", filepath.Join(folder, "shop.d.ts"))
	runNPM(t, "tsc", "-p", folder)
	s.ordersOnce(t, exec.CommandContext(t.Context(), "node", filepath.Join(folder, "main.js")))
}

func TestTheDocumentedAdapterIsTheOneThatIsTested(t *testing.T) {
	t.Parallel()
	proof.Reads("docs")
	page, err := os.ReadFile("../../../docs/client.md")
	must(t, err)
	program, err := testdata.ReadFile("testdata/tsclient/main.ts")
	must(t, err)
	_, code, found := strings.Cut(string(page), "```ts\n")
	code, _, _ = strings.Cut(code, "```")
	if !found || !strings.Contains(string(program), code) {
		t.Errorf("main.ts does not have this:\n%s", code)
	}
}
