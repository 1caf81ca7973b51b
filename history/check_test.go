package history_test

import (
	"slices"
	"testing"

	"github.com/semelhq/semel/history"
)

// What Check says.
const (
	unfounded    = "a success without an effect before it"
	undone       = "a failure of what took effect"
	contradicted = "two final answers disagree"
	lost         = "an acknowledged success was lost"
	turnedAway   = "a mismatch of the request that has the key"
	twoEffects   = `two requests under one key: "r" and "s" took effect`
	twoAnswers   = `two requests under one key: "r" and "s" were answered`
	anothers     = `two requests under one key: another request's answer: "s" got that of "r"`
)

// A row is a history of the key k, and all that Check must find.
type row struct {
	name   string
	happen func(h *history.History)
	want   []string
}

// told records a call and what it learned.
func told(h *history.History, request string, o history.Outcome, value string) {
	h.Ask("k", request).Learned(o, value)
}

// toldLast is told for a last call.
func toldLast(h *history.History, request string, o history.Outcome, value string) {
	h.AskLast("k", request).Learned(o, value)
}

// paid is one effect that its client was told of.
func paid(h *history.History) {
	h.Effect("k", "r")
	told(h, "r", history.Success, "v")
}

var rows = []row{
	{"nothing but a call", func(h *history.History) { h.Ask("k", "r") }, nil},
	{"one effect, told to all", func(h *history.History) {
		first, second := h.Ask("k", "r"), h.Ask("k", "r")
		second.Learned(history.Unsure, "409 in progress")
		h.Effect("k", "r")
		first.Learned(history.Success, "v")
		toldLast(h, "r", history.Success, "v")
	}, nil},
	{"one effect, told to nobody", func(h *history.History) {
		h.Effect("k", "r")
		told(h, "r", history.Unsure, "503")
		told(h, "r", history.Unknown, "409")
	}, nil},
	{"a failure, told to all", func(h *history.History) {
		told(h, "r", history.Failure, "400")
		toldLast(h, "r", history.Failure, "400")
	}, nil},

	{"two effects", func(h *history.History) {
		h.Effect("k", "r")
		h.Effect("k", "r")
	}, []string{"2 effects"}},
	{"three effects", func(h *history.History) {
		paid(h)
		h.Effect("k", "r")
		h.Effect("k", "r")
	}, []string{"3 effects"}},

	{"a success, and no effect", func(h *history.History) { told(h, "r", history.Success, "v") }, []string{unfounded}},
	{"a success, and its effect too late", func(h *history.History) {
		told(h, "r", history.Success, "v")
		h.Effect("k", "r")
	}, []string{unfounded}},

	{"a failure of what took effect", func(h *history.History) {
		h.Effect("k", "r")
		told(h, "r", history.Failure, "v")
	}, []string{undone}},
	{"a failure, and then an effect", func(h *history.History) {
		told(h, "r", history.Failure, "v")
		h.Effect("k", "r")
	}, []string{undone}},

	{"two successes with two values", func(h *history.History) {
		paid(h)
		told(h, "r", history.Success, "w")
	}, []string{contradicted}},
	{"two failures with two values", func(h *history.History) {
		told(h, "r", history.Failure, "v")
		told(h, "r", history.Failure, "w")
	}, []string{contradicted}},
	{"a success while another call fails", func(h *history.History) {
		other := h.Ask("k", "r")
		paid(h)
		other.Learned(history.Failure, "v")
	}, []string{contradicted}},

	{"unknown after a success", func(h *history.History) {
		paid(h)
		told(h, "r", history.Unknown, "409")
	}, []string{lost}},
	{"a failure after a success", func(h *history.History) {
		paid(h)
		told(h, "r", history.Failure, "v")
	}, []string{contradicted, lost}},
	{"unsure in the end, after a success", func(h *history.History) {
		paid(h)
		toldLast(h, "r", history.Unsure, "409 in progress")
	}, []string{lost, "stuck: call 2 got nothing definite when nothing ran any more"}},
	{"no answer in the end, after a success", func(h *history.History) {
		paid(h)
		h.AskLast("k", "r")
	}, []string{lost, "stuck: call 2 got no answer when nothing ran any more"}},
	{"unsure after a success", func(h *history.History) {
		paid(h)
		told(h, "r", history.Unsure, "503")
		h.Ask("k", "r")
	}, nil},
	{"ended after a success", func(h *history.History) {
		paid(h)
		toldLast(h, "r", history.Ended, "409")
	}, nil},
	{"unknown of a call that was made before the success", func(h *history.History) {
		early := h.Ask("k", "r")
		paid(h)
		early.Learned(history.Unknown, "409")
	}, nil},
	{"unknown, and then decided", func(h *history.History) {
		h.Effect("k", "r")
		told(h, "r", history.Unknown, "409")
		toldLast(h, "r", history.Success, "v")
	}, nil},
	{"unknown to another request after a success", func(h *history.History) {
		paid(h)
		told(h, "s", history.Unknown, "409")
	}, nil},

	{"unsure in the end", func(h *history.History) {
		toldLast(h, "r", history.Unsure, "409 in progress")
	}, []string{"stuck: call 1 got nothing definite when nothing ran any more"}},
	{"no answer in the end", func(h *history.History) {
		h.AskLast("k", "r")
	}, []string{"stuck: call 1 got no answer when nothing ran any more"}},
	{"definite, and then no more", func(h *history.History) {
		toldLast(h, "r", history.Failure, "400")
		h.AskLast("k", "r")
	}, []string{"stuck: call 2 got no answer when nothing ran any more"}},
	{"definite at the second last call", func(h *history.History) {
		toldLast(h, "r", history.Unsure, "503")
		toldLast(h, "r", history.Failure, "400")
	}, nil},
	{"definite after it was unsure", func(h *history.History) {
		c := h.AskLast("k", "r")
		c.Learned(history.Unsure, "102")
		c.Learned(history.Failure, "400")
	}, nil},
	{"unknown in the end", func(h *history.History) { toldLast(h, "r", history.Unknown, "409") }, nil},
	{"ended in the end", func(h *history.History) { toldLast(h, "r", history.Ended, "409") }, nil},
	{"one request is definite in the end, the other is not", func(h *history.History) {
		toldLast(h, "r", history.Unsure, "409 in progress")
		toldLast(h, "s", history.Mismatch, "422")
	}, []string{"stuck: call 1 got nothing definite when nothing ran any more"}},
	{"unsure of a call that is not the last", func(h *history.History) {
		toldLast(h, "r", history.Failure, "400")
		told(h, "r", history.Unsure, "503")
	}, nil},

	{"a replay to another request", func(h *history.History) {
		paid(h)
		told(h, "s", history.Success, "v")
	}, []string{anothers}},
	{"another request's failure", func(h *history.History) {
		told(h, "s", history.Failure, "v")
		h.Effect("k", "r")
	}, []string{anothers}},
	{"two requests that fail", func(h *history.History) {
		told(h, "r", history.Failure, "v")
		told(h, "s", history.Failure, "v")
	}, []string{twoAnswers}},
	{"two requests that take effect", func(h *history.History) {
		h.Effect("k", "r")
		h.Effect("k", "s")
	}, []string{"2 effects", twoEffects}},
	{"another request is told so", func(h *history.History) {
		told(h, "s", history.Mismatch, "422")
		paid(h)
		toldLast(h, "s", history.Mismatch, "422")
	}, nil},
	{"another request is told so of a failure", func(h *history.History) {
		told(h, "r", history.Failure, "400")
		told(h, "s", history.Mismatch, "422")
	}, nil},
	{"a mismatch of a key whose request has never run", func(h *history.History) {
		told(h, "r", history.Mismatch, "422")
	}, nil},

	{"a mismatch of what took effect", func(h *history.History) {
		h.Effect("k", "r")
		told(h, "r", history.Mismatch, "422")
	}, []string{turnedAway}},
	{"a mismatch of what takes effect then", func(h *history.History) {
		told(h, "r", history.Mismatch, "422")
		h.Effect("k", "r")
	}, []string{turnedAway}},
	{"a mismatch of what took effect, after one of another request", func(h *history.History) {
		told(h, "s", history.Mismatch, "422")
		paid(h)
		told(h, "r", history.Mismatch, "422")
	}, []string{turnedAway}},
	{"a mismatch while another request has the key, which is released", func(h *history.History) {
		other := h.Ask("k", "s")
		told(h, "r", history.Mismatch, "422")
		late := h.Ask("k", "r")
		other.Learned(history.Unsure, "503")
		paid(h)
		late.Learned(history.Mismatch, "422")
		toldLast(h, "s", history.Mismatch, "422")
	}, nil},
	{"a mismatch of what was answered", func(h *history.History) {
		told(h, "r", history.Failure, "400")
		told(h, "r", history.Mismatch, "422")
	}, []string{turnedAway}},
}

func TestR90_CheckFindsWhatIsBrokenAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			var h history.History
			r.happen(&h)
			if got := found(t, &h); !slices.Equal(got, r.want) {
				t.Errorf("found %q, want %q", got, r.want)
			}
		})
	}
}

// found returns what Check says of the key k, which must be the only one.
func found(t *testing.T, h *history.History) (all []string) {
	t.Helper()
	for _, v := range h.Check() {
		if v.Key != "k" {
			t.Errorf("a violation of key %q: %s", v.Key, v.What)
		}
		all = append(all, v.What)
	}
	return all
}

func TestR90_KeysAreJudgedApart(t *testing.T) {
	t.Parallel()
	var h history.History
	if got := h.Check(); got != nil {
		t.Errorf("an empty history: %v", got)
	}
	keys := []string{"g", "c", "a", "h", "b", "f", "d", "e"}
	for _, key := range keys { // what would be wrong under one key
		h.Effect(key, key)
		h.Ask(key, key).Learned(history.Success, "of "+key)
	}
	if got := h.Check(); got != nil {
		t.Errorf("a good history: %v", got)
	}
	for _, key := range keys {
		h.Effect(key, key)
	}
	var got string
	for _, v := range h.Check() {
		got += v.Key
	}
	if got != "abcdefgh" {
		t.Errorf("violations of the keys %q, want one of each, in order", got)
	}
}

func TestR90_AtLeastOnceAllowsFurtherEffectsAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, r := range []row{
		{"two effects", func(h *history.History) {
			h.Effect("k", "r")
			paid(h)
		}, nil},
		{"no effect", func(h *history.History) { told(h, "r", history.Success, "v") }, []string{unfounded}},
		{"two answers", func(h *history.History) {
			paid(h)
			h.Effect("k", "r")
			told(h, "r", history.Success, "w")
		}, []string{contradicted}},
		{"unknown for a while", func(h *history.History) {
			told(h, "r", history.Unknown, "409")
			h.Effect("k", "r")
			toldLast(h, "r", history.Success, "v")
		}, nil},
		{"unknown in the end", func(h *history.History) {
			toldLast(h, "r", history.Unknown, "409")
		}, []string{"stuck: call 1 got unknown, of what may be run again"}},
		{"ended in the end", func(h *history.History) { toldLast(h, "r", history.Ended, "409") }, nil},
	} {
		h := history.History{Promise: history.AtLeastOnce}
		r.happen(&h)
		if got := found(t, &h); !slices.Equal(got, r.want) {
			t.Errorf("%s: found %q, want %q", r.name, got, r.want)
		}
	}
}
