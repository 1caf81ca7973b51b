package demo

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// variants adds the paths on which a payment is answered in special ways. All but declined charge the card once.
func (s *service) variants(mux *http.ServeMux) {
	mux.HandleFunc("POST /payments/declined", declined)
	mux.HandleFunc("POST /payments/failing", s.failing)
	mux.HandleFunc("POST /payments/limited", s.limit)
	mux.HandleFunc("POST /payments/dropped", s.dropped)
	mux.HandleFunc("POST /payments/large", s.large)
	mux.HandleFunc("POST /payments/empty", s.empty)
	mux.HandleFunc("POST /payments/binary", s.binary)
	mux.HandleFunc("POST /payments/stream", s.stream)
}

// declined refuses to charge the card, each time with a reference of its own.
func declined(w http.ResponseWriter, r *http.Request) {
	if _, ok := orderOf(w, r); ok {
		answer(w, http.StatusPaymentRequired, map[string]string{"error": "the card was declined", "reference": rand.Text()})
	}
}

// failing charges the card and then fails.
func (s *service) failing(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.charge(w, r); ok {
		answer(w, http.StatusInternalServerError, map[string]string{"error": "something went wrong, somewhere"})
	}
}

// limit turns the first request for an order away, before anything has happened.
func (s *service) limit(w http.ResponseWriter, r *http.Request) {
	o, ok := orderOf(w, r)
	if !ok {
		return
	}
	if s.turnsAway(o.Order) {
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusTooManyRequests, map[string]string{"error": "too many payments for now"})
		return
	}
	if c, ok := s.chargeFor(w, r, o); ok {
		captured(w, c)
	}
}

func (s *service) turnsAway(order string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limited == nil {
		s.limited = map[string]bool{}
	}
	was := s.limited[order]
	s.limited[order] = true
	return !was
}

// dropped charges the card and breaks the connection.
func (s *service) dropped(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.charge(w, r); ok {
		panic(http.ErrAbortHandler)
	}
}

// largeSize is how many bytes a large answer has: less than what the gateway stores of one by default, 1 MiB.
const largeSize = 1_000_000

// large answers with a statement each line of which names the charge and its own number, so that an answer that was
// cut, or mixed with another, shows.
func (s *service) large(w http.ResponseWriter, r *http.Request) {
	c, ok := s.charge(w, r)
	if !ok {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"id":%q,"lines":[`, c.ID)
	for n := 1; b.Len() < largeSize-200; n++ {
		fmt.Fprintf(&b, `"%s, line %d",`, c.ID, n)
	}
	b.WriteString(`"the end"]}`)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", location(c))
	w.WriteHeader(http.StatusCreated)
	w.Write([]byte(b.String())) //nolint:errcheck // the client is gone; nobody is left to tell
}

// empty answers without a body.
func (s *service) empty(w http.ResponseWriter, r *http.Request) {
	if c, ok := s.charge(w, r); ok {
		w.Header().Set("Location", location(c))
		w.WriteHeader(http.StatusNoContent)
	}
}

// binary answers with a body that is no text: every byte value, once for each byte of the id, in an order that this
// byte decides.
func (s *service) binary(w http.ResponseWriter, r *http.Request) {
	c, ok := s.charge(w, r)
	if !ok {
		return
	}
	body := make([]byte, 0, 256*len(c.ID))
	for _, by := range []byte(c.ID) {
		for v := range 256 {
			body = append(body, byte(v)^by)
		}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Location", location(c))
	w.WriteHeader(http.StatusCreated)
	w.Write(body) //nolint:errcheck // the client is gone; nobody is left to tell
}

// streamed are the steps that a stream tells of, an event each.
var streamed = [...]string{"accepted", "authorized", "captured", "booked"}

// stream answers with events that are sent one by one.
func (s *service) stream(w http.ResponseWriter, r *http.Request) {
	c, ok := s.charge(w, r)
	if !ok {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Location", location(c))
	w.WriteHeader(http.StatusOK)
	for _, step := range streamed {
		data, err := json.Marshal(receipt{c.ID, c.Order, c.Amount, c.Currency, step})
		if err != nil {
			return // strings and a number always marshal
		}
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", step, data)
		if err := http.NewResponseController(w).Flush(); err != nil {
			return // the client is gone
		}
	}
}

func location(c charge) string { return "/payments/" + c.ID }
