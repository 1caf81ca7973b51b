package gateway

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/proof"
	"github.com/semelhq/semel/refusal"
)

func TestField23_EveryCodeOfTheGatewayIsDocumentedAsItIsOnTheWire(t *testing.T) {
	t.Parallel()
	proof.Reads("docs")
	page, err := os.ReadFile("../../../docs/codes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Codes of the gateway\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[refusal.Code]string{}
	for row := range strings.Lines(section) {
		if code, ok := strings.CutPrefix(row, "| `"); ok {
			code, _, _ = strings.Cut(code, "`")
			rows[refusal.Code(code)] = row
		}
	}
	for _, r := range []localRefusal{upstreamUnavailable, upstreamBroken, notForwardable, methodRefused, targetRefused, hostRefused} {
		retryable := map[bool]string{true: "yes", false: "no"}[r.retryable]
		if want := strings.Join([]string{"| `" + string(r.code) + "`", "`" + r.slug + "`", strconv.Itoa(r.status), retryable, ""}, " | "); !strings.HasPrefix(rows[r.code], want) {
			t.Errorf("documented is %q, want %q", rows[r.code], want)
		}
		delete(rows, r.code)
		if !ownCodes[r.code] {
			t.Errorf("%s is missing among the gateway's codes", r.code)
		}
	}
	for code := range rows {
		t.Errorf("%s is documented and does not exist", code)
	}
	if len(ownCodes) != 6 {
		t.Errorf("the gateway has %d codes, of which 6 are looked at", len(ownCodes))
	}
}
