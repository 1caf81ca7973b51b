package semel_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/keyring"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// A steppedStore is a store with steps whose verbs a test can watch and break.
type steppedStore struct {
	driver.StepStore
	save func(execute func() (bool, error)) (bool, error)
	read func(execute func() (map[string][]byte, error)) (map[string][]byte, error)
}

func (s *steppedStore) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	execute := func() (bool, error) { return s.StepStore.SaveStep(ctx, id, by, name, result) }
	if s.save != nil {
		return s.save(execute)
	}
	return execute()
}

func (s *steppedStore) Steps(ctx context.Context, id driver.ID) (map[string][]byte, error) {
	execute := func() (map[string][]byte, error) { return s.StepStore.Steps(ctx, id) }
	if s.read != nil {
		return s.read(execute)
	}
	return execute()
}

// downstreams counts what arrives at several systems, by key: each has an effect once a key, as one that deduplicates
// does.
type downstreams struct {
	mu    sync.Mutex
	calls []string
	keys  map[string]int
}

// call is a step's function that reaches one of them with the step's key.
func (d *downstreams) call(ctx context.Context) (string, error) {
	key, ok := semel.StepKey(ctx)
	if !ok {
		return "", errors.New("there is no key in the step")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.keys == nil {
		d.keys = map[string]int{}
	}
	d.keys[key]++
	d.calls = append(d.calls, key)
	return "receipt of " + key, nil
}

func (d *downstreams) effects() (keys, calls int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.keys), len(d.calls)
}

var threeSteps = []string{"charge", "reserve", "notify"}

// runSteps is a handler of three steps, which answers with their results.
func runSteps(d *downstreams) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var results []string
		for _, name := range threeSteps {
			result, err := semel.Step(r.Context(), name, d.call)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			results = append(results, result)
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, strings.Join(results, "\n"))
	}
}

// TestR84_AReleasedRunResumesAfterItsLastSavedStep: a later run, on another guard, gets what was saved, and its keys
// are those of the first.
func TestR84_AReleasedRunResumesAfterItsLastSavedStep(t *testing.T) {
	t.Parallel()
	for failing := range threeSteps {
		t.Run(threeSteps[failing], func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			var d downstreams
			fails := true
			var keys []string
			pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				op := semel.FromContext(r.Context())
				for i, name := range threeSteps {
					_, err := semel.Step(r.Context(), name, func(ctx context.Context) (string, error) {
						if fails && i == failing {
							return "", errors.New("the downstream is away")
						}
						return d.call(ctx)
					})
					if err != nil {
						http.Error(w, err.Error(), http.StatusInternalServerError)
						return
					}
				}
				for _, name := range threeSteps {
					keys = append(keys, op.Key(name))
				}
				w.WriteHeader(http.StatusCreated)
			})
			first, _ := newGuard(t, store, semel.Policy{OnLost: semel.Rerun})
			if w := answer(first.Wrap(pay), post("k", `{}`)); w.Code != 500 || w.Body.String() != "the downstream is away\n" {
				t.Fatalf("answered %d %q, want the step's error as it is", w.Code, w.Body)
			}
			if rec := loaded(t, store, "k"); rec.State != driver.Free || rec.Steps != (failing > 0) {
				t.Fatalf("the record is %v, steps %v", rec.State, rec.Steps)
			}
			fails = false
			second, _ := newGuard(t, store, semel.Policy{OnLost: semel.Rerun})
			if w := answer(second.Wrap(pay), post("k", `{}`)); w.Code != 201 {
				t.Fatalf("answered %d %q", w.Code, w.Body)
			}
			if !slices.Equal(d.calls, keys) {
				t.Errorf("the downstreams saw %v, want each step once, with the operation's keys: %v", d.calls, keys)
			}
		})
	}
}

// TestR84_KilledAtEveryVerb: a process dies at any of its verbs, its successor takes over when the lease is over. A
// downstream that deduplicates by the derived key has one effect a step, and a step whose save was executed is not run
// again.
func TestR84_KilledAtEveryVerb(t *testing.T) {
	t.Parallel()
	finished := 0
	for budget := int64(1); budget <= 8; budget++ {
		t.Run(fmt.Sprint(budget), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				var d downstreams
				way := &mortal{Store: store}
				way.budget.Store(budget)
				saves := 0
				dying := &steppedStore{StepStore: store}
				dying.save = func(execute func() (bool, error)) (bool, error) {
					if way.lost() {
						return false, errDown
					}
					owned, err := execute()
					if owned {
						saves++
					}
					return owned, way.after(err)
				}
				p := shortLease(semel.Rerun)
				a, _ := newGuard(t, mortalSteps{way, dying}, p)
				serve(a.Wrap(runSteps(&d)), post("k", `{}`))
				synctest.Wait()
				time.Sleep(2 * p.MaxRun)
				before, saved := len(d.calls), saves
				b, _ := newGuard(t, store, p)
				w := answer(b.Wrap(runSteps(&d)), post("k", `{}`))
				keys, calls := d.effects()
				if w.Code != 201 || keys != 3 {
					t.Errorf("answered %d %q, with effects under %d keys", w.Code, w.Body, keys)
				}
				if way.dead.Load() && !replayed(w) && calls-before != 3-saved {
					t.Errorf("the successor ran %d steps though %d were saved", calls-before, saved)
				}
				if w2 := answer(b.Wrap(runSteps(&d)), post("k", `{}`)); w2.Body.String() != w.Body.String() || !replayed(w2) {
					t.Errorf("replayed %q after %q", w2.Body, w.Body)
				}
				if !way.dead.Load() {
					finished++
				}
				way.dead.Store(false)
				drained(t, a, b)
			})
		})
	}
	if finished == 0 {
		t.Error("no budget was enough for the whole operation, so not every verb was tried")
	}
}

// mortalSteps is a mortal store with steps.
type mortalSteps struct {
	*mortal
	*steppedStore
}

func (m mortalSteps) Claim(ctx context.Context, id driver.ID, c driver.Claim) (driver.Record, bool, error) {
	return m.mortal.Claim(ctx, id, c)
}

func (m mortalSteps) Extend(ctx context.Context, id driver.ID, by driver.Owner, x driver.Extension) (bool, error) {
	return m.mortal.Extend(ctx, id, by, x)
}

func (m mortalSteps) Settle(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
	return m.mortal.Settle(ctx, id, by, o)
}

func (m mortalSteps) Load(ctx context.Context, id driver.ID) (driver.Record, error) {
	return m.mortal.Load(ctx, id)
}

func (m mortalSteps) Sweep(ctx context.Context, limit int) (int, error) {
	return m.StepStore.Sweep(ctx, limit)
}

// TestR48_R84_ALateOwnersStepIsRefused: taken over while its step runs, it saves nothing and begins no other step.
func TestR48_R84_ALateOwnersStepIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		cut := &faulty{Store: store, extend: func(context.Context, driver.ID, driver.Owner, driver.Extension) (bool, error) { return false, errDown }}
		var first, second error
		began := false
		a, _ := newGuard(t, mixed{cut, store}, shortLease(semel.Rerun))
		s := serve(a.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, first = semel.Step(r.Context(), "charge", func(context.Context) (string, error) {
				time.Sleep(10 * time.Second)
				return "late", nil
			})
			_, second = semel.Step(r.Context(), "reserve", func(context.Context) (string, error) {
				began = true
				return "", nil
			})
			say("late").ServeHTTP(w, r)
		})), post("k", `{}`))
		time.Sleep(4 * time.Second)
		b, _ := newGuard(t, store, shortLease(semel.Rerun))
		w := answer(b.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, err := semel.Step(r.Context(), "charge", func(context.Context) (string, error) { return "in time", nil })
			if err != nil {
				t.Error(err)
			}
			time.Sleep(8 * time.Second) // the late owner tries to save meanwhile
			say(text).ServeHTTP(w, r)
		})), post("k", `{}`))
		wantAnswer(t, w, 201, "in time", false)
		wantProblem(t, s.answer(), http.StatusConflict, refusal.InProgress)
		wantAnswer(t, answer(a.Wrap(say("again")), post("k", `{}`)), 201, "in time", true)
		if !errors.Is(first, semel.ErrFenced) || second == nil || began {
			t.Errorf("the late owner's steps ended with %v and %v; the second began: %v", first, second, began)
		}
		drained(t, a, b)
	})
}

// mixed is a store whose steps are another's.
type mixed struct {
	driver.Store
	steps driver.StepStore
}

func (m mixed) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	return m.steps.SaveStep(ctx, id, by, name, result)
}

func (m mixed) Steps(ctx context.Context, id driver.ID) (map[string][]byte, error) {
	return m.steps.Steps(ctx, id)
}

// inHandler runs f in a guarded handler, and returns what was answered: 201 unless f fails.
func inHandler(t testing.TB, o semel.Options, store driver.Store, f func(ctx context.Context) error) *httptest.ResponseRecorder {
	t.Helper()
	g, _ := newGuardWith(t, store, o)
	return answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := f(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})), post("k", `{}`))
}

func one(context.Context) (int, error) { return 1, nil }

func TestAStepsNameStandsForOneStep(t *testing.T) {
	t.Parallel()
	inHandler(t, semel.Options{}, nil, func(ctx context.Context) error {
		for _, name := range []string{"", strings.Repeat("n", 256), "a\x00b", "\xff"} {
			if _, err := semel.Step(ctx, name, one); err == nil || !strings.Contains(err.Error(), "name") {
				t.Errorf("name %q: got %v, want an error that says what is wrong with it", name, err)
			}
		}
		if n, err := semel.Step(ctx, "charge", one); n != 1 || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
		ran := false
		_, err := semel.Step(ctx, "charge", func(context.Context) (string, error) {
			ran = true
			return "", nil
		})
		if !errors.Is(err, semel.ErrStepTaken) || ran || !strings.Contains(err.Error(), `"charge"`) {
			t.Errorf("the name used twice: got %v, ran %v", err, ran)
		}
		// A step that has failed may be tried again in the same run, and one within another.
		tries := 0
		for range 2 {
			_, err = semel.Step(ctx, "flaky", func(ctx context.Context) (int, error) {
				if tries++; tries == 1 {
					return 0, io.ErrUnexpectedEOF
				}
				return semel.Step(ctx, "inner", one)
			})
		}
		if err != nil || tries != 2 {
			t.Errorf("after a failure: got %v after %d tries", err, tries)
		}
		var wg sync.WaitGroup
		var errs [8]error
		for i := range errs {
			wg.Go(func() { _, errs[i] = semel.Step(ctx, fmt.Sprint("parallel", i), one) })
		}
		wg.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Errorf("steps at the same time: %v", err)
		}
		return nil
	})
}

func TestStepsAreNoPartOfTransactions(t *testing.T) {
	t.Parallel()
	step := func(ctx context.Context) error {
		_, err := semel.Step(ctx, "charge", one)
		return err
	}
	t.Run("within one", func(t *testing.T) {
		t.Parallel()
		steps := memstore.New()
		s := transactions(t, steps)
		store := struct {
			driver.Transactor
			steppedStoreOnly
		}{s, steppedStoreOnly{steps}}
		g, _ := newGuard(t, store, semel.Policy{OnLost: semel.Rerun})
		w := answer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := step(r.Context()); err != nil {
				t.Errorf("before the transaction: %v", err)
			}
			err := semel.RunTx(r.Context(), store, func(ctx context.Context, _ driver.Tx) error {
				for _, ctx := range []context.Context{ctx, r.Context()} {
					if _, err := semel.Step(ctx, "in", one); !errors.Is(err, semel.ErrStepInTx) {
						t.Errorf("within the transaction: %v", err)
					}
				}
				w.WriteHeader(http.StatusCreated)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if _, err := semel.Step(r.Context(), "after", one); !errors.Is(err, semel.ErrSettled) {
				t.Errorf("after the commit: %v", err)
			}
		})), post("k", `{}`))
		if w.Code != 201 {
			t.Errorf("answered %d %q", w.Code, w.Body)
		}
	})
	t.Run("one-commit mode", func(t *testing.T) {
		t.Parallel()
		steps := memstore.New()
		s := transactions(t, steps)
		store := struct {
			driver.Transactor
			steppedStoreOnly
		}{s, steppedStoreOnly{steps}}
		inHandler(t, semel.Options{Policy: semel.Policy{OneCommit: true}}, store, func(ctx context.Context) error {
			if err := step(ctx); !errors.Is(err, semel.ErrStepInTx) {
				t.Errorf("got %v", err)
			}
			return nil
		})
	})
	t.Run("after the handler's end", func(t *testing.T) {
		t.Parallel()
		var left context.Context
		inHandler(t, semel.Options{}, nil, func(ctx context.Context) error {
			left = ctx
			return nil
		})
		if err := step(left); !errors.Is(err, semel.ErrSettled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("after a rollback", func(t *testing.T) {
		t.Parallel()
		steps := memstore.New()
		s := transactions(t, steps)
		store := struct {
			driver.Transactor
			steppedStoreOnly
		}{s, steppedStoreOnly{steps}}
		w := inHandler(t, semel.Options{Policy: semel.Policy{OnLost: semel.Rerun}}, store, func(ctx context.Context) error {
			semel.RunTx(ctx, store, func(context.Context, driver.Tx) error { return io.ErrUnexpectedEOF }) //nolint:errcheck // it is rolled back
			return step(ctx)
		})
		// The step counts as an effect elsewhere: what was rolled back does not prove that nothing happened.
		if w.Code != 503 || refusalCode(w) != refusal.OutcomePending {
			t.Errorf("answered %d %q", w.Code, w.Body)
		}
	})
}

// steppedStoreOnly adds steps to a store that has the verbs.
type steppedStoreOnly struct{ steps driver.StepStore }

func (s steppedStoreOnly) SaveStep(ctx context.Context, id driver.ID, by driver.Owner, name string, result []byte) (bool, error) {
	return s.steps.SaveStep(ctx, id, by, name, result)
}

func (s steppedStoreOnly) Steps(ctx context.Context, id driver.ID) (map[string][]byte, error) {
	return s.steps.Steps(ctx, id)
}

// gobCodec is another codec than the default.
type gobCodec struct{}

func (gobCodec) Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

func (gobCodec) Unmarshal(data []byte, v any) error {
	return gob.NewDecoder(bytes.NewReader(data)).Decode(v)
}

func TestResultsOfStepsThatCanNotBeKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		o    semel.Options
		step func(ctx context.Context) (any, error)
		want string
		had  any
	}{
		{"not encodable", semel.Options{}, func(ctx context.Context) (any, error) {
			return semel.Step(ctx, "s", func(context.Context) (func(), error) { return func() {}, nil })
		}, `step "s": encode the result: json: unsupported type: func()`, nil},
		{"above the limit", semel.Options{MaxStepResult: 4}, func(ctx context.Context) (any, error) {
			return semel.Step(ctx, "s", func(context.Context) (string, error) { return "abc", nil })
		}, `step "s": save the result: it has 5 bytes, Options.MaxStepResult allows 4`, "abc"},
		{"at the limit", semel.Options{MaxStepResult: 5}, func(ctx context.Context) (any, error) {
			return semel.Step(ctx, "s", func(context.Context) (string, error) { return "abc", nil })
		}, "", "abc"},
		{"another codec", semel.Options{StepCodec: gobCodec{}}, func(ctx context.Context) (any, error) {
			return semel.Step(ctx, "s", func(context.Context) (map[int]string, error) { return map[int]string{1: "a"}, nil })
		}, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inHandler(t, c.o, nil, func(ctx context.Context) error {
				value, err := c.step(ctx)
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if c.had != nil && value != c.had {
					t.Errorf("got the value %v, want %v: it is there, kept or not", value, c.had)
				}
				return nil
			})
		})
	}
	t.Run("saved as something else", func(t *testing.T) {
		t.Parallel()
		store := memstore.New()
		o := semel.Options{Policy: semel.Policy{OnLost: semel.Rerun}}
		inHandler(t, o, store, func(ctx context.Context) error {
			if _, err := semel.Step(ctx, "s", func(context.Context) (string, error) { return "text", nil }); err != nil {
				t.Error(err)
			}
			return io.ErrUnexpectedEOF
		})
		ran := false
		inHandler(t, o, store, func(ctx context.Context) error {
			_, err := semel.Step(ctx, "s", func(context.Context) (int, error) {
				ran = true
				return 1, nil
			})
			if err == nil || !strings.Contains(err.Error(), `step "s": decode the saved result: json`) {
				t.Errorf("got %v", err)
			}
			return err
		})
		if ran {
			t.Error("the step was run again because its result could not be read")
		}
	})
	t.Run("a store without steps", func(t *testing.T) {
		t.Parallel()
		ran := false
		inHandler(t, semel.Options{}, &faulty{Store: memstore.New()}, func(ctx context.Context) error {
			_, err := semel.Step(ctx, "s", func(context.Context) (int, error) {
				ran = true
				return 1, nil
			})
			if !errors.Is(err, errors.ErrUnsupported) || ran {
				t.Errorf("got %v, ran %v", err, ran)
			}
			return nil
		})
	})
}

// TestAStepsSaveIsRepeated: a save whose reply is lost succeeds as its own; one that fails for good is an error, after
// the effect.
func TestAStepsSaveIsRepeated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		reply func(try int, execute func() (bool, error)) (bool, error)
		want  error
	}{
		{"reply lost once", func(try int, execute func() (bool, error)) (bool, error) {
			owned, err := execute()
			if try == 1 {
				return false, errDown
			}
			return owned, err
		}, nil},
		{"request lost twice", func(try int, execute func() (bool, error)) (bool, error) {
			if try <= 2 {
				return false, errDown
			}
			return execute()
		}, nil},
		{"down", func(int, func() (bool, error)) (bool, error) { return false, errDown }, errDown},
		{"full", func(int, func() (bool, error)) (bool, error) { return false, fmt.Errorf("no room: %w", driver.ErrFull) }, driver.ErrFull},
		{"fenced", func(int, func() (bool, error)) (bool, error) { return false, nil }, semel.ErrFenced},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &steppedStore{StepStore: memstore.New()}
				tries, ran := 0, 0
				store.save = func(execute func() (bool, error)) (bool, error) {
					tries++
					return c.reply(tries, execute)
				}
				start := time.Now()
				inHandler(t, semel.Options{}, store, func(ctx context.Context) error {
					_, err := semel.Step(ctx, "s", func(context.Context) (int, error) {
						ran++
						return 1, nil
					})
					if !errors.Is(err, c.want) || c.want == nil && err != nil {
						t.Errorf("got %v, want %v", err, c.want)
					}
					if cause := context.Cause(ctx); (c.want == semel.ErrFenced) != (cause != nil) {
						t.Errorf("the handler's context ended with %v", cause)
					}
					return nil
				})
				if took := time.Since(start); ran != 1 || took > usualSettleWait {
					t.Errorf("ran %d times, took %v", ran, took)
				}
			})
		})
	}
}

// TestField18_StepsThatWereReadAreReadAgainAfterASaveWithoutAReply: the save may have been executed. A second try in
// the same run gets what was saved, though the run has read the steps before.
func TestField18_StepsThatWereReadAreReadAgainAfterASaveWithoutAReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &steppedStore{StepStore: memstore.New()}
		o := semel.Options{Policy: semel.Policy{OnLost: semel.Rerun}}
		inHandler(t, o, store, func(ctx context.Context) error {
			if _, err := semel.Step(ctx, "first", one); err != nil {
				t.Error(err)
			}
			return errDown // so that a second run reads what this one has saved
		})
		inHandler(t, o, store, func(ctx context.Context) error {
			if _, err := semel.Step(ctx, "first", one); err != nil {
				t.Error(err)
			}
			store.save = func(execute func() (bool, error)) (bool, error) {
				execute() //nolint:errcheck // its reply is lost
				return false, errDown
			}
			ran := 0
			charge := func(context.Context) (int, error) {
				ran++
				return ran, nil
			}
			if _, err := semel.Step(ctx, "charge", charge); !errors.Is(err, errDown) {
				t.Errorf("the save that got no reply: %v, want %v", err, errDown)
			}
			store.save = nil
			if n, err := semel.Step(ctx, "charge", charge); n != 1 || err != nil || ran != 1 {
				t.Errorf("tried again: %d, %v after %d calls, want the saved 1 and no second call", n, err, ran)
			}
			return nil
		})
	})
}

// TestField18_StepsAreReadOnceWhereThereAreSome: a run without earlier steps asks the store for none, another one once.
func TestField18_StepsAreReadOnceWhereThereAreSome(t *testing.T) {
	t.Parallel()
	store := &steppedStore{StepStore: memstore.New()}
	reads := 0
	store.read = func(execute func() (map[string][]byte, error)) (map[string][]byte, error) {
		reads++
		return execute()
	}
	for run, want := range []int{0, 1} {
		reads = 0
		inHandler(t, semel.Options{Policy: semel.Policy{OnLost: semel.Rerun}}, store, func(ctx context.Context) error {
			for _, name := range []string{"a", "b", "c"} {
				if _, err := semel.Step(ctx, name, one); err != nil {
					t.Error(err)
				}
			}
			return errDown // so that another run follows
		})
		if reads != want {
			t.Errorf("run %d read the steps %d times, want %d", run+1, reads, want)
		}
	}
}

// TestStepsAreReadBeforeTheyAreRun: what can't be read is not taken for absent.
func TestStepsAreReadBeforeTheyAreRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		reads func(try int) error
		runs  bool
	}{
		{"read at the second try", func(try int) error {
			if try == 1 {
				return errDown
			}
			return nil
		}, false},
		{"never read", func(int) error { return errDown }, false},
		{"unreadable", func(int) error { return driver.ErrUnreadable }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store := &steppedStore{StepStore: memstore.New()}
			o := semel.Options{Policy: semel.Policy{OnLost: semel.Rerun}}
			inHandler(t, o, store, func(ctx context.Context) error {
				if _, err := semel.Step(ctx, "s", one); err != nil {
					t.Error(err)
				}
				return io.ErrUnexpectedEOF
			})
			tries := 0
			store.read = func(execute func() (map[string][]byte, error)) (map[string][]byte, error) {
				tries++
				if err := c.reads(tries); err != nil {
					return nil, err
				}
				return execute()
			}
			inHandler(t, o, store, func(ctx context.Context) error {
				n, err := semel.Step(ctx, "s", func(context.Context) (int, error) { return 2, nil })
				if last := c.reads(tries); !errors.Is(err, last) || last == nil && n != 1 || n == 2 {
					t.Errorf("got %d, %v after %d tries", n, err, tries)
				}
				return nil
			})
		})
	}
}

// brokenCodec panics at its first result, and keeps the rest as they are.
type brokenCodec struct{ broken bool }

func (c *brokenCodec) Marshal(v any) ([]byte, error) { return []byte(v.(string)), nil }

func (c *brokenCodec) Unmarshal(data []byte, v any) error {
	if !c.broken {
		c.broken = true
		panic("broken codec")
	}
	*v.(*string) = string(data)
	return nil
}

// A handler that outlives the panic of a codec can come to the step again.
func TestAStepWhoseCodecPanicsKeepsItsName(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	o := semel.Options{Policy: semel.Policy{OnLost: semel.Rerun}, StepCodec: &brokenCodec{}}
	step := func(ctx context.Context) (string, error) {
		return semel.Step(ctx, "s", func(context.Context) (string, error) { return "text", nil })
	}
	inHandler(t, o, store, func(ctx context.Context) error {
		if _, err := step(ctx); err != nil {
			t.Error(err)
		}
		return io.ErrUnexpectedEOF
	})
	inHandler(t, o, store, func(ctx context.Context) error {
		if _, err := step(ctx); err == nil || !strings.Contains(err.Error(), "broken codec") {
			t.Errorf("got %v, want what the codec has thrown", err)
		}
		if text, err := step(ctx); text != "text" || err != nil {
			t.Errorf("then %q, %v", text, err)
		}
		return nil
	})
}

// A run that ends while its steps are read says why it has ended.
func TestAStepThatIsNotBegunSaysWhyTheRunHasEnded(t *testing.T) {
	t.Parallel()
	store := &steppedStore{StepStore: memstore.New()}
	o := semel.Options{Policy: semel.Policy{OnLost: semel.Rerun}}
	inHandler(t, o, store, func(ctx context.Context) error {
		if _, err := semel.Step(ctx, "s", one); err != nil {
			t.Error(err)
		}
		return io.ErrUnexpectedEOF
	})
	inHandler(t, o, store, func(ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		store.read = func(func() (map[string][]byte, error)) (map[string][]byte, error) {
			cancel(semel.ErrLeaseLost)
			return nil, context.Canceled
		}
		if _, err := semel.Step(ctx, "s", one); !errors.Is(err, semel.ErrLeaseLost) {
			t.Errorf("got %v, want the cause", err)
		}
		return nil
	})
}

func TestR61_SavedStepsAreEncrypted(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	first, second := encryptionKey("2026", 1), encryptionKey("2027", 2)
	attempt := func(k *keyring.Ring, name string) (string, error) {
		var text string
		var err error
		inHandler(t, semel.Options{Encryption: k, Policy: semel.Policy{OnLost: semel.Rerun}}, store, func(ctx context.Context) error {
			text, err = semel.Step(ctx, name, func(context.Context) (string, error) { return "secret of " + name, nil })
			return io.ErrUnexpectedEOF
		})
		return text, err
	}
	if _, err := attempt(nil, "before"); err != nil {
		t.Fatal(err)
	}
	if text, err := attempt(keyringOf(t, first), "before"); !errors.Is(err, driver.ErrUnreadable) || text != "" {
		t.Errorf("saved before there was a keyring: %q, %v", text, err)
	}
	if text, err := attempt(keyringOf(t, first).AllowPlain(), "before"); err != nil || text != "secret of before" {
		t.Errorf("saved before there was a keyring, which is allowed: %q, %v", text, err)
	}
	if _, err := attempt(keyringOf(t, first), "charge"); err != nil {
		t.Fatal(err)
	}
	saved, err := store.Steps(t.Context(), keyed("k"))
	if err != nil || len(saved["charge"]) == 0 || bytes.Contains(saved["charge"], []byte("secret")) {
		t.Fatalf("saved is %q, %v", saved, err)
	}
	if text, err := attempt(keyringOf(t, second, first), "charge"); err != nil || text != "secret of charge" {
		t.Errorf("after a rotation: %q, %v", text, err)
	}
	for name, k := range map[string]*keyring.Ring{"another ring": keyringOf(t, second), "none": nil} {
		if text, err := attempt(k, "charge"); !errors.Is(err, driver.ErrUnreadable) || text != "" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	// Under another name, or of another operation, it is not taken.
	rec := loaded(t, store, "k")
	c := driver.Claim{Fingerprint: rec.Fingerprint, Token: driver.NewToken(), OnLost: semel.Rerun}
	if rec, owned, err := store.Claim(t.Context(), keyed("k"), c); err != nil || !owned {
		t.Fatal(owned, err)
	} else if _, err := store.SaveStep(t.Context(), keyed("k"), rec.Owner(), "refund", saved["charge"]); err != nil {
		t.Fatal(err)
	} else if _, _, err := store.Settle(t.Context(), keyed("k"), rec.Owner(), driver.Outcome{State: driver.Free}); err != nil {
		t.Fatal(err)
	}
	if text, err := attempt(keyringOf(t, first), "refund"); !errors.Is(err, driver.ErrUnreadable) || text != "" {
		t.Errorf("moved to another step: %q, %v", text, err)
	}
}

func TestStepsWithoutAnOperationJustRun(t *testing.T) {
	t.Parallel()
	step := func(ctx context.Context) {
		if n, err := semel.Step(ctx, "s", one); n != 1 || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
	}
	step(t.Context())
	store := memstore.New()
	inHandler(t, semel.Options{Policy: semel.Policy{ObserveOnly: true}}, store, func(ctx context.Context) error {
		step(ctx)
		return nil
	})
	if saved, err := store.Steps(t.Context(), keyed("k")); err != nil || len(saved) != 0 {
		t.Errorf("saved %v, %v by an observed run", saved, err)
	}
}

func TestR84_StepsInDo(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, nil, semel.Policy{OnLost: semel.Rerun})
	var d downstreams
	attempt := func(fail error) (string, error) {
		return semel.Do(t.Context(), g, semel.Key{Scope: "alice", Operation: "pay", Value: "k"}, semel.Bytes("x"), func(ctx context.Context) (string, error) {
			text, err := semel.Step(ctx, "charge", d.call)
			if err != nil {
				return "", err
			}
			return text, fail
		})
	}
	if _, err := attempt(io.ErrUnexpectedEOF); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	text, err := attempt(nil)
	if keys, calls := d.effects(); err != nil || text != "receipt of "+d.calls[0] || keys != 1 || calls != 1 {
		t.Errorf("got %q, %v, with %d calls under %d keys", text, err, calls, keys)
	}
}

// TestAStepsKeyIsThatOfItsOwnOperation: it is not found outside of the step, nor in another operation within it.
func TestAStepsKeyIsThatOfItsOwnOperation(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, nil, semel.Policy{})
	inHandler(t, semel.Options{}, nil, func(ctx context.Context) error {
		op := semel.FromContext(ctx)
		if key, ok := semel.StepKey(ctx); ok {
			t.Errorf("outside of a step: %q", key)
		}
		_, err := semel.Step(ctx, "outer", func(ctx context.Context) (int, error) {
			if key, ok := semel.StepKey(ctx); !ok || key != op.Key("outer") {
				t.Errorf("in the step: %q, %v, want %q", key, ok, op.Key("outer"))
			}
			return semel.Do(ctx, g, semel.Key{Scope: "alice", Operation: "pay", Value: "inner"}, semel.Bytes(""), func(ctx context.Context) (int, error) {
				if key, ok := semel.StepKey(ctx); ok {
					t.Errorf("in another operation: %q", key)
				}
				return 1, nil
			})
		})
		return err
	})
}
