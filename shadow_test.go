package semel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// observedAll waits until what an observing guard does after its answers is done.
func observedAll(t testing.TB, g *semel.Guard) {
	t.Helper()
	if err := g.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Every answer in observe mode is the one that there would be without a guard, header for header, however often it is
// asked for.
func TestR92_ObservedAnswersAreTheBareOnes(t *testing.T) {
	t.Parallel()
	for _, proto := range wires {
		for _, o := range oddities {
			t.Run(proto+"/"+o.name, func(t *testing.T) {
				t.Parallel()
				l := &ledger{}
				g, _ := newGuard(t, nil, semel.Policy{ObserveOnly: true})
				bare := newWire(t, proto, o.f).send(t, "k", "{}")
				w := newWire(t, proto, g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					l.add()
					o.f(w, r)
				})))
				for range 2 {
					got := w.send(t, "k", "{}")
					delete(bare.header, "Date")
					delete(got.header, "Date")
					if !reflect.DeepEqual(bare, got) {
						t.Errorf("got %+v, want %+v", got, bare)
					}
				}
				if l.count() != 2 {
					t.Errorf("%d executions, want one a request", l.count())
				}
			})
		}
	}
}

// What is observed is stored as the guard would store it: a route that is protected later replays it.
func TestR92_WhatIsObservedIsReplayedOnceTheRouteIsProtected(t *testing.T) {
	t.Parallel()
	for _, o := range oddities {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			s := memstore.New()
			observing, _ := newGuard(t, s, semel.Policy{ObserveOnly: true, EmptyOK: true})
			above := func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("X-Above", "1")
					next.ServeHTTP(w, r)
				})
			}
			bare := newWire(t, "HTTP/1.1", above(o.f)).send(t, "k", "{}")
			newWire(t, "HTTP/1.1", above(observing.Wrap(o.f))).send(t, "k", "{}")
			observedAll(t, observing)
			if only(t, s).Response.Header["X-Above"] != nil {
				t.Errorf("stored %v, with a header of the layer above", only(t, s).Response.Header)
			}
			protecting, _ := newGuard(t, s, semel.Policy{})
			r := newWire(t, "HTTP/1.1", above(protecting.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Error("run again")
			})))).send(t, "k", "{}")
			bare.header, bare.early = without(bare.header, "Set-Cookie"), nil
			if o.name == "no sniffing before the flush" || o.name == "sniffed at the flush" {
				// What net/http sniffs, and when, can't be seen from above it.
				delete(bare.header, "Content-Type")
				delete(r.header, "Content-Type")
			}
			sameAnswer(t, "replay", bare, r)
			if !r.marked() {
				t.Error("not marked")
			}
		})
	}
}

// echo answers with what it has read.
func echo(t testing.TB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read: %v", err)
		}
		w.Write(body)
	}
}

func TestR92_EventsSayWhatWouldHaveHappened(t *testing.T) {
	t.Parallel()
	g, seen := newGuard(t, nil, semel.Policy{ObserveOnly: true, MaxRequestBody: 1000, AuthorizeReplay: func(r *http.Request) error {
		if r.Header.Get("X-Lost-Access") != "" {
			return errors.New("lost")
		}
		return nil
	}})
	h := g.Wrap(echo(t))
	big := strings.Repeat("x", 100_000)
	for _, tt := range []struct {
		name   string
		r      *http.Request
		body   string
		result event.Result
		code   refusal.Code
	}{
		{"first", post("k", "{}"), "{}", event.Executed, ""},
		{"repeat", post("k", "{}"), "{}", event.Replayed, ""},
		{"no more access", post("k", "{}", "X-Lost-Access", "1"), "{}", event.Refused, refusal.ReplayForbidden},
		{"other request", post("k", "other"), "other", event.Mismatch, refusal.KeyReused},
		{"no key", post("", "{}"), "{}", event.Refused, refusal.KeyMissing},
		{"bad key", post(`"k`, "{}"), "{}", event.Refused, refusal.KeyInvalid},
		{"too large", post("large", big), big, event.Refused, refusal.BodyTooLarge},
		{"too large, length unknown", chunked(post("large", big)), big, event.Refused, refusal.BodyTooLarge},
		{"wrong digest", post("digest", "{}", "Content-Digest", "sha-256=:AAAA:"), "{}", event.Refused, refusal.DigestMismatch},
		{"early data", post("early", "{}", "Early-Data", "1"), "{}", event.Refused, refusal.EarlyData},
		{"malformed gzip", post("gzip", "no gzip", "Content-Encoding", "gzip"), "no gzip", event.Executed, ""},
	} {
		w := answer(h, tt.r)
		observedAll(t, g)
		if w.Code != http.StatusOK || w.Body.String() != tt.body || len(without(w.Header(), "Content-Type")) > 0 {
			t.Errorf("%s: the client got %d %v, %d bytes", tt.name, w.Code, w.Header(), w.Body.Len())
		}
		e := seen.observed(t)
		if e.Result != tt.result || e.Code != tt.code {
			t.Errorf("%s: %s %s, want %s %s", tt.name, e.Result, e.Code, tt.result, tt.code)
		}
		if e.Code != "" && e.Status != 0 {
			t.Errorf("%s: a refusal that nobody was sent has the status %d", tt.name, e.Status)
		}
	}
}

// observed waits for the next observed decision and takes it away.
func (e *events) observed(t testing.TB) event.Event {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		e.mu.Lock()
		for i, ev := range e.list {
			if ev.Kind == event.Decision {
				e.list = append(e.list[:i:i], e.list[i+1:]...)
				e.mu.Unlock()
				if !ev.Observed {
					t.Errorf("a decision of observe mode is not marked: %+v", ev)
				}
				return ev
			}
		}
		e.mu.Unlock()
	}
	t.Error("no decision")
	return event.Event{}
}

// chunked takes the length from a request.
func chunked(r *http.Request) *http.Request {
	r.ContentLength = -1
	r.Body = io.NopCloser(struct{ io.Reader }{r.Body})
	return r
}

func TestR92_WithoutAKeyWhereItIsOptional(t *testing.T) {
	t.Parallel()
	g, seen := newGuard(t, nil, semel.Policy{ObserveOnly: true, KeyOptional: true})
	if w := answer(g.Wrap(echo(t)), post("", "{}")); w.Body.String() != "{}" {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
	if e := seen.observed(t); e.Result != event.Unkeyed {
		t.Errorf("result %s", e.Result)
	}
}

func TestR92_ConcurrentRequestsAllRun(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	g, seen := newGuard(t, nil, semel.Policy{ObserveOnly: true})
	var all sync.WaitGroup
	all.Add(10)
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all.Done()
		all.Wait() // they run at the same time
		l.pay(w, r)
	}))
	var done sync.WaitGroup
	for range 10 {
		done.Go(func() { answer(h, post("k", "{}")) })
	}
	done.Wait()
	observedAll(t, g)
	results := map[event.Result]int{}
	for range 10 {
		results[seen.observed(t).Result]++
	}
	if want := map[event.Result]int{event.Executed: 1, event.InProgress: 9}; !reflect.DeepEqual(results, want) || l.count() != 10 {
		t.Errorf("%v, %d executions", results, l.count())
	}
}

// Nobody waits for another run, whatever the route or the client says, nor is told that it did.
func TestR92_R28_NobodyWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, seen := newGuard(t, nil, semel.Policy{ObserveOnly: true, Wait: 5 * time.Second, MaxWait: 10 * time.Second})
		var h http.Handler
		h = g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Prefer") != "" {
				io.WriteString(w, "second")
				return
			}
			start := time.Now()
			again := answer(h, post("k", "{}", "Prefer", "wait=9"))
			if d := time.Since(start); again.Body.String() != "second" || d > 0 || again.Header().Get("Preference-Applied") != "" {
				t.Errorf("after %v the second got %v %q", d, again.Header(), again.Body)
			}
		}))
		answer(h, post("k", "{}"))
		observedAll(t, g)
		if e := seen.observed(t); e.Result != event.InProgress {
			t.Errorf("the second: %s", e.Result)
		}
	})
}

func TestR92_AStoreThatIsDownRefusesNothing(t *testing.T) {
	t.Parallel()
	for _, failOpen := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			down := errors.New("down")
			s := &faulty{Store: memstore.New()}
			s.claim = func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
				return driver.Record{}, false, down
			}
			g, seen := newGuard(t, s, semel.Policy{ObserveOnly: true, FailOpen: failOpen})
			w := answer(g.Wrap(echo(t)), post("k", "{}"))
			if w.Body.String() != "{}" || len(without(w.Header(), "Content-Type")) > 0 {
				t.Errorf("got %d %v %q", w.Code, w.Header(), w.Body)
			}
			want := event.Refused
			if failOpen {
				want = event.Bypassed
			}
			if e := seen.observed(t); e.Result != want || e.Code != refusal.StoreUnavailable {
				t.Errorf("%s %s, want %s", e.Result, e.Code, want)
			}
			s.set(func(f *faulty) {
				f.claim = nil
				f.settle = func(context.Context, driver.ID, driver.Owner, driver.Outcome) (driver.Record, bool, error) {
					return driver.Record{}, false, down
				}
			})
			start := time.Now()
			if w := answer(g.Wrap(echo(t)), post("k2", "{}")); w.Body.String() != "{}" || time.Since(start) > 0 {
				t.Errorf("got %d %q after %v: the settle held it back", w.Code, w.Body, time.Since(start))
			}
			s.set(func(f *faulty) { f.settle = nil })
			observedAll(t, g)
		})
	}
}

func TestR92_R32_PanicsPass(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		g, seen := newGuard(t, s, semel.Policy{ObserveOnly: true})
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "half")
			panic(boom)
		}))
		w := httptest.NewRecorder()
		if v := thrown(h, w, post("k", "{}")); v != boom || w.Body.String() != "half" {
			t.Errorf("threw %v after %q", v, w.Body)
		}
		synctest.Wait()
		if rec := only(t, s); rec.State != driver.Unknown {
			t.Errorf("the record is %v", rec.State)
		}
		if e := seen.observed(t); e.Result != event.Failed || seen.count(event.Panic) != 1 {
			t.Errorf("%s, %d panic events", e.Result, seen.count(event.Panic))
		}
		thrown(h, httptest.NewRecorder(), post("k", "{}"))
		if e := seen.observed(t); e.Result != event.Unknown || e.Code != refusal.OutcomeUnknown {
			t.Errorf("the repeat: %s %s", e.Result, e.Code)
		}
		observedAll(t, g)
	})
}

// What Policy.Decide throws would break an answer that is out already.
func TestR92_APanicInDecideChangesNothing(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, seen := newGuard(t, s, semel.Policy{ObserveOnly: true, Decide: func(int, http.Header, []byte) semel.Verdict { panic("boom") }})
	if w := answer(g.Wrap(echo(t)), post("k", "{}")); w.Code != http.StatusOK || w.Body.String() != "{}" {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
	observedAll(t, g)
	if e := seen.observed(t); e.Result != event.Failed || only(t, s).State != driver.Unknown {
		t.Errorf("%s, the record is %v", e.Result, only(t, s).State)
	}
}

// A run that lost its record in observe mode is reported as what it would have been, and answers as ever.
func TestR92_ALateOwnerAnswers(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, seen := newGuard(t, s, semel.Policy{ObserveOnly: true})
	w := answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seized(t, s)
		if err := r.Context().Err(); err != nil {
			t.Errorf("the handler was cancelled: %v", err)
		}
		echo(t)(w, r)
	})), post("k", "{}"))
	observedAll(t, g)
	if e := seen.observed(t); w.Body.String() != "{}" || e.Result != event.Failed || seen.count(event.Fenced) != 1 {
		t.Errorf("got %d %q, %s", w.Code, w.Body, e.Result)
	}
}

// Large, short and failed answers are recorded as what can't be replayed.
func TestR92_R38_WhatCannotBeReplayedIsNotRecordedAsAnAnswer(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]http.HandlerFunc{
		"large": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("x", 2000)) },
		"short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "short")
		},
		"broken": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "begin")
			http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)) //nolint:errcheck // a real connection takes it
			io.WriteString(w, strings.Repeat("x", 900))
			for range 100 {
				w.(http.Flusher).Flush()
				if _, err := io.WriteString(w, "x"); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := memstore.New()
			g, _ := newGuard(t, s, semel.Policy{ObserveOnly: true, MaxResponseBody: 1000})
			newWire(t, "HTTP/1.1", g.Wrap(f)).send(t, "k", "{}")
			observedAll(t, g)
			if rec := only(t, s); rec.State != driver.Done || rec.Response != nil {
				t.Errorf("the record is %v with %v", rec.State, rec.Response)
			}
		})
	}
}

// brittle is a client whose connection takes only so many bytes.
type brittle struct {
	*httptest.ResponseRecorder
	left int
}

func (b *brittle) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	b.ResponseRecorder.Write(p[:n])
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

func TestR92_R38_AnAnswerThatWasNotSentWholeIsNotRecordedAsOne(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuard(t, s, semel.Policy{ObserveOnly: true})
	g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n, err := io.WriteString(w, "answer"); n != 3 || err == nil {
			t.Errorf("write: %d, %v", n, err)
		}
	})).ServeHTTP(&brittle{httptest.NewRecorder(), 3}, post("k", "{}"))
	observedAll(t, g)
	if rec := only(t, s); rec.State != driver.Done || rec.Response != nil {
		t.Errorf("the record is %v with %v", rec.State, rec.Response)
	}
}

// A client that left cut its observed run off, which the guard would have let finish.
func TestR92_R29_ARunThatItsClientCutOffHasNoAnswer(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuard(t, s, semel.Policy{ObserveOnly: true})
	ctx, cancel := context.WithCancel(t.Context())
	answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
		w.WriteHeader(http.StatusCreated)
	})), post("k", "{}").WithContext(ctx))
	observedAll(t, g)
	if rec := only(t, s); rec.State != driver.Done || rec.Response != nil {
		t.Errorf("the record is %v with %v", rec.State, rec.Response)
	}
}

// A handler finds the same optional interfaces as without a guard.
func TestR92_TheWritersInterfacesPass(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]http.ResponseWriter{
		"recorder": httptest.NewRecorder(), "hijackable": hijackable{httptest.NewRecorder(), nil}, "nothing": &discarded{header: http.Header{}},
		"wrapped": wrapped{&discarded{header: http.Header{}}},
	} {
		_, wantFlush := w.(http.Flusher)
		_, wantHijack := w.(http.Hijacker)
		g, _ := newGuard(t, nil, semel.Policy{ObserveOnly: true})
		g.Wrap(http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) {
			_, flush := got.(http.Flusher)
			_, hijack := got.(http.Hijacker)
			if flush != wantFlush || hijack != wantHijack {
				t.Errorf("%s: flush %t, hijack %t; want %t, %t", name, flush, hijack, wantFlush, wantHijack)
			}
			if err := http.NewResponseController(got).Flush(); errors.Is(err, http.ErrNotSupported) == wantFlush {
				t.Errorf("%s: flush: %v", name, err)
			}
		})).ServeHTTP(w, post("k", "{}"))
		observedAll(t, g)
	}
}

func TestR92_HijackingPasses(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuard(t, s, semel.Policy{ObserveOnly: true})
	client, server := net.Pipe()
	defer client.Close()
	g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil || conn != server {
			t.Errorf("hijack: %v, %v", conn, err)
			return
		}
		conn.Close()
	})).ServeHTTP(wrapped{hijackable{httptest.NewRecorder(), server}}, post("k", "{}"))
	observedAll(t, g)
	if rec := only(t, s); rec.State != driver.Done || rec.Response != nil {
		t.Errorf("the record is %v with %v", rec.State, rec.Response)
	}
}

func TestR92_TheHandlerSeesItsRequestAndOperation(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, seen := newGuard(t, s, semel.Policy{ObserveOnly: true})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody || r.ContentLength != 0 || len(r.Header) != 2 {
			t.Errorf("the request became %T %d %v", r.Body, r.ContentLength, r.Header)
		}
		if op := semel.FromContext(r.Context()); op != nil {
			op.Release()
		}
		w.WriteHeader(http.StatusCreated)
	}))
	for range 2 {
		r := post("k", "")
		r.Body, r.ContentLength = http.NoBody, 0
		if w := answer(h, r); w.Code != http.StatusCreated {
			t.Errorf("got %d", w.Code)
		}
		observedAll(t, g)
		if e := seen.observed(t); e.Result != event.Executed || e.Status != http.StatusCreated {
			t.Errorf("%+v, want executed: it was released", e)
		}
	}
	r := post("nil", "")
	r.Body = nil
	h = g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Body != nil {
			t.Errorf("the body became %T", r.Body)
		}
	}))
	answer(h, r)
	observedAll(t, g)
}

// A body whose connection breaks is read by the handler as far as it came, with its error.
func TestR92_ABodyThatBreaksPasses(t *testing.T) {
	t.Parallel()
	broke := errors.New("broke")
	g, seen := newGuard(t, nil, semel.Policy{ObserveOnly: true})
	r := post("k", "")
	r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("half"), errorReader{broke})), -1
	w := answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprint(w, string(body), " ", err)
	})), r)
	if w.Body.String() != "half broke" {
		t.Errorf("the handler read %q", w.Body)
	}
	if e := seen.observed(t); e.Code != refusal.RequestUnreadable {
		t.Errorf("%s %s", e.Result, e.Code)
	}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// The bytes that were remembered are the handler's at the time of the write.
func TestR92_ObservedBytesAreCopied(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuard(t, s, semel.Policy{ObserveOnly: true})
	answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p := bytes.Repeat([]byte("x"), 10)
		w.Write(p)
		copy(p, "yyyyyyyyyy")
		w.Header().Set("X-Late", "1")
	})), post("k", "{}"))
	observedAll(t, g)
	if r := only(t, s).Response; string(r.Body) != "xxxxxxxxxx" || r.Header.Get("X-Late") != "" {
		t.Errorf("stored %v %q", r.Header, r.Body)
	}
}

// What is observed of an answer is given back, also if the store ends the goroutine that settles it.
func TestR92_R60_ASettleThatEndsItsGoroutineGivesItsMemoryBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := (&throwingStore{Store: memstore.New(), instead: true, throw: runtime.Goexit}).on("settle")
		p := forADay(semel.Hold)
		p.ObserveOnly = true
		g, _ := newGuard(t, s, p)
		if w := answer(g.Wrap(echo(t)), post("k", "some bytes")); w.Body.String() != "some bytes" {
			t.Errorf("answered %q", w.Body)
		}
		synctest.Wait()
		s.on("")
		drained(t, g)
		if use := g.Stats().BodyMemory; use != 0 {
			t.Errorf("%d bytes of memory were not given back", use)
		}
	})
}

// What a handler has left behind writes to nobody, and takes nothing of what is shared.
func TestR92_R60_AGoroutineThatIsLeftBehindIsNotObserved(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuard(t, s, semel.Policy{ObserveOnly: true})
	goOn, gone := make(chan struct{}), make(chan struct{})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "answer")
		go func() {
			defer close(gone)
			io.WriteString(w, strings.Repeat(" and more", 100))
			<-goOn
			io.WriteString(w, strings.Repeat(" and more", 100))
		}()
	}))
	h.ServeHTTP(syncedWriter{httptest.NewRecorder(), &sync.Mutex{}}, post("k", "{}"))
	observedAll(t, g)
	close(goOn)
	<-gone
	if use := g.Stats().BodyMemory; use != 0 {
		t.Errorf("%d bytes of memory were not given back", use)
	}
	if rec := only(t, s); rec.State != driver.Done {
		t.Errorf("the record is %v", rec.State)
	}
}

// A syncedWriter is one to which several goroutines write.
type syncedWriter struct {
	http.ResponseWriter
	mu *sync.Mutex
}

func (w syncedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ResponseWriter.Write(b)
}
