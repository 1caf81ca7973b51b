package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/semelhq/semel"
)

// What a log line, a header or a colleague has leads to the operation, without its key.
func TestField14_AnOperationIsFoundByWhatLogsHave(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Policy{})
	s.runs = 1 // none is lost
	s.payFor("acme", "k", "0af7651916cd43dd8448eb211c80319c")
	s.payFor("acme", "of-two-1", "batch-7")
	s.payFor("umbrella", "of-two-2", "batch-7")
	id := s.id("k")
	second := semel.Identify(s.secret, semel.KindHTTP, "umbrella", "of-two-2").String()
	for name, text := range map[string]string{
		"its id":                 id,
		"the most of its id":     id[:63],
		"the beginning of it":    id[:32],
		"its correlation id":     "0af7651916cd43dd8448eb211c80319c",
		"an id of another scope": second[:8],
	} {
		want := id
		if strings.HasPrefix(second, text) {
			want = second
		}
		contains(t, s.must("find", "--", text), "id           "+want, "done: repeats get its answer")
		var one operationView
		if err := json.Unmarshal([]byte(s.must("find", "--json", "--", text)), &one); err != nil || one.ID != want {
			t.Errorf("by %s: %v, %+v", name, err, one)
		}
	}
	contains(t, s.must("find", "k", "--scope", "acme"), id) // the key

	// Several are listed, the newest first. All operations of a principal begin alike.
	for text, want := range map[string][]string{
		"batch-7": {second, s.id("of-two-1")},
		id[:8]:    {s.id("of-two-1"), id},
	} {
		var several []operationView
		if err := json.Unmarshal([]byte(s.must("find", "--json", "--", text)), &several); err != nil {
			t.Fatal(err)
		}
		if len(several) != 2 || several[0].ID != want[0] || several[1].ID != want[1] {
			t.Errorf("%s: found %v, want %v", text, several, want)
		}
		if table := s.must("find", "--", text); !strings.HasPrefix(table, "ID ") || strings.Count(table, "\n") != 3 {
			t.Errorf("%s: not a table of two:\n%s", text, table)
		}
	}
}

// An id comes before the beginning of one, and that before a correlation id.
func TestField14_WhatIsFoundFirstCounts(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Policy{})
	s.runs = 1
	s.pay("acme", "k")
	for i, text := range []string{s.id("k"), s.id("k")[:30]} { // another request chose these
		s.payFor("umbrella", fmt.Sprint("chosen-", i), text)
		contains(t, s.must("find", "--", text), "id           "+s.id("k"))
	}
	unseen := s.id("unseen")
	s.payFor("umbrella", "chosen", unseen)
	contains(t, s.must("find", "--", unseen), "correlation  "+unseen)
}

func TestField14_WhatIsNotFoundIsSaidWithAHint(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Policy{})
	s.runs = 1
	s.pay("acme", "k")
	for text, says := range map[string]string{
		"order-1":       "--scope PRINCIPAL or --single",
		"k":             "--scope PRINCIPAL or --single",
		s.id("k")[:7]:   "at least 8 characters",
		s.id("k") + "A": "correlation id of a repeat",
		s.id("unseen"):  "correlation id of a repeat",
		"no/id\x1b[31m": "correlation id of a repeat",
	} {
		status, stdout, stderr := s.keys("find", "--", text)
		if status != 1 || stdout != "" {
			t.Errorf("%q: exit status %d, printed %q", text, status, stdout)
		}
		contains(t, stderr, "no such operation", says)
		if strings.Contains(stderr, "\x1b") {
			t.Errorf("%q reaches the terminal as it is: %q", text, stderr)
		}
	}
	status, _, stderr := s.keys("find", "--scope", "acme", "--", s.id("k")[:20]) // an id is not taken for a key
	if status != 1 {
		t.Errorf("exit status %d", status)
	}
	contains(t, stderr, "leave out --scope and --single")

	s.must("forget", "--reason", "test data", "--yes", "--", s.id("k"))
	status, stdout, _ := s.keys("find", "--", s.id("k")) // what was decided about it is told
	if status != 1 {
		t.Errorf("a forgotten one is found: exit status %d", status)
	}
	contains(t, stdout, "absent: the key is new", "test data")
}
