package verify

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// hostile is what a target may send to whoever reads a report.
const hostile = "</script><script>alert(1)</script>\"'&\x1b[2J\u202e\x00\r\n"

// sampleReport is of a target that breaks promises of all kinds, with about so many attempts in each load. It is always
// the same.
func sampleReport(attempts int) *Report {
	r := &Report{
		Target: "https://payments.example.com/v1", Profile: "draft07", Seed: 20260214,
		Began: time.Date(2026, 2, 14, 9, 30, 0, 0, time.UTC), Took: 2*time.Minute + 11*time.Second,
	}
	passed := func(name, title string, took time.Duration, rules ...string) {
		r.Checks = append(r.Checks, Result{Name: name, Title: title, Rules: rules, Status: Passed, Took: took})
	}
	failed := func(name, title string, took time.Duration, rule string, findings ...Finding) {
		r.Checks = append(r.Checks, Result{
			Name: name, Title: title, Rules: []string{rule}, Status: Failed, Took: took, Findings: findings,
		})
	}
	skipped := func(name, title, why string, rules ...string) {
		r.Checks = append(r.Checks, Result{Name: name, Title: title, Rules: rules, Status: Skipped, Why: why})
	}
	const pay = `POST /payments, key "0d9c5a1e", 82 bytes {"amount":120,"currency":"EUR","reference":"invoice 7"}`
	const crash = "the scenario does not say how to crash and restart the target (process)"

	passed("repeat", "a repeat has no effect, and gets the first answer again", 41*ms, "R-34", "R-26")
	failed("concurrent", "of many requests at once one takes effect", 212*ms, "R-26", Finding{
		Safety, "R-26", "3 effects, want 1", "one effect; the others wait for its answer, or are told that it is in progress",
		[]Exchange{
			{0, pay, `201 in 48 ms, 61 bytes {"id":"pay_8201","status":"captured","amount":120}`},
			{1 * ms, pay, `201 in 51 ms, 61 bytes {"id":"pay_8202","status":"captured","amount":120}`},
			{1 * ms, pay, `409 in 9 ms, Retry-After 1, 118 bytes {"type":"about:blank","title":"in progress"}`},
			{2 * ms, "… 14 more …", ""},
			{3 * ms, pay, `201 in 50 ms, 61 bytes {"id":"pay_8203","status":"captured","amount":120}`},
		},
	})
	passed("retry-after", "a repeat of what is in progress is told when to come again", 1032*ms, "R-27")
	failed("mismatch-body", "another request under a used key is refused", 38*ms, "R-16", Finding{
		Safety, "R-16", "another body under the key got the first answer",
		"a refusal, status 422, and the first answer to the first request",
		[]Exchange{
			{0, `POST /payments, key "b1"`, "201 in 12 ms, 48 bytes"},
			{12 * ms, `POST /payments, key "b1"`, "201 in 2 ms, 48 bytes"},
			{15 * ms, `GET /payments/8204`, "200 in 1 ms, 48 bytes"},
		},
	}, Finding{Protocol, "R-57", "the refusal is no problem document", "Content-Type application/problem+json (RFC 9457)", nil})
	passed("mismatch-query", "another query under a used key is refused", 22*ms, "R-17")
	failed("key-malformed", "a malformed key is refused, and never taken for none", 64*ms, "R-2", Finding{
		Advice, "R-2", "with the malformed key \"a b\" it got 500 in 3 ms, and then 500 in 2 ms", "status [400]", []Exchange{
			{0, `POST /payments, key "a b"; hangs up after 5 ms`, "no whole answer in 5 ms: the client hung up"},
			{7 * ms, "the target was asked how many effects there are", ""},
			{9 * ms, `POST /payments, key "a b"`, "500 in 3 ms, 61 bytes " + hostile},
		},
	})
	passed("key-two-lines", "two keys in one request are refused", 9*ms, "R-4")
	passed("tenants", "the same key of two tenants is two operations", 35*ms, "R-10")
	passed("problem-body", "a refusal says in a problem document what is wrong, and nothing else", 18*ms, "R-57")
	passed("twice", "a request that the network delivers twice takes effect once", 77*ms, "R-26")
	passed("answer-lost", "an answer that was lost on its way is given again", 102*ms, "R-30")
	skipped("slow", "a request longer than the lease is not run twice",
		`the scenario has no variant "slow", a request that takes its time before its effect (takes says how long)`, "R-47")
	skipped("crash-after-answer", "what was answered is not forgotten in a crash", crash, "R-30")
	skipped("crash-after-effect", "a run that died after its effect has no second one", crash, "R-46")
	skipped("pause", "an owner that slept through its lease does not overrule the next one",
		"the scenario does not say how to pause and resume the target (process)", "R-46", "R-48")

	r.Loads = []Load{sampleLoad(0, attempts), sampleLoad(0.2, attempts)}
	r.Gates = []Gate{
		{Name: "--min-success", Bound: 0.999, Got: 0.9975, Open: false},
		{Name: "--max-p99", Bound: 250, Got: 61.25, Unit: "ms", Open: true},
		{Name: "--max-duplicates", Bound: 0, Got: -1, Open: false},
	}
	return r
}

// sampleLoad is a load of half a minute, with answers after it if there are faults.
func sampleLoad(faults float64, attempts int) Load {
	l := Load{
		Faults: faults, Rate: float64(attempts) / 40, Duration: 30 * time.Second,
		Operations: attempts * 7 / 12, Requests: attempts * 10 / 12, Attempts: attempts, Repeats: attempts * 3 / 12,
		P50: 11400 * time.Microsecond, P95: 38 * ms, P99: 61250 * time.Microsecond,
	}
	kinds, met := map[string]int{}, map[string]int{}
	random := newSampleRandom()
	for i := range attempts {
		s := Sample{At: l.Duration * time.Duration(i) / time.Duration(attempts), Kind: "success"}
		s.Took = time.Duration(4000+random.below(9000)) * time.Microsecond
		if random.below(10) == 0 {
			s.Took *= time.Duration(2 + random.below(6))
		}
		if i%97 == 50 { // a collection of garbage
			s.Took += 80 * ms
		}
		if random.below(25) == 0 {
			s.Kind, s.Took = "in progress", s.Took/4
		}
		if faults > 0 && random.below(5) == 0 {
			s.Fault = sampleFaults[random.below(len(sampleFaults))]
			met[s.Fault]++
			switch s.Fault {
			case "latency":
				s.Took += 300 * ms
			case "jitter":
				s.Took += time.Duration(150+random.below(150)) * ms
			case "bandwidth":
				s.Took += time.Duration(60+random.below(30)) * ms
			case "black hole":
				s.Kind, s.Took = "no answer", time.Duration(100+random.below(1900))*ms
			case "refused":
				s.Kind, s.Took = "no answer", time.Duration(90+random.below(200))*time.Microsecond
			case "twice":
			default:
				s.Kind = "no answer"
			}
			if random.below(6) == 0 {
				s.At += 1500 * ms
			}
		}
		if faults > 0 && s.At > 18*time.Second && s.At < 20*time.Second && random.below(3) > 0 {
			s.Kind, s.Took = "later", 2*ms
		}
		kinds[s.Kind]++
		l.Samples = append(l.Samples, s)
	}
	for _, kind := range []string{"no answer", "success", "in progress", "later"} {
		if kinds[kind] > 0 {
			l.Kinds = append(l.Kinds, Count{kind, kinds[kind]})
		}
	}
	l.Conflicts, l.Effects, l.Succeeded, l.Replayed = kinds["in progress"], l.Operations, l.Requests, l.Repeats
	if faults > 0 {
		for _, fault := range sampleFaults {
			l.Injected = append(l.Injected, Count{fault, met[fault]})
		}
		l.Duplicates, l.Succeeded, l.Replayed = 3, l.Requests-2, l.Repeats-1
		l.Effects += l.Duplicates
		l.P50, l.P95, l.P99 = 14*ms, 312*ms, 1870*ms
		l.Failed = sampleFailures()
	}
	part := func(n, of int) float64 { return float64(n) / float64(of) }
	l.DuplicateRate, l.ReplayRate = part(l.Duplicates, l.Operations), part(l.Replayed, l.Repeats)
	l.SuccessRate, l.ConflictRate = part(l.Succeeded, l.Requests), part(l.Conflicts, l.Attempts)
	return l
}

var sampleFaults = [...]string{
	"latency", "jitter", "bandwidth", "reset", "lost answer", "cut answer", "black hole", "refused", "cut request", "twice",
}

func sampleFailures() []FailedKey {
	keys := []FailedKey{
		{"", "2 requests were not sent: 512 were under way, more than the target keeps up with", nil},
		{"5f0b63c2-3b0e-4c3a-9a43-0d7a3f1c2e11", "2 effects, want at most 1; call 7: success, call 9: another success", []Moment{
			{12030 * ms, "call 7: attempt 1 of request 4, fault: black hole"},
			{12031 * ms, "call 8: attempt 1 of request 5"},
			{12040 * ms, "call 8: in progress, 409, 118 bytes {\"title\":\"in progress\"}"},
			{12310 * ms, "call 9: attempt 2 of request 5"},
			{12322 * ms, "call 9: success, 201, 61 bytes {\"id\":\"pay_9001\"}"},
			{13180 * ms, "call 7: no answer, read: connection reset by peer"},
			{13252 * ms, "call 10: attempt 2 of request 4"},
			{13264 * ms, "call 10: success, 201, 61 bytes {\"id\":\"pay_9002\"}"},
			{13400 * ms, "a moment of its own"},
		}},
		{"k-" + hostile, "a request got no definite answer in 30s; its last attempt: later, 503, " + hostile, []Moment{
			{29 * time.Second, "call 2: attempt 1 of request 1"},
			{29004 * ms, "call 2: later, 503, 31 bytes " + hostile},
		}},
		{Key: "k-3", What: "a request got \"refused\": 403"},
	}
	for i := range 15 {
		keys[3].Events = append(keys[3].Events, Moment{time.Duration(i) * time.Second, fmt.Sprintf("moment %d", i)})
	}
	return keys
}

// A sampleRandom is the same on every machine.
type sampleRandom struct{ state uint32 }

func newSampleRandom() *sampleRandom { return &sampleRandom{1} }

func (r *sampleRandom) below(n int) int {
	r.state = r.state*1664525 + 1013904223
	return int(r.state>>8) % n
}

//go:embed testdata
var golden embed.FS

// matchGolden compares with testdata/name, which is written instead where the environment has GOLDEN=write.
func matchGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("GOLDEN") == "write" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := golden.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		if g, w := nth(gotLines, i), nth(wantLines, i); g != w {
			t.Fatalf("%s, line %d: got\n%.2000s\nwant\n%.2000s", name, i+1, g, w)
		}
	}
	if got != string(want) {
		t.Errorf("%s: there are %d lines, want %d", name, len(gotLines), len(wantLines))
	}
}
