package semel_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/memstore"
)

// retained is a policy that lets a handler choose from an hour to three days.
var retained = semel.Policy{MinRetention: time.Hour, MaxRetention: 72 * time.Hour}

func TestField21_R53_AHandlerSaysHowLongItsAnswerIsKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		p           semel.Policy
		asked, want time.Duration
	}{
		"nothing":             {retained, 0, 24 * time.Hour},
		"shorter":             {retained, 2 * time.Hour, 2 * time.Hour},
		"longer":              {retained, 48 * time.Hour, 48 * time.Hour},
		"too short":           {retained, time.Second, time.Hour},
		"too long":            {retained, semel.Forever, 72 * time.Hour},
		"without bounds":      {semel.Policy{}, time.Hour, 24 * time.Hour},
		"without bounds, too": {semel.Policy{}, 72 * time.Hour, 24 * time.Hour},
		"for ever":            {semel.Policy{MaxRetention: semel.Forever}, semel.Forever, semel.Forever},
		"less than nothing":   {retained, -time.Hour, 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				var settled []driver.Outcome
				g, _ := newGuard(t, watched(&settled), c.p)
				h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs++
					semel.FromContext(r.Context()).Retain(c.asked)
					w.WriteHeader(http.StatusCreated)
				}))
				w := answer(h, post("k", `{}`))
				until := ""
				if c.want < semel.Forever {
					until = time.Now().Add(c.want).UTC().Format(http.TimeFormat)
				}
				if got := w.Header().Get("Idempotency-Expires"); got != until {
					t.Errorf("Idempotency-Expires is %q, want %q", got, until)
				}
				time.Sleep(min(c.want, 1000*time.Hour) - time.Second)
				checkReplay(t, answer(h, post("k", `{}`)))
				if c.want == semel.Forever {
					return
				}
				time.Sleep(time.Second)
				if checkRun(t, answer(h, post("k", `{}`))); runs != 2 {
					t.Errorf("%d runs, want another one after the retention", runs)
				}
			})
		})
	}
}

// What is released keeps its own time, and so does what is unknown.
func TestField21_RetainSaysNothingOfWhatIsNotKept(t *testing.T) {
	t.Parallel()
	var settled []driver.Outcome
	g, _ := newGuard(t, watched(&settled), retained)
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		semel.FromContext(r.Context()).Retain(2 * time.Hour)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	answer(h, post("k", `{}`))
	if len(settled) != 1 || settled[0].State != driver.Free || settled[0].Retention != 0 {
		t.Errorf("settled as %+v, want free without a retention", settled)
	}
	var none *semel.Operation
	none.Retain(time.Hour)
}

func TestField21_AFunctionSaysHowLongItsResultIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, nil, retained)
		var report semel.Report
		_, err := semel.Do(semel.WithReport(t.Context(), &report), g, semel.Key{Scope: "a", Operation: "quote", Value: "k"}, semel.JSON(1),
			func(ctx context.Context) (int, error) {
				semel.FromContext(ctx).Retain(2 * time.Hour)
				return 1, nil
			})
		if want := time.Now().Add(2 * time.Hour); err != nil || !report.Expires.Equal(want) {
			t.Errorf("kept until %v, %v; want %v", report.Expires, err, want)
		}
	})
}

func TestField21_R31_AHandlerSaysHowLongItsAnswerIsKeptInATransaction(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, m txMode) {
		m.policy.MinRetention, m.policy.MaxRetention = retained.MinRetention, retained.MaxRetention
		records := memstore.New()
		s := transactions(t, records)
		g, _ := newGuard(t, s, m.policy)
		h := g.Wrap(s.working(func(w http.ResponseWriter, r *http.Request, tx driver.Tx) error {
			semel.FromContext(r.Context()).Retain(2 * time.Hour)
			return paying(w, r, tx)
		}, nil))
		wantAnswer(t, answer(h, post("k", `{}`)), http.StatusCreated, "paid", false)
		if rec := only(t, records); rec.State != driver.Done || rec.Retention != 2*time.Hour {
			t.Errorf("%s, kept for %v", rec.State, rec.Retention)
		}
	})
}
