package semel_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// An oddity is a handler whose answer takes a way of its own through net/http.
type oddity struct {
	name string
	f    http.HandlerFunc
}

// sniffedFromParts is answered with another Content-Type on a streaming route, whose first byte goes out at once.
const sniffedFromParts = "sniffed from parts"

var oddities = []oddity{
	{"nothing", func(http.ResponseWriter, *http.Request) {}},
	{"only a status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }},
	{"created", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/payments/17")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"id":17}`)
	}},
	{"empty body", func(w http.ResponseWriter, _ *http.Request) { w.Write(nil) }},
	{"zero", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "0") }},
	{"null", jsonText("null")},
	{"false", jsonText("false")},
	{"empty string", jsonText(`""`)},
	{"binary", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte{0, 255, 13, 10, 0, 254}) }},
	{"no content", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Etag", `"7"`)
		w.WriteHeader(http.StatusNoContent)
	}},
	{"not modified", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Etag", `"7"`)
		w.WriteHeader(http.StatusNotModified)
	}},
	{"many values", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("X-Many", "a, b")
		w.Header().Add("X-Many", "c")
		w.Header().Add("X-Many", "c")
		w.Header().Add("Link", `</a>; rel="next"`)
		w.Header().Add("Link", `</b,c>; rel="prev"`)
		w.Header()["X-Empty"] = []string{""}
		io.WriteString(w, "many")
	}},
	{"raw case", func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["x-raw"] = []string{"1"}
		io.WriteString(w, "raw")
	}},
	{"cookies", func(w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
		http.SetCookie(w, &http.Cookie{Name: "b", Value: "2"})
		io.WriteString(w, "cookies")
	}},
	{sniffedFromParts, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "<!DOC")
		io.WriteString(w, "TYPE html><p>")
	}},
	{"sniffed from more than one buffer", func(w http.ResponseWriter, _ *http.Request) {
		w.Write(bytes.Repeat([]byte("text "), 2000))
	}},
	{"no sniffing before the flush", func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		io.WriteString(w, "<!DOCTYPE html>")
	}},
	{"sniffed at the flush", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "<!DOC")
		w.(http.Flusher).Flush()
		io.WriteString(w, "TYPE html><p>")
	}},
	{"type suppressed", func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		io.WriteString(w, "<!DOCTYPE html>")
	}},
	{"type empty", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "")
		io.WriteString(w, "<!DOCTYPE html>")
	}},
	{"encoded, without a type", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		io.WriteString(w, "<!DOCTYPE html>")
	}},
	{"length declared", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		io.WriteString(w, "hel")
		io.WriteString(w, "lo")
	}},
	{"length nonsense", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "five")
		io.WriteString(w, "hello")
	}},
	{"header changed after the write", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("X-Early", "1")
		io.WriteString(w, "x")
		h.Set("X-Early", "2")
		h.Set("X-Late", "1")
	}},
	{"header asked for only after the write", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "x")
		w.Header().Set("X-Late", "1")
	}},
	{"bytes changed after the write", func(w http.ResponseWriter, _ *http.Request) {
		p := []byte("first")
		w.Write(p)
		copy(p, "XXXXX")
		values := []string{"1"}
		w.Header()["X-Late"] = values
	}},
	{"superfluous status", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(7)
		io.WriteString(w, "x")
		w.WriteHeader(http.StatusTeapot)
	}},
	{"read from", func(w http.ResponseWriter, _ *http.Request) {
		n, err := io.Copy(w, struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 40_000))})
		if n != 40_000 || err != nil {
			panic(fmt.Sprint("read from: ", n, err))
		}
	}},
	{"string writer", func(w http.ResponseWriter, _ *http.Request) { w.(io.StringWriter).WriteString("string") }},
	{"early hints", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", `</style.css>; rel=preload`)
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.WriteHeader(http.StatusProcessing)
		io.WriteString(w, "x")
	}},
	{"trailers, announced", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum, X-Unset")
		w.Header().Add("Trailer", "X-Count")
		io.WriteString(w, "body")
		w.(http.Flusher).Flush()
		w.Header().Set("X-Sum", "abc")
		w.Header().Add("X-Count", "1")
		w.Header().Add("X-Count", "2")
	}},
	{"trailers, not announced", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "body")
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+"X-Sum", "abc")
	}},
	{"trailer announced and never set", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		io.WriteString(w, "body")
	}},
	{"error", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnprocessableEntity) }},
	{"redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/payments/17", http.StatusSeeOther)
	}},
	{"file", func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Range", "bytes=2-4")
		http.ServeContent(w, r, "x.txt", time.Unix(1e9, 0), strings.NewReader("0123456789"))
	}},
}

func jsonText(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, text)
	}
}

// What a client gets from a guarded handler is what it would get from the bare one, and what its repeat gets, but for
// the headers that are ours or never replayed.
func TestR34_R36_R37_TheAnswerIsTheHandlersOwn(t *testing.T) {
	t.Parallel()
	for _, proto := range wires {
		for _, o := range oddities {
			t.Run(proto+"/"+o.name, func(t *testing.T) {
				t.Parallel()
				l := &ledger{}
				guards := map[string]*semel.Guard{}
				guards["buffered"], _ = newGuard(t, nil, semel.Policy{EmptyOK: true})
				if o.name != sniffedFromParts {
					guards["streamed"], _ = newGuard(t, nil, semel.Policy{Stream: true, EmptyOK: true})
				}
				counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					l.add()
					o.f(w, r)
				})
				bare := newWire(t, proto, o.f).send(t, "k", "{}")
				if bare.err != nil {
					t.Fatalf("bare: %v", bare.err)
				}
				for name, g := range guards {
					w := newWire(t, proto, g.Wrap(counted))
					live := w.send(t, "k", "{}")
					again := w.send(t, "k", "{}")
					sameAnswer(t, name+", live", bare, live)
					if live.marked() || !again.marked() {
						t.Errorf("%s: marked as replay: live %t, repeat %t", name, live.marked(), again.marked())
					}
					want := *bare
					want.header = without(want.header, "Set-Cookie")
					want.early = nil
					sameAnswer(t, name+", repeat", &want, again)
				}
				if n := l.count(); n != len(guards) {
					t.Errorf("%d executions with %d guards", n, len(guards))
				}
			})
		}
	}
}

// sameAnswer compares what two clients saw, but for how the body was framed. Trailers that net/http drops from a bare
// answer, because it was small, are kept by the guard.
func sameAnswer(t *testing.T, name string, want, got *reply) {
	t.Helper()
	if got.err != nil {
		t.Errorf("%s: %v", name, got.err)
	}
	if got.status != want.status || got.body != want.body || got.proto != want.proto {
		t.Errorf("%s: %s %d %q, want %s %d %q", name, got.proto, got.status, got.body, want.proto, want.status, want.body)
	}
	frames := append([]string{"Content-Length", "Trailer"}, ours...)
	if w, g := without(want.header, frames...), without(got.header, frames...); !reflect.DeepEqual(w, g) {
		t.Errorf("%s: header %v, want %v", name, g, w)
	}
	if !reflect.DeepEqual(set(want.trailer), set(got.trailer)) {
		t.Errorf("%s: trailer %v, want %v", name, got.trailer, want.trailer)
	}
	if !reflect.DeepEqual(got.early, want.early) {
		t.Errorf("%s: early hints %q, want %q", name, got.early, want.early)
	}
	if got.length >= 0 && got.length != int64(len(got.body)) {
		t.Errorf("%s: Content-Length is %d, the body has %d bytes", name, got.length, len(got.body))
	}
}

// set returns the trailers that have values; an announced one that was never set has none.
func set(trailer http.Header) map[string][]string {
	out := map[string][]string{}
	maps.Copy(out, trailer)
	maps.DeleteFunc(out, func(_ string, v []string) bool { return len(v) == 0 })
	return out
}

func TestR37_BufferedAnswersAndReplaysHaveTheirLength(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "0", "null", strings.Repeat("x", 100_000)} {
		g, _ := newGuard(t, nil, semel.Policy{})
		w := newWire(t, "HTTP/1.1", g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			for part := body; part != ""; part = part[min(len(part), 10_000):] {
				io.WriteString(w, part[:min(len(part), 10_000)])
			}
		})))
		for _, name := range []string{"live", "repeat"} {
			if r := w.send(t, "k", ""); r.length != int64(len(body)) || r.body != body {
				t.Errorf("%s: Content-Length is %d, want %d", name, r.length, len(body))
			}
		}
	}
}

func TestR36_DateCanBeSuppressed(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		g, _ := newGuard(t, nil, semel.Policy{Stream: stream})
		w := newWire(t, "HTTP/1.1", g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Date"] = nil
			io.WriteString(w, "x")
		})))
		live, again := w.send(t, "k", ""), w.send(t, "k", "")
		if _, has := live.header["Date"]; has {
			t.Error("the live answer has a Date, which its handler suppressed")
		}
		if _, has := again.header["Date"]; !has {
			t.Error("the replay has no Date of its own")
		}
	}
}

// A handler that breaks its own Content-Length gets net/http's errors; its client gets a broken answer; nobody ever
// gets that answer as whole.
func TestR37_R38_WrongContentLength(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		write []string
		want  []error
	}{
		{"shorter", []string{"hello"}, []error{nil}},
		{"longer in one write", []string{"hello world"}, []error{http.ErrContentLength}},
		{"longer in the end", []string{"hello", " wor", "ld"}, []error{nil, nil, http.ErrContentLength}},
		{"nothing", nil, nil},
	}
	for _, proto := range wires {
		for _, stream := range []bool{false, true} {
			for _, trailer := range []bool{false, true} {
				for _, tt := range tests {
					t.Run(fmt.Sprint(proto, "/", tt.name, "/stream ", stream, "/trailer ", trailer), func(t *testing.T) {
						t.Parallel()
						l := &ledger{}
						g, seen := newGuard(t, nil, semel.Policy{Stream: stream, EmptyOK: true})
						w := newWire(t, proto, g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
							l.add()
							w.Header().Set("Content-Length", "10")
							if trailer {
								w.Header().Set("Trailer", "X-Sum")
								w.Header().Set("X-Sum", "1")
							}
							for i, part := range tt.write {
								if _, err := io.WriteString(w, part); !errors.Is(err, tt.want[i]) {
									t.Errorf("write %d: %v, want %v", i, err, tt.want[i])
								}
							}
						})))
						if r := w.send(t, "k", ""); !r.broken() {
							t.Errorf("the client got %d %q as if it were whole", r.status, r.body)
						}
						unavailable(t, w.send(t, "k", ""))
						if l.count() != 1 || seen.count(event.NotReplayable) != 1 {
							t.Errorf("%d executions, %d events, want one each", l.count(), seen.count(event.NotReplayable))
						}
					})
				}
			}
		}
	}
}

func TestR37_StatusesWithoutBodyRefuseOne(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusNoContent, http.StatusNotModified} {
		s := memstore.New()
		g, _ := newGuard(t, s, semel.Policy{Stream: true})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			w.WriteHeader(status)
			if _, err := io.WriteString(w, "body"); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Errorf("%d: write: %v, want ErrBodyNotAllowed", status, err)
			}
			if n, err := w.Write(nil); n != 0 || err != nil {
				t.Errorf("%d: empty write: %d, %v", status, n, err)
			}
			if w.(http.Flusher).Flush(); only(t, s).Begun {
				t.Errorf("%d: begun, with nothing to stream", status)
			}
		}))
		for _, marked := range []string{"", "true"} {
			w := answer(h, post("k", "{}"))
			if w.Code != status || w.Body.Len() != 0 || w.Header().Get("Idempotent-Replayed") != marked {
				t.Errorf("got %d %q, marked %q", w.Code, w.Body, w.Header().Get("Idempotent-Replayed"))
			}
			if n := w.Header().Get("Content-Length"); n != "" && status == http.StatusNoContent {
				t.Errorf("a 204 has Content-Length %s", n)
			}
		}
	}
}

func TestR32_AnImpossibleStatusPanicsAsInNetHTTP(t *testing.T) {
	t.Parallel()
	for _, status := range []int{-1, 0, 99, 1000} {
		g, _ := newGuard(t, nil, semel.Policy{})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		w := httptest.NewRecorder()
		if v := thrown(h, w, post("k", "{}")); !strings.Contains(fmt.Sprint(v), "invalid WriteHeader code") {
			t.Errorf("status %d: threw %v", status, v)
		}
		wantRefused(t, answer(h, post("k", "{}")), http.StatusConflict, refusal.OutcomeUnknown)
	}
}

// wantRefused checks a refusal by its status and code.
func wantRefused(t testing.TB, w *httptest.ResponseRecorder, status int, code refusal.Code) {
	t.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), string(code)) {
		t.Errorf("got %d %q, want %d %s", w.Code, w.Body, status, code)
	}
}

// However a handler ends, nothing of what it has buffered leaves, its run is settled as lost, and what it threw goes
// on.
func TestR32_NothingOfALostAnswerLeaves(t *testing.T) {
	t.Parallel()
	ends := map[string]func(){
		"panic":       func() { panic("boom") },
		"abort":       func() { panic(http.ErrAbortHandler) },
		"goexit":      runtime.Goexit,
		"panic error": func() { panic(io.ErrUnexpectedEOF) },
	}
	for _, proto := range wires {
		for name, end := range ends {
			for _, patience := range []time.Duration{0, time.Minute} {
				t.Run(fmt.Sprint(proto, "/", name, "/", patience), func(t *testing.T) {
					t.Parallel()
					s := memstore.New()
					g, seen := newGuard(t, s, semel.Policy{Patience: patience})
					w := newWire(t, proto, g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("X-Secret", "1")
						io.WriteString(w, "half an answer")
						w.(http.Flusher).Flush()
						end()
					})))
					if r := w.send(t, "k", ""); !r.broken() || r.status != 0 {
						t.Errorf("the client got %d %v %q", r.status, r.header, r.body)
					}
					if rec := only(t, s); rec.State != driver.Unknown || rec.Response != nil {
						t.Errorf("the record is %v", rec)
					}
					if r := w.send(t, "k", ""); r.status != http.StatusConflict || !strings.Contains(r.body, string(refusal.OutcomeUnknown)) {
						t.Errorf("the repeat got %d %q", r.status, r.body)
					}
					if n := seen.count(event.Panic); n != 1 {
						t.Errorf("%d panic events, want one", n)
					}
					if got := seen.results(); !reflect.DeepEqual(got, []event.Result{event.Failed, event.Unknown}) {
						t.Errorf("results %q", got)
					}
				})
			}
		}
	}
}

func TestR32_APanicIsThrownOnAsItIs(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, patience := range []time.Duration{0, time.Minute} {
		for _, p := range []semel.Policy{
			{Patience: patience},
			{Patience: patience, Decide: func(int, http.Header, []byte) semel.Verdict { panic(boom) }},
		} {
			s := memstore.New()
			g, _ := newGuard(t, s, p)
			h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, "x")
				if p.Decide == nil {
					panic(boom)
				}
			}))
			w := httptest.NewRecorder()
			if v := thrown(h, w, post("k", "{}")); v != boom || w.Body.Len() > 0 {
				t.Errorf("threw %v after writing %q", v, w.Body)
			}
			if rec := only(t, s); rec.State != driver.Unknown {
				t.Errorf("the record is %v, want unknown", rec.State)
			}
		}
	}
}

// Goexit ends the request's goroutine too, as without a guard: it neither returns nor panics.
func TestR32_GoexitGoesOn(t *testing.T) {
	t.Parallel()
	for _, patience := range []time.Duration{0, time.Minute} {
		g, _ := newGuard(t, nil, semel.Policy{Patience: patience})
		h := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runtime.Goexit() }))
		var returned bool
		var v any
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { v = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), post("k", "{}"))
			returned = true
		}()
		<-done
		if returned || v != nil {
			t.Errorf("patience %v: returned %t, threw %v", patience, returned, v)
		}
	}
}

// Goexit in Policy.Decide ends the goroutine, not the settling.
func TestR32_DecideThatEndsTheGoroutineIsSettled(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuard(t, s, semel.Policy{Decide: func(int, http.Header, []byte) semel.Verdict {
		runtime.Goexit()
		return semel.VerdictKeep
	}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		answer(g.Wrap(http.HandlerFunc((&ledger{}).pay)), post("k", "{}"))
	}()
	<-done
	if rec := only(t, s); rec.State != driver.Unknown {
		t.Errorf("the record is %v, want unknown", rec.State)
	}
}

// The connection is out of a handler's reach: bytes written under the guard would leave before the outcome is durable.
func TestR30_TheWriterDoesNotUnwrap(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, nil, semel.Policy{})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if u, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
			t.Errorf("the writer unwraps to %T", u.Unwrap())
		}
		rc := http.NewResponseController(w)
		if _, _, err := rc.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("hijack of a recorder: %v", err)
		}
		for name, err := range map[string]error{
			"read deadline": rc.SetReadDeadline(time.Time{}), "write deadline": rc.SetWriteDeadline(time.Time{}),
			"full duplex": rc.EnableFullDuplex(),
		} {
			if !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("%s of a recorder: %v, want ErrNotSupported", name, err)
			}
		}
		if err := rc.Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
		io.WriteString(w, "x")
	}))
	if w := answer(h, post("k", "{}")); w.Body.String() != "x" || w.Flushed {
		t.Errorf("got %q, flushed %t", w.Body, w.Flushed)
	}
}

func TestR36_TheConnectionsDeadlinesCanBeSet(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, nil, semel.Policy{})
	w := newWire(t, "HTTP/1.1", g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		rc := http.NewResponseController(w)
		for name, err := range map[string]error{
			"read deadline": rc.SetReadDeadline(time.Now().Add(time.Hour)), "full duplex": rc.EnableFullDuplex(),
			"write deadline": rc.SetWriteDeadline(time.Unix(1, 0)),
		} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		io.WriteString(w, "x")
	})))
	if r := w.send(t, "k", ""); !r.broken() {
		t.Errorf("got %d %q past the write deadline", r.status, r.body)
	}
	if r := w.send(t, "k", "", "X-Again", "1"); !r.broken() && !r.marked() {
		t.Errorf("the repeat got %d %q", r.status, r.body)
	}
}

func TestCase15_HandlerThatChangesItsRequest(t *testing.T) {
	t.Parallel()
	s, l := memstore.New(), &ledger{}
	for _, p := range []semel.Policy{{}, {Patience: time.Minute}} {
		g, _ := newGuard(t, s, p)
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Errorf("read body: %v", err)
			}
			for i := range body {
				body[i] = 'X'
			}
			r.Body = io.NopCloser(strings.NewReader("other"))
			r.URL.Path, r.URL.RawQuery, r.Method = "/other", "to=mallory", http.MethodPut
			r.Header.Set("Idempotency-Key", "other")
			r.Header.Set("X-Principal", "mallory")
			r.Header.Set("Content-Type", "text/plain")
			l.pay(w, r)
		}))
		key := "k" + p.Patience.String()
		answer(h, post(key, `{"a":1}`))
		before := l.count()
		if w := answer(h, post(key, `{"a":1}`)); w.Header().Get("Idempotent-Replayed") != "true" || l.count() != before {
			t.Errorf("the repeat got %d %q", w.Code, w.Body)
		}
		wantRefused(t, answer(h, post(key, `XXXXXXX`)), http.StatusUnprocessableEntity, refusal.KeyReused)
	}
	if s.Len() != 2 {
		t.Errorf("%d records, want one a key", s.Len())
	}
}

// With Patience the layers above go on with their request while the handler goes on with its own.
func TestR75_AnImpatientClientsRequestIsNotTheHandlers(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, nil, semel.Policy{Patience: time.Millisecond})
	answered, changed := make(chan struct{}), make(chan struct{})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-answered
		r.Header.Set("X-Changed", "1")
		r.URL.Path = "/changed"
		w.Header().Set("X-Late", "1")
		io.WriteString(w, "late")
		close(changed)
	}))
	r := post("k", "{}")
	w := answer(h, r)
	close(answered)
	<-changed
	wantRefused(t, w, http.StatusGatewayTimeout, refusal.OutcomePending)
	if r.URL.Path != "/payments" || r.Header.Get("X-Changed") != "" || w.Header().Get("X-Late") != "" {
		t.Errorf("the handler reached %s %v %v", r.URL.Path, r.Header, w.Header())
	}
	if err := g.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w := answer(h, post("k", "{}")); w.Body.String() != "late" || w.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("the repeat got %d %q", w.Code, w.Body)
	}
}

// What the layers above the guard set is theirs: it is added to each answer, and never stored.
func TestR35_R36_TheLayersAboveKeepTheirHeaders(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuard(t, s, semel.Policy{})
	inner := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if got := w.Header().Get("X-Above"); got != "" {
			t.Errorf("the handler sees a header of the layer above: %q", got)
		}
		w.Header().Add("Vary", "Accept")
		w.Header().Add("Vary", "Origin")
		w.Header().Add("Set-Cookie", "inner=1")
		w.Header().Add("Link", "</x>; rel=next")
		w.Header().Set("X-Both", "inner")
		io.WriteString(w, `{"a":1}`)
	}))
	n := 0
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Set("X-Above", strconv.Itoa(n))
		w.Header().Set("Vary", "Origin")
		w.Header().Set("Set-Cookie", "outer=1")
		w.Header().Set("X-Both", "outer")
		w.Header().Set("Content-Type", "application/json") // the handler sets none
		inner.ServeHTTP(w, r)
	})
	for i, want := range []http.Header{
		{"X-Above": {"1"}, "Vary": {"Origin", "Accept"}, "Set-Cookie": {"outer=1", "inner=1"}, "X-Both": {"inner"}, "Content-Type": {"application/json"}, "Link": {"</x>; rel=next"}, "Content-Length": {"7"}},
		{"X-Above": {"2"}, "Vary": {"Origin", "Accept"}, "Set-Cookie": {"outer=1"}, "X-Both": {"inner"}, "Content-Type": {"application/json"}, "Link": {"</x>; rel=next"}, "Content-Length": {"7"}},
	} {
		if got := without(answer(h, post("k", "{}")).Header(), ours...); !reflect.DeepEqual(got, want) {
			t.Errorf("answer %d: %v, want %v", i+1, got, want)
		}
	}
	want := http.Header{"Vary": {"Accept", "Origin"}, "Link": {"</x>; rel=next"}, "X-Both": {"inner"}}
	if got := only(t, s).Response.Header; !reflect.DeepEqual(got, want) {
		t.Errorf("stored %v, want %v", got, want)
	}
}

// A stored answer is out of reach: whoever holds the header or body of a live answer or of a replay may change them.
func TestR34_NothingStoredCanBeChanged(t *testing.T) {
	t.Parallel()
	var body []byte
	var handlers http.Header
	g, _ := newGuard(t, nil, semel.Policy{})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		handlers = w.Header()
		w.Header()["X-Many"] = []string{"a", "b"}
		w.Header().Set("Trailer", "X-Sum")
		body = []byte("body")
		w.Write(body)
		w.Header()["X-Sum"] = []string{"1"}
	}))
	spoil := func(h http.Header) {
		for _, values := range h {
			for i := range values {
				values[i] = "spoiled"
			}
		}
	}
	var first *httptest.ResponseRecorder
	for i := range 4 {
		w := answer(h, post("k", "{}"))
		res := w.Result()
		if got := res.Header["X-Many"]; !reflect.DeepEqual(got, []string{"a", "b"}) || w.Body.String() != "body" || res.Trailer.Get("X-Sum") != "1" {
			t.Errorf("answer %d: %v %q %v", i+1, got, w.Body, res.Trailer)
		}
		if first == nil {
			first = w
		}
		spoil(w.Header())
		spoil(first.Header())
		spoil(handlers)
		copy(body, "XXXX")
		copy(w.Body.Bytes(), "XXXX")
	}
}

// A multipart form's temporary files are gone when the answer is there, however the handler ended.
func TestR24_TheGuardRemovesMultipartFiles(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]semel.Policy{
		"run": {}, "observed": {ObserveOnly: true}, "own goroutine": {Patience: time.Minute},
	} {
		for _, end := range []string{"return", "panic"} {
			var body bytes.Buffer
			body.WriteString("--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f.bin\"\r\n\r\n")
			body.Write(make([]byte, 100<<10))
			body.WriteString("\r\n--b--\r\n")
			var kept string
			g, _ := newGuard(t, nil, p)
			h := g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if err := r.ParseMultipartForm(1); err != nil {
					t.Errorf("parse form: %v", err)
					return
				}
				f, err := r.MultipartForm.File["f"][0].Open()
				if err != nil {
					t.Errorf("open part: %v", err)
					return
				}
				defer f.Close()
				named, ok := f.(interface{ Name() string })
				if !ok {
					t.Errorf("the part is a %T, want a temporary file", f)
					return
				}
				kept = named.Name()
				if end == "panic" {
					panic(http.ErrAbortHandler)
				}
			}))
			r := post("k", body.String())
			r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
			thrown(h, httptest.NewRecorder(), r)
			if kept == "" || exists(kept) {
				t.Errorf("%s, %s: the file %q is still there", name, end, kept)
			}
		}
	}
}

func packedText(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
