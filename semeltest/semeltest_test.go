package semeltest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/semeltest"
)

// substitute stands for a test that is expected to fail.
type substitute struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (s *substitute) Helper()          {}
func (s *substitute) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }
func (s *substitute) Errorf(format string, a ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, fmt.Sprintf(format, a...))
}

func (s *substitute) Fatalf(format string, a ...any) {
	s.Errorf(format, a...)
	panic(s)
}

// counter is a handler with an effect.
type counter struct{ n atomic.Int64 }

func (c *counter) effects() int { return int(c.n.Load()) }

func (c *counter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "payment %d", c.n.Add(1))
}

func payment() *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":5}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "k")
	return r
}

func TestAssertOncePassesForAGuardedHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, p := range []semel.Policy{{}, {OnLost: semel.Rerun}, {Wait: 5 * time.Second}} {
			var c counter
			if !semeltest.AssertOnce(t, semeltest.New(t, p).Wrap(&c), payment, c.effects) {
				t.Errorf("%+v: AssertOnce returns false", p)
			}
		}
	})
}

func TestAssertOnceFailsForWhatIsNotOnce(t *testing.T) {
	t.Parallel()
	marked := func(status int, body func() string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Idempotent-Replayed", "true")
			w.WriteHeader(status)
			io.WriteString(w, body())
		})
	}
	// firstThen answers the first request by one handler, and all others by another.
	firstThen := func(first, others http.Handler) http.Handler {
		var n atomic.Int64
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) == 1 {
				first.ServeHTTP(w, r)
				return
			}
			others.ServeHTTP(w, r)
		})
	}
	var c counter
	for name, tc := range map[string]struct {
		h    http.Handler
		make func() *http.Request
		want string
	}{
		"unguarded": {&c, payment, "10 ran, want 1"},
		"unguarded, marks": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Idempotent-Replayed", "true")
			c.ServeHTTP(w, r)
		}), payment, "none was the first"},
		"no key": {semeltest.New(t, semel.Policy{KeyOptional: true}).Wrap(&c), func() *http.Request {
			r := payment()
			r.Header.Del("Idempotency-Key")
			return r
		}, "ran, want 1"},
		"another body":   {firstThen(&c, marked(201, func() string { return "payment 0" })), payment, "want the first answer"},
		"another status": {firstThen(&c, marked(200, func() string { return fmt.Sprintf("payment %d", c.effects()) })), payment, "want the first answer"},
		"effects besides": {firstThen(&c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text := fmt.Sprintf("payment %d", c.effects())
			c.ServeHTTP(httptest.NewRecorder(), r)
			marked(201, func() string { return text }).ServeHTTP(w, r)
		})), payment, "effects, want 1"},
		"unmarked repeats": {firstThen(&c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })), payment, "not marked"},
		"in progress for ever": {firstThen(&c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(409)
			io.WriteString(w, `{"code":"IDEMPOTENCY_IN_PROGRESS"}`)
		})), payment, "not marked"},
		"released": {semeltest.New(t, semel.Policy{KeepOnlySuccess: true}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c.n.Add(1)
			w.WriteHeader(400)
		})), payment, "effects, want 1"},
	} {
		s := &substitute{TB: t}
		if semeltest.AssertOnce(s, tc.h, tc.make, c.effects) || len(s.failures) == 0 {
			t.Errorf("%s: AssertOnce passes", name)
			continue
		}
		if all := strings.Join(s.failures, "\n"); !strings.Contains(all, tc.want) {
			t.Errorf("%s: AssertOnce says\n%s\nand not %q", name, all, tc.want)
		}
	}
}

func TestNewFailsTheTestForAWrongPolicyOrARunThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	s := &substitute{TB: t}
	func() {
		defer func() { recover() }() //nolint:errcheck // the substitute's Fatalf
		semeltest.New(s, semel.Policy{Wait: -1})
	}()
	if len(s.failures) != 1 || !strings.Contains(s.failures[0], "policy: Wait is negative") {
		t.Errorf("a wrong policy: %q", s.failures)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &substitute{TB: t}
		h := semeltest.New(s, semel.Policy{}).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(time.Minute) // deaf to its context
		}))
		go h.ServeHTTP(httptest.NewRecorder(), payment())
		synctest.Wait()
		for _, f := range s.cleanups {
			f()
		}
		if len(s.failures) != 1 || !strings.Contains(s.failures[0], "1 runs or releases under way") {
			t.Errorf("a run that does not end: %q", s.failures)
		}
		time.Sleep(time.Minute)
	})
}

func TestR30_ALostAnswerIsReplayed(t *testing.T) {
	t.Parallel()
	var c counter
	first := func(n int) bool { return n == 1 }
	// In real time the lease of tests might end while a busy machine does something else.
	srv := httptest.NewServer(semeltest.LosingHandler(semeltest.New(t, semel.Policy{Lease: time.Minute}).Wrap(&c), first))
	defer srv.Close()
	client := &http.Client{Transport: semeltest.LosingTransport(nil, first)}
	send := func() (string, string, error) {
		r, err := http.NewRequest(http.MethodPost, srv.URL, strings.NewReader(`{}`))
		if err != nil {
			return "", "", err
		}
		// Go's Transport would resend by itself what it takes for idempotent.
		r.Header["idempotency-key"] = []string{"k"}
		res, err := client.Do(r)
		if err != nil {
			return "", "", err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return string(body), res.Header.Get("Idempotent-Replayed"), err
	}
	if _, _, err := send(); err == nil || errors.Is(err, semeltest.ErrAnswerLost) {
		t.Errorf("the first answer: %v, want a broken connection", err)
	}
	if body, replayed, err := send(); err != nil || body != "payment 1" || replayed != "true" {
		t.Errorf("the second answer: %q, replayed %q, %v", body, replayed, err)
	}
	if c.effects() != 1 {
		t.Errorf("%d effects, want 1", c.effects())
	}
	lossy := &http.Client{Transport: semeltest.LosingTransport(http.DefaultTransport, func(n int) bool { return n < 3 })}
	for n := 1; n <= 3; n++ {
		res, err := lossy.Get(srv.URL)
		if lost := errors.Is(err, semeltest.ErrAnswerLost); lost != (n < 3) {
			t.Errorf("answer %d: %v", n, err)
		}
		if err == nil {
			res.Body.Close()
		}
	}
	if c.effects() != 4 {
		t.Errorf("%d effects, want 4: a request whose answer is lost is executed", c.effects())
	}
}

func TestCase04_R46_AKilledProcessFreesItsKeyWithItsLease(t *testing.T) {
	t.Parallel()
	for onLost, after := range map[semel.LostPolicy]int{semel.Rerun: http.StatusCreated, semel.Hold: http.StatusConflict} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			mortal := semeltest.NewMortal(store)
			var c counter
			ended := make(chan error, 1)
			dying := semeltest.NewOn(t, mortal, semel.Policy{OnLost: onLost}).Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				mortal.Kill()
				<-r.Context().Done()
				ended <- context.Cause(r.Context())
			}))
			surviving := semeltest.NewOn(t, store, semel.Policy{OnLost: onLost}).Wrap(&c)
			go dying.ServeHTTP(httptest.NewRecorder(), payment())
			synctest.Wait()
			ask := func(h http.Handler) int {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, payment())
				return w.Code
			}
			if got := ask(surviving); got != http.StatusConflict {
				t.Errorf("%v: within the lease answered %d, want 409", onLost, got)
			}
			time.Sleep(time.Second)
			if got := ask(surviving); got != after {
				t.Errorf("%v: after the lease answered %d, want %d", onLost, got, after)
			}
			if err := <-ended; !errors.Is(err, semel.ErrFenced) {
				t.Errorf("%v: the handler of the dead ended by %v, want fenced", onLost, err)
			}
			if got := ask(dying); got != http.StatusServiceUnavailable {
				t.Errorf("%v: the dead answers %d, want 503", onLost, got)
			}
			if _, err := mortal.Load(t.Context(), driver.ID{}); !errors.Is(err, semeltest.ErrKilled) || !mortal.Dead() {
				t.Errorf("the dead loads: %v", err)
			}
			if _, err := mortal.Sweep(t.Context(), 1); !errors.Is(err, semeltest.ErrKilled) {
				t.Errorf("the dead sweeps: %v", err)
			}
		})
	}
}

func TestBeforeItsDeathAMortalStoreIsTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var c counter
		h := semeltest.NewOn(t, semeltest.NewMortal(store), semel.Policy{Wait: time.Second}).Wrap(&c)
		semeltest.AssertOnce(t, h, payment, c.effects)
		semeltest.AssertOnce(t, semeltest.NewOn(t, store, semel.Policy{}).Wrap(&c), func() *http.Request {
			r := payment()
			r.Header.Set("Idempotency-Key", "k2")
			return r
		}, c.effects)
		if store.Len() != 3 { // one of them is the identity secret's check value
			t.Errorf("%d records, want 3", store.Len())
		}
		m := semeltest.NewMortal(store)
		rec, err := m.Load(t.Context(), semel.Identify(nil, semel.KindHTTP, "single", "k"))
		if err != nil || rec.State != driver.Done {
			t.Errorf("loaded %v, %v", rec.State, err)
		}
		if _, err := m.Sweep(t.Context(), 10); err != nil {
			t.Error(err)
		}
	})
}
