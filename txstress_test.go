package semel_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// Handlers that work in transactions, try again, answer before, in and after them, throw, and leave without an answer,
// over a store of which any call may fail: a client is told of a success exactly if the effect was committed, all that
// is told of one key agrees, and no key is stuck.
func TestR31_R90_WhatIsToldIsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		m := txModes()[seed%3]
		t.Run(fmt.Sprint(m.name, "/", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { (&ordeal{dice: newDice(seed), mode: m}).run(t) })
		})
	}
}

// ordeal is one course of requests.
type ordeal struct {
	*dice
	mode txMode
	calm atomic.Bool // nothing fails any more
	runs atomic.Int64

	mu   sync.Mutex
	told map[string][]string // by key: the final answers, as their clients got them
}

// fails is the error of a call of which one in n fails.
func (o *ordeal) fails(n int) error {
	if !o.calm.Load() && o.oneIn(n) {
		return errDown
	}
	return nil
}

func (o *ordeal) run(t *testing.T) {
	s := transactions(t, memstore.New())
	s.begin = func(context.Context) error { return o.fails(12) }
	s.claim = func() error { return o.fails(12) }
	s.load = func() error { return o.fails(12) }
	s.mark = func(context.Context) error { return o.fails(15) }
	s.undo = func(context.Context) error { return o.fails(8) }
	s.asked = func(context.Context, driver.Outcome) error { return o.fails(5) }
	s.settle = func(a driver.Outcome) (bool, error) {
		if a.Response != nil && o.fails(12) != nil {
			return false, driver.ErrFull
		}
		return false, o.fails(12)
	}
	s.extends(func(execute func() (bool, error)) (bool, error) {
		if err := o.fails(5); err != nil {
			return false, err
		}
		return execute()
	})
	s.commit = func(execute func() error) error {
		switch {
		case o.fails(8) != nil:
			return commitRefused(execute)
		case o.fails(8) != nil:
			return commitLost(execute)
		case o.fails(6) != nil:
			return commitUnheard(execute)
		}
		return execute()
	}
	p := o.mode.policy
	p.Lease = time.Minute // it outlasts renewals that fail
	g, _ := newGuardWith(t, s, semel.Options{Policy: p, MaxAttempts: -1})
	h := g.Wrap(o.handler(t, s))
	o.told = map[string][]string{}
	keys := []string{"a", "b", "c"}
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 8 {
				key := keys[o.upTo(len(keys))]
				o.note(key, serve(h, post(key, `{}`)))
				time.Sleep(o.within(3 * time.Second))
			}
		})
	}
	clients.Wait()
	drained(t, g)
	o.calm.Store(true)
	for _, key := range keys {
		for range 2 {
			last := serve(h, post(key, `{}`))
			o.note(key, last)
			if code := refusalCode(last.w); last.thrown != nil || code != "" && code != refusal.ReplayUnavailable {
				t.Errorf("%s is stuck: %d %s, threw %v", key, last.w.Code, last.w.Body, last.thrown)
			}
		}
		o.judge(t, s, key)
	}
	s.wantEffects(s.effects...)
	drained(t, g)
}

// note waits for an answer, and remembers it if it says what became of the operation.
func (o *ordeal) note(key string, s *served) {
	<-s.done
	if s.thrown != nil || s.exited || refusalCode(s.w) != "" || !strings.HasPrefix(s.w.Body.String(), "final ") {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told[key] = append(o.told[key], fmt.Sprint(s.w.Code, " ", s.w.Body))
}

// judge fails unless all that was told of a key agrees with its effects.
func (o *ordeal) judge(t *testing.T, s *transactor, key string) {
	var effects []string
	for _, e := range s.effects {
		if strings.HasPrefix(e, key+" ") {
			effects = append(effects, e)
		}
	}
	if len(effects) > 1 {
		t.Errorf("%s took effect more than once: %q", key, effects)
	}
	told := slices.Compact(o.told[key])
	switch {
	case len(told) > 1:
		t.Errorf("of %s was told %q", key, told)
	case len(told) == 1 && strings.HasPrefix(told[0], "201 "):
		if want := "201 final " + strings.Join(effects, ""); told[0] != want {
			t.Errorf("of %s was told %q, committed was %q", key, told, effects)
		}
	case len(told) == 1 && len(effects) > 0:
		t.Errorf("of %s was told %q, but it took effect: %q", key, told, effects)
	}
}

var errRefusedHere = errors.New("refused")

// handler draws what to do. What it answers as "final" is to be kept.
func (o *ordeal) handler(t *testing.T, s *transactor) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if o.calm.Load() {
			s.working(func(w http.ResponseWriter, _ *http.Request, tx driver.Tx) error {
				name := fmt.Sprint(key, " ", o.runs.Add(1))
				effect(tx, name)
				w.WriteHeader(http.StatusCreated)
				fmt.Fprint(w, "final ", name)
				return nil
			}, nil).ServeHTTP(w, r)
			return
		}
		for attempt := 1 + o.upTo(2); attempt > 0; attempt-- {
			name := fmt.Sprint(key, " ", o.runs.Add(1))
			err := semel.RunTx(r.Context(), s, func(_ context.Context, tx driver.Tx) error {
				effect(tx, name)
				time.Sleep(o.within(700 * time.Millisecond))
				say := func(status int, text string, err error) error {
					w.WriteHeader(status)
					fmt.Fprint(w, text)
					return err
				}
				switch o.upTo(12) {
				case 0:
					return errDeclined
				case 1:
					return say(http.StatusUnprocessableEntity, "final refusal", errRefusedHere)
				case 2:
					return say(http.StatusCreated, "final dropped", errDeclined)
				case 3:
					return say(http.StatusInternalServerError, "broken", errDeclined)
				case 4:
					return say(http.StatusTooManyRequests, "later", nil)
				case 5:
					panic("gone")
				}
				return say(http.StatusCreated, "final "+name, nil)
			})
			if err == nil || errors.Is(err, semel.ErrSettled) {
				break
			}
			time.Sleep(o.within(700 * time.Millisecond))
		}
		switch o.upTo(6) { // whatever became of it
		case 0:
			w.WriteHeader(http.StatusOK)
			fmt.Fprint(w, "final lie")
		case 1:
			http.Error(w, "broken", http.StatusInternalServerError)
		case 2:
			panic("gone")
		case 3:
			if _, err := w.Write([]byte("")); err != nil && !errors.Is(err, semel.ErrSettled) {
				t.Errorf("write: %v", err)
			}
		}
	})
}
