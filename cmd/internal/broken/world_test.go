package broken

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A world is where operations have their effects. It outlives the processes that serve it.
type world struct {
	mu      sync.Mutex
	effects int
	limited map[string]bool
}

func (w *world) effect() (id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.effects++
	return fmt.Sprintf("ch_%d", w.effects)
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.effects
}

// A process is a layer before a service, which can crash.
type process struct {
	*world
	*Layer
	dir  string
	dead atomic.Bool
}

func start(t *testing.T, bug string) *process {
	t.Helper()
	return (&world{limited: map[string]bool{}}).start(t, bug, t.TempDir())
}

func (w *world) start(t *testing.T, bug, dir string) *process {
	t.Helper()
	p := &process{world: w, dir: dir}
	l, err := New(bug, dir, http.HandlerFunc(p.serve))
	if err != nil {
		t.Fatal(err)
	}
	p.Layer = l
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return p
}

// crash lets the process die, and returns one that is started on what the journal has by now.
func (p *process) crash(t *testing.T) *process {
	t.Helper()
	p.dead.Store(true)
	text, err := os.ReadFile(filepath.Join(p.dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return p.start(t, p.bug, dir)
}

// sleep stops the process for a time as SIGSTOP does, but for the clock of those who look: leases have passed.
func (p *process) sleep(d time.Duration) {
	p.Layer.mu.Lock()
	defer p.Layer.mu.Unlock()
	for _, rec := range p.records {
		rec.lease = rec.lease.Add(-d)
	}
}

const slow = 4 * time.Second

func (p *process) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	takes := func(d time.Duration) {
		time.Sleep(d)
		if p.dead.Load() {
			runtime.Goexit()
		}
	}
	send := func(status int, text string) {
		w.WriteHeader(status)
		io.WriteString(w, text)
	}
	switch r.URL.Path {
	case "/declined":
		send(402, rand())
		return
	case "/limited":
		p.world.mu.Lock()
		was := p.limited[string(body)]
		p.limited[string(body)] = true
		p.world.mu.Unlock()
		if !was {
			send(429, "later")
			return
		}
	case "/slow":
		takes(slow)
	case "/none":
		return
	}
	takes(time.Millisecond)
	id := p.effect()
	h := w.Header()
	h.Set("Location", "/payments/"+id)
	h.Set("Set-Cookie", "session="+rand())
	h.Add("Link", "<a>")
	h.Add("Link", "<b>")
	switch r.URL.Path {
	case "/slow-answer":
		takes(slow)
	case "/failing":
		send(500, "failed")
		return
	case "/dropped":
		panic(http.ErrAbortHandler)
	case "/large":
		send(201, strings.Repeat(id+" ", 200_000))
		return
	case "/empty":
		w.WriteHeader(http.StatusNoContent)
		return
	case "/binary":
		send(201, id+"\x00\xff\xfe\x80")
		return
	case "/stream":
		h.Set("Content-Type", "text/event-stream")
		for n := range 3 {
			fmt.Fprintf(w, "data: %s %d\n\n", id, n)
			http.NewResponseController(w).Flush()
		}
		return
	}
	h.Set("Content-Type", "application/json")
	send(201, `{"id":"`+id+`"}`+"\n")
}

var random atomic.Int64

func rand() string { return fmt.Sprint(random.Add(1)) }

// A request as a client sends it.
type request struct {
	path, key, account, body string
	lines                    []string // instead of the key
	ctx                      context.Context
}

// newRequest returns one of an operation of its own.
func newRequest(path string) request {
	n := rand()
	return request{path: path, key: "key-" + n, account: "acme", body: `{"order":"` + n + `","amount":1}`}
}

func (r request) http() *http.Request {
	ctx := r.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, r.path, strings.NewReader(r.body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Account", r.account)
	req.Header["Idempotency-Key"] = r.lines
	if r.lines == nil {
		req.Header.Set("Idempotency-Key", `"`+r.key+`"`)
	}
	return req
}

// A reply is what came back.
type reply struct {
	status int
	header http.Header
	body   string
	code   string // of a problem
}

func (p *process) ask(r request) reply {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r.http())
	return read(w)
}

func read(w *httptest.ResponseRecorder) reply {
	var problem struct{ Code string }
	if w.Header().Get("Content-Type") == "application/problem+json" {
		if json.Unmarshal(w.Body.Bytes(), &problem) != nil {
			problem.Code = "not JSON"
		}
	}
	return reply{w.Code, w.Header(), w.Body.String(), problem.Code}
}

// begin asks, and returns a channel for the reply.
func (p *process) begin(r request) <-chan reply {
	c := make(chan reply, 1)
	go func() { c <- p.ask(r) }()
	return c
}

// settle asks until the reply is final.
func (p *process) settleAs(r request) reply {
	for range 200 {
		if a := p.ask(r); a.code != "IDEMPOTENCY_IN_PROGRESS" {
			return a
		}
		time.Sleep(200 * time.Millisecond)
	}
	return reply{code: "stuck"}
}

func (r reply) String() string { return fmt.Sprintf("%d %s %.60q", r.status, r.code, r.body) }

func (r reply) same(first reply) bool { return r.status == first.status && r.body == first.body }
