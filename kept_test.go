package semel_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
)

// What a record holds is not within reach of the layers above, also where the answer and the record share their headers
//
func TestR34_LayersAboveCantReachWhatIsStored(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, nil, semel.Policy{})
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Part"] = []string{"one", "two"} // all that it sets is stored
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, "paid")
	}))
	for attempt := range 3 {
		w := answer(h, post("key", "{}"))
		got := w.Header()["X-Part"]
		if len(got) != 2 || got[0] != "one" || got[1] != "two" {
			t.Fatalf("answer %d: X-Part is %q", attempt, got)
		}
		got[0] = "changed in place"
		w.Header()["Content-Type"][0] = "changed too"
	}
}

// Each answer names its own end of retention, to the second.
func TestR39_AnswersOfDifferentSecondsExpireApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, nil, semel.Policy{Retention: time.Hour})
		var l ledger
		h := g.Wrap(http.HandlerFunc(l.pay))
		for _, key := range []string{"first", "second"} {
			want := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
			if got := answer(h, post(key, "{}")).Header().Get("Idempotency-Expires"); got != want {
				t.Errorf("%s: expires %q, want %q", key, got, want)
			}
			time.Sleep(time.Second)
		}
	})
}

// An outcome that was given up is not a late owner that was refused: the store has not said so.
func TestCase06_AnAbandonedSettleIsNotFenced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{Store: memstore.New()}
		g, seen := newGuard(t, s, shortLease(semel.Hold))
		s.settle = func(context.Context, driver.ID, driver.Owner, driver.Outcome) (driver.Record, bool, error) {
			return driver.Record{}, false, io.ErrUnexpectedEOF
		}
		var l ledger
		if w := answer(g.Wrap(http.HandlerFunc(l.pay)), post("key", "{}")); w.Code != http.StatusServiceUnavailable {
			t.Errorf("answered %d, want 503", w.Code)
		}
		if err := g.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if a, f := seen.count(event.SettleAbandoned), seen.count(event.Fenced); a != 1 || f != 0 {
			t.Errorf("%d abandoned and %d fenced, want 1 and 0", a, f)
		}
	})
}
