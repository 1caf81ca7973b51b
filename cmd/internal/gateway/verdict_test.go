package gateway

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// What becomes of a repeat.
const (
	runsAgain = "runs again"
	replays   = "is a replay"
	isUnknown = "is told that the outcome is unknown"
	goneFor   = "is told that there is no replay"
)

// repeated asks twice and says what became of the repeat. The first answer is the upstream's own.
func repeated(t *testing.T, g *running, u *upstream, path string, header ...string) string {
	t.Helper()
	send := func() answer {
		return ask(t, "POST", g.url+path, "", append(header, "Idempotency-Key", "k")...)
	}
	first := send()
	if first.header.Get("Content-Type") == "application/problem+json" {
		t.Fatalf("the first answer is the gateway's: %d %s", first.status, first.body)
	}
	again := send()
	switch n := u.executions("k"); {
	case n == 2 && !again.replayed():
		return runsAgain
	case n == 1 && again.replayed() && again.status == first.status && again.body == first.body:
		return replays
	case n == 1 && strings.Contains(again.body, string(refusal.OutcomeUnknown)):
		return isUnknown
	case n == 1 && strings.Contains(again.body, string(refusal.ReplayUnavailable)):
		return goneFor
	}
	return fmt.Sprintf("executed %d times, replayed %t, answered %d %.100s", u.executions("k"), again.replayed(), again.status, again.body)
}

func TestR44_TheUpstreamSaysWhatItsAnswerMeans(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		say    string
		status int
		onLost semel.LostPolicy
		want   string
		reason string
	}{
		{"keep", 201, semel.Hold, replays, "as without a word"},
		{"keep", 503, semel.Hold, replays, "although a 503 counts as lost"},
		{"keep", 429, semel.Hold, replays, "although a 429 is released"},
		{"keep", 500, semel.Rerun, replays, "although rerun releases errors"},
		{"release", 201, semel.Hold, runsAgain, "although it is a success"},
		{"release", 503, semel.Hold, runsAgain, "its promise that nothing happened"},
		{"release", 500, semel.Hold, runsAgain, "its promise that nothing happened"},
		{"release", 422, semel.Hold, runsAgain, "although it is definitive"},
		{"unknown", 201, semel.Hold, isUnknown, "it can't tell itself"},
		{"unknown", 202, semel.Rerun, isUnknown, "whatever OnLost says"},
		{"unknown", 429, semel.Rerun, isUnknown, "although a 429 is released"},
		{"done", 201, semel.Hold, replays, "a word for reconcile only"},
		{"never", 201, semel.Hold, replays, "a word for reconcile only"},
		{"Keep", 503, semel.Hold, isUnknown, "another word: a 503 counts as lost"},
		{"", 503, semel.Hold, isUnknown, "no word: a 503 counts as lost"},
		{"keep, release", 201, semel.Hold, replays, "two words are none"},
	} {
		t.Run(fmt.Sprintf("%q %d %v", c.say, c.status, c.onLost), func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Idempotency-Outcome", c.say)
				w.WriteHeader(c.status)
				io.WriteString(w, "answer")
			})
			g := start(t, u.URL, func(cfg *Config) { cfg.Default.Policy.OnLost = c.onLost })
			if got := repeated(t, g, u, "/"); got != c.want {
				t.Errorf("the repeat %s, want one that %s: %s", got, c.want, c.reason)
			}
			known := c.say == "keep" || c.say == "release" || c.say == "unknown"
			if logged := strings.Contains(g.log.String(), "it does not count"); logged == known {
				t.Errorf("logged %t:\n%s", logged, g.log)
			}
		})
	}
}

// A guarded service, or another gateway, behind the gateway: what it refuses is known by its code (R-59a).
func TestR42_Field03_ARefusalFromBehindIsNotKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code   string
		status int
		onLost semel.LostPolicy
		want   string
	}{
		{"IDEMPOTENCY_IN_PROGRESS", 409, semel.Hold, runsAgain},
		{"IDEMPOTENCY_KEY_REUSED", 422, semel.Hold, runsAgain},
		{"IDEMPOTENCY_OUTCOME_UNKNOWN", 409, semel.Hold, runsAgain},
		{"IDEMPOTENCY_OUTCOME_PENDING", 503, semel.Hold, runsAgain},
		{"IDEMPOTENCY_OUTCOME_PENDING", 504, semel.Hold, runsAgain},
		{"IDEMPOTENCY_NO_ANSWER", 500, semel.Hold, runsAgain},
		{"IDEMPOTENCY_STORE_UNAVAILABLE", 503, semel.Hold, runsAgain},
		{"UPSTREAM_UNAVAILABLE", 503, semel.Hold, runsAgain},
		{"UPSTREAM_UNAVAILABLE", 502, semel.Hold, runsAgain}, // with statuses of its own
		{"REQUEST_NOT_FORWARDABLE", 400, semel.Hold, runsAgain},
		{"UPSTREAM_BROKEN", 502, semel.Hold, isUnknown},
		{"UPSTREAM_BROKEN", 500, semel.Hold, isUnknown},
		{"UPSTREAM_BROKEN", 502, semel.Rerun, runsAgain},
		{"SOMETHING_ELSE", 503, semel.Hold, isUnknown},
		{"SOMETHING_ELSE", 409, semel.Hold, replays},
	} {
		t.Run(fmt.Sprintf("%s %d %v", c.code, c.status, c.onLost), func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Idempotency-Code", c.code)
				w.WriteHeader(c.status)
				io.WriteString(w, "refused")
			})
			g := start(t, u.URL, func(cfg *Config) { cfg.Default.Policy.OnLost = c.onLost })
			if got := repeated(t, g, u, "/"); got != c.want {
				t.Errorf("the repeat %s, want one that %s", got, c.want)
			}
		})
	}
}

// A service with a guard of its own runs a request that came past the gateway. The gateway's clients are told so, and
// get the outcome once there is one.
func TestField03_AGuardedServiceBehindTheGateway(t *testing.T) {
	t.Parallel()
	inner, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{IdentitySecret: []byte("0123456789abcdef")})
	if err != nil {
		t.Fatal(err)
	}
	began, held, runs := make(chan struct{}), make(chan struct{}), 0
	guarded := inner.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		close(began)
		<-held
		created(w, r)
	}))
	u := newUpstream(t, guarded.ServeHTTP)
	g := start(t, u.URL)
	past := make(chan answer, 1)
	go func() {
		a, err := tryAsk("POST", u.URL+"/pay", "{}", "Idempotency-Key", "k")
		if err != nil {
			t.Error(err)
		}
		past <- a
	}()
	<-began
	for range 2 {
		a := ask(t, "POST", g.url+"/pay", "{}", "Idempotency-Key", "k")
		if a.status != 409 || a.replayed() || a.header.Get("Idempotency-Code") != string(refusal.InProgress) || a.header.Get("Retry-After") == "" {
			t.Errorf("during the run: %d %v", a.status, a.header)
		}
	}
	close(held)
	first := <-past
	for range 2 {
		a := ask(t, "POST", g.url+"/pay", "{}", "Idempotency-Key", "k")
		if a.status != 201 || a.body != first.body || !a.replayed() {
			t.Errorf("after it: %d %v %s", a.status, a.header, a.body)
		}
	}
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}

func TestR44_AReleasedStreamDoesNotBegin(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Idempotency-Outcome", "release")
		io.WriteString(w, "data: not yet\n\n")
	})
	g := start(t, u.URL)
	if got := repeated(t, g, u, "/"); got != runsAgain {
		t.Errorf("the repeat %s", got)
	}
}

func TestR44_TheRouteSaysWhichAnswersAreKept(t *testing.T) {
	t.Parallel()
	condition := func(equals string, statuses ...int) *Condition {
		return &Condition{Pointer: "/status", Equals: equals, Statuses: statuses}
	}
	big := `{"status":"COMPLETED","pad":"` + strings.Repeat("x", 2000) + `"}`
	var zipped bytes.Buffer
	zw := gzip.NewWriter(&zipped)
	io.WriteString(zw, `{"status":"COMPLETED"}`)
	zw.Close()
	for _, c := range []struct {
		name   string
		route  Route
		status int
		body   string
		header string // "Name: value" of the answer
		want   string
	}{
		{"equal", Route{KeepIf: condition(`"COMPLETED"`)}, 200, `{"status":"COMPLETED"}`, "", replays},
		{"another text", Route{KeepIf: condition(`"COMPLETED"`)}, 200, `{"status":"PENDING"}`, "", runsAgain},
		{"not there", Route{KeepIf: condition(`"COMPLETED"`)}, 200, `{"state":"COMPLETED"}`, "", runsAgain},
		{"equal number", Route{KeepIf: condition(`7`)}, 200, `{"status":7}`, "", replays},
		{"a text, not the number", Route{KeepIf: condition(`7`)}, 200, `{"status":"7"}`, "", runsAgain},
		{"equal boolean", Route{KeepIf: condition(`true`)}, 200, `{"status":true}`, "", replays},
		{"null is not false", Route{KeepIf: condition(`false`)}, 200, `{"status":null}`, "", runsAgain},
		{"whatever the media type", Route{KeepIf: condition(`"COMPLETED"`)}, 200, `{"status":"COMPLETED"}`, "Content-Type: text/plain", replays},
		{"an error is not looked into", Route{KeepIf: condition(`"COMPLETED"`)}, 422, `{"error":"no"}`, "", replays},
		{"a status that is named is", Route{KeepIf: condition(`"COMPLETED"`, 422)}, 422, `{"error":"no"}`, "", runsAgain},
		{"one that is not named is not", Route{KeepIf: condition(`"COMPLETED"`, 202)}, 200, `{"status":"PENDING"}`, "", replays},

		{"no JSON under hold", Route{KeepIf: condition(`"COMPLETED"`)}, 200, `done`, "", isUnknown},
		{"empty under hold", Route{KeepIf: condition(`"COMPLETED"`)}, 204, ``, "", isUnknown},
		{"cut off under hold", Route{KeepIf: condition(`"COMPLETED"`)}, 200, `{"status":"COMPLETED"`, "", isUnknown},
		{"twice under hold", Route{KeepIf: condition(`"COMPLETED"`)}, 200, `{"status":"COMPLETED","status":"PENDING"}`, "", isUnknown},
		{"in either case under hold", Route{KeepIf: condition(`"COMPLETED"`)}, 200, `{"status":"COMPLETED","Status":"PENDING"}`, "", isUnknown},
		{"an object under hold", Route{KeepIf: condition(`"COMPLETED"`)}, 200, `{"status":{}}`, "", isUnknown},
		{"compressed all the same", Route{KeepIf: condition(`"COMPLETED"`)}, 200, zipped.String(), "Content-Encoding: gzip", isUnknown},
		{"too large under hold", Route{KeepIf: condition(`"COMPLETED"`), Policy: semel.Policy{MaxResponseBody: 1000}}, 200, big, "", isUnknown},
		{"no JSON under rerun", Route{KeepIf: condition(`"COMPLETED"`), Policy: semel.Policy{OnLost: semel.Rerun}}, 200, `done`, "", runsAgain},

		{"release_on", Route{ReleaseOn: []int{503, 404}}, 503, `busy`, "", runsAgain},
		{"release_on 404", Route{ReleaseOn: []int{503, 404}}, 404, `no`, "", runsAgain},
		{"not in release_on", Route{ReleaseOn: []int{404}}, 503, `busy`, "", isUnknown},
		{"release_on lost", Route{ReleaseOn: []int{502}}, 502, `bad`, "", runsAgain},
		{"keep_if before release_on", Route{KeepIf: condition(`"COMPLETED"`, 404), ReleaseOn: []int{404}}, 404, `{"status":"COMPLETED"}`, "", replays},
		{"the upstream before keep_if", Route{KeepIf: condition(`"COMPLETED"`)}, 200, `{"status":"COMPLETED"}`, "Idempotency-Outcome: release", runsAgain},
		{"unknown before keep_if", Route{KeepIf: condition(`"COMPLETED"`)}, 200, `{"status":"COMPLETED"}`, "Idempotency-Outcome: unknown", isUnknown},
		{"the upstream before release_on", Route{ReleaseOn: []int{404}}, 404, `no`, "Idempotency-Outcome: keep", replays},
		{"keep_only_success", Route{Policy: semel.Policy{KeepOnlySuccess: true}}, 422, `no`, "", runsAgain},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Accept-Encoding"); c.route.KeepIf != nil && got != "identity" {
					t.Errorf("the upstream may encode the answer: Accept-Encoding is %q", got)
				}
				if name, value, ok := strings.Cut(c.header, ": "); ok {
					w.Header().Set(name, value)
				}
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			})
			c.route.Match = "POST /"
			g := routed(t, u.URL, c.route)
			if got := repeated(t, g, u, "/", "Accept-Encoding", "gzip"); got != c.want {
				t.Errorf("the repeat %s, want one that %s", got, c.want)
			}
		})
	}
}
