package sagas

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/proof"
)

// A fault is what a service does instead of its work, or besides.
type fault string

const (
	none    fault = ""
	refuses fault = "refuses"  // for good
	broken  fault = "broken"   // for some calls
	lost    fault = "lost"     // it does its work, and does not answer
	hangs   fault = "hangs"    // it does not answer until its caller has left
	silent  fault = "silent"   // it does its work, and does not answer until its caller has left
	panics  fault = "panicked" // it does its work, and its answer makes its caller panic
)

// services are what sagas call. They know a repetition by its key. What a saga has taken back they refuse to do again,
// as they refuse what comes after it was taken back.
type services struct {
	url     string
	end     chan struct{}
	newPlan func() map[string]plan

	mu     sync.Mutex
	orders map[string]*account
	met    map[fault]int
	wrong  []string
}

// A plan says how often which fault happens.
type plan struct {
	fault
	calls int
}

// An account is what an order has had.
type account struct {
	version string
	plans   map[string]plan   // by call
	keys    map[string]string // of each call
	calls   map[string]int
	stands  []string // effects that were not taken back, in order
	effects []string
	undone  []string
}

func newServices(t testing.TB, seed uint64) *services {
	random := rand.New(rand.NewPCG(seed, 1))
	s := &services{end: make(chan struct{}), orders: map[string]*account{}, met: map[fault]int{}}
	s.newPlan = func() map[string]plan {
		plans := map[string]plan{}
		for _, step := range versions["2"] {
			for what, odds := range map[string][]fault{
				"do":   {none, none, none, none, none, none, refuses, broken, lost, hangs, silent, panics},
				"undo": {none, none, none, refuses, broken, lost, hangs, silent, panics},
			} {
				plans[what+" "+step] = plan{odds[random.IntN(len(odds))], 1 + random.IntN(4)}
			}
		}
		return plans
	}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		close(s.end)
		server.Close()
	})
	s.url = server.URL
	return s
}

func (s *services) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var what, step, order string
	if parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/"); len(parts) == 3 {
		what, step, order = parts[0], parts[1], parts[2]
	}
	hurt, status, text := s.call(what, step, order, r.FormValue("version"), r.Header.Get("Idempotency-Key"))
	switch hurt {
	case lost:
		panic(http.ErrAbortHandler)
	case hangs, silent:
		select {
		case <-r.Context().Done():
		case <-s.end:
		}
		panic(http.ErrAbortHandler)
	case panics:
		w.Header().Set("Panic", "yes")
	}
	http.Error(w, text, status)
}

// call does the work, and says how to answer.
func (s *services) call(what, step, order, version, key string) (hurt fault, status int, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.orders[order]
	if a == nil {
		a = &account{version: version, plans: s.newPlan(), keys: map[string]string{}, calls: map[string]int{}}
		s.orders[order] = a
	}
	call := what + " " + step
	blame := func(format string, args ...any) {
		s.wrong = append(s.wrong, fmt.Sprintf("order %s, %s: ", order, call)+fmt.Sprintf(format, args...))
	}
	if a.version != version {
		blame("version %s, and it began under %s", version, a.version)
	}
	had, known := a.keys[call]
	for other, k := range a.keys {
		if k == key && other != call {
			blame("it has the key of %s", other)
		}
	}
	if key == "" || known && had != key {
		blame("key %q, and it was %q", key, had)
	}
	a.keys[call] = key
	a.calls[call]++
	p := a.plans[call]
	if a.calls[call] > p.calls {
		p.fault = none
	}
	s.met[p.fault]++
	switch p.fault {
	case refuses:
		if what == "do" {
			a.plans[call] = plan{refuses, p.calls + 1} // for good
		}
		return none, http.StatusUnprocessableEntity, "no"
	case broken:
		return none, http.StatusBadGateway, "it is broken"
	case hangs:
		return hangs, 0, ""
	}
	switch done, undone := slices.Contains(a.effects, step), a.keys["undo "+step] != ""; {
	case what == "do" && undone:
		return none, http.StatusUnprocessableEntity, "it was taken back"
	case what == "do" && !done:
		if len(a.undone) > 0 {
			blame("an effect after %v were taken back", a.undone)
		}
		a.effects, a.stands = append(a.effects, step), append(a.stands, step)
	case what == "undo" && done && !slices.Contains(a.undone, step):
		if last := a.stands[len(a.stands)-1]; last != step {
			blame("it is taken back before %s", last)
		}
		a.undone, a.stands = append(a.undone, step), a.stands[:len(a.stands)-1]
	}
	return p.fault, http.StatusOK, "receipt of " + call
}

// tally says what the services have met.
func (s *services) tally(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, wrong := range s.wrong {
		t.Error(wrong)
	}
	t.Logf("faults: %v", s.met)
	for _, f := range []fault{refuses, broken, lost, hangs, silent, panics} {
		if s.met[f] < proof.Of(3, 20) {
			t.Errorf("too little happened for this to prove anything: %s %d times", f, s.met[f])
		}
	}
}

// account returns what an order has had.
func (s *services) account(order string) account {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.orders[order]
	if a == nil {
		return account{}
	}
	return account{version: a.version, stands: slices.Clone(a.stands), effects: slices.Clone(a.effects), undone: slices.Clone(a.undone)}
}
