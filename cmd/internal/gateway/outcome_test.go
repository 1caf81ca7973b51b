package gateway

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/refusal"
)

func TestR42_R43_WhatAnUpstreamsStatusMeans(t *testing.T) {
	t.Parallel()
	const runAgain, replayed, unknown = "run again", "replayed", "unknown"
	for _, c := range []struct {
		status  int
		onLost  semel.LostPolicy
		onError semel.ErrorPolicy
		repeat  string
		reason  string
	}{
		{200, semel.Hold, 0, replayed, "an answer"},
		{302, semel.Hold, 0, replayed, "an answer"},
		{400, semel.Hold, 0, replayed, "definitive"},
		{404, semel.Hold, 0, replayed, "definitive"},
		{422, semel.Rerun, 0, replayed, "definitive"},
		{401, semel.Hold, 0, runAgain, "a promise that nothing happened"},
		{403, semel.Hold, 0, runAgain, "a promise that nothing happened"},
		{429, semel.Hold, 0, runAgain, "a promise that nothing happened"},
		{500, semel.Hold, 0, replayed, "hold implies keep"},
		{500, semel.Rerun, 0, runAgain, "rerun implies release"},
		{500, semel.Hold, semel.ReleaseErrors, runAgain, "said so"},
		{500, semel.Rerun, semel.KeepErrors, replayed, "said so"},
		{501, semel.Hold, 0, replayed, "counts as 500"},
		{502, semel.Hold, 0, unknown, "an upstream that is a proxy has lost the answer"},
		{502, semel.Hold, semel.ReleaseErrors, unknown, "lost goes by OnLost, not OnError"},
		{502, semel.Rerun, semel.KeepErrors, runAgain, "lost goes by OnLost, not OnError"},
		{504, semel.Hold, 0, unknown, "an upstream that is a proxy has lost the answer"},
		{504, semel.Rerun, 0, runAgain, "rerun"},
		{503, semel.Hold, 0, unknown, "behind a gateway no promise"},
		{503, semel.Rerun, 0, runAgain, "does no harm"},
		{408, semel.Hold, 0, unknown, "behind a gateway no promise"},
		{408, semel.Rerun, 0, runAgain, "does no harm"},
	} {
		t.Run(fmt.Sprintf("%d %v %d", c.status, c.onLost, c.onError), func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				fmt.Fprint(w, "the upstream's own")
			})
			g := start(t, u.URL, func(cfg *Config) { cfg.Default.Policy.OnLost, cfg.Default.Policy.OnError = c.onLost, c.onError })
			first := post(t, g.url, "k")
			first.wants(t, c.status, "")
			if first.body != "the upstream's own" {
				t.Errorf("the client got %q", first.body)
			}
			again := post(t, g.url, "k")
			executed := u.executions("k")
			switch c.repeat {
			case unknown:
				again.wants(t, 409, refusal.OutcomeUnknown)
			default:
				again.wants(t, c.status, "")
			}
			if again.replayed() != (c.repeat == replayed) {
				t.Errorf("repeat is marked as a replay: %t, want %s: %s", again.replayed(), c.repeat, c.reason)
			}
			if want := map[string]int{runAgain: 2}[c.repeat]; executed != max(want, 1) {
				t.Errorf("executed %d times, want %s: %s", executed, c.repeat, c.reason)
			}
			if c.status >= 500 && c.repeat == replayed && again.header.Get("Idempotency-Retryable") != "false" {
				t.Error("a kept 5xx does not say that a retry is no use")
			}
		})
	}
}

// done waits until the first operation that the upstream sees is done. To ask for it until then would count as
// attempts.
func done(t *testing.T, g *running, u *upstream) {
	t.Helper()
	eventually(t, "the run", func() bool { return len(u.requests()) > 0 })
	id, err := driver.ParseID(u.requests()[0].Header.Get("Idempotency-Operation"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the run", func() bool {
		rec, err := g.cfg.Store.Load(t.Context(), id)
		return err == nil && rec.State == driver.Done
	})
}

func hangUp(w http.ResponseWriter, _ *http.Request) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		c.Close()
	}
}

func breakOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, "half of ")
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func breakOffChunked(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, "half of ")
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func TestR75_AConnectionThatBreaksAfterBytesWereSentIsLost(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]http.HandlerFunc{
		"before the answer": hangUp, "in the answer": breakOff, "in a chunked answer": breakOffChunked,
	} {
		t.Run("hold "+name, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, broken)
			g := start(t, u.URL)
			post(t, g.url, "k").wants(t, 409, refusal.OutcomeUnknown)
			post(t, g.url, "k").wants(t, 409, refusal.OutcomeUnknown)
			if n := u.executions("k"); n != 1 {
				t.Errorf("executed %d times, want once", n)
			}
		})
		t.Run("rerun "+name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				if calls++; calls == 1 {
					broken(w, r)
				}
				created(w, r)
			})
			g := start(t, u.URL, func(c *Config) { c.Default.Policy.OnLost = semel.Rerun })
			lost := post(t, g.url, "k")
			lost.wants(t, 503, refusal.OutcomePending)
			if lost.header.Get("Retry-After") == "" {
				t.Error("503 without Retry-After")
			}
			post(t, g.url, "k").wants(t, 201, "")
			requests := u.requests()
			if len(requests) != 2 || requests[1].Header.Get("Idempotency-Attempt") != "2" {
				t.Errorf("executed %d times, want a second attempt", len(requests))
			}
		})
	}
}

func TestAnAnswerWithoutAKeyThatBreaksOffIsNotEndedCleanly(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "POST", "PUT"} {
		u := newUpstream(t, breakOff)
		g := start(t, u.URL)
		if a, err := tryAsk(method, g.url+"/", ""); err == nil {
			t.Errorf("%s: the client got a whole answer: %d %q", method, a.status, a.body)
		}
		if strings.Contains(g.log.String(), "panic") {
			t.Errorf("%s: the gateway panicked:\n%s", method, g.log)
		}
	}
}

func TestR57_ABrokenUpstreamGivesNothingAway(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, hangUp)
	g := start(t, u.URL)
	for _, method := range []string{"POST", "PUT", "GET"} {
		a := ask(t, method, g.url+"/", "")
		a.wants(t, 502, "UPSTREAM_BROKEN")
		if strings.Contains(a.body, "127.0.0.1") || strings.Contains(a.body, "EOF") {
			t.Errorf("%s: the answer tells of the upstream: %s", method, a.body)
		}
		if retryable := strings.Contains(a.body, `"retryable":true`); retryable != (method == "GET") {
			t.Errorf("%s: retryable is %t", method, retryable)
		}
	}
	if !strings.Contains(g.log.String(), `"msg":"upstream gave no answer"`) {
		t.Errorf("the log does not tell the operator:\n%s", g.log)
	}
}

func TestR75_AConnectionRefusedBeforeAByteWasSentReleases(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		t.Run(onLost.String(), func(t *testing.T) {
			t.Parallel()
			address, open := closedPort(t)
			g := start(t, "http://"+address, func(c *Config) { c.Default.Policy.OnLost = onLost })
			for range 2 {
				down := post(t, g.url, "k")
				down.wants(t, 503, "UPSTREAM_UNAVAILABLE")
				if down.header.Get("Retry-After") == "" || !strings.Contains(down.body, `"retryable":true`) {
					t.Errorf("answer is %v %s", down.header, down.body)
				}
				if strings.Contains(down.body, address) || strings.Contains(down.body, "refused") {
					t.Errorf("the answer tells of the upstream: %s", down.body)
				}
				if down.header.Get("X-Correlation-Id") == "" || down.header.Get("Idempotency-Key") != "k" {
					t.Errorf("the answer lacks what every keyed answer has: %v", down.header)
				}
			}
			ask(t, "GET", g.url+"/", "").wants(t, 503, "UPSTREAM_UNAVAILABLE")
			open()
			var l net.Listener
			eventually(t, "the port to be free", func() bool { // somebody else may be faster
				var err error
				l, err = net.Listen("tcp", address)
				return err == nil
			})
			u := httptest.NewUnstartedServer(http.HandlerFunc(created))
			u.Listener = l
			u.Start()
			defer u.Close()
			up := post(t, g.url, "k")
			up.wants(t, 201, "")
			if up.replayed() {
				t.Error("what was never run is marked as a replay")
			}
		})
	}
}

func TestAnUpstreamThatIsNotWhoItShouldBeGetsNothing(t *testing.T) {
	t.Parallel()
	served := make(chan struct{}, 1)
	u := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served <- struct{}{}
		created(w, r)
	}))
	u.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	u.StartTLS()
	t.Cleanup(u.Close)
	g := start(t, u.URL)
	post(t, g.url, "k").wants(t, 503, "UPSTREAM_UNAVAILABLE")
	select {
	case <-served:
		t.Error("a server with an unknown certificate got the request")
	default:
	}
}

func TestR75_ARunPastTheDeadlineIsLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		onLost semel.LostPolicy
		status int
		code   refusal.Code
		again  int // executions after a repeat
	}{
		{semel.Hold, 409, refusal.OutcomeUnknown, 1},
		{semel.Rerun, 503, refusal.OutcomePending, 2},
	} {
		t.Run(c.onLost.String(), func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { <-release })
			t.Cleanup(func() { close(release) })
			g := start(t, u.URL, func(cfg *Config) {
				cfg.Default.Policy.OnLost, cfg.Default.Policy.MaxRun = c.onLost, 700*time.Millisecond
			})
			// On a busy machine the deadline may pass before the service has seen the request. That shows nothing.
			var first, again answer
			var once, n int
			for i := 0; (once < 1 || n < c.again) && i < 10; i++ {
				key := fmt.Sprint("k", i)
				first, once = post(t, g.url, key), u.executions(key)
				again, n = post(t, g.url, key), u.executions(key)
			}
			first.wants(t, c.status, c.code)
			again.wants(t, c.status, c.code)
			if once != 1 || n != c.again {
				t.Errorf("executed %d times, and then %d, want 1 and %d", once, n, c.again)
			}
		})
	}
}

func TestR75_TheClientsTimeAndTheUpstreamsAreTwoThings(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		created(w, r)
	})
	g := start(t, u.URL, func(c *Config) { c.Default.Policy.Patience = 50 * time.Millisecond })
	early := post(t, g.url, "k")
	early.wants(t, 504, refusal.OutcomePending)
	if early.header.Get("Retry-After") == "" {
		t.Error("504 without Retry-After")
	}
	meanwhile := post(t, g.url, "k")
	meanwhile.wants(t, 409, refusal.InProgress)
	close(release)
	done(t, g, u)
	late := post(t, g.url, "k")
	late.wants(t, 201, "")
	if !late.replayed() || late.body != `{"id":1}` {
		t.Errorf("the late answer is %q, replayed %t", late.body, late.replayed())
	}
	if n := u.executions("k"); n != 1 {
		t.Errorf("executed %d times, want once", n)
	}
}

func TestR29_ARunOutlivesItsClient(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-release
		if r.Context().Err() != nil {
			t.Error("the upstream's request was cancelled with the client")
		}
		created(w, r)
	})
	g := start(t, u.URL)
	client := dial(t, g.Addr().String())
	if _, err := io.WriteString(client, "POST /payments HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\nContent-Length: 12\r\n\r\n{\"amount\":1}"); err != nil {
		t.Fatal(err)
	}
	<-began
	client.Close()
	post(t, g.url, "k").wants(t, 409, refusal.InProgress)
	close(release)
	done(t, g, u)
	late := post(t, g.url, "k")
	late.wants(t, 201, "")
	if !late.replayed() {
		t.Error("not a replay")
	}
}

func TestR28_ARepeatMayWaitForTheRunInProgress(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-release
		created(w, r)
	})
	var claims atomic.Int32
	g := start(t, u.URL, func(c *Config) {
		c.Store, c.Default.Policy.Wait = claimCounter{Store: c.Store, n: &claims}, time.Minute
	})
	answers := make(chan answer, 2)
	send := func() {
		a, err := tryAsk("POST", g.url+"/", "", "Idempotency-Key", "k")
		if err != nil {
			t.Error(err)
		}
		answers <- a
	}
	go send()
	<-began
	go send()
	eventually(t, "the repeat to wait", func() bool { return claims.Load() >= 3 }) // refused, it looks once more
	close(release)
	a, b := <-answers, <-answers
	a.wants(t, 201, "")
	b.wants(t, 201, "")
	if a.replayed() == b.replayed() || u.executions("k") != 1 {
		t.Errorf("replayed: %t and %t; executed %d times", a.replayed(), b.replayed(), u.executions("k"))
	}
}

func TestCase37_ABodyOverTheLimitIsRefusedNotPassedUnprotected(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	big := strings.Repeat("x", 5<<20)
	askTooMuch(t, "POST", g.url+"/", big, "Idempotency-Key", "k").wants(t, 413, refusal.BodyTooLarge)
	if n := len(u.requests()); n != 0 {
		t.Errorf("upstream executed %d requests, want none", n)
	}
	ask(t, "POST", g.url+"/", big).wants(t, 201, "")
	if n := len(u.requests()); n != 1 {
		t.Errorf("a large body without a key: executed %d times, want once", n)
	}
}

func TestCase37_OfTwoTakeoversAtOnceOneWins(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}, 10), make(chan struct{})
	calls := make(chan int, 10)
	calls <- 0
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		n := <-calls
		calls <- n + 1
		if n == 0 {
			hangUp(w, r) // the first run is lost
			return
		}
		began <- struct{}{}
		<-release
		created(w, r)
	})
	g := start(t, u.URL, func(c *Config) { c.Default.Policy.OnLost = semel.Rerun })
	post(t, g.url, "k").wants(t, 503, refusal.OutcomePending)
	answers := make(chan answer, 20)
	for range 20 {
		go func() {
			a, err := tryAsk("POST", g.url+"/payments", `{"amount":1}`, "Idempotency-Key", "k", "Content-Type", "application/json")
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	<-began
	for range 19 {
		(<-answers).wants(t, 409, refusal.InProgress)
	}
	close(release)
	(<-answers).wants(t, 201, "")
	if n := u.executions("k"); n != 2 {
		t.Errorf("executed %d times, want the lost run and one more", n)
	}
}

func TestR76a_EveryThrottledOrUnavailableAnswerSaysWhenToComeBack(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	throttled := start(t, u.URL)
	var a answer
	for i := 0; i < 300 && a.status != 429; i++ { // a minute may end in between
		a = post(t, throttled.url, "k")
	}
	a.wants(t, 429, refusal.TooManyAttempts)

	var store *deadStore
	down := start(t, u.URL, func(c *Config) {
		store = &deadStore{Store: c.Store}
		c.Store, c.ShutdownTimeout = store, 50*time.Millisecond
	})
	post(t, down.url, "before").wants(t, 201, "")
	store.down.Store(true)
	b := post(t, down.url, "k")
	b.wants(t, 503, refusal.StoreUnavailable)
	for _, a := range []answer{a, b} {
		if n, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || n < 1 || n > 60 {
			t.Errorf("%d: Retry-After is %q", a.status, a.header.Get("Retry-After"))
		}
	}
	if n := u.executions("k"); n != 1 {
		t.Errorf("executed %d times, want once", n)
	}
	if strings.Contains(b.body, errStoreDown.Error()) {
		t.Errorf("the answer shows the cause: %s", b.body)
	}
	err := down.stop()
	if err == nil || !strings.Contains(err.Error(), "releases under way") {
		t.Errorf("the drain did not say what was left: %v", err)
	}
	if !strings.Contains(down.log.String(), `"msg":"drain was cut short"`) {
		t.Errorf("the log does not say what was left:\n%s", down.log)
	}
}

func TestARequestThatCantBeForwardedIsTheClientsError(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, created)
	g := start(t, u.URL)
	const upgrade = "Connection: Upgrade\r\nUpgrade: caf\xc3\xa9\r\n"
	raw(t, g.Addr().String(), "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n"+upgrade+"\r\n").
		wants(t, 400, "REQUEST_NOT_FORWARDABLE")
	ask(t, "POST", g.url+"/", "", "Idempotency-Key", "k").wants(t, 201, "")
	if n := u.executions("k"); n != 1 {
		t.Errorf("executed %d times, want once", n)
	}
}
