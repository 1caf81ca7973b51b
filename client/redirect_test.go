package client_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/client"
)

// redirected answers with redirects to the places, and then with 201.
func redirected(status int, places ...string) *wire {
	return &wire{answer: func(n int, _ *http.Request) (*http.Response, error) {
		if n <= len(places) {
			return response(status, "", "Location", places[n-1]), nil
		}
		return response(201, "{}"), nil
	}}
}

func TestR69_RedirectsKeepKeyAndBodyOn307And308Only(t *testing.T) {
	t.Parallel()
	for status, kept := range map[int]bool{301: false, 302: false, 303: false, 307: true, 308: true} {
		for _, own := range []bool{false, true} {
			net := redirected(status, "/a", "/b")
			r := post(t, "{}")
			if own {
				r.Header.Set("Idempotency-Key", `"mine"`) // net/http takes it along by itself
			}
			if got, _, err := fetch(newClient(t, net, client.Options{}), r); got != 201 {
				t.Fatalf("%d: %d, %v", status, got, err)
			}
			keys := net.keys()
			for i, hop := range net.requests()[1:] {
				if kept && (hop.method != "POST" || hop.body != "{}" || keys[i+1] != keys[0]) ||
					!kept && (hop.method != "GET" || hop.body != "" || keys[i+1] != "") {
					t.Errorf("%d, own key %v: hop %d is %s with key %q and body %q", status, own, i+1, hop.method, keys[i+1], hop.body)
				}
			}
		}
	}
}

// A chain that has dropped the body once keeps it dropped.
func TestR69_AKeyOnceDroppedStaysDropped(t *testing.T) {
	t.Parallel()
	net := &wire{answer: func(n int, _ *http.Request) (*http.Response, error) {
		return []*http.Response{
			response(307, "", "Location", "/a"), response(303, "", "Location", "/b"), response(307, "", "Location", "/c"),
			response(200, "{}"),
		}[n-1], nil
	}}
	r := post(t, "{}")
	r.Header.Set("Idempotency-Key", "mine")
	if status, _, err := fetch(newClient(t, net, client.Options{}), r); status != 200 {
		t.Errorf("%d, %v", status, err)
	}
	if got := net.keys(); !slices.Equal(got, []string{"mine", "mine", "", ""}) {
		t.Errorf("keys %q, want them until the 303", got)
	}
}

func TestR69_TheKeyStaysOnItsOrigin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, from, to string
		cross          []string
		kept           bool
	}{
		{"same", target, "https://api.example/v2", nil, true},
		{"default port spelled out", target, "https://API.example:443/v2", nil, true},
		{"up to TLS", "http://api.example/payments", "https://api.example/payments", nil, true},
		{"down from TLS", target, "http://api.example/payments", nil, false},
		{"another host", target, "https://evil.example/payments", nil, false},
		{"a host below", target, "https://x.api.example/payments", nil, false},
		{"another port", target, "https://api.example:8443/payments", nil, false},
		{"up to TLS on another port", "http://api.example:8080/", "https://api.example/", nil, false},
		{"another host, allowed by name", target, "https://other.example/payments", []string{"https://other.example"}, true},
		{"another host than the one that is allowed", target, "https://evil.example/payments", []string{"https://other.example"}, false},
	} {
		for _, how := range []string{"made", "header", "context"} {
			net := redirected(307, c.to)
			r := post(t, "{}")
			u, err := r.URL.Parse(c.from)
			if err != nil {
				t.Fatal(err)
			}
			r.URL, r.Host = u, u.Host
			r.Header.Set("X-Correlation-Id", "c-1")
			switch how {
			case "header":
				r.Header.Set("Idempotency-Key", `"mine"`)
			case "context":
				r = r.WithContext(client.WithKey(r.Context(), client.Key{Value: "mine"}))
			}
			status, _, err := fetch(newClient(t, net, client.Options{CrossOrigin: c.cross}), r)
			keys := net.keys()
			if !c.kept {
				if e := checkError(t, err, ""); !errors.Is(err, client.ErrCrossOrigin) || e.Attempts != 1 || len(keys) != 1 {
					t.Errorf("%s, %s key: %v after %d requests, want ErrCrossOrigin after one", c.name, how, err, len(keys))
				}
				continue
			}
			if status != 201 || len(keys) != 2 || keys[0] == "" || keys[1] != keys[0] {
				t.Errorf("%s, %s key: %d, %v; keys %q, want one, twice", c.name, how, status, err, keys)
			}
			if net.requests()[1].header.Get("X-Correlation-Id") == "" {
				t.Errorf("%s: the correlation id did not go along", c.name)
			}
		}
	}
}

// A request without a key has none to lose: it goes where it is sent, once.
func TestR69_AHopWithoutKeyIsNotRepeated(t *testing.T) {
	t.Parallel()
	net := &wire{answer: func(n int, _ *http.Request) (*http.Response, error) {
		if n == 1 {
			return response(308, "", "Location", "https://elsewhere.example/"), nil
		}
		return nil, errBroken
	}}
	r := post(t, "{}")
	r.Method = http.MethodPatch
	if _, _, err := fetch(newClient(t, net, client.Options{Methods: []string{"POST"}}), r); !errors.Is(err, errBroken) || len(net.requests()) != 2 {
		t.Errorf("%v after %d requests, want an error after 2", err, len(net.requests()))
	}
}

// Attempts are counted over all hops, and the loop is http.Client's to end.
func TestR69_ALoopOfRedirectsEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := &wire{answer: func(n int, _ *http.Request) (*http.Response, error) {
			if n == 2 || n == 4 {
				return response(503, "{}"), nil
			}
			return response(307, "", "Location", "/again"), nil
		}}
		_, err := client.Do(t.Context(), newClient(t, net, client.Options{}), client.NewKey(), post(t, "{}"))
		if e := checkError(t, err, ""); !strings.Contains(e.Error(), "stopped after 10 redirects") || e.Attempts != 12 || e.Answer.Status != 307 {
			t.Errorf("%v with %+v, want http.Client's error after 10 hops and 2 repeats", e, e.Answer)
		}
		if got := slices.Compact(net.keys()); len(got) != 1 {
			t.Errorf("%d keys in one call", len(got))
		}

		net = &wire{answer: func(n int, _ *http.Request) (*http.Response, error) {
			if n%2 == 1 {
				return response(503, "{}"), nil
			}
			return response(307, "", "Location", "/again"), nil
		}}
		_, err = client.Do(t.Context(), newClient(t, net, client.Options{}), client.NewKey(), post(t, "{}"))
		if e := checkError(t, err, client.ReasonAttempts); e.Attempts != 7 {
			t.Errorf("%v, want 7 sent", e)
		}
		want := []time.Duration{100 * time.Millisecond, 0, 200 * time.Millisecond, 0, 400 * time.Millisecond, 0}
		if got := net.gaps(); !slices.Equal(got, want) {
			t.Errorf("gaps %v, want those of three repeats over all hops", got)
		}
	})
}

// Who follows a 302 with a POST, against what browsers and http.Client do, sends it without the key, once.
func TestR69_APostAfterA302HasNoKey(t *testing.T) {
	t.Parallel()
	for status, kept := range map[int]bool{302: false, 307: true} {
		net := &wire{answer: func(n int, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return response(status, "", "Location", "/b"), nil
			}
			return nil, errBroken
		}}
		transport := newClient(t, net, client.Options{MaxAttempts: 2, Random: func() float64 { return 0 }}).Transport
		first := post(t, "{}")
		res, err := transport.RoundTrip(first)
		if err != nil {
			t.Fatal(err)
		}
		next := post(t, "{}")
		next.Response = res
		if _, err := transport.RoundTrip(next); err == nil {
			t.Errorf("%d: the hop was answered", status)
		}
		keys := net.keys()
		if want := map[bool]int{false: 2, true: 3}[kept]; len(keys) != want || (keys[1] == keys[0]) != kept {
			t.Errorf("%d: keys %q", status, keys)
		}
	}
}

// Another origin than the request's is asked nothing, whoever names it.
func TestR70_AQuestionStaysOnTheRequestsOwnOrigin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const elsewhere = "https://elsewhere.example/operations"
		for name, c := range map[string]struct {
			o      client.Options
			script []*http.Response // nil: the answer is lost
		}{
			"the Location of a 202": {
				client.Options{PollEvery: time.Second}, []*http.Response{response(202, "{}", "Location", elsewhere)},
			},
			"a redirect of a question": {
				client.Options{PollEvery: time.Second},
				[]*http.Response{response(202, "{}", "Location", "/operations"), response(307, "", "Location", elsewhere)},
			},
			"StatusURL": {client.Options{StatusURL: elsewhere}, []*http.Response{nil, response(201, "{}")}},
			"a redirect of StatusURL": {
				client.Options{StatusURL: "/operations"}, []*http.Response{nil, response(307, "", "Location", elsewhere), response(201, "{}")},
			},
		} {
			net := &wire{answer: func(n int, _ *http.Request) (*http.Response, error) {
				if c.script[n-1] == nil {
					return nil, errBroken
				}
				return c.script[n-1], nil
			}}
			c.o.CrossOrigin = []string{"https://elsewhere.example"}
			_, err := client.Do(t.Context(), newClient(t, net, c.o), client.NewKey(), post(t, "{}"))
			if len(net.requests()) != len(c.script) {
				t.Errorf("%s: %d requests, want %d (%v)", name, len(net.requests()), len(c.script), err)
			}
			for i, got := range net.requests() {
				if !strings.HasPrefix(got.url, "https://api.example/") {
					t.Errorf("%s: request %d went to %s", name, i+1, got.url)
				}
			}
		}
	})
}

// A hop belongs to its own call, also if its base gives back a response that names the request of another one.
func TestR65_AHopHasTheKeyOfItsOwnCall(t *testing.T) {
	t.Parallel()
	net := &wire{answer: func(n int, _ *http.Request) (*http.Response, error) {
		if n%2 == 1 {
			return response(308, "", "Location", "/b"), nil
		}
		return response(201, "{}"), nil
	}}
	var first *http.Request
	base := roundTrip(func(r *http.Request) (*http.Response, error) {
		res, err := net.RoundTrip(r)
		if err == nil && first == nil {
			first = res.Request
		}
		res.Request = first
		return res, err
	})
	hc := newClient(t, base, client.Options{})
	for range 2 {
		if status, _, err := fetch(hc, post(t, "{}")); status != 201 {
			t.Fatalf("%d, %v", status, err)
		}
	}
	if keys := net.keys(); keys[0] != keys[1] || keys[2] != keys[3] || keys[0] == keys[2] {
		t.Errorf("keys %q, want two, each for two hops", keys)
	}
}

// What CheckRedirect sends, with the context of the hop that it is asked about, is a call of its own.
func TestR65_WhatCheckRedirectSendsIsNoHop(t *testing.T) {
	t.Parallel()
	net := &wire{answer: func(_ int, r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/payments" {
			return response(307, "", "Location", "/b"), nil
		}
		return response(201, "{}"), nil
	}}
	hc := newClient(t, net, client.Options{})
	hc.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		log, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "https://api.example/log", nil)
		if err != nil {
			return err
		}
		_, _, err = fetch(hc, log)
		return err
	}
	a, err := client.Do(t.Context(), hc, client.Key{Value: "k"}, post(t, "{}"))
	if err != nil || a.Attempts != 2 || a.URL.Path != "/b" {
		t.Errorf("%+v, %v; want the second hop's answer", a, err)
	}
	keys := net.keys()
	if len(keys) != 3 || keys[0] != `"k"` || keys[2] != `"k"` || keys[1] == "" || keys[1] == keys[0] {
		t.Errorf("keys %q, want another one for what CheckRedirect sent", keys)
	}
}
