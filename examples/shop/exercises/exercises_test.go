package exercises

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// broken is what the checker says of each exercise as it stands.
var broken = map[string]string{
	"01_key":         "2 orders were made",
	"02_put":         "one of them failed",
	"03_retry":       "the retry charged again: the bank has charged 2 times",
	"04_consumer":    "there is no invoice: it was marked as seen before it was handled",
	"05_outbox":      "the broker was down when parcel-0 was shipped, and nobody has ever heard of it",
	"06_insertfirst": "the bank was asked 2 times: nothing was written before it was asked",
	"07_ttl":         "was forgotten while it runs",
	"08_etag":        "one of the texts is lost",
	"09_intent":      "both won: the money was let go, and taken",
	"10_saga":        "What should have: pay reserve ship, undo reserve, undo pay.",
	"11_gateway":     "the client asked again with its key: the service has charged 3 times",
	"12_ledger":      "the total is 5, the sum of the entries 15, and both should be 15",
	"13_status":      "The client was told: failed. It should be told: succeeded",
	"14_replay":      "the first answer was 201, and the repeat got 200",
	"15_faults":      "that the test does not find: the key is ignored",
	"16_keys":        "she has one book, and wanted two",
	"17_batch":       "another price, and a new one, and all of the batch failed",
}

func TestEachExerciseFailsForItsReasonAndItsSolutionPasses(t *testing.T) {
	t.Parallel()
	if len(All) != 17 || len(broken) != len(All) {
		t.Errorf("%d exercises, %d reasons, want one for each of 17 patterns", len(All), len(broken))
	}
	for n, e := range All {
		t.Run(e.Folder, func(t *testing.T) {
			t.Parallel()
			if err := e.Check(t.Context(), false); err == nil || broken[e.Folder] == "" || !strings.Contains(err.Error(), broken[e.Folder]) {
				t.Errorf("as it stands: %v\nwant: %s", err, broken[e.Folder])
			}
			if err := e.Check(t.Context(), true); err != nil {
				t.Errorf("the solution: %v", err)
			}
			text, err := os.ReadFile(filepath.Join(e.Folder, "exercise.go"))
			if err != nil || !strings.Contains(string(text), fmt.Sprintf("is exercise %d: ", n+1)) || !strings.Contains(string(text), "// Change this function") && !strings.Contains(string(text), "// Change the schema and this function") {
				t.Errorf("its file does not say which exercise it is, or what to change: %v", err)
			}
		})
	}
}
