package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/valyala/fasthttp"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/semelfiber"
)

const (
	peerCallers = 64
	peerKeys    = 64 // of each caller, that replays choose from
)

// freshOf gives each caller keys of its own, none twice.
func freshOf(prefix string) func(caller int) func(int) string {
	return func(caller int) func(int) string { return fresh(prefix + strconv.Itoa(caller) + "-") }
}

// keptOf gives each caller the same few keys again and again.
func keptOf(caller int) func(int) string {
	return func(i int) string { return fmt.Sprintf("kept-%d-%d", caller, i%peerKeys) }
}

// requests is work that sends requests to a handler of net/http, each caller with keys of its own.
func requests(h http.Handler, keys func(caller int) func(int) string) work {
	var all [peerCallers]*caller
	for i := range all {
		all[i] = newCaller(h, body200, keys(i))
		all[i].busy = true
	}
	return func(n int) { callers(peerCallers, n, func(i int) { all[i].work(1) }) }
}

// fiberRequests is the same for an app of fiber's.
func fiberRequests(app *fiber.App, header string, keys func(caller int) func(int) string) work {
	h := app.Handler()
	type one struct {
		ctx  *fasthttp.RequestCtx
		key  func(int) string
		next int
	}
	var all [peerCallers]*one
	for i := range all {
		c := &one{ctx: &fasthttp.RequestCtx{}, key: keys(i)}
		c.ctx.Request.Header.SetMethod(http.MethodPost)
		c.ctx.Request.SetRequestURI("/payments")
		c.ctx.Request.Header.SetContentType("application/json")
		c.ctx.Request.SetBody(body200)
		all[i] = c
	}
	return func(n int) {
		callers(peerCallers, n, func(i int) {
			c := all[i]
			c.next++
			c.ctx.Request.Header.Set(header, c.key(c.next))
			c.ctx.Response.Reset()
			h(c.ctx)
			if status, size := c.ctx.Response.StatusCode(), len(c.ctx.Response.Body()); status != http.StatusCreated || size != len(answer200) {
				panic(fmt.Sprintf("fiber answered %d with %d bytes", status, size))
			}
		})
	}
}

func newGuard(s driver.Store) (*semel.Guard, error) {
	return semel.New(s, semel.SingleTenant, semel.Hold, semel.Options{IdentitySecret: secret, MaxAttempts: -1, MaxKeys: -1})
}

// memoryPeers measures P-19 in memory: fiber's own middleware beside a guard of net/http, and beside one in fiber.
func memoryPeers(_ context.Context, m *meter) ([]row, error) {
	m = m.each(peerCallers)
	inFiber := func(protect fiber.Handler) *fiber.App {
		a := fiber.New()
		a.Post("/payments", protect, func(c fiber.Ctx) error {
			c.Set(fiber.HeaderContentType, "application/json")
			return c.Status(http.StatusCreated).Send(answer200)
		})
		return a
	}
	guard := func() *semel.Guard {
		g, err := newGuard(memstore.New())
		if err != nil {
			panic(err)
		}
		return g
	}
	type keys = func(caller int) func(int) string
	theirs := func(k keys) work {
		unchecked := idempotency.Config{KeyHeaderValidate: func(string) error { return nil }} // it wants 36 characters
		return fiberRequests(inFiber(idempotency.New(unchecked)), "X-Idempotency-Key", k)
	}
	var rows []row
	for _, us := range []struct {
		what, goal string
		work       func(k keys) work
	}{
		{"memory, net/http, beside fiber's idempotency middleware", "≤ 2×", func(k keys) work { return requests(guard().Wrap(http.HandlerFunc(pay)), k) }},
		{"memory, fiber, beside its idempotency middleware", "shown", func(k keys) work {
			return fiberRequests(inFiber(semelfiber.Middleware(guard())), "Idempotency-Key", k)
		}},
	} {
		// New stores each round, so that memory does not grow from round to round.
		first := m.compare(perRound(func() work { return us.work(freshOf("new-")) }), perRound(func() work { return theirs(freshOf("new-")) }))
		again, theirsAgain := us.work(keptOf), theirs(keptOf)
		for _, w := range []work{again, theirsAgain} {
			w(peerCallers * peerKeys)
		}
		replay := m.compare(again, theirsAgain)
		what := fmt.Sprintf("%s, %d callers, ", us.what, peerCallers)
		rows = append(
			rows,
			row{"P-19", what + "first execution", perOp(first.a), perOp(first.b), times(first.ratio), us.goal},
			row{"P-19", what + "replay", perOp(replay.a), perOp(replay.b), times(replay.ratio), us.goal},
		)
	}
	return rows, nil
}

// A keeper is where the usual middleware keeps answers.
type keeper interface {
	look(key string) []byte // nil if there is none
	lock(key string) bool   // false if somebody has
	keep(key string, answer []byte)
}

// usual is what most such middleware does: it looks, locks, runs the handler and keeps its answer. It has no
// fingerprint, no owner and no lease that is renewed.
type usual struct {
	keeper
	lockFirst bool // and looks only where the key is taken
}

type keptAnswer struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"`
}

func (u usual) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header["Idempotency-Key"][0]
	if !u.lockFirst && replayed(w, u.look(key)) {
		return
	}
	if !u.lock(key) {
		if !u.lockFirst || !replayed(w, u.look(key)) {
			w.WriteHeader(http.StatusConflict)
		}
		return
	}
	b := &buffered{header: http.Header{}}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	pay(b, r)
	answer, err := json.Marshal(keptAnswer{b.status, b.header, b.body.Bytes()})
	if err != nil {
		panic(err)
	}
	u.keep(key, answer)
	send(w, keptAnswer{b.status, b.header, b.body.Bytes()})
}

// replayed sends an answer that was kept, if there is one.
func replayed(w http.ResponseWriter, answer []byte) bool {
	if answer == nil {
		return false
	}
	var kept keptAnswer
	if err := json.Unmarshal(answer, &kept); err != nil {
		panic(err)
	}
	send(w, kept)
	return true
}

func send(w http.ResponseWriter, a keptAnswer) {
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.Status)
	w.Write(a.Body) //nolint:errcheck // in memory
}

// besidePeer measures P-19 with a guard on a store and a peer: the first execution and the replay. The prefix keeps the
// keys of several peers beside one store apart.
func besidePeer(m *meter, what, prefix string, s driver.Store, peer http.Handler) ([]row, error) {
	m = m.each(peerCallers)
	g, err := newGuard(s)
	if err != nil {
		return nil, err
	}
	ours := g.Wrap(http.HandlerFunc(pay))
	first := m.compare(requests(peer, freshOf(prefix)), requests(ours, freshOf(prefix))) // the peer first: the goal is a share of its throughput
	theirsAgain, again := requests(peer, keptOf), requests(ours, keptOf)
	for _, w := range []work{theirsAgain, again} {
		w(peerCallers * peerKeys)
	}
	replay := m.compare(theirsAgain, again)
	what = fmt.Sprintf("%s, %d callers, ", what, peerCallers)
	return []row{
		{"P-19", what + "first execution", perOp(first.b), perOp(first.a), times(first.ratio), "≥ 1×"},
		{"P-19", what + "replay", perOp(replay.b), perOp(replay.a), times(replay.ratio), "≥ 1×"},
	}, nil
}
