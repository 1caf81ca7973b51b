package semel_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/driver"
	"github.com/semelhq/semel/event"
	"github.com/semelhq/semel/memstore"
	"github.com/semelhq/semel/refusal"
)

func TestR60_AttemptsPerKeyAreCappedByTheMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{}
		g, seen := newGuardWith(t, nil, semel.Options{MaxAttempts: 3})
		h := g.Wrap(http.HandlerFunc(l.pay))
		time.Sleep(20500 * time.Millisecond)
		checkRun(t, answer(h, post("k", `{}`)))
		checkReplay(t, answer(h, post("k", `{}`)))
		checkReplay(t, answer(h, post("k", `{}`)))
		for range 5 { // what is refused does not put it off further
			w := answer(h, post("k", `{}`))
			checkProblem(t, w, 429, refusal.TooManyAttempts)
			if got := w.Header().Get("Retry-After"); got != "40" {
				t.Errorf("Retry-After is %q, want 40", got)
			}
		}
		checkRun(t, answer(h, post("other", `{}`)))
		checkRun(t, answer(h, post("k", `{}`, "X-Principal", "bob"))) // the key of another principal is another
		time.Sleep(40 * time.Second)
		checkReplay(t, answer(h, post("k", `{}`)))
		checkEffects(t, l, 3)
		if got := seen.last().Result; got != event.Replayed {
			t.Errorf("decided %v last, want replayed", got)
		}
	})
}

func TestAttack09_R60_WrongBodiesDoNotLockTheOwnerOfAKeyOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuardWith(t, nil, semel.Options{MaxAttempts: 3, Policy: semel.Policy{Credentials: []string{"Authorization"}}})
		h := g.Wrap(http.HandlerFunc((&ledger{}).pay))
		owner := func() *http.Request { return post("k", `{}`, "Authorization", "owner") }
		checkRun(t, answer(h, owner()))
		for i := range 10 {
			checkProblem(t, answer(h, post("k", `{"n":`+strconv.Itoa(i)+`}`)), 422, refusal.KeyReused)
		}
		for range 3 {
			checkProblem(t, answer(h, post("k", `{}`)), 403, refusal.ReplayForbidden)
		}
		checkProblem(t, answer(h, post("k", `{}`)), 429, refusal.TooManyAttempts)
		checkReplay(t, answer(h, owner()))
	})
}

func TestR60_AttemptsOfRefusedRequestsDoNotCountAndMismatchesDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuardWith(t, nil, semel.Options{MaxAttempts: 2})
		h := g.Wrap(http.HandlerFunc((&ledger{}).pay))
		for range 5 {
			checkProblem(t, answer(h, post("a b", `{}`)), 400, refusal.KeyInvalid)
			checkProblem(t, answer(h, post("k", `{}`, "Early-Data", "1")), 425, refusal.EarlyData)
		}
		checkRun(t, answer(h, post("k", `{}`)))
		checkProblem(t, answer(h, post("k", `{"a":1}`)), 422, refusal.KeyReused)
		checkProblem(t, answer(h, post("k", `{ "a":1}`)), 422, refusal.KeyReused)
		checkProblem(t, answer(h, post("k", `{"a":1}`)), 429, refusal.TooManyAttempts)
	})
}

func TestR60_CapsAreByDefaultThoseDocumentedAndCanBeTurnedOff(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ limit, refusedAt int }{{0, 100}, {-1, 500}, {math.MaxInt, 500}, {math.MaxInt32 + 1, 500}} {
		synctest.Test(t, func(t *testing.T) {
			g, _ := newGuardWith(t, nil, semel.Options{MaxAttempts: tc.limit, MaxKeys: tc.limit})
			h := g.Wrap(http.HandlerFunc((&ledger{}).pay))
			n := 0
			for ; n < 500; n++ {
				if w := answer(h, post("k", `{}`)); w.Code == 429 {
					break
				}
			}
			if n != tc.refusedAt {
				t.Errorf("MaxAttempts %d: refused after %d, want %d", tc.limit, n, tc.refusedAt)
			}
		})
	}
}

func TestR60_LiveKeysPerPrincipalAreCappedAndRepeatsStillAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, l := memstore.New(), &ledger{}
		p := semel.Policy{MaxRun: time.Minute, Retention: 16 * time.Minute} // slots of a minute
		g, _ := newGuardWith(t, s, semel.Options{MaxKeys: 3, Policy: p})
		h := g.Wrap(http.HandlerFunc(l.pay))
		for i := range 3 {
			checkRun(t, answer(h, post("k"+strconv.Itoa(i), `{}`)))
			checkReplay(t, answer(h, post("k"+strconv.Itoa(i), `{}`))) // a repeat is no new key
			time.Sleep(2 * time.Minute)
		}
		for range 3 {
			w := answer(h, post("one-more", `{}`))
			checkProblem(t, w, 429, refusal.TooManyKeys)
			if got := w.Header().Get("Retry-After"); got != "600" { // 16 min after the first began, 6 of which have passed
				t.Errorf("Retry-After is %q, want 600", got)
			}
		}
		checkEffects(t, l, 3)
		checkRecords(t, s, 3)
		for i := range 3 {
			checkReplay(t, answer(h, post("k"+strconv.Itoa(i), `{}`)))
			checkProblem(t, answer(h, post("k"+strconv.Itoa(i), `{"a":1}`)), 422, refusal.KeyReused)
		}
		checkRun(t, answer(h, post("k0", `{}`, "X-Principal", "bob"))) // another principal has its own
		checkRun(t, answer(g.Route(p).Wrap(http.HandlerFunc(l.pay)), post("one-more", `{}`)))
		time.Sleep(600 * time.Second)
		checkRun(t, answer(h, post("after", `{}`)))
		checkProblem(t, answer(h, post("after2", `{}`)), 429, refusal.TooManyKeys)
	})
}

// A released key is the same key when it is tried again, and takes no second place.
func TestR60_AKeyThatIsRunAgainCountsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuardWith(t, nil, semel.Options{MaxKeys: 2})
		status := 503
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		for range 4 {
			time.Sleep(time.Second)
			if w := answer(h, post("k", `{}`)); w.Code != 503 || codeOf(w) != "" {
				t.Fatalf("answered %d %s, want the handler's 503", w.Code, w.Body)
			}
		}
		status = 201
		checkRun(t, answer(h, post("k2", `{}`)))
		checkRun(t, answer(h, post("k", `{}`))) // at the cap, a free record may still be run
		checkProblem(t, answer(h, post("k3", `{}`)), 429, refusal.TooManyKeys)
	})
}

func TestR60_R63_AtTheCapAStoreThatFailsRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{Store: memstore.New()}
		g, seen := newGuardWith(t, s, semel.Options{MaxKeys: 1})
		l := &ledger{}
		h := g.Wrap(http.HandlerFunc(l.pay))
		checkRun(t, answer(h, post("k", `{}`)))
		s.set(func(f *faulty) {
			f.load = func(context.Context, driver.ID) (driver.Record, error) { return driver.Record{}, errors.New("down") }
		})
		checkProblem(t, answer(h, post("k", `{}`)), 503, refusal.StoreUnavailable)
		checkProblem(t, answer(h, post("k2", `{}`)), 503, refusal.StoreUnavailable)
		if got := seen.count(event.StoreError); got != 2 {
			t.Errorf("%d store errors are reported, want 2", got)
		}
		checkEffects(t, l, 1)
	})
}

// Keys that are kept forever, or not a second, have slots too.
func TestR60_KeysAreCountedWhateverTheirRetention(t *testing.T) {
	t.Parallel()
	for _, p := range []semel.Policy{
		{Retention: semel.Forever},
		{Retention: 12 * time.Millisecond, MaxRun: time.Millisecond, Lease: 3 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			g, _ := newGuardWith(t, nil, semel.Options{MaxKeys: 1, Policy: p})
			h := g.Wrap(http.HandlerFunc((&ledger{}).pay))
			checkRun(t, answer(h, post("k", `{}`)))
			w := answer(h, post("k2", `{}`))
			checkProblem(t, w, 429, refusal.TooManyKeys)
			if n, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || n < 1 || n > 30*24*3600 {
				t.Errorf("%v: Retry-After is %q, want 1 s to 30 days", p.Retention, w.Header().Get("Retry-After"))
			}
		})
	}
}

func TestR60_R28_WaitersPerKeyAreCapped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, nil, semel.Policy{Wait: time.Minute, MaxWaiters: 2})
		l := &ledger{}
		h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(10 * time.Second)
			l.pay(w, r)
		}))
		statuses := make(chan int, 10)
		for range 6 {
			go func() { statuses <- answer(h, post("k", `{}`)).Code }()
		}
		count := map[int]int{}
		for range 6 {
			count[<-statuses]++
		}
		if count[201] != 3 || count[409] != 3 {
			t.Errorf("answered %v, want 201 for the owner and two waiters, 409 for three", count)
		}
		checkEffects(t, l, 1)
	})
}
