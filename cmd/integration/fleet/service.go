package fleet

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A Service is an ordinary one behind the gateways: it knows nothing of idempotency, but counts what it has done.
type Service struct {
	URL string

	server *http.Server
	ended  chan error

	mu      sync.Mutex
	effects map[string]int    // by key
	answers map[string]string // by operation
	arrived chan string       // told each key whose request has come, if not nil
}

// NewService starts a service on a free port of this machine.
func NewService() (*Service, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	s := &Service{
		URL: "http://" + listener.Addr().String(), ended: make(chan error, 1),
		effects: map[string]int{}, answers: map[string]string{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments", s.pay)
	mux.HandleFunc("GET /operations/{operation}", s.operation)
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { s.ended <- s.server.Serve(listener) }()
	return s, nil
}

// Close ends the service.
func (s *Service) Close() error {
	err := s.server.Close()
	if ended := <-s.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// Arrivals returns a channel that is told each key whose request comes from now on. It must be read from.
func (s *Service) Arrivals() <-chan string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived = make(chan string, 1000)
	return s.arrived
}

// pay takes X-Takes, a duration, before its effect, and fills its answer up to X-Size bytes with what can't be
// compressed. It does not stop because whoever asked has hung up.
func (s *Service) pay(w http.ResponseWriter, r *http.Request) {
	key, operation := r.Header.Get("Idempotency-Key"), r.Header.Get("Idempotency-Operation")
	s.mu.Lock()
	arrived := s.arrived
	s.mu.Unlock()
	if arrived != nil {
		arrived <- key
	}
	if d, err := time.ParseDuration(r.Header.Get("X-Takes")); err == nil {
		time.Sleep(d)
	}
	s.mu.Lock()
	s.effects[key]++
	answer := key + "/" + strconv.Itoa(s.effects[key])
	s.answers[operation] = answer
	s.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, answer)
	if n, err := strconv.Atoi(r.Header.Get("X-Size")); err == nil && n > len(answer) {
		io.CopyN(w, rand.NewChaCha8([32]byte{}), int64(n-len(answer))) //nolint:errcheck // who asked has hung up
	}
}

// operation answers what became of an operation. Without an effect the request may still be on its way.
func (s *Service) operation(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	answer, done := s.answers[r.PathValue("operation")]
	s.mu.Unlock()
	if !done {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Idempotency-Outcome", "done")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, answer)
}

// Effects returns how often each key has had its effect.
func (s *Service) Effects() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	effects := make(map[string]int, len(s.effects))
	for key, n := range s.effects {
		effects[key] = n
	}
	return effects
}
