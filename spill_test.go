package semel_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// An answer over the limit goes whole to its client, after its settle; repeats are told that there is no replay, and
// nothing is run again.
func TestR38_Case20_AnAnswerOverTheLimit(t *testing.T) {
	t.Parallel()
	for _, proto := range wires {
		for _, size := range []int{1000, 1001, 5 << 20} {
			for _, flush := range []bool{false, true} {
				for _, trailer := range []bool{false, true} {
					t.Run(fmt.Sprint(proto, "/", size, "/flush ", flush, "/trailer ", trailer), func(t *testing.T) {
						t.Parallel()
						dir, l, s := t.TempDir(), &ledger{}, memstore.New()
						want := strings.Repeat("0123456789", size/10+1)[:size]
						g, seen := newGuardWith(t, s, semel.Options{TempDir: dir, Policy: semel.Policy{MaxResponseBody: 1000, CompressAbove: -1}})
						w := newWire(t, proto, g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
							l.add()
							if trailer {
								w.Header().Set("Trailer", "X-Sum")
							}
							for rest, n := want, max(size/100, 77); rest != ""; rest = rest[min(len(rest), n):] {
								if _, err := io.WriteString(w, rest[:min(len(rest), n)]); err != nil {
									t.Errorf("write: %v", err)
								}
								if flush {
									w.(http.Flusher).Flush()
								}
							}
							w.Header().Set("X-Sum", "1")
						})))
						r := w.send(t, "k", "{}")
						if r.body != want || r.err != nil || r.header.Get("Content-Type") != "text/plain; charset=utf-8" {
							t.Errorf("the client got %d, %d bytes, %v", r.status, len(r.body), r.err)
						}
						if trailer != (r.trailer.Get("X-Sum") == "1") || !trailer && r.length != int64(size) {
							t.Errorf("trailers %v, length %d", r.trailer, r.length)
						}
						again := w.send(t, "k", "{}")
						if rec := only(t, s); size <= 1000 {
							if again.body != want || !again.marked() {
								t.Errorf("the repeat got %d, %d bytes", again.status, len(again.body))
							}
						} else {
							unavailable(t, again)
							if rec.State != driver.Done || rec.Begun || rec.Response != nil || seen.count(event.NotReplayable) != 1 {
								t.Errorf("the record is %v, begun %t, %d events", rec.State, rec.Begun, seen.count(event.NotReplayable))
							}
						}
						if files := list(t, dir); len(files) > 0 {
							t.Errorf("left behind: %q", files)
						}
						if l.count() != 1 {
							t.Errorf("%d executions", l.count())
						}
					})
				}
			}
		}
	}
}

// However a run ends whose answer lies in a temporary file, the file is gone, and what it held too.
func TestR38_TheTemporaryFileIsGone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		p     semel.Policy
		end   func(s *faulty)
		code  int
		whole bool
	}{
		{"return", semel.Policy{}, func(*faulty) {}, http.StatusOK, true},
		{"released", semel.Policy{KeepOnlySuccess: true, Decide: func(int, http.Header, []byte) semel.Verdict { return semel.VerdictRelease }}, func(*faulty) {}, http.StatusOK, true},
		{"panic", semel.Policy{}, func(*faulty) { panic("boom") }, 0, false},
		{"panic with patience", semel.Policy{Patience: time.Hour}, func(*faulty) { panic("boom") }, 0, false},
		{"fenced", semel.Policy{}, func(s *faulty) { seized(t, s.Store.(*memstore.Store)) }, http.StatusConflict, false},
		{"settled later", semel.Policy{}, func(s *faulty) {
			s.set(func(f *faulty) {
				f.settle = func(ctx context.Context, _ driver.ID, _ driver.Owner, _ driver.Outcome) (driver.Record, bool, error) {
					<-ctx.Done()
					return driver.Record{}, false, ctx.Err()
				}
			})
		}, http.StatusServiceUnavailable, false},
		{"client answered before", semel.Policy{Patience: time.Second}, func(*faulty) { time.Sleep(2 * time.Second) }, http.StatusGatewayTimeout, false},
		{"client answered before, panic", semel.Policy{Patience: time.Second}, func(*faulty) {
			time.Sleep(2 * time.Second)
			panic("boom")
		}, http.StatusGatewayTimeout, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			before := openFiles(t, dir)
			synctest.Test(t, func(t *testing.T) {
				s := &faulty{Store: memstore.New()}
				p := tt.p
				p.MaxResponseBody = 1000
				g, _ := newGuardWith(t, s, semel.Options{TempDir: dir, Policy: p})
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					io.WriteString(w, strings.Repeat("x", 5000))
					if openFiles(t, dir) == before {
						t.Error("there is no temporary file")
					}
					tt.end(s)
				}))
				w := httptest.NewRecorder()
				thrown(h, w, post("k", "{}"))
				if tt.code != 0 && w.Code != tt.code || tt.whole != (w.Body.Len() == 5000) || strings.Contains(w.Body.String(), "xxx") != tt.whole {
					t.Errorf("the client got %d, %d bytes", w.Code, w.Body.Len())
				}
				s.set(func(f *faulty) { f.settle = nil })
				if err := g.Drain(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if s := g.Stats(); s.BodyMemory != 0 || s.TempSpace != 0 {
					t.Errorf("%d bytes of memory and %d of files were not given back", s.BodyMemory, s.TempSpace)
				}
			})
			if files := list(t, dir); len(files) > 0 || openFiles(t, dir) != before {
				t.Errorf("left behind: %q, %d open", files, openFiles(t, dir)-before)
			}
		})
	}
}

// openFiles counts the files of a folder that are open or have a name, as far as the system tells.
func openFiles(t testing.TB, dir string) int {
	t.Helper()
	n := len(list(t, dir))
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return n // only names can be counted here
	}
	for _, fd := range fds {
		if target, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && strings.HasPrefix(target, dir+"/") {
			if strings.HasSuffix(target, " (deleted)") {
				n++
			}
		}
	}
	return n
}

// With nowhere to keep it, an answer over the limit is streamed: its client gets it whole, and its repeats are told
// that there is no replay. If it can't be streamed either, its client is told the same. Nothing is run again, and the
// handler sees none of it.
func TestField06_R38_AnAnswerThatCannotBeKept(t *testing.T) {
	t.Parallel()
	const whole = ""
	release := func(int, http.Header, []byte) semel.Verdict { return semel.VerdictRelease }
	byBody := func(_ int, _ http.Header, body []byte) semel.Verdict {
		if body == nil {
			return semel.VerdictLost // as where the body decides
		}
		return semel.VerdictKeep
	}
	for _, tt := range []struct {
		name   string
		p      semel.Policy
		status int
		first  refusal.Code
		repeat refusal.Code
		runs   int
		events int
	}{
		{"a success", semel.Policy{}, http.StatusOK, whole, refusal.ReplayUnavailable, 1, 1},
		{"a refusal", semel.Policy{}, http.StatusNotFound, whole, refusal.ReplayUnavailable, 1, 1},
		{"with patience", semel.Policy{Patience: time.Hour}, http.StatusOK, whole, refusal.ReplayUnavailable, 1, 1},
		{"a status that is released", semel.Policy{}, http.StatusServiceUnavailable, refusal.InProgress, refusal.InProgress, 2, 0},
		{"released by the route", semel.Policy{Decide: release}, http.StatusOK, refusal.InProgress, refusal.InProgress, 2, 0},
		{"lost by its body", semel.Policy{Decide: byBody}, http.StatusOK, "lost", "lost", 1, 0},
	} {
		for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
			t.Run(fmt.Sprint(tt.name, " ", onLost), func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "gone")
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				l, p := &ledger{}, tt.p
				p.OnLost, p.MaxResponseBody = onLost, 1000
				g, seen := newGuardWith(t, nil, semel.Options{TempDir: dir, Policy: p})
				if err := os.Remove(dir); err != nil {
					t.Fatal(err)
				}
				wire := newWire(t, "HTTP/1.1", g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					l.add()
					w.WriteHeader(tt.status)
					for range 3 {
						if n, err := io.WriteString(w, strings.Repeat("x", 600)); n != 600 || err != nil {
							t.Errorf("write: %d, %v", n, err)
						}
					}
				})))
				runs := tt.runs
				for i, want := range []refusal.Code{tt.first, tt.repeat} {
					if want == "lost" {
						if want = refusal.OutcomeUnknown; onLost == semel.Rerun {
							want, runs = refusal.InProgress, 2
						}
					}
					r := wire.send(t, "k", "{}")
					if want == whole {
						if r.status != tt.status || r.body != strings.Repeat("x", 1800) || r.err != nil {
							t.Errorf("the client got %d, %d bytes, %v", r.status, len(r.body), r.err)
						}
						continue
					}
					if !strings.Contains(r.body, string(want)) || strings.Contains(r.body, dir) || strings.Contains(r.body, "xxx") {
						t.Errorf("answer %d is %d %.200q, want %s", i, r.status, r.body, want)
					}
				}
				if l.count() != runs || seen.count(event.NotReplayable) != tt.events {
					t.Errorf("%d executions, want %d; %d events, want %d", l.count(), runs, seen.count(event.NotReplayable), tt.events)
				}
			})
		}
	}
}

// A reverse proxy would panic if its writes failed.
func TestField06_AReverseProxysAnswerThatCannotBeKept(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		dir := filepath.Join(t.TempDir(), "gone")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		var runs atomic.Int32
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs.Add(1)
			w.Write(make([]byte, 64<<10))
		}))
		defer up.Close()
		u, err := url.Parse(up.URL)
		if err != nil {
			t.Fatal(err)
		}
		g, _ := newGuardWith(t, nil, semel.Options{TempDir: dir, Policy: semel.Policy{OnLost: onLost, MaxResponseBody: 1 << 10}})
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		wire := newWire(t, "HTTP/1.1", g.Wrap(httputil.NewSingleHostReverseProxy(u)))
		if r := wire.send(t, "k", ""); r.status != http.StatusOK || len(r.body) != 64<<10 || r.err != nil {
			t.Errorf("%v: the client got %d, %d bytes, %v", onLost, r.status, len(r.body), r.err)
		}
		unavailable(t, wire.send(t, "k", ""))
		if runs.Load() != 1 {
			t.Errorf("%v: %d executions", onLost, runs.Load())
		}
	}
}

// The store that can't be told that the answer begins does not make the handler fail either.
func TestField06_AnAnswerThatCanNeitherBeKeptNorBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "gone")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		f := &faulty{Store: memstore.New()}
		f.extend = func(context.Context, driver.ID, driver.Owner, driver.Extension) (bool, error) { return false, errDown }
		g, _ := newGuardWith(t, f, semel.Options{TempDir: dir, Policy: semel.Policy{MaxResponseBody: 1000}})
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if n, err := w.Write(make([]byte, 5000)); n != 5000 || err != nil {
				t.Errorf("write: %d, %v", n, err)
			}
		}))
		for range 2 {
			wantRefused(t, answer(h, post("k", "{}")), http.StatusConflict, refusal.ReplayUnavailable)
		}
	})
}

// An answer that can't be read back whole is broken off, also where it has no length by which its client would see
// that.
func TestField06_R38_ATemporaryFileThatCannotBeReadBreaksTheAnswerOff(t *testing.T) {
	t.Parallel()
	for _, proto := range wires {
		for _, trailer := range []bool{false, true} {
			for _, left := range []int64{0, 2000} {
				dir := t.TempDir()
				g, _ := newGuardWith(t, nil, semel.Options{TempDir: dir, Policy: semel.Policy{MaxResponseBody: 1000}})
				var found atomic.Bool
				w := newWire(t, proto, g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if trailer {
						w.Header().Set("Trailer", "X-Sum")
						w.Header().Set("X-Sum", "1")
					}
					io.WriteString(w, strings.Repeat("x", 5000))
					found.Store(truncated(t, dir, left))
				})))
				r := w.send(t, "k", "{}")
				if cut := found.Load(); r.broken() != cut || !cut && len(r.body) != 5000 {
					t.Errorf("%s, trailer %t, cut %t: got %d, %d bytes, %v", proto, trailer, cut, r.status, len(r.body), r.err)
				}
				unavailable(t, w.send(t, "k", "{}"))
			}
		}
	}
}

// truncated cuts the open files of a folder, and reports whether it found one: not where the system does not tell.
func truncated(t testing.TB, dir string, left int64) (found bool) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return false
	}
	for _, fd := range fds {
		name := filepath.Join("/proc/self/fd", fd.Name())
		if target, err := os.Readlink(name); err != nil || !strings.HasPrefix(target, dir+"/") {
			continue
		}
		if err := os.Truncate(name, left); err != nil {
			t.Errorf("truncate: %v", err)
		}
		found = true
	}
	return found
}

// discarded is a client that keeps nothing but the number of bytes.
type discarded struct {
	header http.Header
	n      int64
}

func (d *discarded) Header() http.Header { return d.header }
func (d *discarded) WriteHeader(int)     {}

func (d *discarded) Write(p []byte) (int, error) {
	d.n += int64(len(p))
	return len(p), nil
}

// An answer of 64 MiB passes through a route that keeps 1 MiB with memory of about that. It does not run in parallel
// with other tests, whose memory would be counted.
func TestR38_MemoryStaysBoundedForHugeAnswers(t *testing.T) { //nolint:paralleltest // it measures the heap
	const size, limit = 64 << 20, 16 << 20
	for _, stream := range []bool{false, true} {
		g, _ := newGuard(t, nil, semel.Policy{Stream: stream})
		part := make([]byte, 64<<10)
		var before, during uint64
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			before = heap()
			for n := 0; n < size; n += len(part) {
				if _, err := w.Write(part); err != nil {
					t.Fatalf("write: %v", err)
				}
				if n%(16<<20) == 0 {
					during = max(during, heap())
				}
			}
			during = max(during, heap())
		}))
		w := &discarded{header: http.Header{}}
		h.ServeHTTP(w, post("k", "{}"))
		if w.n != size {
			t.Errorf("stream %t: the client got %d bytes", stream, w.n)
		}
		if during > before+limit {
			t.Errorf("stream %t: the heap grew from %d to %d bytes", stream, before, during)
		}
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
