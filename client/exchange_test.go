package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/refusal"
)

// stalled is a body that never comes.
type stalled struct{ ctx context.Context }

func (s stalled) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// The head of an answer says that it is worth another attempt; that its body never comes holds nothing up.
func TestR66_ABodyThatNobodyWantsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			if n++; n > 2 {
				return response(201, "{}"), nil
			}
			res := response(503, "{}")
			res.ContentLength = 100
			res.Body = io.NopCloser(stalled{r.Context()})
			return res, nil
		})
		started := time.Now()
		law := func(retry int, _ float64) time.Duration { return time.Duration(retry) * time.Second }
		status, _, err := fetch(newClient(t, base, client.Options{Backoff: law}), post(t, "{}"))
		if took := time.Since(started); status != 201 || took > 1200*time.Millisecond || took < time.Second {
			t.Errorf("%d, %v after %v, want the third answer after the delays of 0s and 1s", status, err, took)
		}
	})
}

// A member of a problem that has another type than RFC 9457 and the guard give it is none (section 3.1); the others
// count.
func TestR66_AMemberOfAnotherTypeIsIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			status      int
			body, media string
			requests    int
			want        error
		}{
			{500, `{"title":"boom","code":17,"retryable":false}`, "application/problem+json", 1, refusal.OutcomePending},
			{500, `{"status":"500","retryable":false}`, "application/problem+json", 1, refusal.OutcomePending},
			{500, `{"retryable":"false"}`, "application/problem+json", 4, client.ErrExhausted},
			{500, `[{"retryable":false}]`, "application/problem+json", 4, client.ErrExhausted},
			{422, `{"status":"422","code":"IDEMPOTENCY_KEY_REUSED"}`, "application/problem+json", 1, refusal.KeyReused},
			{422, `{"code":"IDEMPOTENCY_KEY_REUSED"}`, "application/problem+json; charset", 1, refusal.KeyReused},
		} {
			net := &wire{answer: func(int, *http.Request) (*http.Response, error) {
				return response(c.status, c.body, "Content-Type", c.media), nil
			}}
			_, err := client.Do(t.Context(), newClient(t, net, client.Options{}), client.NewKey(), post(t, "{}"))
			if n := len(net.requests()); !errors.Is(err, c.want) || n != c.requests {
				t.Errorf("%d %s %s: %v after %d requests, want %v after %d", c.status, c.media, c.body, err, n, c.want, c.requests)
			}
		}
	})
}

// So it is with the state of an operation, whose other members are the server's own. It is no problem.
func TestR70_TheStateIsReadBesideOtherMembers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := &wire{answer: func(n int, _ *http.Request) (*http.Response, error) {
			return []*http.Response{
				response(202, "{}", "Location", "/operations/1"),
				response(200, `{"state":"running","status":"busy","operation":{"id":1}}`),
				response(200, `{"state":"succeeded","status":"over"}`),
			}[n-1], nil
		}}
		a, err := client.Do(t.Context(), newClient(t, net, client.Options{PollEvery: time.Second}), client.NewKey(), post(t, "{}"))
		if err != nil || a.State != "succeeded" || a.Problem != nil {
			t.Errorf("%+v, %v; want the success, without a problem", a, err)
		}
	})
}

// Where an answer is too large to be read, but is none of the operation's anyway, it is that which counts.
func TestR71_ALargeRefusalIsARefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for status, want := range map[int]error{
			200: client.ErrAnswerTooLarge, 404: client.ErrAnswerTooLarge,
			501: refusal.OutcomePending, 503: client.ErrExhausted,
		} {
			net := &wire{answer: func(int, *http.Request) (*http.Response, error) {
				return response(status, strings.Repeat("x", 100)), nil
			}}
			_, err := client.Do(t.Context(), newClient(t, net, client.Options{MaxAnswer: 10}), client.NewKey(), post(t, "{}"))
			if !errors.Is(err, want) || errors.Is(err, client.ErrAnswerTooLarge) != (want == client.ErrAnswerTooLarge) {
				t.Errorf("%d: %v, want %v", status, err, want)
			}
		}
	})
}

// A base that breaks the contract of a RoundTripper is told so.
func TestABaseWithoutAnswerOrErrorIsAnError(t *testing.T) {
	t.Parallel()
	base := roundTrip(func(*http.Request) (*http.Response, error) { return nil, nil })
	_, err := client.Do(t.Context(), newClient(t, base, client.Options{MaxAttempts: 1}), client.NewKey(), post(t, "{}"))
	if err == nil || !strings.Contains(err.Error(), "neither a response nor an error") {
		t.Errorf("%v, want an error that says so", err)
	}
	r, closed := stream(t, strings.NewReader("x"))
	if _, err := (&client.Transport{}).RoundTrip(r); err == nil || !strings.Contains(err.Error(), "New") || !*closed {
		t.Errorf("the zero Transport: %v, body closed %v; want an error that names New", err, *closed)
	}
}

// A hook that panics ends the call, but keeps no connection.
func TestAHookThatPanicsLeavesNoAnswerOpen(t *testing.T) {
	t.Parallel()
	for _, status := range []int{201, 503} {
		answers := 0
		base := roundTrip(func(*http.Request) (*http.Response, error) {
			res := response(status, "{}")
			res.Body = &counted{res.Body, &answers}
			return res, nil
		})
		hc := newClient(t, base, client.Options{OnAttempt: func(client.Attempt) { panic("hook") }})
		func() {
			defer func() {
				if got := recover(); got != "hook" || answers != 1 {
					t.Errorf("%d: panic %v, %d answers closed; want the hook's, and one", status, got, answers)
				}
			}()
			if status, _, err := fetch(hc, post(t, "{}")); true {
				t.Errorf("%d, %v; want the panic", status, err)
			}
		}()
	}
}
