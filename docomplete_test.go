package semel_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// Jobs are stored calls of Do, and how each has run.
type jobs struct {
	mu   sync.Mutex
	runs []string
	g    *semel.Guard
	fn   func(ctx context.Context, attempt int) (string, error)
}

func (j *jobs) do(ctx context.Context, key semel.Key, request []byte) (string, error) {
	return semel.Do(ctx, j.g, key, semel.Bytes(request), func(ctx context.Context) (string, error) {
		attempt := semel.FromContext(ctx).Attempt()
		j.mu.Lock()
		j.runs = append(j.runs, fmt.Sprintf("%s %s %d", key.Value, request, attempt))
		j.mu.Unlock()
		return j.fn(ctx, attempt)
	})
}

func (j *jobs) ran() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.runs)
}

// complete runs a completer of the jobs of a kind.
func (j *jobs) complete(t *testing.T, kind semel.Kind, more semel.CompleterOptions) (stop func()) {
	t.Helper()
	more.Do = map[semel.Kind]func(context.Context, semel.Key, []byte) error{kind: func(ctx context.Context, key semel.Key, request []byte) error {
		_, err := j.do(ctx, key, request)
		return err
	}}
	return finish(t, j.g, nil, more)
}

func sagaKey(value string) semel.Key {
	return semel.Key{Kind: semel.KindSaga, Scope: "orders", Operation: "place order", Value: value}
}

func TestACallOfDoThatHasFailedIsFinishedWithoutItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		g, _ := newFinishing(t, s, finishing())
		j := &jobs{g: g, fn: func(_ context.Context, attempt int) (string, error) {
			if attempt < 3 {
				return "", errors.New("not yet")
			}
			return "paid", nil
		}}
		if _, err := j.do(t.Context(), sagaKey("a"), []byte("pay 7")); err == nil || err.Error() != "not yet" {
			t.Fatalf("the first call: %v", err)
		}
		status, err := g.Look(t.Context(), sagaKey("a"))
		must(t, err)
		if status.Reading != driver.ReadsFree || !status.Owed || status.Error != "not yet" {
			t.Errorf("after the first call: %+v", status)
		}
		stop := j.complete(t, semel.KindSaga, semel.CompleterOptions{})
		time.Sleep(time.Minute)
		stop()
		if want := []string{"a pay 7 1", "a pay 7 2", "a pay 7 3"}; !slices.Equal(j.ran(), want) {
			t.Errorf("ran %q", j.ran())
		}
		got, err := j.do(t.Context(), sagaKey("a"), []byte("pay 7"))
		if got != "paid" || err != nil || len(j.ran()) != 3 {
			t.Errorf("a repeat: %q, %v", got, err)
		}
		status, err = g.Look(t.Context(), sagaKey("a"))
		must(t, err)
		var result string
		if err := status.Result(&result); err != nil || result != "paid" || status.Reading != driver.ReadsDone || status.Attempts != 3 || status.Key.Value != "a" {
			t.Errorf("at last: %+v, %q, %v", status, result, err)
		}
		drained(t, g)
	})
}

func TestACallOfDoWhoseProcessDiedIsTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		late := &mortal{Store: mem}
		dead, _ := newFinishing(t, searchableAs(late, mem), finishing())
		over := make(chan struct{})
		first := &jobs{g: dead, fn: func(context.Context, int) (string, error) { <-over; return "late", nil }}
		told := make(chan error)
		go func() {
			_, err := first.do(context.Background(), sagaKey("a"), []byte("pay 7"))
			told <- err
		}()
		synctest.Wait()
		late.dead.Store(true)

		g, _ := newFinishing(t, mem, finishing())
		j := &jobs{g: g, fn: func(context.Context, int) (string, error) { return "paid", nil }}
		stop := j.complete(t, semel.KindSaga, semel.CompleterOptions{})
		time.Sleep(10 * time.Minute)
		close(over)
		if err := <-told; err == nil {
			t.Error("the dead process has told a result")
		}
		stop()
		drained(t, dead)
		if want := []string{"a pay 7 2"}; !slices.Equal(j.ran(), want) {
			t.Errorf("ran %q", j.ran())
		}
		if got, err := j.do(t.Context(), sagaKey("a"), []byte("pay 7")); got != "paid" || err != nil {
			t.Errorf("a repeat: %q, %v", got, err)
		}
	})
}

// Completers of one store leave to each other what they have no function for: it is not run, not given up, and not told
// as a failure.
func TestACompleterLeavesOtherKindsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		g, seen := newFinishing(t, s, finishing())
		j := &jobs{g: g, fn: func(context.Context, int) (string, error) { return "", errors.New("not yet") }}
		for _, kind := range []semel.Kind{semel.KindSaga, semel.KindDo} {
			key := sagaKey("a")
			key.Kind = kind
			if _, err := j.do(t.Context(), key, []byte("pay 7")); err == nil {
				t.Fatal("it did not fail")
			}
		}
		stopHTTP := finish(t, g, http.NotFoundHandler(), semel.CompleterOptions{MaxAttempts: 1})
		stopMessages := j.complete(t, semel.KindMessage, semel.CompleterOptions{MaxAttempts: 1})
		time.Sleep(time.Hour)
		stopHTTP()
		stopMessages()
		if n := len(j.ran()); n != 2 {
			t.Errorf("ran %q", j.ran())
		}
		if failed := seen.failures(); len(failed) > 0 {
			t.Errorf("failures: %q", failed)
		}
		status, err := g.Look(t.Context(), sagaKey("a"))
		must(t, err)
		if status.Reading != driver.ReadsFree || status.Attempts != 1 {
			t.Errorf("it is %+v", status)
		}
	})
}

func TestACompletersFunctionThatDoesNotCallDoHasFailed(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(j *jobs, ctx context.Context, key semel.Key, request []byte) error{
		"does nothing": func(*jobs, context.Context, semel.Key, []byte) error { return nil },
		"panics":       func(*jobs, context.Context, semel.Key, []byte) error { panic("no") },
		"another key": func(j *jobs, ctx context.Context, _ semel.Key, b []byte) error {
			_, err := j.do(ctx, sagaKey("b"), b)
			return err
		},
		"another context": func(j *jobs, _ context.Context, _ semel.Key, _ []byte) error { return errors.New("no such saga") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, seen := newFinishing(t, memstore.New(), finishing())
				j := &jobs{g: g, fn: func(_ context.Context, attempt int) (string, error) {
					if attempt == 1 {
						return "", errors.New("not yet")
					}
					return "paid", nil
				}}
				if _, err := j.do(t.Context(), sagaKey("a"), []byte("pay 7")); err == nil {
					t.Fatal("it did not fail")
				}
				stop := finish(t, g, nil, semel.CompleterOptions{Do: map[semel.Kind]func(context.Context, semel.Key, []byte) error{
					semel.KindSaga: func(ctx context.Context, key semel.Key, request []byte) error { return f(j, ctx, key, request) },
				}})
				time.Sleep(10 * time.Second)
				stop()
				drained(t, g)
				if len(seen.failures()) == 0 {
					t.Error("no failure was told")
				}
				for _, run := range j.ran() {
					if strings.HasPrefix(run, "a ") && !strings.HasSuffix(run, " 1") {
						t.Errorf("it was run: %q", run)
					}
				}
			})
		})
	}
}

func TestAFunctionOfDoSaysThatItsOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		g, _ := newFinishing(t, s, finishing())
		j := &jobs{g: g, fn: func(ctx context.Context, _ int) (string, error) {
			semel.FromContext(ctx).Unknown()
			return "", errors.New("neither forward nor back")
		}}
		if _, err := j.do(t.Context(), sagaKey("a"), []byte("pay 7")); err == nil || err.Error() != "neither forward nor back" {
			t.Errorf("the first call: %v", err)
		}
		stop := j.complete(t, semel.KindSaga, semel.CompleterOptions{})
		time.Sleep(time.Hour)
		stop()
		if _, err := j.do(t.Context(), sagaKey("a"), []byte("pay 7")); !errors.Is(err, refusal.OutcomeUnknown) || len(j.ran()) != 1 {
			t.Errorf("a repeat: %v, ran %q", err, j.ran())
		}
		status, err := g.Look(t.Context(), sagaKey("a"))
		must(t, err)
		if status.Reading != driver.ReadsUnknown || status.Error != "neither forward nor back" {
			t.Errorf("it is %+v", status)
		}
		j.fn = func(ctx context.Context, _ int) (string, error) { semel.FromContext(ctx).Unknown(); return "no", nil }
		if got, err := j.do(t.Context(), sagaKey("b"), []byte("pay 7")); got != "" || !errors.Is(err, refusal.OutcomeUnknown) {
			t.Errorf("without an error: %q, %v", got, err)
		}
	})
}

// A silentSteps is a store that does not reply when it is asked for steps, or panics.
type silentSteps struct {
	*memstore.Store
	panics bool
}

func (s silentSteps) Steps(ctx context.Context, _ driver.ID) (map[string][]byte, error) {
	if s.panics {
		panic("no steps today")
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestLookEndsWhateverTheStoreDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, panics := range []bool{false, true} {
			s := silentSteps{memstore.New(), panics}
			g, _ := newFinishing(t, s, finishing())
			j := &jobs{g: g, fn: func(ctx context.Context, _ int) (string, error) {
				return semel.Step(ctx, "one", func(context.Context) (string, error) { return "done", nil })
			}}
			_, err := j.do(t.Context(), sagaKey("a"), []byte("x"))
			must(t, err)
			if _, err := g.Look(t.Context(), sagaKey("a")); err == nil || !strings.Contains(err.Error(), "read its steps") {
				t.Errorf("panics %t: %v", panics, err)
			}
		}
	})
}

func TestLookTellsWhatIsKnownOfACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		g, _ := newFinishing(t, s, finishing())
		absent, err := g.Look(t.Context(), sagaKey("a"))
		must(t, err)
		if absent.Reading != driver.ReadsAbsent || !errors.Is(absent.Result(new(string)), semel.ErrNoResult) {
			t.Errorf("before: %+v", absent)
		}
		if _, err := g.Look(t.Context(), semel.Key{Value: "a"}); !errors.Is(err, refusal.ScopeInvalid) {
			t.Errorf("without a scope: %v", err)
		}
		if _, err := g.Look(t.Context(), sagaKey("")); !errors.Is(err, refusal.KeyInvalid) {
			t.Errorf("without a key: %v", err)
		}
		j := &jobs{g: g}
		j.fn = func(ctx context.Context, attempt int) (string, error) {
			had, err := semel.SavedSteps(ctx)
			must(t, err)
			if want := []string{"one", "two"}[:2*(attempt-1)]; !slices.Equal(had, want) {
				t.Errorf("run %d finds %q", attempt, had)
			}
			for _, name := range []string{"one", "two"} {
				if _, err := semel.Step(ctx, name, func(context.Context) (int, error) { return 1, nil }); err != nil {
					t.Errorf("step: %v", err)
				}
			}
			if attempt == 1 {
				return "", errors.New("not yet")
			}
			return "", semel.Final(&codedError{"limit", "above the limit"})
		}
		for range 2 {
			if _, err := j.do(t.Context(), sagaKey("a"), []byte("x")); err == nil {
				t.Fatal("it did not fail")
			}
		}
		status, err := g.Look(t.Context(), sagaKey("a"))
		must(t, err)
		var replayed *semel.ReplayedError
		if err := status.Result(new(string)); !errors.As(err, &replayed) || replayed.Code() != "limit" || err.Error() != "above the limit" {
			t.Errorf("the result is %v", err)
		}
		if !slices.Equal(status.Steps, []string{"one", "two"}) || status.Attempts != 2 || status.Created.IsZero() || status.Ended.IsZero() {
			t.Errorf("it is %+v", status)
		}
		var all []string
		must(t, g.LookAll(t.Context(), semel.KindSaga, "orders", func(s *semel.CallStatus) bool {
			all = append(all, s.Key.Value+" "+s.Key.Operation)
			return true
		}))
		if !slices.Equal(all, []string{"a place order"}) {
			t.Errorf("all of the scope: %q", all)
		}
		must(t, g.LookAll(t.Context(), semel.KindDo, "orders", func(s *semel.CallStatus) bool {
			t.Errorf("another kind: %+v", s)
			return true
		}))
		if had, err := semel.SavedSteps(t.Context()); had != nil || err != nil {
			t.Errorf("outside of operations: %q, %v", had, err)
		}
	})
}

func TestNewCompleterRefusesFunctionsThatItCanNotCall(t *testing.T) {
	t.Parallel()
	g, _ := newFinishing(t, memstore.New(), finishing())
	fn := func(context.Context, semel.Key, []byte) error { return nil }
	for name, o := range map[string]semel.CompleterOptions{
		"there is nothing to finish":            {},
		`Do["saga"] is nil`:                     {Do: map[semel.Kind]func(context.Context, semel.Key, []byte) error{semel.KindSaga: nil}},
		`no call of Do is of that kind`:         {Do: map[semel.Kind]func(context.Context, semel.Key, []byte) error{semel.KindHTTP: fn}},
		`Do[""]: no call of Do is of that kind`: {Do: map[semel.Kind]func(context.Context, semel.Key, []byte) error{"": fn}},
	} {
		if _, err := g.Completer(nil, o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want %q, got %v", name, err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Whoever ends a completer can end the process: nothing of it runs any more.
func TestACompleterOfCallsWaitsForItsRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newFinishing(t, memstore.New(), finishing())
		under, over := make(chan struct{}), make(chan struct{})
		j := &jobs{g: g, fn: func(_ context.Context, attempt int) (string, error) {
			if attempt == 1 {
				return "", errors.New("not yet")
			}
			close(under)
			<-over
			return "paid", nil
		}}
		if _, err := j.do(t.Context(), sagaKey("a"), []byte("pay 7")); err == nil {
			t.Fatal("it did not fail")
		}
		stop := j.complete(t, semel.KindSaga, semel.CompleterOptions{})
		<-under
		ended := make(chan struct{})
		go func() { stop(); close(ended) }()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("it has not waited")
		default:
		}
		close(over)
		<-ended
		if status, err := g.Look(t.Context(), sagaKey("a")); err != nil || status.Reading != driver.ReadsDone {
			t.Errorf("when it had ended: %+v, %v", status, err)
		}
		drained(t, g)
	})
}

// A versioned request says more in its stored form than what is compared.
type versioned struct{ version, request string }

func (v versioned) FingerprintBytes() ([]byte, error) { return []byte(v.request), nil }
func (v versioned) StoredRequest() []byte             { return []byte(v.version + " " + v.request) }

func TestALaterRunGetsTheStoredFormWithWhichTheOperationBegan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newFinishing(t, memstore.New(), finishing())
		do := func(version string, attempts int) (string, error) {
			return semel.Do(t.Context(), g, sagaKey("a"), versioned{version, "pay 7"}, func(ctx context.Context) (string, error) {
				b, err := semel.StoredRequest(ctx)
				if semel.FromContext(ctx).Attempt() < attempts {
					err = errors.Join(err, errors.New("not yet"))
				}
				return string(b), err
			})
		}
		if _, err := do("v1", 2); err == nil {
			t.Error("the first call did not fail")
		}
		if got, err := do("v2", 2); got != "v1 pay 7" || err != nil {
			t.Errorf("the second run got %q, %v", got, err)
		}
		if b, err := semel.StoredRequest(t.Context()); b != nil || err != nil {
			t.Errorf("outside: %q, %v", b, err)
		}
		drained(t, g)
	})
}
