package semel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/history"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
	"github.com/semelhq/semel/semeltest"
)

// stressSeed returns a seed for a stress test, which prints it if it fails. SEMEL_SEED repeats the choices of a run,
// but not the scheduler's.
func stressSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SEMEL_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("SEMEL_SEED: %v", err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("SEMEL_SEED=%d", seed)
		}
	})
	return seed
}

// dice is a random source for many goroutines.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newDice(seed uint64) *dice { return &dice{r: rand.New(rand.NewPCG(seed, 1))} }

// oneIn is true once in n times.
func (d *dice) oneIn(n int) bool { return d.upTo(n) == 0 }

func (d *dice) upTo(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// within returns a duration up to limit.
func (d *dice) within(limit time.Duration) time.Duration {
	return time.Duration(d.upTo(int(limit/time.Millisecond))) * time.Millisecond
}

// A network is a store as seen through a bad network: requests and replies get lost, and requests arrive late, even
// after their sender was told that they failed, though not later than life.
type network struct {
	driver.Store
	dice *dice
	life time.Duration
}

var errNetwork = errors.New("network")

// pass calls verb, or not, or later; it returns false if the reply was lost.
func (n *network) pass(ctx context.Context, verb func(context.Context)) bool {
	switch n.dice.upTo(40) {
	case 0: // the request is lost
		return false
	case 1: // the reply is lost
		verb(ctx)
		return false
	case 2: // the request arrives when its sender has long given up
		late := n.dice.within(n.life)
		go func() {
			time.Sleep(late)
			verb(context.WithoutCancel(ctx))
		}()
		return false
	case 3: // all is slow
		select {
		case <-time.After(n.dice.within(2 * time.Second)):
		case <-ctx.Done():
			return false
		}
	}
	verb(ctx)
	return true
}

func (n *network) Claim(ctx context.Context, id driver.ID, c driver.Claim) (rec driver.Record, owned bool, err error) {
	var r driver.Record
	var o bool
	var e error
	if !n.pass(ctx, func(ctx context.Context) { r, o, e = n.Store.Claim(ctx, id, c) }) {
		return rec, false, errNetwork
	}
	return r, o, e
}

func (n *network) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (owned bool, err error) {
	var o bool
	var e error
	if !n.pass(ctx, func(ctx context.Context) { o, e = n.Store.Extend(ctx, id, by, x) }) {
		return false, errNetwork
	}
	return o, e
}

func (n *network) Settle(ctx context.Context, id driver.ID, by driver.Owner, out driver.Outcome) (rec driver.Record, owned bool, err error) {
	var r driver.Record
	var o bool
	var e error
	if !n.pass(ctx, func(ctx context.Context) { r, o, e = n.Store.Settle(ctx, id, by, out) }) {
		return rec, false, errNetwork
	}
	return r, o, e
}

// A process has a guard, its network to the store, and can be killed: then its handlers have no effects any more.
type process struct {
	store *semeltest.Mortal
	guard *semel.Guard
	h     http.Handler

	mu sync.Mutex // held while an effect happens, so that a dead process has none
}

// while runs f if the process lives, and reports whether it does.
func (p *process) while(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.store.Dead() {
		return false
	}
	f()
	return true
}

func (p *process) kill() { p.while(p.store.Kill) }

// A world is some processes on one storage, and what the oracle knows of them.
type world struct {
	t       *testing.T
	dice    *dice
	policy  semel.Policy
	storage *memstore.Store
	history history.History

	mu        sync.Mutex
	processes []*process
	// The downstream of handlers that may be run again: it deduplicates by the derived key, and gives each the result
	// of the first.
	downstream map[string]string
}

const requestLife = 5 * time.Second

// process returns one of the two processes; one that was killed has been replaced.
func (w *world) process() *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.dice.upTo(2)
	for len(w.processes) < 2 {
		w.processes = append(w.processes, w.start())
	}
	if w.processes[i].store.Dead() {
		w.processes[i] = w.start()
	}
	return w.processes[i]
}

func (w *world) start() *process {
	p := &process{store: semeltest.NewMortal(&network{Store: w.storage, dice: w.dice, life: requestLife})}
	g, err := semel.New(p.store, semel.SingleTenant, w.policy.OnLost, semel.Options{
		Policy: w.policy, MaxAttempts: -1, MaxKeys: -1, RequestLife: requestLife,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	p.guard = g
	p.h = g.Wrap(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.handle(p, rw, r) }))
	return p
}

// handle has an effect, dies, fails, takes its time, in any order.
func (w *world) handle(p *process, rw http.ResponseWriter, r *http.Request) {
	op := semel.FromContext(r.Context())
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Errorf("read body: %v", err)
	}
	key, request := r.Header.Get("Idempotency-Key"), string(body)
	w.misfortune(p)
	var value string
	alive := p.while(func() {
		if w.policy.OnLost == semel.Hold {
			value = fmt.Sprintf("attempt %d", op.Attempt())
			w.history.Effect(key, request)
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		derived := op.Key("effect")
		if w.downstream[derived] == "" {
			w.downstream[derived] = fmt.Sprintf("attempt %d", op.Attempt())
			w.history.Effect(key, request)
		}
		value = w.downstream[derived]
	})
	if !alive {
		panic(http.ErrAbortHandler)
	}
	w.misfortune(p)
	rw.WriteHeader(http.StatusCreated)
	io.WriteString(rw, value)
}

// misfortune is what may come between two lines of a handler.
func (w *world) misfortune(p *process) {
	switch w.dice.upTo(25) {
	case 0:
		p.kill()
		panic(http.ErrAbortHandler)
	case 1:
		panic(http.ErrAbortHandler)
	case 2, 3:
		time.Sleep(w.dice.within(10 * time.Second)) // longer than a lease, and deaf
	case 4, 5, 6:
		time.Sleep(w.dice.within(time.Second))
	}
}

// ask sends a request and records what its client has learned. It returns the answer, nil if it was lost.
func (w *world) ask(key, request string, losable bool) *httptest.ResponseRecorder {
	p := w.process()
	call := w.history.Ask(key, request)
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(request))
	r.Header.Set("Idempotency-Key", key)
	if losable && w.dice.oneIn(20) { // the client leaves
		ctx, cancel := context.WithTimeout(r.Context(), w.dice.within(3*time.Second))
		defer cancel()
		r = r.WithContext(ctx)
	}
	rec := httptest.NewRecorder()
	func() {
		defer func() {
			if v := recover(); v != nil {
				if v != http.ErrAbortHandler {
					w.t.Errorf("the guard threw %v", v)
				}
				rec = nil
			}
		}()
		p.h.ServeHTTP(rec, r)
	}()
	switch {
	case rec == nil, p.store.Dead(), r.Context().Err() != nil, losable && w.dice.oneIn(10):
		return nil // nobody has read it
	case rec.Code == http.StatusCreated:
		call.Learned(history.Success, rec.Body.String())
	case codeOf(rec) == refusal.KeyReused:
		call.Learned(history.Mismatch, "")
	case codeOf(rec) != "":
		call.Learned(history.Unsure, string(codeOf(rec)))
	default:
		w.t.Errorf("answered %d %q", rec.Code, rec.Body)
	}
	return rec
}

// Many clients, many keys, two processes on one store, a bad network, processes that die, handlers that panic or
// outlive their lease, answers that get lost. What the oracle must say: nothing was done twice, no success was told
// that was none, no two answers disagree. Under Rerun each key must come to its one effect in the end, under Hold to
// its effect or to an unknown outcome.
func TestR26_R46_R47_R48_R90_WhateverHappensEachKeyTakesEffectOnce(t *testing.T) {
	t.Parallel()
	for _, onLost := range []semel.LostPolicy{semel.Hold, semel.Rerun} {
		for _, wait := range []time.Duration{0, 2 * time.Second} {
			t.Run(fmt.Sprintf("%v, wait %v", onLost, wait), func(t *testing.T) {
				t.Parallel()
				seed := stressSeed(t)
				synctest.Test(t, func(t *testing.T) {
					w := &world{t: t, dice: newDice(seed), storage: memstore.New(), downstream: map[string]string{}}
					w.policy = semel.Policy{
						OnLost: onLost, Lease: 3 * time.Second, MaxRun: time.Minute, SettleWait: time.Second, Wait: wait,
						Patience: []time.Duration{0, 4 * time.Second}[w.dice.upTo(2)],
					}
					w.run()
				})
			})
		}
	}
}

func (w *world) run() {
	const clients, requests, keys = 24, 15, 40
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range requests {
				key := fmt.Sprintf("k%02d", w.dice.upTo(keys))
				request := "pay " + key
				if w.dice.oneIn(12) {
					request = "pay somebody else"
				}
				w.ask(key, request, true)
				time.Sleep(w.dice.within(2 * time.Second))
			}
		})
	}
	wg.Wait()
	outcomes := map[string]int{}
	for i := range keys {
		outcomes[w.finally(fmt.Sprintf("k%02d", i))]++
	}
	for _, p := range w.processes {
		if err := p.guard.Drain(w.t.Context()); err != nil {
			w.t.Error(err)
		}
	}
	time.Sleep(w.policy.MaxRun + requestLife) // what is still under way, also of the dead, has come to its end
	for _, v := range w.history.Check() {
		w.t.Error(v)
	}
	w.t.Logf("outcomes %v", outcomes)
	if w.policy.OnLost == semel.Rerun && outcomes["done"] != keys {
		w.t.Errorf("outcomes %v, want all done: no key is stuck", outcomes)
	}
	if outcomes["done"] < keys/8 {
		w.t.Errorf("outcomes %v: too little was done to have shown anything", outcomes)
	}
}

// finally asks for a key until its outcome is definite.
func (w *world) finally(key string) string {
	for range 100 {
		rec := w.ask(key, "pay "+key, false)
		switch {
		case rec == nil:
		case rec.Code == http.StatusCreated:
			if n := w.history.Effects(key); n != 1 {
				w.t.Errorf("%s is done with %d effects", key, n)
			}
			return "done"
		case codeOf(rec) == refusal.KeyReused:
			// The key belongs to the other request; that one must come to an end too.
			rec = w.ask(key, "pay somebody else", false)
			if rec != nil && rec.Code == http.StatusCreated {
				return "done"
			}
			if rec != nil && codeOf(rec) == refusal.OutcomeUnknown {
				return "unknown"
			}
		case codeOf(rec) == refusal.OutcomeUnknown:
			if w.policy.OnLost == semel.Rerun {
				w.t.Errorf("%s is unknown under Rerun", key)
			}
			return "unknown"
		}
		time.Sleep(time.Second)
	}
	w.t.Errorf("%s comes to no end: it is stuck", key)
	return "stuck"
}
