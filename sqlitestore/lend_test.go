package sqlitestore

import "testing"

func TestTheFirstWordIsBehindCommentsAndSpace(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"":                               "",
		"COMMIT":                         "COMMIT",
		" \t\r\n;; commit;":              "commit",
		"-- a\n/* b */--c\n end":         "end",
		"-- only a comment":              "",
		"/* never closed":                "",
		"insert into t values ('begin')": "insert",
		"begin_work":                     "begin_work",
		"(select 1)":                     "",
		"é":                              "",
	} {
		if got := firstWord(query); got != want {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
}
