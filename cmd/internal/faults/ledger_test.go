package faults

import (
	"context"
	"fmt"
	"net/http"
	"sync"
)

// A world is where operations have their effects.
type world interface {
	// handler returns what an instance runs.
	handler(*instance) http.Handler
	// effects returns what was told of each effect of an operation.
	effects(key string) ([]string, error)
	// stage sets what happens in the first run of an operation.
	stage(key string, run script)
}

// A script is what happens in a run.
type script struct {
	before func(context.Context) // the effect
	after  func()                // the effect, before the outcome is settled
}

// A theatre has the scripts of operations that have not run.
type theatre struct {
	mu      sync.Mutex
	scripts map[string]script
}

func (s *theatre) stage(key string, run script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scripts == nil {
		s.scripts = map[string]script{}
	}
	s.scripts[key] = run
}

// begin plays what comes before the effect, and returns what comes after it. It reports whether the run may go on.
func (s *theatre) begin(ctx context.Context, key string) (after func(), goOn bool) {
	s.mu.Lock()
	run := s.scripts[key]
	delete(s.scripts, key)
	s.mu.Unlock()
	if run.before != nil {
		run.before(ctx)
	}
	if run.after == nil {
		run.after = func() {}
	}
	return run.after, ctx.Err() == nil
}

func keyOf(r *http.Request) string { return r.Header.Get("Idempotency-Key") }

func stopped(w http.ResponseWriter) {
	http.Error(w, "stopped before the effect", http.StatusServiceUnavailable)
}

// A ledger is a world that outlives all faults.
type ledger struct {
	theatre
	mu   sync.Mutex
	told map[string][]string
}

func newLedger() *ledger { return &ledger{told: map[string][]string{}} }

func (l *ledger) handler(*instance) http.Handler { return l }

func (l *ledger) effects(key string) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told[key], nil
}

// book has an effect, and returns what is told of it.
func (l *ledger) book(key string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	told := fmt.Sprintf("effect %d of %s", len(l.told[key])+1, key)
	l.told[key] = append(l.told[key], told)
	return told
}

// ServeHTTP has an effect, unless it is told to stop before.
func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	after, goOn := l.begin(r.Context(), keyOf(r))
	if !goOn {
		stopped(w)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, l.book(keyOf(r)))
	after()
}
