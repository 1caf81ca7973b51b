package webtest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/examples/shop/host"
	"github.com/semelhq/semel/examples/shop/processor"
)

// A shop serves its checkout page. The ledger of its card processor counts.
type shop struct {
	t     *testing.T
	url   string
	keys  *host.Keys
	cards *processor.Processor

	mu      sync.Mutex
	held    chan struct{} // closed when charges may go on
	arrived func()        // is told of each
}

func openShop(t *testing.T, dev bool) *shop {
	t.Helper()
	cards, err := processor.Open(processor.Options{Ledger: filepath.Join(t.TempDir(), "ledger.jsonl")})
	must(t, err)
	s := &shop{t: t, cards: cards}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		held, arrived := s.held, s.arrived
		s.mu.Unlock()
		if held != nil && r.URL.Path == "/charges" && r.Method == http.MethodPost {
			arrived()
			<-held
		}
		cards.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(func() { server.Close(); must(t, cards.Close()) })
	h, err := host.Open(t.Context(), host.Config{
		Dev: dev, Processor: server.URL, Data: t.TempDir(), Listen: "localhost:0", Log: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, errors.Join(<-ended, h.Close()))
	})
	s.url, s.keys = h.URLs[0], h.Keys
	return s
}

// hold keeps charges from being made until the function that it returns is called, which may be done often. arrived is
// closed when the first is there.
func (s *shop) hold(t *testing.T) (arrived <-chan struct{}, release func()) {
	held, there := make(chan struct{}), make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.arrived = held, sync.OnceFunc(func() { close(there) })
	release = sync.OnceFunc(func() { close(held) })
	t.Cleanup(release)
	return there, release
}

// loseAnswer has half of the next answer to a payment arrive.
func (s *shop) loseAnswer(t *testing.T) {
	t.Helper()
	res, err := http.Post(s.url+"/dev/lose", "", nil)
	must(t, err)
	must(t, res.Body.Close())
	if res.StatusCode != http.StatusNoContent {
		t.Fatal(res.Status)
	}
}

func (s *shop) charges() []processor.Entry {
	return slices.DeleteFunc(s.cards.Ledger(), func(e processor.Entry) bool { return e.Kind != processor.Charge })
}

// await waits for a channel, but not for ever.
func await(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("waited %v for the charge", patience)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
