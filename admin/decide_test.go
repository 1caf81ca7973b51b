package admin_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/admin"
	"github.com/semelhq/semel/driver"
)

// What each decision makes of each situation. A refusal leaves the record as it was, and stands in the audit trail.
func TestR87_WhatEachDecisionMakesOfEachSituation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		found, action string
		by            admin.Decision
		want          error
		state         driver.State
	}{
		{"absent", "complete", decision, admin.ErrNotFound, driver.Absent},
		{"absent", "release", decision, admin.ErrNotFound, driver.Absent},
		{"absent", "forget", decision, admin.ErrNotFound, driver.Absent},
		{"running", "complete", decision, admin.ErrAtWork, driver.Running},
		{"running", "release", decision, admin.ErrAtWork, driver.Running},
		{"running", "forget", decision, admin.ErrAtWork, driver.Running},
		{"running", "complete", forced, nil, driver.Done},
		{"running", "release", forced, nil, driver.Free},
		{"running", "forget", forced, nil, driver.Absent},
		{"running, begun", "complete", decision, admin.ErrAtWork, driver.Running},
		{"running, begun", "complete", forced, nil, driver.Done},
		{"running, begun", "release", forced, admin.ErrBegun, driver.Running},
		{"running, begun", "forget", forced, nil, driver.Absent},
		{"lapsed under hold", "complete", decision, nil, driver.Done},
		{"lapsed under hold", "release", decision, nil, driver.Free},
		{"lapsed under hold", "forget", decision, nil, driver.Absent},
		{"lapsed under rerun", "complete", decision, nil, driver.Done},
		{"lapsed under rerun", "release", decision, nil, driver.Free},
		{"lapsed under rerun", "forget", decision, nil, driver.Absent},
		{"lapsed, begun", "complete", forced, admin.ErrEnded, driver.Running},
		{"lapsed, begun", "release", forced, admin.ErrEnded, driver.Running},
		{"lapsed, begun", "forget", decision, nil, driver.Absent},
		{"unknown", "complete", decision, nil, driver.Done},
		{"unknown", "release", decision, nil, driver.Free},
		{"unknown", "forget", decision, nil, driver.Absent},
		{"seized", "complete", decision, nil, driver.Done},
		{"seized", "release", decision, nil, driver.Free},
		{"seized", "forget", decision, nil, driver.Absent},
		{"free", "complete", forced, admin.ErrReleased, driver.Free},
		{"free", "release", decision, nil, driver.Free},
		{"free", "forget", decision, nil, driver.Absent},
		{"free, maybe", "complete", decision, nil, driver.Done},
		{"free, maybe", "release", decision, nil, driver.Free},
		{"free, maybe", "forget", decision, nil, driver.Absent},
		{"done", "complete", forced, admin.ErrEnded, driver.Done},
		{"done", "release", forced, admin.ErrEnded, driver.Done},
		{"done", "forget", decision, nil, driver.Absent},
		{"expired", "complete", decision, admin.ErrNotFound, driver.Done},
		{"expired", "release", decision, admin.ErrNotFound, driver.Done},
		{"expired", "forget", decision, nil, driver.Absent},
	} {
		name := c.action + " what is " + c.found
		if c.by.Force {
			name += ", forced"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				desk, s := newDesk(t)
				found(c.found).prepare(t, s)
				before := s.record(t)
				change, err := actions[c.action](t.Context(), desk, c.by)
				if !errors.Is(err, c.want) {
					t.Fatalf("error %v, want %v", err, c.want)
				}
				after, err := s.Store.Load(t.Context(), operation)
				if err != nil {
					t.Fatal(err)
				}
				if after.State != c.state || after.Maybe {
					t.Errorf("it is %v (maybe %v), want %v", after.State, after.Maybe, c.state)
				}
				results := s.results()
				switch {
				case c.want == nil:
					if change.After.State != c.state || change.Before.State == driver.Absent {
						t.Errorf("told of a change from %v to %v, want to %v", change.Before.State, change.After.State, c.state)
					}
					if !slices.Equal(results, []string{"asked", "done"}) {
						t.Errorf("audited as %q", results)
					}
				default:
					if got := s.record(t); got != before {
						t.Errorf("a refused decision has changed the record from\n%s to\n%s", before, got)
					}
					refused := len(results) == 2 && results[0] == "asked" && strings.HasPrefix(results[1], "refused: ")
					if c.found == "absent" && len(results) > 0 || c.found != "absent" && !refused {
						t.Errorf("audited as %q", results)
					}
				}
			})
		})
	}
}

// A payment is lost: its handler dies. What repeats get afterwards is what the operator decided.
func TestR87_RepeatsGetWhatTheOperatorDecided(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		action string
		status int
		body   string
		runs   int
	}{
		{"complete", 201, "paid", 1},
		{"release", 200, "run 2", 2},
		{"forget", 200, "run 2", 2},
	} {
		t.Run(c.action, func(t *testing.T) {
			t.Parallel()
			desk, s := newDesk(t)
			guard, err := semel.New(s, semel.ScopeFunc(func(*http.Request) (string, error) { return "acme", nil }), semel.Hold, semel.Options{})
			if err != nil {
				t.Fatal(err)
			}
			runs := 0
			h := guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if runs++; runs == 1 {
					panic(http.ErrAbortHandler)
				}
				w.Write([]byte("run 2"))
			}))
			ask := func() (w *httptest.ResponseRecorder) {
				defer func() { recover() }() //nolint:errcheck // how the lost run ended
				w = httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{}`))
				r.Header.Set("Idempotency-Key", "k1")
				h.ServeHTTP(w, r)
				return w
			}
			ask()
			if w := ask(); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "OUTCOME_UNKNOWN") {
				t.Fatalf("before the decision: %d %s", w.Code, w.Body)
			}
			if _, err := actions[c.action](t.Context(), desk, decision); err != nil {
				t.Fatal(err)
			}
			w := ask()
			if w.Code != c.status || w.Body.String() != c.body || runs != c.runs {
				t.Errorf("after it: %d %q after %d runs, want %d %q after %d", w.Code, w.Body, runs, c.status, c.body, c.runs)
			}
		})
	}
}

func TestR87_CompleteWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		desk, s := newDesk(t)
		found("unknown").prepare(t, s)
		change, err := desk.Complete(t.Context(), operation, nil, decision)
		if err != nil || change.After.State != driver.Done || change.After.Response != nil {
			t.Errorf("it is %v with answer %v, %v", change.After.State, change.After.Response, err)
		}
	})
}

// Nothing is changed before the trail says that it was asked for, and by whom.
func TestR87_AuditedBeforeTheChange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		action, found string
		want          []string
	}{
		{"complete", "lapsed under hold", []string{"load", "audit asked", "seize", "settle", "audit done"}},
		{"release", "lapsed under hold", []string{"load", "audit asked", "seize", "settle", "audit done"}},
		{"release", "free", []string{"load", "audit asked", "audit done"}},
		{"forget", "lapsed under hold", []string{"load", "audit asked", "seize", "forget", "load", "audit done"}},
		{"forget", "seized", []string{"load", "audit asked", "seize", "forget", "load", "audit done"}},
		{"forget", "free, maybe", []string{"load", "audit asked", "forget", "load", "audit done"}},
		{"forget", "done", []string{"load", "audit asked", "forget", "load", "audit done"}},
	} {
		t.Run(c.action+" what is "+c.found, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				desk, s := newDesk(t)
				found(c.found).prepare(t, s)
				if _, err := actions[c.action](t.Context(), desk, decision); err != nil {
					t.Fatal(err)
				}
				if got := s.log(); !slices.Equal(got, c.want) {
					t.Errorf("the store was asked to %q, want %q", got, c.want)
				}
				for _, e := range s.trail {
					if e.ID != operation || e.Operation != "POST /payments" || e.Actor != "ann" || e.Action != c.action || e.Reason != "the bank says so" {
						t.Errorf("entry %+v", e)
					}
				}
			})
		})
	}
}

func TestField22_WhatIsNotConfirmedIsNeitherChangedNorAudited(t *testing.T) {
	t.Parallel()
	for action := range actions {
		synctest.Test(t, func(t *testing.T) {
			desk, s := newDesk(t)
			found("lapsed under hold").prepare(t, s)
			before, no := s.record(t), errors.New("no")
			by := decision
			by.Confirm = func(_ context.Context, rec driver.Record) error {
				if got := rec.Reads(rec.OnLost); got != driver.ReadsUnknown {
					t.Errorf("%s is asked about one that reads %v", action, got)
				}
				return no
			}
			if _, err := actions[action](t.Context(), desk, by); err != no {
				t.Errorf("%s: %v", action, err)
			}
			if got := s.record(t); got != before || len(s.trail) > 0 {
				t.Errorf("%s, not confirmed: audited %v, the record is %s", action, s.trail, got)
			}
			by.Confirm = func(context.Context, driver.Record) error { return nil }
			if _, err := actions[action](t.Context(), desk, by); err != nil {
				t.Errorf("%s, confirmed: %v", action, err)
			}
		})
	}
}

// The question may stand for minutes. What is decided is about the operation that was shown, and about no later one.
func TestField22_WhatChangesDuringTheQuestionIsNotDecidedAbout(t *testing.T) {
	t.Parallel()
	for action := range actions {
		for name, change := range map[string]func(*testing.T, *store, driver.Owner){
			"its late owner settles it": func(t *testing.T, s *store, by driver.Owner) {
				if _, owned, err := s.Store.Settle(t.Context(), operation, by, driver.Outcome{State: driver.Done, Response: answer}); err != nil || !owned {
					t.Fatal(owned, err)
				}
			},
			"its late owner comes back": func(t *testing.T, s *store, by driver.Owner) {
				if owned, err := s.Store.Extend(t.Context(), operation, by, driver.Extension{Lease: lease}); err != nil || !owned {
					t.Fatal(owned, err)
				}
			},
			"somebody else decides": func(t *testing.T, s *store, _ driver.Owner) {
				if _, err := s.Store.Seize(t.Context(), operation, driver.NewToken()); err != nil {
					t.Fatal(err)
				}
			},
			"it is forgotten": func(t *testing.T, s *store, _ driver.Owner) {
				rec, err := s.Store.Seize(t.Context(), operation, driver.NewToken())
				if err != nil {
					t.Fatal(err)
				}
				if forgotten, err := s.Store.Forget(t.Context(), operation, rec.Owner()); err != nil || !forgotten {
					t.Fatal(forgotten, err)
				}
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				desk, s := newDesk(t)
				owner := s.claim(t, semel.Hold)
				time.Sleep(2 * lease)
				var changed string
				by := decision
				by.Force = true // which answers for a run, not for another state than the one shown
				by.Confirm = func(context.Context, driver.Record) error {
					change(t, s, owner)
					changed = s.record(t)
					return nil
				}
				if _, err := actions[action](t.Context(), desk, by); !errors.Is(err, admin.ErrChanged) {
					t.Errorf("%s, and %s: %v", action, name, err)
				}
				if got := s.record(t); got != changed || len(s.trail) > 0 {
					t.Errorf("%s, and %s: audited %v, the record is %s, want %s", action, name, s.trail, got, changed)
				}
			})
		}
	}
}

func TestR87_WithoutATrailNothingIsChanged(t *testing.T) {
	t.Parallel()
	for action := range actions {
		synctest.Test(t, func(t *testing.T) {
			desk, s := newDesk(t)
			found("lapsed under hold").prepare(t, s)
			before := s.record(t)
			full := errors.New("disk full")
			s.before = func(verb string) error {
				if verb == "audit asked" {
					return full
				}
				return nil
			}
			_, err := actions[action](t.Context(), desk, decision)
			if !errors.Is(err, full) || !strings.Contains(err.Error(), "nothing was changed") {
				t.Errorf("%s: %v", action, err)
			}
			if got := s.record(t); got != before {
				t.Errorf("%s without a trail has changed the record to %s", action, got)
			}
		})
	}
}

func TestR87_AChangeWhoseLastEntryFailedIsToldAsMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		desk, s := newDesk(t)
		found("unknown").prepare(t, s)
		s.before = func(verb string) error {
			if verb == "audit done" {
				return errors.New("disk full")
			}
			return nil
		}
		change, err := desk.Release(t.Context(), operation, decision)
		if err == nil || !strings.Contains(err.Error(), "the change is made") || change.After.State != driver.Free {
			t.Errorf("told %v, with a change to %v", err, change.After.State)
		}
	})
}

// The reply of each verb is lost once; the decision is made once all the same.
func TestR87_LostRepliesOfTheStoreAreAskedAgain(t *testing.T) {
	t.Parallel()
	for action := range actions {
		for _, verb := range []string{"load", "audit asked", "seize", "settle", "forget", "audit done"} {
			synctest.Test(t, func(t *testing.T) {
				desk, s := newDesk(t)
				found("lapsed under hold").prepare(t, s)
				rec, err := s.Store.Load(t.Context(), operation)
				if err != nil {
					t.Fatal(err)
				}
				fence := rec.Fence
				lost := false
				s.after = func(v string) error {
					if v == verb && !lost {
						lost = true
						return errors.New("reply lost")
					}
					return nil
				}
				change, err := actions[action](t.Context(), desk, decision)
				want := map[string]driver.State{"complete": driver.Done, "release": driver.Free, "forget": driver.Absent}[action]
				if err != nil || change.After.State != want || s.state(t) != want {
					t.Errorf("%s, the reply of %s lost: told of %v, %v; it is %v", action, verb, change.After.State, err, s.state(t))
				}
				if action != "forget" && change.After.Fence != fence+1 {
					t.Errorf("%s, the reply of %s lost: the fence went from %d to %d", action, verb, fence, change.After.Fence)
				}
			})
		}
	}
}

// The operator's process dies, or the store does, after the old run was fenced. Deciding again works.
func TestR87_InterruptedInTheMiddleItIsDecidedAgain(t *testing.T) {
	t.Parallel()
	for action, verb := range map[string]string{"complete": "settle", "release": "settle", "forget": "forget"} {
		synctest.Test(t, func(t *testing.T) {
			desk, s := newDesk(t)
			found("lapsed under hold").prepare(t, s)
			down := errors.New("store down")
			s.before = func(v string) error {
				if v == verb {
					return down
				}
				return nil
			}
			if _, err := actions[action](t.Context(), desk, decision); !errors.Is(err, down) {
				t.Fatalf("%s: %v", action, err)
			}
			if got := s.state(t); got != driver.Unknown {
				t.Errorf("%s, interrupted: it is %v, want unknown", action, got)
			}
			if results := s.results(); len(results) != 2 || !strings.HasPrefix(results[1], "failed: ") {
				t.Errorf("%s, interrupted: audited as %q", action, results)
			}
			s.before = nil
			if _, err := actions[action](t.Context(), desk, decision); err != nil {
				t.Errorf("%s, again: %v", action, err)
			}
		})
	}
}

// A run that seemed lost renews its lease, or a new one begins, after the operator looked: it may be at work, so it is
// held instead of settled.
func TestR87_ARunThatComesBackBetweenLookAndSeizureIsHeld(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		first func(testing.TB, *store) driver.Owner
		comes func(testing.TB, *store, driver.Owner)
	}{
		{
			"renewed", func(t testing.TB, s *store) driver.Owner { return s.claim(t, semel.Hold) },
			func(t testing.TB, s *store, by driver.Owner) {
				if owned, err := s.Extend(t.Context(), operation, by, driver.Extension{Lease: lease}); err != nil || !owned {
					t.Fatalf("extend: owned %v, %v", owned, err)
				}
			},
		},
		{
			"taken over", func(t testing.TB, s *store) driver.Owner { return s.claim(t, semel.Rerun) },
			func(t testing.TB, s *store, _ driver.Owner) { s.claim(t, semel.Rerun) },
		},
	} {
		for action := range actions {
			t.Run(c.name+", "+action, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					desk, s := newDesk(t)
					owner := c.first(t, s)
					time.Sleep(lease)
					s.before = func(verb string) error {
						if verb == "audit asked" {
							c.comes(t, s, owner)
						}
						return nil
					}
					if _, err := actions[action](t.Context(), desk, decision); !errors.Is(err, admin.ErrChanged) {
						t.Errorf("error %v, want %v", err, admin.ErrChanged)
					}
					if got := s.state(t); got != driver.Unknown {
						t.Errorf("it is %v, want unknown", got)
					}
				})
			})
		}
	}
}

// The lost run settles after the operator looked. Its outcome stands.
func TestR87_ALateOutcomeStands(t *testing.T) {
	t.Parallel()
	for action := range actions {
		synctest.Test(t, func(t *testing.T) {
			desk, s := newDesk(t)
			owner := s.claim(t, semel.Hold)
			time.Sleep(lease)
			s.before = func(verb string) error {
				if verb == "audit asked" {
					s.end(t, owner, driver.Done)
				}
				return nil
			}
			if _, err := actions[action](t.Context(), desk, decision); !errors.Is(err, admin.ErrChanged) {
				t.Errorf("%s: error %v, want %v", action, err, admin.ErrChanged)
			}
			if got := s.state(t); got != driver.Done {
				t.Errorf("%s: it is %v, want done", action, got)
			}
		})
	}
}

// The first byte of a streamed answer leaves while the operator decides by force.
func TestR38_WhatBeginsWhileItIsDecidedAboutIsNotReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		desk, s := newDesk(t)
		owner := s.claim(t, semel.Hold)
		s.before = func(verb string) error {
			if verb == "audit asked" {
				s.begin(t, owner)
			}
			return nil
		}
		if _, err := desk.Release(t.Context(), operation, forced); !errors.Is(err, admin.ErrBegun) {
			t.Errorf("error %v, want %v", err, admin.ErrBegun)
		}
		if got := s.state(t); got != driver.Unknown {
			t.Errorf("it is %v, want unknown", got)
		}
	})
}

// Another operator takes the operation after the seizure, or a client begins it anew before it is forgotten.
func TestR87_WhatSomebodyElseChangedIsRefused(t *testing.T) {
	t.Parallel()
	seize := func(t testing.TB, s *store) {
		if _, err := s.Store.Seize(t.Context(), operation, driver.NewToken()); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		action, found, before string
		change                func(testing.TB, *store)
		state                 driver.State
	}{
		{"complete", "unknown", "settle", seize, driver.Unknown},
		{"release", "unknown", "settle", seize, driver.Unknown},
		{"forget", "unknown", "forget", seize, driver.Unknown},
		{"forget", "free", "forget", func(t testing.TB, s *store) { s.claim(t, semel.Hold) }, driver.Running},
	} {
		synctest.Test(t, func(t *testing.T) {
			desk, s := newDesk(t)
			found(c.found).prepare(t, s)
			s.before = func(verb string) error {
				if verb == c.before {
					c.change(t, s)
				}
				return nil
			}
			if _, err := actions[c.action](t.Context(), desk, decision); !errors.Is(err, admin.ErrChanged) {
				t.Errorf("%s what is %s: error %v, want %v", c.action, c.found, err, admin.ErrChanged)
			}
			if got := s.state(t); got != c.state {
				t.Errorf("%s what is %s: it is %v, want %v", c.action, c.found, got, c.state)
			}
		})
	}
}

// An answer for which there is no room is not tried again and again, and the operation stays undecided.
func TestAnAnswerForWhichThereIsNoRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		desk, s := newDesk(t)
		found("unknown").prepare(t, s)
		s.before = func(verb string) error {
			if verb == "settle" {
				return driver.ErrFull
			}
			return nil
		}
		if _, err := desk.Complete(t.Context(), operation, answer, decision); !errors.Is(err, driver.ErrFull) {
			t.Errorf("error %v", err)
		}
		if got := s.log(); !slices.Equal(got[:4], []string{"load", "audit asked", "seize", "settle"}) || !strings.HasPrefix(got[4], "audit failed") {
			t.Errorf("the store was asked to %q", got)
		}
		if got := s.state(t); got != driver.Unknown {
			t.Errorf("it is %v, want unknown", got)
		}
	})
}

// After the seizure the old run changes nothing, even if its handler comes to an end.
func TestR48_AForcedDecisionFencesTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		desk, s := newDesk(t)
		owner := s.claim(t, semel.Hold)
		if _, err := desk.Complete(t.Context(), operation, answer, forced); err != nil {
			t.Fatal(err)
		}
		rec, owned, err := s.Store.Settle(t.Context(), operation, owner, driver.Outcome{State: driver.Done, Response: &driver.Response{Status: 500}})
		if owned || err != nil || rec.Response.Status != 201 {
			t.Errorf("the old run's settle: owned %v, %v; the answer's status is %d", owned, err, rec.Response.Status)
		}
	})
}

// An operator who gives up after the change leaves a complete trail.
func TestR87_TheTrailIsFinishedWithoutTheOperator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		desk, s := newDesk(t)
		found("unknown").prepare(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		s.after = func(verb string) error {
			if verb == "settle" {
				cancel()
			}
			return nil
		}
		if _, err := desk.Release(ctx, operation, decision); err != nil {
			t.Fatal(err)
		}
		if got := s.results(); !slices.Equal(got, []string{"asked", "done"}) {
			t.Errorf("audited as %q", got)
		}
	})
}

// Two operators decide at once. One of them wins, never both.
func TestR87_OfTwoOperatorsOneDecides(t *testing.T) {
	t.Parallel()
	for range 50 {
		desk, s := newDesk(t)
		found("unknown").prepare(t, s)
		var wg sync.WaitGroup
		start := make(chan struct{})
		errs := map[string]error{}
		var mu sync.Mutex
		for _, action := range []string{"complete", "release"} {
			wg.Go(func() {
				<-start
				_, err := actions[action](context.Background(), desk, decision)
				mu.Lock()
				defer mu.Unlock()
				errs[action] = err
			})
		}
		close(start)
		wg.Wait()
		state := s.state(t)
		switch {
		case errs["complete"] == nil && state != driver.Done:
			t.Errorf("completed, but it is %v", state) // a done one can't be released
		case errs["complete"] != nil && errs["release"] == nil && state != driver.Free:
			t.Errorf("released, but it is %v", state)
		case errs["complete"] != nil && errs["release"] != nil:
			t.Errorf("both were refused: %v, %v; it is %v", errs["complete"], errs["release"], state)
		case errs["complete"] == nil && errs["release"] == nil:
			t.Errorf("both decided; it is %v", state)
		}
	}
}

func TestR87_ADecisionNeedsAnAuthorAndAReason(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1001)
	for _, by := range []admin.Decision{
		{},
		{Actor: "ann"},
		{Reason: "because"},
		{Actor: " ", Reason: "because"},
		{Actor: "ann", Reason: "\t"},
		{Actor: "ann", Reason: "two\nlines"},
		{Actor: "ann\x00", Reason: "because"},
		{Actor: "ann", Reason: "\xff"},
		{Actor: long, Reason: "because"},
		{Actor: "ann", Reason: long},
	} {
		for action := range actions {
			synctest.Test(t, func(t *testing.T) {
				desk, s := newDesk(t)
				found("unknown").prepare(t, s)
				if _, err := actions[action](t.Context(), desk, by); !errors.Is(err, admin.ErrInvalid) {
					t.Errorf("%s by %+v: %v", action, by, err)
				}
				if asked := s.log(); len(asked) > 0 {
					t.Errorf("%s by %+v: the store was asked to %q", action, by, asked)
				}
			})
		}
	}
}

func TestAnAnswerMustBeOneThatCanBeReplayed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer driver.Response
		says   string
	}{
		{driver.Response{}, "status is 0"},
		{driver.Response{Status: 101}, "status is 101"},
		{driver.Response{Status: 600}, "status is 600"},
		{driver.Response{Status: 204, Body: []byte("x")}, "no body"},
		{driver.Response{Status: 200, Codec: "gzip"}, "codec"},
		{driver.Response{Status: 200, Trailer: http.Header{"X": {"y"}}}, "trailers"},
		{driver.Response{Status: 200, Header: http.Header{"X Y": {"z"}}}, "no valid name"},
		{driver.Response{Status: 200, Header: http.Header{"": {"z"}}}, "no valid name"},
		{driver.Response{Status: 200, Header: http.Header{"Ä": {"z"}}}, "no valid name"},
		{driver.Response{Status: 200, Header: http.Header{"X-Y": {"a\r\nB: c"}}}, "control characters"},
		{driver.Response{Status: 200, Header: http.Header{"Set-Cookie": {"a=b"}}}, "never replayed"},
		{driver.Response{Status: 200, Header: http.Header{"set-cookie": {"a=b"}}}, "never replayed"},
		{driver.Response{Status: 200, Header: http.Header{"Transfer-Encoding": {"chunked"}}}, "never replayed"},
		{driver.Response{Status: 200, Header: http.Header{"Proxy-Authenticate": {"x"}}}, "never replayed"},
	} {
		synctest.Test(t, func(t *testing.T) {
			desk, s := newDesk(t)
			found("unknown").prepare(t, s)
			_, err := desk.Complete(t.Context(), operation, &c.answer, decision)
			if !errors.Is(err, admin.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v: %v, want %q", c.answer, err, c.says)
			}
			if asked := s.log(); len(asked) > 0 {
				t.Errorf("%+v: the store was asked to %q", c.answer, asked)
			}
		})
	}
}
