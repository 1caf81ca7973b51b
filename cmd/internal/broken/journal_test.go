package broken

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestAJournalIsFoundAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), fileName)
	j, _, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			rec := record{State: done, Fence: 1, Answer: &answer{Status: 201, Body: []byte{0, 0xff, byte(n)}}}
			if err := j.append(fmt.Sprint(n), rec); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if j.synced != j.written || j.written != 50 {
		t.Errorf("%d lines, %d synced", j.written, j.synced)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	again, records, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	if len(records) != 50 || string(records["7"].Answer.Body) != "\x00\xff\x07" {
		t.Errorf("%d records, %+v", len(records), records["7"])
	}
}

func TestTheHighestFenceOfAJournalCounts(t *testing.T) {
	t.Parallel()
	records := journalOf(t, `{"id":"a","state":"running","fence":1}
{"id":"a","state":"running","fence":2}
{"id":"a","state":"done","fence":1}
{"id":"b","state":"running","fence":1}
{"id":"b","state":"done","fence":1}
`)
	if records["a"].State != running || records["a"].Fence != 2 || records["b"].State != done {
		t.Errorf("a %+v, b %+v", records["a"], records["b"])
	}
}

func TestALineWithoutAnEndIsCutOff(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), fileName)
	whole := `{"id":"a","state":"done","fence":1}` + "\n"
	write(t, path, whole+`{"id":"b","state":"do`)
	j, records, err := openJournal(path)
	if err != nil || len(records) != 1 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	defer j.close()
	if err := j.append("c", record{State: free}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if rest, ok := strings.CutPrefix(string(text), whole); err != nil || !ok || !strings.HasPrefix(rest, `{"id":"c"`) {
		t.Errorf("the file is %q, %v", text, err)
	}
}

func TestAJournalThatCantBeReadIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, fileName), "what is this?\n")
	if _, err := New(None, dir, nil); err == nil || !strings.Contains(err.Error(), "open journal") {
		t.Errorf("broken: %v", err)
	}
	if _, err := New(None, filepath.Join(dir, "none"), nil); err == nil || !strings.Contains(err.Error(), "open journal") {
		t.Errorf("no folder: %v", err)
	}
}

func journalOf(t *testing.T, text string) map[string]*record {
	t.Helper()
	path := filepath.Join(t.TempDir(), fileName)
	write(t, path, text)
	j, records, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	return records
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
