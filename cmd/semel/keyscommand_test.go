package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/internal/secret"
	"github.com/semelhq/semel/cmd/internal/stores"
	"github.com/semelhq/semel/keyring"
)

// A shop is a payment service under a guard, on a store in a file as the gateway has it.
type shop struct {
	t       *testing.T
	store   *stores.Opened
	address string
	secret  []byte
	guard   *semel.Guard
	handler http.Handler
	runs    int
}

// newShop returns a shop whose first run of each test is lost: its outcome is unknown.
func newShop(t *testing.T, p semel.Policy) *shop {
	t.Helper()
	for {
		s := newShopOn(t, "sqlite://"+filepath.Join(t.TempDir(), "semel.db"), "", nil, p)
		if !strings.HasPrefix(s.id(""), "-") { // else every test would have to say --, as users do
			return s
		}
	}
}

// newShopOn is newShop on a store of any kind.
func newShopOn(t *testing.T, address, cache string, ring *keyring.Ring, p semel.Policy) *shop {
	t.Helper()
	s := &shop{t: t, address: address}
	var err error
	if s.store, err = stores.Open(t.Context(), s.address, stores.Options{Cache: cache}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.store.Close(); err != nil {
			t.Error(err)
		}
	})
	if s.secret, err = secret.ForStore(t.Context(), s.store, "", slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	scope := semel.ScopeFunc(func(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil })
	s.guard, err = semel.New(s.store.Store, scope, p.OnLost, semel.Options{Policy: p, IdentitySecret: s.secret, Encryption: ring})
	if err != nil {
		t.Fatal(err)
	}
	s.handler = s.guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if s.runs++; s.runs == 1 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Location", "/payments/2")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "paid by run %d", s.runs)
	}))
	return s
}

// pay sends a request, and returns what came of it.
func (s *shop) pay(account, key string) *httptest.ResponseRecorder {
	return s.payFor(account, key, "")
}

// payFor is pay on behalf of a request that has a correlation id, unless it is "".
func (s *shop) payFor(account, key, correlation string) (w *httptest.ResponseRecorder) {
	defer func() { recover() }() //nolint:errcheck // how the lost run ended
	w = httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":1}`))
	r.Header.Set("X-Account", account)
	r.Header.Set("Idempotency-Key", key)
	if correlation != "" {
		r.Header.Set("X-Correlation-Id", correlation)
	}
	s.handler.ServeHTTP(w, r)
	return w
}

func (s *shop) id(key string) string {
	return semel.Identify(s.secret, semel.KindHTTP, "acme", key).String()
}

// keys runs "semel keys" on the shop's store.
func (s *shop) keys(args ...string) (status int, stdout, stderr string) {
	s.t.Helper()
	return run(s.t, append([]string{"keys", "--store", s.address}, args...)...)
}

// must is keys, which must succeed.
func (s *shop) must(args ...string) string {
	s.t.Helper()
	status, stdout, stderr := s.keys(args...)
	if status != 0 || stderr != "" {
		s.t.Fatalf("%v: exit status %d, standard error %q", args, status, stderr)
	}
	return stdout
}

func contains(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("it does not say %q:\n%s", w, text)
		}
	}
}

// An operator is told of a payment that nobody knows about, finds it by its key, decides, and the shop's clients get
// what was decided.
func TestR87_AnUnknownPaymentIsResolvedByCommandAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		decision       []string
		reads          string
		status         int
		body, location string
	}{
		{
			[]string{"complete", "--status", "200", "--header", "Location: /payments/1", "--header", "X-Many: a,b", "--header", "X-Many: c"},
			"done: repeats get its answer", 200, "", "/payments/1",
		},
		{[]string{"complete", "--no-answer"}, "done, without an answer", 409, "REPLAY_UNAVAILABLE", ""},
		{[]string{"release"}, "free: it was released", 201, "paid by run 2", "/payments/2"},
		{[]string{"forget"}, "absent: the key is new", 201, "paid by run 2", "/payments/2"},
	} {
		t.Run(strings.Join(c.decision, " "), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, semel.Policy{})
			s.pay("acme", `"order-1"`)
			if w := s.pay("acme", "order-1"); w.Code != http.StatusConflict {
				t.Fatalf("the payment is not unknown: %d %s", w.Code, w.Body)
			}
			id := s.id("order-1")
			contains(t, s.must("list", "--state", "unknown"), id, "unknown", "POST /payments")
			contains(t, s.must("find", `"order-1"`, "--scope", "acme"), id, "may have taken effect", "the handler did not return")
			if c.decision[0] != "complete" {
				c.decision = append(c.decision, "--yes")
			}
			out := s.must(append(c.decision, id, "--reason", "the bank says so", "--actor", "ann")...)
			contains(t, out, id, "was        unknown: it may have taken effect", "is         "+c.reads, "operation  POST /payments")
			if list := s.must("list", "--state", "unknown"); strings.Contains(list, id) {
				t.Errorf("it is still listed:\n%s", list)
			}
			w := s.pay("acme", "order-1")
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) || w.Header().Get("Location") != c.location {
				t.Errorf("a repeat got %d, Location %q, %q", w.Code, w.Header().Get("Location"), w.Body)
			}
			_, shown, _ := s.keys("show", id)
			contains(t, shown, c.decision[0]+" by ann: the bank says so (asked)", c.decision[0]+" by ann: the bank says so (done)")
		})
	}
}

func TestR87_TheAnswersBodyComesFromAFileOrStandardInput(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "answer")
	if err := os.WriteFile(file, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]string{file: "from a file", "-": "from standard input"} {
		s := newShop(t, semel.Policy{})
		s.pay("acme", "k")
		var stdout, stderr output
		m := Main{Stdout: &stdout, Stderr: &stderr, Stdin: strings.NewReader("from standard input")}
		status := m.Run(t.Context(), []string{
			"keys", "complete", "--store", s.address, s.id("k"), "--status", "201", "--header", "Content-Type: text/plain",
			"--body-file", from, "--reason", "charged",
		})
		if status != 0 {
			t.Fatalf("exit status %d: %s", status, stderr.String())
		}
		w := s.pay("acme", "k")
		if w.Code != 201 || w.Body.String() != want || w.Header().Get("Content-Type") != "text/plain" || w.Header().Get("Idempotent-Replayed") != "true" {
			t.Errorf("a repeat got %d %v %q", w.Code, w.Header(), w.Body)
		}
	}
}

func TestR87_AnOperationIsDecidedByItsKey(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Policy{})
	s.pay("acme", "k")
	contains(t, s.must("release", "--key", `"k"`, "--scope", "acme", "--reason", "nothing happened", "--yes"), s.id("k"), "is         free")
	s.must("forget", "--key", "k", "--scope", "acme", "--reason", "test data")
	status, stdout, stderr := s.keys("find", "k", "--scope", "acme")
	if status != 1 {
		t.Errorf("a forgotten one is found: exit status %d", status)
	}
	contains(t, stderr, "no such operation", "--single", "--operation", "--kind do")
	contains(t, stdout, "absent: the key is new", "forget by ", "test data", "release by ")
	if actor := regexp.MustCompile(`forget by (\S+@\S+): test data`); !actor.MatchString(stdout) {
		t.Errorf("it does not say who decided, at which machine:\n%s", stdout)
	}
}

func TestR87_ARunningOperationIsDecidedAboutByForceOnly(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Policy{})
	begun, end := make(chan struct{}), make(chan struct{})
	h := s.guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-end
		w.Write([]byte("late"))
	}))
	r := httptest.NewRequest(http.MethodPost, "/payments", nil)
	r.Header.Set("X-Account", "acme")
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.ServeHTTP(w, r)
	}()
	<-begun
	contains(t, s.must("list", "--state", "running"), s.id("k"))
	status, stdout, stderr := s.keys("complete", s.id("k"), "--status", "201", "--reason", "impatient")
	if status != 1 || stdout != "" {
		t.Errorf("exit status %d, printed %q", status, stdout)
	}
	contains(t, stderr, "a run is at work", "--force")
	contains(t, s.must("complete", s.id("k"), "--status", "201", "--reason", "it hangs", "--force"), "was        running", "is         done")
	close(end)
	<-ended
	if strings.Contains(w.Body.String(), "late") {
		t.Errorf("the late run's answer has reached its client: %d %s", w.Code, w.Body)
	}
	contains(t, s.must("show", s.id("k")), "status 201", "impatient (refused: a run is at work)", "it hangs (done)")
}

// What the tool makes of a key is what guards make of it, whatever the route.
func TestR15_AKeyIsFoundAsTheGuardHasStoredIt(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Policy{})
	s.runs = 1 // none is lost
	route := s.guard.Route(semel.Policy{PerOperation: true, Methods: []string{http.MethodPut}}).
		Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	r := httptest.NewRequest(http.MethodPut, "/orders/a%2Fb?x=1", nil)
	r.Header.Set("X-Account", "acme")
	r.Header.Set("Idempotency-Key", `"order-7"`)
	route.ServeHTTP(httptest.NewRecorder(), r)
	for _, p := range []semel.Policy{{Operation: "charge"}, {Operation: "refund", PerOperation: true}} {
		_, err := semel.Do(t.Context(), s.guard.Route(p), semel.Key{Scope: "acme", Value: "job-" + p.Operation}, semel.Bytes("x"),
			func(context.Context) (int, error) { return 1, nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{`"quoted"`, "bare", ` "padded" `, `"with";a=1;b="c"`} {
		if w := s.pay("acme", key); w.Code != 201 {
			t.Fatalf("%s: %d %s", key, w.Code, w.Body)
		}
		if w := s.pay("single", key); w.Code != 201 {
			t.Fatalf("%s: %d %s", key, w.Code, w.Body)
		}
	}
	for _, c := range []struct {
		args  []string
		found bool
	}{
		{[]string{"quoted", "--scope", "acme"}, true},
		{[]string{`"quoted"`, "--scope", "acme"}, true},
		{[]string{`"bare"`, "--single"}, true},
		{[]string{"padded", "--single"}, true},
		{[]string{"with", "--scope", "acme"}, true},
		{[]string{`"with"; x`, "--scope", "acme"}, true},
		{[]string{"Quoted", "--scope", "acme"}, false},
		{[]string{"quoted", "--scope", "ACME"}, false},
		{[]string{"quoted", "--scope", "acme", "--kind", "do"}, false},
		{[]string{"order-7", "--scope", "acme"}, false},
		{[]string{"order-7", "--scope", "acme", "--operation", "PUT /orders/a%2Fb"}, true},
		{[]string{"order-7", "--scope", "acme", "--operation", "POST /orders/a%2Fb"}, false},
		{[]string{"order-7", "--scope", "acme", "--operation", "PUT /orders/a/b"}, false},
		{[]string{"job-charge", "--scope", "acme", "--kind", "do"}, true},
		{[]string{"job-refund", "--scope", "acme", "--kind", "do"}, false},
		{[]string{"job-refund", "--scope", "acme", "--kind", "do", "--operation", "refund"}, true},
		{[]string{"job-refund", "--scope", "acme", "--kind", "message"}, false},
	} {
		status, stdout, stderr := s.keys(append([]string{"find"}, c.args...)...)
		if c.found && (status != 0 || !strings.Contains(stdout, "done")) || !c.found && (status != 1 || stdout != "") {
			t.Errorf("%q: exit status %d, want it found: %v\n%s%s", c.args, status, c.found, stdout, stderr)
		}
		if !c.found {
			contains(t, stderr, "no such operation")
		}
	}
}

func TestR15_AKeyIsNotLookedForUnderAnotherSecret(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Policy{})
	s.pay("acme", "k")
	other := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(other, []byte("another-secret-of-some-length"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, _, stderr := s.keys("find", "k", "--scope", "acme", "--identity-secret-file", other)
	if status != 1 {
		t.Errorf("exit status %d", status)
	}
	contains(t, stderr, other, "made with another identity secret")
	if err := os.Remove(s.store.Path + ".secret"); err != nil {
		t.Fatal(err)
	}
	status, _, stderr = s.keys("release", "--key", "k", "--scope", "acme", "--reason", "x")
	if status != 1 {
		t.Errorf("exit status %d", status)
	}
	contains(t, stderr, s.store.Path+".secret is missing")
	contains(t, s.must("show", s.id("k")), "unknown") // which needs no secret
}

func TestR87_ListSelects(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Policy{})
	s.pay("acme", "lost")
	for _, account := range []string{"acme", "umbrella"} {
		for i := range 3 {
			s.pay(account, fmt.Sprint("done-", i))
		}
	}
	named := s.guard.Route(semel.Policy{Operation: "POST /refunds"}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable) // released
	}))
	r := httptest.NewRequest(http.MethodPost, "/refunds/1", nil)
	r.Header.Set("X-Account", "acme")
	r.Header.Set("Idempotency-Key", "free")
	named.ServeHTTP(httptest.NewRecorder(), r)
	for _, c := range []struct {
		args []string
		want int
	}{
		{nil, 8},
		{[]string{"--state", "unknown"}, 1},
		{[]string{"--state", "done"}, 6},
		{[]string{"--state", "free"}, 1},
		{[]string{"--state", "running"}, 0},
		{[]string{"--scope", "umbrella"}, 3},
		{[]string{"--scope", "acme", "--state", "done"}, 3},
		{[]string{"--scope", "acme", "--kind", "do"}, 0},
		{[]string{"--single"}, 0},
		{[]string{"--operation", "POST /payments"}, 7},
		{[]string{"--operation", "POST /refunds"}, 1},
		{[]string{"--limit", "8"}, 8},
		{[]string{"--limit", "0"}, 8},
	} {
		var views []operationView
		if err := json.Unmarshal([]byte(s.must(append([]string{"list", "--json"}, c.args...)...)), &views); err != nil {
			t.Fatal(err)
		}
		if len(views) != c.want || views == nil {
			t.Errorf("%v: %d listed, want %d", c.args, len(views), c.want)
		}
		table := s.must(append([]string{"list"}, c.args...)...)
		if lines := strings.Count(table, "\n"); lines != c.want+1 || !strings.HasPrefix(table, "ID ") {
			t.Errorf("%v: %d lines, want a heading and %d:\n%s", c.args, lines, c.want, table)
		}
	}
	status, stdout, stderr := s.keys("list", "--limit", "3")
	if status != 0 || strings.Count(stdout, "\n") != 4 || !strings.Contains(stderr, "3 of 8") {
		t.Errorf("exit status %d, %q\n%s", status, stderr, stdout)
	}
}

// Scripts get one object, whose names stay.
func TestR87_JSONForScripts(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Policy{})
	s.pay("acme", "lost")
	s.pay("acme", "paid")
	names := func(text string) []string {
		t.Helper()
		var object map[string]any
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		var list []string
		for name := range object {
			list = append(list, name)
		}
		slices.Sort(list)
		return list
	}
	all := []string{
		"answer", "attempts", "begun", "correlation", "created", "error", "expires", "fence", "id", "lease_end", "maybe", "now",
		"on_lost", "operation", "owed", "reads", "retention_seconds", "sealed", "seized", "settled", "started", "state", "steps",
	}
	if got := names(s.must("show", "--json", s.id("paid"))); !slices.Equal(got, all) {
		t.Errorf("show has %v", got)
	}
	var paid struct {
		Reads     string
		Retention int64 `json:"retention_seconds"`
		Settled   string
		Answer    struct {
			Status   int
			Header   map[string][]string
			BodySize int    `json:"body_size"`
			Body     string `json:"body"`
		}
	}
	text := s.must("--json", "show", s.id("paid"), "--body")
	if err := json.Unmarshal([]byte(text), &paid); err != nil {
		t.Fatal(err)
	}
	if paid.Reads != "done" || paid.Retention != 86400 || paid.Answer.Status != 201 || paid.Answer.Header["Location"][0] != "/payments/2" ||
		paid.Answer.Body != "paid by run 2" || paid.Answer.BodySize != 13 || !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`).MatchString(paid.Settled) {
		t.Errorf("show says\n%s", text)
	}
	change := s.must("forget", "--json", s.id("lost"), "--reason", "x", "--force")
	if got := names(change); !slices.Equal(got, []string{"action", "after", "before"}) {
		t.Errorf("forget has %v", got)
	}
	contains(t, change, `"after": null`, `"action": "forget"`, `"reads": "unknown"`)
	status, text, _ := s.keys("show", "--json", s.id("lost"))
	if status != 1 || !slices.Contains(names(text), "decisions") {
		t.Errorf("a forgotten one: exit status %d\n%s", status, text)
	}
	if status, text, _ := s.keys("show", "--json", s.id("never seen")); status != 1 || text != "" {
		t.Errorf("one never seen: exit status %d\n%s", status, text)
	}
}

func TestAttack09_R87_AnswersAreHiddenUnlessAskedForAndThatIsKept(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Policy{})
	s.pay("acme", "lost")
	s.pay("acme", "paid")
	for _, args := range [][]string{{"show", s.id("paid")}, {"show", s.id("paid"), "--json"}, {"find", "paid", "--scope", "acme"}, {"list"}, {"list", "--json"}} {
		if out := s.must(args...); strings.Contains(out, "paid by run") {
			t.Errorf("%v shows the body:\n%s", args, out)
		}
	}
	contains(t, s.must("show", s.id("paid")), "status 201, body of 13 bytes (hidden; --body prints it)", "Location: (hidden)", "Content-Type: text/plain")
	contains(t, s.must("show", s.id("paid"), "--body", "--actor", "ana"), "\n\npaid by run 2\n", "Location: /payments/2", "show by ana: --body (done)")
}

// One id in 64 begins with a dash, as flags do.
func TestAnIDMayBeginWithADash(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Policy{})
	s.runs = 1
	for i := 0; ; i++ {
		account := fmt.Sprint("account-", i) // the id begins with the scope's part
		id := semel.Identify(s.secret, semel.KindHTTP, account, "k").String()
		if id[0] != '-' {
			continue
		}
		s.pay(account, "k")
		contains(t, s.must("show", id, "--body"), id, "paid by run")
		contains(t, s.must("show", "--", id), id)
		contains(t, s.must("forget", id, "--reason", "-", "--force"), id)
		return
	}
}

func TestAMisspeltStoreIsNotMade(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct{ store, says string }{
		{"sqlite://" + dir + "/none.db", "there is no file " + dir + "/none.db"},
		{"sqlite://" + dir + "/none/semel.db", "there is no file"},
		{"sqlite://" + dir, "is a folder"},
		{"memory://", "can't be looked at from another"},
		{"mysql://127.0.0.1", "unknown kind"},
		{"sqlite://", "needs the path"},
	} {
		for _, command := range [][]string{
			{"keys", "list"}, {"keys", "find", "k", "--single"}, {"keys", "release", "--key", "k", "--single", "--reason", "x"}, {"migrate"},
		} {
			status, stdout, stderr := run(t, append(command, "--store", c.store)...)
			if status != 1 || stdout != "" {
				t.Errorf("%v --store %s: exit status %d, %q", command, c.store, status, stdout)
			}
			contains(t, stderr, c.says)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the folder holds %v, %v", left, err)
	}
}

func TestWrongUseOfKeys(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Policy{})
	s.pay("acme", "k")
	id := s.id("k")
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{}, "expected one of"},
		{[]string{"find"}, "<what>"},
		{[]string{"find", ""}, "empty"},
		{[]string{"find", "k", "--kind", "do"}, "--scope=PRINCIPAL or --single"},
		{[]string{"find", "k", "--operation", "POST /payments"}, "--scope=PRINCIPAL or --single"},
		{[]string{"find", "k", "--scope", "a", "--single"}, "--scope and --single"},
		{[]string{"find", "k", "--single", "--kind", "job"}, "--kind"},
		{[]string{"find", "a b", "--single"}, "IDEMPOTENCY_KEY_INVALID: character ' '"},
		{[]string{"find", `"open`, "--single"}, "quote is not closed"},
		{[]string{"find", "a b", "--single", "--kind", "do"}, "is not allowed"},
		{[]string{"find", "", "--single"}, "empty"},
		{[]string{"find", "k", "--single", "--operation", "payments"}, "want the request's method and path"},
		{[]string{"find", "k", "--single", "--operation", "GET /payments"}, "safe method"},
		{[]string{"find", "k", "--single", "--operation", "POST /%zz"}, "%zz"},
		{[]string{"find", "k", "--single", "--kind", "saga", "--operation", "x"}, "--operation goes with"},
		{[]string{"list", "--state", "lost"}, "--state"},
		{[]string{"list", "--limit=-1"}, "--limit is negative"},
		{[]string{"list", "--order", "time"}, "--order"},
		{[]string{"list", "--since", "yesterday"}, "--since \"yesterday\""},
		{[]string{"list", "--since=-1h"}, "--since \"-1h\""},
		{[]string{"list", "--since", "2026-11-29"}, "--since \"2026-11-29\""},
		{[]string{"list", "--scope", "a", "--single"}, "--scope and --single"},
		{[]string{"show"}, "<id>"},
		{[]string{"show", "k"}, "parse operation id"},
		{[]string{"release", id}, "--reason"},
		{[]string{"release", id, "--reason", " "}, "--reason is empty"},
		{[]string{"release", id, "--reason", "two\nlines"}, "one line"},
		{[]string{"release", id, "--reason", "x", "--actor", "\x1b[2J"}, "one line"},
		{[]string{"release", "--reason", "x"}, "say which operation"},
		{[]string{"release", id, "--key", "k", "--single", "--reason", "x"}, "an id says it all"},
		{[]string{"release", id, "--single", "--reason", "x"}, "an id says it all"},
		{[]string{"release", "--key", "k", "--reason", "x"}, "--scope=PRINCIPAL or --single"},
		{[]string{"release", id, "--status", "200", "--reason", "x"}, "--status"},
		{[]string{"complete", id, "--reason", "x"}, "--status=N"},
		{[]string{"complete", id, "--status", "200"}, "--reason"},
		{[]string{"complete", "--status", "200", "--reason", "x"}, "say which operation"},
		{[]string{"complete", id, "--status", "200", "--no-answer", "--reason", "x"}, "--no-answer contradicts"},
		{[]string{"complete", id, "--status", "100", "--reason", "x"}, "want 200 to 599"},
		{[]string{"complete", id, "--status", "200", "--header", "Location", "--reason", "x"}, "want NAME: VALUE"},
		{[]string{"complete", id, "--status", "200", "--header", "Set-Cookie: a=b", "--reason", "x"}, "never replayed"},
	} {
		status, stdout, stderr := s.keys(c.args...)
		if status != 2 || stdout != "" {
			t.Errorf("%q: exit status %d, want 2; printed %q\n%s", c.args, status, stdout, stderr)
		}
		contains(t, stderr, c.says, "semel keys", `--help" to see`)
	}
	contains(t, s.must("show", id), "unknown")
	if out := s.must("show", id); strings.Contains(out, "decisions") {
		t.Errorf("wrong use stands in the audit trail:\n%s", out)
	}
	status, _, stderr := s.keys("complete", id, "--status", "200", "--body-file", filepath.Join(t.TempDir(), "none"), "--reason", "x")
	if status != 1 || !strings.Contains(stderr, "no such file") {
		t.Errorf("a body file that does not exist: exit status %d: %s", status, stderr)
	}
}

func TestHelpOfKeysAndMigrateIsComplete(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args, says []string
	}{
		{[]string{"--help"}, []string{"keys", "migrate"}},
		{[]string{"keys", "--help"}, []string{"find", "list", "show", "complete", "release", "forget", "unknown", "exit status", "--store", "--json"}},
		{[]string{"keys", "find", "--help"}, []string{"Examples:", "--scope", "--single", "--kind", "--operation", "--identity-secret-file", "8 characters", "correlation id"}},
		{[]string{"keys", "list", "--help"}, []string{"Examples:", "--state", "--operation", "--scope", "--limit", "--since", "--order", "reads every record"}},
		{[]string{"keys", "show", "--help"}, []string{"--body"}},
		{[]string{"keys", "complete", "--help"}, []string{"Examples:", "--status", "--header", "--body-file", "--no-answer", "--reason", "--actor", "--force"}},
		{[]string{"keys", "release", "--help"}, []string{"Examples:", "promise", "--yes", "exit status 2"}},
		{[]string{"keys", "forget", "--help"}, []string{"Examples:", "new", "not undone", "late one", "--yes", "--force", "exit status 2"}},
		{[]string{"migrate", "--help"}, []string{"Examples:", "--print", "--files", "--from", "--store"}},
	} {
		status, stdout, stderr := run(t, c.args...)
		if status != 0 || stderr != "" {
			t.Errorf("%v: exit status %d, standard error %q", c.args, status, stderr)
		}
		contains(t, stdout, c.says...)
		for line := range strings.SplitSeq(stdout, "\n") {
			if len([]rune(line)) > 100 {
				t.Errorf("%v: a line of %d columns: %s", c.args, len([]rune(line)), line)
			}
		}
	}
}

// An output that can't be written is a failure, not a success without output.
func TestOutputThatIsLostIsAFailure(t *testing.T) {
	t.Parallel()
	s := newShop(t, semel.Policy{})
	s.pay("acme", "k")
	for _, args := range [][]string{{"list"}, {"list", "--json"}, {"show", s.id("k")}, {"show", s.id("k"), "--json"}} {
		var stderr output
		m := Main{Stdout: full{}, Stderr: &stderr}
		if status := m.Run(t.Context(), append([]string{"keys", "--store", s.address}, args...)); status != 1 || !strings.Contains(stderr.String(), "no space") {
			t.Errorf("%v: exit status %d, %q", args, status, stderr.String())
		}
	}
}

// full is an output on a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }
