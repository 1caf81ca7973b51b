package semel_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

func comparing(names ...string) semel.Policy { return semel.Policy{Credentials: names} }

// What a repeat must have in common with the first request, and what not.
func TestAttack01_R14_ARepeatNeedsTheCredentialsOfTheFirstRequest(t *testing.T) {
	t.Parallel()
	names := []string{"authorization", "X-Api-Key", "cookie:session"}
	for _, c := range []struct {
		name          string
		first, repeat []string
		same          bool
	}{
		{"the same", []string{"Authorization", "Bearer a"}, []string{"Authorization", "Bearer a"}, true},
		{"none, twice", nil, nil, true},
		{"none any more", []string{"Authorization", "Bearer a"}, nil, false},
		{"some, after none", nil, []string{"Authorization", "Bearer a"}, false},
		{"another's", []string{"Authorization", "Bearer a"}, []string{"Authorization", "Bearer b"}, false},
		{"an empty one is not none", nil, []string{"Authorization", ""}, false},
		{"two of them", []string{"Authorization", "a"}, []string{"Authorization", "a", "Authorization", "a"}, false},
		{"one in two lines", []string{"Authorization", "ab"}, []string{"Authorization", "a", "Authorization", "b"}, false},
		{"in another header", []string{"Authorization", "a"}, []string{"X-Api-Key", "a"}, false},
		{"another header besides", []string{"Authorization", "a"}, []string{"Authorization", "a", "X-Api-Key", "b"}, false},
		{"the cookie", []string{"Cookie", "session=1; seen=3"}, []string{"Cookie", "theme=dark; session=1"}, true},
		{"another cookie", []string{"Cookie", "session=1"}, []string{"Cookie", "session=2"}, false},
		{"a second cookie of the name", []string{"Cookie", "session=1"}, []string{"Cookie", "session=1; session=2"}, false},
		{"no cookie any more", []string{"Cookie", "session=1"}, nil, false},
		{"a header that is not named", []string{"X-Trace", "1"}, []string{"X-Trace", "2"}, true},
	} {
		l := &ledger{}
		g, seen := newGuard(t, nil, comparing(names...))
		h := g.Wrap(http.HandlerFunc(l.pay))
		first := answer(h, post("k", "{}", c.first...))
		if first.Code != 201 || first.Header()[":credentials"] != nil {
			t.Errorf("%s: the first answer is %d %v", c.name, first.Code, first.Header())
		}
		w := answer(h, post("k", "{}", c.repeat...))
		if replayed := w.Header().Get("Idempotent-Replayed") == "true"; replayed != c.same || l.count() != 1 {
			t.Errorf("%s: %d, replayed %v, %d effects; want replayed %v, 1 effect", c.name, w.Code, replayed, l.count(), c.same)
		}
		if w.Header()[":credentials"] != nil {
			t.Errorf("%s: the digest is sent: %v", c.name, w.Header())
		}
		if !c.same {
			wantProblem(t, w, 403, refusal.ReplayForbidden)
			if last := seen.last(); last.Result != event.Refused || strings.Contains(w.Body.String(), "payment") || w.Header().Get("Location") != "" {
				t.Errorf("%s: decided %v, shown %v %s", c.name, last.Result, w.Header(), w.Body)
			}
			wantAnswer(t, answer(h, post("k", "{}", c.first...)), 201, "payment 1", true)
		}
	}
}

// Of credentials a digest is stored, under the secret and for one operation only.
func TestAttack01_R15_CredentialsAreStoredAsAKeyedDigest(t *testing.T) {
	t.Parallel()
	digest := func(secret, key string) string {
		store := memstore.New()
		g, _ := newGuardWith(t, store, semel.Options{IdentitySecret: []byte(secret), Policy: comparing("Authorization")})
		answer(g.Wrap(http.HandlerFunc((&ledger{}).pay)), post(key, "{}", "Authorization", "Bearer hunter2"))
		kept := only(t, store).Response.Header[":credentials"]
		if len(kept) != 2 || len(kept[0]) != 22 || kept[1] != "Authorization" {
			t.Fatalf("stored %q", kept)
		}
		return kept[0]
	}
	one := digest("a secret of 24 bytes....", "k")
	if one != digest("a secret of 24 bytes....", "k") {
		t.Error("the digest of the same differs")
	}
	if one == digest("another one of 24 bytes.", "k") {
		t.Error("the secret does not matter")
	}
	if one == digest("a secret of 24 bytes....", "l") {
		t.Error("two operations of one client have the same digest")
	}
}

// It is compared by what the first request's policy named.
func TestAttack01_CredentialsAreComparedByTheNamesThatTheAnswerWasStoredUnder(t *testing.T) {
	t.Parallel()
	store, l := memstore.New(), &ledger{}
	h := func(p semel.Policy) http.Handler {
		g, _ := newGuard(t, store, p)
		return g.Wrap(http.HandlerFunc(l.pay))
	}
	answer(h(comparing("Authorization")), post("k", "{}", "Authorization", "a"))
	renamed := h(comparing("X-Api-Key"))
	wantAnswer(t, answer(renamed, post("k", "{}", "Authorization", "a", "X-Api-Key", "b")), 201, "payment 1", true)
	wantProblem(t, answer(renamed, post("k", "{}", "X-Api-Key", "b")), 403, refusal.ReplayForbidden)
	w := answer(h(comparing()), post("k", "{}"))
	wantAnswer(t, w, 201, "payment 1", true)
	if w.Header()[":credentials"] != nil {
		t.Errorf("the digest is sent: %v", w.Header())
	}

	// Whose an answer is that was stored without credentials can't be told.
	answer(h(comparing()), post("old", "{}", "Authorization", "a"))
	wantProblem(t, answer(renamed, post("old", "{}", "Authorization", "a")), 403, refusal.ReplayForbidden)
	if l.count() != 2 {
		t.Errorf("%d effects, want 2", l.count())
	}
}

func TestAttack01_AuthorizeReplayDecidesAboutOtherCredentialsOnly(t *testing.T) {
	t.Parallel()
	asked := 0
	p := comparing("Authorization")
	p.AuthorizeReplay = func(r *http.Request) error {
		asked++
		if r.Header.Get("Authorization") == "renewed" {
			return nil
		}
		return http.ErrNoCookie
	}
	g, _ := newGuard(t, nil, p)
	h := g.Wrap(http.HandlerFunc((&ledger{}).pay))
	answer(h, post("k", "{}", "Authorization", "a"))
	for _, c := range []struct {
		credentials string
		given       bool
		asked       int
	}{{"a", true, 0}, {"renewed", true, 1}, {"mallory", false, 2}} {
		w := answer(h, post("k", "{}", "Authorization", c.credentials))
		if given := w.Code == 201; given != c.given || asked != c.asked {
			t.Errorf("%s: %d, asked %d times; want given %v, %d", c.credentials, w.Code, asked, c.given, c.asked)
		}
	}
}

// Who can't be asked has refused nobody for good, and FailOpen does not open for it.
func TestAttack01_R14_AuthorizeReplayMayNotBeAbleToTell(t *testing.T) {
	t.Parallel()
	p := comparing("Authorization")
	p.FailOpen, p.AuthorizeReplay = true, func(*http.Request) error { return fmt.Errorf("ask: %w", refusal.OutcomePending) }
	g, _ := newGuard(t, nil, p)
	l := &ledger{}
	h := g.Wrap(http.HandlerFunc(l.pay))
	answer(h, post("k", "{}", "Authorization", "a"))
	w := answer(h, post("k", "{}", "Authorization", "b"))
	wantProblem(t, w, 503, refusal.OutcomePending)
	if w.Header().Get("Retry-After") != "1" || l.count() != 1 {
		t.Errorf("Retry-After %q, %d effects", w.Header().Get("Retry-After"), l.count())
	}
}

// Encryption, and a compressed body, change nothing about it.
func TestAttack01_CredentialsOutlastEncryption(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	p := comparing("Authorization")
	p.CompressAbove = 1
	g, _ := newGuardWith(t, store, semel.Options{Encryption: newTestKeyring(t), Policy: p})
	h := g.Wrap(http.HandlerFunc((&ledger{}).pay))
	answer(h, post("k", "{}", "Authorization", "a"))
	if kept := only(t, store).Response.Header; len(kept) != 0 {
		t.Errorf("stored in the clear: %v", kept)
	}
	wantProblem(t, answer(h, post("k", "{}", "Authorization", "b")), 403, refusal.ReplayForbidden)
	wantAnswer(t, answer(h, post("k", "{}", "Authorization", "a")), 201, "payment 1", true)
}

// An answer that a completer has brought about is its client's, whose credentials nobody has stored.
func TestAttack01_R52_AnAnswerOfACompleterIsItsClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem, p := memstore.New(), finishing()
		p.Credentials = []string{"Authorization"}
		_, end := abandon(t, mem, p, post("k", "{}", "Authorization", "a"))
		defer end()
		var got http.Header
		g, _ := newFinishing(t, mem, p)
		h := http.NewServeMux()
		h.Handle("POST /payments", g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = r.Header.Clone()
			w.WriteHeader(http.StatusCreated)
		})))
		stop := finish(t, g, h, semel.CompleterOptions{})
		time.Sleep(10 * time.Minute)
		stop()
		if got == nil || got[":credentials"] != nil || got.Get("Authorization") != "" {
			t.Errorf("the completer's request has %v", got)
		}
		wantProblem(t, answer(h, post("k", "{}", "Authorization", "b")), 403, refusal.ReplayForbidden)
		wantAnswer(t, answer(h, post("k", "{}", "Authorization", "a")), 201, "", true)
	})
}

// Neither status nor answer of an operation that has ended is for other credentials.
func TestAttack01_R33_QuestionsAskForTheSameCredentials(t *testing.T) {
	t.Parallel()
	g, ask, _ := linkedGuard(t, nil, semel.Options{})
	h := g.Route(comparing("Authorization")).Wrap(http.HandlerFunc((&ledger{}).pay))
	answer(h, post("k", "{}", "Authorization", "a"))
	id := "/" + keyed("k").String()
	for _, path := range []string{"", id, id + "/result"} {
		for _, other := range [][]string{nil, {"Authorization", "b"}} {
			w := answer(ask, about(path, append([]string{"Idempotency-Key", "k"}, other...)...))
			wantProblem(t, w, 403, refusal.ReplayForbidden)
			if strings.Contains(w.Body.String(), "payment") || strings.Contains(w.Body.String(), "succeeded") {
				t.Errorf("%q is told %s", other, w.Body)
			}
		}
	}
	d := statusOf(t, answer(ask, about("", "Idempotency-Key", "k", "Authorization", "a")), 200)
	if d.State != "succeeded" || d.Result == nil || d.Result.Location != "/payments/1" {
		t.Errorf("its own client is told %+v", d)
	}
	wantAnswer(t, answer(ask, about(id+"/result", "Authorization", "a")), 201, "payment 1", true)
}

// Keys can be guessed only so often, and nobody else is refused for it.
func TestAttack01_R60_GuessesOfKeysAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(20 * time.Second)
		g, ask, _ := linkedGuard(t, nil, semel.Options{MaxAttempts: 5})
		answer(g.Wrap(http.HandlerFunc((&ledger{}).pay)), post("k", "{}"))
		from := func(peer string, r *http.Request) *http.Request {
			r.RemoteAddr = peer
			return r
		}
		guess := func(peer, key string, header ...string) *httptest.ResponseRecorder {
			return answer(ask, from(peer, about("", append([]string{"Idempotency-Key", key}, header...)...)))
		}
		for i := range 5 {
			statusOf(t, guess("192.0.2.7:80", "k"), 200) // what is there does not count
			wantProblem(t, guess("192.0.2.7:80", strings.Repeat("x", i+1)), 404, refusal.OperationNotFound)
		}
		w := guess("[::ffff:192.0.2.7]:81", "k")
		wantProblem(t, w, 429, refusal.TooManyAttempts)
		if got := w.Header().Get("Retry-After"); got != "40" {
			t.Errorf("Retry-After is %q, want 40", got)
		}
		statusOf(t, guess("192.0.2.8:80", "k"), 200)
		wantProblem(t, guess("192.0.2.7:80", "k", "X-Principal", "bob"), 404, refusal.OperationNotFound)
		time.Sleep(40 * time.Second)
		statusOf(t, guess("192.0.2.7:80", "k"), 200)

		// Of IPv6 a client has a whole network; ids can be guessed too.
		for i := range 5 {
			r := about("/" + keyed("unknown"+strings.Repeat("x", i)).String())
			wantProblem(t, answer(ask, from("[2001:db8::"+string(rune('1'+i))+"]:80", r)), 404, refusal.OperationNotFound)
		}
		wantProblem(t, guess("[2001:db8::ffff]:80", "k"), 429, refusal.TooManyAttempts)
		statusOf(t, guess("[2001:db8:0:1::1]:80", "k"), 200)
	})
}
