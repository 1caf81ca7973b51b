package semel_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

// watched is a store of which a test sees what is settled.
func watched(settled *[]driver.Outcome) *faulty {
	own := memstore.New()
	return &faulty{Store: own, settle: func(ctx context.Context, id driver.ID, by driver.Owner, o driver.Outcome) (driver.Record, bool, error) {
		*settled = append(*settled, o)
		return own.Settle(ctx, id, by, o)
	}}
}

func TestField21_AnAnswerThatShowsASecretIsNotStored(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]semel.Policy{
		"buffered": {NoStore: true}, "streamed": {NoStore: true, Stream: true}, "large": {NoStore: true, MaxResponseBody: 4},
		"under rerun": {NoStore: true, OnLost: semel.Rerun},
	} {
		var settled []driver.Outcome
		g, seen := newGuard(t, watched(&settled), p)
		l := &ledger{}
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if l.add() == 1 {
				w.WriteHeader(http.StatusTooManyRequests) // releases the key, as anywhere
				return
			}
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, "sk_live_1")
		}))
		if w := answer(h, post("k", `{}`)); w.Code != http.StatusTooManyRequests {
			t.Errorf("%s: first attempt: %d, want 429", name, w.Code)
		}
		if w := answer(h, post("k", `{}`)); w.Code != http.StatusCreated || w.Body.String() != "sk_live_1" {
			t.Errorf("%s: answered %d %q, want the secret", name, w.Code, w.Body)
		}
		w := answer(h, post("k", `{}`))
		checkProblem(t, w, 409, refusal.ReplayUnavailable)
		if !strings.Contains(w.Body.String(), "shown once") {
			t.Errorf("%s: a repeat is told %s", name, w.Body)
		}
		checkEffects(t, l, 2)
		if last := settled[len(settled)-1]; last.State != driver.Done || last.Response != nil {
			t.Errorf("%s: settled as %s with %v, want done without an answer", name, last.State, last.Response)
		}
		if n := seen.count(event.NotReplayable); n != 0 {
			t.Errorf("%s: %d events say that an answer could not be stored: it was not to be", name, n)
		}
	}
}

func TestField21_AResultThatIsASecretIsNotStored(t *testing.T) {
	t.Parallel()
	var settled []driver.Outcome
	g, seen := newGuard(t, watched(&settled), semel.Policy{NoStore: true})
	do := func() (string, error) {
		return semel.Do(t.Context(), g, semel.Key{Scope: "a", Operation: "make a key", Value: "k"}, semel.JSON(1), func(context.Context) (string, error) {
			return "sk_live_1", nil
		})
	}
	if got, err := do(); got != "sk_live_1" || err != nil {
		t.Errorf("the run returned %q, %v", got, err)
	}
	if got, err := do(); got != "" || !errors.Is(err, refusal.ReplayUnavailable) {
		t.Errorf("the repeat returned %q, %v; want ErrReplayUnavailable", got, err)
	}
	if len(settled) != 1 || settled[0].State != driver.Done || settled[0].Response != nil || seen.count(event.NotReplayable) != 0 {
		t.Errorf("settled with %v; want done without a result, and no event", settled)
	}
}
