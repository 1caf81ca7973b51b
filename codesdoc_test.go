package semel_test

import (
	_ "embed"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/problemkind"
	"github.com/semelhq/semel/refusal"
)

//go:embed docs/codes.md
var codesPage string

func TestField23_EveryCodeOfAGuardIsDocumentedAsItIsOnTheWire(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(codesPage, "\n## Codes of a guard\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[refusal.Code]bool{}
	kinds := problemkind.Of
	for row := range strings.Lines(section) {
		cells := strings.Split(row, " | ")
		code, ok := strings.CutPrefix(cells[0], "| `")
		if !ok {
			continue
		}
		if len(cells) != 6 {
			t.Errorf("%d columns, want 6: %s", len(cells), row)
			continue
		}
		k, known := kinds[refusal.Code(strings.TrimSuffix(code, "`"))]
		documented[refusal.Code(strings.TrimSuffix(code, "`"))] = true
		retryable := map[bool]string{true: "yes", false: "no"}[k.Retryable]
		said, _, _ := strings.Cut(cells[3], ",")
		if status, _, _ := strings.Cut(cells[2], ","); !known || cells[1] != "`"+k.Slug+"`" || status != strconv.Itoa(k.Status) || said != retryable {
			t.Errorf("%s is %+v, documented as %s %s %s", cells[0], k, cells[1], cells[2], cells[3])
		}
	}
	for code := range kinds {
		if !documented[code] {
			t.Errorf("%s is not documented", code)
		}
	}
}
