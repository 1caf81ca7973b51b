package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/client"
)

// stream makes a POST whose body can be read once, of unknown length, and tells whether it was closed.
func stream(t *testing.T, body io.Reader) (r *http.Request, closed *bool) {
	t.Helper()
	closed = new(bool)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, &closing{io.NopCloser(body), closed})
	if err != nil {
		t.Fatal(err)
	}
	return r, closed
}

func TestABodyWithoutGetBodyIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, body := range []string{"", "x", strings.Repeat("x", 1<<20)} {
			net := statuses(0, 503, 201)
			r, closed := stream(t, strings.NewReader(body))
			if status, _, err := fetch(newClient(t, net, client.Options{}), r); status != 201 || !*closed {
				t.Errorf("%d bytes: %d, %v, closed %v", len(body), status, err, *closed)
			}
			for _, got := range net.requests() {
				if got.body != body {
					t.Errorf("%d bytes arrived, want %d", len(got.body), len(body))
				}
			}
		}
	})
}

func TestABodyThatCantBeRepeatedIsNotSent(t *testing.T) {
	t.Parallel()
	const limit = 1 << 10
	for _, do := range []bool{false, true} {
		for _, known := range []bool{false, true} {
			net := statuses(201)
			r, closed := stream(t, strings.NewReader(strings.Repeat("x", limit+1)))
			if known {
				r.ContentLength = limit + 1
			}
			hc := newClient(t, net, client.Options{MaxBody: limit})
			var err error
			if do {
				_, err = client.Do(t.Context(), hc, client.NewKey(), r)
				if e := checkError(t, err, ""); e.Attempts != 0 {
					t.Errorf("%v: %d attempts", err, e.Attempts)
				}
			} else {
				_, _, err = fetch(hc, r)
			}
			if !errors.Is(err, client.ErrBodyNotRepeatable) || len(net.requests()) != 0 || !*closed {
				t.Errorf("Do %v, length known %v: %v, %d requests, closed %v", do, known, err, len(net.requests()), *closed)
			}
		}
	}

	// What is sent once at most may stream.
	for name, o := range map[string]client.Options{
		"without a key": {MaxBody: limit, Key: func(*http.Request) string { return "" }},
		"one attempt":   {MaxBody: limit, MaxAttempts: 1},
	} {
		net := statuses(201)
		r, closed := stream(t, strings.NewReader(strings.Repeat("x", limit+1)))
		if status, _, err := fetch(newClient(t, net, o), r); status != 201 || len(net.requests()[0].body) != limit+1 || !*closed {
			t.Errorf("%s: %d, %v, closed %v", name, status, err, *closed)
		}
	}
}

// A trailer is sent after the body in each attempt, though the body was kept.
func TestATrailerIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "abc"} {
		n := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n++
			text, err := io.ReadAll(r.Body)
			if err != nil || string(text) != body || r.Trailer.Get("X-Sum") != "1" {
				t.Errorf("body %q, trailer %v, %v; want %q and the sum", text, r.Trailer, err, body)
			}
			if n == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		defer server.Close()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, io.NopCloser(strings.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Trailer = http.Header{"X-Sum": {"1"}}
		hc := newClient(t, nil, client.Options{Backoff: client.FullJitter(1, 1)})
		if status, _, err := fetch(hc, r); status != 200 || n != 2 {
			t.Errorf("%d, %v after %d requests", status, err, n)
		}
	}
}

// Who makes the same call again has the same request at hand: its body starts from the beginning.
func TestR65_DoTakesTheSameRequestAgain(t *testing.T) {
	t.Parallel()
	const body = `{"order":42}`
	known := post(t, body)
	unknown, _ := stream(t, strings.NewReader(body))
	for name, r := range map[string]*http.Request{"with GetBody": known, "without": unknown} {
		net := statuses(503, 201)
		hc := newClient(t, net, client.Options{MaxAttempts: 1})
		key := client.NewKey()
		_, err := client.Do(t.Context(), hc, key, r)
		if e := checkError(t, err, client.ReasonAttempts); e.Attempts != 1 {
			t.Errorf("%s: %v, want 1 sent", name, e)
		}
		if a, err := client.Do(t.Context(), hc, key, r); err != nil || a.Status != 201 {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
		for i, got := range net.requests() {
			if got.body != body {
				t.Errorf("%s: body %q in call %d, want %q", name, got.body, i+1, body)
			}
		}
	}
}

// What can't be sent at all is not worth a repeat, of which all calls have few.
func TestARequestThatCantBeSentIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(*http.Request){
		"a token from a file":   func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret\n") },
		"a correlation id":      func(r *http.Request) { r.Header.Set("X-Correlation-Id", "a\x00") },
		"the name of a header":  func(r *http.Request) { r.Header["X A"] = []string{"1"} },
		"the name of a method":  func(r *http.Request) { r.Method = "PO ST" },
		"also a safe request's": func(r *http.Request) { r.Method = "GET"; r.Header.Set("X-A", "\x7f") },
	} {
		net := statuses(201)
		r := post(t, "{}")
		breaks(r)
		_, err := client.Do(t.Context(), newClient(t, net, client.Options{}), client.NewKey(), r)
		if e := checkError(t, err, ""); e.Attempts != 0 || len(net.requests()) != 0 || strings.Contains(e.Error(), "secret") {
			t.Errorf("%s: %v after %d requests, want an error before any, without the value", name, e, len(net.requests()))
		}
	}
	r := post(t, "{}")
	r.Header.Set("X-Name", "caf\u00e9\tx") // obs-text is ugly, but can be sent
	if status, _, err := fetch(newClient(t, statuses(201), client.Options{}), r); status != 201 {
		t.Errorf("%d, %v", status, err)
	}
}

func TestABodyThatLiesAboutItsLengthIsNotSent(t *testing.T) {
	t.Parallel()
	net := statuses(201)
	r, _ := stream(t, strings.NewReader("123"))
	r.ContentLength = 5
	if _, _, err := fetch(newClient(t, net, client.Options{}), r); err == nil || len(net.requests()) != 0 {
		t.Errorf("%v, %d requests", err, len(net.requests()))
	}
	r, closed := stream(t, brokenReader{})
	if _, _, err := fetch(newClient(t, net, client.Options{}), r); !errors.Is(err, errBroken) || !*closed || len(net.requests()) != 0 {
		t.Errorf("%v, closed %v, %d requests", err, *closed, len(net.requests()))
	}
}

func TestABodyThatCantBeRewoundEndsTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := statuses(503)
		r := post(t, "{}")
		gone := fmt.Errorf("file is gone")
		r.GetBody = func() (io.ReadCloser, error) { return nil, gone }
		_, _, err := fetch(newClient(t, net, client.Options{}), r)
		e := checkError(t, err, "")
		if !errors.Is(err, client.ErrBodyNotRepeatable) || !errors.Is(err, gone) || len(net.requests()) != 1 || e.Attempts != 1 {
			t.Errorf("%v after %d requests, want the reason after one", err, len(net.requests()))
		}
	})
}

func TestEveryBodyIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opened, closed, answers := 0, 0, 0
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			io.Copy(io.Discard, r.Body) //nolint:errcheck // in memory
			r.Body.Close()
			if opened == 2 {
				return nil, errBroken
			}
			res := response(503, "{}")
			res.Body = &counted{res.Body, &answers}
			return res, nil
		})
		r := post(t, "")
		r.GetBody = func() (io.ReadCloser, error) {
			opened++
			return &counted{io.NopCloser(strings.NewReader("{}")), &closed}, nil
		}
		r.Body, _ = r.GetBody()
		if status, _, err := fetch(newClient(t, base, client.Options{}), r); status != 503 {
			t.Errorf("%d, %v", status, err)
		}
		if opened != 4 || closed != 4 || answers != 3 {
			t.Errorf("%d bodies opened, %d closed, %d of 3 answers closed", opened, closed, answers)
		}

		// Also that of a request which is never sent.
		opened, closed = 0, 0
		r.Body, _ = r.GetBody()
		old := client.Key{Value: "k", Made: time.Now().Add(-48 * time.Hour)}
		_, err := client.Do(t.Context(), newClient(t, base, client.Options{}), old, r)
		if e := checkError(t, err, client.ReasonRetention); e.Attempts != 0 || opened == 0 || closed != opened {
			t.Errorf("%d bodies opened, %d closed", opened, closed)
		}
	})
}

type counted struct {
	io.ReadCloser
	n *int
}

func (c *counted) Close() error {
	*c.n++
	return c.ReadCloser.Close()
}
