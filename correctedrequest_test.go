package semel_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// corrigible is a handler that refuses the request whose body says so, and does what any other asks for.
func corrigible(paid *ledger, refuse func(w http.ResponseWriter, r *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "wrong") {
			refuse(w, r)
			return
		}
		paid.pay(w, r)
	}
}

func answers(status int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

const wrong, right = `{"card":"wrong"}`, `{"card":"right"}`

// Whoever was told that nothing happened may correct the request and send it with the same key.
func TestField16_ACorrectedRequestHasAReleasedKey(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(http.ResponseWriter, *http.Request){
		"401": answers(401), "403": answers(403), "429": answers(429), "503": answers(503),
		"a 402 that the handler releases": func(w http.ResponseWriter, r *http.Request) {
			semel.FromContext(r.Context()).Release()
			w.WriteHeader(http.StatusPaymentRequired)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				g, _ := newGuard(t, store, shortLease(semel.Hold))
				var paid ledger
				h := g.Wrap(corrigible(&paid, refuse))
				if w := answer(h, post("k", wrong)); refusalCode(w) != "" || w.Code < 400 {
					t.Fatalf("the first request is answered %d %s", w.Code, w.Body)
				}
				before := loaded(t, store, "k")
				time.Sleep(time.Minute)
				wantAnswer(t, answer(h, post("k", right)), http.StatusCreated, "payment 1", false)
				rec := loaded(t, store, "k")
				if rec.Attempt != 1 || rec.Fence != before.Fence+1 || rec.Steps || rec.Error != "" || rec.Created != before.Created.Add(time.Minute) {
					t.Errorf("not a new operation: %+v", rec)
				}
				wantAnswer(t, answer(h, post("k", right)), http.StatusCreated, "payment 1", true)
				wantProblem(t, answer(h, post("k", wrong)), http.StatusUnprocessableEntity, refusal.KeyReused)
				sameRecord(t, rec, loaded(t, store, "k"))
				checkEffects(t, &paid, 1)
			})
		})
	}
}

func TestField16_ACorrectedCallOfDoHasAReleasedKey(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, memstore.New(), semel.Policy{})
	busy := errors.New("busy")
	do := func(request string, attempt int) (string, error) {
		return semel.Do(t.Context(), g, theKey, semel.Bytes(request), func(ctx context.Context) (string, error) {
			op := semel.FromContext(ctx)
			if op.Attempt() != attempt {
				t.Errorf("%s is attempt %d, want %d", request, op.Attempt(), attempt)
			}
			if request == "wrong" {
				op.Release()
				return "", busy
			}
			return "paid", nil
		})
	}
	for attempt := range 2 { // the request itself goes on counting
		if _, err := do("wrong", attempt+1); !errors.Is(err, busy) {
			t.Fatalf("the first request: %v", err)
		}
	}
	if got, err := do("right", 1); got != "paid" || err != nil {
		t.Errorf("the corrected one: %q, %v", got, err)
	}
	if _, err := do("wrong", 0); !errors.Is(err, refusal.KeyReused) {
		t.Errorf("the first one again: %v, want key reused", err)
	}
}

// What may have happened, and what somebody is promised, binds the key to the request that it was for.
func TestField16_AKeyThatMayHaveBeenUsedKeepsItsRequest(t *testing.T) {
	t.Parallel()
	stepped := func(w http.ResponseWriter, r *http.Request) {
		if _, err := semel.Step(r.Context(), "charge", one); err != nil {
			panic(err)
		}
		w.WriteHeader(http.StatusTooManyRequests)
	}
	decided := func(t *testing.T, store *memstore.Store) {
		t.Helper()
		rec, err := store.Seize(t.Context(), keyed("k"), driver.NewToken())
		if err == nil {
			_, _, err = store.Settle(t.Context(), keyed("k"), rec.Owner(), driver.Outcome{State: driver.Free})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		p      semel.Policy
		first  func(http.ResponseWriter, *http.Request)
		prefer string
		decide bool // an operator says that nothing happened
	}{
		{"a run that was lost", shortLease(semel.Rerun), func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "", false},
		{"a release under Rerun", shortLease(semel.Rerun), answers(429), "", false},
		{"a release with a step", shortLease(semel.Hold), stepped, "", false},
		{"a release after 202", async(), answers(429), asyncPreferred, false},
		{"a release after 202, freed by an operator", async(), answers(429), asyncPreferred, true},
		{"an unknown outcome after 202, freed by an operator", async(), func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
		}, asyncPreferred, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				c.p.Decide = func(status int, _ http.Header, _ []byte) semel.Verdict {
					if status == http.StatusBadGateway {
						return semel.VerdictUnknown
					}
					return semel.VerdictDefault
				}
				g, _, _ := asyncGuard(t, store, c.p)
				var paid ledger
				h := g.Wrap(corrigible(&paid, func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(time.Second)
					c.first(w, r)
				}))
				func() {
					defer func() { recover() }() //nolint:errcheck // the handler's own panic
					answer(h, post("k", wrong, "Prefer", c.prefer))
				}()
				time.Sleep(2 * time.Second)
				if c.decide {
					decided(t, store)
				}
				before := loaded(t, store, "k")
				if before.State != driver.Free {
					t.Fatalf("the record is %v", before.State)
				}
				wantProblem(t, answer(h, post("k", right)), http.StatusUnprocessableEntity, refusal.KeyReused)
				sameRecord(t, before, loaded(t, store, "k"))
				checkEffects(t, &paid, 0)
				drained(t, g)
			})
		})
	}
}

// Another request never waits for a run: it learns at once that the key is in use. The one that is run again, by a
// waiter, is the first.
func TestField16_AnotherRequestDoesNotWaitForARelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, memstore.New(), waits(semel.Hold, time.Minute))
		var runs ledger
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(2 * time.Second)
			status := http.StatusCreated
			if runs.add() == 1 {
				status = http.StatusTooManyRequests
			}
			w.WriteHeader(status)
		}))
		first := serve(h, post("k", wrong))
		synctest.Wait()
		waiter := serve(h, post("k", wrong))
		synctest.Wait()
		start := time.Now()
		wantProblem(t, answer(h, post("k", right)), http.StatusUnprocessableEntity, refusal.KeyReused)
		if took := time.Since(start); took != 0 {
			t.Errorf("another request was kept waiting for %v", took)
		}
		if w := first.answer(); w.Code != http.StatusTooManyRequests {
			t.Errorf("the first is answered %d", w.Code)
		}
		if w := waiter.answer(); w.Code != http.StatusCreated || replayed(w) {
			t.Errorf("the waiter is answered %d, replayed %t; want its own run", w.Code, replayed(w))
		}
		wantProblem(t, answer(h, post("k", right)), http.StatusUnprocessableEntity, refusal.KeyReused)
	})
}

// A copy of the first request's claim that arrives late, when the corrected one was released too, owns a run that
// nobody starts. It is released like any other: the key is not stuck.
func TestField16_ALateClaimOfTheFirstRequestIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var late []driver.Claim
		cut := &faulty{Store: store}
		cut.claim = func(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
			if late = append(late, c); len(late) == 1 {
				return driver.Record{}, false, errors.New("the reply is lost, and the claim is under way")
			}
			return store.Claim(ctx, id, c)
		}
		g, _ := newGuard(t, cut, shortLease(semel.Hold))
		status := http.StatusTooManyRequests
		var runs ledger
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs.add()
			w.WriteHeader(status)
		}))
		for _, body := range []string{wrong, right} {
			if w := answer(h, post("k", body)); w.Code != status {
				t.Fatalf("answered %d %s", w.Code, w.Body)
			}
		}
		before := loaded(t, store, "k")
		time.Sleep(time.Second)
		rec, owned, err := store.Claim(t.Context(), keyed("k"), late[0])
		if err != nil || !owned || rec.Fence != before.Fence+1 {
			t.Fatalf("the late copy: owned %t, fence %d after %d, %v", owned, rec.Fence, before.Fence, err)
		}
		wantProblem(t, answer(h, post("k", right)), http.StatusUnprocessableEntity, refusal.KeyReused)
		drained(t, g)
		status = http.StatusCreated
		if w := answer(h, post("k", right)); w.Code != http.StatusCreated {
			t.Errorf("after the release the corrected request is answered %d %s", w.Code, w.Body)
		}
		checkEffects(t, &runs, 3)
	})
}

// The client of an owner that was fenced is never given the answer to the request that has its key now.
func TestField16_R48_AFencedOwnersClientGetsNoOthersAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var paid ledger
		var h http.Handler
		cut := &faulty{Store: store}
		cut.settle = func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
			if o.State != driver.Free {
				return store.Settle(ctx, id, by, o)
			}
			rec, owned, err := store.Settle(ctx, id, by, o)
			if !owned || err != nil || rec.Owner() != by {
				return rec, owned, err
			}
			if paid.count() == 0 { // the reply to the first one is lost, and meanwhile the corrected request has come
				wantAnswer(t, answer(h, post("k", right)), http.StatusCreated, "payment 1", false)
				return driver.Record{}, false, errors.New("the reply is lost")
			}
			return rec, owned, err
		}
		g, _ := newGuard(t, cut, shortLease(semel.Hold))
		h = g.Wrap(corrigible(&paid, answers(http.StatusTooManyRequests)))
		wantProblem(t, answer(h, post("k", wrong)), http.StatusConflict, refusal.OutcomeUnknown)
		wantAnswer(t, answer(h, post("k", right)), http.StatusCreated, "payment 1", true)
	})
}
