package verify

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// A shop takes payments. Each key has one effect and one answer, except for its bug.
type shop struct {
	bug string // "" for none

	mu      sync.Mutex
	kept    map[string]*payment
	keys    []string
	effects int
	hung    string // the key that hangs
}

type payment struct {
	done   bool
	answer string
}

const (
	shopWork = 5 * time.Millisecond
	shopKeys = 50 // that it keeps with the bug forgets
)

// The bugs.
const (
	noDedup   = "takes every request for a new one"
	forgets   = "forgets keys beyond the newest"
	runsAgain = "forgets keys whose clients have left"
	hangs     = "hangs for ever on a key"
	changes   = "tells another amount to each"
	mixes     = "answers a key with the effect of another"
	refuses   = "refuses all"
	breaks    = "answers 503"
	silent    = "tells of no effect"
	vanishes  = "has no effect"
)

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintf(w, `{"payments":%d}`, s.effects)
		return
	}
	if _, err := io.ReadAll(r.Body); err != nil {
		return
	}
	switch s.bug {
	case refuses:
		http.Error(w, "no", http.StatusPaymentRequired)
		return
	case breaks:
		w.Header().Set("Retry-After", "0")
		http.Error(w, "no", http.StatusServiceUnavailable)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	p, mine := s.claim(key)
	switch {
	case s.hangs(key):
		<-r.Context().Done()
		return
	case mine:
		time.Sleep(shopWork)
		s.pay(key, p, r.Context().Err() != nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.done {
		w.WriteHeader(http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, p.answer)
	if s.bug == changes {
		fmt.Fprintf(w, ` %d`, time.Now().UnixNano())
	}
}

// claim returns the payment of a key, and whether the caller is to make it.
func (s *shop) claim(key string) (p *payment, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.kept[key]; p != nil && s.bug != noDedup {
		return p, false
	}
	p = new(payment)
	s.kept[key] = p
	s.keys = append(s.keys, key)
	if s.bug == forgets && len(s.keys) > shopKeys {
		delete(s.kept, s.keys[0])
		s.keys = s.keys[1:]
	}
	if s.bug == hangs && len(s.keys) == 10 {
		s.hung = key
	}
	return p, true
}

func (s *shop) hangs(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hung == key
}

func (s *shop) pay(key string, p *payment, left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bug != vanishes && (s.bug != mixes || s.effects < 10) {
		s.effects++
	}
	p.answer, p.done = fmt.Sprintf(`{"id":%d}`, s.effects), true
	if s.bug == silent {
		p.answer = "{}"
	}
	if s.bug == runsAgain && left {
		delete(s.kept, key)
	}
}
