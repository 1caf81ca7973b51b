package chaos

import (
	"strings"
	"testing"
	"time"
)

// Each thing that can be wrong with an operation is found, and what a kill explains is not wrong.
func TestR90_WhatAKillDoesNotExplainIsWrong(t *testing.T) {
	t.Parallel()
	const request, other = `{"order":"1","amount":7,"kind":"plain"}`, `{"order":"1","amount":-7,"kind":"plain"}`
	start := time.UnixMicro(1_000_000_000)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	run := func(id string, fence uint64, ms int) effect {
		return effect{
			ID: id, Key: "k", Request: request, Front: "front", Operation: "op", Attempt: int(fence), Fence: fence,
			Began: at(ms).UnixMicro(), At: at(ms + 1).UnixMicro(),
		}
	}
	call := func(from, to int, r reading, value string) attempt {
		return attempt{request: request, sent: at(from), done: at(to), reading: r, value: value}
	}
	first := run("a", 1, 1)
	yes := first.answer(plain)
	kill := func(ms int) []trouble { return []trouble{{what: "killed", front: "front", from: at(ms), to: at(ms)}} }
	const far = 10_000 // milliseconds: beyond what a kill explains

	for _, tc := range []struct {
		name     string
		mode     Mode
		kind     kind
		attempts []attempt
		effects  []effect
		troubles []trouble
		want     string // "" if nothing is wrong
	}{
		{"once", Hold, plain, []attempt{call(0, 5, success, yes)}, []effect{first}, nil, ""},
		{"replayed", Hold, plain, []attempt{call(0, 5, broken, ""), call(6, 9, success, yes)}, []effect{first}, nil, ""},
		{"refused", Hold, refused, []attempt{call(0, 5, failure, refusalBody)}, nil, nil, ""},
		{
			"twice", Hold, plain,
			[]attempt{call(0, 5, broken, ""), call(300, 309, success, run("b", 2, 301).answer(plain))},
			[]effect{first, run("b", 2, 301)},
			kill(3), "2 effects",
		},
		{
			"run again after a kill", Rerun, plain,
			[]attempt{call(0, 5, broken, ""), call(300, 309, success, run("b", 2, 301).answer(plain))},
			[]effect{first, run("b", 2, 301)},
			kill(3), "",
		},
		{
			"run again without one", Rerun, plain,
			[]attempt{call(0, 5, broken, ""), call(300, 309, success, run("b", 2, 301).answer(plain))},
			[]effect{first, run("b", 2, 301)},
			kill(far), "run again without a reason",
		},
		{
			"run again after another front's kill", Rerun, plain,
			[]attempt{call(0, 5, broken, ""), call(300, 309, success, run("b", 2, 301).answer(plain))},
			[]effect{first, run("b", 2, 301)},
			[]trouble{{what: "killed", front: "another", from: at(3), to: at(3)}},
			"run again without a reason",
		},
		{
			"run again while everybody was in trouble", Rerun, plain,
			[]attempt{call(0, 5, broken, ""), call(300, 309, success, run("b", 2, 301).answer(plain))},
			[]effect{first, run("b", 2, 301)},
			[]trouble{{what: "server paused", from: at(3), to: at(200)}},
			"",
		},
		{
			"run again while a cache was in trouble", Rerun, plain,
			[]attempt{call(0, 5, broken, ""), call(300, 309, success, run("b", 2, 301).answer(plain))},
			[]effect{first, run("b", 2, 301)},
			[]trouble{{what: "cache paused", from: at(3), to: at(200), harmless: true}},
			"run again without a reason",
		},
		{
			"run again after an answer", Rerun, plain,
			[]attempt{call(0, 5, success, yes)},
			[]effect{first, run("b", 2, 301)},
			kill(3), "not that of the last effect",
		},
		{
			"sent twice in one run", Rerun, plain,
			[]attempt{call(0, 5, success, yes)},
			[]effect{first, run("b", 1, 2)},
			kill(3), "two effects of one run",
		},
		{"nothing happened", Hold, plain, []attempt{call(0, 5, success, yes)}, nil, nil, "a success without an effect"},
		{
			"somebody else's answer", Hold, plain,
			[]attempt{call(0, 5, success, "other")},
			[]effect{first},
			nil, "not that of the last effect",
		},
		{
			"the effect of another request", Hold, plain, []attempt{
				call(0, 5, success, yes), {request: other, sent: at(6), done: at(9), reading: success, value: yes},
			}, []effect{first}, nil, "two requests under one key",
		},
		{
			"another request is told so", Hold, plain, []attempt{
				{request: other, sent: at(6), done: at(9), reading: mismatch}, call(10, 15, success, yes),
			}, []effect{first}, nil, "",
		},
		{"stuck", Hold, plain, []attempt{call(0, 5, later, "409")}, nil, nil, "never came to an end"},
		{"odd", Hold, plain, []attempt{call(0, 5, odd, "418"), call(6, 9, success, yes)}, []effect{first}, nil, "nobody should get"},
		{
			"unknown by a kill", Hold, plain,
			[]attempt{call(0, 5, broken, ""), call(300, 301, unknown, "409")},
			[]effect{first},
			kill(4), "",
		},
		{
			"unknown without one", Hold, plain,
			[]attempt{call(0, 5, broken, ""), call(300, 301, unknown, "409")},
			[]effect{first},
			kill(far), "unknown without a reason",
		},
		{
			"unknown, for a kill that none of its calls met", Hold, plain,
			[]attempt{call(1000, 1005, broken, ""), call(9000, 9001, unknown, "409")},
			nil, kill(3000), "unknown without a reason",
		},
		{
			"unknown, its release was cut off", Hold, plain,
			[]attempt{call(1000, 1005, later, "503"), call(9000, 9001, unknown, "409")},
			nil, kill(3000), "",
		},
		{
			"unknown where that can't be", Tx, plain,
			[]attempt{call(0, 5, broken, ""), call(300, 301, unknown, "409")},
			nil, kill(4), "unknown, although",
		},
		{
			"a stream cut off by a kill", Rerun, stream,
			[]attempt{call(0, 5, broken, ""), call(300, 301, unreplayable, "409")},
			[]effect{first},
			kill(4), "",
		},
		{
			"a stream cut off without one", Rerun, stream,
			[]attempt{call(0, 5, broken, ""), call(300, 301, unreplayable, "409")},
			[]effect{first},
			kill(far), "a stream was lost",
		},
		{
			"an answer that is gone", Rerun, plain,
			[]attempt{call(0, 5, broken, ""), call(300, 301, unreplayable, "409")},
			[]effect{first},
			kill(4), "was not stored",
		},
		{
			"an answer that a full disk did not take", Hold, plain,
			[]attempt{call(0, 5, success, yes), call(far, far+1, unreplayable, "409")},
			[]effect{first},
			[]trouble{{what: "disk full", from: at(3), to: at(4), full: true}},
			"",
		},
		{
			"an answer that was gone before the disk was full", Hold, plain,
			[]attempt{call(0, 5, success, yes), call(300, 301, unreplayable, "409")},
			[]effect{first},
			[]trouble{{what: "disk full", from: at(far), to: at(far), full: true}},
			"was not stored",
		},
		{"unasked", Hold, plain, []attempt{call(0, 5, success, yes)}, []effect{first, {ID: "x", Key: "y"}}, nil, "nobody has asked for"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := &operation{key: "k", payment: payment{Kind: tc.kind}, request: request, attempts: tc.attempts}
			j := judge{mode: tc.mode, began: start, troubles: tc.troubles}
			found := j.all([]*operation{o}, tc.effects)
			if tc.want == "" {
				if len(found) > 0 {
					t.Errorf("found %v", found)
				}
				return
			}
			if len(found) == 0 {
				t.Fatal("nothing was found")
			}
			for _, v := range found {
				if strings.Contains(v.What, tc.want) && len(v.Case) > 0 {
					return
				}
			}
			t.Errorf("found %v, want %q", found, tc.want)
		})
	}
}

// What nobody did to a run, but a machine without time for it, explains that its lease was lost: it is run again under
// Rerun, or cut off once its answer has begun, and reads as unknown under Hold. It explains nothing else.
func TestR90_AStallExplainsALostLeaseAndNothingElse(t *testing.T) {
	t.Parallel()
	start := time.UnixMicro(1_000_000_000)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	run := func(fence uint64, ms int) effect {
		return effect{ID: "e", Key: "k", Request: "r", Operation: "op", Fence: fence, Began: at(ms).UnixMicro(), At: at(ms + 1).UnixMicro()}
	}
	for _, tc := range []struct {
		mode    Mode
		kind    kind
		last    reading
		effects []effect
		want    string
	}{
		{Rerun, plain, success, []effect{run(1, 1), run(2, 301)}, ""},
		{Hold, plain, success, []effect{run(1, 1), run(2, 301)}, "2 effects"},
		{Hold, plain, unknown, []effect{run(1, 1)}, ""},
		{Tx, plain, unknown, []effect{run(1, 1)}, "unknown, although it may be run again"},
		{Rerun, stream, unreplayable, []effect{run(1, 1)}, ""},
		{Hold, plain, unreplayable, []effect{run(1, 1)}, "an answer that was not stored"},
	} {
		o := &operation{key: "k", payment: payment{Kind: tc.kind}, request: "r", attempts: []attempt{
			{request: "r", sent: at(0), done: at(400), reading: tc.last, value: run(1, 1).answer(tc.kind)},
		}}
		j := judge{mode: tc.mode, began: start, stalls: []trouble{{what: "stalled", from: at(100), to: at(200)}}}
		found := j.all([]*operation{o}, tc.effects)
		switch {
		case tc.want == "" && len(found) > 0:
			t.Errorf("%s: found %v", tc.mode, found)
		case tc.want != "" && (len(found) == 0 || found[0].What != tc.want):
			t.Errorf("%s: found %v, want %q", tc.mode, found, tc.want)
		}
	}
}
