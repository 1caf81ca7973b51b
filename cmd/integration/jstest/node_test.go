package jstest

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/npm"
	"github.com/semelhq/semel/internal/proof"
)

// client is the folder of the JavaScript client.
const client = "../../../js"

// result is one line of the Test Anything Protocol: a test, or one in it.
var result = regexp.MustCompile(`(?m)^ *(not ok|ok) \d+ - (.*?)( # (?:SKIP|TODO).*)?$`)

func TestR65_TheClientsOwnTestsPassInNode(t *testing.T) {
	t.Parallel()
	node, err := npm.Node()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, "--test", "--test-reporter=tap")
	proof.Reads("client", "js")
	cmd.Dir = client
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("node --test: %v\n%s", err, out)
	}
	results := result.FindAllStringSubmatch(string(out), -1)
	for _, r := range results {
		t.Run(r[2], func(t *testing.T) {
			if r[1] != "ok" || r[3] != "" {
				t.Errorf("%s%s", r[1], r[3])
			}
		})
	}
	if len(results) < 100 || !strings.Contains(string(out), "call: the first answer") {
		t.Errorf("%d results, want those of the vectors, twice a call, and of the tests beside them:\n%s", len(results), out)
	}
}
