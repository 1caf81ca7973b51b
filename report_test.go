package semel_test

import (
	"context"
	"errors"
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

func named(operation string) semel.Key {
	return semel.Key{Scope: "alice", Operation: operation, Value: "k"}
}

// asked asks for an operation in each way there is, with the given context and key. The function's results are of type
// T.
func asked[T any](t *testing.T, store *transactor, p semel.Policy, key semel.Key, fn func(context.Context) (T, error)) map[string]func(context.Context) (T, error) {
	t.Helper()
	g, _ := newGuard(t, store, p)
	return map[string]func(context.Context) (T, error){
		"Do": func(ctx context.Context) (T, error) { return semel.Do(ctx, g, key, semel.Bytes("r"), fn) },
		"DoTx": func(ctx context.Context) (T, error) {
			return semel.DoTx(ctx, g, store, key, semel.Bytes("r"), func(ctx context.Context, _ driver.Tx) (T, error) { return fn(ctx) })
		},
	}
}

func TestField10_NoFunctionGetsTheResultOfAnother(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"Do", "DoTx"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			store := newTransactor(t)
			charge := asked(t, store, semel.Policy{}, named("charge"), func(context.Context) (receipt, error) { return receipt{ID: "r_1"}, nil })[way]
			if got, err := charge(t.Context()); got.ID != "r_1" || err != nil {
				t.Fatalf("the first: %+v, %v", got, err)
			}
			runs := 0
			refund := asked(t, store, semel.Policy{}, named("refund"), func(context.Context) (struct{ Refund string }, error) {
				runs++
				return struct{ Refund string }{"f_1"}, nil
			})[way]
			if got, err := refund(t.Context()); got.Refund != "" || !errors.Is(err, refusal.KeyReused) || runs != 0 {
				t.Errorf("another function: %+v, %v, %d runs; want key reused", got, err, runs)
			}
			// The policy's name is the same name.
			unnamed := asked(t, store, semel.Policy{Operation: "charge"}, named(""), func(context.Context) (receipt, error) { return receipt{}, nil })[way]
			if got, err := unnamed(t.Context()); got.ID != "r_1" || err != nil {
				t.Errorf("the same function by its policy's name: %+v, %v", got, err)
			}
			// A result that has changed meanwhile: what is new is zero, what is gone is passed over.
			changed := asked(t, store, semel.Policy{}, named("charge"), func(context.Context) (struct{ ID, New string }, error) { return struct{ ID, New string }{}, nil })[way]
			if got, err := changed(t.Context()); got.ID != "r_1" || got.New != "" || err != nil {
				t.Errorf("the same function with another result: %+v, %v", got, err)
			}
			number := asked(t, store, semel.Policy{}, named("charge"), func(context.Context) (int, error) { return 1, nil })[way]
			if got, err := number(t.Context()); got != 0 || !errors.Is(err, refusal.ReplayUnavailable) {
				t.Errorf("a result that does not decode: %v, %v; want replay unavailable", got, err)
			}
			other := asked(t, store, semel.Policy{PerOperation: true}, named("refund"), func(context.Context) (string, error) { return "f_1", nil })[way]
			if got, err := other(t.Context()); got != "f_1" || err != nil {
				t.Errorf("with the name as a part of the identity: %q, %v", got, err)
			}
		})
	}
}

func TestField10_ACallWithoutANameIsAMistakeAndClaimsNothing(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"Do", "DoTx"} {
		for _, name := range []string{"", "a\x00b", "\xff", strings.Repeat("x", 256)} {
			mem := memstore.New()
			ask := asked(t, transactions(t, mem), semel.Policy{}, named(name), func(context.Context) (int, error) {
				t.Errorf("%s %q: the function runs", way, name)
				return 1, nil
			})[way]
			var p *semel.Problem
			if _, err := ask(t.Context()); !errors.Is(err, semel.ErrOperationName) || errors.As(err, &p) {
				t.Errorf("%s %q: %v", way, name, err)
			}
			checkRecords(t, mem, 0)
		}
	}
	g, seen := newGuard(t, nil, semel.Policy{})
	semel.Do(t.Context(), g, named(""), semel.Bytes("r"), func(context.Context) (int, error) { return 1, nil }) //nolint:errcheck // seen in the event
	if e := seen.last(); e.Result != event.Refused || !errors.Is(e.Err, semel.ErrOperationName) || e.Code != "" {
		t.Errorf("the event is %+v, want a refusal with the error", e)
	}
}

// Records of a version that did not ask for names: named ones are replayed, others are never a false 422.
func TestField10_R23_RecordsFromBeforeNamesWereAskedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		same bool // it was called by the same name
		want error
	}{{true, nil}, {false, refusal.ReplayUnavailable}} {
		mem := memstore.New()
		before := &faulty{Store: mem, claim: func(ctx context.Context, id driver.ID, claim driver.Claim) (driver.Record, bool, error) {
			claim.Fingerprint.Settings = [8]byte{}
			copy(claim.Fingerprint.Settings[:], "do 1")
			if !c.same {
				claim.Fingerprint.Raw[0]++
				claim.Fingerprint.Canonical = claim.Fingerprint.Raw
			}
			return mem.Claim(ctx, id, claim)
		}}
		for i, store := range []driver.Store{before, mem} {
			g, _ := newGuard(t, store, semel.Policy{})
			got, err := semel.Do(t.Context(), g, named("charge"), semel.Bytes("r"), func(context.Context) (int, error) { return 7 + i, nil })
			if want := c.want; i == 1 && want != nil {
				if !errors.Is(err, want) || got != 0 {
					t.Errorf("under another name: %d, %v; want %v", got, err, want)
				}
			} else if got != 7 || err != nil {
				t.Errorf("call %d: %d, %v", i, got, err)
			}
		}
	}
}

func TestField10_WhoAsksLearnsWhetherAResultIsAReplay(t *testing.T) {
	t.Parallel()
	declined := semel.Final(errors.New("declined"))
	down := func(context.Context, driver.ID, driver.Claim) (driver.Record, bool, error) {
		return driver.Record{}, false, errDown
	}
	for name, c := range map[string]struct {
		policy  semel.Policy
		results []error // of the runs
		down    bool
		want    []semel.Report // of the calls, a minute apart; Expires is the time after the call's beginning
	}{
		"run, then replayed": {
			semel.Policy{Retention: time.Hour},
			[]error{nil},
			false,
			[]semel.Report{{Attempt: 1, Expires: after(time.Hour)}, {Replayed: true, Attempt: 1, Expires: after(59 * time.Minute)}},
		},
		"the second run replayed": {
			semel.Policy{Retention: time.Hour, OnLost: semel.Rerun},
			[]error{errDeclined, nil},
			false,
			[]semel.Report{{Attempt: 1}, {Attempt: 2, Expires: after(time.Hour)}, {Replayed: true, Attempt: 2, Expires: after(59 * time.Minute)}},
		},
		"an error replayed": {
			semel.Policy{Retention: time.Hour},
			[]error{declined},
			false,
			[]semel.Report{{Attempt: 1, Expires: after(time.Hour)}, {Replayed: true, Attempt: 1, Expires: after(59 * time.Minute)}},
		},
		"kept for ever": {
			semel.Policy{Retention: semel.Forever}, []error{nil}, false, []semel.Report{{Attempt: 1}, {Replayed: true, Attempt: 1}},
		},
		"with a tombstone": {
			semel.Policy{Retention: time.Hour, Tombstone: time.Hour}, []error{nil}, false, []semel.Report{{Attempt: 1, Expires: after(time.Hour)}},
		},
		"refused":  {semel.Policy{}, nil, true, []semel.Report{{}}},
		"bypassed": {semel.Policy{FailOpen: true}, []error{nil}, true, []semel.Report{{}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, way := range []string{"Do", "DoTx"} {
					store := newTransactor(t)
					if c.down {
						store = transactions(t, &faulty{Store: memstore.New(), claim: down})
					}
					g, _ := newGuard(t, store, c.policy)
					runs := 0
					fn := func(ctx context.Context) (int, error) {
						// A call within is another operation, of which the outer call does not tell.
						inner, _ := newGuard(t, nil, semel.Policy{})
						semel.Do(ctx, inner, named("inner"), semel.Bytes("r"), func(context.Context) (int, error) { return 1, nil }) //nolint:errcheck // not seen
						runs++
						return runs, c.results[runs-1]
					}
					for i, want := range c.want {
						began := time.Now()
						got, err := semel.Report{Replayed: true, Attempt: 99}, error(nil)
						ctx := semel.WithReport(t.Context(), &got)
						switch way {
						case "Do":
							_, err = semel.Do(ctx, g, theKey, semel.Bytes("r"), fn)
						case "DoTx":
							_, err = semel.DoTx(ctx, g, store, theKey, semel.Bytes("r"), func(ctx context.Context, _ driver.Tx) (int, error) { return fn(ctx) })
						}
						if !want.Expires.IsZero() {
							want.Expires = began.Add(want.Expires.Sub(time.Time{})).UTC()
						}
						if got != want {
							t.Errorf("%s, call %d: %+v, want %+v", way, i, got, want)
						}
						var replayed *semel.ReplayedError
						if errors.As(err, &replayed) && replayed.Report != want {
							t.Errorf("%s, call %d: the error has %+v, want %+v", way, i, replayed.Report, want)
						}
						time.Sleep(time.Minute)
					}
					if err := g.Drain(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// after is a time that stands for that long after a moment.
func after(d time.Duration) time.Time { return time.Time{}.Add(d) }

func TestField10_WhoStopsWaitingIsToldNothingOfTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, nil, semel.Policy{Patience: time.Second})
		var report semel.Report
		_, err := semel.Do(semel.WithReport(t.Context(), &report), g, theKey, semel.Bytes("r"), func(context.Context) (int, error) {
			time.Sleep(time.Minute)
			return 1, nil
		})
		if !errors.Is(err, refusal.OutcomePending) || report != (semel.Report{}) {
			t.Errorf("%+v, %v", report, err)
		}
		if err := g.Drain(t.Context()); err != nil || report != (semel.Report{}) {
			t.Errorf("after its end: %+v, %v", report, err)
		}
	})
}
