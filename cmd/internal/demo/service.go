package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A service charges cards. It is an ordinary one: it knows nothing of idempotency keys, and it does not stop a payment
// because whoever asked for it has hung up.
type service struct {
	ledger  *ledger
	url     string
	address string
	running atomic.Int64 // requests that have not ended

	mu     sync.Mutex
	server *http.Server
	ended  chan error
}

// A payment is what is asked of the service.
type payment struct {
	Order    string `json:"order"`
	Amount   int64  `json:"amount"` // in the currency's smallest unit
	Currency string `json:"currency"`
	// Takes is how long the bank needs, as a Go duration. Defaults to no time.
	Takes string `json:"takes,omitempty"`
}

const longestPayment = time.Minute

func newService(l *ledger) (*service, error) {
	s := &service{ledger: l, address: "127.0.0.1:0"}
	if err := s.start(); err != nil {
		return nil, err
	}
	s.url = "http://" + s.address
	return s, nil
}

// start listens on the service's address: a free port at first, the same one after a stop.
func (s *service) start() error {
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return fmt.Errorf("start service: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments", s.pay)
	mux.HandleFunc("GET /payments", s.list)
	server := &http.Server{Handler: s.count(mux), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.address, s.server, s.ended = listener.Addr().String(), server, ended
	return nil
}

// stop ends the service at once, as a crash does, except for payments that are with the bank.
func (s *service) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil
	}
	err := s.server.Close()
	if serveErr := <-s.ended; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	s.server = nil
	if err != nil {
		return fmt.Errorf("stop service: %w", err)
	}
	return nil
}

func (s *service) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.running.Add(1)
		defer s.running.Add(-1)
		next.ServeHTTP(w, r)
	})
}

func (s *service) pay(w http.ResponseWriter, r *http.Request) {
	var p payment
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&p); err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"error": "not a payment in JSON"})
		return
	}
	var takes time.Duration
	if p.Takes != "" {
		var err error
		if takes, err = time.ParseDuration(p.Takes); err != nil || takes < 0 || takes > longestPayment {
			answer(w, http.StatusBadRequest, map[string]string{"error": "takes is not a time of up to a minute"})
			return
		}
	}
	if p.Order == "" || p.Amount <= 0 || p.Currency == "" {
		answer(w, http.StatusUnprocessableEntity, map[string]string{"error": "order, amount and currency are needed"})
		return
	}
	time.Sleep(takes) // the bank
	c, err := s.ledger.add(charge{Order: p.Order, Amount: p.Amount, Currency: p.Currency})
	if err != nil {
		answer(w, http.StatusInternalServerError, map[string]string{"error": "the ledger can't be written"})
		return
	}
	w.Header().Set("Location", "/payments/"+c.ID)
	answer(w, http.StatusCreated, receipt{c.ID, c.Order, c.Amount, c.Currency, "captured"})
}

// A receipt is the answer to a payment.
type receipt struct {
	ID       string `json:"id"`
	Order    string `json:"order"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Status   string `json:"status"`
}

func (s *service) list(w http.ResponseWriter, _ *http.Request) {
	charges, err := s.ledger.charges("")
	if err != nil {
		answer(w, http.StatusInternalServerError, map[string]string{"error": "the ledger can't be read"})
		return
	}
	answer(w, http.StatusOK, map[string]any{"payments": charges})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) //nolint:errcheck,errchkjson // the client is gone; nobody is left to tell
}
