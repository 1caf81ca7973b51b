package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The kernel may cut short the write of a process that is killed. Others go on with a line of their own.
func TestLedgerSkipsALineThatWasCutShort(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	want := []string{"first", "second", "third"}
	for i, request := range want {
		book, err := openLedger(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := book.append(newEffect("key", request, "front", time.Now())); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if _, err := book.file.WriteString("\n" + `{"id":"YCXSWYUPC4DNWOF7","key":"rerun-29-`); err != nil {
				t.Fatal(err)
			}
		}
		if err := book.file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	effects, err := readLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range effects {
		got = append(got, e.Request)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("requests %q, want %q", got, want)
	}
	if err := os.WriteFile(path, []byte("\n{\"id\":1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if effects, err := readLedger(path); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("effects %v, error %v, want one that names line 2", effects, err)
	}
}
