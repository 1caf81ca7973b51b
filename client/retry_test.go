package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/refusal"
)

// case 27: a client that gives up on 409 in progress, and one that repeats a POST without a key.
func TestCase27_InProgressIsAskedAgainAndUnkeyedIsNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := &wire{answer: func(n int, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return problem(409, "IDEMPOTENCY_IN_PROGRESS", "Retry-After", "2"), nil
			}
			return response(201, "{}"), nil
		}}
		if status, _, err := fetch(newClient(t, net, client.Options{}), post(t, "{}")); status != 201 {
			t.Errorf("in progress: %d, %v; want 201", status, err)
		}
		if got := net.gaps(); !slices.Equal(got, []time.Duration{2 * time.Second}) {
			t.Errorf("in progress: gaps %v, want the 2s of Retry-After", got)
		}

		unkeyed := client.Options{Key: func(*http.Request) string { return "" }}
		for _, status := range []int{0, 408, 425, 429, 500, 502, 503, 504} {
			net := statuses(status)
			got, _, err := fetch(newClient(t, net, unkeyed), post(t, "{}"))
			if len(net.requests()) != 1 || got != status || (err != nil) != (status == 0) {
				t.Errorf("%d without a key: %d, %v after %d requests, want one", status, got, err, len(net.requests()))
			}
			if status == 0 {
				var e *client.Error
				if errors.As(err, &e) || !errors.Is(err, errBroken) {
					t.Errorf("without a key: %v, want the base's error as it is", err)
				}
			}
		}
	})
}

// With a key a PUT or DELETE is protected, and without one it is idempotent (RFC 9110, section 9.2.2): it is sent
// again.
func TestField16_PutAndDeleteAreSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, method := range []string{http.MethodPut, http.MethodDelete} {
			net := statuses(0, 503, 204)
			r := post(t, "{}")
			r.Method = method
			r.Header.Set("Idempotency-Key", "k")
			if status, _, err := fetch(newClient(t, net, client.Options{}), r); status != 204 || err != nil || len(net.requests()) != 3 {
				t.Errorf("%s: %d, %v after %d requests, want 204 after 3", method, status, err, len(net.requests()))
			}
			net = statuses(0, 503, 204)
			r = post(t, "{}")
			r.Method, r.GetBody = method, nil
			if status, _, err := fetch(newClient(t, net, client.Options{}), r); status != 204 || err != nil || len(net.requests()) != 3 {
				t.Errorf("%s without a key: %d, %v after %d requests, want 204 after 3", method, status, err, len(net.requests()))
			}
			for _, got := range net.requests() {
				if got.body != "{}" || got.header.Get("Idempotency-Key") != "" {
					t.Errorf("%s without a key: sent %q with %v", method, got.body, got.header)
				}
			}
			net = statuses(0)
			r = post(t, "{}")
			r.Method, r.GetBody = method, nil
			_, _, err := fetch(newClient(t, net, client.Options{MaxBody: 1}), r)
			if !errors.Is(err, errBroken) || len(net.requests()) != 1 {
				t.Errorf("%s with a body that can't be kept: %v after %d requests, want it sent once", method, err, len(net.requests()))
			}
		}
	})
}

func TestR66_WhatTheNetworkCantMendIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, permanent := range []error{
		&tls.CertificateVerificationError{Err: errors.New("x")},
		fmt.Errorf("dial: %w", x509.UnknownAuthorityError{}),
		x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x"},
		x509.CertificateInvalidError{Reason: x509.Expired},
		http.ErrSchemeMismatch,
	} {
		n := 0
		base := roundTrip(func(*http.Request) (*http.Response, error) {
			n++
			return nil, permanent
		})
		_, _, err := fetch(newClient(t, base, client.Options{}), post(t, "{}"))
		if e := checkError(t, err, ""); n != 1 || !errors.Is(err, permanent) || e.Key.Value == "" {
			t.Errorf("%v: %v after %d attempts, want it after one", permanent, err, n)
		}
	}
}

// Inside http.Client the response that ends a call is returned as it came, with its body, whatever its status.
func TestR71_TheTransportReturnsResponsesAsTheyCame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		large := strings.Repeat("x", 200<<10)
		for _, c := range []struct {
			res      func() *http.Response
			requests int
		}{
			{func() *http.Response { return response(201, large) }, 1},
			{func() *http.Response { return problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN") }, 1},
			{func() *http.Response { return problem(422, "IDEMPOTENCY_KEY_REUSED") }, 1},
			{func() *http.Response { return response(400, large, "Content-Type", "application/problem+json") }, 1},
			{func() *http.Response { return problem(503, "IDEMPOTENCY_OUTCOME_PENDING") }, 4},
			{func() *http.Response { return response(429, "slow", "Retry-After", "3600") }, 1},
		} {
			net := &wire{answer: func(int, *http.Request) (*http.Response, error) { return c.res(), nil }}
			want, err := io.ReadAll(c.res().Body)
			if err != nil {
				t.Fatal(err)
			}
			status, body, err := fetch(newClient(t, net, client.Options{}), post(t, "{}"))
			if err != nil || status != c.res().StatusCode || body != string(want) || len(net.requests()) != c.requests {
				t.Errorf("%d, %d bytes, %v, %d requests; want %d, %d bytes, %d requests",
					status, len(body), err, len(net.requests()), c.res().StatusCode, len(want), c.requests)
			}
		}
	})
}

// A body that breaks off is its reader's to notice, also where the transport has looked at the beginning.
func TestR71_ABrokenBodyBreaksForItsReader(t *testing.T) {
	t.Parallel()
	net := &wire{answer: func(int, *http.Request) (*http.Response, error) {
		res := problem(400, "X")
		res.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), brokenReader{}))
		return res, nil
	}}
	status, body, err := fetch(newClient(t, net, client.Options{}), post(t, "{}"))
	if status != 400 || body != "{" || !errors.Is(err, errBroken) {
		t.Errorf("%d, %q, %v; want the beginning and the error", status, body, err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

func TestR67_TheContextEndsAPauseAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		started := time.Now()
		time.AfterFunc(3*time.Second, cancel)
		net := &wire{answer: func(int, *http.Request) (*http.Response, error) {
			return response(503, "{}", "Retry-After", "20"), nil
		}}
		_, err := client.Do(ctx, newClient(t, net, client.Options{}), client.NewKey(), post(t, "{}"))
		e := checkError(t, err, "")
		if !errors.Is(err, context.Canceled) || time.Since(started) != 3*time.Second || e.Answer == nil || e.Answer.Status != 503 {
			t.Errorf("%v after %v, answer %+v; want the cancellation after 3s and the last answer", err, time.Since(started), e.Answer)
		}
	})
}

// Where the next delay would pass the deadline, the call ends at once, with what it has.
func TestR67_NoDelayPassesTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		hc := newClient(t, statuses(503), client.Options{Backoff: client.FullJitter(2*time.Second, time.Minute)})
		hc.Timeout = 2500 * time.Millisecond // the first retry comes after 2s, the next would after 4s more
		status, _, err := fetch(hc, post(t, "{}"))
		if status != 503 || err != nil || time.Since(started) != 2*time.Second {
			t.Errorf("%d, %v after %v; want the last 503 after 2s", status, err, time.Since(started))
		}

		started = time.Now()
		hc.Transport = newClient(t, statuses(0), client.Options{Backoff: client.FullJitter(2*time.Second, time.Minute)}).Transport
		_, _, err = fetch(hc, post(t, "{}"))
		if e := checkError(t, err, client.ReasonDeadline); !errors.Is(err, errBroken) || time.Since(started) != 2*time.Second {
			t.Errorf("%v after %v; want the last error after 2s", e, time.Since(started))
		}
	})
}

func TestR67_ALawOfOnesOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked []int
		hc := newClient(t, statuses(503, 0, 500, 201), client.Options{Backoff: func(retry int, _ float64) time.Duration {
			asked = append(asked, retry)
			return time.Duration(1-retry) * time.Hour // 1h, 0, and what counts as 0
		}})
		started := time.Now()
		if status, _, err := fetch(hc, post(t, "{}")); status != 201 {
			t.Errorf("%d, %v", status, err)
		}
		if !slices.Equal(asked, []int{0, 1, 2}) || time.Since(started) != time.Hour {
			t.Errorf("asked for %v, took %v; want 0, 1, 2 and an hour", asked, time.Since(started))
		}
	})
}

// An attempt that hangs is given up and made again; a body that streams is not cut.
func TestR67_AnAttemptMayBeBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			if n++; n < 3 {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			res := response(201, "")
			res.ContentLength = -1
			res.Body = io.NopCloser(&slowBody{ctx: r.Context()})
			return res, nil
		})
		started := time.Now()
		status, body, err := fetch(newClient(t, base, client.Options{AttemptTimeout: 5 * time.Second}), post(t, "{}"))
		if status != 201 || err != nil || body != "slow" {
			t.Errorf("%d, %q, %v; want the body of the third attempt", status, body, err)
		}
		if took := time.Since(started); took != 5*time.Second+100*time.Millisecond+5*time.Second+200*time.Millisecond+time.Minute {
			t.Errorf("took %v", took)
		}

		n = -10
		_, err = client.Do(t.Context(), newClient(t, base, client.Options{AttemptTimeout: time.Second}), client.Key{}, post(t, "{}"))
		if e := checkError(t, err, client.ReasonAttempts); !e.Timeout() || errors.Is(err, context.Canceled) {
			t.Errorf("%v: timeout %v, want one that is no cancellation", e, e.Timeout())
		}
	})
}

// slowBody takes a minute.
type slowBody struct {
	ctx  context.Context
	done bool
}

func (s *slowBody) Read(p []byte) (int, error) {
	if s.done {
		return 0, io.EOF
	}
	s.done = true
	select {
	case <-time.After(time.Minute):
		return copy(p, "slow"), nil
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}

// In Do the whole answer belongs to the attempt.
func TestR67_AnAnswerThatHangsIsAskedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			res := response(201, "{}")
			if n++; n == 1 {
				res.ContentLength = -1
				res.Body = io.NopCloser(&slowBody{ctx: r.Context()})
			}
			return res, nil
		})
		a, err := client.Do(t.Context(), newClient(t, base, client.Options{AttemptTimeout: time.Second}), client.Key{}, post(t, "{}"))
		if err != nil || a.Attempts != 2 || string(a.Body) != "{}" {
			t.Errorf("%+v, %v; want the second attempt's answer", a, err)
		}
	})
}

func TestR68_TheBudgetIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const calls = 1000
		net := statuses(503)
		hc := newClient(t, net, client.Options{Budget: client.Budget{Share: 0.1, Burst: 10}})
		reasons := map[client.Reason]int{}
		for range calls {
			_, err := client.Do(t.Context(), hc, client.NewKey(), post(t, "{}"))
			var e *client.Error
			if !errors.As(err, &e) || !errors.Is(err, client.ErrExhausted) || e.Answer == nil || e.Answer.Status != 503 {
				t.Fatalf("%v, want an *Error with the last answer", err)
			}
			reasons[e.Reason]++
		}
		// 10 at the start, and a tenth of a call each, the bucket being full until the first call has taken from it.
		if got, want := len(net.requests()), calls+10+calls/10-1; got != want {
			t.Errorf("%d requests for %d calls, want %d: 10%% and a burst of 10", got, calls, want)
		}
		if reasons[client.ReasonBudget] < calls*9/10 || reasons[client.ReasonBudget]+reasons[client.ReasonAttempts] != calls {
			t.Errorf("calls ended by %v, want nearly all by the budget", reasons)
		}

		// Safe calls pay too, and may repeat at their expense.
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		before := len(net.requests())
		for range 10 {
			if status, _, err := fetch(hc, r); status != 503 {
				t.Fatalf("%d, %v", status, err)
			}
		}
		if got := len(net.requests()) - before; got != 11 {
			t.Errorf("%d requests for 10 calls, want one repeat", got)
		}
	})
}

// TestR71_AnOpenAnswerIsAnError: with a 5xx that nobody repeats it is as open as with a lost answer whether there was
// an effect.
func TestR71_AnOpenAnswerIsAnError(t *testing.T) {
	t.Parallel()
	key := client.Key{Value: "order-42", Made: time.Now()}
	for _, status := range []int{501, 505, 506, 507, 508, 510, 511, 520, 522, 524, 530, 599} {
		a, err := client.Do(t.Context(), newClient(t, statuses(status), client.Options{}), key, post(t, "{}"))
		e := checkError(t, err, "")
		if a != nil || !errors.Is(err, refusal.OutcomePending) || e.Answer == nil || e.Answer.Status != status ||
			string(e.Answer.Body) != "{}" || e.Key.Value != key.Value {
			t.Errorf("%d: %+v, %v; want ErrOutcomePending with the answer", status, a, err)
		}
		if !strings.Contains(err.Error(), ": "+strconv.Itoa(status)+": ") {
			t.Errorf("%d: the text %q does not tell it", status, err)
		}
		for _, mark := range [][]string{{"Idempotency-Retryable", " FALSE"}, {"Idempotent-Replayed", "true"}} {
			net := &wire{answer: func(int, *http.Request) (*http.Response, error) { return response(status, "{}", mark...), nil }}
			a, err := client.Do(t.Context(), newClient(t, net, client.Options{}), key, post(t, "{}"))
			if err != nil || a.Status != status {
				t.Errorf("%d with %q: %+v, %v; want the answer", status, mark, a, err)
			}
		}
		if got, _, err := fetch(newClient(t, statuses(status), client.Options{}), post(t, "{}")); got != status || err != nil {
			t.Errorf("%d by http.Client: %d, %v; want the response", status, got, err)
		}
	}
}

func TestR71_ErrorsSayWhatAnIdempotentCallHasToSay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code string
		is   error
	}{
		{"IDEMPOTENCY_KEY_REUSED", refusal.KeyReused},
		{"IDEMPOTENCY_OUTCOME_UNKNOWN", refusal.OutcomeUnknown},
		{"IDEMPOTENCY_REPLAY_UNAVAILABLE", refusal.ReplayUnavailable},
		{"IDEMPOTENCY_KEY_EXPIRED", refusal.KeyExpired},
		{"IDEMPOTENCY_KEY_REQUIRED", refusal.KeyMissing},
		{"IDEMPOTENCY_REPLAY_FORBIDDEN", refusal.ReplayForbidden},
	} {
		net := &wire{answer: func(int, *http.Request) (*http.Response, error) {
			return problem(422, c.code, "X-Trace", "t-1"), nil
		}}
		key := client.NewKey()
		a, err := client.Do(t.Context(), newClient(t, net, client.Options{}), key, post(t, "{}"))
		e := checkError(t, err, "")
		var p *semel.Problem
		if a != nil || !errors.Is(err, c.is) || !errors.As(err, &p) || string(p.Code) != c.code || p.Status != 422 {
			t.Errorf("%s: %v", c.code, err)
		}
		if e.Key != key || e.Attempts != 1 || e.Answer.Status != 422 || e.Answer.Header.Get("X-Trace") != "t-1" ||
			!strings.Contains(string(e.Answer.Body), c.code) || e.Answer.Problem != p {
			t.Errorf("%s: %+v with %+v, want key and last answer", c.code, e, e.Answer)
		}
		if !strings.Contains(e.Error(), c.code) || !strings.Contains(e.Error(), key.Digest()) {
			t.Errorf("%s: the text is %q", c.code, e.Error())
		}
	}
}

func TestR71_TheTextTellsWhenToComeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := &wire{answer: func(int, *http.Request) (*http.Response, error) {
			return problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE", "Retry-After", "7200"), nil
		}}
		_, err := client.Do(t.Context(), newClient(t, net, client.Options{}), client.Key{Value: "k"}, post(t, "{}"))
		e := checkError(t, err, client.ReasonRetryAfter)
		if !e.RetryAt.Equal(time.Now().Add(2*time.Hour)) || !errors.Is(err, refusal.StoreUnavailable) {
			t.Errorf("%v: come again at %v, want in two hours", e, e.RetryAt)
		}
		const want = "idempotent call with key 8254c329a92850f6, 1 sent: retries exhausted by retry-after, " +
			"to come again at 2000-01-01T02:00:00Z: 503 IDEMPOTENCY_STORE_UNAVAILABLE: refused"
		if e.Error() != want {
			t.Errorf("the text is\n%s, want\n%s", e, want)
		}
	})
}

func TestR71_AnAnswerTooLargeIsNotCutSilently(t *testing.T) {
	t.Parallel()
	net := &wire{answer: func(int, *http.Request) (*http.Response, error) { return response(201, "123456789"), nil }}
	for limit, ok := range map[int64]bool{8: false, 9: true} {
		a, err := client.Do(t.Context(), newClient(t, net, client.Options{MaxAnswer: limit}), client.Key{}, post(t, "{}"))
		switch {
		case ok && (err != nil || string(a.Body) != "123456789"):
			t.Errorf("limit %d: %+v, %v; want all of it", limit, a, err)
		case !ok:
			if e := checkError(t, err, ""); !errors.Is(err, client.ErrAnswerTooLarge) || string(e.Answer.Body) != "12345678" {
				t.Errorf("limit %d: %v", limit, err)
			}
		}
	}
}

func TestDoWantsATransport(t *testing.T) {
	t.Parallel()
	if _, err := client.Do(t.Context(), http.DefaultClient, client.NewKey(), post(t, "{}")); err == nil {
		t.Error("Do went through an http.Client without a *client.Transport")
	}
}

func TestAttemptsAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen attempts
		net := &wire{answer: func(n int, _ *http.Request) (*http.Response, error) {
			switch n {
			case 1:
				return nil, errBroken
			case 2:
				return response(404, "{}"), nil
			}
			return response(503, "{}", "Retry-After", "3600"), nil
		}}
		hc := newClient(t, net, client.Options{OnAttempt: seen.add, StatusURL: "/operations"})
		key := client.Key{Value: "k"}
		r := post(t, "{}")
		r.Header.Set("X-Correlation-Id", "c-1")
		_, err := client.Do(t.Context(), hc, key, r)
		if e := checkError(t, err, client.ReasonRetryAfter); e.Attempts != 2 {
			t.Errorf("%v, want 2 sent", e)
		}
		common := client.Attempt{Key: key.Digest(), Correlation: "c-1", Host: "api.example"}
		first, question, second := common, common, common
		first.Kind, first.Number, first.Method, first.Err = client.KindRequest, 1, "POST", errBroken
		first.Again, first.Delay = true, 100*time.Millisecond
		question.Kind, question.Number, question.Method, question.Status, question.Again = client.KindStatus, 2, "GET", 404, true
		second.Kind, second.Number, second.Method, second.Status = client.KindRequest, 2, "POST", 503
		second.Reason = client.ReasonRetryAfter
		if !slices.Equal(seen.list, []client.Attempt{first, question, second}) {
			t.Errorf("told\n%+v, want\n%+v", seen.list, []client.Attempt{first, question, second})
		}
	})
}

func TestR70_AFailureOfWhichNothingIsKeptIsSentAgain(t *testing.T) {
	t.Parallel()
	const failed = `{"id":"op-1","state":"failed","attempts":1,"retryable":true}`
	type told struct {
		kind   client.AttemptKind
		number int
		again  bool
	}
	for name, c := range map[string]struct {
		late     time.Duration // of the answer that tells of the failure
		told     []told
		requests int
		reason   client.Reason
	}{
		"at once": {0, []told{
			{client.KindRequest, 1, true},
			{client.KindStatus, 2, true},
			{client.KindPoll, 2, true},
			{client.KindRequest, 2, false},
		}, 4, ""},
		"but not when its key has grown too old": {client.DefaultMaxAge, []told{
			{client.KindRequest, 1, true},
			{client.KindStatus, 2, true},
			{client.KindPoll, 2, true},
		}, 3, client.ReasonRetention},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var seen attempts
				net := &wire{answer: func(n int, _ *http.Request) (*http.Response, error) {
					switch n {
					case 1:
						return nil, errBroken
					case 2:
						return response(200, `{"state":"running"}`), nil
					case 3:
						time.Sleep(c.late)
						return response(200, failed), nil
					}
					return response(201, "{}"), nil
				}}
				hc := newClient(t, net, client.Options{OnAttempt: seen.add, StatusURL: "/operations"})
				a, err := client.Do(t.Context(), hc, client.NewKey(), post(t, "{}"))
				if c.reason == "" {
					if err != nil || a.Status != 201 || a.State != "" || a.Attempts != 2 {
						t.Errorf("%+v, %v; want the answer of the second attempt, and no state", a, err)
					}
				} else if e := checkError(t, err, c.reason); e.Attempts != 1 || errors.Is(err, refusal.InProgress) {
					t.Errorf("%v, want 1 sent, and none in progress", e)
				}
				var got []told
				for _, x := range seen.list {
					got = append(got, told{x.Kind, x.Number, x.Again})
				}
				if n := len(net.requests()); n != c.requests || !slices.Equal(got, c.told) {
					t.Errorf("%d requests, told %v; want %d, %v", n, got, c.requests, c.told)
				}
			})
		})
	}
}

func TestOptionsAreValidated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o    client.Options
		want string
	}{
		{client.Options{Header: "a b"}, "not a header's name"},
		{client.Options{CorrelationHeader: "a:b"}, "not a header's name"},
		{client.Options{Header: "x-key", CorrelationHeader: "X-Key"}, "both X-Key"},
		{client.Options{Methods: []string{"GET"}}, "unsafe method"},
		{client.Options{Methods: []string{"post"}}, "upper-case"},
		{client.Options{MaxAttempts: -1}, "MaxAttempts"},
		{client.Options{MaxAge: -1}, "MaxAge"},
		{client.Options{MaxRetryAfter: -1}, "MaxRetryAfter"},
		{client.Options{CrossOrigin: []string{"https://a.example/"}}, "CrossOrigin"},
		{client.Options{PollEvery: -1}, "PollEvery"},
		{client.Options{MaxBody: -1}, "MaxBody"},
		{client.Options{MaxAnswer: -1}, "MaxAnswer"},
		{client.Options{Budget: client.Budget{Share: 1.5}}, "Budget.Share"},
		{client.Options{Budget: client.Budget{Burst: -1}}, "Budget.Burst"},
		{client.Options{Budget: client.Budget{Off: true, Share: 0.2}}, "Budget is off"},
		{client.Options{StatusURL: "http://[::1"}, "StatusURL"},
	} {
		if _, err := client.New(nil, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
	if _, err := client.New(nil, client.Options{}); err != nil {
		t.Errorf("the zero options: %v", err)
	}
}

func TestR68_TheLargestBurstIsOne(t *testing.T) {
	t.Parallel()
	o := client.Options{Budget: client.Budget{Burst: math.MaxInt}, Random: func() float64 { return 0 }}
	if status, _, err := fetch(newClient(t, statuses(503, 503, 201), o), post(t, "{}")); status != 201 {
		t.Errorf("%d, %v; want two repeats paid for", status, err)
	}
}
