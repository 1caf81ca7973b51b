package semel_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/refusal"
)

var errDeclined = errors.New("declined")

// answering is the function of a transaction that has an effect, answers with a status and a text, and returns err.
func answering(status int, err error) func(http.ResponseWriter, *http.Request, driver.Tx) error {
	return func(w http.ResponseWriter, _ *http.Request, tx driver.Tx) error {
		effect(tx, "paid")
		w.WriteHeader(status)
		fmt.Fprint(w, "in ", status)
		return err
	}
}

// then is what a handler does after its transaction: it answers with a status and a text, whatever became of that.
func then(status int) func(http.ResponseWriter, *http.Request, error) {
	return func(w http.ResponseWriter, _ *http.Request, _ error) {
		w.WriteHeader(status)
		fmt.Fprint(w, "after ", status)
	}
}

// What a repeat gets.
const (
	runs    = "runs"
	replays = "replay"
)

// A txCase is a handler that works in a transaction, and what is to come of it.
type txCase struct {
	name   string
	modes  string // "" means all
	change func(*semel.Policy)
	store  func(*transactor)
	in     func(http.ResponseWriter, *http.Request, driver.Tx) error
	after  func(http.ResponseWriter, *http.Request, error)

	returns error // what RunTx's error wraps; nil means that it returns none
	status  int
	body    string // of the handler's answer, or the code of a problem
	effects int
	repeat  string // runs, replays, or the code of a problem
}

func (c *txCase) run(t *testing.T, m txMode) {
	s := newTransactor(t)
	if c.store != nil {
		c.store(s)
	}
	p := m.policy
	if c.change != nil {
		c.change(&p)
	}
	g, seen := newGuard(t, s, p)
	var returned []error
	h := g.Wrap(s.working(c.in, func(w http.ResponseWriter, r *http.Request, err error) {
		returned = append(returned, err)
		if c.after != nil {
			c.after(w, r, err)
		}
	}))
	first := answer(h, post("k", `{}`))
	if len(returned) != 1 || !errors.Is(returned[0], c.returns) || (c.returns == nil) != (returned[0] == nil) {
		t.Errorf("RunTx returned %v, want %v", returned, c.returns)
	}
	if code := refusalCode(first); code != "" {
		wantProblem(t, first, c.status, refusal.Code(c.body))
		if strings.Contains(first.Body.String(), "paid") || len(first.Header()["Location"]) > 0 {
			t.Errorf("a part of the answer has left: %v %s", first.Header(), first.Body)
		}
	} else {
		wantAnswer(t, first, c.status, c.body, false)
	}
	want := map[string]event.Result{nothing: event.Failed, pending: event.Failed, unknown: event.Unknown}[c.body]
	if want == "" {
		want = event.Executed
	}
	if decided := seen.results(); len(decided) != 1 || decided[0] != want {
		t.Errorf("decisions %v, want %v", decided, want)
	}
	drained(t, g)
	s.wantEffects(slices.Repeat([]string{"paid"}, c.effects)...)

	// From here on nothing fails.
	s.begin, s.claim, s.mark, s.undo, s.settle, s.commit = nil, nil, nil, nil, nil, nil
	again := answer(h, post("k", `{}`))
	switch c.repeat {
	case runs:
		if len(returned) != 2 {
			t.Errorf("a repeat was answered %d %s, want it to run", again.Code, again.Body)
		}
	case replays:
		wantAnswer(t, again, c.status, c.body, true)
	default:
		if code := refusalCode(again); code != refusal.Code(c.repeat) {
			t.Errorf("a repeat was answered %d %s, want %s", again.Code, again.Body, c.repeat)
		}
	}
	if c.repeat != runs && len(returned) != 1 {
		t.Error("a repeat has run")
	}
	drained(t, g)
}

// each runs the cases in their modes.
func each(t *testing.T, cases []txCase) {
	for _, c := range cases {
		for _, m := range txModes() {
			if c.modes != "" && !slices.Contains(strings.Fields(c.modes), m.name) {
				continue
			}
			t.Run(c.name+"/"+m.name, func(t *testing.T) {
				t.Parallel()
				c.run(t, m)
			})
		}
	}
}

const (
	nothing = string(refusal.StoreUnavailable)
	pending = string(refusal.OutcomePending)
	unknown = string(refusal.OutcomeUnknown)
	noReply = string(refusal.ReplayUnavailable)
)

// The savepoint rule: what becomes of effects and answer, by the answer and by the function's error.
func TestR31_SavepointRule(t *testing.T) {
	t.Parallel()
	keepOnlySuccess := func(p *semel.Policy) { p.KeepOnlySuccess = true }
	each(t, []txCase{
		{name: "success", in: answering(201, nil), status: 201, body: "in 201", effects: 1, repeat: replays},
		{name: "redirect", in: answering(303, nil), status: 303, body: "in 303", effects: 1, repeat: replays},
		{name: "a kept 4xx without an error", in: answering(404, nil), status: 404, body: "in 404", effects: 1, repeat: replays},
		{name: "a kept 4xx with an error", in: answering(422, errDeclined), returns: errDeclined, status: 422, body: "in 422", repeat: replays},
		{name: "the last 4xx with an error", in: answering(499, errDeclined), returns: errDeclined, status: 499, body: "in 499", repeat: replays},
		{name: "the first 4xx with an error", in: answering(400, errDeclined), returns: errDeclined, status: 400, body: "in 400", repeat: replays},
		{name: "a released 4xx with an error", in: answering(429, errDeclined), returns: errDeclined, status: 429, body: "in 429", repeat: runs},
		{name: "a released 4xx without an error", in: answering(403, nil), returns: driver.ErrRolledBack, status: 403, body: "in 403", repeat: runs},
		{name: "a 4xx that the route releases", change: keepOnlySuccess, in: answering(404, nil), returns: driver.ErrRolledBack, status: 404, body: "in 404", repeat: runs},
		{name: "503", in: answering(503, nil), returns: driver.ErrRolledBack, status: 503, body: "in 503", repeat: runs},
		{name: "5xx with an error", in: answering(500, errDeclined), returns: errDeclined, status: 500, body: "in 500", repeat: runs},
		{name: "5xx without an error", modes: "hold one-commit", in: answering(500, nil), status: 500, body: "in 500", effects: 1, repeat: replays},
		{name: "5xx without an error", modes: "rerun", in: answering(500, nil), returns: driver.ErrRolledBack, status: 500, body: "in 500", repeat: runs},
		{name: "success with an error", in: answering(201, errDeclined), returns: errDeclined, status: 503, body: nothing, repeat: runs},
		{name: "redirect with an error", in: answering(303, errDeclined), returns: errDeclined, status: 503, body: nothing, repeat: runs},
		{name: "an error and no answer", in: func(_ http.ResponseWriter, _ *http.Request, tx driver.Tx) error {
			effect(tx, "paid")
			return errDeclined
		}, returns: errDeclined, status: 503, body: nothing, repeat: runs},
		{name: "neither", in: func(_ http.ResponseWriter, _ *http.Request, tx driver.Tx) error {
			effect(tx, "paid")
			return nil
		}, returns: refusal.NoAnswer, status: 503, body: nothing, repeat: runs},
	})
}

// What a handler answers after its transaction was rolled back.
func TestR31_R43_AnswersAfterARollback(t *testing.T) {
	t.Parallel()
	fails := answering(201, errDeclined)
	derives := func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
		semel.FromContext(r.Context()).Key("charge")
		return fails(w, r, tx)
	}
	loses := func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
		semel.FromContext(r.Context()).Lost(errDeclined)
		return fails(w, r, tx)
	}
	says := func(v func(*semel.Operation), status int) func(http.ResponseWriter, *http.Request, error) {
		return func(w http.ResponseWriter, r *http.Request, err error) {
			v(semel.FromContext(r.Context()))
			then(status)(w, r, err)
		}
	}
	keepErrors := func(p *semel.Policy) { p.OnError = semel.KeepErrors }
	decide := func(v semel.Verdict) func(*semel.Policy) {
		return func(p *semel.Policy) {
			p.Decide = func(status int, _ http.Header, _ []byte) semel.Verdict {
				if status == 201 { // in the transaction
					return semel.VerdictDefault
				}
				return v
			}
		}
	}
	each(t, []txCase{
		{name: "an error", in: fails, after: then(500), returns: errDeclined, status: 500, body: "after 500", repeat: runs},
		{name: "an error where errors are kept", change: keepErrors, in: fails, after: then(502), returns: errDeclined, status: 502, body: "after 502", repeat: runs},
		{name: "a definitive refusal", in: fails, after: then(409), returns: errDeclined, status: 409, body: "after 409", repeat: replays},
		{name: "a refusal that is released", in: fails, after: then(429), returns: errDeclined, status: 429, body: "after 429", repeat: runs},
		{name: "a success", in: fails, after: then(200), returns: errDeclined, status: 503, body: nothing, repeat: runs},
		{name: "a redirect", in: fails, after: then(303), returns: errDeclined, status: 503, body: nothing, repeat: runs},
		{name: "an error that the handler keeps", in: fails, after: says((*semel.Operation).Keep, 500), returns: errDeclined, status: 500, body: "after 500", repeat: replays},
		{name: "a success that the handler keeps", in: fails, after: says((*semel.Operation).Keep, 200), returns: errDeclined, status: 503, body: nothing, repeat: runs},
		{name: "a refusal that the handler releases", in: fails, after: says((*semel.Operation).Release, 409), returns: errDeclined, status: 409, body: "after 409", repeat: runs},
		{name: "an error that the route keeps", change: decide(semel.VerdictKeep), in: fails, after: then(500), returns: errDeclined, status: 500, body: "after 500", repeat: replays},
		{name: "an error that the route calls unknown", modes: "hold rerun", change: decide(semel.VerdictUnknown), in: fails, after: then(500), returns: errDeclined, status: 500, body: "after 500", repeat: unknown},
		{name: "an error that the route calls unknown", modes: "one-commit", change: decide(semel.VerdictUnknown), in: fails, after: then(500), returns: errDeclined, status: 500, body: "after 500", repeat: runs},

		{name: "an error, a key was derived", modes: "hold one-commit", in: derives, after: then(500), returns: errDeclined, status: 500, body: "after 500", repeat: replays},
		{name: "an error, a key was derived", modes: "rerun", in: derives, after: then(500), returns: errDeclined, status: 500, body: "after 500", repeat: runs},
		{name: "a success, a key was derived", modes: "hold", in: derives, after: then(200), returns: errDeclined, status: 409, body: unknown, repeat: unknown},
		{name: "a success, a key was derived", modes: "rerun", in: derives, after: then(200), returns: errDeclined, status: 503, body: pending, repeat: runs},
		{name: "a success, a key was derived", modes: "one-commit", in: derives, after: then(200), returns: errDeclined, status: 503, body: nothing, repeat: runs},
		{name: "nothing, a key was derived", modes: "hold", in: derives, returns: errDeclined, status: 409, body: unknown, repeat: unknown},
		{name: "a refusal, a key was derived", in: derives, after: then(409), returns: errDeclined, status: 409, body: "after 409", repeat: replays},

		{name: "an error, lost", modes: "hold", in: loses, after: then(500), returns: errDeclined, status: 409, body: unknown, repeat: unknown},
		{name: "an error, lost", modes: "rerun", in: loses, after: then(500), returns: errDeclined, status: 503, body: pending, repeat: runs},
		{name: "an error, lost", modes: "one-commit", in: loses, after: then(500), returns: errDeclined, status: 503, body: nothing, repeat: runs},
		{name: "a success, lost", modes: "hold", in: loses, after: then(200), returns: errDeclined, status: 409, body: unknown, repeat: unknown},
		{name: "a refusal, lost", modes: "hold", in: loses, after: then(409), returns: errDeclined, status: 409, body: unknown, repeat: unknown},
	})
}

// What a handler says about its answer within the transaction counts for the transaction.
func TestR44_VerdictsInATransaction(t *testing.T) {
	t.Parallel()
	saying := func(v func(*semel.Operation), in func(http.ResponseWriter, *http.Request, driver.Tx) error) func(http.ResponseWriter, *http.Request, driver.Tx) error {
		return func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
			v(semel.FromContext(r.Context()))
			return in(w, r, tx)
		}
	}
	keep, release := (*semel.Operation).Keep, (*semel.Operation).Release
	lose := func(op *semel.Operation) { op.Lost(errDeclined) }
	each(t, []txCase{
		{name: "keep an error", in: saying(keep, answering(503, nil)), status: 503, body: "in 503", effects: 1, repeat: replays},
		{name: "keep a refusal, with an error", in: saying(keep, answering(429, errDeclined)), returns: errDeclined, status: 429, body: "in 429", repeat: replays},
		{name: "keep an error, with an error", in: saying(keep, answering(500, errDeclined)), returns: errDeclined, status: 500, body: "in 500", repeat: replays},
		{name: "release a success", in: saying(release, answering(201, nil)), returns: driver.ErrRolledBack, status: 503, body: nothing, repeat: runs},
		{name: "release a refusal", in: saying(release, answering(422, errDeclined)), returns: errDeclined, status: 422, body: "in 422", repeat: runs},
		{
			name: "release a success, then refuse", in: saying(release, answering(201, nil)), after: then(409),
			returns: driver.ErrRolledBack, status: 409, body: "after 409", repeat: replays,
		},
		{name: "lost", modes: "hold", in: saying(lose, answering(201, nil)), returns: driver.ErrRolledBack, status: 409, body: unknown, repeat: unknown},
		{name: "lost", modes: "rerun", in: saying(lose, answering(201, nil)), returns: driver.ErrRolledBack, status: 503, body: pending, repeat: runs},
		{name: "lost", modes: "one-commit", in: saying(lose, answering(201, nil)), returns: driver.ErrRolledBack, status: 503, body: nothing, repeat: runs},
		{
			name: "lost after the commit", in: answering(201, nil), after: func(_ http.ResponseWriter, r *http.Request, _ error) {
				op := semel.FromContext(r.Context())
				op.Lost(errDeclined)
				op.Release()
				op.Key("late")
			}, status: 201, body: "in 201", effects: 1, repeat: replays,
		},
	})
}

// Case 9: a commit that fails, or whose reply is lost. The answer and every retry agree with what was committed.
func TestCase09_R31_CommitFails(t *testing.T) {
	t.Parallel()
	refused := func(s *transactor) { s.commit = commitRefused }
	lost := func(s *transactor) { s.commit = commitLost }
	unheard := func(s *transactor) {
		s.commit = commitUnheard
	}
	derives := func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
		semel.FromContext(r.Context()).Key("charge")
		return answering(201, nil)(w, r, tx)
	}
	each(t, []txCase{
		{name: "refused", store: refused, in: answering(201, nil), returns: driver.ErrRolledBack, status: 503, body: nothing, repeat: runs},
		{name: "refused, and told", store: refused, in: answering(201, nil), after: then(500), returns: driver.ErrRolledBack, status: 500, body: "after 500", repeat: runs},
		{name: "refused, and not told", store: refused, in: answering(201, nil), after: then(200), returns: driver.ErrRolledBack, status: 503, body: nothing, repeat: runs},
		{name: "refused, then a refusal", modes: "hold rerun", store: refused, in: answering(201, nil), after: then(409), returns: driver.ErrRolledBack, status: 409, body: "after 409", repeat: replays},
		{name: "refused, then a refusal", modes: "one-commit", store: refused, in: answering(201, nil), after: then(409), returns: driver.ErrRolledBack, status: 503, body: nothing, repeat: runs},
		{name: "refused with a kept 4xx", store: refused, in: answering(422, errDeclined), returns: driver.ErrRolledBack, status: 503, body: nothing, repeat: runs},
		{name: "refused with a kept 4xx, and told", store: refused, in: answering(422, errDeclined), after: then(500), returns: driver.ErrRolledBack, status: 500, body: "after 500", repeat: runs},
		{name: "refused, a key was derived", modes: "hold", store: refused, in: derives, returns: driver.ErrRolledBack, status: 409, body: unknown, repeat: unknown},
		{name: "refused, a key was derived", modes: "rerun", store: refused, in: derives, returns: driver.ErrRolledBack, status: 503, body: pending, repeat: runs},

		{name: "committed, reply lost", store: unheard, in: answering(201, nil), returns: errDown, status: 201, body: "in 201", effects: 1, repeat: replays},
		{name: "committed, reply lost, and told", store: unheard, in: answering(201, nil), after: then(500), returns: errDown, status: 201, body: "in 201", effects: 1, repeat: replays},
		{name: "committed with a kept 4xx, reply lost", store: unheard, in: answering(422, errDeclined), after: then(500), returns: errDown, status: 422, body: "in 422", repeat: replays},
		{name: "committed, reply lost, a key was derived", store: unheard, in: derives, returns: errDown, status: 201, body: "in 201", effects: 1, repeat: replays},

		{name: "lost", store: lost, in: answering(201, nil), returns: errDown, status: 503, body: nothing, repeat: runs},
		{name: "lost, and told", store: lost, in: answering(201, nil), after: then(500), returns: errDown, status: 503, body: nothing, repeat: runs},
		{name: "lost, then a refusal", store: lost, in: answering(201, nil), after: then(409), returns: errDown, status: 503, body: nothing, repeat: runs},
		{name: "lost, a key was derived", modes: "hold", store: lost, in: derives, returns: errDown, status: 409, body: unknown, repeat: unknown},
		{name: "lost, a key was derived", modes: "rerun", store: lost, in: derives, returns: errDown, status: 503, body: pending, repeat: runs},
		{name: "lost, a key was derived", modes: "one-commit", store: lost, in: derives, returns: errDown, status: 503, body: nothing, repeat: runs},
	})
}

// A failing call of a transaction rolls all of it back, and no answer says otherwise.
func TestR31_CallsOfATransactionFail(t *testing.T) {
	t.Parallel()
	failing := func(context.Context) error { return errDown }
	settles := func(s *transactor) { s.settle = func(driver.Outcome) (bool, error) { return false, errDown } }
	each(t, []txCase{
		{name: "begin", modes: "hold rerun", store: func(s *transactor) { s.begin = failing }, in: paying, returns: errDown, status: 503, body: nothing, repeat: runs},
		{name: "begin, told", modes: "hold rerun", store: func(s *transactor) { s.begin = failing }, in: paying, after: then(500), returns: errDown, status: 500, body: "after 500", repeat: runs},
		{name: "mark", store: func(s *transactor) { s.mark = failing }, in: paying, returns: errDown, status: 503, body: nothing, repeat: runs},
		{name: "mark, then a refusal", modes: "hold rerun", store: func(s *transactor) { s.mark = failing }, in: paying, after: then(409), returns: errDown, status: 409, body: "after 409", repeat: replays},
		{name: "settle", store: settles, in: paying, returns: errDown, status: 503, body: nothing, repeat: runs},
		{name: "settle, told", store: settles, in: paying, after: then(500), returns: driver.ErrRolledBack, status: 500, body: "after 500", repeat: runs},
		{name: "undo after a refusal", modes: "hold rerun", store: func(s *transactor) { s.undo = failing }, in: answering(422, errDeclined), returns: errDeclined, status: 422, body: "in 422", repeat: replays},
		{name: "undo after a refusal", modes: "one-commit", store: func(s *transactor) { s.undo = failing }, in: answering(422, errDeclined), returns: errDeclined, status: 503, body: nothing, repeat: runs},
		{name: "undo after an error", store: func(s *transactor) { s.undo = failing }, in: answering(201, errDeclined), after: then(500), returns: errDeclined, status: 500, body: "after 500", repeat: runs},
	})
}

// A store without room for the answer takes a marker: all commits, and repeats are told that there is no answer.
func TestR31_NoRoomForTheAnswer(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		s := newTransactor(t)
		s.settle = func(o driver.Outcome) (bool, error) {
			if o.Response != nil {
				return false, fmt.Errorf("%w: the answer", driver.ErrFull)
			}
			return false, nil
		}
		g, seen := newGuard(t, s, m.policy)
		h := g.Wrap(s.working(paying, func(_ http.ResponseWriter, _ *http.Request, err error) {
			if err != nil {
				t.Errorf("RunTx: %v", err)
			}
		}))
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", false)
		wantProblem(t, answer(h, post("k", `{}`)), http.StatusConflict, refusal.ReplayUnavailable)
		s.wantEffects("paid")
		if seen.count(event.NotReplayable) != 1 || seen.count(event.StoreError) != 0 {
			t.Errorf("%d not replayable, %d store errors; want 1 and 0", seen.count(event.NotReplayable), seen.count(event.StoreError))
		}
	})
}

// Nothing shows to others before the commit, and the answer is durable before its first byte leaves.
func TestR30_R31_NothingShowsBeforeTheCommit(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		s := newTransactor(t)
		g, _ := newGuard(t, s, m.policy)
		w := &firstByte{ResponseRecorder: httptest.NewRecorder(), look: func() {
			if rec := loaded(t, s, "k"); rec.State != driver.Done || rec.Response == nil {
				t.Errorf("the answer leaves while the record is %v", rec.State)
			}
			s.wantEffects("paid")
		}}
		before := driver.Running
		if m.onlyOne() {
			before = driver.Absent
		}
		g.Wrap(s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
			payIn(tx, w)
			if rec := loaded(t, s, "k"); rec.State != before {
				t.Errorf("the record is %v before the commit, want %v", rec.State, before)
			}
			return nil
		}, func(http.ResponseWriter, *http.Request, error) {
			if rec := loaded(t, s, "k"); rec.State != driver.Done {
				t.Errorf("the record is %v after the commit", rec.State)
			}
		})).ServeHTTP(w, post("k", `{}`))
		wantAnswer(t, w.ResponseRecorder, http.StatusCreated, "paid", false)
	})
}
