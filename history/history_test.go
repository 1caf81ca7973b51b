package history_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/semelhq/semel/history"
)

func TestAHistoryIsRecordedConcurrently(t *testing.T) {
	t.Parallel()
	var h history.History
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			key := fmt.Sprint(i % 10)
			c := h.Ask(key, "r")
			if i < 10 {
				h.Effect(key, "r")
				c.Learned(history.Success, "v")
			}
			h.Check()
			h.Summary()
			h.Effects(key)
		})
	}
	wg.Wait()
	if got := h.Check(); got != nil {
		t.Errorf("found %v", got)
	}
	want := history.Summary{Keys: 10, Calls: 50, Effects: 10, Successes: 10}
	if got := h.Summary(); got != want {
		t.Errorf("the summary is %+v, want %+v", got, want)
	}
}

func TestASummaryCountsWhatWasRecorded(t *testing.T) {
	t.Parallel()
	var h history.History
	if got := h.Summary(); got != (history.Summary{}) {
		t.Errorf("of an empty history it is %+v", got)
	}
	h.Ask("asked", "r")
	h.AskLast("asked", "r")
	h.Effect("done", "r") // nobody has asked
	for range 3 {
		h.Effect("thrice", "r")
	}
	for range 2 {
		h.Effect("twice", "r")
	}
	answers := []history.Outcome{history.Success, history.Failure, history.Mismatch, history.Unknown, history.Ended, history.Unsure}
	for i, o := range answers {
		for range i + 1 {
			h.Ask("told", "r").Learned(o, "v")
		}
	}
	want := history.Summary{
		Keys: 5, Calls: 23, Effects: 6, Duplicates: 3,
		Successes: 1, Failures: 2, Mismatches: 3, Unknown: 4, Ended: 5, Unsure: 6,
	}
	if got := h.Summary(); got != want {
		t.Errorf("the summary is %+v, want %+v", got, want)
	}
	for key, want := range map[string]int{"asked": 0, "done": 1, "thrice": 3, "never heard of": 0} {
		if got := h.Effects(key); got != want {
			t.Errorf("%d effects of %q, want %d", got, key, want)
		}
	}
}

func Example() {
	var h history.History
	call := h.Ask("order-42", "pay 5")
	h.Effect("order-42", "pay 5")
	call.Learned(history.Unsure, "connection lost")
	retry := h.Ask("order-42", "pay 5")
	h.Effect("order-42", "pay 5") // a server without idempotency
	retry.Learned(history.Success, "201")
	for _, v := range h.Check() {
		fmt.Println(v)
	}
	// Output:
	// key "order-42": 2 effects
	// 	call 1 asks for "pay 5"
	// 	effect of "pay 5"
	// 	call 1: unsure, "connection lost"
	// 	call 2 asks for "pay 5"
	// 	effect of "pay 5"
	// 	call 2: success, "201"
}

// When everything was healed, each key is asked for once more.
func ExampleHistory_AskLast() {
	var h history.History
	for range 20 {
		h.Ask("order-42", "pay 5").Learned(history.Unsure, "409 in progress")
	}
	h.AskLast("order-42", "pay 5").Learned(history.Unsure, "409 in progress")
	for _, v := range h.Check() {
		fmt.Println(v)
	}
	// Output:
	// key "order-42": stuck: call 21 got nothing definite when nothing ran any more
	// 	call 1 … call 20 ask for "pay 5": unsure, "409 in progress" (20 calls)
	// 	call 21 asks a last time for "pay 5"
	// 	call 21: unsure, "409 in progress"
}
