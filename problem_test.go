package semel_test

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/internal/problemkind"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// exchangeText is an answer in the form of HTTP/1.1, its header sorted.
func exchangeText(w *httptest.ResponseRecorder) string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", w.Code, http.StatusText(w.Code))
	w.Result().Header.WriteSubset(&b, nil) //nolint:errcheck // a builder takes all
	b.WriteString("\r\n")
	b.Write(w.Body.Bytes())
	return b.String()
}

//go:embed testdata
var golden embed.FS

// matchGolden compares got with a file in testdata. With GOLDEN=write in the environment it writes the file instead.
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
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// A provoked problem: how to bring a guard to give it.
type provoked struct {
	code    refusal.Code
	name    string // of the golden file, if not the last part of the problem's type
	status  int
	retry   bool
	after   string // Retry-After
	options semel.Options
	p       semel.Policy
	run     func(h http.Handler, s *faulty) *httptest.ResponseRecorder
}

var requirements = []provoked{
	{
		code: refusal.KeyMissing, status: 400,
		options: semel.Options{Problems: semel.ProblemOptions{Documentation: "https://api.example.com/idempotency"}},
		run:     func(h http.Handler, _ *faulty) *httptest.ResponseRecorder { return answer(h, plain("")) },
	},
	{
		code: refusal.KeyInvalid, status: 400,
		run: func(h http.Handler, _ *faulty) *httptest.ResponseRecorder { return answer(h, plain(`"a`)) },
	},
	{
		code: refusal.ScopeInvalid, status: 400,
		run: func(h http.Handler, _ *faulty) *httptest.ResponseRecorder {
			r := plain("k")
			r.Header.Set("X-Fail", "scope")
			return answer(h, r)
		},
	},
	{
		code: refusal.KeyReused, status: 422,
		run: func(h http.Handler, _ *faulty) *httptest.ResponseRecorder {
			answer(h, plain("k"))
			r := plain("k")
			r.URL.RawQuery = "other=1"
			return answer(h, r)
		},
	},
	{
		code: refusal.InProgress, status: 409, retry: true, after: "7",
		run: func(h http.Handler, _ *faulty) *httptest.ResponseRecorder {
			go answer(h, how("k", "20s"))
			time.Sleep(6500 * time.Millisecond)
			return answer(h, how("k", "20s"))
		},
	},
	{
		code: refusal.OutcomePending, status: 503, retry: true, after: "1",
		run: func(h http.Handler, s *faulty) *httptest.ResponseRecorder {
			s.set(func(f *faulty) {
				f.settle = func(context.Context, driver.ID, driver.Owner, driver.Outcome) (driver.Record, bool, error) {
					return driver.Record{}, false, errStoreDown
				}
			})
			w := answer(h, plain("k"))
			s.set(func(f *faulty) { f.settle = nil })
			return w
		},
	},
	{
		code: refusal.KeyExpired, status: 422,
		p: semel.Policy{Retention: time.Hour, Tombstone: time.Hour},
		run: func(h http.Handler, _ *faulty) *httptest.ResponseRecorder {
			answer(h, plain("k"))
			time.Sleep(time.Hour)
			return answer(h, plain("k"))
		},
	},
	{
		code: refusal.OutcomePending, name: "outcome-pending-patience", status: 504, retry: true, after: "1",
		p:   semel.Policy{Patience: time.Second},
		run: func(h http.Handler, _ *faulty) *httptest.ResponseRecorder { return answer(h, how("k", "20s")) },
	},
	{
		code: refusal.OutcomeUnknown, status: 409,
		run: func(h http.Handler, _ *faulty) *httptest.ResponseRecorder {
			func() {
				defer func() { recover() }() //nolint:errcheck // the handler's own panic
				answer(h, how("k", "panic"))
			}()
			return answer(h, how("k", "panic"))
		},
	},
	{
		code: refusal.ReplayUnavailable, status: 409,
		p: semel.Policy{MaxResponseBody: 10},
		run: func(h http.Handler, _ *faulty) *httptest.ResponseRecorder {
			answer(h, plain("k"))
			return answer(h, plain("k"))
		},
	},
	{
		code: refusal.ReplayForbidden, status: 403,
		p: semel.Policy{AuthorizeReplay: func(*http.Request) error { return errors.New("secret: role revoked") }},
		run: func(h http.Handler, _ *faulty) *httptest.ResponseRecorder {
			answer(h, plain("k"))
			return answer(h, plain("k"))
		},
	},
	{
		code: refusal.TooManyAttempts, status: 429, retry: true, after: "51",
		options: semel.Options{MaxAttempts: 2},
		run: func(h http.Handler, _ *faulty) *httptest.ResponseRecorder {
			time.Sleep(9500 * time.Millisecond)
			answer(h, plain("k"))
			answer(h, plain("k"))
			return answer(h, plain("k"))
		},
	},
	{
		code: refusal.TooManyKeys, status: 429, retry: true, after: "86400",
		options: semel.Options{MaxKeys: 1},
		run: func(h http.Handler, _ *faulty) *httptest.ResponseRecorder {
			answer(h, plain("k"))
			return answer(h, plain("k2"))
		},
	},
	{
		code: refusal.BodyTooLarge, status: 413,
		p: semel.Policy{MaxRequestBody: 4},
		run: func(h http.Handler, _ *faulty) *httptest.ResponseRecorder {
			return answer(h, post("k", "12345", "X-Correlation-Id", "c-1"))
		},
	},
	{
		code: refusal.DigestMismatch, status: 400,
		run: func(h http.Handler, _ *faulty) *httptest.ResponseRecorder {
			r := plain("k")
			r.Header.Set("Content-Digest", "sha-256=:AAAA:")
			return answer(h, r)
		},
	},
	{
		code: refusal.EarlyData, status: 425, retry: true,
		run: func(h http.Handler, _ *faulty) *httptest.ResponseRecorder {
			r := plain("k")
			r.Header.Set("Early-Data", "1")
			return answer(h, r)
		},
	},
	{
		code: refusal.StoreUnavailable, status: 503, retry: true, after: "5",
		run: func(h http.Handler, s *faulty) *httptest.ResponseRecorder {
			s.set(func(f *faulty) {
				f.claim = func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
					return driver.Record{}, false, errStoreDown
				}
			})
			return answer(h, plain("k"))
		},
	},
	{
		code: refusal.BodyConsumed, status: 500, retry: false,
		run: func(h http.Handler, _ *faulty) *httptest.ResponseRecorder {
			r := plain("k")
			r.Body = http.NoBody
			return answer(h, r)
		},
	},
	{
		code: refusal.RequestUnreadable, status: 400, retry: true,
		run: func(h http.Handler, _ *faulty) *httptest.ResponseRecorder {
			r := plain("k")
			r.Body = io.NopCloser(iotest.ErrReader(errors.New("secret: connection reset")))
			return answer(h, r)
		},
	},
}

var errStoreDown = errors.New("secret: dial tcp 10.0.0.7:5432: connection refused")

func plain(key string) *http.Request { return post(key, `{}`, "X-Correlation-Id", "c-1") }

// how asks the handler of TestProblems to take its time, or to panic.
func how(key, what string) *http.Request {
	r := plain(key)
	r.Header.Set("X-How", what)
	return r
}

// provoke brings a fresh guard to give the problem.
func (pr *provoked) provoke(t *testing.T, change func(*semel.Options)) *httptest.ResponseRecorder {
	t.Helper()
	o := pr.options
	o.Policy = pr.p
	if change != nil {
		change(&o)
	}
	s := &faulty{Store: memstore.New()}
	g, err := semel.New(s, semel.ScopeFunc(func(r *http.Request) (string, error) {
		if r.Header.Get("X-Fail") == "scope" {
			return "", errors.New("secret: no tenant")
		}
		return "alice", nil
	}), semel.Hold, o)
	if err != nil {
		t.Fatal(err)
	}
	semel.IdentityChecked(g)
	w := pr.run(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch d, err := time.ParseDuration(r.Header.Get("X-How")); {
		case err == nil:
			time.Sleep(d)
		case r.Header.Get("X-How") == "panic":
			panic("secret: at line 7")
		}
		io.WriteString(w, "secret: the stored answer")
	})), s)
	s.set(func(f *faulty) { f.claim, f.settle = nil, nil })
	if err := g.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (pr *provoked) golden(p *semel.Problem) string {
	if pr.name != "" {
		return pr.name
	}
	return strings.TrimPrefix(p.Type, "urn:semel:problem:")
}

// The table of the requirements: each problem, as it goes over the wire.
func TestR57_R59a_EveryProblemIsAsTheTableSays(t *testing.T) {
	t.Parallel()
	for _, pr := range requirements {
		t.Run(string(pr.code)+pr.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := pr.provoke(t, nil)
				var p semel.Problem
				if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
					t.Fatalf("%v: %s", err, w.Body)
				}
				if p.Code != pr.code || p.Status != pr.status || w.Code != pr.status || p.Retryable != pr.retry {
					t.Errorf("answered %d with %+v; want %s, %d, retryable %v", w.Code, p, pr.code, pr.status, pr.retry)
				}
				if p.Title == "" || p.Detail == "" {
					t.Errorf("title or detail is missing: %+v", p)
				}
				if got := w.Header().Get("Retry-After"); got != pr.after {
					t.Errorf("Retry-After is %q, want %q", got, pr.after)
				}
				if got := w.Result().Header["Idempotency-Code"]; !slices.Equal(got, []string{string(pr.code)}) {
					t.Errorf("Idempotency-Code is %q, want %q", got, pr.code)
				}
				if strings.Contains(exchangeText(w), "secret") {
					t.Errorf("the problem shows what is not the client's:\n%s", exchangeText(w))
				}
				matchGolden(t, filepath.Join("problem", pr.golden(&p)+".http"), exchangeText(w))
			})
		})
	}
}

func TestR27_RetryAfterOfARunThatHasJustBegunIsASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, nil, semel.Policy{})
		h := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }))
		go answer(h, post("k", `{}`))
		synctest.Wait()
		if got := answer(h, post("k", `{}`)).Header().Get("Retry-After"); got != "1" {
			t.Errorf("Retry-After is %q, want 1", got)
		}
		time.Sleep(time.Second)
	})
}

func TestEveryCodeHasItsProblemInTheTable(t *testing.T) {
	t.Parallel()
	var codes []refusal.Code
	for _, pr := range requirements {
		codes = append(codes, pr.code)
	}
	for _, code := range []refusal.Code{
		"IDEMPOTENCY_KEY_REQUIRED", "IDEMPOTENCY_KEY_INVALID", "IDEMPOTENCY_KEY_REUSED", "IDEMPOTENCY_IN_PROGRESS",
		"IDEMPOTENCY_OUTCOME_PENDING", "IDEMPOTENCY_OUTCOME_UNKNOWN", "IDEMPOTENCY_REPLAY_UNAVAILABLE",
		"IDEMPOTENCY_TOO_MANY_ATTEMPTS", "IDEMPOTENCY_TOO_MANY_KEYS", "IDEMPOTENCY_REPLAY_FORBIDDEN",
		"IDEMPOTENCY_BODY_TOO_LARGE", "IDEMPOTENCY_DIGEST_MISMATCH", "IDEMPOTENCY_EARLY_DATA", "IDEMPOTENCY_STORE_UNAVAILABLE",
		"IDEMPOTENCY_SCOPE_INVALID", "IDEMPOTENCY_REQUEST_UNREADABLE",
		"IDEMPOTENCY_BODY_CONSUMED",
	} {
		if !slices.Contains(codes, code) {
			t.Errorf("%s is not provoked", code)
		}
	}
}

func TestProblemsCanHaveOtherTypesAndStatuses(t *testing.T) {
	t.Parallel()
	for _, pr := range requirements {
		t.Run(string(pr.code)+pr.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := pr.provoke(t, func(o *semel.Options) {
					o.Problems.Base = "https://api.example.com/problems/"
					o.Problems.Status = map[refusal.Code]int{pr.code: 418}
				})
				var p semel.Problem
				if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
					t.Fatalf("%v: %s", err, w.Body)
				}
				if w.Code != 418 || p.Status != 418 || p.Code != pr.code {
					t.Errorf("answered %d with %+v, want 418", w.Code, p)
				}
				if !strings.HasPrefix(p.Type, "https://api.example.com/problems/") || strings.HasSuffix(p.Type, "/") {
					t.Errorf("the type is %q", p.Type)
				}
				if got := w.Header().Get("Retry-After"); got != pr.after {
					t.Errorf("Retry-After is %q, want %q", got, pr.after)
				}
			})
		})
	}
}

func TestR59a_ProblemsCanBeWrittenInAnotherForm(t *testing.T) {
	t.Parallel()
	for _, pr := range requirements {
		t.Run(string(pr.code)+pr.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := pr.provoke(t, func(o *semel.Options) {
					o.Problems.Write = func(w http.ResponseWriter, r *http.Request, p *semel.Problem) {
						w.Header().Set("Content-Type", "text/plain")
						w.WriteHeader(p.Status)
						fmt.Fprintf(w, "%s %s", r.Method, p.Code)
					}
				})
				if got, want := w.Body.String(), "POST "+string(pr.code); w.Code != pr.status || got != want {
					t.Errorf("answered %d %q, want %d %q", w.Code, got, pr.status, want)
				}
				h := w.Result().Header
				if h.Get("Retry-After") != pr.after || h.Get("X-Correlation-Id") != "c-1" || h.Get("Idempotency-Code") != string(pr.code) || h.Get("Content-Type") != "text/plain" {
					t.Errorf("the header is %v", h)
				}
			})
		})
	}
}

// The caller may go on using, and changing, what it gave to New.
func TestTheProblemStatusesAreTheGuardsOwn(t *testing.T) {
	t.Parallel()
	statuses := map[refusal.Code]int{refusal.KeyMissing: 418}
	g, _ := newGuardWith(t, nil, semel.Options{Problems: semel.ProblemOptions{Status: statuses}})
	statuses[refusal.KeyMissing] = 499
	if w := answer(g.Wrap(http.NotFoundHandler()), post("", `{}`)); w.Code != 418 {
		t.Errorf("answered %d, want 418", w.Code)
	}
}

func TestAProblemIsAnErrorOfItsCodeAlone(t *testing.T) {
	t.Parallel()
	codes := slices.Collect(maps.Keys(problemkind.Of))
	for _, code := range codes {
		p := &semel.Problem{Code: code, Title: "title", Detail: "detail"}
		for _, other := range codes {
			if got := errors.Is(fmt.Errorf("pay: %w", p), other); got != (other == code) {
				t.Errorf("errors.Is(%s, %s) is %v", code, other, got)
			}
		}
		if got, want := p.Error(), string(code)+": title: detail"; got != want {
			t.Errorf("the text is %q, want %q", got, want)
		}
	}
}

// The form of problems is a route's own where it says so, all of it, and that of all routes where it does not (R-76a).
func TestR76a_ProblemsByRoute(t *testing.T) {
	t.Parallel()
	status := map[refusal.Code]int{refusal.KeyMissing: 428}
	g, _ := newGuardWith(t, nil, semel.Options{Problems: semel.ProblemOptions{
		Base: "https://example.com/problems/", Status: map[refusal.Code]int{refusal.KeyMissing: 418, refusal.KeyReused: 409},
	}})
	own := &semel.ProblemOptions{Documentation: "https://example.com/keys", Status: status}
	written := &semel.ProblemOptions{Write: func(w http.ResponseWriter, _ *http.Request, p *semel.Problem) {
		w.WriteHeader(p.Status)
		io.WriteString(w, "own form: "+string(p.Code))
	}}
	routes := map[string]http.Handler{}
	for name, p := range map[string]semel.Policy{"common": {}, "own": {Problems: own}, "written": {Problems: written}} {
		routes[name] = g.Route(p).Wrap(say("paid"))
	}
	status[refusal.KeyMissing] = 499 // the caller may go on changing its own
	for _, c := range []struct {
		route, key, body string
		status           int
		want             string
	}{
		{"common", "", `{}`, 418, `"https://example.com/problems/key-missing"`},
		{"own", "", `{}`, 428, `"urn:semel:problem:key-missing"`},
		{"written", "", `{}`, 400, "own form: IDEMPOTENCY_KEY_REQUIRED"},
		{"common", "k", `{}`, 201, "paid"},
		{"common", "k", `{"n":1}`, 409, `"https://example.com/problems/key-reused"`},
		{"own", "k", `{"n":1}`, 422, `"urn:semel:problem:key-reused"`},
		{"written", "k", `{"n":1}`, 422, "own form: IDEMPOTENCY_KEY_REUSED"},
	} {
		w := answer(routes[c.route], post(c.key, c.body))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: answered %d %s, want %d and %s", c.route, w.Code, w.Body, c.status, c.want)
		}
		wantLink := ""
		if c.route == "own" && c.key == "" {
			wantLink = `<https://example.com/keys>; rel="describedby"`
		}
		if got := w.Header().Get("Link"); got != wantLink {
			t.Errorf("%s: Link %q, want %q", c.route, got, wantLink)
		}
	}
}

// A route may set the status of the answer to a client whose patience has passed, too.
func TestR76a_StatusOfPatienceByRoute(t *testing.T) {
	t.Parallel()
	for want, problems := range map[int]*semel.ProblemOptions{
		504: nil,
		502: {Status: map[refusal.Code]int{refusal.OutcomePending: 502}},
	} {
		synctest.Test(t, func(t *testing.T) {
			g, _ := newGuard(t, nil, semel.Policy{Patience: time.Second, Problems: problems})
			w := answer(g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Minute) })), post("k", `{}`))
			if w.Code != want || w.Header().Get("Retry-After") != "1" {
				t.Errorf("answered %d, Retry-After %q, want %d", w.Code, w.Header().Get("Retry-After"), want)
			}
			drained(t, g)
		})
	}
}

// A route's form of problems is checked with its policy; the error names where it stands.
func TestR76a_ProblemsOfAPolicyAreChecked(t *testing.T) {
	t.Parallel()
	p := semel.Policy{Problems: &semel.ProblemOptions{
		Base: "no base", Documentation: "<bad>", Status: map[refusal.Code]int{"NO_CODE": 400, refusal.KeyMissing: 200},
	}}
	err := p.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"policy: Problems.Base", "policy: Problems.Documentation", `policy: Problems.Status: unknown code "NO_CODE"`, "policy: Problems.Status: 200",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	g, _ := newGuard(t, nil, semel.Policy{})
	if got := thrownBy(func() { g.Route(p) }); !strings.Contains(got, "policy: Problems.Base") {
		t.Errorf("Route threw %q", got)
	}
	if got := (semel.Policy{Problems: &semel.ProblemOptions{}}).Validate(); got != nil {
		t.Errorf("the zero options: %v", got)
	}
}
