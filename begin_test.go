package semel_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
)

// The route's own function decides, before the first byte, whether a stream may begin: it has no body then. What may
// not begin is buffered, and decided about with its body.
func TestField05_R38_R44_TheRouteDecidesWhatBegins(t *testing.T) {
	t.Parallel()
	say := func(v semel.Verdict) func(int, http.Header, []byte) semel.Verdict {
		return func(int, http.Header, []byte) semel.Verdict { return v }
	}
	byBody := func(_ int, _ http.Header, body []byte) semel.Verdict {
		switch {
		case body == nil:
			return semel.VerdictLost
		case strings.Contains(string(body), "failed"):
			return semel.VerdictRelease
		}
		return semel.VerdictKeep
	}
	byHeader := func(_ int, h http.Header, _ []byte) semel.Verdict {
		if h.Get("X-Outcome") == "nothing" {
			return semel.VerdictRelease
		}
		return semel.VerdictDefault
	}
	for _, tt := range []struct {
		name   string
		decide func(int, http.Header, []byte) semel.Verdict
		status int
		body   string
		begins bool
		state  driver.State
	}{
		{"kept", say(semel.VerdictKeep), 200, "x", true, driver.Done},
		{"kept whatever its status", say(semel.VerdictKeep), 503, "x", true, driver.Done},
		{"left to the rules", say(semel.VerdictDefault), 200, "x", true, driver.Done},
		{"left to the rules, released", say(semel.VerdictDefault), 429, "x", false, driver.Free},
		{"released", say(semel.VerdictRelease), 200, "x", false, driver.Free},
		{"lost", say(semel.VerdictLost), 502, "x", false, driver.Unknown},
		{"unknown", say(semel.VerdictUnknown), 200, "x", false, driver.Unknown},
		{"by a header, released", byHeader, 200, "x", false, driver.Free},
		{"by its body, kept", byBody, 200, "done", false, driver.Done},
		{"by its body, released", byBody, 200, "failed", false, driver.Free},
	} {
		for _, events := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, " events ", events), func(t *testing.T) {
				t.Parallel()
				store := memstore.New()
				g, _ := newGuard(t, store, semel.Policy{Stream: !events, Decide: tt.decide})
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("X-Outcome", "nothing")
					if events {
						w.Header().Set("Content-Type", "text/event-stream")
					}
					w.WriteHeader(tt.status)
					w.(http.Flusher).Flush()
					io.WriteString(w, tt.body)
					if begun := loaded(t, store, "k").Begun; begun != tt.begins {
						t.Errorf("begun %t, want %t", begun, tt.begins)
					}
				}))
				w := answer(h, post("k", "{}"))
				if w.Code != tt.status || w.Body.String() != tt.body || w.Flushed != tt.begins {
					t.Errorf("answered %d %q, flushed %t", w.Code, w.Body, w.Flushed)
				}
				if rec := loaded(t, store, "k"); rec.State != tt.state || rec.Begun != tt.begins || (rec.Response != nil) != (tt.state == driver.Done) {
					t.Errorf("the record is %v, begun %t, with %v", rec.State, rec.Begun, rec.Response)
				}
			})
		}
	}
}

// It is asked once about an answer that begins, and its word stays; about any other once more, with the body.
func TestField05_R44_TheRouteIsAskedWithTheBodyUnlessTheAnswerHasBegun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first semel.Verdict
		asked []string
	}{
		{semel.VerdictKeep, []string{"no body"}},
		{semel.VerdictLost, []string{"no body", "x"}},
	} {
		var asked []string
		g, _ := newGuard(t, nil, semel.Policy{Stream: true, Decide: func(_ int, _ http.Header, body []byte) semel.Verdict {
			if body == nil {
				asked = append(asked, "no body")
				return c.first
			}
			asked = append(asked, string(body))
			return semel.VerdictKeep
		}})
		answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte("x"))
			w.(http.Flusher).Flush()
		})), post("k", "{}"))
		if !reflect.DeepEqual(asked, c.asked) {
			t.Errorf("asked with %q, want %q", asked, c.asked)
		}
	}
}

// What the handler says of its answer before the first byte counts.
func TestField05_R44_WhatTheHandlerSaysBeforeTheFirstByteCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		say   func(*semel.Operation)
		state driver.State
	}{
		{"release", (*semel.Operation).Release, driver.Free},
		{"lost", func(op *semel.Operation) { op.Lost(errDown) }, driver.Unknown},
	} {
		store := memstore.New()
		g, _ := newGuard(t, store, semel.Policy{Stream: true})
		w := answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			c.say(semel.FromContext(r.Context()))
			io.WriteString(w, "x")
		})), post("k", "{}"))
		if rec := loaded(t, store, "k"); rec.Begun || rec.State != c.state || w.Flushed {
			t.Errorf("%s: the record is %v, begun %t, flushed %t", c.name, rec.State, rec.Begun, w.Flushed)
		}
	}
}

// An answer that ends with its connection, as HTTP/1.0's do, would look whole if that were closed.
func TestField05_R38_ALostStreamIsResetWhereItsEndIsTheConnections(t *testing.T) {
	t.Parallel()
	ends := map[string]func(w http.ResponseWriter, r *http.Request){
		"lost": func(_ http.ResponseWriter, r *http.Request) {
			semel.FromContext(r.Context()).Lost(errors.New("upstream broke"))
		},
		"abort": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"whole": func(http.ResponseWriter, *http.Request) {},
	}
	for name, end := range ends {
		for _, proto := range []string{"HTTP/1.0", "HTTP/1.1", "HTTP/1.1 identity"} {
			for _, secure := range []bool{false, true} {
				t.Run(fmt.Sprint(name, " ", proto, " TLS ", secure), func(t *testing.T) {
					t.Parallel()
					version, identity, _ := strings.Cut(proto, " ")
					g, _ := newGuard(t, nil, semel.Policy{Stream: true})
					srv := httptest.NewUnstartedServer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if identity != "" {
							w.Header().Set("Transfer-Encoding", identity)
						}
						io.WriteString(w, "part one;")
						end(w, r)
					})))
					if secure {
						srv.StartTLS()
					} else {
						srv.Start()
					}
					t.Cleanup(srv.Close)
					var conn net.Conn
					conn, err := net.Dial("tcp", srv.Listener.Addr().String())
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					if secure {
						conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test's own server
					}
					fmt.Fprintf(conn, "POST /p %s\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n", version)
					res, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						if name == "whole" {
							t.Error(err)
						}
						return // it was reset before it was read
					}
					body, err := io.ReadAll(res.Body)
					if (err == nil) != (name == "whole") || err == nil && string(body) != "part one;" {
						t.Errorf("read %q, %v", body, err)
					}
				})
			}
		}
	}
}
