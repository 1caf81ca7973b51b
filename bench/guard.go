package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/memstore"
)

var (
	secret    = bytes.Repeat([]byte("k"), 32)
	body200   = payload(`{"amount":1250,"currency":"EUR","to":"DE02120300000000202051","note":"`, `"}`)
	reordered = payload(`{"to":"DE02120300000000202051", "note":"`, `", "amount":1250, "currency":"EUR"}`)
	answer200 = payload(`{"id":"pay_1","state":"succeeded","note":"`, `"}`)
)

// payload fills a document up to about 200 bytes.
func payload(head, tail string) []byte {
	return []byte(head + strings.Repeat("x", 200-70-len(`"}`)) + tail)
}

// pay is the handler on both sides.
func pay(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body) //nolint:errcheck // in memory
	w.Header()["Content-Type"] = []string{"application/json"}
	w.WriteHeader(http.StatusCreated)
	w.Write(answer200) //nolint:errcheck // in memory
}

// A caller sends one request after another to a handler, without the cost of making each anew.
type caller struct {
	h    http.Handler
	w    sink
	r    *http.Request
	body *bytes.Reader
	key  func(i int) string
	next int
	busy bool // the store may be too slow for the guard: after a 503 the operation is tried with the next key
}

func newCaller(h http.Handler, body []byte, key func(int) string) *caller {
	c := &caller{h: h, body: bytes.NewReader(body), key: key, w: sink{header: http.Header{}}}
	c.r = (&http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: "/payments"}, Host: "localhost", Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1, Pattern: "POST /payments", ContentLength: int64(len(body)), RemoteAddr: "127.0.0.1:1",
		Header: http.Header{"Content-Type": {"application/json"}, "User-Agent": {"bench"}},
	}).WithContext(context.Background())
	return c
}

func (c *caller) work(n int) {
	for range n {
		c.next++
		c.body.Seek(0, io.SeekStart) //nolint:errcheck // from the start always works
		c.r.Body = io.NopCloser(c.body)
		c.r.Header["Idempotency-Key"] = []string{c.key(c.next)}
		delete(c.r.Header, "X-Correlation-Id")
		clear(c.w.header)
		c.h.ServeHTTP(&c.w, c.r)
		if c.busy && c.w.status == http.StatusServiceUnavailable {
			c.w.size = 0
			c.work(1)
			continue
		}
		if c.w.status != http.StatusCreated || c.w.size != len(answer200) {
			panic(fmt.Sprintf("answered %d with %d bytes", c.w.status, c.w.size))
		}
		c.w.size = 0
	}
}

// sink is a ResponseWriter that counts.
type sink struct {
	header http.Header
	status int
	size   int
}

func (s *sink) Header() http.Header { return s.header }
func (s *sink) WriteHeader(status int) {
	s.status = status
}

func (s *sink) Write(p []byte) (int, error) {
	s.size += len(p)
	return len(p), nil
}

// bare is the floor of P-1 and P-2: it reads the body, goes through it once as JSON, makes three HMACs, looks into one
// map, and buffers the answer of the same handler.
type bare struct {
	pool sync.Pool
	mu   sync.Mutex
	seen map[[32]byte][]byte
}

func newBare() *bare {
	b := &bare{seen: map[[32]byte][]byte{}}
	b.pool.New = func() any { return &scratch{mac: hmac.New(sha256.New, secret)} }
	return b
}

type scratch struct {
	mac         hash.Hash
	body, plain bytes.Buffer
	sum         []byte
	answer      buffered
}

type buffered struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *buffered) Header() http.Header         { return b.header }
func (b *buffered) WriteHeader(status int)      { b.status = status }
func (b *buffered) Write(p []byte) (int, error) { return b.body.Write(p) }

func (s *scratch) digest(parts ...[]byte) [32]byte {
	s.mac.Reset()
	for _, p := range parts {
		s.mac.Write(p)
	}
	s.sum = s.mac.Sum(s.sum[:0])
	return [32]byte(s.sum)
}

func (b *bare) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := b.pool.Get().(*scratch)
	defer b.pool.Put(s)
	s.body.Reset()
	s.plain.Reset()
	if _, err := s.body.ReadFrom(r.Body); err != nil {
		panic(err)
	}
	if err := json.Compact(&s.plain, s.body.Bytes()); err != nil {
		panic(err)
	}
	id := s.digest([]byte("single"), []byte(r.Header["Idempotency-Key"][0]))
	s.digest([]byte(r.Method), []byte(r.URL.Path), s.body.Bytes())
	s.digest([]byte(r.Method), []byte(r.URL.Path), s.plain.Bytes())
	b.mu.Lock()
	kept, ok := b.seen[id]
	b.mu.Unlock()
	if !ok {
		s.answer.header = http.Header{}
		s.answer.body.Reset()
		r.Body = io.NopCloser(bytes.NewReader(s.body.Bytes()))
		pay(&s.answer, r)
		kept = bytes.Clone(s.answer.body.Bytes())
		b.mu.Lock()
		b.seen[id] = kept
		b.mu.Unlock()
	}
	w.Header()["Content-Type"] = []string{"application/json"}
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(kept))}
	w.WriteHeader(http.StatusCreated)
	w.Write(kept) //nolint:errcheck // in memory
}

func guarded() http.Handler {
	g, err := semel.New(memstore.New(), semel.SingleTenant, semel.Hold, semel.Options{
		IdentitySecret: secret, MaxAttempts: -1, MaxKeys: -1,
	})
	if err != nil {
		panic(err)
	}
	return g.Wrap(http.HandlerFunc(pay))
}

func fresh(prefix string) func(int) string {
	return func(i int) string { return prefix + strconv.Itoa(1_000_000_000+i) }
}

func always(key string) func(int) string { return func(int) string { return key } }

// perRound gives each run of a work a fresh set-up, so that memory does not grow from round to round.
func perRound(make func() work) work {
	return func(n int) { make()(n) }
}

func firstExecution(_ context.Context, m *meter) ([]row, error) {
	semelWork := perRound(func() work { return newCaller(guarded(), body200, fresh("key-")).work })
	floorWork := perRound(func() work { return newCaller(newBare(), body200, fresh("key-")).work })
	r := m.compare(semelWork, floorWork)
	return []row{
		{"P-1", "first execution in memory, 200-byte JSON", perOp(r.a), perOp(r.b), times(r.ratio), "≤ 2.3×"},
		{"P-1", "its allocations", fmt.Sprintf("%.0f", allocations(newCaller(guarded(), body200, fresh("key-")).work)), "", "", "≤ 22"},
	}, nil
}

func replays(_ context.Context, m *meter) ([]row, error) {
	same, floor := guarded(), newBare()
	newCaller(same, body200, always("key")).work(1)
	newCaller(floor, body200, always("key")).work(1)
	equal := newCaller(same, body200, always("key")).work
	// In turn, so that no request is equal to the last one, byte by byte.
	inTurn := func(h http.Handler) work {
		one, other := newCaller(h, body200, always("key")), newCaller(h, reordered, always("key"))
		return func(n int) {
			for i := range n {
				if i%2 == 0 {
					one.work(1)
				} else {
					other.work(1)
				}
			}
		}
	}
	a := m.compare(equal, newCaller(floor, body200, always("key")).work)
	b := m.compare(inTurn(same), inTurn(floor))
	return []row{
		{"P-2", "replay in memory, byte-equal repeat", perOp(a.a), perOp(a.b), times(a.ratio), "≤ 1.3×"},
		{"P-2", "replay in memory, JSON in another order each time", perOp(b.a), perOp(b.b), times(b.ratio), "≤ 2×"},
		{"P-2", "its allocations", fmt.Sprintf("%.0f", allocations(equal)), "", "", "≤ 10"},
	}, nil
}
