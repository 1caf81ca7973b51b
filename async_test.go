package semel_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
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

// async is a policy under which clients may ask not to wait.
func async() semel.Policy {
	p := shortLease(semel.Rerun)
	p.RespondAsync = true
	return p
}

func asyncGuard(t testing.TB, store driver.Store, p semel.Policy) (*semel.Guard, http.Handler, *events) {
	t.Helper()
	return linkedGuard(t, store, semel.Options{Policy: p, Encryption: newTestKeyring(t)})
}

// listing makes a store that wraps another one searchable as that one is.
type listing struct {
	driver.Store
	driver.Lister
}

const asyncPreferred = "respond-async"

func wantAccepted(t testing.TB, w *httptest.ResponseRecorder, key, applied string) {
	t.Helper()
	d := statusOf(t, w, http.StatusAccepted)
	self := operationsPath + "/" + keyed(key).String()
	h := w.Header()
	if d.ID != keyed(key).String() || d.State != "running" || d.Links.Self != self || d.Links.Result != self+"/result" {
		t.Errorf("202 says %+v", d)
	}
	if h.Get("Location") != self || h.Get("Retry-After") != "1" || h.Get("Preference-Applied") != applied ||
		h.Get("Idempotency-Key") != key || replayed(w) {
		t.Errorf("202 with %v; want Location %s, Preference-Applied %q", h, self, applied)
	}
}

func TestR33_ClientIsTold202AndTheRunGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		g, ask, seen := asyncGuard(t, store, async())
		start := time.Now()
		var paid ledger
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "early part; ")
			time.Sleep(30 * time.Second)
			if err := r.Context().Err(); err != nil {
				t.Errorf("the run was cancelled: %v", err)
			}
			paid.pay(w, r)
		}))
		client, leave := context.WithCancel(t.Context())
		w := answer(h, post("k", `{}`, "Prefer", asyncPreferred, "X-Correlation-Id", "c-1").WithContext(client))
		wantAccepted(t, w, "k", asyncPreferred)
		matchGolden(t, "operation/accepted.http", exchangeText(w))
		leave() // as the server does once it has answered
		if took := time.Since(start); took != 0 {
			t.Errorf("told after %v, want at once", took)
		}
		body := w.Body.String()
		time.Sleep(10 * time.Second)
		if rec := loaded(t, store, "k"); len(rec.Sealed) == 0 || rec.Owed {
			t.Errorf("running, request stored: %d bytes, owed %v", len(rec.Sealed), rec.Owed)
		}
		wantAccepted(t, answer(h, post("k", `{}`, "Prefer", asyncPreferred)), "k", asyncPreferred)
		wantProblem(t, answer(h, post("k", `{}`)), http.StatusConflict, refusal.InProgress)
		wantProblem(t, answer(h, post("k", `{"other":1}`, "Prefer", asyncPreferred)), http.StatusUnprocessableEntity, refusal.KeyReused)
		self := strings.TrimPrefix(w.Header().Get("Location"), operationsPath)
		status := answer(ask, about(self))
		if d := statusOf(t, status, 200); d.State != "running" || status.Header().Get("Retry-After") == "" {
			t.Errorf("while it runs: %+v", d)
		}
		wantProblem(t, answer(ask, about(self+"/result")), http.StatusConflict, refusal.InProgress)
		drained(t, g)
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("drained after %v, want with the run", took)
		}
		if w.Body.String() != body {
			t.Errorf("the run wrote to the client that was answered: %q", w.Body)
		}
		const want = "early part; payment 1"
		wantAnswer(t, answer(h, post("k", `{}`, "Prefer", asyncPreferred)), 200, want, true)
		wantAnswer(t, answer(ask, about(self+"/result")), 200, want, true)
		if d := statusOf(t, answer(ask, about(self)), 200); d.State != "succeeded" || d.Attempts != 1 || d.Ended.Sub(start) != 30*time.Second {
			t.Errorf("in the end: %+v", d)
		}
		if rec := loaded(t, store, "k"); len(rec.Sealed) > 0 || rec.Owed {
			t.Errorf("done, request stored: %d bytes, owed %v", len(rec.Sealed), rec.Owed)
		}
		wantResults := []event.Result{
			event.Accepted, event.InProgress, event.InProgress, event.Mismatch, event.Replayed,
		}
		if got := seen.results(); !reflect.DeepEqual(got, wantResults) {
			t.Errorf("decisions %v, want %v", got, wantResults)
		}
	})
}

// The client's wait is for its own run and for another's alike, within the route's bounds.
func TestR33_R28_AClientMayWaitForAWhile(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, c := range []struct {
		name     string
		most     time.Duration // MaxWait
		patience time.Duration
		prefer   []string
		takes    time.Duration
		want     time.Duration // until it is answered
		applied  string
		ended    bool // by the run
	}{
		{"not in time", 10 * s, 0, []string{"respond-async, wait=2"}, 3 * s, 2 * s, "respond-async, wait=2", false},
		{"in time", 10 * s, 0, []string{"wait=4", "respond-async"}, 3 * s, 3 * s, "wait=4", true},
		{"more than the route allows", 2 * s, 0, []string{"respond-async;x, wait=60"}, 3 * s, 2 * s, "respond-async, wait=2", false},
		{"not at all", 10 * s, 0, []string{"respond-async, wait=0"}, 3 * s, 0, "respond-async, wait=0", false},
		{"the route has no bound", 0, 0, []string{"respond-async, wait=2"}, 3 * s, 0, "respond-async", false},
		{"without a wait", 10 * s, 0, []string{"respond-async"}, 3 * s, 0, "respond-async", false},
		{"the route's patience is shorter", 10 * s, s, []string{"respond-async, wait=2"}, 3 * s, s, "respond-async, wait=1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := async()
				p.MaxWait, p.Patience = c.most, c.patience
				g, _, _ := asyncGuard(t, nil, p)
				var paid ledger
				h := g.Wrap(paused(&paid, c.takes))
				send := func() *served {
					r := post("k", `{}`)
					r.Header["Prefer"] = c.prefer
					return serve(h, r)
				}
				first := send()
				synctest.Wait()
				repeat := send()
				for i, x := range []*served{first, repeat} {
					w := x.answer()
					if took := x.at.Sub(x.started); took != c.want {
						t.Errorf("answered after %v, want %v", took, c.want)
					}
					if !c.ended {
						wantAccepted(t, w, "k", c.applied)
						continue
					}
					wantAnswer(t, w, 201, "payment 1", i == 1)
					if w.Header().Get("Preference-Applied") != c.applied {
						t.Errorf("Preference-Applied %q, want %q", w.Header().Get("Preference-Applied"), c.applied)
					}
				}
				drained(t, g)
				wantAnswer(t, answer(h, post("k", `{}`)), 201, "payment 1", true)
			})
		})
	}
}

// Where the client does not ask for it, or the route does not allow it, all is as without it.
func TestR33_Only202WhereItIsAskedForAndAllowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*semel.Policy)
		prefer string
		takes  time.Duration
		status int
	}{
		{"not asked for", nil, "return=minimal, wait=1", 10 * time.Second, 201},
		{"not asked for, with patience", func(p *semel.Policy) { p.Patience = time.Second }, "", time.Second, 504},
		{"not allowed", func(p *semel.Policy) { p.RespondAsync = false }, asyncPreferred, 10 * time.Second, 201},
		{"not allowed, with patience", func(p *semel.Policy) { p.RespondAsync, p.Patience = false, time.Second }, asyncPreferred, time.Second, 504},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := async()
				if c.change != nil {
					c.change(&p)
				}
				store := memstore.New()
				g, _, _ := asyncGuard(t, store, p)
				s := serve(g.Wrap(paused(&ledger{}, 10*time.Second)), post("k", `{}`, "Prefer", c.prefer))
				synctest.Wait()
				if rec := loaded(t, store, "k"); rec.State != driver.Running || len(rec.Sealed) != 0 {
					t.Errorf("%v, its request is stored: %t", rec.State, len(rec.Sealed) > 0)
				}
				w := s.answer()
				if took := s.at.Sub(s.started); w.Code != c.status || took != c.takes {
					t.Errorf("answered %d after %v, want %d after %v", w.Code, took, c.status, c.takes)
				}
				drained(t, g)
			})
		})
	}
}

// A run that releases is owed to a client that was told 202, and only to it.
func TestR33_R52_AReleaseIsOwedToWhoWasTold202(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		prefer string
		status int
		state  string
		owed   bool
	}{
		{"respond-async, wait=1", 202, "running", true},
		{"respond-async, wait=10", 429, "failed", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := async()
			p.MaxWait = time.Minute
			store := memstore.New()
			g, ask, _ := asyncGuard(t, store, p)
			h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(5 * time.Second)
				w.WriteHeader(http.StatusTooManyRequests)
			}))
			if w := answer(h, post("k", `{}`, "Prefer", c.prefer)); w.Code != c.status {
				t.Errorf("%s: answered %d, want %d", c.prefer, w.Code, c.status)
			}
			drained(t, g)
			rec := loaded(t, store, "k")
			d := statusOf(t, answer(ask, about("/"+keyed("k").String())), 200)
			if rec.State != driver.Free || rec.Owed != c.owed || d.State != c.state || d.Retryable == c.owed {
				t.Errorf("%s: %v, owed %v, shown as %+v; want owed %v", c.prefer, rec.State, rec.Owed, d, c.owed)
			}
		})
	}
}

// What a run is settled with depends on whether its client was told 202. So from the moment that the settle is decided,
// the client stays for its outcome.
func TestR33_NobodyIsTold202WhileItsRunIsSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := async()
		p.MaxWait = time.Minute
		mem := memstore.New()
		store := &faulty{Store: mem}
		store.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			time.Sleep(2 * time.Second) // past the client's wait
			return mem.Settle(ctx, id, by, o)
		}
		g, _, _ := asyncGuard(t, listing{store, mem}, p)
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(4 * time.Second)
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		s := serve(h, post("k", `{}`, "Prefer", "respond-async, wait=5"))
		if w := s.answer(); w.Code != 429 || s.at.Sub(s.started) != 6*time.Second {
			t.Errorf("answered %d after %v, want 429 after 6s", w.Code, s.at.Sub(s.started))
		}
		if rec := loaded(t, mem, "k"); rec.State != driver.Free || rec.Owed {
			t.Errorf("%v, owed %v; want free, and owed to nobody", rec.State, rec.Owed)
		}
	})
}

// A run that ends as its client departs: told 202 or its answer, and owed accordingly.
func TestR33_TheRunEndsAsItsClientDeparts(t *testing.T) {
	t.Parallel()
	p := inRealTime(async())
	store := memstore.New()
	g, _, _ := asyncGuard(t, store, p)
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range len(r.Header.Get("X-Yield")) {
			runtime.Gosched()
		}
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	codes := map[int]int{}
	for i := range 400 {
		key := fmt.Sprint("k", i)
		w := answer(h, post(key, `{}`, "Prefer", asyncPreferred, "X-Yield", strings.Repeat("x", i%20)))
		codes[w.Code]++
		drained(t, g)
		if rec := loaded(t, store, key); rec.State != driver.Free || rec.Owed != (w.Code == 202) {
			t.Fatalf("told %d; %v, owed %v", w.Code, rec.State, rec.Owed)
		}
	}
	if codes[202]+codes[429] != 400 {
		t.Errorf("told %v", codes)
	}
}

// The client has been answered: what the handler throws later has nobody to go to, but its run is settled, and owed.
func TestR33_R32_ThrownAfter202(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){
		"panic": func() { panic(errThrown) },
		"abort": func() { panic(http.ErrAbortHandler) },
		"exit":  runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				g, ask, seen := asyncGuard(t, store, async())
				s := serve(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(10 * time.Second)
					say("paid").ServeHTTP(w, r)
					end()
				})), post("k", `{}`, "Prefer", asyncPreferred))
				wantAccepted(t, s.answer(), "k", asyncPreferred)
				if s.thrown != nil || s.exited {
					t.Errorf("threw %v, exited %v", s.thrown, s.exited)
				}
				drained(t, g)
				synctest.Wait()
				if rec := loaded(t, store, "k"); rec.State != driver.Free || !rec.Owed || !rec.Maybe || seen.count(event.Panic) != 1 {
					t.Errorf("%v, owed %v, maybe %v, %d panics reported", rec.State, rec.Owed, rec.Maybe, seen.count(event.Panic))
				}
				if d := statusOf(t, answer(ask, about("/"+keyed("k").String())), 200); d.State != "running" {
					t.Errorf("shown as %+v", d)
				}
			})
		})
	}
}

// What a handler throws while its client still waits goes on, as ever.
func TestR33_R32_ThrownWithinTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := async()
		p.MaxWait = time.Minute
		g, _, _ := asyncGuard(t, nil, p)
		s := serve(g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(errThrown) })),
			post("k", `{}`, "Prefer", "respond-async, wait=5"))
		if s.answer(); s.thrown != errThrown {
			t.Errorf("threw %v, want %v", s.thrown, errThrown)
		}
	})
}

// A store that ends the handler's own goroutine in the settle must not be taken for a settle: nobody is told of a
// success that no record knows of. The settle goes on without the client.
func TestR30_R32_ASettleThatThrowsIsNoSuccess(t *testing.T) {
	t.Parallel()
	for _, patience := range []time.Duration{time.Hour, time.Second, 0} {
		t.Run(fmt.Sprint("patience ", patience), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &faulty{Store: memstore.New()}
				exits := func(context.Context, driver.ID, driver.Owner, driver.Outcome) (driver.Record, bool, error) {
					runtime.Goexit()
					return driver.Record{}, false, nil
				}
				store.settle = exits
				p := shortLease(semel.Rerun)
				p.Patience = patience
				g, seen := newGuard(t, store, p)
				h := g.Wrap(paused(&ledger{}, 10*time.Second))
				s := serve(h, post("k", `{}`))
				w := s.answer()
				if patience == time.Second {
					wantProblem(t, w, http.StatusGatewayTimeout, refusal.OutcomePending)
					time.Sleep(10 * time.Second)
				} else if w.Body.Len() > 0 || !s.exited {
					t.Errorf("answered %d %q; want the goroutine's end", w.Code, w.Body)
				}
				synctest.Wait()
				if n := seen.count(event.Panic); n != 1 {
					t.Errorf("%d panics reported, want 1", n)
				}
				time.Sleep(10 * time.Second) // it exits again and again
				store.set(func(f *faulty) { f.settle = nil })
				time.Sleep(2 * time.Second)
				checkReplay(t, answer(h, post("k", `{}`)))
				drained(t, g)

				store.set(func(f *faulty) { f.settle = exits })
				serve(h, post("for-good", `{}`)).answer()
				drained(t, g)
				if n := seen.count(event.SettleAbandoned); n != 1 {
					t.Errorf("%d settles were abandoned, want 1", n)
				}
			})
		})
	}
}

// The process dies after its 202: the operation still goes on for whoever asks, because its request is stored, and
// another process may run it.
func TestR33_TheProcessDiesAfter202(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		way := &mortal{Store: mem}
		dying, _, _ := asyncGuard(t, listing{way, mem}, async())
		living, ask, _ := asyncGuard(t, mem, async())
		w := answer(dying.Wrap(paused(&ledger{}, 20*time.Second)), post("k", `{"amount":5}`, "Prefer", asyncPreferred))
		way.dead.Store(true)
		wantAccepted(t, w, "k", asyncPreferred)
		time.Sleep(time.Minute)
		self := strings.TrimPrefix(w.Header().Get("Location"), operationsPath)
		if d := statusOf(t, answer(ask, about(self)), 200); d.State != "running" || d.Attempts != 1 {
			t.Errorf("after the lease: %+v", d)
		}
		wantAnswer(t, answer(living.Wrap(say("of the other")), post("k", `{"amount":5}`)), 201, "of the other", false)
		if d := statusOf(t, answer(ask, about(self)), 200); d.State != "succeeded" || d.Attempts != 2 {
			t.Errorf("in the end: %+v", d)
		}
		way.dead.Store(false)
		drained(t, dying)
	})
}

// Nobody could finish a run whose request is not stored, as of an operation that was first asked for without the
// preference. So its client is not told that it will be.
func TestR33_No202WithoutAStoredRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		g, _, _ := asyncGuard(t, store, async())
		status := http.StatusTooManyRequests
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(5 * time.Second)
			w.WriteHeader(status)
		}))
		answer(h, post("k", `{}`))
		if rec := loaded(t, store, "k"); rec.State != driver.Free || len(rec.Sealed) != 0 {
			t.Fatalf("%v with %d bytes of a request", rec.State, len(rec.Sealed))
		}
		status = http.StatusOK
		s := serve(h, post("k", `{}`, "Prefer", asyncPreferred))
		synctest.Wait()
		if len(loaded(t, store, "k").Sealed) > 0 {
			wantAccepted(t, s.answer(), "k", asyncPreferred)
		} else {
			wantAnswer(t, s.answer(), 200, "", false)
		}
		drained(t, g)
	})
}

// Begun is begun: a client that receives a stream stays for it. One that was told 202 before gets it as a replay.
func TestR33_R38_StreamsAnd202(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		prefer string
		status int
	}{{"respond-async, wait=2", 200}, {"respond-async", 202}} {
		synctest.Test(t, func(t *testing.T) {
			p := async()
			p.MaxWait = time.Minute
			g, ask, _ := asyncGuard(t, nil, p)
			h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(time.Second)
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, "data: 1\n\n")
				time.Sleep(5 * time.Second)
				io.WriteString(w, "data: 2\n\n")
			}))
			w := answer(h, post("k", `{}`, "Prefer", c.prefer))
			if w.Code != c.status || (w.Code == 200) != (w.Body.String() == "data: 1\n\ndata: 2\n\n") {
				t.Errorf("%s: answered %d %q, want %d", c.prefer, w.Code, w.Body, c.status)
			}
			drained(t, g)
			wantAnswer(t, answer(ask, about("/"+keyed("k").String()+"/result")), 200, "data: 1\n\ndata: 2\n\n", true)
		})
	}
}

// A client that leaves before it is told anything leaves its run as any client does, and finds it by its key.
func TestR33_R70_TheClientLeavesBeforeThe202(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := async()
		p.MaxWait = time.Minute
		g, ask, _ := asyncGuard(t, nil, p)
		ctx, leave := context.WithCancel(t.Context())
		s := serve(g.Wrap(paused(&ledger{}, 10*time.Second)), post("k", `{}`, "Prefer", "respond-async, wait=5").WithContext(ctx))
		time.Sleep(time.Second)
		leave()
		if d := statusOf(t, answer(ask, about("", "Idempotency-Key", "k")), 200); d.State != "running" {
			t.Errorf("while it runs: %+v", d)
		}
		s.answer()
		drained(t, g)
		if d := statusOf(t, answer(ask, about("", "Idempotency-Key", "k")), 200); d.State != "succeeded" || d.Result.Location != "/payments/1" {
			t.Errorf("in the end: %+v", d)
		}
	})
}

// The request is the handler's own after the 202 too: its body, also one in a file, and its header.
func TestR33_TheRequestOutlastsThe202(t *testing.T) {
	t.Parallel()
	p := inRealTime(async())
	p.SpoolRequestAbove = 100
	g, _, _ := asyncGuard(t, nil, p)
	body := bytes.Repeat([]byte("x"), 10_000)
	told := make(chan struct{})
	got := make(chan string, 1)
	h := g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-told
		read, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Header.Set("X-Changed", "1")
		got <- string(read) + r.Header.Get("X-Sent")
	}))
	for _, proto := range wires {
		w := newWire(t, proto, h)
		reply := w.send(t, "k"+proto, string(body), "Prefer", asyncPreferred, "X-Sent", "yes")
		if reply.status != 202 || reply.err != nil || reply.length != int64(len(reply.body)) {
			t.Errorf("%s: %+v", proto, reply)
		}
		told <- struct{}{}
		if read := <-got; read != string(body)+"yes" {
			t.Errorf("%s: the handler read %d bytes", proto, len(read))
		}
	}
	drained(t, g)
}

func TestR33_202OverHTTP10(t *testing.T) {
	t.Parallel()
	g, _, _ := asyncGuard(t, nil, inRealTime(async()))
	end := make(chan struct{})
	w := newWire(t, "HTTP/1.1", g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end })))
	text := exchangeOf(t, w.url, "POST /payments HTTP/1.0\r\nIdempotency-Key: k\r\nPrefer: respond-async\r\nContent-Length: 2\r\n\r\n{}")
	if !strings.Contains(text, "HTTP/1.0 202 Accepted\r\n") || !strings.Contains(text, `"state":"running"`) || strings.Contains(text, "chunked") {
		t.Errorf("exchange:\n%s", text)
	}
	close(end)
	drained(t, g)
}

// slowlyUnwrapped is a layer above the guard that takes its time to say what it wraps.
type slowlyUnwrapped struct{ *httptest.ResponseRecorder }

func (w slowlyUnwrapped) Unwrap() http.ResponseWriter {
	time.Sleep(5 * time.Second)
	return hijackable{w.ResponseRecorder, nil}
}

// Whoever was told 202 is promised an end: from then on nothing marks the run begun, which would never be run again.
func TestR33_R38_NothingBeginsAfterThe202(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		p := async()
		p.MaxWait = time.Minute
		g, _, _ := asyncGuard(t, store, p)
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if _, _, err := w.(http.Hijacker).Hijack(); err == nil {
				t.Error("hijacked after the 202")
			}
			time.Sleep(5 * time.Second)
			io.WriteString(w, "done")
		}))
		w := slowlyUnwrapped{httptest.NewRecorder()}
		h.ServeHTTP(w, post("k", `{}`, "Prefer", "respond-async, wait=2"))
		wantAccepted(t, w.ResponseRecorder, "k", "respond-async, wait=2")
		time.Sleep(4 * time.Second)
		if rec := loaded(t, store, "k"); rec.Begun {
			t.Error("the run that was promised an end has begun")
		}
		drained(t, g)
		wantAnswer(t, answer(h, post("k", `{}`)), 200, "done", true)
	})
}

// A stored request is needed to finish its operation, and goes when that is done.
func TestField15_SealedRequestsGoWhenDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		g, _, _ := asyncGuard(t, store, async())
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			status := http.StatusOK
			if strings.HasSuffix(r.Header.Get("Idempotency-Key"), "refused") {
				status = http.StatusUnprocessableEntity
			}
			w.WriteHeader(status)
		}))
		sealed := func() (keys []driver.ID) {
			err := store.List(t.Context(), driver.Query{Sealed: true}, func(id driver.ID, rec driver.Record) bool {
				if len(rec.Sealed) == 0 {
					t.Errorf("%v is listed", id)
				}
				keys = append(keys, id)
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			return keys
		}
		all := []string{"done", "refused"}
		for _, key := range all {
			wantAccepted(t, answer(h, post(key, `{}`, "Prefer", asyncPreferred)), key, asyncPreferred)
			if !slices.Contains(sealed(), keyed(key)) {
				t.Errorf("%s: the request is not stored while it runs", key)
			}
		}
		drained(t, g)
		for _, key := range all {
			if rec := loaded(t, store, key); rec.State != driver.Done || rec.Response == nil {
				t.Errorf("%s: %v", key, rec.State)
			}
		}
		if left := sealed(); len(left) > 0 {
			t.Errorf("%d requests are still stored", len(left))
		}
	})
}
