package client_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/refusal"
)

// wrapped is a transport around another one, as tracing puts it.
type wrapped struct{ http.RoundTripper }

func (w wrapped) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Traceparent", "00-1-2-01")
	return w.RoundTripper.RoundTrip(r)
}

func TestR65_DoFindsItsTransportBelowAWrapper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := statuses(0, 503, 201)
		hc := newClient(t, net, client.Options{})
		hc.Transport = wrapped{hc.Transport}
		a, err := client.Do(t.Context(), hc, client.NewKey(), post(t, "{}"))
		if err != nil || a.Status != 201 || a.Attempts != 3 || net.keys()[0] == "" || net.keys()[2] != net.keys()[0] {
			t.Errorf("%+v, %v with keys %q, want 201 after three attempts under one", a, err, net.keys())
		}
	})
	for _, rt := range []http.RoundTripper{nil, &http.Transport{}} {
		_, err := client.Do(t.Context(), &http.Client{Transport: rt}, client.NewKey(), post(t, "{}"))
		if e := checkError(t, err, ""); !e.NotSent || !strings.Contains(err.Error(), "*client.Transport") {
			t.Errorf("%T: %v, want it refused before anything is sent", rt, err)
		}
	}
	plain := statuses(201)
	_, err := client.Do(t.Context(), &http.Client{Transport: wrapped{plain}}, client.NewKey(), post(t, "{}"))
	if e := checkError(t, err, ""); !strings.Contains(e.Error(), "without protection") {
		t.Errorf("a wrapper around no transport of ours: %v", err)
	}
}

// What Doer returns is for generated clients: a response is the operation's own answer.
func TestR71_ADoerGivesDosMeaning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := statuses(0, 201)
		hc := client.Doer(newClient(t, net, client.Options{}))
		r := post(t, "{}")
		res, err := hc.Do(r.WithContext(client.WithKey(r.Context(), client.Key{Value: "order-42"})))
		if err != nil || res.StatusCode != 201 || net.keys()[1] != `"order-42"` {
			t.Fatalf("%v, %v with keys %q", res, err, net.keys())
		}
		if text, err := io.ReadAll(res.Body); string(text) != "{}" || err != nil {
			t.Errorf("body %q, %v", text, err)
		}
		_, err = client.Doer(newClient(t, statuses(0, 422), client.Options{})).Do(post(t, "{}"))
		if e := checkError(t, err, ""); !errors.Is(err, refusal.OutcomePending) || e.Answer.Status != 422 {
			t.Errorf("422 after a lost answer: %v, want that the outcome is pending", err)
		}
	})
}

func TestR71_AResponseTellsTheErrorThatItMeans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name string
			net  *wire
			want error
		}{
			{"the operation's answer", statuses(422), nil},
			{"a refusal after a lost answer", statuses(0, 422), refusal.OutcomePending},
			{"a busy server to the end", statuses(503), client.ErrExhausted},
			{"a mismatch", &wire{answer: func(int, *http.Request) (*http.Response, error) {
				return problem(422, "IDEMPOTENCY_KEY_REUSED"), nil
			}}, refusal.KeyReused},
		} {
			res, err := newClient(t, c.net, client.Options{}).Do(post(t, "{}"))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(res.Body)
			if !json.Valid(text) || err != nil {
				t.Errorf("%s: body %q, %v", c.name, text, err)
			}
			switch e := client.ErrorOf(res); {
			case c.want == nil && e != nil, c.want != nil && (e == nil || !errors.Is(e, c.want) || e.Answer.Status != res.StatusCode):
				t.Errorf("%s: %v, want %v", c.name, e, c.want)
			}
			res.Body.Close()
		}
		if e := client.ErrorOf(response(503, "{}")); e != nil {
			t.Errorf("a response of another client: %v", e)
		}
	})
}

// A key may have been sent by whoever kept it, unless NewKey has made it and nothing has sent it since.
func TestR65_AKeyKnowsWhetherItMayHaveBeenSent(t *testing.T) {
	t.Parallel()
	fresh := client.NewKey()
	text, err := json.Marshal(fresh)
	if err != nil {
		t.Fatal(err)
	}
	var kept client.Key
	if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		key     client.Key
		pending bool
	}{
		{"new", fresh, false},
		{"the same again", fresh, true},
		{"kept", kept, true},
		{"derived", client.Key{Value: "order-42"}, true},
		{"made for the call", client.Key{}, false},
	} {
		a, err := client.Do(t.Context(), newClient(t, statuses(422), client.Options{}), c.key, post(t, "{}"))
		if errors.Is(err, refusal.OutcomePending) != c.pending || (a != nil) == c.pending {
			t.Errorf("%s: %+v, %v; want pending %v", c.name, a, err, c.pending)
		}
	}
}

func TestR66_WhatTheCallerSaysOfAnAnswerCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name    string
			verdict client.Verdict
			want    error
			sent    int
		}{
			{"answer", client.VerdictAnswer, nil, 2},
			{"reused", client.VerdictReused, refusal.KeyReused, 2},
			{"unknown", client.VerdictUnknown, refusal.OutcomePending, 2},
			{"retry", client.VerdictRetry, client.ErrExhausted, 4},
			{"in progress", client.VerdictInProgress, nil, 8},
			{"left to the rules", "", refusal.OutcomePending, 2},
		} {
			net := &wire{answer: func(n int, _ *http.Request) (*http.Response, error) {
				switch n {
				case 1:
					return nil, errBroken
				case 8:
					return response(201, "{}"), nil
				}
				return response(409, `{"error":"busy"}`), nil
			}}
			a, err := client.Do(t.Context(), newClient(t, net, client.Options{Classify: func(a *client.Answer, sent bool) client.Verdict {
				if a.Status != 409 || string(a.Body) != `{"error":"busy"}` || !sent {
					return ""
				}
				return c.verdict
			}}), client.NewKey(), post(t, "{}"))
			if !errors.Is(err, c.want) || (a == nil) != (c.want != nil) || len(net.requests()) != c.sent {
				t.Errorf("%s: %+v, %v after %d requests; want %v after %d", c.name, a, err, len(net.requests()), c.want, c.sent)
			}
		}
	})
}

func TestR70_StatusOnlyAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			status      int
			body, state string
		}{{200, `{"state":"running"}`, "running"}, {200, `{"state":"succeeded"}`, "succeeded"}, {404, `{}`, ""}} {
			net := &wire{answer: func(n int, r *http.Request) (*http.Response, error) {
				if n == 1 {
					return nil, errBroken
				}
				return response(c.status, c.body), nil
			}}
			r := post(t, "{}")
			r.Header.Set("Authorization", "Bearer x")
			a, err := client.Status(t.Context(), newClient(t, net, client.Options{StatusURL: "/operations"}), client.Key{Value: "k"}, r)
			if err != nil || a.State != c.state || a.Status != c.status || a.Attempts != 0 {
				t.Errorf("%+v, %v; want the state %q", a, err, c.state)
			}
			for _, got := range net.requests() {
				if got.method != http.MethodGet || got.url != "https://api.example/operations" || got.body != "" ||
					got.header.Get("Idempotency-Key") != `"k"` || got.header.Get("Authorization") != "Bearer x" {
					t.Errorf("asked %+v", got)
				}
			}
		}
		_, err := client.Status(t.Context(), newClient(t, statuses(200), client.Options{}), client.Key{Value: "k"}, post(t, ""))
		if e := checkError(t, err, ""); !e.NotSent {
			t.Errorf("without StatusURL: %v", err)
		}
	})
}

// What an attempt more can't mend is not tried again, and an error says whether anything can have arrived.
func TestR66_ErrorsThatCantBeMendedAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url     string
		sent    int
		notSent bool
	}{{"gopher://127.0.0.1/", 1, true}, {"http://", 1, true}, {"http://127.0.0.1:1/", 2, true}} {
		hc := newClient(t, &http.Transport{}, client.Options{MaxAttempts: 2, Backoff: client.FullJitter(1, 1)})
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Do(t.Context(), hc, client.NewKey(), r)
		var e *client.Error
		if !errors.As(err, &e) || e.Attempts > c.sent || e.NotSent != c.notSent {
			t.Errorf("%s: %v (%+v), want at most %d sent, not sent %v", c.url, err, e, c.sent, c.notSent)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Do(t.Context(), newClient(t, &http.Transport{}, client.Options{MaxAttempts: 1}), client.NewKey(), r)
	if e := checkError(t, err, client.ReasonAttempts); e.NotSent {
		t.Errorf("%v: says that nothing was sent", err)
	}
}

// Operations that take longer than all delays of an attempt's repeats are waited for, many at once, and cost no budget.
func TestR68_ToWaitForAnOperationCostsNoBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		guarded := newGuard(t, semel.Policy{}).Wrap(&bank{takes: 8 * time.Second})
		wire := &wire{}
		wire.answer = func(n int, r *http.Request) (*http.Response, error) {
			if n <= 10 { // the first attempt of each caller is lost while it runs
				go serve(guarded, r.Clone(t.Context()))
				return nil, errBroken
			}
			return serve(guarded, r), nil
		}
		transport, err := client.New(wire, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		hc := &http.Client{Transport: transport}
		done := make(chan error)
		for n := range 10 {
			go func() {
				a, err := client.Do(t.Context(), hc, client.NewKey(), post(t, string(rune('a'+n))))
				if err == nil && (a.Status != 201 || !a.Replayed) {
					err = errors.New("no replay")
				}
				done <- err
			}()
		}
		for range 10 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestR67_AnAttemptHasThirtySeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		hang := roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		_, err := client.Do(t.Context(), newClient(t, hang, client.Options{MaxAttempts: 1}), client.NewKey(), post(t, "{}"))
		if e := checkError(t, err, client.ReasonAttempts); time.Since(started) != client.DefaultAttemptTimeout {
			t.Errorf("%v after %v, want %v", e, time.Since(started), client.DefaultAttemptTimeout)
		}
	})
}
