package client_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

var quotedUUID = regexp.MustCompile(`^"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"$`)

func TestR65_OneKeyACallMadeOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := statuses(0, 503, 0, 201, 0, 201)
		hc := newClient(t, net, client.Options{})
		for range 2 {
			r := post(t, `{"amount":5}`)
			before := r.Header.Clone()
			if status, _, err := fetch(hc, r); status != 201 {
				t.Fatalf("%d, %v; want 201", status, err)
			}
			if fmt.Sprint(r.Header) != fmt.Sprint(before) {
				t.Errorf("the caller's header became %v", r.Header)
			}
		}
		keys := net.keys()
		if len(keys) != 6 {
			t.Fatalf("%d requests, want 6", len(keys))
		}
		first, second := slices.Compact(keys[:4]), slices.Compact(keys[4:])
		if len(first) != 1 || len(second) != 1 || first[0] == second[0] || !quotedUUID.MatchString(first[0]) {
			t.Errorf("keys %q, want one a call, each a quoted UUID of version 4", keys)
		}
		for _, r := range net.requests() {
			if r.body != `{"amount":5}` || r.header.Get("Content-Length") != "" && r.header.Get("Content-Length") != "12" {
				t.Errorf("body %q, want the caller's", r.body)
			}
		}
	})
}

func TestR65_TheCallersOwnKeyWins(t *testing.T) {
	t.Parallel()
	made := 0
	for _, c := range []struct {
		name   string
		o      client.Options
		change func(*http.Request) *http.Request
		want   string
	}{
		{"the header, as it stands", client.Options{}, func(r *http.Request) *http.Request {
			r.Header.Set("Idempotency-Key", "mine")
			return r.WithContext(client.WithKey(r.Context(), client.Key{Value: "other"}))
		}, `mine`},
		{"the header under a name in lower case", client.Options{}, func(r *http.Request) *http.Request {
			r.Header["idempotency-key"] = []string{`"mine"`}
			return r
		}, `"mine"`},
		{"the context", client.Options{Key: func(*http.Request) string { return "made" }}, func(r *http.Request) *http.Request {
			return r.WithContext(client.WithKey(r.Context(), client.Key{Value: "mine"}))
		}, `"mine"`},
		{"the context, bare", client.Options{Bare: true}, func(r *http.Request) *http.Request {
			return r.WithContext(client.WithKey(r.Context(), client.Key{Value: "mine"}))
		}, `mine`},
		{"the option, asked once", client.Options{Key: func(r *http.Request) string {
			made++
			return fmt.Sprintf("%s-%d", r.URL.Path[1:], made)
		}}, func(r *http.Request) *http.Request { return r }, `"payments-1"`},
	} {
		synctest.Test(t, func(t *testing.T) {
			net := statuses(503, 0, 201)
			if status, _, err := fetch(newClient(t, net, c.o), c.change(post(t, "{}"))); status != 201 {
				t.Errorf("%s: %d, %v", c.name, status, err)
			}
			if got := net.keys(); !slices.Equal(got, []string{c.want, c.want, c.want}) {
				t.Errorf("%s: keys %q, want %q three times", c.name, got, c.want)
			}
		})
	}
}

func TestR65_AMalformedKeyIsNotSent(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*http.Request) *http.Request{
		"unclosed": func(r *http.Request) *http.Request { r.Header.Set("Idempotency-Key", `"mine`); return r },
		"empty":    func(r *http.Request) *http.Request { r.Header.Set("Idempotency-Key", ""); return r },
		"two lines": func(r *http.Request) *http.Request {
			r.Header["Idempotency-Key"] = []string{"a", "a"}
			return r
		},
		"two names": func(r *http.Request) *http.Request {
			r.Header["Idempotency-Key"], r.Header["idempotency-key"] = []string{"a"}, []string{"a"}
			return r
		},
		"control characters": func(r *http.Request) *http.Request {
			return r.WithContext(client.WithKey(r.Context(), client.Key{Value: "a\r\nX: y"}))
		},
		"too long": func(r *http.Request) *http.Request {
			return r.WithContext(client.WithKey(r.Context(), client.Key{Value: strings.Repeat("s3cret", 50)}))
		},
	} {
		net := statuses(201)
		r := change(post(t, "{}"))
		closed := false
		r.Body = &closing{r.Body, &closed}
		_, _, err := fetch(newClient(t, net, client.Options{}), r)
		if !errors.Is(err, refusal.KeyInvalid) || len(net.requests()) != 0 || !closed || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, %d requests, body closed %v; want ErrKeyInvalid, none, and closed", name, err, len(net.requests()), closed)
		}
	}
}

type closing struct {
	io.ReadCloser
	closed *bool
}

func (c *closing) Close() error {
	*c.closed = true
	return c.ReadCloser.Close()
}

// A caller that has kept the key goes on after a crash, in another process: one effect, and the answer.
func TestR65_AKeyThatWasKeptOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		effects := 0
		guard, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{})
		if err != nil {
			t.Fatal(err)
		}
		h := guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			effects++
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, "payment %d", effects)
		}))
		lossy := &wire{answer: func(_ int, r *http.Request) (*http.Response, error) {
			serve(h, r)
			return nil, errBroken
		}}
		kept, err := json.Marshal(client.NewKey())
		if err != nil {
			t.Fatal(err)
		}
		var key client.Key
		if err := json.Unmarshal(kept, &key); err != nil {
			t.Fatal(err)
		}
		_, err = client.Do(t.Context(), newClient(t, lossy, client.Options{}), key, post(t, "{}"))
		if e := checkError(t, err, client.ReasonAttempts); e.Key != key || e.Attempts != 4 || !errors.Is(err, errBroken) {
			t.Errorf("%v: key %v, %d attempts", e, e.Key, e.Attempts)
		}

		time.Sleep(time.Hour)
		a, err := client.Do(t.Context(), newClient(t, served(h), client.Options{}), key, post(t, "{}"))
		if err != nil || a.Status != 201 || string(a.Body) != "payment 1" || !a.Replayed || a.Key != key || effects != 1 {
			t.Errorf("%+v, %v, %d effects; want the replay of one", a, err, effects)
		}

		// The server may have forgotten it by then, and would run it again.
		time.Sleep(23 * time.Hour)
		net := served(h)
		_, err = client.Do(t.Context(), newClient(t, net, client.Options{}), key, post(t, "{}"))
		if e := checkError(t, err, client.ReasonRetention); e.Attempts != 0 || len(net.requests()) != 0 {
			t.Errorf("%v: %d requests after the retention, want none", e, len(net.requests()))
		}
	})
}

func TestR15_KeysStayOutOfLogsAndErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const raw = "s3cret-key"
		key := client.Key{Value: raw}
		var logged bytes.Buffer
		log := slog.New(slog.NewJSONHandler(&logged, nil))
		hc := newClient(t, statuses(0), client.Options{OnAttempt: func(a client.Attempt) { log.Info("attempt", "attempt", a) }})
		_, err := client.Do(t.Context(), hc, key, post(t, "{}"))
		log.Info("ended", "key", key, "error", err)
		if text := logged.String(); strings.Contains(text, raw) || !strings.Contains(text, key.Digest()) || len(key.Digest()) != 16 {
			t.Errorf("logged %s; want the digest %s and no key", text, key.Digest())
		}
	})
}

// case 26: a client that makes a new key for each attempt, or overwrites the caller's.
func TestCase26_OneKeyACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := statuses(0, 500, 0, 201)
		hc := newClient(t, net, client.Options{})
		r := post(t, "{}")
		r.Header.Set("Idempotency-Key", `"order-42"`)
		if status, _, err := fetch(hc, r); status != 201 {
			t.Errorf("%d, %v", status, err)
		}
		if got := slices.Compact(net.keys()); len(got) != 1 || got[0] != `"order-42"` {
			t.Errorf("keys %q, want the caller's four times", net.keys())
		}
	})
}
