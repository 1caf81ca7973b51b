package history_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/history"
)

func TestAViolationIsToldWithItsKeysEventsInOrder(t *testing.T) {
	t.Parallel()
	var h history.History
	a := h.Ask("k", "pay 5")
	h.Effect("k", "pay 5")
	h.Ask("elsewhere", "x")
	a.Learned(history.Unsure, "lost")
	h.Effect("k", "pay 5")
	h.Ask("k", "pay 5").Learned(history.Success, "201")
	h.Ask("k", "pay 6").Learned(history.Mismatch, "")
	h.Ask("k", "pay 5").Learned(history.Ended, "409")
	h.Ask("k", "pay 6").Learned(history.Unknown, "409")
	h.AskLast("k", "pay 6").Learned(history.Failure, "400")
	got := h.Check()
	if len(got) == 0 {
		t.Fatal("nothing was found")
	}
	want := strings.Join([]string{
		`key "k": 2 effects`, `call 1 asks for "pay 5"`, `effect of "pay 5"`, `call 1: unsure, "lost"`, `effect of "pay 5"`,
		`call 3 asks for "pay 5"`, `call 3: success, "201"`, `call 4 asks for "pay 6"`, `call 4: mismatch`,
		`call 5 asks for "pay 5"`, `call 5: ended, "409"`, `call 6 asks for "pay 6"`, `call 6: unknown, "409"`,
		`call 7 asks a last time for "pay 6"`, `call 7: failure, "400"`,
	}, "\n\t")
	if got[0].String() != want {
		t.Errorf("told as\n%s\nwant\n%s", got[0], want)
	}
}

// A key that is asked for a thousand times has its story in a few lines, and each in its place.
func TestCallsInARowThatWentAlikeAreOneLine(t *testing.T) {
	t.Parallel()
	unsure := func(h *history.History, n int, value string) {
		for range n {
			told(h, "pay 5", history.Unsure, value)
		}
	}
	for _, row := range []struct {
		name   string
		happen func(h *history.History)
		want   []string
	}{
		{"polling", func(h *history.History) {
			h.Ask("k", "pay 5")
			h.Effect("k", "pay 5")
			unsure(h, 15, "in progress")
			unsure(h, 3, "pending")
		}, []string{
			`call 1 asks for "pay 5"`, `effect of "pay 5"`,
			`call 2 … call 16 ask for "pay 5": unsure, "in progress" (15 calls)`,
			`call 17 … call 19 ask for "pay 5": unsure, "pending" (3 calls)`,
		}},
		{"two are too few", func(h *history.History) { unsure(h, 2, "in progress") }, []string{
			`call 1 asks for "pay 5"`, `call 1: unsure, "in progress"`, `call 2 asks for "pay 5"`, `call 2: unsure, "in progress"`,
		}},
		{"an effect in between", func(h *history.History) {
			unsure(h, 3, "in progress")
			h.Effect("k", "pay 5")
			unsure(h, 4, "in progress")
		}, []string{
			`call 1 … call 3 ask for "pay 5": unsure, "in progress" (3 calls)`, `effect of "pay 5"`,
			`call 4 … call 7 ask for "pay 5": unsure, "in progress" (4 calls)`,
		}},
		{"two at once", func(h *history.History) {
			a := h.Ask("k", "pay 5")
			for range 10 {
				b := h.Ask("k", "pay 5")
				a.Learned(history.Unsure, "in progress")
				a = b
			}
			a.Learned(history.Unsure, "in progress")
		}, []string{`call 1 … call 11 ask for "pay 5": unsure, "in progress" (11 calls)`}},
		{"one that begins before, one that ends behind", func(h *history.History) {
			before := h.Ask("k", "pay 5")
			h.Effect("k", "pay 5")
			unsure(h, 3, "in progress")
			before.Learned(history.Unsure, "in progress")
			unsure(h, 3, "in progress")
			behind := h.Ask("k", "pay 5")
			unsure(h, 3, "in progress")
			h.Effect("k", "pay 5")
			behind.Learned(history.Unsure, "in progress")
		}, []string{
			`call 1 asks for "pay 5"`, `effect of "pay 5"`,
			`call 2 … call 4 ask for "pay 5": unsure, "in progress" (3 calls)`,
			`call 1: unsure, "in progress"`,
			`call 5 … call 7 ask for "pay 5": unsure, "in progress" (3 calls)`,
			`call 8 asks for "pay 5"`,
			`call 9 … call 11 ask for "pay 5": unsure, "in progress" (3 calls)`,
			`effect of "pay 5"`, `call 8: unsure, "in progress"`,
		}},
		{"other requests, other kinds of call", func(h *history.History) {
			unsure(h, 2, "503")
			told(h, "pay 6", history.Unsure, "503")
			unsure(h, 1, "503")
			toldLast(h, "pay 5", history.Unsure, "503")
		}, []string{
			`call 1 asks for "pay 5"`, `call 1: unsure, "503"`, `call 2 asks for "pay 5"`, `call 2: unsure, "503"`,
			`call 3 asks for "pay 6"`, `call 3: unsure, "503"`, `call 4 asks for "pay 5"`, `call 4: unsure, "503"`,
			`call 5 asks a last time for "pay 5"`, `call 5: unsure, "503"`,
		}},
		{"no answers", func(h *history.History) {
			for range 5 {
				h.Ask("k", "pay 5")
			}
			for range 4 {
				h.AskLast("k", "pay 5")
			}
		}, []string{
			`call 1 … call 5 ask for "pay 5": no answer (5 calls)`, `call 6 … call 9 ask a last time for "pay 5": no answer (4 calls)`,
		}},
		{"replays", func(h *history.History) {
			for range 100 {
				toldLast(h, "pay 5", history.Success, "201")
			}
		}, []string{`call 1 … call 100 ask a last time for "pay 5": success, "201" (100 calls)`}},
		{"two answers to one call", func(h *history.History) {
			for range 3 {
				c := h.Ask("k", "pay 5")
				c.Learned(history.Unsure, "102")
				c.Learned(history.Unsure, "503")
			}
		}, []string{
			`call 1 asks for "pay 5"`, `call 1: unsure, "102"`, `call 1: unsure, "503"`,
			`call 2 asks for "pay 5"`, `call 2: unsure, "102"`, `call 2: unsure, "503"`,
			`call 3 asks for "pay 5"`, `call 3: unsure, "102"`, `call 3: unsure, "503"`,
		}},
	} {
		var h history.History
		row.happen(&h)
		h.Effect("k", "broken")
		h.Effect("k", "on purpose")
		got := h.Check()
		if len(got) == 0 {
			t.Errorf("%s: nothing was found", row.name)
			continue
		}
		if want := append(row.want, `effect of "broken"`, `effect of "on purpose"`); !slices.Equal(got[0].Case, want) {
			t.Errorf("%s: told as\n\t%s\nwant\n\t%s", row.name, strings.Join(got[0].Case, "\n\t"), strings.Join(want, "\n\t"))
		}
	}
}

func TestATimedHistoryTellsWhen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := history.History{Timed: true}
		h.Ask("elsewhere", "x")
		time.Sleep(1204 * time.Millisecond)
		c := h.Ask("k", "pay 5")
		for range 3 {
			time.Sleep(time.Second)
			told(&h, "pay 5", history.Unsure, "in progress")
		}
		time.Sleep(time.Minute)
		h.Effect("k", "pay 5")
		h.Effect("k", "pay 5")
		c.Learned(history.Unsure, "lost")
		got := h.Check()
		if len(got) != 1 {
			t.Fatalf("found %v", got)
		}
		want := []string{
			`+1.204 s  call 2 asks for "pay 5"`,
			`+2.204 s … +4.204 s  call 3 … call 5 ask for "pay 5": unsure, "in progress" (3 calls)`,
			`+64.204 s  effect of "pay 5"`, `+64.204 s  effect of "pay 5"`, `+64.204 s  call 2: unsure, "lost"`,
		}
		if !slices.Equal(got[0].Case, want) {
			t.Errorf("told as\n\t%s\nwant\n\t%s", strings.Join(got[0].Case, "\n\t"), strings.Join(want, "\n\t"))
		}
	})
}
