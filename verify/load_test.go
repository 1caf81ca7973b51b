package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// How effects of a shop are counted.
const (
	byAnswer = "{answers: /id}"
	byCount  = "{url: /count, pointer: /payments}"
)

// shopTarget returns a shop with a bug.
func shopTarget(t *testing.T, bug, effects string) *target {
	t.Helper()
	server := httptest.NewServer(&shop{bug: bug, kept: map[string]*payment{}})
	return serverTarget(t, server, effects)
}

func serverTarget(t *testing.T, server *httptest.Server, effects string) *target {
	t.Helper()
	t.Cleanup(server.Close)
	s := read(t, "target: "+server.URL+`
request: {path: /payments, body: '{"order":"${uuid}"}'}
lease: 500ms
timeout: 3s
effects: `+effects)
	if err := s.Complete(); err != nil {
		t.Fatal(err)
	}
	return newTarget(s)
}

// shopLoad loads a shop with a bug. Where the machine does not keep up, it asks for as many requests in twice the time.
func shopLoad(t *testing.T, bug, effects string, o LoadOptions) Load {
	t.Helper()
	for {
		l, err := shopTarget(t, bug, effects).load(t.Context(), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if l.Rate != o.Rate || l.Duration != o.Duration || l.Faults != o.Faults {
			t.Errorf("a load of %v a second, %v, %v faults, want %+v", l.Rate, l.Duration, l.Faults, o)
		}
		late := slices.ContainsFunc(l.Failed, func(f FailedKey) bool { return strings.Contains(f.What, "were not sent") })
		if !late || o.Rate < 20 {
			return l
		}
		o.Rate, o.Duration = o.Rate/2, o.Duration*2
	}
}

func sum(counts []Count) (n int) {
	for _, c := range counts {
		n += c.N
	}
	return n
}

// keys returns the failed keys of which something is said.
func (l *Load) keys(what string) (found []FailedKey) {
	for _, f := range l.Failed {
		if f.Key != "" && strings.Contains(f.What, what) {
			found = append(found, f)
		}
	}
	return found
}

func TestR89_AGoodShopKeepsItsPromisesUnderFaults(t *testing.T) {
	t.Parallel()
	for _, effects := range []string{byAnswer, byCount} {
		t.Run(effects, func(t *testing.T) {
			t.Parallel()
			l := shopLoad(t, "", effects, LoadOptions{Rate: 200, Duration: 2 * time.Second, Faults: 0.3, Seed: 1})
			if l.Duplicates != 0 || l.DuplicateRate != 0 || l.SuccessRate != 1 || l.ReplayRate != 1 || len(l.Failed) != 0 {
				t.Errorf("duplicates %d, success rate %v, replay rate %v, failed %+v", l.Duplicates, l.SuccessRate, l.ReplayRate, l.Failed)
			}
			if l.Requests != 400 || l.Succeeded != 400 || l.Operations+l.Repeats != 400 ||
				l.Effects != l.Operations || l.Replayed != l.Repeats {
				t.Errorf("requests %d, succeeded %d, operations %d, effects %d, repeats %d, replayed %d, want 400 in all",
					l.Requests, l.Succeeded, l.Operations, l.Effects, l.Repeats, l.Replayed)
			}
			if l.Attempts <= l.Requests || sum(l.Kinds) != l.Attempts || len(l.Samples) != l.Attempts {
				t.Errorf("attempts %d, want retries; answers %v, samples %d, want as many", l.Attempts, l.Kinds, len(l.Samples))
			}
			if l.P50 <= 0 || l.P95 < l.P50 || l.P99 < l.P95 {
				t.Errorf("times %v, %v, %v", l.P50, l.P95, l.P99)
			}
			met := map[string]int{}
			for _, s := range l.Samples {
				met[s.Fault]++
			}
			for i, kind := range faultKinds {
				if c := l.Injected[i]; c.Name != kind || c.N == 0 || c.N != met[kind] {
					t.Errorf("%s: injected %v, samples %d", kind, c, met[kind])
				}
			}
		})
	}
}

func TestR89_AGoodShopKeepsItsPromisesBehindTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(&shop{kept: map[string]*payment{}})
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that faults end
	server.StartTLS()
	s := serverTarget(t, server, byCount)
	s.wire.tls = server.Client().Transport.(*http.Transport).TLSClientConfig
	l, err := s.load(t.Context(), LoadOptions{Rate: 50, Duration: time.Second, Faults: 0.5, Seed: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if l.Requests != 50 || l.SuccessRate != 1 || l.ReplayRate != 1 || l.Effects != l.Operations ||
		sum(l.Injected) == 0 || len(l.Failed) != 0 {
		t.Errorf("a load %+v", l)
	}
}

func TestR89_ALoadWithoutFaultsMeetsNone(t *testing.T) {
	t.Parallel()
	s := shopTarget(t, "", byAnswer)
	s.wire.timeout = time.Minute // no attempt ends by it
	l, err := s.load(t.Context(), LoadOptions{Rate: 100, Duration: time.Second, Seed: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Injected) != 0 || l.Requests != 100 || l.SuccessRate != 1 || l.Duplicates != 0 || len(l.Failed) != 0 {
		t.Errorf("a load %+v", l)
	}
	if want := float64(l.Conflicts) / float64(l.Attempts); l.ConflictRate != want || l.Attempts != l.Requests+l.Conflicts {
		t.Errorf("%d conflicts in %d attempts, rate %v", l.Conflicts, l.Attempts, l.ConflictRate)
	}
}

func TestR89_DuplicatesAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bug, effects string
		faults       float64
		what         string // of a key, if a key's answers tell
	}{
		{noDedup, byAnswer, 0, "2 effects"},
		{noDedup, byCount, 0, "two final answers disagree"},
		{forgets, byAnswer, 0, "2 effects"},
		{forgets, byCount, 0, "two final answers disagree"},
		{runsAgain, byCount, 0.5, ""}, // nobody was told of the first effect
	} {
		t.Run(c.bug+" "+c.effects, func(t *testing.T) {
			t.Parallel()
			l := shopLoad(t, c.bug, c.effects, LoadOptions{Rate: 200, Duration: 2 * time.Second, Faults: c.faults, Seed: 1})
			if l.Duplicates == 0 || l.DuplicateRate != float64(l.Duplicates)/float64(l.Operations) || l.Effects <= l.Operations {
				t.Errorf("%d duplicates, rate %v, %d effects of %d operations", l.Duplicates, l.DuplicateRate, l.Effects, l.Operations)
			}
			if c.effects == byCount && (len(l.Failed) == 0 || !strings.Contains(l.Failed[0].What, " effects of ")) {
				t.Errorf("failed: %+v", l.Failed)
			}
			if c.what == "" {
				return
			}
			broken := l.keys(c.what)
			if len(broken) == 0 {
				t.Fatalf("failed: %+v, want %s", l.Failed, c.what)
			}
			wantLine(t, &l, broken[0])
		})
	}
}

// wantLine checks the time line of a key: each attempt and what came, in the order of their times.
func wantLine(t *testing.T, l *Load, f FailedKey) {
	t.Helper()
	if len(f.Events) < 4 || len(f.Events)%2 != 0 {
		t.Errorf("%s: %d events", f.What, len(f.Events))
	}
	last := l.Samples[len(l.Samples)-1]
	for i, e := range f.Events {
		if e.At < 0 || e.At > last.At+time.Minute || i > 0 && e.At < f.Events[i-1].At || !strings.HasPrefix(e.What, "call ") {
			t.Errorf("%s: event %d: %+v", f.What, i, e)
		}
	}
	if !strings.Contains(f.Events[0].What, "attempt 1 of request ") {
		t.Errorf("%s: begins with %+v", f.What, f.Events[0])
	}
}

func TestR89_AKeyThatHangsIsStuck(t *testing.T) {
	t.Parallel()
	var l Load
	var stuck []FailedKey
	deadline := 800 * time.Millisecond
	for ; ; deadline *= 5 { // other keys may take as long, on a busy machine
		s := shopTarget(t, hangs, byAnswer)
		s.wire.timeout = deadline / 4
		var err error
		if l, err = s.load(t.Context(), LoadOptions{Rate: 50, Duration: time.Second, Seed: 1, Deadline: deadline}, nil); err != nil {
			t.Fatal(err)
		}
		if stuck = l.keys("stuck: "); len(stuck) == 1 && len(l.Failed) == 1 || deadline > 10*time.Second {
			break
		}
	}
	if len(stuck) != 1 || len(l.Failed) != 1 {
		t.Fatalf("failed: %+v, want one key that is stuck", l.Failed)
	}
	if !strings.Contains(stuck[0].What, fmt.Sprintf("a request got no definite answer in %v; its last attempt: no answer, ", deadline)) {
		t.Errorf("failed since %s", stuck[0].What)
	}
	wantLine(t, &l, stuck[0])
	if l.Succeeded == 0 || l.Succeeded >= l.Requests || l.Requests != 50 || l.Duplicates != 0 {
		t.Errorf("%d of %d requests succeeded, %d duplicates", l.Succeeded, l.Requests, l.Duplicates)
	}
}

func TestR89_AnswersThatAreNotTrueAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bug, effects, what string
		ok                 bool // without an error
		succeeds, replays  float64
	}{
		{changes, byCount, "two final answers disagree", true, 1, 0},
		{mixes, byAnswer, "a success that tells of the effect 10 of the key ", true, 1, 1},
		{silent, byAnswer, "a success that tells of no effect: ", false, 1, 1},
		{refuses, byAnswer, `a request got "refused": 402, 3 bytes no`, true, 0, 0},
		{breaks, byAnswer, "a request got no definite answer in 500ms; its last attempt: later, 503, 3 bytes no", true, 0, 0},
	} {
		t.Run(c.bug, func(t *testing.T) {
			t.Parallel()
			o := LoadOptions{Rate: 100, Duration: time.Second, Seed: 1}
			if c.bug == breaks {
				o.Deadline = 500 * time.Millisecond // which the others have no use for
			}
			l, err := shopTarget(t, c.bug, c.effects).load(t.Context(), o, nil)
			if (err == nil) != c.ok || (l.Effects < 0) == c.ok {
				t.Errorf("ends with %v, %d effects", err, l.Effects)
			}
			// A repeat may be answered before the request that it repeats.
			if l.SuccessRate != c.succeeds || l.ReplayRate < c.replays || l.ReplayRate > c.replays+0.5 {
				t.Errorf("success rate %v, replay rate %v", l.SuccessRate, l.ReplayRate)
			}
			if found := l.keys(c.what); len(found) == 0 {
				t.Errorf("failed: %+v, want %s", l.Failed, c.what)
			} else {
				wantLine(t, &l, found[0])
			}
			if len(l.Failed) > maxFailed {
				t.Errorf("%d keys are told of", len(l.Failed))
			}
		})
	}
}

func TestR89_SuccessesWithoutEffectsAreFound(t *testing.T) {
	t.Parallel()
	l := shopLoad(t, vanishes, byCount, LoadOptions{Rate: 100, Duration: time.Second, Seed: 1})
	if l.Effects != 0 || l.Duplicates != 0 || len(l.Failed) != 1 ||
		!strings.Contains(l.Failed[0].What, "have succeeded, and there are 0 effects") {
		t.Errorf("%d effects, %d duplicates, failed %+v", l.Effects, l.Duplicates, l.Failed)
	}
}

func TestRequestsBeyondThoseUnderWayAreNotSent(t *testing.T) {
	t.Parallel()
	s := shopTarget(t, hangs, byAnswer)
	s.wire.timeout = 300 * time.Millisecond
	o := LoadOptions{Rate: 100, Duration: time.Second, Seed: 1, Deadline: 2 * time.Second, InFlight: 1}
	l, err := s.load(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Failed) == 0 || !strings.Contains(l.Failed[0].What, "requests were not sent: 1 were under way") {
		t.Errorf("failed: %+v", l.Failed)
	}
	if l.Requests != 100 || l.Succeeded == 0 || l.SuccessRate != float64(l.Succeeded)/100 || l.Succeeded > 90 {
		t.Errorf("%d of %d requests succeeded, rate %v", l.Succeeded, l.Requests, l.SuccessRate)
	}
}

func TestALoadTellsHowFarItIsAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	told := 0
	o := LoadOptions{Rate: 100, Duration: time.Hour, Seed: 1}
	l, err := shopTarget(t, "", byAnswer).load(ctx, o, func(done time.Duration, n int) {
		if told++; done > 0 && n > 10 {
			cancel(enough)
		}
	})
	if !errors.Is(err, enough) || told == 0 || l.Operations <= 10 || l.Requests < l.Operations {
		t.Errorf("ended with %v after %d tellings, %d operations, %d requests", err, told, l.Operations, l.Requests)
	}
}

func TestALoadThatCantBeIsRefused(t *testing.T) {
	t.Parallel()
	good := LoadOptions{Rate: 1, Duration: time.Second}
	for why, change := range map[string]func(*LoadOptions){
		"no rate":           func(o *LoadOptions) { o.Rate = 0 },
		"too high a rate":   func(o *LoadOptions) { o.Rate = maxRate + 1 },
		"no duration":       func(o *LoadOptions) { o.Duration = 0 },
		"too many faults":   func(o *LoadOptions) { o.Faults = 1.1 },
		"negative faults":   func(o *LoadOptions) { o.Faults = -0.1 },
		"negative deadline": func(o *LoadOptions) { o.Deadline = -1 },
		"negative slots":    func(o *LoadOptions) { o.InFlight = -1 },
	} {
		o := good
		change(&o)
		if _, err := shopTarget(t, "", byAnswer).load(t.Context(), o, nil); err == nil {
			t.Errorf("%s: a load", why)
		}
	}
	gone := shopTarget(t, "", "{url: /count, pointer: /elsewhere}")
	if _, err := gone.load(t.Context(), good, nil); err == nil {
		t.Error("a load whose effects can't be counted")
	}
}

func TestAClientWaitsAsLongAsItIsTold(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "soon": 0, "-1": 0, "3600": retryAfterMax,
		"Fri, 01 Jan 2100 00:00:00 GMT": retryAfterMax, "Fri, 01 Jan 1999 00:00:00 GMT": 0,
	} {
		h := http.Header{"Retry-After": {text}}
		for attempt := 1; attempt < 80; attempt++ {
			got := backoff(attempt, h)
			if most := max(want, min(retryMost, retryBase<<min(attempt-1, 10))); got < want || got > most {
				t.Errorf("Retry-After %q, attempt %d: %v, want %v to %v", text, attempt, got, want, most)
			}
		}
	}
}
