package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	maxSamples = 5_000
	maxFailed  = 20 // keys
	maxMoments = 40 // of a key
)

// result says what came of the load, when nothing is under way any more. Effects are -1 if they could not be counted.
func (l *loader) result(effects int) Load {
	load := Load{
		Faults: l.Faults, Rate: l.Rate, Duration: l.Duration,
		Requests: len(l.requests), Attempts: len(l.attempts), Effects: effects,
	}
	for _, o := range l.operations {
		if o != nil {
			load.Operations++
		}
	}
	for _, r := range l.requests {
		if r.operation == nil {
			continue
		}
		if r.end == succeeded {
			load.Succeeded++
		}
		if r.repeat {
			load.Repeats++
			if o := r.operation; r.end == succeeded && o.final == succeeded && r.value == o.value {
				load.Replayed++
			}
		}
	}
	l.countAttempts(&load)
	if l.scenario.Effects.byAnswers() {
		load.Duplicates = l.history.Summary().Duplicates
	} else {
		load.Duplicates = max(0, effects-load.Operations) // an operation that has not succeeded may still have its effect
	}
	load.DuplicateRate = ratio(load.Duplicates, load.Operations)
	load.ReplayRate = ratio(load.Replayed, load.Repeats)
	load.SuccessRate = ratio(load.Succeeded, load.Requests)
	load.ConflictRate = ratio(load.Conflicts, load.Attempts)
	load.Failed = append(l.failedTogether(&load), l.failedKeys(&load)...)
	return load
}

func ratio(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// countAttempts fills in what is known of the attempts.
func (l *loader) countAttempts(load *Load) {
	var kinds [len(meanings)]int
	injected := map[string]int{}
	var took []time.Duration
	for i := range l.attempts {
		a := &l.attempts[i]
		kinds[a.kind]++
		injected[a.fault]++
		if a.kind != noAnswer {
			took = append(took, a.took)
		}
	}
	load.Conflicts = kinds[busy]
	for kind, n := range kinds {
		if n > 0 {
			load.Kinds = append(load.Kinds, Count{meaning(kind).String(), n})
		}
	}
	if l.Faults > 0 {
		for _, fault := range faultKinds {
			load.Injected = append(load.Injected, Count{fault, injected[fault]})
		}
	}
	slices.Sort(took)
	load.P50, load.P95, load.P99 = percentile(took, 50), percentile(took, 95), percentile(took, 99)
	n := min(len(l.attempts), maxSamples)
	for i := range n {
		a := &l.attempts[i*len(l.attempts)/n]
		load.Samples = append(load.Samples, Sample{a.at, a.took, a.kind.String(), a.fault})
	}
}

// percentile returns the least of the sorted times that is not below so many percent of them, or 0.
func percentile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(1, (len(sorted)*percent+99)/100)-1]
}

// failedTogether returns what went wrong without a key to blame. It counts successes without an effect.
func (l *loader) failedTogether(load *Load) (failed []FailedKey) {
	add := func(n int, format string, a ...any) {
		if n > 0 {
			failed = append(failed, FailedKey{What: fmt.Sprintf(format, a...)})
		}
	}
	add(l.crowded, "%d requests were not sent: %d were under way, more than the target keeps up with", l.crowded, l.InFlight)
	add(l.late, "%d requests were not sent: the clients can't keep up with the rate", l.late)
	if l.scenario.Effects.byAnswers() || load.Effects < 0 {
		return failed
	}
	add(load.Duplicates, "%d effects of %d operations", load.Effects, load.Operations)
	told := 0
	for _, o := range l.operations {
		if o != nil && o.seen > 0 {
			told++
		}
	}
	load.Broken += max(0, told-load.Effects)
	add(told-load.Effects, "%d operations have succeeded, and there are %d effects", told, load.Effects)
	return failed
}

// failedKeys returns the first of the keys that broke a promise, and then of those with a request that did not succeed.
// It counts the former.
func (l *loader) failedKeys(load *Load) (failed []FailedKey) {
	violations := map[string][]string{}
	for _, v := range l.history.Check() {
		violations[v.Key] = append(violations[v.Key], v.What)
	}
	late := map[*loaded][]string{}
	for _, r := range l.requests {
		if o := r.operation; o != nil && r.end != succeeded {
			if what := l.failure(r); !slices.Contains(late[o], what) {
				late[o] = append(late[o], what)
			}
		}
	}
	for _, o := range l.operations {
		if o != nil && len(violations[o.key])+len(o.broken) > 0 {
			load.Broken++
		}
	}
	for _, broken := range []bool{true, false} {
		for _, o := range l.operations {
			if o == nil || len(failed) == maxFailed {
				continue
			}
			what := slices.Concat(violations[o.key], o.broken)
			if (len(what) > 0) != broken {
				continue
			}
			if what = append(what, late[o]...); len(what) > 0 {
				failed = append(failed, FailedKey{o.key, strings.Join(what, "; "), l.moments(o)})
			}
		}
	}
	return failed
}

// failure says why a request has not succeeded.
func (l *loader) failure(r *asked) string {
	if r.end.definite() {
		return fmt.Sprintf("a request got %q: %s", r.end, r.last)
	}
	return fmt.Sprintf("a request got no definite answer in %v; its last attempt: %s, %s", l.Deadline, r.end, r.last)
}

// moments returns what happened to an operation. Calls have the numbers that the history gives them.
func (l *loader) moments(o *loaded) (all []Moment) {
	for i := range l.attempts {
		a := &l.attempts[i]
		if a.operation != o {
			continue
		}
		sent := fmt.Sprintf("call %d: attempt %d of request %d", a.call, a.n, a.request)
		if a.fault != "" {
			sent += ", fault: " + a.fault
		}
		all = append(all,
			Moment{a.at, sent}, Moment{a.at + a.took, fmt.Sprintf("call %d: %s, %s", a.call, a.kind, a.came)})
	}
	slices.SortStableFunc(all, func(a, b Moment) int { return cmp.Compare(a.At, b.At) })
	if more := len(all) - maxMoments; more > 0 {
		const half = maxMoments / 2
		gap := Moment{all[half].At, fmt.Sprintf("… %d more …", more)}
		all = slices.Concat(all[:half], []Moment{gap}, all[len(all)-half:])
	}
	return all
}
