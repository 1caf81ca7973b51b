package demo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
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

	mu      sync.Mutex
	server  *http.Server
	ended   chan error
	limited map[string]bool // orders that were turned away once
}

// A payment is what is asked of the service.
type payment struct {
	Order    string `json:"order"`
	Amount   int64  `json:"amount"` // in the currency's smallest unit
	Currency string `json:"currency"`
	// Takes is how long the bank needs, as a Go duration. Defaults to no time.
	Takes string `json:"takes,omitempty"`
	// AnswersAfter is how long the service needs to answer once the card is charged. Defaults to no time.
	AnswersAfter string `json:"answers_after,omitempty"`
}

// safePath is where a payment may be asked for twice: the service finds what the operation has charged before.
const safePath = "/payments/safe"

const longestPayment = time.Minute

func newService(l *ledger) (*service, error) {
	s := &service{ledger: l, address: "127.0.0.1:0"}
	if err := s.start(); err != nil {
		return nil, err
	}
	s.url = "http://" + s.address
	return s, nil
}

// handler serves payments, for as long as the ledger is open.
func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments", s.pay)
	mux.HandleFunc("POST "+safePath, s.paySafely)
	mux.HandleFunc("GET /operations/{operation}", s.operation)
	mux.HandleFunc("GET /payments", s.list)
	mux.HandleFunc("GET /payments/count", s.total)
	s.variants(mux)
	return s.count(mux)
}

// start listens on the service's address: a free port at first, the same one after a stop.
func (s *service) start() error {
	listener, err := listenOn(context.Background(), s.address)
	if err != nil {
		return fmt.Errorf("start service: %w", err)
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
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

// A session belongs to one exchange with one client, and so does what is left of a client's rate: an answer that is
// given again to somebody else must not carry them.
func (s *service) pay(w http.ResponseWriter, r *http.Request) {
	c, ok := s.charge(w, r)
	if !ok {
		return
	}
	w.Header().Set("Set-Cookie", "session="+rand.Text()+"; Path=/; HttpOnly")
	w.Header().Set("X-Ratelimit-Remaining", strconv.FormatInt(1000-s.running.Load(), 10))
	captured(w, c)
}

// charge charges the card that a request is about, or answers that it can't.
func (s *service) charge(w http.ResponseWriter, r *http.Request) (charge, bool) {
	o, ok := orderOf(w, r)
	if !ok {
		return charge{}, false
	}
	return s.chargeFor(w, r, o)
}

// An order is a payment with its times read.
type order struct {
	payment
	takes, after time.Duration
}

// orderOf reads a request's order, or refuses it.
func orderOf(w http.ResponseWriter, r *http.Request) (o order, ok bool) {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&o.payment); err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"error": "not a payment in JSON"})
		return o, false
	}
	var err error
	if o.takes, err = payTime(o.Takes); err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"error": "takes is not a time of up to a minute"})
		return o, false
	}
	if o.after, err = payTime(o.AnswersAfter); err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"error": "answers_after is not a time of up to a minute"})
		return o, false
	}
	if o.Order == "" || o.Amount <= 0 || o.Currency == "" {
		answer(w, http.StatusUnprocessableEntity, map[string]string{"error": "order, amount and currency are needed"})
		return o, false
	}
	return o, true
}

// chargeFor charges the card of an order, or answers that it can't.
func (s *service) chargeFor(w http.ResponseWriter, r *http.Request, o order) (charge, bool) {
	time.Sleep(o.takes) // the bank
	c, err := s.ledger.add(charge{
		Order: o.Order, Amount: o.Amount, Currency: o.Currency, Operation: r.Header.Get("Idempotency-Operation"),
	})
	if err != nil {
		answer(w, http.StatusInternalServerError, map[string]string{"error": "the ledger can't be written"})
		return charge{}, false
	}
	select {
	case <-time.After(o.after):
	case <-r.Context().Done(): // whoever asked has hung up; the card is charged all the same
	}
	return c, true
}

func captured(w http.ResponseWriter, c charge) {
	w.Header().Set("Location", location(c))
	answer(w, http.StatusCreated, receipt{c.ID, c.Order, c.Amount, c.Currency, "captured"})
}

func payTime(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err == nil && (d < 0 || d > longestPayment) {
		err = errors.New("out of range")
	}
	return d, err
}

// paySafely makes a payment for an operation, or finds the one that it has made.
func (s *service) paySafely(w http.ResponseWriter, r *http.Request) {
	c, found, err := s.ledger.ofOperation(r.Header.Get("Idempotency-Operation"))
	switch {
	case err != nil:
		answer(w, http.StatusInternalServerError, map[string]string{"error": "the ledger can't be read"})
	case found:
		captured(w, c)
	default:
		s.pay(w, r)
	}
}

// operation answers the gateway's question what became of an operation. Only a charge is a sure answer: without one the
// request may still be on its way.
func (s *service) operation(w http.ResponseWriter, r *http.Request) {
	c, found, err := s.ledger.ofOperation(r.PathValue("operation"))
	if err != nil || !found {
		answer(w, http.StatusNotFound, map[string]string{"error": "no charge of this operation"})
		return
	}
	w.Header().Set("Idempotency-Outcome", "done")
	captured(w, c)
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

func (s *service) total(w http.ResponseWriter, _ *http.Request) {
	n, err := s.ledger.lines()
	if err != nil {
		answer(w, http.StatusInternalServerError, map[string]string{"error": "the ledger can't be read"})
		return
	}
	answer(w, http.StatusOK, map[string]int{"count": n})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) //nolint:errcheck,errchkjson // the client is gone; nobody is left to tell
}
