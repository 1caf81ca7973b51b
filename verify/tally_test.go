package verify

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestManySamplesAreThinnedEvenly(t *testing.T) {
	t.Parallel()
	l := loader{attempts: make([]attempt, 3*maxSamples)}
	for i := range l.attempts {
		l.attempts[i] = attempt{at: time.Duration(i), took: time.Duration(i), kind: succeeded}
	}
	var load Load
	l.countAttempts(&load)
	if len(load.Samples) != maxSamples {
		t.Fatalf("%d samples", len(load.Samples))
	}
	for i, s := range load.Samples {
		if s.At != time.Duration(3*i) {
			t.Fatalf("sample %d is of %d", i, s.At)
		}
	}
	if load.P50 != 7499 || load.P95 != 14249 || load.P99 != 14849 {
		t.Errorf("percentiles %d, %d, %d", load.P50, load.P95, load.P99)
	}
}

// failedLoad returns a load of keys of which each got one answer.
func failedLoad(keys int, end func(key int) (meaning, []string)) *loader {
	l := &loader{target: &target{scenario: &Scenario{Effects: Effects{Answers: "/id"}}}}
	for i := range keys {
		m, broken := end(i)
		o := &loaded{number: i, key: fmt.Sprint(i), final: m, broken: broken}
		l.operations = append(l.operations, o)
		l.requests = append(l.requests, &asked{planned: planned{index: i, operation: i}, operation: o, end: m})
		l.attempts = append(l.attempts, attempt{operation: o, request: i, n: 1, call: i + 1, kind: m})
	}
	return l
}

func TestBrokenPromisesAreToldBeforeFailures(t *testing.T) {
	t.Parallel()
	l := failedLoad(3*maxFailed, func(key int) (meaning, []string) {
		if key == 3*maxFailed-1 {
			return succeeded, []string{"it was not true"}
		}
		return []meaning{succeeded, refused}[key%2], nil
	})
	failed := l.failedKeys(new(Load))
	if len(failed) != maxFailed || failed[0].Key != "59" || failed[0].What != "it was not true" {
		t.Fatalf("%d keys, the first is %+v", len(failed), failed[0])
	}
	for i, f := range failed[1:] {
		if f.Key != fmt.Sprint(2*i+1) || !strings.HasPrefix(f.What, `a request got "refused"`) || len(f.Events) != 2 {
			t.Errorf("key %d is %+v", i, f)
		}
	}
}

func TestALongTimeLineIsFolded(t *testing.T) {
	t.Parallel()
	l := failedLoad(1, func(int) (meaning, []string) { return later, nil })
	o := l.operations[0]
	for i := 1; i < 100; i++ {
		l.attempts = append(l.attempts, attempt{operation: o, n: i + 1, call: i + 1, at: time.Duration(i), kind: later})
	}
	line := l.moments(o)
	if len(line) != maxMoments+1 || line[maxMoments/2].What != "… 160 more …" {
		t.Fatalf("%d moments, the middle is %+v", len(line), line[maxMoments/2])
	}
	if first, last := line[0].What, line[maxMoments].What; first != "call 1: attempt 1 of request 0" || last != "call 100: later, " {
		t.Errorf("from %q to %q", first, last)
	}
}

func TestRequestsThatWereNotSentFail(t *testing.T) {
	t.Parallel()
	l := failedLoad(2, func(int) (meaning, []string) { return succeeded, nil })
	l.InFlight = 7
	l.leaveOut(planned{index: 2, operation: 0, repeat: true}, &l.crowded)
	l.leaveOut(planned{index: 3, operation: 2}, &l.late)
	load := l.result(2)
	if load.Requests != 4 || load.SuccessRate != 0.5 || load.Operations != 2 || load.Repeats != 0 || load.Attempts != 2 {
		t.Errorf("load %+v", load)
	}
	if len(load.Failed) != 2 || !strings.HasPrefix(load.Failed[0].What, "1 requests were not sent: 7 were under way") ||
		!strings.HasPrefix(load.Failed[1].What, "1 requests were not sent: the clients can't keep up") {
		t.Errorf("failed %+v", load.Failed)
	}
}
