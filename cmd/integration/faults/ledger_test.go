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
	// stage sets what happens in an operation.
	stage(key string, run script)
}

// A script is what happens once in an operation: in the first run that comes so far.
type script struct {
	before func(context.Context) // the effect
	after  func()                // the effect, before the outcome is settled
}

// A theatre has what is left of the scripts of operations.
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

// take returns what is left of a script, and leaves what is left of that without what is played next.
func (s *theatre) take(key string, played func(*script)) script {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := s.scripts[key]
	left := run
	played(&left)
	if s.scripts != nil {
		s.scripts[key] = left
	}
	return run
}

// before plays what comes before the effect. It reports whether the run may go on.
func (s *theatre) before(ctx context.Context, key string) (goOn bool) {
	if run := s.take(key, func(left *script) { left.before = nil }); run.before != nil {
		run.before(ctx)
	}
	return ctx.Err() == nil
}

// after plays what comes after it.
func (s *theatre) after(key string) {
	if run := s.take(key, func(left *script) { left.after = nil }); run.after != nil {
		run.after()
	}
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
	if !l.before(r.Context(), keyOf(r)) {
		stopped(w)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, l.book(keyOf(r)))
	l.after(keyOf(r))
}
