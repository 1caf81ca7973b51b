package main

import (
	"slices"
	"testing"
)

func TestR91_IDsInName(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		want []id
		why  string
	}{
		{"R26_Once", []id{{rule, 26, ""}}, "the usual form"},
		{"R6_R7_KeyMissing", []id{{rule, 6, ""}, {rule, 7, ""}}, "two rules"},
		{"R41a_Corrupt", []id{{rule, 41, "a"}}, "a rule put in later"},
		{"Case07_LostReply", []id{{failure, 7, ""}}, "leading zero"},
		{"Case12_R28_Raced", []id{{failure, 12, ""}, {rule, 28, ""}}, "both kinds"},
		{"R26", []id{{rule, 26, ""}}, "nothing after the rule"},
		{"R26Once", []id{{rule, 26, ""}}, "no underscore"},
		{"_R26_Once", []id{{rule, 26, ""}}, "not the first token"},
		{"R26once", nil, "the letter belongs to a word, not to the rule"},
		{"R0_Nothing", nil, "rules count from one"},
		{"RetryAfter", nil, "a word that starts with R"},
		{"CaseInsensitive", nil, "a word that starts with Case"},
		{"", nil, "a test without a name"},
	} {
		if got := idsInName(tc.name); !slices.Equal(got, tc.want) {
			t.Errorf("idsInName(%q) = %v, want %v: %s", tc.name, got, tc.want, tc.why)
		}
	}
}

func TestR91_IDsInProse(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text string
		want []id
		why  string
	}{
		{"It proves R-26 and R-41a.", []id{{rule, 26, ""}, {rule, 41, "a"}}, "in a sentence"},
		{"R-26: case 7, Case 8.", []id{{rule, 26, ""}, {failure, 7, ""}, {failure, 8, ""}}, "cases in either spelling"},
		{"as in case\n12", []id{{failure, 12, ""}}, "broken over two lines"},
		{"R-26abc, HR-4, R-, R-0, in any case", nil, "look-alikes"},
	} {
		if got := idsInProse(tc.text); !slices.Equal(got, tc.want) {
			t.Errorf("idsInProse(%q) = %v, want %v: %s", tc.text, got, tc.want, tc.why)
		}
	}
}

func TestR91_RulesComeBeforeCasesByTheirNumbers(t *testing.T) {
	t.Parallel()
	want := []string{"R-2", "R-10", "R-41", "R-41a", "case 1", "case 11"}
	ids := []id{{failure, 11, ""}, {rule, 41, "a"}, {rule, 10, ""}, {failure, 1, ""}, {rule, 41, ""}, {rule, 2, ""}}
	slices.SortFunc(ids, compareIDs)
	var got []string
	for _, i := range ids {
		got = append(got, i.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("sorted: %v, want %v", got, want)
	}
}
