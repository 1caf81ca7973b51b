package semel_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// byDefault plays with the default logger, and returns the lines that were written. It must not be called in parallel.
func byDefault(t *testing.T, play func()) []string {
	t.Helper()
	log, out := logger(slog.LevelInfo)
	before := slog.Default()
	slog.SetDefault(log)
	defer slog.SetDefault(before)
	play()
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// Without an observer what is dangerous goes to slog.Default, as that is at the time of the event; decisions do not.
func TestField13_WithoutAnObserverDangerousEventsAreLogged(t *testing.T) { //nolint:paralleltest // it changes the default logger
	type who struct{}
	for _, tc := range []struct {
		name  string
		scope semel.Scope
		play  func(*testing.T, http.Handler)
		want  []string // in each line, after that of the plain identity
	}{
		{"a decision", semel.SingleTenant, func(t *testing.T, h http.Handler) { checkRun(t, answer(h, post("k", `{}`))) }, nil},
		{"no value in the context", semel.ScopeContext(who{}), func(t *testing.T, h http.Handler) {
			wantProblem(t, answer(h, post("k", `{}`)), 400, refusal.ScopeInvalid)
		}, []string{"event=idempotency_no_principal", "no value in the context"}},
		{"a value of another type", semel.ScopeContext(who{}), func(t *testing.T, h http.Handler) {
			r := post("k", `{}`)
			wantProblem(t, answer(h, r.WithContext(context.WithValue(r.Context(), who{}, 7))), 400, refusal.ScopeInvalid)
		}, []string{"event=idempotency_no_principal", "is a int, want a string"}},
		{"an empty scope", semel.ScopeFunc(func(*http.Request) (string, error) { return "", nil }), func(t *testing.T, h http.Handler) {
			wantProblem(t, answer(h, post("k", `{}`)), 400, refusal.ScopeInvalid)
		}, []string{"event=idempotency_no_principal", "it is empty"}},
		{"no answer", semel.SingleTenant, func(t *testing.T, h http.Handler) {
			wantProblem(t, answer(h, post("silent", `{}`)), 500, refusal.NoAnswer)
		}, []string{"event=idempotency_no_answer"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var g *semel.Guard
			lines := byDefault(t, func() {
				var err error
				if g, err = semel.New(memstore.New(), tc.scope, semel.Hold, semel.Options{}); err != nil {
					t.Fatal(err)
				}
			})
			if len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "event=idempotency_plain_identity") {
				t.Errorf("a new guard wrote %q", lines)
			}
			lines = byDefault(t, func() {
				tc.play(t, g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Idempotency-Key") != "silent" {
						(&ledger{}).pay(w, r)
					}
				})))
			})
			if len(lines) != 1 || tc.want == nil && lines[0] != "" {
				t.Errorf("wrote %q", lines)
			}
			for _, want := range tc.want {
				if !strings.Contains(lines[0], want) {
					t.Errorf("wrote %q, want %q", lines, want)
				}
			}
		})
	}
}

// An observer that wants silence gets it.
func TestField13_SilenceIsPossible(t *testing.T) { //nolint:paralleltest // it changes the default logger
	lines := byDefault(t, func() {
		o := semel.Options{Observer: event.Log(slog.New(slog.DiscardHandler), "")}
		g, err := semel.New(memstore.New(), semel.ScopeFunc(func(*http.Request) (string, error) { return "", nil }), semel.Hold, o)
		if err != nil {
			t.Fatal(err)
		}
		answer(g.Wrap(http.NotFoundHandler()), post("k", `{}`))
	})
	if len(lines) != 1 || lines[0] != "" {
		t.Errorf("wrote %q", lines)
	}
}

// A store that is down writes a bounded number of lines, whatever the number of requests, and says what it has left
// out.
func TestField13_LinesAreBounded(t *testing.T) { //nolint:paralleltest // it changes the default logger
	synctest.Test(t, func(t *testing.T) {
		lines := byDefault(t, func() {
			f := &faulty{Store: memstore.New()}
			f.claim = func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
				return driver.Record{}, false, errors.New("down")
			}
			g, err := semel.New(f, semel.SingleTenant, semel.Hold, semel.Options{})
			if err != nil {
				t.Fatal(err)
			}
			semel.IdentityChecked(g)
			h := g.Wrap(http.NotFoundHandler())
			for i := range 200 {
				answer(h, post(strconv.Itoa(i), `{}`))
			}
			time.Sleep(2 * time.Minute)
			answer(h, post("later", `{}`))
			drained(t, g)
		})
		of := func(words ...string) (n int) {
		lines:
			for _, line := range lines {
				for _, word := range words {
					if !strings.Contains(line, word) {
						continue lines
					}
				}
				n++
			}
			return n
		}
		if n := of("event=idempotency_store_error", "verb=claim"); n < 10 || n > 33 {
			t.Errorf("%d lines for 603 claims that failed, want 10 a minute", n)
		}
		if of("verb=claim", "left_out=") == 0 {
			t.Errorf("nothing says what was left out:\n%s", strings.Join(lines, "\n"))
		}
	})
}

// What an observer throws is written there, too.
func TestField08_WhatAnObserverThrowsIsLogged(t *testing.T) { //nolint:paralleltest // it changes the default logger
	lines := byDefault(t, func() {
		g, _ := newGuardWith(t, nil, semel.Options{Observer: observerFunc(func(event.Event) { panic(errThrown) })})
		for range 30 {
			answer(g.Wrap(http.NotFoundHandler()), post("k", `{}`))
		}
	})
	if len(lines) != 10 || !strings.Contains(lines[0], "level=ERROR") || !strings.Contains(lines[0], "the observer panicked") || !strings.Contains(lines[0], "throws_test.go") && !strings.Contains(lines[0], "defaultlog_test.go") {
		t.Errorf("wrote %d lines, the first %q", len(lines), lines[0])
	}
}
