package semel_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

func TestR38_BodiesAboveTheThresholdAreStoredCompressed(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 20_000)
	rand.NewChaCha8([32]byte{1}).Read(noise) //nolint:errcheck // it never fails
	text := strings.Repeat("text ", 5000)
	for _, tt := range []struct {
		name   string
		policy semel.Policy
		body   string
		coding string
		codec  string
	}{
		{"below the default", semel.Policy{}, text[:8<<10-1], "", ""},
		{"at the default", semel.Policy{}, text[:8<<10], "", "gzip"},
		{"below its own", semel.Policy{CompressAbove: 100}, text[:99], "", ""},
		{"at its own", semel.Policy{CompressAbove: 100}, text[:100], "", "gzip"},
		{"never", semel.Policy{CompressAbove: -1}, text, "", ""},
		{"empty", semel.Policy{CompressAbove: 1}, "", "", ""},
		{"does not help", semel.Policy{}, string(noise), "", ""},
		{"encoded already", semel.Policy{}, text, "br", ""},
		{"streamed", semel.Policy{Stream: true}, text, "", "gzip"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, l := memstore.New(), &ledger{}
			g, _ := newGuard(t, s, tt.policy)
			h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				l.add()
				if tt.coding != "" {
					w.Header().Set("Content-Encoding", tt.coding)
				}
				io.WriteString(w, tt.body)
			}))
			for range 3 {
				w := answer(h, post("k", "{}"))
				if w.Body.String() != tt.body || w.Header().Get("Content-Encoding") != tt.coding {
					t.Errorf("got %d bytes, Content-Encoding %q", w.Body.Len(), w.Header().Get("Content-Encoding"))
				}
			}
			r := only(t, s).Response
			if r.Codec != tt.codec || (tt.codec != "") != (len(r.Body) < len(tt.body)) {
				t.Errorf("stored as %q, %d of %d bytes", r.Codec, len(r.Body), len(tt.body))
			}
			if l.count() != 1 {
				t.Errorf("%d executions", l.count())
			}
		})
	}
}

// upside stores bodies upside down, and a byte shorter.
type upside struct{ fail, panics bool }

func (upside) Name() string { return "upside" }

func (u upside) Encode(body []byte) ([]byte, error) {
	switch {
	case u.panics:
		panic("codec")
	case u.fail:
		return nil, errors.New("no")
	}
	return reversed(body)[1:], nil
}

func (u upside) Decode(stored []byte, limit int64) ([]byte, error) {
	if int64(len(stored)) >= limit {
		return nil, fmt.Errorf("larger than %d bytes", limit)
	}
	return reversed(append([]byte("!"), stored...)), nil
}

func reversed(b []byte) []byte {
	out := bytes.Clone(b)
	for i := range out {
		out[i] = b[len(b)-1-i]
	}
	return out
}

func TestR38_AnotherCodecStoresBodies(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	body := strings.Repeat("x", 9999) + "!"
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) })
	g, _ := newGuardWith(t, s, semel.Options{Codec: upside{}})
	h := g.Wrap(handler)
	for range 2 {
		if w := answer(h, post("k", "{}")); w.Body.String() != body {
			t.Errorf("got %d bytes", w.Body.Len())
		}
	}
	if r := only(t, s).Response; r.Codec != "upside" || string(r.Body) != strings.Repeat("x", 9999) {
		t.Errorf("stored as %q, %d bytes", r.Codec, len(r.Body))
	}

	// Without the codec its records can't be replayed, and are not run again.
	plain, seen := newGuard(t, s, semel.Policy{})
	wantRefused(t, answer(plain.Wrap(handler), post("k", "{}")), http.StatusConflict, refusal.ReplayUnavailable)
	if seen.count(event.Unreadable) != 1 {
		t.Errorf("%d events", seen.count(event.Unreadable))
	}
	// With it, those of gzip still can.
	answer(plain.Wrap(handler), post("gzip", "{}"))
	if w := answer(h, post("gzip", "{}")); w.Body.String() != body || w.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %d, %d bytes", w.Code, w.Body.Len())
	}
}

func TestField08_R38_ACodecThatFailsLeavesTheBodyAsItIs(t *testing.T) {
	t.Parallel()
	for name, codec := range map[string]upside{"error": {fail: true}, "panic": {panics: true}} {
		s := memstore.New()
		g, seen := newGuardWith(t, s, semel.Options{Codec: codec})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("x", 10_000)) }))
		for range 2 {
			if w := answer(h, post("k", "{}")); w.Body.Len() != 10_000 {
				t.Errorf("%s: got %d, %d bytes", name, w.Code, w.Body.Len())
			}
		}
		if r := only(t, s).Response; r.Codec != "" {
			t.Errorf("%s: stored as %q", name, r.Codec)
		}
		if seen.count(event.StoreError) != 1 {
			t.Errorf("%s: it is reported %d times, want once", name, seen.count(event.StoreError))
		}
	}
}

func TestField08_R41a_ACodecThatThrowsWhileDecodingRefusesTheReplay(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("x", 10_000)) })
	g, _ := newGuardWith(t, s, semel.Options{Codec: upside{}})
	answer(g.Wrap(handler), post("k", "{}"))
	broken, _ := newGuardWith(t, s, semel.Options{Codec: undecoded{}})
	wantRefused(t, answer(broken.Wrap(handler), post("k", "{}")), http.StatusConflict, refusal.ReplayUnavailable)
}

type undecoded struct{ upside }

func (undecoded) Decode([]byte, int64) ([]byte, error) { panic(errThrown) }

// An answer is replayed although the route's limit has been lowered since.
func TestR38_ALoweredLimitDoesNotHideStoredAnswers(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("x", 2<<20)) })
	before, _ := newGuard(t, s, semel.Policy{MaxResponseBody: 10 << 20})
	after, _ := newGuard(t, s, semel.Policy{MaxResponseBody: 1000})
	answer(before.Wrap(handler), post("k", "{}"))
	if w := answer(after.Wrap(handler), post("k", "{}")); w.Body.Len() != 2<<20 || w.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("the repeat got %d, %d bytes", w.Code, w.Body.Len())
	}
}

// sizing is gzip's rough shape: it halves what begins with x, and says how much it was given.
type sizing struct{ given *[]int }

func (sizing) Name() string { return "sizing" }

func (s sizing) Encode(body []byte) ([]byte, error) {
	*s.given = append(*s.given, len(body))
	if body[0] == 'x' {
		return body[:len(body)/2], nil
	}
	return append([]byte("more"), body...), nil
}

func (sizing) Decode(stored []byte, _ int64) ([]byte, error) { return stored, nil }

func TestR38_ALargeBodyThatDoesNotShrinkIsHardlyCompressed(t *testing.T) {
	t.Parallel()
	const large = 1 << 20
	for begins, want := range map[string][]int{"x": {64 << 10, large}, "y": {64 << 10}} {
		var given []int
		s := memstore.New()
		g, _ := newGuardWith(t, s, semel.Options{Codec: sizing{&given}})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, begins+strings.Repeat("-", large-1))
		}))
		answer(h, post("k", "{}"))
		if !slices.Equal(given, want) {
			t.Errorf("%s: the codec was given %d, want %d bytes", begins, given, want)
		}
		if r := only(t, s).Response; begins == "y" && (r.Codec != "" || len(r.Body) != large) {
			t.Errorf("%s: stored as %q, %d bytes", begins, r.Codec, len(r.Body))
		}
	}
}
